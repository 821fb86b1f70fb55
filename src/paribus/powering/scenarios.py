"""The standard deviations that power is shown for, and the power of the design under each.

Everything hangs on the standard deviation of the paired difference. Where it was measured, power is shown for the
estimate, for its 80 % upper bound and doubled; where it is a guess, for the guess and doubled, marked *assumed* (rules
of evidence, section 3). An interaction's sd is derived from a simple contrast's where only that is known. Beside it
stands the floor: the sd between perturbed twins, cells of one seed that differ in one tensor by 1e-6 at the start
(section 4), below which no pairing can go.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from paribus.experiment.spec import Experiment
from paribus.stats.design import DesignPower, design_power, two_stage_power
from paribus.stats.looks import nominal_levels
from paribus.stats.noise import Noise, Sd, relative_sd, sd_from_cells
from paribus.stats.power import sd_scenarios

ALPHA = 0.05
"""The error rate of a page; the experiment file cannot change it."""

EXPLORATORY_SEEDS = 2


@dataclass(frozen=True)
class Scenario:
    """One standard deviation, where it comes from, and what the design does with it."""

    kind: str
    """"measured", "80 % upper bound", "doubled", "assumed" or "assumed, doubled\""""
    sd: float
    pairs: int | None
    """that the sd was estimated from; None for an assumed one"""
    origin: str
    """in words, where the sd is not the contrast's own; else empty"""
    power: DesignPower | None
    """None at up to 2 seeds, where no word is ever said"""
    both_stages: float | None
    """Power at the design effect over both stages, by simulation, where an extension has been made; else None"""


@dataclass(frozen=True)
class Plan:
    """How many pairs decide, and at which level."""

    seeds: int
    """pairs at the last look, or in the declared first stage"""
    confidence: float
    """of the interval that decides there: 1 - its nominal level"""
    looks: tuple[int, ...]
    stage_1: bool
    """whether `seeds` are a declared first stage"""
    seeds_in_all: int
    """with those of the second stage"""

    @property
    def words(self) -> bool:
        return self.seeds > EXPLORATORY_SEEDS


def plan_of(experiment: Experiment) -> Plan:
    """The pairs that decide and their level: of the last declared look, or of a declared first stage."""
    seeds = experiment.seeds
    if seeds.extension is not None:
        return Plan(seeds.extension.stage_1_seeds, 1 - seeds.extension.stage_1_alpha, (), True, seeds.count)
    level = nominal_levels(seeds.looks, ALPHA)[-1] if len(seeds.looks) > 1 else ALPHA
    return Plan(seeds.count, round(1 - level, 12), seeds.looks, False, seeds.count)


def scenarios(experiment: Experiment, name: str, noise: Noise) -> tuple[Scenario, ...]:
    """Every sd that power is shown for, measured ones first; none where nothing is known or assumed."""
    contrast, plan = experiment.contrasts[name], plan_of(experiment)
    found: list[tuple[str, float, int | None, str]] = []
    measured = _measured(experiment, name, noise)
    if measured is not None:
        sd, pairs, origin = measured
        three = sd_scenarios(sd, pairs)
        kinds = ("measured", "80 % upper bound", "doubled")
        values = (three.estimate, three.upper_80, three.doubled)
        found += [(kind, value, pairs, origin) for kind, value in zip(kinds, values, strict=True)]
    assumed = _assumed(experiment, name, noise)
    if assumed is not None:
        sd, origin = assumed
        found += [("assumed", sd, None, origin), ("assumed, doubled", 2 * sd, None, origin)]
    effects = contrast.smallest_effect, contrast.design_effect
    shown = []
    for kind, sd, pairs, origin in found:
        power = design_power(plan.seeds, *effects, sd, plan.confidence) if plan.words else None
        both = None
        if plan.seeds_in_all > plan.seeds:
            level = round(1 - plan.confidence, 12)
            both = two_stage_power(plan.seeds, plan.seeds_in_all, effects[1] / sd, effects[0] / sd, level, ALPHA)
        shown.append(Scenario(kind, sd, pairs, origin, power, both))
    return tuple(shown)


def floor_of(experiment: Experiment, name: str, noise: Noise) -> Sd | None:
    """The sd between perturbed twins at the contrast's scale, for its number of arms; None where it is not known."""
    contrast = experiment.contrasts[name]
    floor = noise.floors.get((experiment.contrast_scale(contrast), contrast.metric))
    return None if floor is None else (floor[0] * relative_sd(contrast.arms), floor[1])


def _measured(experiment: Experiment, name: str, noise: Noise) -> tuple[float, int, str] | None:
    if name in noise.measured:
        return (*noise.measured[name], "")
    found = _from_simple(experiment, name, {other: sd for other, (sd, _) in noise.measured.items()})
    if found is None:
        return None
    sd, other, origin = found
    return sd, noise.measured[other][1], origin


def _assumed(experiment: Experiment, name: str, noise: Noise) -> tuple[float, str] | None:
    contrast = experiment.contrasts[name]
    factor = relative_sd(contrast.arms)
    times = "" if factor == 1 else f" times {factor:.2f}, for an interaction of cells that vary alike"
    unit_of_the_primary = contrast.metric == experiment.contrasts[experiment.primary].metric
    if noise.assumed_sd is not None and unit_of_the_primary:
        return noise.assumed_sd * factor, times and f"assumed: the sd of a simple contrast{times}"
    if noise.cell_sd is not None and noise.correlation is not None and unit_of_the_primary:
        sd = sd_from_cells(noise.cell_sd, noise.correlation)
        origin = (
            f"assumed: {noise.cell_sd:.3g} sqrt(2 (1 - {noise.correlation:g})), a cell's sd and the pairs' correlation"
        )
        return sd * factor, origin + times
    if contrast.assumed_sd is not None:
        return contrast.assumed_sd, ""
    declared = {other: c.assumed_sd for other, c in experiment.contrasts.items() if c.assumed_sd is not None}
    found = _from_simple(experiment, name, declared)
    return None if found is None else (found[0], f"assumed: {found[2]}")


def _from_simple(experiment: Experiment, name: str, sds: Mapping[str, float]) -> tuple[float, str, str] | None:
    """An interaction's sd from a simple contrast at its scale on its metric: (sd, that contrast, how).

    One of its own two differences where known, else any; of several the largest, which promises least.
    """
    contrast = experiment.contrasts[name]
    if len(contrast.arms) == 2:
        return None
    simple = {
        other: candidate
        for other in sds
        if len((candidate := experiment.contrasts[other]).arms) == 2
        and candidate.metric == contrast.metric
        and experiment.contrast_scale(candidate) == experiment.contrast_scale(contrast)
    }
    sides = ({contrast.treatment, contrast.baseline}, {contrast.minus_treatment, contrast.minus_baseline})
    own = [other for other, candidate in simple.items() if set(candidate.arms) in sides]
    candidates = own or list(simple)
    if not candidates:
        return None
    other = max(candidates, key=lambda candidate: sds[candidate])
    factor = relative_sd(contrast.arms)
    origin = f"the sd of {other} times {factor:.2f}, for an interaction of cells that vary alike"
    return sds[other] * factor, other, origin
