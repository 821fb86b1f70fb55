"""Cells of a task study as learning curves, seed by seed: milestones, updates to the threshold, plateaus.

Losses are nats per target above the best predictor's on the same targets. Of a contrast, seeds
are those that pair its arms.
"""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from paribus.data.tasks.contract import ALL
from paribus.data.updates import updates_of
from paribus.experiment import spec
from paribus.experiment.spec import Contrast, Experiment
from paribus.reading.cell import ReadCell
from paribus.reading.learning import SliceCurve, slice_curve, threshold_of
from paribus.reading.study import ReadStudy
from paribus.report.of_tasks import MilestoneDifference
from paribus.stats import paired
from paribus.stats.acquisition import AcquisitionContrast, acquired_at, acquisition_contrast
from paribus.stats.learning import MARKS, area, difference_of_slices, milestones, windows
from paribus.stats.paired import PairedDifferences
from paribus.stats.plateaus import Plateau, plateau

CONFIDENCE = 0.95
END = len(MARKS) - 1
"""place of the last milestone among all"""


def budget_updates(experiment: Experiment, scale: str) -> int:
    """Optimiser updates of a full run at a scale."""
    return updates_of(experiment.scales[scale].budget_tokens, experiment.base.batch_tokens)


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
            if curve is not None and threshold is not None:
                found[seed] = acquired_at(curve.excess, curve.targets, threshold)
        return found

    def acquired(self, name: str) -> tuple[int | None, ...]:
        return tuple(self.acquired_by_seed(name).values())

    def all_in_first_window(self, name: str) -> bool:
        """Whether every cell had acquired the slice by the first window of its smoothed curve that has targets."""
        found = self.acquired_by_seed(name)
        if not found or len(found) < len(self.seeds):
            return False
        for seed, updates in found.items():
            curve = self.curve(seed, name)
            assert curve is not None
            smooth = windows(curve.excess, curve.targets)
            if updates != int(smooth.ends[smooth.targets > 0][0]):
                return False
        return True

    def plateau(self, name: str, smallest_effect: float | None = None) -> Plateau | None:
        """Where the arm ends on a slice; None where no cell says. `smallest_effect` as in `stats.plateaus.plateau`."""
        return self._plateau(name, [self.excess_at(seed, (name,))[END] for seed in self.seeds], smallest_effect)

    def area_plateau(self, name: str, smallest_effect: float) -> Plateau | None:
        """Where the area under the arm's whole learning curve lies; None where no cell says."""
        curves = [self.curve(seed, name) for seed in self.seeds]
        areas = [None if curve is None else area(curve.excess, curve.targets) for curve in curves]
        return self._plateau(name, areas, smallest_effect)

    def _plateau(self, name: str, values: Sequence[float | None], smallest_effect: float | None) -> Plateau | None:
        levels = self._levels_of(name)
        excess = [value for value in values if value is not None]
        if levels is None or not excess:
            return None
        chance, floor, threshold, shortcuts = levels
        return plateau(
            excess,
            chance=chance,
            shortcuts=shortcuts,
            floor_nats=floor,
            threshold=threshold,
            smallest_effect=smallest_effect,
        )

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
    """The arms of a contrast, two or the four of an interaction, at the seeds that pair them."""

    def __init__(self, study: ReadStudy, contrast: Contrast, seeds: Sequence[int]) -> None:
        self.scale = study.experiment.contrast_scale(contrast)
        self.seeds = tuple(seeds)
        self.budget = budget_updates(study.experiment, self.scale)
        self.every = tuple(TaskArm(study, self.scale, name, seeds) for name in contrast.arms)
        """in the order of the contrast's formula"""

    @property
    def interaction(self) -> bool:
        """Whether the difference is one of two differences."""
        return len(self.every) > 2

    @property
    def treatment(self) -> TaskArm:
        """The arm that the question is about."""
        return self.every[0]

    @property
    def baseline(self) -> TaskArm:
        """The arm that it is compared with."""
        return self.every[1]

    def milestones(self, slices: Sequence[str]) -> tuple[MilestoneDifference, ...]:
        """The contrast's difference at each milestone, of one slice or of the first less the second."""
        by_arm = [[arm.excess_at(seed, slices) for seed in self.seeds] for arm in self.every]
        signs = (1.0, -1.0, -1.0, 1.0)[: len(self.every)]
        found = []
        for place, mark in enumerate(MARKS):
            values = []
            for of_seed in zip(*by_arm, strict=True):
                known = [at for each in of_seed if (at := each[place]) is not None]
                if len(known) == len(signs):
                    values.append(math.fsum(sign * at for sign, at in zip(signs, known, strict=True)))
            update = max(1, math.floor(mark * self.budget + 0.5))
            mean = float(np.mean(values)) if values else None
            found.append(MilestoneDifference(update, mean, t_interval(values, CONFIDENCE)))
        return tuple(found)

    def acquisition(self, name: str, pairs: PairedDifferences) -> AcquisitionContrast | None:
        """The updates that each of two arms needed.

        None for an interaction, and for a slice on which there is nothing to acquire.
        """
        if self.interaction:
            return None
        treatment, baseline = (arm.acquired_by_seed(name) for arm in self.every)
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
        """Whether any cell of any arm acquired the slice within the budget."""
        return bool(self.acquired_by(name))

    def acquired_by(self, name: str) -> tuple[str, ...]:
        """Arms of which a cell acquired the slice within the budget."""
        return tuple(arm.name for arm in self.every if any(updates is not None for updates in arm.acquired(name)))

    def all_in_first_window(self, name: str) -> bool:
        """Whether every cell of every arm had acquired the slice by the first window of its curve."""
        return all(arm.all_in_first_window(name) for arm in self.every)

    def plateaus(self, name: str, smallest_effect: float | None = None) -> dict[str, Plateau] | None:
        """Where each arm ends on a slice; None where a cell does not say."""
        return _known({arm.name: arm.plateau(name, smallest_effect) for arm in self.every})

    def area_plateaus(self, name: str, smallest_effect: float) -> dict[str, Plateau] | None:
        """Where the area of each arm's whole learning curve lies; None where a cell does not say."""
        return _known({arm.name: arm.area_plateau(name, smallest_effect) for arm in self.every})


def _known(found: dict[str, Plateau | None]) -> dict[str, Plateau] | None:
    known = {name: level for name, level in found.items() if level is not None}
    return known if len(known) == len(found) else None
