"""Cells of a task study as learning curves, seed by seed: milestones, updates to the threshold, plateaus.

Losses are nats per target above the best predictor's on the same targets. Of a contrast, seeds
are those that pair its arms.
"""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from paribus.data.tasks.contract import ALL
from paribus.experiment import spec
from paribus.experiment.spec import Contrast, Experiment
from paribus.reading.cell import ReadCell
from paribus.reading.learning import SliceCurve, slice_curve, threshold_of
from paribus.reading.study import ReadStudy
from paribus.report.of_tasks import MilestoneDifference
from paribus.stats import paired
from paribus.stats.acquisition import AcquisitionContrast, acquired_at, acquisition_contrast
from paribus.stats.learning import MARKS, difference_of_slices, milestones
from paribus.stats.paired import PairedDifferences
from paribus.stats.plateaus import Plateau, plateau

CONFIDENCE = 0.95
FIRST, END = 0, len(MARKS) - 1
"""places of the first milestone and of the last among all"""


def budget_updates(experiment: Experiment, scale: str) -> int:
    """Optimiser updates of a full run at a scale."""
    return -(-experiment.scales[scale].budget_tokens // experiment.base.batch_tokens)


def t_interval(values: Sequence[float], confidence: float) -> tuple[float, float] | None:
    """Of the mean of paired differences; None below two, or where all are equal."""
    return None if len(values) < 2 or paired.constant(values) else paired.t_interval(values, confidence)


class TaskArm:
    """The cells of one arm of a task study at some seeds."""

    def __init__(self, study: ReadStudy, scale: str, name: str, seeds: Sequence[int]) -> None:
        self.name = name
        self.seeds = tuple(seeds)
        self._cells: dict[int, ReadCell] = {seed: study.cells[scale, name, seed, spec.STUDY] for seed in self.seeds}
        self._levels: Mapping[str, Mapping] = study.plan["corpus"].get("task", {}).get("slices", {})

    def curve(self, seed: int, name: str) -> SliceCurve | None:
        return slice_curve(self._cells[seed].metrics, name)

    def excess_at(self, seed: int, slices: Sequence[str]) -> list[float | None]:
        """Excess loss at each milestone; of two slices, the first less the second."""
        curves = [self.curve(seed, name) for name in slices]
        known = [curve for curve in curves if curve is not None]
        if len(known) < len(slices):
            return [None] * len(MARKS)
        if len(known) == 1:
            return [one.excess for one in milestones(known[0].excess, known[0].targets)]
        acted, control = known
        pair = difference_of_slices(acted.excess, acted.targets, control.excess, control.targets)
        return [one.excess for one in pair.milestones]

    def acquired_by_seed(self, name: str) -> dict[int, int | None]:
        """Updates until the slice counts as acquired, None where that is not within the budget."""
        found: dict[int, int | None] = {}
        for seed, cell in self._cells.items():
            curve = self.curve(seed, name)
            threshold = threshold_of(cell.metrics, name, cell.thresholds)
            if curve is not None and threshold is not None and threshold > 0:  # else chance already is the floor
                found[seed] = acquired_at(curve.excess, curve.targets, threshold)
        return found

    def acquired(self, name: str) -> tuple[int | None, ...]:
        return tuple(self.acquired_by_seed(name).values())

    def plateau(self, name: str, place: int) -> Plateau | None:
        """Where the arm is on a slice around a milestone; None where no cell says."""
        levels = self._levels_of(name)
        if levels is None:
            return None
        chance, floor, threshold, shortcuts = levels
        excess = [at for seed in self.seeds if (at := self.excess_at(seed, (name,))[place]) is not None]
        if not excess:
            return None
        return plateau(excess, chance=chance, shortcuts=shortcuts, floor_nats=floor, threshold=threshold)

    def _levels_of(self, name: str) -> tuple[float, float, float, dict[str, float]] | None:
        """Chance above the floor, the floor, threshold and shortcuts above it; of all targets, weighted by slice."""
        weights = {name: 1.0} if name != ALL else self._weights()
        weights = {part: weight for part, weight in weights.items() if part in self._levels}
        if not weights:
            return None
        total = math.fsum(weights.values())

        def mean(of: Mapping[str, float]) -> float:
            return math.fsum(weights[part] * of[part] for part in weights) / total

        floors = {part: self._levels[part]["floor"] for part in weights}
        chance = mean({part: self._levels[part]["chance"] for part in weights})
        known = [self._levels[part]["shortcuts"] for part in weights]
        named = [what for what in known[0] if all(what in of for of in known)]
        shortcuts = {what: mean({part: self._levels[part]["shortcuts"][what] for part in weights}) for what in named}
        floor = mean(floors)
        # A level may be known by simulation: rounding must not put one below the floor.
        threshold = mean({part: self._levels[part]["threshold"] for part in weights}) - floor
        return (
            max(chance - floor, 0.0),
            floor,
            threshold,
            {what: max(at - floor, 0.0) for what, at in shortcuts.items()},
        )

    def _weights(self) -> dict[str, float]:
        """Targets of each slice in one cell; seeds differ in them by sampling alone."""
        weights: dict[str, float] = {}
        for line in self._cells[self.seeds[0]].metrics if self.seeds else ():
            for part, found in line.get("slices", {}).items():
                weights[part] = weights.get(part, 0.0) + found["targets"]
        return weights


class PairedArms:
    """The two arms of a contrast at the seeds that pair them."""

    def __init__(self, study: ReadStudy, contrast: Contrast, seeds: Sequence[int]) -> None:
        self.scale = study.experiment.contrast_scale(contrast)
        self.seeds = tuple(seeds)
        self.budget = budget_updates(study.experiment, self.scale)
        self.treatment = TaskArm(study, self.scale, contrast.treatment, seeds)
        self.baseline = TaskArm(study, self.scale, contrast.baseline, seeds)

    @property
    def both(self) -> tuple[TaskArm, TaskArm]:
        return self.treatment, self.baseline

    def milestones(self, slices: Sequence[str]) -> tuple[MilestoneDifference, ...]:
        treatment, baseline = ([arm.excess_at(seed, slices) for seed in self.seeds] for arm in self.both)
        found = []
        for place, mark in enumerate(MARKS):
            values = [
                t - b
                for t, b in zip([at[place] for at in treatment], [at[place] for at in baseline], strict=True)
                if t is not None and b is not None
            ]
            update = max(1, math.floor(mark * self.budget + 0.5))
            mean = float(np.mean(values)) if values else None
            found.append(MilestoneDifference(update, mean, t_interval(values, CONFIDENCE)))
        return tuple(found)

    def acquisition(self, name: str, pairs: PairedDifferences) -> AcquisitionContrast | None:
        """The updates that each arm needed; None for a slice on which there is nothing to acquire."""
        treatment, baseline = (arm.acquired_by_seed(name) for arm in self.both)
        if not treatment and not baseline:
            return None
        return acquisition_contrast(
            treatment,
            baseline,
            self.budget,
            treatment_diverged=pairs.treatment_diverged,
            baseline_diverged=pairs.baseline_diverged,
        )

    def any_acquired(self, name: str) -> bool:
        """Whether any cell of either arm acquired the slice within the budget."""
        return any(updates is not None for arm in self.both for updates in arm.acquired(name))

    def plateaus(self, name: str, place: int) -> dict[str, Plateau] | None:
        """Where each arm is on a slice around a milestone; None where no cell says."""
        found = {arm.name: arm.plateau(name, place) for arm in self.both}
        known = {name: level for name, level in found.items() if level is not None}
        return known if len(known) == len(found) else None
