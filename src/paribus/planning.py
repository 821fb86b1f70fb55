"""`paribus plan`: what would be trained, which optimiser gets which tensor, and what the design can conclude."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console

from paribus.data.tasks.checks import check_task
from paribus.data.tasks.contract import Rows, Task, sample
from paribus.experiment.pairs import check_pairs
from paribus.experiment.plan import ArmAtScale, device_of, resolve_arms
from paribus.experiment.recipe import derivations, twin_sizes
from paribus.experiment.spec import REPEAT, TWIN, Experiment, Key
from paribus.experiment.sweeps import described
from paribus.model.accounting.activations import activation_bytes_per_token
from paribus.model.accounting.checkpoints import checkpoint_bytes
from paribus.powering.limits import limits
from paribus.powering.page import describe_design
from paribus.powering.scenarios import plan_of
from paribus.reading.study import read_study
from paribus.recipes.presets import PRESETS
from paribus.runs.folder import StudyFolder
from paribus.stats.noise import Noise, relative_sd
from paribus.stats.power import count_of, equivalence_margin_sd, minimum_detectable_effect_sd
from paribus.terminal import bytes_in_words, families, table
from paribus.texts import require_texts
from paribus.tuning.running import require_knobs_used
from paribus.tuning.showing import different_knobs

ROWS_COUNTED = 256
"""rows of a task from which its targets a row are counted"""


def describe_json(experiment: Experiment, experiment_folder: Path, runs: Path) -> dict[str, Any]:
    """The plan as JSON types. Raises what `run` would raise before training, except for the corpus."""
    arms = _checked_arms(experiment, experiment_folder)
    design = plan_of(experiment)
    seeds, confidence = design.seeds, design.confidence
    measurable = seeds >= 2
    return {
        "study": experiment.study,
        "question": experiment.question,
        "cells": _cell_states(experiment, runs),
        "arms": [
            {
                "scale": scale,
                "arm": name,
                "parameters_by_role": dict(arm.parameters_by_role),
                "parameters": sum(arm.parameters_by_role.values()),
                "steps": arm.length.steps,
                "training_flops_per_token": arm.training_flops_per_token,
                "training_flops_per_cell": _flops(arm),
                "checkpoint_bytes": _checkpoint(arm),
                "activation_bytes_per_token": _activations(arm, experiment),
                "optimiser_by_tensor": {tensor: group.optimiser for tensor, group in arm.groups.items()},
                "donors": {str(seam): donor for seam, donor in arm.donors.items()},
            }
            for (scale, name), arm in arms.items()
        ],
        "recipe": _recipe_as_json(experiment, experiment_folder),
        "task": _task_as_json(experiment),
        "seeds": seeds,
        "confidence": confidence,
        "minimum_detectable_effect_in_sd": minimum_detectable_effect_sd(seeds, confidence=confidence)
        if measurable
        else None,
        "equivalence_margin_in_sd": equivalence_margin_sd(seeds, confidence=confidence) if measurable else None,
        "contrasts": {
            name: {
                "formula": c.formula,
                "sd_relative_to_a_simple_contrast": relative_sd(c.arms),
                "cannot_conclude": list(limits(experiment, name, Noise())),
            }
            for name, c in experiment.contrasts.items()
        },
    }


def _recipe_as_json(experiment: Experiment, experiment_folder: Path) -> dict[str, Any] | None:
    scales = {
        name: {
            "derived": [asdict(derivation) for derivation in derivations(experiment, name)],
            "twin_of": [asdict(scaled) for scaled in twin_sizes(experiment, name, experiment_folder)],
        }
        for name in experiment.scales
    }
    if experiment.base.preset is None:
        return {"preset": None, "scales": scales} if any(of["twin_of"] for of in scales.values()) else None
    preset = PRESETS[experiment.base.preset]
    return {"preset": preset.name, "standing": preset.standing, "scales": scales}


def _task_as_json(experiment: Experiment) -> dict[str, Any] | None:
    task, row_length = experiment.base.task, experiment.base.context_length
    if task is None:
        return None
    padding = _padding_share(sample(task, 0, 0, ROWS_COUNTED, row_length))
    return {**task.describe(row_length), "padding_share": padding, "not_used": list(_unused(experiment))}


def describe(
    experiment: Experiment, experiment_folder: Path, runs: Path, console: Console, doubts: Sequence[str] = ()
) -> None:
    """The plan as tables. `doubts` are sentences about the task's difficulty that stand below it."""
    arms = _checked_arms(experiment, experiment_folder)
    states = _cell_states(experiment, runs)
    console.print(experiment.question, style="bold", highlight=False)
    console.print(
        f"study '{experiment.study}' (its name is part of every random stream), run folder "
        f"{StudyFolder(runs / experiment.study).path}",
        highlight=False,
        soft_wrap=True,
    )
    console.print(f"device: {device_of(experiment.execution)}", highlight=False)
    console.print()
    _describe_recipe(experiment, experiment_folder, console)
    rows = [
        (
            scale,
            name,
            str(sum(c["scale"] == scale and c["arm"] == name for c in states)),
            str(sum(c["scale"] == scale and c["arm"] == name and c["state"] == "complete" for c in states)),
            f"{arm.length.steps:,}",
            f"{arm.length.steps * arm.length.batch_tokens:,}",
            f"{arm.training_flops_per_token:.3g}",
            f"{_flops(arm):.3g}",
        )
        for (scale, name), arm in arms.items()
    ]
    columns = ("scale", "arm", "cells", "complete", "updates", "tokens", "FLOPs/token", "FLOPs/cell")
    console.print(table("Cells", columns, rows, right=range(2, 8)))
    for sentence in _beside_the_pairs(experiment, states):
        console.print(sentence, highlight=False, soft_wrap=True)
    console.print()
    for scale in experiment.scales:
        _describe_parameters(scale, {name: arm for (at, name), arm in arms.items() if at == scale}, console)
    _describe_memory(experiment, arms, console)
    for (scale, name), arm in arms.items():
        for seam, donor in arm.donors.items():
            console.print(
                f"{scale}/{name} takes tensors of its {seam} from {donor}, trained first at the same seed",
                highlight=False,
                soft_wrap=True,
            )
    for scale in experiment.scales:
        _describe_tensors(scale, {name: arm for (at, name), arm in arms.items() if at == scale}, console)
    if experiment.base.task is not None:
        _describe_task(experiment.base.task, experiment.base.context_length, console)
        for sentence in (*_unused(experiment), *doubts):
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


def _describe_parameters(scale: str, arms: Mapping[str, ArmAtScale], console: Console) -> None:
    """Each role with its numbers of parameters, and the arms that have so many."""
    roles = dict.fromkeys(role for arm in arms.values() for role in arm.parameters_by_role)
    rows = []
    for role in (*roles, "total"):
        owners: dict[int, list[str]] = {}
        for name, arm in arms.items():
            owners.setdefault(_total(arm) if role == "total" else arm.parameters_by_role.get(role, 0), []).append(name)
        rows += [(role, f"{count:,}", _named(names, arms)) for count, names in owners.items()]
    console.print(table(f"Parameters by role: {scale}", ("role", "parameters", "arms"), rows, right=(1,)))
    console.print()


def _named(names: Sequence[str], arms: Collection[str]) -> str:
    return "all" if len(names) == len(arms) else ", ".join(names)


def _describe_memory(experiment: Experiment, arms: Mapping[tuple[str, str], ArmAtScale], console: Console) -> None:
    """What a cell keeps: closed forms, checked against real models for every backbone and mechanism."""
    rows = [
        (
            scale,
            name,
            bytes_in_words(_checkpoint(arm)),
            bytes_in_words(_activations(arm, experiment)),
            bytes_in_words(_activations(arm, experiment) * arm.base.context_length),
            bytes_in_words(_activations(arm, experiment) * arm.base.context_length * _rows(arm, experiment)),
        )
        for (scale, name), arm in arms.items()
    ]
    columns = ("scale", "arm", "checkpoint", "kept per token", "per row", "per forward pass")
    console.print(
        table("Memory: checkpoints, and what is kept for the backward pass", columns, rows, right=range(2, 6))
    )
    if experiment.execution.micro_batch_rows == "probe":
        console.print(
            "  rows of a forward pass are measured at the first run; shown is the whole batch", highlight=False
        )
    console.print()


def _checkpoint(arm: ArmAtScale) -> int:
    return checkpoint_bytes(arm.model, arm.seam_configs, arm.base.optimiser.matrix_update)


def _activations(arm: ArmAtScale, experiment: Experiment) -> float:
    again = experiment.execution.activation_checkpointing
    return activation_bytes_per_token(arm.model, arm.seam_configs, activation_checkpointing=again)


def _rows(arm: ArmAtScale, experiment: Experiment) -> int:
    return experiment.execution.declared_rows or arm.base.batch_tokens // arm.base.context_length


def _beside_the_pairs(experiment: Experiment, states: Sequence[Mapping[str, Any]]) -> Iterator[str]:
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


def _describe_recipe(experiment: Experiment, experiment_folder: Path, console: Console) -> None:
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


def _describe_task(task: Task, row_length: int, console: Console) -> None:
    """What is asked, and the losses that need no training to know."""
    asked = sample(task, 0, 0, ROWS_COUNTED, row_length)
    rows = []
    for name, levels in task.levels(row_length).items():
        share = ((asked.slice == task.slices.index(name)) & asked.asked).sum() / ROWS_COUNTED
        shortcuts = ", ".join(f"{what} {nats:.3f}" for what, nats in levels.shortcuts.items())
        known = (f"{number:.3f}" for number in (levels.chance, levels.floor, levels.threshold))
        rows.append((name, f"{share:.1f}", *known, shortcuts))
    knobs = ", ".join(f"{name} = {value}" for name, value in task.model_dump().items())
    console.print(f"{task.name} ({knobs}): {task.sentence}", highlight=False, soft_wrap=True)
    columns = ("slice", "targets a row", "chance", "floor", "acquired below", "shortcuts")
    console.print(table("What is asked, in nats per target", columns, rows, right=range(1, 5)))
    if share := _padding_share(asked):
        console.print(
            f"{share:.0%} of a row of {row_length} tokens is padding that nobody scores: an example needs "
            f"{task.least_row_length} tokens",
            highlight=False,
            soft_wrap=True,
        )


def _padding_share(rows: Rows) -> float:
    """Share of the places that belong to the end of a row behind its examples, where nothing is asked."""
    last = rows.document == rows.document[:, -1:]
    nothing_asked = ~(rows.asked & last).any(axis=1)
    return float((last & nothing_asked[:, None] & (rows.document > 0)).mean())


def _unused(experiment: Experiment) -> Iterator[str]:
    """What the file declares and a study of a task does not read."""
    if "tokenizer" in experiment.base.model_fields_set:
        yield "[base.tokenizer] is not used: a task has tokens of its own"


def _describe_tensors(scale: str, arms: Mapping[str, ArmAtScale], console: Console) -> None:
    """Every family of tensors once, with the arms that have it."""
    owners: dict[tuple[str, ...], list[str]] = {}
    for name, arm in arms.items():
        for pattern, (count, shape, member) in families(arm.shapes).items():
            group, role = arm.groups[member], str(arm.declarations[member].role)
            size = " x ".join(map(str, shape))
            row = (pattern, str(count), size, role, group.optimiser, f"{group.learning_rate:g}")
            owners.setdefault(row, []).append(name)
    rows = [(*row, _named(names, arms)) for row, names in owners.items()]
    columns = ("tensor", "count", "shape", "role", "optimiser", "rate", "arms")
    console.print(table(f"Which optimiser gets which tensor: {scale}", columns, rows, right=(1, 5)))
    console.print()


def _checked_arms(experiment: Experiment, experiment_folder: Path) -> Mapping[tuple[str, str], ArmAtScale]:
    arms = resolve_arms(experiment)
    check_pairs(experiment, arms)
    require_knobs_used(experiment, arms)
    if experiment.base.task is not None:
        check_task(experiment.base.task, experiment.base.context_length)
    else:
        require_texts(experiment.base, experiment_folder)
    return arms


def _cell_states(experiment: Experiment, runs: Path) -> list[dict[str, Any]]:
    states: dict[Key, str] = {}
    if (StudyFolder(runs / experiment.study).path / "study.json").exists():
        states = {key: cell.state for key, cell in read_study(experiment, runs).cells.items()}
    return [
        {"scale": key[0], "arm": key[1], "seed": key[2], "variant": key[3], "state": states.get(key, "missing")}
        for key in experiment.cell_keys()
    ]


def _flops(arm: ArmAtScale) -> float:
    return arm.training_flops_per_token * arm.length.steps * arm.length.batch_tokens


def _total(arm: ArmAtScale) -> int:
    return sum(arm.parameters_by_role.values())
