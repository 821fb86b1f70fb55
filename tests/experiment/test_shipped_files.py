"""Every experiment file that is shipped can be planned at each of its scales."""

import re
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path

import pytest

from paribus.experiment import loading, spec
from paribus.experiment.pairs import check_pairs
from paribus.experiment.plan import ArmAtScale, cells, resolve_arms
from paribus.experiment.recipe import twin_sizes
from paribus.experiment.spec import Experiment
from paribus.mechanisms import mechanisms
from paribus.mechanisms.contract import Seam
from paribus.published import read as read_published

FOLDER = Path(__file__).parents[2] / "experiments"
FILES = sorted(FOLDER.glob("*.toml"))
ON_TEXT = {
    **dict.fromkeys(["demo", "rd-tuned", "xsa-chat", "xsa-over-budgets"], ("tiny",)),
    **dict.fromkeys(["rd-controls", "xsa-by-rd", "xsa-controls", "xsa-layers", "xsa-strength"], ("tiny", "S")),
    **dict.fromkeys(["rd-s", "rd-s-controls"], ("S",)),
    **dict.fromkeys(["xsa-d24", "xsa-d24-text-shape"], ("d24",)),
    **dict.fromkeys(["rd-s-twin", "xsa-d12-twin"], ("twin",)),
    "rd-m": ("M",),
    "xsa-d12": ("d12", "d12-12x64"),
}
ON_TASKS = {
    "cross-routes": ("cross",),
    "demo-cross": ("cross",),
    "demo-twin": ("twin",),
    "ledger-arms": ("ledger",),
    "static-arms": ("static",),
    "tally-anchor": ("plain", "anchor"),
    "twin-overlap": ("free", "never", "split"),
}
SCALES = [(FOLDER / f"{name}.toml", scale) for name, scales in (ON_TEXT | ON_TASKS).items() for scale in scales]
CASES = pytest.mark.parametrize(("file", "scale"), SCALES, ids=lambda value: getattr(value, "stem", value))
TWINS = ("rd-s-twin", "xsa-d12-twin")
AT_SCALE = ("rd-m", "rd-s", "rd-s-controls", "xsa-by-rd", "xsa-d12", "xsa-d24", "xsa-d24-text-shape")
UTILISED = 0.40 * 989e12
"""FLOPs a second that the files reckon with, as they say"""

Resolved = tuple[Experiment, Mapping[tuple[str, str], ArmAtScale]]


@cache
def resolved(file: Path, scale: str) -> Resolved:
    experiment = loading.load(file, scale)
    return experiment, resolve_arms(experiment)


def test_the_shipped_files_are_those_of_the_studies():
    assert sorted(file.stem for file in FILES) == sorted(ON_TEXT | ON_TASKS)


@CASES
def test_a_shipped_file_resolves_and_its_contrasts_are_pairs(file: Path, scale: str):
    experiment, arms = resolved(file, scale)
    check_pairs(experiment, arms)
    assert list(experiment.scales) == [scale]
    compared = {arm for contrast in experiment.contrasts.values() for arm in contrast.arms}
    beside = set(experiment.robustness.derived)
    assert compared | beside == set(experiment.arms), "no arm is trained for nothing"
    noise, robustness = experiment.noise, experiment.robustness
    own = len(arms) - len(beside)
    pairs = own * experiment.seeds.count * (1 + len(experiment.scales[scale].budgets_tokens))
    aside = noise.repeats + noise.twins + noise.other_seeds
    aside += robustness.seeds * (own * len(robustness.rate_factors) + len(beside))
    assert len(cells(experiment, arms, "corpus")) == pairs + aside
    assert 3 <= experiment.seeds.count <= (10 if file.stem in ON_TASKS else 5)


@CASES
def test_a_file_on_a_task_has_signs_that_were_declared_beforehand(file: Path, scale: str):
    experiment, _ = resolved(file, scale)
    assert (experiment.base.task is not None) == (file.stem in ON_TASKS)
    if file.stem in ON_TASKS:
        assert experiment.contrasts[experiment.primary].expected is not None


@CASES
def test_arms_of_a_shipped_file_differ_from_each_other(file: Path, scale: str):
    experiment, arms = resolved(file, scale)
    digests = {
        cell.arm: cell.digest
        for cell in cells(experiment, arms, "corpus")
        if cell.seed == 0 and cell.variant == spec.STUDY
    }
    assert len(set(digests.values())) == len(digests)


@CASES
def test_a_shipped_file_reaches_a_worker_as_it_is(file: Path, scale: str):
    experiment, _ = resolved(file, scale)
    sent = Experiment.model_validate_json(experiment.model_dump_json(exclude_unset=True))
    assert sent == experiment
    assert [spec.declared(sent, scale, arm) for arm in sent.arms] == [
        spec.declared(experiment, scale, arm) for arm in experiment.arms
    ]


@pytest.mark.parametrize("file", [FOLDER / f"{name}.toml" for name in ON_TEXT], ids=lambda file: file.stem)
def test_a_shipped_file_on_text_says_what_is_untuned(file: Path):
    comments = [line for line in file.read_text(encoding="utf-8").splitlines() if line.startswith("#")]
    assert any("untuned" in line.lower() for line in comments)


def test_every_mechanism_of_the_studies_is_in_a_shipped_file():
    used = set()
    for file, scale in SCALES:
        used.update(config.name for arm in resolved(file, scale)[1].values() for config in arm.mechanisms.values())
    elsewhere = {"document", "value-embedding", "own"}
    assert {name for seam in Seam for name in mechanisms(seam)} - used <= elsewhere


@pytest.mark.parametrize("name", AT_SCALE)
def test_a_file_at_the_studies_scale_reckons_its_time_from_its_own_flops(name: str):
    """The comment says FLOPs and hours of a cell to two digits; the longest arm at the last scale decides."""
    file = FOLDER / f"{name}.toml"
    _, arms = resolved(file, ON_TEXT[name][-1])
    flops = max(a.training_flops_per_token * a.length.steps * a.length.batch_tokens for a in arms.values())
    said = re.search(r"Time expected: ([\d.e]+) FLOPs a\s+cell, so\s+([\d.]+)\s+hours", uncommented(file))
    assert said is not None
    assert float(said[1]) == pytest.approx(flops, rel=0.05)
    assert float(said[2]) == pytest.approx(flops / UTILISED / 3600, rel=0.05)


def uncommented(file: Path) -> str:
    lines = file.read_text(encoding="utf-8").splitlines()
    return " ".join(line.removeprefix("#").strip() for line in lines if line.startswith("#"))


@pytest.mark.parametrize("name", [*AT_SCALE, *TWINS])
def test_a_file_of_a_published_study_is_held_against_its_figure(name: str):
    experiment, _ = resolved(FOLDER / f"{name}.toml", ON_TEXT[name][-1])
    figures = [c.published for c in experiment.contrasts.values() if c.published is not None]
    if name == "rd-s-controls":  # its figures are public in words only
        assert "rd_attnres.controls" in uncommented(FOLDER / f"{name}.toml")
        return
    assert figures
    assert all(read_published(figure, FOLDER).caveats for figure in figures)


@pytest.mark.parametrize(
    ("name", "parameters", "published"), [("rd-s", 119_791_296, 120e6), ("rd-m", 343_039_424, 343e6)]
)
def test_the_sizes_s_and_m_have_the_published_totals_to_rounding(name: str, parameters: int, published: float):
    _, arms = resolved(FOLDER / f"{name}.toml", ON_TEXT[name][0])
    total = sum(arms[ON_TEXT[name][0], "parent"].parameters_by_role.values())
    assert total == parameters
    assert total == pytest.approx(published, abs=0.5e6)


# published.toml's totals, which nanochat's runs print.
@pytest.mark.parametrize(
    ("name", "scale", "total"),
    [
        ("xsa-d12", "d12", 286_261_730),
        ("xsa-d24", "d24", 1_384_122_122),
        ("xsa-d24-text-shape", "d24", 771_754_314),
    ],
)
def test_the_shapes_of_the_xsa_study_have_nanochats_totals_to_the_last_parameter(name: str, scale: str, total: int):
    _, arms = resolved(FOLDER / f"{name}.toml", scale)
    assert sum(arms[scale, "standard"].parameters_by_role.values()) == total


@pytest.mark.parametrize("name", TWINS)
def test_a_twin_keeps_depth_wiring_and_arms_and_claims_no_replication(name: str):
    experiment, arms = resolved(FOLDER / f"{name}.toml", "twin")
    twin_of = experiment.scales["twin"].twin_of
    assert twin_of is not None
    larger, theirs = resolved(FOLDER / twin_of.file, twin_of.scale or "S")
    beside = set(experiment.robustness.derived)
    assert set(experiment.arms) - beside <= set(larger.arms)
    here, there = (next(iter(found.values())).model for found in (arms, theirs))
    assert (here.layers, here.heads) == (there.layers, there.heads)
    assert here.value_embedding_layers == there.value_embedding_layers
    kept = {(a.arm, key): config for a in arms.values() if a.arm not in beside for key, config in a.mechanisms.items()}
    assert (
        kept.items() <= {(a.arm, key): config for a in theirs.values() for key, config in a.mechanisms.items()}.items()
    )
    assert experiment.seeds.count == 5
    assert experiment.tuning is not None
    assert not any(c.published and c.published.same_recipe for c in experiment.contrasts.values())
    told = {scaled.name for scaled in twin_sizes(experiment, "twin", FOLDER)}
    assert {"layers", "width", "heads", "vocabulary", "context in tokens", "batch in tokens", "updates"} <= told
    assert "never a replication" in uncommented(FOLDER / f"{name}.toml")


@pytest.mark.parametrize("name", [*AT_SCALE, *TWINS])
def test_plan_prints_a_file_of_a_published_study_without_its_corpus(
    name: str, cli: Callable[..., tuple[int, str, str]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.chdir(tmp_path)
    scale = ON_TEXT[name][-1]
    asked = () if len(ON_TEXT[name]) == 1 else ("--scale", scale)
    code, shown, error = cli("plan", str(FOLDER / f"{name}.toml"), *asked)
    assert (code, error) == (0, "")
    experiment, _ = resolved(FOLDER / f"{name}.toml", scale)
    assert (f"preset {experiment.base.preset}" in shown) == (experiment.base.preset is not None)
    assert ("Derived by the preset" in shown) == (experiment.scales[scale].derive is not None)
    assert ("Scaled down from" in shown) == (name in TWINS)
    assert ("never a replication" in shown) == (name in TWINS)
