"""`paribus plan`: what would be trained, which optimiser gets which tensor, and what the design can conclude."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from paribus.experiment.plan import device_of
from paribus.experiment.spec import REPEAT, TWIN, Experiment
from paribus.experiment.sweeps import described
from paribus.planning.facts import cell_states, checked_arms, training_flops
from paribus.planning.of_disk import describe_disk, study_space
from paribus.planning.of_recipe import describe_recipe
from paribus.planning.of_task import describe_task, unused
from paribus.planning.of_tensors import describe_memory, describe_parameters, describe_tensors
from paribus.powering.page import describe_design
from paribus.powering.scenarios import plan_of
from paribus.runs.study_folder import StudyFolder
from paribus.stats.noise import Noise
from paribus.stats.power import count_of, minimum_detectable_effect_sd
from paribus.terminal import table
from paribus.tuning.showing import different_knobs


def describe(
    experiment: Experiment, experiment_folder: Path, runs: Path, console: Console, doubts: Sequence[str] = ()
) -> None:
    """The plan as tables. `doubts` are sentences about the task's difficulty that stand below it."""
    arms = checked_arms(experiment, experiment_folder)
    states = cell_states(experiment, runs)
    console.print(experiment.question, style="bold", highlight=False)
    console.print(
        f"study '{experiment.study}' (its name is part of every random stream), run folder "
        f"{StudyFolder(runs / experiment.study).path}",
        highlight=False,
        soft_wrap=True,
    )
    console.print(f"device: {device_of(experiment.execution)}", highlight=False)
    console.print()
    describe_recipe(experiment, experiment_folder, console)
    rows = [
        (
            scale,
            name,
            str(sum(c["scale"] == scale and c["arm"] == name for c in states)),
            str(sum(c["scale"] == scale and c["arm"] == name and c["state"] == "complete" for c in states)),
            f"{arm.length.steps:,}",
            f"{arm.length.steps * arm.length.batch_tokens:,}",
            f"{arm.training_flops_per_token:.3g}",
            f"{training_flops(arm):.3g}",
        )
        for (scale, name), arm in arms.items()
    ]
    columns = ("scale", "arm", "cells", "complete", "updates", "tokens", "FLOPs/token", "FLOPs/cell")
    console.print(table("Cells", columns, rows, right=range(2, 8)))
    for sentence in beside_the_pairs(experiment, states):
        console.print(sentence, highlight=False, soft_wrap=True)
    console.print()
    for scale in experiment.scales:
        describe_parameters(scale, {name: arm for (at, name), arm in arms.items() if at == scale}, console)
    describe_memory(experiment, arms, console)
    describe_disk(study_space(experiment, runs, arms, states), console)
    for (scale, name), arm in arms.items():
        for seam, donor in arm.donors.items():
            console.print(
                f"{scale}/{name} takes tensors of its {seam} from {donor}, trained first at the same seed",
                highlight=False,
                soft_wrap=True,
            )
    for scale in experiment.scales:
        describe_tensors(scale, {name: arm for (at, name), arm in arms.items() if at == scale}, console)
    if experiment.base.task is not None:
        describe_task(experiment.base.task, experiment.base.context_length, console)
        for sentence in (*unused(experiment), *doubts):
            console.print(f"note: {sentence}", highlight=False, markup=False, soft_wrap=True)
        console.print()
    console.print("What the design can conclude", style="bold")
    design = plan_of(experiment)
    if design.seeds >= 2:
        reach = minimum_detectable_effect_sd(design.seeds, confidence=design.confidence)
        console.print(
            f"effects from {reach:.2f} sd of the paired difference are found with 80 % power", highlight=False
        )
    describe_design(experiment, Noise(), console)


def beside_the_pairs(experiment: Experiment, states: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Which of the cells are no pairs: smaller budgets, A/A, and the trials that come before all of them."""
    variants = Counter(state["variant"] for state in states)
    for name, size in experiment.scales.items():
        if size.budgets_tokens:
            shown = ", ".join(f"{budget:,}" for budget in size.budgets_tokens)
            how = "branches of the full run" if size.budget_cells == "branches" else "trained from the start"
            yield f"  {name}: of these, smaller budgets with schedules of their own ({how}): {shown} tokens"
    aside = experiment.compared_with_itself
    if aside is not None:
        kinds = {
            "repeat": variants[REPEAT],
            "perturbed twin": variants[TWIN],
            "other seed": len(experiment.other_seeds),
        }
        told = ", ".join(count_of(count, kind) for kind, count in kinds.items() if count)
        if told:
            yield f"  of these, A/A of {aside[0]}/{aside[1]}: {told}"
    if experiment.noise.proof_seeds:
        yield f"  of these, every arm in proof mode as well: {count_of(experiment.noise.proof_seeds, 'seed')}"
    if experiment.robustness.rate_factors:
        factors = ", ".join(f"{factor:g}" for factor in experiment.robustness.rate_factors)
        where = count_of(min(experiment.robustness.seeds, experiment.seeds.count), "seed")
        yield f"  of these, every arm at {factors} times its learning rates: {where}"
    for group in described(experiment):
        cells = sum(state["arm"] in group.arms for state in states)
        yield f"  of these, sensitivity: {group.sentence}: {count_of(cells, 'cell')}, which no verdict uses"
    if experiment.tuning is not None:
        knobs = ", ".join(f"{arm}: {knob}" for arm, knob in experiment.tuning.knobs.items())
        seeds, factor = count_of(experiment.tuning.seeds, "seed"), experiment.tuning.factor
        yield (
            f"  before them, tuning on {seeds} of its own, in factors of {factor:g}, 3 to "
            f"{experiment.tuning.max_trials} values for every arm: {knobs}"
        )
        yield from (f"  {sentence}" for sentence in different_knobs(experiment))
