"""An adopted folder as a report: the page of a study, made of what the other harness recorded.

What the rule decided stands among the verdicts. What is blocked has no verdict, so it stands first among the caveats,
with its reason; the settings that were to be equal stand among what was held equal, whether they were or not.
"""

import math
from pathlib import Path

from paribus.adopting.conclude import Adopted, Outcome
from paribus.adopting.findings import Severity
from paribus.adopting.pairing import UNRECORDED_SEED
from paribus.adopting.records import REPORT_FOLDER
from paribus.adopting.runs import Run, setting
from paribus.adopting.settings import same
from paribus.adopting.showing import merged, not_concluded
from paribus.report import page
from paribus.report.content import ArmParameters, CellRow, HeldEqual, NoiseRow, PairRow, ReportContent

BITS_PER_BYTE, NATS_PER_TOKEN = "bits per byte", "nats per token"


def content(adopted: Adopted) -> ReportContent:
    """Everything of the folder that a report can show. Curves, diagnostics and looks are not in foreign files."""
    return ReportContent(
        study=adopted.name,
        question=adopted.mapping.question,
        verdicts=tuple(outcome.verdict for outcome in adopted.outcomes if outcome.verdict is not None),
        curves=(),
        measurements=(),
        diagnostics=(),
        diagnostic_texts=(),
        held_equal=tuple(held for outcome in adopted.outcomes for held in _held_equal(adopted, outcome)),
        parameters=_parameters(adopted),
        cells=tuple(_cell(adopted, run) for run in adopted.runs),
        looks=(),
        environment={},
        corpus={"source": adopted.mapping.source} if adopted.mapping.source else {},
        caveats=tuple(_caveats(adopted)),
        repeat_command=f"paribus adopt {adopted.name}",
        pairs=tuple(row for outcome in adopted.outcomes for row in _pairs(outcome)),
        noise=tuple(
            NoiseRow(
                kind="repeat",
                scale=one.scale,
                arm=one.arm,
                metric=one.metric,
                unit=one.unit,
                differences=one.differences,
                sd_of_difference=one.sd_of_difference,
                contrast_sd=None,
            )
            for one in adopted.repeats
            if not one.differing
        ),
        pairing_proven=False,
    )


def write(adopted: Adopted, folder: Path) -> Path:
    """Write the page and its data into `folder` and return the page's path. StorageError where that fails."""
    return page.write(content(adopted), folder)


def default_folder(directory: Path) -> Path:
    """Inside the folder that was read, in one of its own: the next reading does not take it for a result."""
    return directory / REPORT_FOLDER


def _caveats(adopted: Adopted) -> list[str]:
    found = not_concluded(adopted)
    for severity in (Severity.LIMITS, Severity.NOTE):
        found += [f"{of}{finding.sentence}" for of, finding in merged(adopted.of(severity))]
    return found + [f"Not used: {one.source}: {one.reason}." for one in adopted.left]


def _pairs(outcome: Outcome) -> list[PairRow]:
    if outcome.verdict is None:
        return []
    name, scale = outcome.compared.name, outcome.compared.scale
    pairs = outcome.differences
    finite = dict(zip(pairs.seeds, pairs.differences, strict=True))
    return [PairRow(name, scale, seed, finite.get(seed)) for seed in sorted({*pairs.seeds, *pairs.diverged})]


def _held_equal(adopted: Adopted, outcome: Outcome) -> list[HeldEqual]:
    one = outcome.compared
    paths = [*adopted.mapping.equal.fields, *one.metric.comparable_within]
    found = []
    for path in dict.fromkeys(paths) if one.pairs else ():
        values = [(setting(p.treatment, path), setting(p.baseline, path)) for p in one.pairs]
        equal = sum(t is not None and same(t, b) for t, b in values)
        proof = f"recorded equal in {equal} of {len(values)} pairs"
        found.append(HeldEqual(f"{one.name}: {path}", proof, equal == len(values)))
    return found


def _cell(adopted: Adopted, run: Run) -> CellRow:
    def value(unit: str) -> float | None:
        of = (run.values[name] for name, metric in adopted.mapping.metrics.items() if metric.unit == unit)
        return next((v for v in of if v is not None), None)

    lost = any(v is not None and not math.isfinite(v) for v in run.values.values())
    speed = run.tokens / run.seconds if run.tokens and run.seconds else None
    return CellRow(
        scale=run.scale,
        arm=run.arm if run.seed is not None else f"{run.arm} (seed not recorded)",
        seed=run.seed if run.seed is not None else UNRECORDED_SEED,
        state="diverged" if lost else "complete",
        digest="",
        test_nats_per_token=value(NATS_PER_TOKEN),
        test_bits_per_byte=value(BITS_PER_BYTE),
        validation_nats_per_token=None,
        final_training_loss_nats_per_token=None,
        train_seconds=run.seconds,
        tokens_per_second=speed,
        code_version="",
    )


def _parameters(adopted: Adopted) -> tuple[ArmParameters, ...]:
    """Totals only: how they divide into roles is not in foreign files."""
    found: dict[tuple[str, str], ArmParameters] = {}
    for run in adopted.runs:
        if run.parameters is not None and math.isfinite(run.parameters):
            total = round(run.parameters)
            found.setdefault((run.scale, run.arm), ArmParameters(run.scale, run.arm, {}, total, math.nan))
    return tuple(found.values())
