"""From the experiment to its cells: each training run with everything that determines it, and a digest of that."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch

from paribus import mechanisms
from paribus.errors import ExperimentFileError
from paribus.experiment.code import COMMON_ROOTS, code_digest
from paribus.experiment.donors import Donors, declared_donors, donors_first, require_tensors
from paribus.experiment.spec import Base, Execution, Experiment
from paribus.mechanisms.contract import MechanismConfig, Seam
from paribus.model.accounting import parameters_by_role, training_flops_per_token
from paribus.model.build import abstract_model, backbone_module
from paribus.model.config import ModelConfig
from paribus.model.prenorm import geometry_of
from paribus.optim.groups import Group, route, used_fields
from paribus.roles import Declaration, declarations
from paribus.train.loop import RunLength


@dataclass(frozen=True)
class ArmAtScale:
    """One arm at one scale, resolved: what its cells have in common."""

    arm: str
    scale: str
    base: Base
    model: ModelConfig
    mechanisms: Mapping[Seam, MechanismConfig]
    length: RunLength
    shapes: Mapping[str, tuple[int, ...]]
    declarations: Mapping[str, Declaration]
    groups: Mapping[str, Group]
    parameters_by_role: Mapping[str, int]
    training_flops_per_token: float
    source_lists: tuple[Mapping[str, Any], ...]
    code_roots: tuple[str, ...]
    donors: Donors
    """arms whose trained tensors this one starts from, by seam"""

    @property
    def seam_configs(self) -> dict[Seam, MechanismConfig]:
        return dict(self.mechanisms)


@dataclass(frozen=True)
class Cell:
    """One training run."""

    scale: str
    arm: str
    seed: int
    repeat: int
    """0 for the cell of the study, 1 for its A/A repeat"""
    digest: str
    resolved: Mapping[str, Any]
    donors: Mapping[Seam, "Cell"]
    """cells that must be finished first, because this one starts from their tensors"""

    @property
    def name(self) -> str:
        return f"{self.scale}/{self.arm}/{self.seed}" + (f" (repeat {self.repeat})" if self.repeat else "")


def resolve_arm(experiment: Experiment, arm: str, scale: str) -> ArmAtScale:
    """Validate the arm's mechanisms on the scale's geometry and describe its model, built on the meta device."""
    base = experiment.arm(arm)
    model_config = experiment.model_config_of(base, scale)
    where = {seam: f"arms.{arm}.{seam}" if seam in experiment.arms[arm] else f"base.{seam}" for seam in Seam}
    configs = {seam: mechanisms.resolve(seam, getattr(base, seam), where[seam]) for seam in Seam}
    donors = declared_donors(arm, configs, where, experiment.arms)
    for seam, config in configs.items():
        problem = config.validate_for(geometry_of(model_config, configs))
        if problem is not None:
            raise ExperimentFileError(f"{where[seam]}: {problem}")
    model = abstract_model(model_config, configs)
    modules = {mechanisms.module_of(config).__name__ for config in configs.values()}
    taking = (declared_donors.__module__,) if donors else ()
    return ArmAtScale(
        arm=arm,
        scale=scale,
        base=base,
        model=model_config,
        mechanisms=configs,
        length=RunLength(
            experiment.scales[scale].budget_tokens, base.batch_tokens, experiment.scales[scale].milestones_tokens
        ),
        shapes={name: tuple(parameter.shape) for name, parameter in model.named_parameters()},
        declarations=declarations(model),
        groups=route(model, base.optimiser),
        parameters_by_role={str(role): count for role, count in parameters_by_role(model).items()},
        training_flops_per_token=training_flops_per_token(model_config, configs),
        source_lists=tuple(model.routing.source_lists()),  # pyright: ignore[reportCallIssue]
        code_roots=tuple(sorted({backbone_module(model_config).__name__, *modules, *COMMON_ROOTS, *taking})),
        donors=donors,
    )


def resolve_arms(experiment: Experiment) -> dict[tuple[str, str], ArmAtScale]:
    """Every arm at every scale, by (scale, arm). Nothing that can be seen before training is left for later."""
    device_of(experiment.execution)
    arms = {(scale, arm): resolve_arm(experiment, arm, scale) for scale in experiment.scales for arm in experiment.arms}
    for scale in experiment.scales:
        donors_first({arm: arms[scale, arm].donors for arm in experiment.arms})
    for (scale, name), arm in arms.items():
        geometry = geometry_of(arm.model, arm.seam_configs)
        for seam, donor in arm.donors.items():
            require_tensors(f"arms.{name}.{seam}", donor, arm.mechanisms[seam], geometry, arms[scale, donor].shapes)
    return arms


def device_of(execution: Execution) -> Literal["cpu", "cuda"]:
    """The kind of device that cells are trained on here. ExperimentFileError where it is not the one asked for."""
    if execution.device == "cpu":
        return "cpu"
    if torch.cuda.is_available():
        return "cuda"
    if execution.device == "cuda":
        raise ExperimentFileError(
            "execution.device: there is no CUDA device here",
            expected="a GPU that torch can use, and a build of torch with CUDA",
            received=f"torch {torch.__version__}, no CUDA device",
            remedy='run on a machine with one, or write device = "auto" or "cpu"',
        )
    return "cpu"


def resolved_fields(experiment: Experiment, arm: ArmAtScale, corpus_digest: str) -> dict[str, Any]:
    """Every field that affects the arm's cells at any seed, as JSON types."""
    knobs = used_fields(arm.base.optimiser, {declaration.role for declaration in arm.declarations.values()})
    return {
        "study": experiment.study,
        "scale": arm.scale,
        "model": arm.model.model_dump(mode="json"),
        "mechanisms": {
            str(seam): {"name": config.name, "module": type(config).__module__, **config.model_dump(mode="json")}
            for seam, config in arm.mechanisms.items()
        },
        "optimiser": knobs,
        "schedule": arm.base.schedule.model_dump(mode="json"),
        "context_length": arm.base.context_length,
        "batch_tokens": arm.base.batch_tokens,
        "budget_tokens": arm.length.budget_tokens,
        "milestones_tokens": list(arm.length.milestones_tokens),
        "evaluation": arm.base.evaluation.model_dump(mode="json"),
        "corpus": corpus_digest,
        "execution": {
            "mode": experiment.execution.mode,
            "device": device_of(experiment.execution),
            "threads": experiment.execution.threads,
            "micro_batch_rows": experiment.execution.micro_batch_rows,
        },
    }


def cells(experiment: Experiment, arms: Mapping[tuple[str, str], ArmAtScale], corpus_digest: str) -> list[Cell]:
    """All cells of the file, each after its donors, seed by seed.

    The digest leaves out the arm's name: what an arm is decides, not what it is called.
    """
    codes = {key: code_digest(arm.code_roots) for key, arm in arms.items()}
    found: dict[tuple[str, str, int, int], Cell] = {}
    for scale, name, seed, repeat in _donors_first(experiment, arms):
        arm = arms[scale, name]
        donors = {seam: found[scale, donor, seed, 0] for seam, donor in arm.donors.items()}
        fields = resolved_fields(experiment, arm, corpus_digest)
        fields |= {"seed": seed, "code": codes[scale, name]}
        if donors:
            fields["donors"] = {str(seam): donor.digest for seam, donor in donors.items()}
        digest = hashlib.blake2b(json.dumps(fields, sort_keys=True).encode(), digest_size=6).hexdigest()
        found[scale, name, seed, repeat] = Cell(scale, name, seed, repeat, digest, fields, donors)
    return list(found.values())


def _donors_first(
    experiment: Experiment, arms: Mapping[tuple[str, str], ArmAtScale]
) -> list[tuple[str, str, int, int]]:
    """The cells' keys in the file's order, but for cells that wait for a donor."""
    rank = {
        (scale, arm): position
        for scale in experiment.scales
        for position, arm in enumerate(donors_first({name: arms[scale, name].donors for name in experiment.arms}))
    }
    seeds = {seed: position for position, seed in enumerate(experiment.seeds.numbers)}
    scales = {scale: position for position, scale in enumerate(experiment.scales)}
    return sorted(experiment.cell_keys(), key=lambda key: (seeds[key[2]], scales[key[0]], rank[key[0], key[1]], key[3]))
