"""How far a study's tuning is and what it chose, read back from the cells of the tuning study. Loads no torch.

Nothing is remembered besides those cells: the search is replayed from their rows, so that it can be interrupted
anywhere, and a changed file or changed code asks for exactly the trials that it makes stale.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from paribus.experiment import tuning as search
from paribus.experiment.metrics import parse
from paribus.experiment.spec import TUNING, Experiment, Key
from paribus.reading.evidence import values_by_seed
from paribus.reading.study import ReadStudy, read_study

ENDED = ("complete", "diverged")
"""states of cells that have a score, or have lost it"""


@dataclass(frozen=True)
class Trial:
    """One value of an arm's knob, trained at every tuning seed."""

    arm: str
    step: int
    """from the declared value, in factors"""
    value: float
    scores: tuple[float | None, ...]
    """`score_of` the study, by tuning seed, lower is better; None where it diverged or has none"""

    @property
    def mean(self) -> float:
        """Over the tuning seeds; infinite where one diverged, which is worse than any finite score."""
        finite = [score for score in self.scores if score is not None and math.isfinite(score)]
        return math.fsum(finite) / len(finite) if len(finite) == len(self.scores) else math.inf


Trials = Mapping[int, Trial]
"""of one arm, by step"""


def score_of(experiment: Experiment) -> str:
    """The metric that trials are compared by.

    For text the validation split's loss, since the test split is the verdict's. For a task the area under the learning
    curve of the primary's slices: rows of a tuning seed are in no verdict, and an area has no ties where an arm never
    reaches a threshold. Of a difference of two slices it is their common curve: no arm is tuned for the effect.
    """
    if experiment.base.task is None:
        return "validation.nll"
    slices = parse(experiment.contrasts[experiment.primary].metric).slices
    return f"train.area.{slices[0]}" if len(slices) == 1 else "train.area"


def scored_on(experiment: Experiment) -> tuple[str, str]:
    """What the score is of, in words, and its unit."""
    score = score_of(experiment)
    of = "validation split" if experiment.base.task is None else f"{score}, the area under the learning curve"
    return of, parse(score).unit


def means(tried: Trials) -> dict[int, float]:
    """What the search goes by."""
    return {step: trial.mean for step, trial in tried.items()}


@dataclass(frozen=True)
class ReadTuning:
    """The search as far as the cells on the disk determine it."""

    experiment: Experiment
    """as the file declares it"""
    trials: Mapping[str, Trials]
    """by arm; every arm has equally many"""
    pending: Mapping[str, tuple[int, ...]]
    """steps that are tried next; empty where the search is over, or where nothing is to be tuned"""
    unfinished: Mapping[Key, str] = field(default_factory=dict)
    """state of each of their cells that does not count yet, by its key in the tuning study"""

    @property
    def finished(self) -> bool:
        return not self.pending

    @property
    def knobs(self) -> Mapping[str, str]:
        return {} if self.experiment.tuning is None else self.experiment.tuning.knobs

    @property
    def scale(self) -> str:
        """Tuned studies have one."""
        return next(iter(self.experiment.scales))

    @cached_property
    def chosen(self) -> dict[str, Trial]:
        """The best trial of each arm, that at the declared value where every one diverged. Empty before the end."""
        if not self.finished:
            return {}
        return {arm: tried[search.best_step(means(tried)) or 0] for arm, tried in self.trials.items()}

    @cached_property
    def tuned(self) -> Experiment | None:
        """The file's experiment at the chosen values, or as it is where nothing is to be tuned; None before the end."""
        if self.experiment.tuning is None:
            return self.experiment
        if not self.finished:
            return None
        return search.with_values(self.experiment, {a: t.value for a, t in self.chosen.items() if t.step != 0})

    @property
    def sentence(self) -> str:
        """How far the search is, without an outcome; empty where nothing is to be tuned."""
        tuning = self.experiment.tuning
        if tuning is None:
            return ""
        tried = min(map(len, self.trials.values()))
        arms = f"{len(self.trials)} arms" if len(self.trials) > 1 else "1 arm"
        if self.finished:
            return f"tuning is finished: {tried} values for each of {arms}"
        least = tried + min(map(len, self.pending.values()))
        return f"tuning: {tried} of {least} to {tuning.max_trials} values for each of {arms} are trained"


def read_tuning(experiment: Experiment, runs: Path) -> ReadTuning:
    """Replay the search of `experiment`, as the file declares it, from the tuning study's cells below `runs`.

    A round counts where each of its cells is complete or diverged under the present file and code. ExperimentFileError
    where the tuning is not one that can be done, StudyFolderError where its folder is another study's.
    """
    trials: dict[str, dict[int, Trial]] = {arm: {} for arm in search.declared_values(experiment)}
    tuning = experiment.tuning
    if tuning is None:
        return ReadTuning(experiment, trials, {})
    while pending := search.next_steps(tuning.max_trials, {arm: means(tried) for arm, tried in trials.items()}):
        study = _read_round(experiment, pending, runs)
        states = {} if study is None else {key: cell.state for key, cell in study.cells.items()}
        unfinished = {key: state for key, state in states.items() if state not in ENDED}
        if study is None or unfinished:
            return ReadTuning(experiment, trials, pending, unfinished)
        for trial in _trials(experiment, pending, study):
            trials[trial.arm][trial.step] = trial
    return ReadTuning(experiment, trials, {})


def _read_round(experiment: Experiment, steps: search.Steps, runs: Path) -> ReadStudy | None:
    """The tuning study with the trials of one round; None where it has no run folder yet."""
    if not (runs / f"{experiment.study}{TUNING}" / "study.json").exists():
        return None
    return read_study(search.trial_experiment(experiment, steps), runs)


def _trials(experiment: Experiment, steps: search.Steps, study: ReadStudy) -> Iterator[Trial]:
    tuning, declared = experiment.tuning, search.declared_values(experiment)
    assert tuning is not None
    (scale,) = experiment.scales
    for arm, tried in steps.items():
        for step in tried:
            name = search.trial_arm(arm, declared[arm], tuning.factor, step)
            scores = values_by_seed(study, scale, name, score_of(experiment))
            value = search.value_at(declared[arm], tuning.factor, step)
            yield Trial(arm, step, value, tuple(scores.get(seed) for seed in study.experiment.seeds.numbers))


def tuned(experiment: Experiment, runs: Path) -> Experiment | None:
    """The declared `experiment` with what was chosen for each arm; None while its tuning is not finished."""
    return read_tuning(experiment, runs).tuned
