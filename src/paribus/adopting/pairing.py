"""Runs into pairs: one contrast at one scale, its runs by seed, and which runs repeat one another by accident."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from paribus.adopting.mapping import AdoptionMapping, Contrast, Metric
from paribus.adopting.runs import Run
from paribus.errors import ExperimentFileError, nearest

Cell = tuple[str, str, int | None]
"""(scale, arm, seed)"""
UNRECORDED_SEED = 0
"""stands for the seed of a pair whose runs record none"""


@dataclass(frozen=True)
class Pair:
    """Two runs of one scale and seed."""

    seed: int
    treatment: Run
    baseline: Run

    @property
    def sources(self) -> tuple[str, ...]:
        return self.treatment.source, self.baseline.source


@dataclass(frozen=True)
class Compared:
    """One contrast at one scale, before anything is concluded."""

    name: str
    """of the contrast, with "@" and the scale behind it where it is compared at several"""
    contrast: str
    scale: str
    primary: bool
    spec: Contrast
    metric: Metric
    treatment: Mapping[int | None, tuple[Run, ...]]
    """runs by seed; more than one where a cell was run again"""
    baseline: Mapping[int | None, tuple[Run, ...]]

    @property
    def runs(self) -> tuple[Run, ...]:
        return tuple(run for arm in (self.treatment, self.baseline) for runs in arm.values() for run in runs)

    @property
    def pairs(self) -> tuple[Pair, ...]:
        """By seed. Of a cell that was run again the first run in file order counts; the others are A/A.

        A single run against a single run is a pair also where a seed is not recorded: that it may not be one is said.
        """
        treatment, baseline = dict(self.treatment), dict(self.baseline)
        if len(treatment) == len(baseline) == 1 and None in (*treatment, *baseline):
            known = [seed for seed in (*treatment, *baseline) if seed is not None]
            seed = known[0] if known else UNRECORDED_SEED
            treatment, baseline = ({seed: next(iter(runs.values()))} for runs in (treatment, baseline))
        seeds = sorted(seed for seed in treatment.keys() & baseline.keys() if seed is not None)
        return tuple(Pair(seed, treatment[seed][0], baseline[seed][0]) for seed in seeds)


def cells(runs: Iterable[Run]) -> dict[Cell, tuple[Run, ...]]:
    """Runs by scale, arm and seed, in file order."""
    found: dict[Cell, tuple[Run, ...]] = {}
    for run in runs:
        key = (run.scale, run.arm, run.seed)
        found[key] = (*found.get(key, ()), run)
    return found


def compared(runs: Sequence[Run], mapping: AdoptionMapping) -> list[Compared]:
    """Every contrast at every scale that it is asked for or has a run at, the primary first.

    ExperimentFileError where a scale that the mapping names has no run, or the primary has several scales and none
    was chosen: choosing one after a look at the numbers would be choosing the result.
    """
    by_cell = cells(runs)
    known = list(dict.fromkeys(run.scale for run in runs))
    found = []
    for name, contrast in mapping.contrasts.items():
        arms = (contrast.treatment, contrast.baseline)
        there = [scale for scale in known if any(run.scale == scale and run.arm in arms for run in runs)]
        for scale in (*contrast.scales, contrast.primary_scale):
            if scale is not None and scale not in known:
                raise ExperimentFileError(
                    f"contrasts.{name}: no run has the scale '{scale}'",
                    expected=", ".join(known) or "no run was read",
                    received=f"'{scale}'",
                    remedy=nearest(scale, known),
                )
        # A contrast without any run still has its line: "missing" must not look like "never asked".
        chosen = [contrast.primary_scale] if contrast.primary_scale is not None else []
        scales = list(contrast.scales) or list(dict.fromkeys([*there, *chosen])) or known[:1]
        if contrast.primary and contrast.primary_scale is None and len(scales) > 1:
            raise ExperimentFileError(
                f"contrasts.{name}: the primary is compared at several scales",
                expected="primary_scale = " + " or ".join(f'"{scale}"' for scale in scales),
                received="no primary_scale",
                remedy="name the scale that answers the question",
            )
        for scale in scales:
            treatment, baseline = (
                {seed: runs for (at, of, seed), runs in by_cell.items() if (at, of) == (scale, arm)} for arm in arms
            )
            found.append(
                Compared(
                    name=name if len(scales) == 1 else f"{name}@{scale}",
                    contrast=name,
                    scale=scale,
                    primary=contrast.primary and scale == (contrast.primary_scale or scales[0]),
                    spec=contrast,
                    metric=mapping.metrics[contrast.metric],
                    treatment=treatment,
                    baseline=baseline,
                )
            )
    return sorted(found, key=lambda one: not one.primary)
