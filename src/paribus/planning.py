"""`paribus plan`: what would be trained, which optimiser gets which tensor, and what the design can conclude."""

import math
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console

from paribus.data.parquet_folder import parquet_files
from paribus.experiment.pairs import check_pairs
from paribus.experiment.plan import ArmAtScale, device_of, resolve_arms
from paribus.experiment.spec import UNITS, Contrast, Experiment
from paribus.reading import read_study
from paribus.runs.folder import StudyFolder
from paribus.stats.power import cannot_conclude, equivalence_margin_sd, minimum_detectable_effect_sd
from paribus.terminal import families, table


def describe_json(experiment: Experiment, experiment_folder: Path, runs: Path) -> dict[str, Any]:
    """The plan as JSON types. Raises what `run` would raise before training, except for the corpus."""
    arms = _checked_arms(experiment, experiment_folder)
    seeds = experiment.seeds.count
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
                "optimiser_by_tensor": {tensor: group.optimiser for tensor, group in arm.groups.items()},
                "donors": {str(seam): donor for seam, donor in arm.donors.items()},
            }
            for (scale, name), arm in arms.items()
        ],
        "seeds": seeds,
        "minimum_detectable_effect_in_sd": minimum_detectable_effect_sd(seeds) if measurable else None,
        "equivalence_margin_in_sd": equivalence_margin_sd(seeds) if measurable else None,
        "contrasts": {
            name: {
                "formula": c.formula,
                "sd_relative_to_a_simple_contrast": _relative_sd(c),
                "cannot_conclude": list(cannot_conclude(seeds, c.smallest_effect, c.design_effect)),
            }
            for name, c in experiment.contrasts.items()
        },
    }


def describe(experiment: Experiment, experiment_folder: Path, runs: Path, console: Console) -> None:
    """The plan as tables."""
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
    console.print()
    roles = list(dict.fromkeys(role for arm in arms.values() for role in arm.parameters_by_role))
    rows = [
        (scale, name, *(f"{arm.parameters_by_role.get(role, 0):,}" for role in roles), f"{_total(arm):,}")
        for (scale, name), arm in arms.items()
    ]
    console.print(table("Parameters by role", ("scale", "arm", *roles, "total"), rows, right=range(2, 3 + len(roles))))
    console.print()
    for (scale, name), arm in arms.items():
        for seam, donor in arm.donors.items():
            console.print(
                f"{scale}/{name} takes tensors of its {seam} from {donor}, trained first at the same seed",
                highlight=False,
                soft_wrap=True,
            )
    for scale in experiment.scales:
        _describe_tensors(scale, {name: arm for (at, name), arm in arms.items() if at == scale}, console)
    _describe_design(experiment, console)


def _describe_tensors(scale: str, arms: Mapping[str, ArmAtScale], console: Console) -> None:
    """Every family of tensors once, with the arms that have it."""
    owners: dict[tuple[str, ...], list[str]] = {}
    for name, arm in arms.items():
        for pattern, (count, shape, member) in families(arm.shapes).items():
            group, role = arm.groups[member], str(arm.declarations[member].role)
            size = " x ".join(map(str, shape))
            row = (pattern, str(count), size, role, group.optimiser, f"{group.learning_rate:g}")
            owners.setdefault(row, []).append(name)
    rows = [(*row, "all" if len(names) == len(arms) else ", ".join(names)) for row, names in owners.items()]
    columns = ("tensor", "count", "shape", "role", "optimiser", "rate", "arms")
    console.print(table(f"Which optimiser gets which tensor: {scale}", columns, rows, right=(1, 5)))
    console.print()


def _describe_design(experiment: Experiment, console: Console) -> None:
    seeds = experiment.seeds.count
    console.print("What the design can conclude", style="bold")
    if seeds >= 2:
        console.print(
            f"  {seeds} seeds: effects from {minimum_detectable_effect_sd(seeds):.2f} sd of the paired difference are "
            "found with 80 % power",
            highlight=False,
        )
    limits: dict[tuple[str, ...], list[str]] = {}
    for name, contrast in experiment.contrasts.items():
        rank = "primary" if contrast.primary else "secondary"
        unit = UNITS[contrast.metric.partition(".")[2]]
        console.print(
            f"  {name} ({rank}): {contrast.formula} at "
            f"{experiment.contrast_scale(contrast)}, {contrast.metric}, smallest effect {contrast.smallest_effect:g}, "
            f"design effect {contrast.design_effect:g} {unit}",
            highlight=False,
            soft_wrap=True,
        )
        if len(contrast.arms) > 2:
            console.print(
                f"    - An interaction: the sd of its difference is about {_relative_sd(contrast):.2f} times that of a "
                "simple contrast (cells that vary alike and independently); a missing cell drops the seed here only.",
                highlight=False,
                soft_wrap=True,
            )
        limits.setdefault(cannot_conclude(seeds, contrast.smallest_effect, contrast.design_effect), []).append(name)
    for sentences, names in limits.items():
        of = "every contrast" if len(names) == len(experiment.contrasts) else ", ".join(names)
        console.print(f"  Of {of}:", highlight=False, soft_wrap=True)
        for sentence in sentences:
            console.print(f"    - {sentence}", highlight=False, soft_wrap=True)


def _relative_sd(contrast: Contrast) -> float:
    """Sd of the contrast's difference over that of a simple one, were all cells alike and independent: sqrt 2 for four
    arms, sqrt 3 where one arm enters twice."""
    weights = Counter[str]()
    for arm, sign in zip(contrast.arms, (1, -1, -1, 1), strict=False):
        weights[arm] += sign
    return math.sqrt(sum(weight**2 for weight in weights.values()) / 2)


def _checked_arms(experiment: Experiment, experiment_folder: Path) -> Mapping[tuple[str, str], ArmAtScale]:
    arms = resolve_arms(experiment)
    check_pairs(experiment, arms)
    if experiment.base.corpus.path is not None:
        parquet_files((experiment_folder / experiment.base.corpus.path).resolve())
    return arms


def _cell_states(experiment: Experiment, runs: Path) -> list[dict[str, Any]]:
    states: dict[tuple[str, str, int, int], str] = {}
    if (StudyFolder(runs / experiment.study).path / "study.json").exists():
        states = {key: cell.state for key, cell in read_study(experiment, runs).cells.items()}
    return [
        {"scale": key[0], "arm": key[1], "seed": key[2], "repeat": key[3], "state": states.get(key, "missing")}
        for key in experiment.cell_keys()
    ]


def _flops(arm: ArmAtScale) -> float:
    return arm.training_flops_per_token * arm.length.steps * arm.length.batch_tokens


def _total(arm: ArmAtScale) -> int:
    return sum(arm.parameters_by_role.values())
