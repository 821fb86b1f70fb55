"""`paribus power`: what effects a design can see, the seeds that it needs, and what it cannot conclude.

Everything hangs on the standard deviation of the paired difference. Where it was measured, power is shown for the
estimate, for its 80 % upper bound and doubled; where it is a guess, for the guess and doubled, marked *assumed* (rules
of evidence, section 3). An interaction's sd is derived from a simple contrast's where only that is known. Beside it
stands the floor: the sd between perturbed twins, cells of one seed that differ in one tensor by 1e-6 at the start
(section 4), below which no pairing can go.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import scipy
from rich.console import Console

from paribus.errors import ParibusError
from paribus.experiment.spec import UNITS, Contrast, Experiment
from paribus.stats.design import SIMULATED_STUDIES, DesignPower, design_power, two_stage_power
from paribus.stats.looks import nominal_levels
from paribus.stats.noise import Noise, Sd, relative_sd, sd_from_cells
from paribus.stats.power import DEFAULT_POWER, cannot_conclude, count_of, sd_scenarios
from paribus.terminal import table

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


def limits(experiment: Experiment, name: str, noise: Noise) -> tuple[str, ...]:
    """What the design cannot conclude about this contrast, and what is doubtful about its sd, in sentences."""
    contrast, plan, shown = experiment.contrasts[name], plan_of(experiment), scenarios(experiment, name, noise)
    if not shown or not plan.words:
        of_design = cannot_conclude(
            plan.seeds, contrast.smallest_effect, contrast.design_effect, confidence=plan.confidence
        )
    else:
        of_design = _limits_by_sd(contrast, plan, shown)
    return (*_origins(name, noise, shown), *of_design, *_floor(experiment, name, noise, shown))


def describe_json(experiment: Experiment, noise: Noise) -> dict[str, Any]:
    """Every figure of `describe`, as JSON types."""
    _check_names(experiment, noise)
    plan = plan_of(experiment)
    return {
        "study": experiment.study,
        "seeds": plan.seeds,
        "confidence": plan.confidence,
        "looks": list(plan.looks),
        "first_stage_of_a_declared_extension": plan.stage_1,
        "contrasts": {
            name: {
                "formula": contrast.formula,
                "primary": contrast.primary,
                "interaction": len(contrast.arms) > 2,
                "sd_relative_to_a_simple_contrast": relative_sd(contrast.arms),
                "scale": experiment.contrast_scale(contrast),
                "metric": contrast.metric,
                "unit": UNITS[contrast.metric.partition(".")[2]],
                "smallest_effect": contrast.smallest_effect,
                "design_effect": contrast.design_effect,
                "scenarios": [asdict(scenario) for scenario in scenarios(experiment, name, noise)],
                "floor": _floor_json(experiment, name, noise),
                "limits": list(limits(experiment, name, noise)),
            }
            for name, contrast in experiment.contrasts.items()
        },
        "notes": list(_notes(experiment, plan)),
    }


def describe(experiment: Experiment, noise: Noise, console: Console) -> None:
    """The question, and the design under it."""
    _print(console, experiment.question, style="bold")
    describe_design(experiment, noise, console)


def describe_design(experiment: Experiment, noise: Noise, console: Console) -> None:
    """One table for each contrast with what cannot be concluded below it; what holds for every contrast once."""
    _check_names(experiment, noise)
    plan = plan_of(experiment)
    said = {name: limits(experiment, name, noise) for name in experiment.contrasts}
    common = [sentence for sentence in next(iter(said.values())) if all(sentence in each for each in said.values())]
    stage = "in the declared first stage" if plan.stage_1 else "planned"
    _print(console, f"{count_of(plan.seeds, 'pair')} {stage}")
    for sentence in _notes(experiment, plan):
        _print(console, sentence)
    any_rows = False
    for name, contrast in experiment.contrasts.items():
        _print(console, "")
        _print(console, _title(experiment, name, contrast), style="bold")
        rows = [_row(scenario) for scenario in scenarios(experiment, name, noise)]
        if rows:
            any_rows = True
            console.print(table("", COLUMNS, rows, right=range(1, len(COLUMNS))))
        for sentence in said[name]:
            if sentence not in common:
                _print(console, f"  - {sentence}")
    _print(console, "")
    if common:
        _print(console, "Of every contrast:" if len(said) > 1 else "Of this design:")
    for sentence in common:
        _print(console, f"  - {sentence}")
    if any_rows:
        _print(console, LEGEND)


def _print(console: Console, text: str, style: str | None = None) -> None:
    # Tables of a TOML file are named in brackets, which would be taken for markup.
    console.print(text, style=style, highlight=False, markup=False, soft_wrap=True)


COLUMNS = ("sd from", "sd", "seen", "in sd", "at D", "at d", "seeds", "equal", "seeds ")
LEGEND = (
    "seen: the smallest effect that is called better (or worse) with 80 % power, in the metric's unit and in sd; "
    "at D, at d: power of the whole rule at a true effect of D, and of exactly d; seeds: for 80 % at D; "
    "equal: power of equivalence at a true 0, and the seeds for 80 %. Effects count in either direction."
)


def _row(scenario: Scenario) -> tuple[str, ...]:
    pairs = f", {scenario.pairs} pairs" if scenario.kind == "measured" else ""
    label = f"{scenario.kind}{pairs}{' *' if scenario.origin else ''}"
    power = scenario.power
    if power is None:
        return (label, f"{scenario.sd:.3g}", *("-",) * 7)
    return (
        label,
        f"{scenario.sd:.3g}",
        f"{power.seen_effect:.3g}",
        f"{power.seen_effect_sd:.2f}",
        _percent(power.at_design_effect),
        _percent(power.at_smallest_effect),
        _count(power.seeds_for_design_effect),
        _percent(power.equivalence),
        _count(power.seeds_for_equivalence),
    )


def _title(experiment: Experiment, name: str, contrast: Contrast) -> str:
    rank = "primary" if contrast.primary else "secondary"
    kind = ", interaction" if len(contrast.arms) > 2 else ""
    return (
        f"{name} ({rank}{kind}): {contrast.formula} at {experiment.contrast_scale(contrast)}, {contrast.metric}; "
        f"smallest effect d = {contrast.smallest_effect:g}, design effect D = {contrast.design_effect:g} "
        f"{UNITS[contrast.metric.partition('.')[2]]}"
    )


def _notes(experiment: Experiment, plan: Plan) -> tuple[str, ...]:
    found: list[str] = []
    level = f"{1 - plan.confidence:.3g}"
    if len(plan.looks) > 1:
        found.append(
            f"Looks at {' and '.join(map(str, plan.looks))} pairs: power is that of the last look alone, at its "
            f"nominal level {level}; what earlier looks find is not counted."
        )
    if plan.stage_1:
        found.append(
            f"An extension is declared: power is that of stage 1 alone ({plan.seeds} pairs at the level {level})."
        )
        if plan.seeds_in_all > plan.seeds:
            found.append(f"Power over both stages ({plan.seeds_in_all} pairs in all) stands below the tables.")
    if any(not contrast.primary for contrast in experiment.contrasts.values()):
        found.append("A secondary is tested only behind a decided primary and by Holm: its power is at most this.")
    return tuple(found)


def _limits_by_sd(contrast: Contrast, plan: Plan, shown: tuple[Scenario, ...]) -> tuple[str, ...]:
    smallest, design = contrast.smallest_effect, contrast.design_effect
    sentences = [
        f"A true effect of exactly the smallest effect ({smallest:g}) is called better or worse in at most 50 % of "
        "studies, whatever the number of seeds."
    ]
    powers = [(scenario, scenario.power) for scenario in shown if scenario.power is not None]
    missed = [scenario for scenario, power in powers if power.at_design_effect < DEFAULT_POWER]
    if missed:
        sentences.append(
            f"An effect of the design effect ({design:g}) is missed in more than 20 % of studies of {plan.seeds} "
            f"seeds {_if_sd(missed, shown)}."
        )
    both = [scenario for scenario in shown if scenario.both_stages is not None]
    if both:
        shares = ", ".join(f"{_percent(each.both_stages or 0.0)} (sd {each.sd:.3g}, {each.kind})" for each in both)
        sentences.append(
            f"Over both stages ({plan.seeds_in_all} pairs) a design effect is called better or worse in {shares} of "
            f"{SIMULATED_STUDIES:,} simulated studies."
        )
    never = [scenario for scenario, power in powers if power.equivalence < DEFAULT_POWER]
    if never:
        sentences.append(
            f"Cannot conclude equivalence at {plan.seeds} seeds (power below 80 % at a true 0) {_if_sd(never, shown)}."
        )
    if 2.0 ** (1 - plan.seeds) > 1 - plan.confidence:
        sentences.append(
            f"The exact sign-flip p cannot fall below {2.0 ** (1 - plan.seeds):g} with {plan.seeds} seeds: "
            "at this size the verdict leans on the t interval."
        )
    return tuple(sentences)


def _if_sd(of: Sequence[Scenario], shown: Sequence[Scenario]) -> str:
    if len(of) == len(shown):
        return "at every sd above"
    return "if the sd is " + " or ".join(f"{scenario.sd:.3g} ({scenario.kind})" for scenario in of)


def _origins(name: str, noise: Noise, shown: Sequence[Scenario]) -> list[str]:
    found = [f"* {origin}." for origin in dict.fromkeys(scenario.origin for scenario in shown) if origin]
    if not shown:
        found.append(
            "No sd of the paired difference is known: give --sd, or --cell-sd with --correlation, or assumed_sd under "
            f"[contrasts.{name}], or measure one on two seeds or more."
        )
    elif noise.measured and all(scenario.pairs is None for scenario in shown):
        found.append(
            "The run folder gives no sd: not due yet, fewer than 2 finite pairs, or all differences identical."
        )
    return found


def _floor(experiment: Experiment, name: str, noise: Noise, shown: Sequence[Scenario]) -> list[str]:
    """The floor in a sentence, and one more for each sd that lies below it."""
    floor = _floor_of(experiment, name, noise)
    if floor is None:
        return []
    sd, pairs = floor
    factor = relative_sd(experiment.contrasts[name].arms)
    times = "" if factor == 1 else f", times {factor:.2f} for an interaction"
    found = [f"Floor: perturbed twins of one seed differ by an sd of {sd:.3g} ({count_of(pairs, 'pair')}{times})."]
    for scenario in shown:
        if scenario.kind == "measured" and scenario.pairs is not None and scenario.sd < sd:
            p = float(scipy.special.fdtr(scenario.pairs - 1, pairs - 1, (scenario.sd / sd) ** 2))
            chance = "no more than chance gives with so few pairs" if p > ALPHA else "more than chance gives"
            found.append(
                f"Suspicious: the measured sd {scenario.sd:.3g} lies below the floor (F test p {p:.2g}: {chance}). "
                "Plan with the floor, and look for two arms that are nearly the same program."
            )
        if scenario.kind == "assumed" and scenario.sd < sd:
            found.append(f"The assumed sd {scenario.sd:.3g} lies below the floor: no pairing reaches it.")
    return found


def _floor_of(experiment: Experiment, name: str, noise: Noise) -> Sd | None:
    contrast = experiment.contrasts[name]
    floor = noise.floors.get((experiment.contrast_scale(contrast), contrast.metric))
    return None if floor is None else (floor[0] * relative_sd(contrast.arms), floor[1])


def _floor_json(experiment: Experiment, name: str, noise: Noise) -> dict[str, Any] | None:
    floor = _floor_of(experiment, name, noise)
    return None if floor is None else {"sd": floor[0], "pairs": floor[1]}


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
    if noise.assumed_sd is not None:
        return noise.assumed_sd * factor, times and f"assumed: the sd of a simple contrast{times}"
    if noise.cell_sd is not None and noise.correlation is not None:
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


def _check_names(experiment: Experiment, noise: Noise) -> None:
    unknown = sorted(set(noise.measured) - set(experiment.contrasts))
    if unknown:
        raise ParibusError(
            f"an sd was measured for {', '.join(unknown)}, which the file does not have",
            expected=", ".join(experiment.contrasts),
            received=", ".join(unknown),
            remedy="read the sd with the same file that power is asked for",
        )


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _count(seeds: int | None) -> str:
    return "none" if seeds is None else f"{seeds}"
