"""A study that never ran, as a report sees it: four arms, five seeds, six layers, drawn from named generators."""

import math
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from pathlib import Path

import numpy as np
import pytest

from paribus.report import canvas, page
from paribus.report.content import (
    ArmParameters,
    BudgetGap,
    BudgetSummary,
    CellRow,
    CoreDifferenceRow,
    CoreRow,
    CoreShareRow,
    CostRow,
    CounterfactualRow,
    Curve,
    DiagnosticText,
    DiagnosticValue,
    DivergedRow,
    EstimateRow,
    GapForm,
    HeldEqual,
    InterventionText,
    InterventionValue,
    LettersRow,
    Look,
    Measurement,
    NoiseRow,
    OverlapRow,
    PairRow,
    PublishedRow,
    RateRow,
    ReportContent,
    RouteChange,
    SensitivityRow,
    SpikeRow,
    TaskPairRow,
    TaskRow,
    TrialRow,
    TuningSummary,
    UpdateRow,
)
from paribus.report.of_sensitivity import Kind
from paribus.seeds import generator, unit_noise
from paribus.stats.paired import paired_differences
from paribus.stats.rounding import MINUS
from paribus.stats.verdict import Comparison, Rule, decide

ARMS = ("parent", "rd", "rd-tied", "exclusive")
GAIN = {"parent": 0.0, "rd": -0.0121, "rd-tied": -0.0006, "exclusive": -0.0049}
UPDATES, TOKENS_PER_UPDATE, LAYERS = 600, 32_768, 6
PLANNED = 5
CONTRASTS = (("separate value route", "rd", "parent"), ("tied control", "rd-tied", "parent"))
CONTRASTS += (("exclusive attention", "exclusive", "parent"), ("rd against exclusive", "rd", "exclusive"))

SENSITIVITY: tuple[tuple[Kind, str, str, str, float | None, float | None], ...] = (
    ("effect", "rd", "", "", None, None),
    ("schedule", "schedule-sensitivity", "parent", "schedule.decay", 0.6, 0.4),
    ("value", "rd", "rd", "routing.blocks", 8, 8),
    ("value", "rd.blocks-2", "rd", "routing.blocks", 2, 8),
)


@dataclass(frozen=True)
class Fake:
    """What may vary: how many of the five planned pairs are there, the scale, a cell that diverged."""

    seeds: int = PLANNED
    scale: str = "S"
    diverged: tuple[str, int] | None = None


def _rng(*name: str | int) -> np.random.Generator:
    return generator("fake-study", *name)


def final_loss(arm: str, seed: int) -> float:
    """Test loss, nats per token: seeds move together, arms differ by their gain and a little noise."""
    shared, own = _rng("seed", seed).normal(0, 0.02), _rng("own", arm, seed).normal(0, 0.0025)
    return float(3.412 + shared + GAIN[arm] + own)


def _curve(fake: Fake, arm: str, seed: int) -> Curve:
    step = np.arange(1, UPDATES + 1)
    batch = unit_noise((UPDATES,), "fake-study", "batch", seed)
    own = unit_noise((UPDATES,), "fake-study", "noise", arm, seed)
    falling = final_loss(arm, seed) - 0.05 + 6.9 * np.exp(-step / 22) + 0.9 * np.exp(-step / 240)
    loss = falling + 0.05 * batch + 0.004 * own
    length = 260 if fake.diverged == (arm, seed) else UPDATES
    values = [float(x) for x in loss[:length]]
    if fake.diverged == (arm, seed):
        values[-1] = math.nan
    tokens = tuple(int(s) * TOKENS_PER_UPDATE for s in step[:length])
    return Curve(fake.scale, arm, seed, tokens, tuple(values))


def _measured(fake: Fake, arm: str, seed: int) -> list[Measurement]:
    rows = []
    for share in (0.25, 0.5, 0.75, 1.0):
        if fake.diverged == (arm, seed) and share > 0.4:
            continue
        nats = final_loss(arm, seed) + 0.9 * math.exp(-share * 2.5) - 0.9 * math.exp(-2.5)
        tokens = int(share * UPDATES) * TOKENS_PER_UPDATE
        rows += [
            Measurement(fake.scale, arm, seed, tokens, split, nats + shift, (nats + shift) / 2.9, share < 1)
            for split, shift in (("test", 0.0), ("validation", 0.011))
        ]
    return rows


def _diagnostics(fake: Fake, seeds: range) -> list[DiagnosticValue]:
    rows = []
    for arm in ARMS:
        for seed in seeds:
            draw = _rng("diagnostic", arm, seed)
            for layer in range(LAYERS):
                where = (fake.scale, arm, seed, layer)
                cosine = 0.12 + 0.5 * math.exp(-(((layer - 3) / 4) ** 2)) - (0.08 if arm == "exclusive" else 0)
                rows += _aligned(where, cosine + draw.normal(0, 0.02))
                if arm == "exclusive":
                    rows.append(DiagnosticValue("cos-z-v", "cosine", *where, "attention", "", draw.normal(0, 1e-7)))
                if arm.startswith("rd"):
                    for pair in ("qk vs v", "qk vs mlp", "v vs mlp"):
                        js = 0.02 + 0.015 * layer * (arm == "rd") + 0.004 * draw.random()
                        group = f"{pair}: per token, then averaged"
                        rows.append(DiagnosticValue("js_roles", "nats", *where, "", group, js, "all", 0.002, 300))
                        group = f"{pair}: of averaged routes"
                        rows.append(DiagnosticValue("js_roles", "nats", *where, "", group, js / 2, "all", 0.002, 300))
                if arm != "exclusive":
                    for site in ("qk", "v", "mlp") if arm == "rd" else ("qk",):
                        weights = draw.dirichlet(np.exp(-np.abs(np.arange(layer + 1) - layer * 0.9) / 2) * 20 + 0.3)
                        rows += [
                            DiagnosticValue("route", "share", *where, site, f"source:{source}", float(weight))
                            for source, weight in enumerate(weights)
                        ]
    return rows


def _aligned(where: tuple[str, str, int, int], cosine: float) -> list[DiagnosticValue]:
    """An alignment of all heads, by position too, and of each of two heads."""
    name, unit, whole = "cos-y-v", "cosine", "mean over heads"
    rows = [DiagnosticValue(name, unit, *where, "", whole, cosine, "all", 0.01, 300)]
    rows += [
        DiagnosticValue(name, unit, *where, "", whole, cosine + shift, bucket, 0.02, documents)
        for bucket, shift, documents in (("1-15", 0.2, 300), ("16-63", 0.05, 300), ("1024+", -0.1, 1))
    ]
    rows += [
        DiagnosticValue(name, unit, *where, "", f"head:{head}", cosine + 0.1 * head, "all", 0.01, 300)
        for head in (0, 1)
    ]
    return rows


def _interventions(fake: Fake, arm: str, seed: int) -> list[InterventionValue]:
    draw = _rng("intervention", arm, seed)
    places = ["embedding", "block 1", "block 2"] if arm in ("parent", "rd", "rd-tied") else []
    rows = [
        InterventionValue("ablated", place, fake.scale, arm, seed, 0.08 / (1 + i) + draw.normal(0, 0.01), 0.004, 300)
        for i, place in enumerate(places)
    ]
    if arm == "exclusive":
        switched = ("switch", "projection off", fake.scale, arm, seed)
        rows.append(InterventionValue(*switched, 0.41 + draw.normal(0, 0.02), 0.013, 300))
    return rows


def _route_changes(fake: Fake) -> list[RouteChange]:
    return [
        RouteChange(fake.scale, "rd", "attention read", layer, role, (a, b), 0.01 + 0.001 * layer + 0.0001 * b)
        for a in range(fake.seeds)
        for b in range(a + 1, fake.seeds)
        for layer in range(1, LAYERS)
        for role in ("qk", "v")
    ]


TEXTS = (
    DiagnosticText("cos-y-v", "How much of the mix repeats the token's own value", "Cosine of y and v.", False),
    DiagnosticText("route", "Where each read looks in depth", "Softmax weight of each depth source.", False),
    DiagnosticText("js_roles", "How far the routes of two roles part", "Jensen-Shannon divergence per token.", False),
    DiagnosticText("cos-z-v", "What is left of the own value after projection", "Cosine of z and v.", True),
    DiagnosticText("size", "Size of the sources", "Root mean square.", False),
)
INTERVENTION_TEXTS = (
    InterventionText("ablated", "A source taken away", "What the model loses without it."),
    InterventionText("switch", "Projection switched off at evaluation", "What the model relies on."),
)


def _cell(fake: Fake, arm: str, seed: int, there: bool) -> CellRow:
    digest = f"{_rng('digest', arm, seed).integers(0, 2**60):015x}"
    if not there:
        return CellRow(fake.scale, arm, seed, "missing", digest, None, None, None, None, None, None, "")
    if fake.diverged == (arm, seed):
        return CellRow(
            fake.scale, arm, seed, "diverged", digest, None, None, None, math.nan, 1201.0, 14_050.0, "4f1c09ab77"
        )
    loss = final_loss(arm, seed)
    seconds = 2790.0 + 260 * ARMS.index(arm) + 12 * seed
    rate = UPDATES * TOKENS_PER_UPDATE / seconds
    return CellRow(
        fake.scale,
        arm,
        seed,
        "complete",
        digest,
        loss,
        loss / 2.9,
        loss + 0.011,
        loss - 0.03,
        seconds,
        rate,
        "4f1c09ab77",
    )


def build(fake: Fake) -> ReportContent:
    """The content of a fake study, its verdicts by the real rule."""
    rule = Rule(smallest_effect=0.003, design_effect=0.010, planned_seeds=PLANNED)
    comparisons, pairs = [], []
    for number, (name, treatment, baseline) in enumerate(CONTRASTS):
        values = [
            {s: None if fake.diverged == (arm, s) else final_loss(arm, s) for s in range(fake.seeds)}
            for arm in (treatment, baseline)
        ]
        paired = paired_differences(*values)
        kept = [tuple(value for seed in paired.seeds if (value := v[seed]) is not None) for v in values]
        what = (name, treatment, baseline, fake.scale, "test.nll", "nats per token", number == 0, rule, paired)
        comparisons.append(Comparison(*what, treatment_values=kept[0], baseline_values=kept[1]))
        rows = zip(paired.seeds, paired.differences, strict=True)
        pairs += [PairRow(name, fake.scale, seed, difference) for seed, difference in rows]
        pairs += [PairRow(name, fake.scale, seed, None) for seed in paired.diverged]
    verdicts = decide(comparisons)
    seeds = range(fake.seeds)
    cells = [(arm, seed) for arm in ARMS for seed in seeds]
    roles = {"embedding": 25_165_824, "attention": 28_311_552, "mlp": 56_623_104, "norm": 19_200}
    extra = {"rd": {"depth query": 36_864}, "rd-tied": {"depth query": 18_432}}
    return ReportContent(
        study="rd-attnres-small",
        question="Does a separate value route improve Block Attention Residuals?",
        verdicts=verdicts,
        curves=tuple(_curve(fake, *cell) for cell in cells),
        measurements=tuple(row for cell in cells for row in _measured(fake, *cell)),
        diagnostics=tuple(_diagnostics(fake, seeds)),
        diagnostic_texts=TEXTS,
        held_equal=(
            HeldEqual(
                "Initial values of 148 shared tensors", "digests before the first update, equal in 20 of 20 cells", True
            ),
            HeldEqual("Batches and their order", "rolling digest of the tensors the model consumed, 600 updates", True),
            HeldEqual("Schedule, optimiser groups and budget", "resolved configurations compared field by field", True),
            HeldEqual("rd: a token changes no earlier logit", "0 (bound 0); 6e-05 with a leak", True, gate=True),
            HeldEqual("Code version", "rd-tied seed 3 ran on another commit", False),
        ),
        parameters=tuple(
            ArmParameters(
                fake.scale,
                arm,
                roles | extra.get(arm, {}),
                sum((roles | extra.get(arm, {})).values()),
                6.61e8 + 2e6 * i,
            )
            for i, arm in enumerate(ARMS)
        ),
        cells=tuple(_cell(fake, arm, seed, seed < fake.seeds) for arm in ARMS for seed in range(PLANNED)),
        looks=(
            Look("2026-03-01 09:12 UTC", "paribus status", {name: 2 for name, *_ in CONTRASTS}, {}, "9b1deb4d3b7d"),
            Look(
                "2026-03-04 18:40 UTC",
                "paribus report",
                {name: fake.seeds for name, *_ in CONTRASTS},
                {v.name: v.word.value for v in verdicts} if fake.seeds >= PLANNED else {},
                "9b1deb4d3b7d",
            ),
        ),
        environment={
            "torch": "2.13.0",
            "python": "3.11.9",
            "device": "1 x H100 80 GB",
            "mode": "fast (compiled, bf16)",
        },
        corpus={"name": "FineWeb-Edu sample", "revision": "87f0914", "split by": "document", "test documents": "4 096"},
        caveats=(
            "The rate of the depth queries was tuned at the small scale only.",
            "rd-tied seed 3 ran on another code version than the other cells.",
        ),
        repeat_command="paribus run experiments/rd-attnres-small.toml\nparibus report rd-attnres-small",
        pairs=tuple(pairs),
        interventions=tuple(row for cell in cells for row in _interventions(fake, *cell)),
        intervention_texts=INTERVENTION_TEXTS,
        route_changes=tuple(_route_changes(fake)),
    )


OUTCOME = 0.012345678
"""stands in every record that tells an outcome, so that a page that must not tell it can be searched for its digits"""
NATS = "nats per token"


def _budgets(name: str, scale: str) -> dict[str, tuple]:
    """A gap that halves from one budget to the next but one, and three forms that part beyond the last."""
    largest = 4_915_200_000
    gaps = []
    for share in (0.25, 0.5, 1.0):
        mean = -OUTCOME * share**-0.3
        seeds = tuple(mean + 0.001 * (seed - 2) for seed in range(PLANNED))
        gaps.append(
            BudgetGap(
                name, scale, int(share * largest), tuple(range(PLANNED)), seeds, mean, (mean - 0.002, mean + 0.002)
            )
        )
    grid = tuple(float(x) * largest for x in np.geomspace(0.25, 4, 33))
    forms = []
    for number, form in enumerate(("c B^-g", "c_inf + c B^-g", "a + b ln B")):
        slope = (0.30, 0.22, 0.38)[number]
        mean = tuple(-OUTCOME * (budget / largest) ** -slope for budget in grid)
        half = tuple(0.002 + 0.001 * abs(math.log(budget / largest)) for budget in grid)
        low, high = (tuple(m + sign * h for m, h in zip(mean, half, strict=True)) for sign in (-1, 1))
        forms.append(GapForm(name, scale, form, grid, mean, low, high))
    sentence = f"The baseline needs {100 * OUTCOME:.6f} times the tokens."
    summary = BudgetSummary(name, scale, True, largest, 4.0 * largest, 100 * OUTCOME, (1.1, None), "Fieller", sentence)
    return {"budget_gaps": tuple(gaps), "gap_forms": tuple(forms), "budget_summaries": (summary,)}


def _answers(name: str, scale: str) -> dict[str, tuple]:
    """Three tasks of one contrast, a score over them, letters of every arm, and one task that needs no question."""
    easy, hard = ("core", "arc_easy", "", "", UPDATES, False), ("core", "winograd", "", "", UPDATES, False)
    middle, seeds = ("core", "arc_easy", "", "", UPDATES // 2, True), tuple(range(PLANNED))
    up, said = (OUTCOME - 0.011, OUTCOME + 0.008), f"rd says {OUTCOME:.6f}"

    def of_task(where: tuple, baseline: float, *, admitted: bool, note: str = "") -> TaskRow:
        return TaskRow(
            name,
            scale,
            *where,
            kind="choices",
            items=2_376,
            chance=0.25,
            gold_bits_baseline=1.2,
            gold_bits_treatment=1.2 - OUTCOME,
            gold_bits_difference=-OUTCOME,
            gold_bits_interval=(-OUTCOME - 0.002, -OUTCOME + 0.002),
            accuracy_baseline=baseline,
            accuracy_treatment=baseline + OUTCOME,
            accuracy_difference=OUTCOME,
            accuracy_interval=up,
            centred_baseline=(baseline - 0.25) / 0.75,
            centred_treatment=(baseline + OUTCOME - 0.25) / 0.75,
            centred_difference=OUTCOME / 0.75,
            centred_interval=(up[0] / 0.75, up[1] / 0.75),
            margin_baseline=-0.2,
            margin_treatment=-0.2 + OUTCOME,
            margin_difference=OUTCOME,
            margin_interval=up,
            seeds=seeds,
            admitted=admitted,
            not_admitted="" if admitted else "at chance",
            note=note,
        )

    pairs = tuple(
        TaskPairRow(
            name,
            scale,
            *where,
            seed=seed,
            items=2_376,
            only_treatment=210 + seed,
            only_baseline=180,
            mcnemar_p=0.07,
            accuracy_difference=(30 + seed) / 2_376,
            gold_items=2_370,
            gold_bits_difference=-OUTCOME + 0.001 * (seed - 2),
            gold_bits_interval=(-OUTCOME - 0.004, -OUTCOME + 0.004),
            margin_difference=OUTCOME,
            near_ties_treatment=3,
            near_ties_baseline=2,
            problems_treatment=0,
            problems_baseline=1,
            cropped=6,
        )
        for where in (easy, hard)
        for seed in seeds
    )
    score, chat = ("core", "", "", UPDATES), ("chatcore-6", "", "chat", 60)
    core = tuple(
        CoreRow(scale, arm, seed, *score, False, 22, 22, 0.1 + OUTCOME * (arm == "rd"), 0.11 + OUTCOME * (arm == "rd"))
        for arm in ARMS[:2]
        for seed in seeds
    )
    core += (CoreRow(scale, "parent", 0, *chat, False, 5, 6, None, None, "not asked: humaneval"),)
    rooms = {"boolq": (0.38, 0.5), "arc_easy": (0.75, 0.75)}  # 1 - chance under v1 and v2
    adds = {task: [OUTCOME / room / 22 for room in both] for task, both in rooms.items()}
    totals = [sum(both[number] for both in adds.values()) for number in (0, 1)]
    return {
        "tasks": (
            of_task(easy, 0.41, admitted=True),
            of_task(hard, 0.5, admitted=False, note=said),
            of_task(middle, 0.5, admitted=True),
        ),
        "task_pairs": pairs,
        "core": core,
        "core_differences": (CoreDifferenceRow(name, scale, *score, seeds, OUTCOME, up, OUTCOME * 1.1, None, 0.95),),
        "core_shares": tuple(
            CoreShareRow(name, scale, *score, task, OUTCOME, v1, v2, v1 / totals[0], v2 / totals[1])
            for task, (v1, v2) in adds.items()
        ),
        "letters": tuple(
            LettersRow(
                scale,
                arm,
                seed,
                *easy[:5],
                letters=("A", "B", "C", "D"),
                gold=(600, 590, 596, 590),
                predicted=(2_376, 0, 0, 0) if (arm, seed) == ("rd-tied", 3) else (700, 500, 576, 594),
                unanswered=6,
            )
            for arm in ARMS
            for seed in seeds
        ),
        "counterfactuals": tuple(
            CounterfactualRow(scale, arm, *easy[:5], seeds, 2_376, 0.25, 0.41, swapped, 0.009, swapped > 0.27)
            for arm, swapped in (("parent", 0.255), ("rd", 0.31))
        ),
    }


def with_records(content: ReportContent) -> ReportContent:
    """The study with every kind of record that a run folder may hold beyond the verdicts."""
    name, scale = CONTRASTS[0][0], content.cells[0].scale
    interval = (-OUTCOME - 0.003, -OUTCOME + 0.003)
    said = f"{OUTCOME} is left."
    cost = CostRow(
        name, scale, "one host", 12, 1.062, (1.058, 1.066), 1.001, 1.013, -OUTCOME, interval, -OUTCOME, interval,
        0.7 * -OUTCOME, (interval[0], -0.001), 1.2 + OUTCOME, (1.1, None), said, 1.04, "eager", "slower",
        (0.998, 1.003), 1.055, (1.05, 1.06), (0.999, 1.002), 1.07,
    )  # fmt: skip
    updates = tuple(
        UpdateRow(
            scale,
            arm,
            "eager",
            "one host",
            12,
            20_000.0 / ratio,
            0.1 * ratio,
            0.09 * ratio,
            2**24,
            2**25,
            ("forward: attention", "backward"),
            (0.25, 0.75),
            "processor time",
        )
        for arm, ratio in (("parent", 1.0), ("rd", 1.06))
    )
    trials, tuned = [], []
    for arm, best, shift in (("parent", 0.02, 0.0), ("rd", 0.005, -OUTCOME)):
        for value in (0.00125, 0.005, 0.02, 0.08):
            score = 3.5 + shift + 0.01 * math.log(value / best, 4) ** 2
            trials.append(
                TrialRow(scale, arm, "depth_read_learning_rate", value, (score, score + 0.002), value == best)
            )
        tuned.append(
            TuningSummary(scale, arm, "depth_read_learning_rate", 4, best, arm == "rd", "Both neighbours lose.")
        )
    noise = [
        NoiseRow(kind, scale, "parent", "test.nll", NATS, (sd, -sd, 0.5 * sd), sd, OUTCOME)
        for kind, sd in (("other seed", 0.021), ("perturbed twin", 0.0021), ("repeat", 0.0))
    ]
    return replace(
        content,
        estimates=(
            EstimateRow(name, scale, "new documents", NATS, -OUTCOME, 0.0021, 6.3, interval, 0.95),
            EstimateRow(name, scale, "bits per byte, linearised", "bits per byte", None, None, None, None, 0.95, said),
        ),
        overlap=(
            OverlapRow(
                name,
                scale,
                "test.nll",
                NATS,
                -OUTCOME,
                0.0021,
                4,
                interval,
                0.95,
                -OUTCOME,
                PLANNED,
                *(3000, 1000, 96),
                *(900_000, 300_000, 30_000),
            ),
        ),
        noise=tuple(noise),
        **_budgets(name, scale),
        costs=(cost,),
        updates=updates,
        trials=tuple(trials),
        tuning=tuple(tuned),
        published=(
            PublishedRow(
                name,
                scale,
                NATS,
                "A paper, table 2",
                -0.011,
                0.002,
                3,
                -OUTCOME,
                interval,
                "replicated",
                said,
                ("their corpus differs",),
            ),
        ),
        **_answers(name, scale),
        robustness=tuple(
            RateRow(name, f"rd {MINUS} parent", scale, "test.nll", NATS, factor, mean, bounds, pairs, diverged)
            for factor, mean, bounds, pairs, diverged in (
                (1.0, -OUTCOME, interval, PLANNED, 0),
                (0.5, OUTCOME, (OUTCOME - 0.003, OUTCOME + 0.003), 3, 0),
                (2.0, None, None, 2, 1),
            )
        ),
        sensitivity=tuple(
            SensitivityRow(
                kind,
                name,
                f"{arm} {MINUS} parent",
                scale,
                "test.nll",
                NATS,
                of,
                knob,
                value,
                own,
                -OUTCOME,
                interval,
                *(PLANNED, PLANNED, 0),
            )
            for kind, arm, of, knob, value, own in SENSITIVITY
        ),
        spikes=(
            SpikeRow(scale, "parent", 1, "", 300, 300 * TOKENS_PER_UPDATE, 0.62, 14.2, 6),
            SpikeRow(scale, "rd", 2, "", 450, 450 * TOKENS_PER_UPDATE, 1.04, math.inf, None),
            SpikeRow(scale, "parent", 0, "A/A twin", 60, 60 * TOKENS_PER_UPDATE, 0.41, 9.5, 2),
        ),
        diverged=(
            DivergedRow(
                *(scale, "rd", 4, "budget-2457600000", 77),
                "the training loss became nan at step 77 (2,523,136 tokens)",
                "output of layers.3.mlp (forward, rows 0 to 7 of the batch): 12 NaN of 4,096 values",
                *("9d4ae8a7ad87d0f8", f"{scale}/rd/4-abc-budget-2457600000", 5.5125),
            ),
        ),
    )


def trimmed(content: ReportContent) -> ReportContent:
    """Every kind of record, and little to draw."""
    few = {"curves": content.curves[:1], "measurements": content.measurements[:8]}
    return replace(content, diagnostics=(), interventions=(), route_changes=(), **few)


Maker = Callable[[Fake], ReportContent]


@pytest.fixture(scope="session")
def make_study() -> Maker:
    return build


@pytest.fixture(scope="session")
def study() -> ReportContent:
    return build(Fake())


@pytest.fixture(scope="session")
def waiting_study() -> ReportContent:
    """Three of five pairs, with the numbers of a finished study hidden in the records: a page must not print them."""
    early, late = build(Fake(seeds=3)), build(Fake())
    told = {verdict.name: verdict for verdict in late.verdicts}
    verdicts = tuple(
        replace(told[v.name], word=v.word, seeds=v.seeds, sentence="better", notes=("better",)) for v in early.verdicts
    )
    return replace(early, verdicts=verdicts)


@pytest.fixture(scope="session")
def full_study(study: ReportContent) -> ReportContent:
    """The finished study with every record there is."""
    return with_records(study)


@pytest.fixture(scope="session")
def few_records(full_study: ReportContent) -> ReportContent:
    """The full study, quick to draw."""
    return trimmed(full_study)


@pytest.fixture(scope="session")
def full_waiting_study(waiting_study: ReportContent) -> ReportContent:
    """The waiting study with records that would tell its outcome."""
    return with_records(waiting_study)


@pytest.fixture(scope="session")
def written(full_study: ReportContent, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the full study's report. Nobody may change it."""
    return page.write(full_study, tmp_path_factory.mktemp("report")).parent


@pytest.fixture(scope="session")
def waiting_written(full_waiting_study: ReportContent, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the waiting study's report, with every record and reading. Nobody may change it.

    Its PDFs, which are the drawings of its SVGs, are left out: embedding letters is half of the cost of a report.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(canvas.Picture, "pdf", b"")
        return page.write(full_waiting_study, tmp_path_factory.mktemp("waiting")).parent


@pytest.fixture(scope="session")
def bare_study(study: ReportContent) -> ReportContent:
    """One verdict and its pairs, and nothing that takes long to draw."""
    few = {"curves": (), "measurements": (), "diagnostics": (), "interventions": (), "route_changes": ()}
    pairs = tuple(pair for pair in study.pairs if pair.contrast == study.verdicts[0].name)
    return replace(study, verdicts=study.verdicts[:1], pairs=pairs, **few)


@pytest.fixture(scope="session")
def diverged_study() -> ReportContent:
    return build(Fake(diverged=("rd", 2)))


@pytest.fixture(scope="session")
def empty_study() -> ReportContent:
    """Planned and nothing else: no cell, no verdict, no number."""
    bare = build(Fake(seeds=0))
    nothing = {field.name: () for field in fields(bare) if isinstance(getattr(bare, field.name), tuple)}
    return replace(bare, **nothing, environment={}, corpus={})
