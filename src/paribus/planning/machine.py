"""The plan as JSON types."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

from paribus.data.tasks.contract import sample
from paribus.experiment.recipe import derivations, twin_sizes
from paribus.experiment.spec import Experiment
from paribus.planning.facts import (
    activation_bytes,
    cell_states,
    checked_arms,
    checkpoint_size,
    parameters,
    training_flops,
)
from paribus.planning.of_disk import study_space
from paribus.planning.of_task import ROWS_COUNTED, padding_share, unused
from paribus.powering.limits import limits
from paribus.powering.scenarios import plan_of
from paribus.recipes.presets import PRESETS
from paribus.stats.noise import Noise, relative_sd
from paribus.stats.power import equivalence_margin_sd, minimum_detectable_effect_sd


def describe_json(experiment: Experiment, experiment_folder: Path, runs: Path) -> dict[str, Any]:
    """The plan as JSON types. Raises what `run` would raise before training, except for the corpus."""
    arms = checked_arms(experiment, experiment_folder)
    design = plan_of(experiment)
    seeds, confidence = design.seeds, design.confidence
    measurable = seeds >= 2
    states = cell_states(experiment, runs)
    return {
        "study": experiment.study,
        "question": experiment.question,
        "cells": states,
        "arms": [
            {
                "scale": scale,
                "arm": name,
                "parameters_by_role": dict(arm.parameters_by_role),
                "parameters": parameters(arm),
                "steps": arm.length.steps,
                "training_flops_per_token": arm.training_flops_per_token,
                "training_flops_per_cell": training_flops(arm),
                "checkpoint_bytes": checkpoint_size(arm),
                "activation_bytes_per_token": activation_bytes(arm, experiment),
                "optimiser_by_tensor": {tensor: group.optimiser for tensor, group in arm.groups.items()},
                "donors": {str(seam): donor for seam, donor in arm.donors.items()},
            }
            for (scale, name), arm in arms.items()
        ],
        "disk_bytes": study_space(experiment, runs, arms, states).as_json(),
        "recipe": recipe_as_json(experiment, experiment_folder),
        "task": task_as_json(experiment),
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


def recipe_as_json(experiment: Experiment, experiment_folder: Path) -> dict[str, Any] | None:
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


def task_as_json(experiment: Experiment) -> dict[str, Any] | None:
    task, row_length = experiment.base.task, experiment.base.context_length
    if task is None:
        return None
    padding = padding_share(sample(task, 0, 0, ROWS_COUNTED, row_length))
    return {**task.describe(row_length), "padding_share": padding, "not_used": list(unused(experiment))}
