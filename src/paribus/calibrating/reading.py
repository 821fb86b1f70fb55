"""How far a calibration is and what it found, read back from the cells of the calibration study. Loads no torch.

Nothing is remembered besides those cells: a changed file or changed code asks for exactly what it makes stale.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from paribus.experiment.calibration import (
    CalibrationFound,
    baseline_of,
    calibration_experiment,
    evidence_of,
    in_words,
    judged,
    lowered,
    share_of,
    slices_of,
)
from paribus.experiment.spec import STUDY, Calibration, Experiment, Key
from paribus.reading.cell import ENDED, ReadCell
from paribus.reading.learning import slice_curve, threshold_of
from paribus.reading.study import read_study
from paribus.reading.task_arms import budget_updates
from paribus.stats.acquisition import acquired_at


@dataclass(frozen=True)
class Crossing:
    """Where one calibration seed got below the threshold of one slice: half-way to the floor, or below a shortcut."""

    slice: str
    seed: int
    updates: int
    """of the whole budget"""
    at: int | None
    """updates finished by then; None where it did not within the budget"""
    diverged: bool = False
    """which is one way of not getting there"""

    @property
    def share(self) -> float | None:
        """of the budget, as it is judged and written down"""
        return None if self.at is None else share_of(self.at, self.updates)


@dataclass(frozen=True)
class ReadCalibration:
    """The calibration as far as the cells on the disk determine it."""

    experiment: Experiment
    """as the file declares it"""
    seeds: int
    crossings: tuple[Crossing, ...] = ()
    """by slice, then seed; empty before the last cell has ended"""
    unfinished: Mapping[Key, str] = field(default_factory=dict)
    """state of each cell that does not count yet, by its key in the calibration study"""

    @property
    def finished(self) -> bool:
        return bool(self.crossings)

    @cached_property
    def shares(self) -> dict[str, tuple[float, ...]]:
        """Of the budget, by slice, of the seeds that got below the threshold."""
        found: dict[str, tuple[float, ...]] = {crossing.slice: () for crossing in self.crossings}
        for crossing in self.crossings:
            if crossing.share is not None:
                found[crossing.slice] += (crossing.share,)
        return found

    @property
    def found(self) -> CalibrationFound | None:
        """What it says; None before the end."""
        if not self.finished:
            return None
        sentence = in_words(self.shares, self.seeds, lowered(self.experiment))
        if lost := len({crossing.seed for crossing in self.crossings if crossing.diverged}):
            sentence += f"; it diverged at {lost} of them"
        return CalibrationFound(judged(self.shares, self.seeds), sentence, self.seeds, self.shares)

    @property
    def table(self) -> Calibration | None:
        """The file's `[calibration]`; None before the end."""
        if not self.finished:
            return None
        return Calibration(seeds=self.seeds, slices=self.shares, evidence=evidence_of(self.experiment))


def read_calibration(experiment: Experiment, runs: Path, seeds: int) -> ReadCalibration:
    """What the calibration study of `experiment`, as the file declares it, left below `runs`.

    A cell counts where it is complete or diverged under the present file and code. ExperimentFileError where there is
    nothing to calibrate, StudyFolderError where its folder is another study's.
    """
    alone = calibration_experiment(experiment, seeds)
    if not (runs / alone.study / "study.json").exists():
        return ReadCalibration(experiment, seeds, unfinished=dict.fromkeys(alone.cell_keys(), "missing"))
    study = read_study(alone, runs)
    unfinished = {key: cell.state for key, cell in study.cells.items() if cell.state not in ENDED}
    if unfinished:
        return ReadCalibration(experiment, seeds, unfinished=unfinished)
    scale, baseline = baseline_of(experiment)
    updates = budget_updates(alone, scale)
    cells = [study.cells[scale, baseline, seed, STUDY] for seed in alone.seeds.numbers]
    crossings = (_crossing(cell, name, updates) for name in slices_of(experiment) for cell in cells)
    return ReadCalibration(experiment, seeds, tuple(crossings))


def _crossing(cell: ReadCell, name: str, updates: int) -> Crossing:
    curve, threshold = slice_curve(cell.metrics, name), threshold_of(cell.metrics, name, cell.thresholds)
    at = None if curve is None or threshold is None else acquired_at(curve.excess, curve.targets, threshold)
    return Crossing(name, cell.key[2], updates, at, cell.state == "diverged")


def crossings_of(read: ReadCalibration, name: str) -> Iterator[Crossing]:
    """Of one slice, by seed."""
    return (crossing for crossing in read.crossings if crossing.slice == name)
