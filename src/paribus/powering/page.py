"""The design as the terminal shows it, one table for each contrast, and the same figures as JSON."""

from dataclasses import asdict
from typing import Any

from rich.console import Console

from paribus.errors import ParibusError
from paribus.experiment.spec import Contrast, Experiment, unit_of
from paribus.powering.limits import limits, notes
from paribus.powering.scenarios import Scenario, floor_of, plan_of, scenarios
from paribus.stats.noise import Noise, relative_sd
from paribus.stats.power import count_of
from paribus.stats.rounding import whole_percent
from paribus.terminal import table


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
                "unit": _unit(experiment, contrast),
                "smallest_effect": contrast.smallest_effect,
                "design_effect": contrast.design_effect,
                "scenarios": [asdict(scenario) for scenario in scenarios(experiment, name, noise)],
                "floor": _floor_json(experiment, name, noise),
                "limits": list(limits(experiment, name, noise)),
            }
            for name, contrast in experiment.contrasts.items()
        },
        "notes": list(notes(experiment, plan)),
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
    for sentence in notes(experiment, plan):
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
        whole_percent(power.at_design_effect),
        whole_percent(power.at_smallest_effect),
        _count(power.seeds_for_design_effect),
        whole_percent(power.equivalence),
        _count(power.seeds_for_equivalence),
    )


def _unit(experiment: Experiment, contrast: Contrast) -> str:
    """As beside the verdict: a loss is per token of a text, and per target of a task."""
    unit = unit_of(contrast.metric)
    return "nats per target" if experiment.base.task is not None and unit == "nats per token" else unit


def _title(experiment: Experiment, name: str, contrast: Contrast) -> str:
    rank = "primary" if contrast.primary else "secondary"
    kind = ", interaction" if len(contrast.arms) > 2 else ""
    return (
        f"{name} ({rank}{kind}): {contrast.formula} at {experiment.contrast_scale(contrast)}, {contrast.metric}; "
        f"smallest effect d = {contrast.smallest_effect:g}, design effect D = {contrast.design_effect:g} "
        f"{_unit(experiment, contrast)}"
    )


def _floor_json(experiment: Experiment, name: str, noise: Noise) -> dict[str, Any] | None:
    floor = floor_of(experiment, name, noise)
    return None if floor is None else {"sd": floor[0], "pairs": floor[1]}


def _check_names(experiment: Experiment, noise: Noise) -> None:
    unknown = sorted(set(noise.measured) - set(experiment.contrasts))
    if unknown:
        raise ParibusError(
            f"an sd was measured for {', '.join(unknown)}, which the file does not have",
            expected=", ".join(experiment.contrasts),
            received=", ".join(unknown),
            remedy="read the sd with the same file that power is asked for",
        )


def _count(seeds: int | None) -> str:
    return "none" if seeds is None else f"{seeds}"
