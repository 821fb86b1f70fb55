"""Every experiment file that is shipped can be planned at each of its scales."""

from pathlib import Path

import pytest

from paribus.experiment import loading, spec
from paribus.experiment.pairs import check_pairs
from paribus.experiment.plan import cells, resolve_arms
from paribus.experiment.spec import Experiment
from paribus.mechanisms import mechanisms
from paribus.mechanisms.contract import Seam

FOLDER = Path(__file__).parents[2] / "experiments"
FILES = sorted(FOLDER.glob("*.toml"))
ON_TEXT = {
    **dict.fromkeys(["demo", "rd-tuned", "xsa-over-budgets"], ("tiny",)),
    **dict.fromkeys(["rd-controls", "xsa-by-rd", "xsa-controls", "xsa-layers", "xsa-strength"], ("tiny", "S")),
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


def test_the_shipped_files_are_those_of_the_studies():
    assert sorted(file.stem for file in FILES) == sorted(ON_TEXT | ON_TASKS)


@CASES
def test_a_shipped_file_resolves_and_its_contrasts_are_pairs(file: Path, scale: str):
    experiment = loading.load(file, scale)
    arms = resolve_arms(experiment)
    check_pairs(experiment, arms)
    assert list(experiment.scales) == [scale]
    compared = {arm for contrast in experiment.contrasts.values() for arm in contrast.arms}
    assert compared == set(experiment.arms), "no arm is trained for nothing"
    noise, robustness = experiment.noise, experiment.robustness
    pairs = len(arms) * experiment.seeds.count * (1 + len(experiment.scales[scale].budgets_tokens))
    aside = noise.repeats + noise.twins + noise.other_seeds
    aside += len(arms) * robustness.seeds * len(robustness.rate_factors)
    assert len(cells(experiment, arms, "corpus")) == pairs + aside
    assert 3 <= experiment.seeds.count <= (10 if file.stem in ON_TASKS else 5)


@CASES
def test_a_file_on_a_task_has_signs_that_were_declared_beforehand(file: Path, scale: str):
    experiment = loading.load(file, scale)
    assert (experiment.base.task is not None) == (file.stem in ON_TASKS)
    if file.stem in ON_TASKS:
        assert experiment.contrasts[experiment.primary].expected is not None


@CASES
def test_arms_of_a_shipped_file_differ_from_each_other(file: Path, scale: str):
    experiment = loading.load(file, scale)
    digests = {
        cell.arm: cell.digest
        for cell in cells(experiment, resolve_arms(experiment), "corpus")
        if cell.seed == 0 and cell.variant == spec.STUDY
    }
    assert len(set(digests.values())) == len(digests)


@CASES
def test_a_shipped_file_reaches_a_worker_as_it_is(file: Path, scale: str):
    experiment = loading.load(file, scale)
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
        used.update(
            config.name
            for arm in resolve_arms(loading.load(file, scale)).values()
            for config in arm.mechanisms.values()
        )
    elsewhere = {"document", "value-embedding", "own"}
    assert {name for seam in Seam for name in mechanisms(seam)} - used <= elsewhere
