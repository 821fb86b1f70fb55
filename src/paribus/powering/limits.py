"""What a design cannot conclude, and what is doubtful about the sd that it was planned with, in sentences."""

from collections.abc import Sequence

import scipy

from paribus.experiment.spec import Contrast, Experiment
from paribus.powering.scenarios import ALPHA, Plan, Scenario, floor_of, plan_of, scenarios
from paribus.stats.design import SIMULATED_STUDIES
from paribus.stats.looks import nominal_levels
from paribus.stats.noise import Noise, relative_sd
from paribus.stats.power import DEFAULT_POWER, cannot_conclude, count_of
from paribus.stats.rounding import whole_percent


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


def notes(experiment: Experiment, plan: Plan) -> tuple[str, ...]:
    """What holds for every contrast of the design: looks, stages, the gate."""
    found: list[str] = []
    level = f"{1 - plan.confidence:.3g}"
    if len(plan.looks) > 1:
        levels = nominal_levels(plan.looks, ALPHA)
        told = ", ".join(
            f"{look} pairs {'for futility only' if not level_there else f'at the level {level_there:.3g}'}"
            for look, level_there in zip(plan.looks, levels, strict=True)
        )
        found.append(f"Looks: {told}. Power is that of the last look alone; what earlier looks find is not counted.")
    if plan.stage_1:
        found.append(
            f"An extension is declared: power is that of stage 1 alone ({plan.seeds} pairs at the level {level})."
        )
        if plan.seeds_in_all > plan.seeds:
            found.append(f"Power over both stages ({plan.seeds_in_all} pairs in all) stands below the tables.")
    if any(not contrast.primary for contrast in experiment.contrasts.values()):
        found.append(
            "A secondary is tested only behind a primary whose null of no difference is rejected, and by Holm: its "
            "power is at most this."
        )
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
        shares = ", ".join(f"{whole_percent(each.both_stages or 0.0)} (sd {each.sd:.3g}, {each.kind})" for each in both)
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
    if (noise.of_study or noise.measured) and all(scenario.pairs is None for scenario in shown):
        found.append(
            "The run folder gives no sd: not due yet, fewer than 2 finite pairs, or all differences identical."
        )
    if not shown:
        measure = "" if noise.of_study else ", or measure one on two seeds or more"
        found.append(
            "No sd of the paired difference is known: give --sd, or --cell-sd with --correlation, or assumed_sd under "
            f"[contrasts.{name}]{measure}."
        )
    return found


def _floor(experiment: Experiment, name: str, noise: Noise, shown: Sequence[Scenario]) -> list[str]:
    """The floor in a sentence, and one more for each sd that lies below it."""
    floor = floor_of(experiment, name, noise)
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
