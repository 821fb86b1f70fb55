"""The tuning of a real tiny study: trained, interrupted, continued, read back, and laid over the verdict's cells."""

import json
import math
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from paribus.draining import train_missing
from paribus.errors import ExperimentFileError, StudyFolderError
from paribus.experiment import loading
from paribus.experiment.plan import resolve_arms
from paribus.experiment.spec import Experiment
from paribus.experiment.tuning import best_step
from paribus.launch.local import run_workers
from paribus.runs.folder import FORMAT, CellFolder
from paribus.study import open_study
from paribus.tuning import running
from paribus.tuning.reading import ReadTuning, Trial, means, read_tuning, tuned
from paribus.tuning.running import TuningOutcome, require_knobs_used, tune
from paribus.tuning.showing import (
    AT_PARENTS_OPTIMUM,
    SAME_VALUE,
    TUNED,
    side_by_side,
    trial_rows,
    tuning_caveats,
    tuning_summaries,
)

TUNING = """
[tuning]
seeds = 2
max_trials = 4
knobs.standard = "optimiser.matrix_learning_rate"
knobs.block = "optimiser.matrix_learning_rate"
"""
ARMS = ("standard", "block")
CONSOLE = Console(quiet=True)


def in_this_process(
    count: int, experiment: Experiment, folder: Path, runs: Path, on_event: Callable[[dict[str, Any]], None]
) -> bool:
    """`run_workers` without processes: the experiment travels as it does to them."""
    assert count > 0
    arrived = Experiment.model_validate_json(experiment.model_dump_json(exclude_unset=True))
    train_missing(open_study(arrived, folder, runs), on_event, lambda: False)
    return True


def stopped_after(updates: int) -> Callable[..., bool]:
    """`run_workers` that Ctrl-C stops after so many updates."""

    def run(count: int, experiment: Experiment, folder: Path, runs: Path, on_event: Callable[..., None]) -> bool:
        del count
        done = 0

        def listen(event: dict[str, Any]) -> None:
            nonlocal done
            done += event["kind"] == "step"
            on_event(event)

        train_missing(open_study(experiment, folder, runs), listen, lambda: done >= updates)
        return False

    return run


@pytest.fixture(scope="session")
def untuned(tmp_path_factory: pytest.TempPathFactory, prepared: Path, text: Callable[..., str]) -> Path:
    """A folder with the file of a study of five updates a cell that is to be tuned, and its frozen corpus, twice."""
    folder = tmp_path_factory.mktemp("untuned")
    short = text(arms=ARMS, execution="workers = 1").replace("budget_tokens = 10_000", "budget_tokens = 2_560")
    short = short.replace("milestones_tokens = [5_000]", "").replace("checkpoint_steps = 5", "checkpoint_steps = 3")
    (folder / "study.toml").write_text(short + TUNING, encoding="utf-8")
    shutil.copytree(prepared / "runs" / "corpora", folder / "runs" / "corpora")
    for study in ("tiny", "tiny+tuning"):
        (folder / "runs" / study).mkdir()
        shutil.copy(prepared / "runs" / "tiny" / "corpus.json", folder / "runs" / study / "corpus.json")
        (folder / "runs" / study / "study.json").write_text(json.dumps({"study": study, "format": FORMAT}))
    return folder


@pytest.fixture(scope="session")
def finished_tuning(tmp_path_factory: pytest.TempPathFactory, untuned: Path) -> tuple[Path, TuningOutcome]:
    """A copy of it with all trials trained, uninterrupted, in this process."""
    folder = tmp_path_factory.mktemp("tuned") / "study"
    shutil.copytree(untuned, folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(running, "run_workers", in_this_process)
        outcome = tune(loading.load(folder / "study.toml"), folder, folder / "runs", CONSOLE)
    return folder, outcome


@pytest.fixture
def folder(untuned: Path, tmp_path: Path) -> Path:
    """A copy of its own for a test, without any trial."""
    shutil.copytree(untuned, tmp_path / "study")
    return tmp_path / "study"


@pytest.fixture
def experiment(untuned: Path) -> Experiment:
    return loading.load(untuned / "study.toml")


def trial_cells(folder: Path, arm: str) -> list[CellFolder]:
    """The cells of a trial, by seed."""
    return [CellFolder(path) for path in sorted((folder / "runs" / "tiny+tuning" / "tiny" / arm).iterdir())]


def finished_search(
    scores: Mapping[str, Mapping[float, tuple[float | None, ...]]], experiment: Experiment
) -> ReadTuning:
    """A search with these scores by arm and value, from 0.02 in factors of 4."""
    trials = {
        arm: {
            (step := round(math.log(value / 0.02, 4))): Trial(arm, step, value, found) for value, found in tried.items()
        }
        for arm, tried in scores.items()
    }
    return ReadTuning(experiment, trials, {})


def test_before_anything_is_trained_the_search_stands_at_its_first_round(folder: Path, experiment: Experiment):
    for runs in (folder / "runs", folder / "elsewhere"):
        read = read_tuning(experiment, runs)
        assert (read.tuned, read.pending) == (None, dict.fromkeys(ARMS, (-1, 0, 1)))
        assert read.sentence == "tuning: 0 of 3 to 4 values for each of 2 arms are trained"


def test_every_arm_has_equally_many_trials_scored_on_the_validation_rows_of_their_cells(
    finished_tuning: tuple[Path, TuningOutcome], experiment: Experiment
):
    folder, outcome = finished_tuning
    read = read_tuning(experiment, folder / "runs")
    assert outcome.finished
    assert read.trials == outcome.tuning.trials
    tried = {arm: len(trials) for arm, trials in read.trials.items()}
    assert len(set(tried.values())) == 1
    assert outcome.trained == 2 * sum(tried.values())
    assert read.sentence == f"tuning is finished: {tried['block']} values for each of 2 arms"
    for arm in ARMS:
        means = {}
        for step, trial in read.trials[arm].items():
            name = arm if step == 0 else f"{arm}.at-{0.02 * 4.0**step:.6g}"
            scores = []
            for cell in trial_cells(folder, name):
                assert cell.record()["resolved"]["optimiser"]["matrix_learning_rate"] == 0.02 * 4.0**step
                rows = cell.rows("likelihood/validation-00000005").to_pydict()
                scores.append(math.fsum(rows["nats"]) / sum(rows["tokens"]))
                assert len(cell.rows("likelihood/test-00000005")) == 1, "the test split is the verdict's"
            assert trial.scores == pytest.approx(scores, abs=1e-12)  # sums of some thousand nats in another order
            means[trial.value] = math.fsum(scores) / 2
        assert read.chosen[arm].value == min(means, key=lambda value: means[value])


def test_the_verdicts_cells_are_trained_at_what_was_chosen_from_streams_that_tuning_never_used(
    finished_tuning: tuple[Path, TuningOutcome], experiment: Experiment, tmp_path: Path
):
    runs = tmp_path / "runs"
    shutil.copytree(finished_tuning[0] / "runs", runs)
    values = {arm: trial.value for arm, trial in finished_tuning[1].tuning.chosen.items()}
    chosen = tuned(experiment, runs)
    assert chosen is not None
    assert chosen.study == "tiny"
    assert {arm: chosen.arm(arm).optimiser.matrix_learning_rate for arm in ARMS} == values
    study = open_study(chosen, tmp_path, runs)
    cell = next(cell for cell in study.cells if (cell.arm, cell.seed) == ("block", 0))
    train_missing(replace(study, cells=(cell,)), lambda _: None, lambda: False)
    own, trial = study.cell_folder(cell), trial_cells(tmp_path, "block")[0]
    record = own.record()
    assert record["resolved"]["optimiser"]["matrix_learning_rate"] == values["block"]
    assert trial.record()["resolved"]["seed"] == record["resolved"]["seed"] == 0
    same = {
        name for name, digest in trial.record()["initial_digests"].items() if digest == record["initial_digests"][name]
    }
    assert same == {
        name for name, declaration in study.arms["tiny", "block"].declarations.items() if not declaration.init.std
    }
    assert trial.summary()["batch_digest"] != own.summary()["batch_digest"]


def test_doing_it_again_trains_nothing_and_another_file_makes_trials_stale(
    finished_tuning: tuple[Path, TuningOutcome], experiment: Experiment
):
    folder, _ = finished_tuning
    assert tune(experiment, folder, folder / "runs", CONSOLE).trained == 0
    larger = experiment.model_copy(update={"base": experiment.base.model_copy(update={"batch_tokens": 1024})})
    assert tuned(larger, folder / "runs") is None


def test_an_interrupted_search_is_continued_by_a_worker_process_to_the_same_bits(
    finished_tuning: tuple[Path, TuningOutcome], folder: Path, experiment: Experiment, monkeypatch: pytest.MonkeyPatch
):
    _, uninterrupted = finished_tuning
    for updates in (7, 4):  # five a cell
        monkeypatch.setattr(running, "run_workers", stopped_after(updates))
        outcome = tune(experiment, folder, folder / "runs", CONSOLE)
        assert (outcome.finished, outcome.trained) == (False, 1)
        assert tuned(experiment, folder / "runs") is None
        assert trial_rows(outcome.tuning) == (), "a round counts when all of it is there"

    def first_round_elsewhere(*arguments: Any) -> bool:
        monkeypatch.setattr(running, "run_workers", in_this_process)
        return run_workers(*arguments)

    monkeypatch.setattr(running, "run_workers", first_round_elsewhere)
    outcome = tune(experiment, folder, folder / "runs", CONSOLE)
    assert outcome.trained == uninterrupted.trained - 2
    assert outcome.tuning.trials == uninterrupted.tuning.trials
    (folder / "runs" / "tiny+tuning" / "plan.json").unlink()
    again = tune(experiment, folder, folder / "runs", CONSOLE)
    assert (again.trained, again.tuning.trials) == (0, uninterrupted.tuning.trials), "the cells are the truth"


def test_trials_that_never_become_complete_end_in_an_error(
    folder: Path, experiment: Experiment, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(running, "run_workers", lambda *_: True)
    with pytest.raises(StudyFolderError, match=r"does not get on(?s:.*)tiny/standard/0 is missing"):
        tune(experiment, folder, folder / "runs", CONSOLE)


def test_an_altered_trial_does_not_count_and_is_named(
    finished_tuning: tuple[Path, TuningOutcome], experiment: Experiment, tmp_path: Path
):
    shutil.copytree(finished_tuning[0] / "runs", tmp_path / "runs")
    cell = trial_cells(tmp_path, "block.at-0.08")[1]
    rows = cell.rows("likelihood/validation-00000005").to_pydict()
    cell.write_rows("likelihood/validation-00000005", rows | {"nats": [nats / 2 for nats in rows["nats"]]})
    read = read_tuning(experiment, tmp_path / "runs")
    assert read.tuned is None
    assert read.unfinished == {("tiny", "block.at-0.08", 1, ""): "altered"}
    with pytest.raises(StudyFolderError, match=r"tiny/block\.at-0\.08/1 is altered"):
        tune(experiment, tmp_path, tmp_path / "runs", CONSOLE)


def test_a_diverged_trial_is_never_chosen(
    finished_tuning: tuple[Path, TuningOutcome], experiment: Experiment, tmp_path: Path
):
    shutil.copytree(finished_tuning[0] / "runs", tmp_path / "runs")
    best = finished_tuning[1].tuning.chosen["standard"]
    lost = trial_cells(tmp_path, "standard" if best.step == 0 else f"standard.at-{best.value:.6g}")[1]
    (lost.path / "DONE").unlink()
    lost.finish({"reason": "the training loss became nan at step 3", "step": 3}, diverged=True)
    trial = read_tuning(experiment, tmp_path / "runs").trials["standard"][best.step]
    assert trial.scores == (best.scores[0], None)
    assert trial.mean == math.inf
    tried = read_tuning(experiment, tmp_path / "runs").trials["standard"]  # whether or not the search goes on now
    assert best_step(means(tried)) != best.step


def test_a_knob_that_an_arm_does_not_use_is_refused_before_anything_is_trained(folder: Path, text: Callable[..., str]):
    wrong = TUNING.replace('standard = "optimiser.matrix', 'standard = "optimiser.depth_read')
    (folder / "study.toml").write_text(text(arms=ARMS) + wrong, encoding="utf-8")
    experiment = loading.load(folder / "study.toml")
    with pytest.raises(ExperimentFileError, match=r"tuning\.knobs\.standard: no parameter of arm 'standard'"):
        tune(experiment, folder, folder / "runs", CONSOLE)
    assert not (folder / "runs" / "tiny+tuning" / "plan.json").exists()


def test_knobs_that_are_used_pass_and_nothing_is_asked_of_a_file_without_tuning(experiment: Experiment, tmp_path: Path):
    arms = resolve_arms(experiment)
    require_knobs_used(experiment, arms)
    plain = experiment.model_copy(update={"tuning": None})
    require_knobs_used(plain, arms)
    read = read_tuning(plain, tmp_path)
    assert (read.tuned, read.finished, read.sentence) == (plain, True, "")
    assert (trial_rows(read), tuning_summaries(read), side_by_side(read)) == ((), (), ())


def test_the_report_counts_trials_marks_the_chosen_one_and_says_what_is_interior(experiment: Experiment):
    read = finished_search(
        {
            "standard": {0.005: (5.0, 5.2), 0.02: (4.0, 4.1), 0.08: (4.5, 4.7), 0.32: (None, 9.0)},
            "block": {0.00125: (3.0, 3.3), 0.005: (3.5, 3.6), 0.02: (3.9, 3.9), 0.08: (4.5, 4.5)},
        },
        experiment,
    )
    rows = trial_rows(read)
    assert [(r.arm, r.value, r.chosen) for r in rows if r.chosen] == [
        ("standard", 0.02, True),
        ("block", 0.00125, True),
    ]
    assert [r.value for r in rows] == [0.005, 0.02, 0.08, 0.32, 0.00125, 0.005, 0.02, 0.08]
    assert rows[3].scores == (None, 9.0)
    standard, block = tuning_summaries(read)
    assert (standard.trials, standard.chosen, standard.interior) == (4, 0.02, True)
    assert standard.sentence == "The best of 4 values, with a tried neighbour on both sides that is no better."
    assert (block.trials, block.chosen, block.interior) == (4, 0.00125, False)
    assert block.sentence == (
        "The best of 4 values is the lowest one; the search gave up there, a better one may lie beyond. "
        "Tuned against tuned: block minus standard at 0.00125 and 0.02, \N{MINUS SIGN}0.9000 nats per token "
        "(validation split, 2 tuning seeds). Same rate, and child at the parent's optimum: block minus standard at "
        "0.02 and 0.02, \N{MINUS SIGN}0.1500 nats per token (validation split, 2 tuning seeds)."
    )
    (caveat,) = tuning_caveats(read)
    assert caveat.startswith("The best value of optimiser.matrix_learning_rate for block, 0.00125, lies at the edge")


def test_arms_stand_side_by_side_tuned_at_one_value_and_at_the_parents_optimum(experiment: Experiment):
    read = finished_search(
        {
            "standard": {0.005: (4.0, 4.2), 0.02: (4.3, 4.5), 0.08: (4.5, 4.7), 0.00125: (4.9, 5.0)},
            "block": {0.005: (3.9, 4.0), 0.02: (3.5, 3.6), 0.08: (4.5, 4.5), 0.32: (9.0, None)},
        },
        experiment,
    )
    found = {difference.kind: difference for difference in side_by_side(read)}
    assert list(found) == [TUNED, SAME_VALUE, AT_PARENTS_OPTIMUM]
    for kind, values, differences in (
        (TUNED, (0.02, 0.005), (3.5 - 4.0, 3.6 - 4.2)),
        (SAME_VALUE, (0.02, 0.02), (3.5 - 4.3, 3.6 - 4.5)),
        (AT_PARENTS_OPTIMUM, (0.005, 0.005), (3.9 - 4.0, 4.0 - 4.2)),
    ):
        assert (found[kind].treatment_value, found[kind].baseline_value) == values
        assert found[kind].differences == pytest.approx(differences, abs=1e-12)
        assert found[kind].mean == pytest.approx(math.fsum(differences) / 2, abs=1e-12)


def test_what_was_not_tried_or_diverged_is_said_and_has_no_difference(experiment: Experiment):
    read = finished_search(
        {
            "standard": {
                0.005: (4.1, 4.1),
                0.02: (4.2, 4.2),
                0.08: (4.5, 4.5),
                0.00125: (4.0, 4.0),
                0.0003125: (5.0, 5.0),
            },
            "block": {0.005: (5.0, 5.0), 0.02: (None, 3.6), 0.08: (3.0, 3.0), 0.32: (4.0, 4.0), 1.28: (5.0, 5.0)},
        },
        experiment,
    )
    _, same, at_optimum = side_by_side(read)
    assert (same.differences[0], same.mean) == (None, None)
    assert (at_optimum.treatment_value, at_optimum.differences, at_optimum.mean) == (None, (), None)
    sentence = tuning_summaries(read)[1].sentence
    assert "Same rate: block minus standard at 0.02 and 0.02 lost a cell, which diverged." in sentence
    assert "Child at the parent's optimum: block minus standard at 0.00125 was not tried." in sentence


def test_a_treatment_searched_along_its_own_field_is_compared_at_its_chosen_value(experiment: Experiment):
    assert experiment.tuning is not None
    knobs = dict(experiment.tuning.knobs) | {"block": "optimiser.depth_read_learning_rate"}
    experiment = experiment.model_copy(update={"tuning": experiment.tuning.model_copy(update={"knobs": knobs})})
    scores = {
        "standard": {0.005: (4.1, 4.1), 0.02: (4.0, 4.0), 0.08: (4.5, 4.5)},
        "block": {0.005: (3.0, 3.0), 0.02: (3.6, 3.6), 0.08: (3.7, 3.7)},
    }
    differences = side_by_side(finished_search(scores, experiment))
    # Both fields of the baseline's optimum are the block's declared ones, so that all three are one comparison.
    assert [d.differences for d in differences] == [pytest.approx((-1.0, -1.0))] * 3
    scores["standard"][0.005] = (3.9, 3.9)
    differences = side_by_side(finished_search(scores, experiment))
    assert [d.treatment_value for d in differences] == [0.005, 0.005, None]


def test_an_unfinished_or_wholly_diverged_search_says_so(experiment: Experiment):
    lost = dict.fromkeys((0.005, 0.02, 0.08), (None, 9.0))
    read = finished_search({"standard": lost, "block": lost}, experiment)
    assert [(s.chosen, s.interior) for s in tuning_summaries(read)] == [(0.02, False)] * 2
    assert "Each of the 3 values diverged at a tuning seed" in tuning_summaries(read)[0].sentence
    assert [caveat.partition(" diverged")[0] for caveat in tuning_caveats(read)] == [
        f"Every value of optimiser.matrix_learning_rate that was tried for {arm}" for arm in ARMS
    ]
    going_on = ReadTuning(experiment, read.trials, {"standard": (2,), "block": (-2,)})
    assert going_on.tuned is None
    assert [s.chosen for s in tuning_summaries(going_on)] == [None, None]
    assert tuning_summaries(going_on)[0].sentence == "3 values were tried so far; the search is not over."
    assert not any(row.chosen for row in trial_rows(going_on))
    assert (side_by_side(going_on), tuning_caveats(going_on)) == ((), ())


@pytest.mark.parametrize("module", ["reading", "showing"])
def test_reading_and_showing_load_no_torch(module: str):
    code = f"import sys, paribus.tuning.{module}; sys.exit('torch was loaded' if 'torch' in sys.modules else 0)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
