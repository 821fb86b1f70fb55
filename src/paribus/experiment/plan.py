"""From the experiment to its cells: each training run with everything that determines it, and a digest of that."""

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch

from paribus import mechanisms
from paribus.data.tasks.stream import TaskCorpus
from paribus.errors import ExperimentFileError
from paribus.experiment.code import COMMON_ROOTS, code_digest
from paribus.experiment.donors import Donors, declared_donors, donors_first, require_tensors
from paribus.experiment.spec import (
    PROOF,
    STUDY,
    TWIN,
    Base,
    Execution,
    Experiment,
    Key,
    Variant,
    variant_budget,
    variant_rate,
)
from paribus.experiment.twins import PERTURBED_ROLE, RELATIVE_CHANGE, perturb
from paribus.mechanisms.contract import MechanismConfig, Seam
from paribus.model.accounting.flops import training_flops_per_token
from paribus.model.accounting.parameters import checked_parameters
from paribus.model.backbone import geometry_of
from paribus.model.build import abstract_model, backbone_module
from paribus.model.config import ModelConfig
from paribus.optim.config import OptimiserConfig, at_rates
from paribus.optim.groups import Group, route, used_fields
from paribus.optim.schedule import settled_after
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
    scheduled: bool
    """whether a module changes with the share of the run that is done"""

    @property
    def seam_configs(self) -> dict[Seam, MechanismConfig]:
        return dict(self.mechanisms)


@dataclass(frozen=True)
class Cell:
    """One training run."""

    scale: str
    arm: str
    seed: int
    variant: Variant
    """which of the arm's cells at this seed: the study's, an A/A copy, or one with a smaller budget"""
    digest: str
    resolved: Mapping[str, Any]
    donors: Mapping[Seam, "Cell"]
    """cells that must be finished first, because this one starts from their tensors"""
    length: RunLength
    optimiser: OptimiserConfig
    """the arm's, or at a multiple of its learning rates"""
    trunk: "Cell | None" = None
    """the full run that this one leaves to cool down earlier; it must be finished first"""
    branches_at: tuple[int, ...] = ()
    """updates at which the run's state is kept, because others leave it there"""

    @property
    def name(self) -> str:
        return f"{self.scale}/{self.arm}/{self.seed}" + (f" ({self.variant})" if self.variant else "")

    @property
    def key(self) -> Key:
        return self.scale, self.arm, self.seed, self.variant


def resolve_arm(experiment: Experiment, arm: str, scale: str) -> ArmAtScale:
    """Validate the arm's mechanisms on the scale's geometry and describe its model, built on the meta device."""
    base = experiment.arm(arm)
    model_config = experiment.model_config_of(base, scale)
    where = {seam: f"arms.{arm}.{seam}" if seam in experiment.arms[arm] else f"base.{seam}" for seam in Seam}
    configs = {seam: mechanisms.resolve(seam, getattr(base, seam), where[seam]) for seam in Seam}
    donors = declared_donors(arm, configs, where, experiment.arms)
    for seam, config in configs.items():
        if model_config.backbone not in config.backbones:
            raise ExperimentFileError(
                f"{where[seam]}: the backbone '{model_config.backbone}' lacks what '{config.name}' needs",
                expected=" or ".join(f"model.backbone = '{name}'" for name in config.backbones),
                received=f"model.backbone = '{model_config.backbone}'",
                remedy="choose another mechanism, or that backbone for every arm",
            )
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
        parameters_by_role={str(role): count for role, count in checked_parameters(model, configs).items()},
        training_flops_per_token=training_flops_per_token(model_config, configs),
        source_lists=tuple(model.routing.source_lists()),  # pyright: ignore[reportCallIssue]
        code_roots=tuple(
            sorted({backbone_module(model_config).__name__, *modules, *COMMON_ROOTS, *taking, *_task_roots(base)})
        ),
        donors=donors,
        scheduled=any(hasattr(module, "at_step") for module in model.modules()),
    )


def _task_roots(base: Base) -> tuple[str, ...]:
    """Modules that determine the rows of a task; none for text, whose copy is frozen."""
    return () if base.task is None else (TaskCorpus.__module__, type(base.task).__module__)


def resolve_arms(experiment: Experiment) -> dict[tuple[str, str], ArmAtScale]:
    """Every arm at every scale, by (scale, arm). Nothing that can be seen before training is left for later."""
    device_of(experiment.execution)
    arms = {(scale, arm): resolve_arm(experiment, arm, scale) for scale in experiment.scales for arm in experiment.arms}
    for scale in experiment.scales:
        donors_first({arm: arms[scale, arm].donors for arm in experiment.arms})
    for arm in arms.values():
        _require_precision(experiment, arm)
        _branch_points(experiment, arm)
    for (scale, name), arm in arms.items():
        geometry = geometry_of(arm.model, arm.seam_configs)
        for seam, donor in arm.donors.items():
            require_tensors(f"arms.{name}.{seam}", donor, arm.mechanisms[seam], geometry, arms[scale, donor].shapes)
    return arms


def _require_precision(experiment: Experiment, arm: ArmAtScale) -> None:
    """ExperimentFileError where the device cannot multiply in the type that the file asks for. A CPU always can."""
    if arm.model.compute == "bfloat16" and device_of(experiment.execution) == "cuda":
        if torch.cuda.is_bf16_supported(including_emulation=False):
            return
        raise ExperimentFileError(
            f"model.compute: the device of arm {arm.arm} does not multiply in bfloat16",
            expected='compute = "float32", or a GPU of compute capability 8.0 or more',
            received=f"compute = 'bfloat16' on {torch.cuda.get_device_name()}",
            remedy='write compute = "float32", or run where there is such a GPU',
        )


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


def resolved_fields(
    experiment: Experiment, arm: ArmAtScale, corpus_digest: str, micro_batch_rows: int | str | None = None
) -> dict[str, Any]:
    """Every field that affects the arm's cells at any seed, as JSON types. `micro_batch_rows` are those that the
    machine chose, where the file leaves that to it."""
    return {
        "study": experiment.study,
        "scale": arm.scale,
        "model": arm.model.model_dump(mode="json"),
        "mechanisms": {
            str(seam): {"name": config.name, "module": type(config).__module__, **config.model_dump(mode="json")}
            for seam, config in arm.mechanisms.items()
        },
        "optimiser": _used_knobs(arm, arm.base.optimiser),
        "schedule": arm.base.schedule.model_dump(mode="json"),
        "context_length": arm.base.context_length,
        "batch_tokens": arm.base.batch_tokens,
        "budget_tokens": arm.length.budget_tokens,
        "milestones_tokens": list(arm.length.milestones_tokens),
        "evaluation": arm.base.evaluation.model_dump(mode="json"),
        "corpus": corpus_digest,
        "order": {"packing": arm.base.corpus.packing, "epochs": arm.base.corpus.epochs},
        "execution": {
            "mode": experiment.execution.mode,
            "device": device_of(experiment.execution),
            "threads": experiment.execution.threads,
            "micro_batch_rows": experiment.execution.micro_batch_rows if micro_batch_rows is None else micro_batch_rows,
        },
    }


def _used_knobs(arm: ArmAtScale, optimiser: OptimiserConfig) -> dict[str, Any]:
    return used_fields(optimiser, {declaration.role for declaration in arm.declarations.values()})


def cells(
    experiment: Experiment,
    arms: Mapping[tuple[str, str], ArmAtScale],
    corpus_digest: str,
    micro_batch_rows: int | None = None,
) -> list[Cell]:
    """All cells of the file, each after its donors, seed by seed.

    The digest leaves out the arm's name: what an arm is decides, not what it is called.
    """
    codes = {key: code_digest(arm.code_roots) for key, arm in arms.items()}
    found: dict[Key, Cell] = {}
    for scale, name, seed, variant in _donors_first(experiment, arms):
        arm = arms[scale, name]
        donors = {seam: found[scale, donor, seed, STUDY] for seam, donor in arm.donors.items()}
        fields = resolved_fields(experiment, arm, corpus_digest, micro_batch_rows)
        fields |= {"seed": seed, "code": codes[scale, name]}
        if donors:
            fields["donors"] = {str(seam): donor.digest for seam, donor in donors.items()}
        if variant == TWIN:
            fields["perturbed"] = {
                "role": PERTURBED_ROLE,
                "relative_change": RELATIVE_CHANGE,
                "code": code_digest((perturb.__module__,)),
            }
        if variant == PROOF:
            fields["execution"] = {**fields["execution"], "mode": "proof"}
        budget, trunk, leaves = variant_budget(variant), None, _branch_points(experiment, arm)
        length = arm.length
        if budget is not None:
            length = RunLength(budget, arm.base.batch_tokens)
            fields |= {"budget_tokens": budget, "milestones_tokens": []}
            if leaves:
                trunk = found[scale, name, seed, STUDY]
                length = replace(length, leaves_after=leaves[budget], trunk_steps=arm.length.steps)
                fields["trunk"] = {"digest": trunk.digest, "step": leaves[budget]}
        optimiser = arm.base.optimiser
        if (factor := variant_rate(variant)) is not None:
            optimiser = at_rates(optimiser, factor)
            fields["optimiser"] = _used_knobs(arm, optimiser)
        digest = hashlib.blake2b(json.dumps(fields, sort_keys=True).encode(), digest_size=6).hexdigest()
        kept = tuple(leaves.values()) if variant == STUDY else ()
        cell = Cell(scale, name, seed, variant, digest, fields, donors, length, optimiser, trunk, kept)
        found[cell.key] = cell
    return list(found.values())


def _branch_points(experiment: Experiment, arm: ArmAtScale) -> dict[int, int]:
    """Update after which each smaller budget leaves the full run, by budget; empty where budgets train separately.

    A branch cools down over the same share of its own run as the full one, so it leaves while the rate is constant.
    """
    size, schedule = experiment.scales[arm.scale], arm.base.schedule
    if size.budget_cells == "separate" or arm.arm in experiment.robustness.derived:
        return {}
    lengths = {budget: RunLength(budget, arm.base.batch_tokens).steps for budget in size.budgets_tokens}
    leaves = {budget: steps - math.ceil(schedule.decay * steps) for budget, steps in lengths.items()}
    problem = None
    if arm.scheduled:
        problem = f"arm {arm.arm} has a part that follows the share of the run that is done, which differs on a branch"
    elif leaves and settled_after(schedule) >= 1.0:
        problem = "the schedule changes something at every update"
    elif leaves and min(leaves.values()) < settled_after(schedule) * arm.length.steps:
        problem = f"a branch would leave at update {min(leaves.values())}, before the full run has warmed up"
    if problem is not None:
        raise ExperimentFileError(
            f"scales.{arm.scale}.budget_cells: these budgets cannot be branches of the full run",
            expected="branches that leave the constant part of a schedule",
            received=problem,
            remedy='write budget_cells = "separate", or choose larger budgets',
        )
    return leaves


def _donors_first(experiment: Experiment, arms: Mapping[tuple[str, str], ArmAtScale]) -> list[Key]:
    """The cells' keys in the file's order, but for cells that wait for a donor."""
    rank = {
        (scale, arm): position
        for scale in experiment.scales
        for position, arm in enumerate(donors_first({name: arms[scale, name].donors for name in experiment.arms}))
    }
    scales = {scale: position for position, scale in enumerate(experiment.scales)}
    keys = experiment.cell_keys()
    place = {key: position for position, key in enumerate(keys)}
    derived = experiment.robustness.derived
    # Within one arm the study's own cell stands first in the file's order, before what leaves it. What no verdict
    # uses comes behind all that one does.
    return sorted(keys, key=lambda key: (key[1] in derived, key[2], scales[key[0]], rank[key[0], key[1]], place[key]))
