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
OF_ONE_SCALE = ["demo", "rd-tuned", "xsa-over-budgets"]
NAMES = sorted([*OF_ONE_SCALE, "rd-controls", "xsa-by-rd", "xsa-controls", "xsa-layers", "xsa-strength"])
SCALES = [(file, scale) for file in FILES for scale in (("tiny",) if file.stem in OF_ONE_SCALE else ("tiny", "S"))]
CASES = pytest.mark.parametrize(("file", "scale"), SCALES, ids=lambda value: getattr(value, "stem", value))


def test_the_shipped_files_are_those_of_the_two_studies():
    assert [file.stem for file in FILES] == NAMES


@CASES
def test_a_shipped_file_resolves_and_its_contrasts_are_pairs(file: Path, scale: str):
    experiment = loading.load(file, scale)
    arms = resolve_arms(experiment)
    check_pairs(experiment, arms)
    assert list(experiment.scales) == [scale]
    compared = {arm for contrast in experiment.contrasts.values() for arm in contrast.arms}
    assert compared == set(experiment.arms), "no arm is trained for nothing"
    noise = experiment.noise
    pairs = len(arms) * experiment.seeds.count * (1 + len(experiment.scales[scale].budgets_tokens))
    aside = noise.repeats + noise.twins + noise.other_seeds
    assert len(cells(experiment, arms, "corpus")) == pairs + aside
    assert 3 <= experiment.seeds.count <= 5


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


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_shipped_file_says_what_is_untuned(file: Path):
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
