"""What a plan knows of a study before anything is trained: its arms, checked, its cells, and what they cost."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from paribus.data.tasks.checks import check_task
from paribus.experiment.pairs import check_pairs
from paribus.experiment.plan import ArmAtScale, resolve_arms
from paribus.experiment.spec import Experiment, Key
from paribus.model.accounting.activations import activation_bytes_per_token
from paribus.model.accounting.checkpoints import checkpoint_bytes
from paribus.reading.study import read_study
from paribus.runs.study_folder import StudyFolder
from paribus.texts import require_texts
from paribus.tuning.running import require_knobs_used

Arms = Mapping[tuple[str, str], ArmAtScale]
"""by scale and name"""


def checked_arms(experiment: Experiment, experiment_folder: Path) -> Arms:
    arms = resolve_arms(experiment)
    check_pairs(experiment, arms)
    require_knobs_used(experiment, arms)
    if experiment.base.task is not None:
        check_task(experiment.base.task, experiment.base.context_length)
    else:
        require_texts(experiment.base, experiment_folder)
    return arms


def cell_states(experiment: Experiment, runs: Path) -> list[dict[str, Any]]:
    states: dict[Key, str] = {}
    if (StudyFolder(runs / experiment.study).path / "study.json").exists():
        states = {key: cell.state for key, cell in read_study(experiment, runs).cells.items()}
    return [
        {"scale": key[0], "arm": key[1], "seed": key[2], "variant": key[3], "state": states.get(key, "missing")}
        for key in experiment.cell_keys()
    ]


def training_flops(arm: ArmAtScale) -> float:
    return arm.training_flops_per_token * arm.length.steps * arm.length.batch_tokens


def parameters(arm: ArmAtScale) -> int:
    return sum(arm.parameters_by_role.values())


def checkpoint_size(arm: ArmAtScale) -> int:
    return checkpoint_bytes(arm.model, arm.seam_configs, arm.base.optimiser.matrix_update)


def activation_bytes(arm: ArmAtScale, experiment: Experiment) -> float:
    again = experiment.execution.activation_checkpointing
    return activation_bytes_per_token(arm.model, arm.seam_configs, activation_checkpointing=again)
