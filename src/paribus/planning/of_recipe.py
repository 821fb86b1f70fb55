"""Where the numbers of a scale come from: derived by a preset from the depth, or scaled down from a larger study."""

from pathlib import Path

from rich.console import Console

from paribus.experiment.recipe import derivations, twin_sizes
from paribus.experiment.spec import Experiment
from paribus.recipes.presets import PRESETS
from paribus.terminal import table


def describe_recipe(experiment: Experiment, experiment_folder: Path, console: Console) -> None:
    """What a preset derived, and what a twin scaled down."""
    if experiment.base.preset is not None:
        preset = PRESETS[experiment.base.preset]
        console.print(f"preset {preset.name}: {preset.standing}", highlight=False, soft_wrap=True)
        console.print()
    for name, size in experiment.scales.items():
        if found := derivations(experiment, name):
            rows = [
                (
                    of.name,
                    _number(of.value),
                    f"by the file; the rule gives {_number(of.by_rule)}" if of.given else of.rule,
                )
                for of in found
            ]
            title = f"Derived by the preset from depth: {name}"
            console.print(table(title, ("what", "value", "rule"), rows, right=(1,)))
            console.print()
        if size.twin_of is not None:
            larger = size.twin_of.file.stem + (f"@{size.twin_of.scale}" if size.twin_of.scale else "")
            rows = [(of.name, of.larger, of.here) for of in twin_sizes(experiment, name, experiment_folder)]
            title = f"Scaled down from {larger}: {name}"
            console.print(table(title, ("what", larger, name), rows, right=(1, 2)))
            console.print(
                f"A twin is related evidence about {larger}, never a replication.", highlight=False, soft_wrap=True
            )
            console.print()


def _number(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:.6g}"
