"""The calibration of a real tiny task: trained, interrupted, continued, read back, judged, and frozen in its file."""

import itertools
import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from paribus.calibrating import running
from paribus.calibrating.reading import Crossing, ReadCalibration, read_calibration
from paribus.calibrating.running import calibrate
from paribus.calibrating.showing import advice, as_toml, suggested_budget_tokens
from paribus.errors import StudyFolderError
from paribus.experiment import loading
from paribus.experiment.calibration import State, calibration_of
from paribus.experiment.spec import Calibration, Experiment
from paribus.runs.folder import CellFolder

Workers = Callable[..., Callable[..., bool]]
Cli = Callable[..., tuple[int, str, str]]
RUNS = Path("runs")
QUIET = Console(quiet=True)
BUDGET = "budget_tokens = 40_000"


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch, workers: Workers) -> None:
    """In this process, and without gates, which tests of their own cover."""
    monkeypatch.setattr(running, "run_workers", workers())
    monkeypatch.setattr(running, "run_gates", lambda *_: [])


def shortened(file: Path) -> Experiment:
    """Nine updates a cell."""
    file.write_text(file.read_text().replace(BUDGET, "budget_tokens = 4_500"))
    return loading.load(file)


@pytest.fixture(scope="session")
def trained_once(tmp_path_factory: pytest.TempPathFactory, workers: Workers, text: str) -> tuple[Path, Any]:
    """A folder with the runs of a finished calibration of nine updates at two seeds, and its outcome."""
    folder = tmp_path_factory.mktemp("calibrated")
    (folder / "small.toml").write_text(text, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(running, "run_workers", workers())
        patch.setattr(running, "run_gates", lambda *_: [])
        outcome = calibrate(shortened(folder / "small.toml"), Path(), RUNS, QUIET, 2)
    return folder / RUNS, outcome


@pytest.fixture
def trained(trained_once: tuple[Path, Any], file: Path) -> tuple[Experiment, Any]:
    """A copy of it in the working folder: the experiment of small.toml, and the outcome."""
    shutil.copytree(trained_once[0], RUNS)
    return shortened(file), trained_once[1]


def cells_of(study: str) -> list[CellFolder]:
    return [CellFolder(path) for path in sorted((RUNS / study / "tiny" / "standard").iterdir())]


def without_times(cell: CellFolder) -> list[dict[str, Any]]:
    absent = ("wall_seconds", "token")
    return [{key: value for key, value in line.items() if key not in absent} for line in cell.metrics()]


def first_below(cell: CellFolder, experiment: Experiment) -> int | None:
    """From the definition, for at most 80 updates, where a window is one of them: the first of two in a row at which
    all targets together lie below the mean of their slices' thresholds: half-way to chance or, where a shortcut is as
    low, half-way to that."""
    assert experiment.base.task is not None
    levels = experiment.base.task.levels(16)
    lines = cell.metrics()
    excess, sums = [], dict.fromkeys(levels, 0.0)
    for line in lines:
        total = sum(found["targets"] for found in line["slices"].values())
        for name, found in line["slices"].items():
            sums[name] += found["targets"]
        excess.append(sum(f["targets"] * (f["loss_nats"] - f["floor_nats"]) for f in line["slices"].values()) / total)
    assert {of.floor for of in levels.values()} == {0.0}
    lowest = {name: min(of.shortcuts.values()) for name, of in levels.items()}
    below = {n: of.chance / 2 if lowest[n] > of.chance / 2 else lowest[n] / 2 for n, of in levels.items()}
    threshold = sum(sums[name] * below[name] for name in levels) / sum(sums.values())
    for update, (one, following) in enumerate(itertools.pairwise(excess), start=1):
        if one < threshold and following < threshold:
            return update
    return None


def test_a_task_that_is_too_easy_is_calibrated_at_the_suggested_budget_and_frozen_in_its_file(
    file: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch, workers: Workers
) -> None:
    monkeypatch.setattr(running, "run_workers", workers())
    easier = file.read_text().replace("classes = 3", "classes = 3, anchor = true").replace("rate = 0.02", "rate = 0.04")
    file.write_text(easier)
    easy = loading.load(file)
    code, out, err = cli("calibrate", str(file), "--seeds", "2", "--json")
    assert code == 1, err
    found = json.loads(out)
    assert found["state"] == "too easy"
    crossings = [first_below(cell, easy) for cell in cells_of("small+calibration")]
    assert [crossing["update"] for crossing in found["crossings"]] == crossings
    assert [crossing["updates"] for crossing in found["crossings"]] == [79, 79]
    median = sum(crossing or 79 for crossing in crossings) / 2
    suggested = found["suggested_budget_tokens"]
    assert suggested == pytest.approx(median / 0.6 * 512, abs=512)  # rounded up to whole updates
    assert f"budget_tokens = {suggested:_}" in found["advice"]

    file.write_text(file.read_text().replace(BUDGET, f"budget_tokens = {suggested:_}"))
    code, out, err = cli("calibrate", str(file), "--seeds", "2")
    assert (code, err) == (0, ""), out
    assert "calibrated: the baseline got below every shortcut at" in out
    table = out[out.index("[calibration]") :]
    file.write_text(file.read_text() + table)
    frozen = calibration_of(loading.load(file))
    assert frozen.state is State.CALIBRATED
    assert frozen.sentence in out
    assert (frozen.seeds, len(frozen.shares["all"])) == (2, 2)

    file.write_text(file.read_text().replace("classes = 3", "classes = 4"))
    assert calibration_of(loading.load(file)).state is State.STALE


@pytest.mark.usefixtures("quick")
def test_no_treatment_is_trained_and_nothing_is_trained_twice(trained: tuple[Experiment, Any]) -> None:
    experiment, outcome = trained
    assert (outcome.trained, outcome.finished) == (2, True)
    assert [path.name for path in RUNS.iterdir()] == ["small+calibration"]
    assert [path.name for path in (RUNS / "small+calibration" / "tiny").iterdir()] == ["standard"]
    again = calibrate(experiment, Path(), RUNS, QUIET, 2)
    assert (again.trained, again.read) == (0, outcome.read)
    more = calibrate(experiment, Path(), RUNS, QUIET, 3)
    assert more.trained == 1
    assert more.read.crossings[:2] == outcome.read.crossings
    fewer = calibrate(experiment, Path(), RUNS, QUIET, 1)
    assert (fewer.trained, fewer.read.crossings) == (0, outcome.read.crossings[:1])


@pytest.mark.usefixtures("quick")
def test_a_calibration_that_was_stopped_goes_on_to_the_same_losses(
    file: Path, trained: tuple[Experiment, Any], cli: Cli, monkeypatch: pytest.MonkeyPatch, workers: Workers
) -> None:
    experiment, whole = trained
    RUNS.rename("elsewhere")
    monkeypatch.setattr(running, "run_workers", workers(13))  # in the second cell
    stopped = calibrate(experiment, Path(), RUNS, QUIET, 2)
    assert (stopped.trained, stopped.finished, stopped.read.found, stopped.read.table) == (1, False, None, None)
    assert stopped.read.unfinished == {("tiny", "standard", 1, ""): "started"}
    monkeypatch.setattr(running, "run_workers", workers(0))
    code, out, _ = cli("calibrate", str(file), "--seeds", "2")
    assert code == 75
    assert "the same command continues" in out
    monkeypatch.setattr(running, "run_workers", workers())
    finished = calibrate(experiment, Path(), RUNS, QUIET, 2)
    assert (finished.trained, finished.read) == (1, whole.read)
    ours, theirs = (
        [without_times(CellFolder(path)) for path in sorted((runs / "small+calibration/tiny/standard").iterdir())]
        for runs in (RUNS, Path("elsewhere"))
    )
    assert ours == theirs


@pytest.mark.usefixtures("quick")
@pytest.mark.usefixtures("trained")
def test_a_changed_knob_asks_for_every_cell_anew_and_a_changed_treatment_for_none(file: Path) -> None:
    file.write_text(file.read_text().replace('name = "xsa"', 'name = "xsa", strength = 0.5'))
    assert read_calibration(loading.load(file), RUNS, 2).finished
    file.write_text(file.read_text().replace("classes = 3", "classes = 4"))
    read = read_calibration(loading.load(file), RUNS, 2)
    assert not read.finished
    assert set(read.unfinished.values()) == {"stale"}
    assert calibrate(loading.load(file), Path(), RUNS, QUIET, 2).trained == 2


@pytest.mark.usefixtures("quick")
def test_an_altered_cell_does_not_count_and_is_named(trained: tuple[Experiment, Any]) -> None:
    experiment, _ = trained
    lines = cells_of("small+calibration")[1].path / "metrics.jsonl"
    lines.write_bytes(lines.read_bytes().replace(b'"targets":', b'"targets": ', 1))
    assert read_calibration(experiment, RUNS, 2).unfinished == {("tiny", "standard", 1, ""): "altered"}
    with pytest.raises(StudyFolderError, match="tiny/standard/1 is altered"):
        calibrate(experiment, Path(), RUNS, QUIET, 2)


def test_a_baseline_that_diverged_never_crossed_and_is_not_worth_calibrating(trained: tuple[Experiment, Any]) -> None:
    experiment, _ = trained
    cell, _ = cells_of("small+calibration")
    (cell.path / "DONE").unlink()
    cell.finish({"reason": "the training loss became nan at step 3", "step": 3}, diverged=True)
    read = read_calibration(experiment, RUNS, 1)
    assert read.crossings == (Crossing("all", 0, 9, None, diverged=True),)
    assert read.found is not None
    assert read.found.state is State.TOO_HARD
    assert read.found.sentence.endswith("at none of 1 seed within the budget; it diverged at 1 of them")
    assert "lower its learning rates" in advice(read)


def crossed(experiment: Experiment, **slices: tuple[int | None, ...]) -> ReadCalibration:
    """A calibration with these crossings, in updates of 100, by slice and seed."""
    crossings = [Crossing(name, seed, 100, at) for name, of in slices.items() for seed, at in enumerate(of)]
    return ReadCalibration(experiment, len(next(iter(slices.values()))), tuple(crossings))


@pytest.mark.parametrize(
    ("slices", "said", "updates"),
    [
        ({"all": (45, 61, 70)}, "", None),
        ({"all": (10, 30, 61)}, "Declare budget_tokens = 25_600, which", 50),
        ({"all": (70, 90, None)}, "Declare budget_tokens = 76_800, which", 150),
        ({"all": (70, None, None)}, "Too many seeds did not get below the threshold within the budget", None),
        ({"all": (70, None)}, "Too many seeds did not get below the threshold within the budget", None),
        ({"few": (50, 50, 50), "one": (None, None, 5)}, "did not get below the threshold on one within", None),
        ({"few": (30, 30, 30), "one": (60, 60, 60)}, "Declare budget_tokens = 38_400, which", 75),
        ({"few": (29, 29, 29), "one": (60, 60, 60)}, "No budget puts few and one between 40 and 80 % alike", None),
        ({"few": (30, 30, 30), "one": (90, 90, 90)}, "No budget puts few and one between 40 and 80 % alike", None),
        ({"all": (30, 50, 90)}, "The seeds disagree: calibrate on more of them (--seeds 7)", None),
    ],
)
def test_what_to_change_goes_by_the_median_of_what_was_measured_and_never_beyond_it(
    file: Path, slices: dict[str, tuple[int | None, ...]], said: str, updates: int | None
) -> None:
    read = crossed(loading.load(file), **slices)
    assert said in advice(read)
    assert bool(said) == bool(advice(read))
    assert suggested_budget_tokens(read) == (None if updates is None else updates * 512)


def test_the_printed_table_is_the_one_that_the_file_reads(file: Path) -> None:
    read = crossed(loading.load(file), many=(45, 61, None), one=(None, None, None))
    assert read.table is not None
    file.write_text(file.read_text() + as_toml(read.table))
    assert loading.load(file).calibration == read.table
    assert read.table == Calibration(seeds=3, slices={"many": (0.45, 0.61), "one": ()}, evidence=read.table.evidence)


def test_a_suggested_budget_is_in_the_middle_of_what_is_asked_for(file: Path) -> None:
    """At the suggested budget the same updates lie within 40 to 80 %, wherever there is such a budget."""
    experiment = loading.load(file)
    for low in range(5, 100):
        for high in range(low, 100):
            budget = suggested_budget_tokens(crossed(experiment, few=(low,) * 3, one=(high,) * 3))
            if budget is not None:
                # One update of rounding up moves a share by at most 1 / updates.
                assert 0.4 - 512 / budget <= low * 512 / budget
                assert high * 512 / budget <= 0.8
            elif high <= 2 * low:
                assert low / 100 >= 0.4
                assert high / 100 <= 0.8


def test_a_wrong_call_is_refused_in_one_message(file: Path, cli: Cli) -> None:
    code, _, err = cli("calibrate", str(file), "--seeds", "0")
    assert code == 2
    assert "--seeds" in err
    file.write_text(
        file.read_text()
        .replace('{ task = "tally", symbols = 2, classes = 3 }', '{ path = "corpus" }')
        .replace("train.area", "test.nll")
    )
    code, out, err = cli("calibrate", str(file))
    assert (code, out) == (2, "")
    assert err.startswith("error: small.toml: calibration belongs to a synthetic task, and this study reads text\n")
    assert not RUNS.exists()


def test_help_states_the_exit_codes(cli: Cli) -> None:
    code, out, _ = cli("calibrate", "--help")
    assert code == 0
    assert "Exit code 0 where the task is calibrated, 1 where it is too easy, too hard or" in " ".join(out.split())


def test_seeds_of_the_file_are_the_default_and_an_option_overrides_them(
    file: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def noted(*arguments: Any) -> running.CalibrationOutcome:
        asked.append(arguments[-1])
        return running.CalibrationOutcome(ReadCalibration(arguments[0], arguments[-1]), 0)

    monkeypatch.setattr(running, "calibrate", noted)
    cli("calibrate", str(file))
    cli("calibrate", str(file), "--seeds", "7")
    file.write_text(
        file.read_text() + '[calibration]\nseeds = 5\nslices = { all = [0.5] }\nevidence = "0123456789abcdef"\n'
    )
    cli("calibrate", str(file))
    cli("calibrate", str(file), "--seeds", "7")
    assert asked == [3, 7, 5, 7]


def test_the_shares_lie_within_the_run(file: Path) -> None:
    read = crossed(loading.load(file), all=(1, 100, None))
    assert read.shares == {"all": (0.01, 1.0)}
    assert all(0 < share <= 1 and math.isfinite(share) for share in read.shares["all"])
