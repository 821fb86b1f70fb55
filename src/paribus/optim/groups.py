"""Which optimiser takes which parameter: by declared role, nothing else."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.optim import AdamW, Optimizer

from paribus.errors import RoleError
from paribus.optim.config import NOT_READ, OptimiserConfig
from paribus.optim.muon import Muon
from paribus.optim.nanochat import NanochatMuon
from paribus.optim.schedule import Moment
from paribus.roles import Role, declarations


@dataclass(frozen=True)
class Group:
    """One optimiser group: its algorithm, and the rate and decay before the schedule."""

    optimiser: str
    learning_rate: float
    weight_decay: float
    orthogonalisation_unit: str
    """what Muon orthogonalises as one matrix; empty for AdamW"""
    betas: tuple[float, float] | None = None
    """AdamW's"""


MATRIX_OPTIMISERS: Mapping[str, str] = {"muon": "Muon", "nanochat": "nanochat's Muon", "adamw": "AdamW"}
"""name of each `matrix_update`"""
NO_GROUP = Group("none", 0.0, 0.0, "")
"""of values that no optimiser touches"""


def groups(config: OptimiserConfig) -> dict[Role, Group]:
    """The group of each role."""
    return {role: _group(config, role) for role in Role}


def _group(config: OptimiserConfig, role: Role) -> Group:
    if role is Role.FIXED:
        return NO_GROUP
    prefix = _prefix(role)
    rate, decay = getattr(config, f"{prefix}_learning_rate"), getattr(config, f"{prefix}_weight_decay")
    if role is Role.MATRIX and config.matrix_update != "adamw":
        return Group(MATRIX_OPTIMISERS[config.matrix_update], rate, decay, "the tensor")
    betas = None if role is Role.MATRIX else getattr(config, f"{prefix}_betas")
    return Group("AdamW", rate, decay, "", betas or (config.adam_beta1, config.adam_beta2))


def _prefix(role: Role) -> str:
    """What the fields of a role begin with; an underscore follows."""
    return role.replace(" ", "_")


def role_of(field: str) -> Role | None:
    """The role that a field of the recipe is about; None for what all roles share."""
    of = [role for role in Role if field.startswith(f"{_prefix(role)}_")]
    return max(of, key=len, default=None)  # embedding_scale_learning_rate is about the embedding scale


def used_fields(config: OptimiserConfig, roles: set[Role]) -> dict[str, Any]:
    """The recipe, as JSON types, without the fields that change nothing about a model with these roles: those of roles
    that it does not have, and those that the update of its matrices takes no notice of.

    A field is left out for what the model or `matrix_update` is, never for its own value: a pair of arms excuses a
    field that only one of them has, so that a clipped arm, say, must differ visibly from one that is not.
    """
    unread = NOT_READ[config.matrix_update]
    return {
        name: value
        for name, value in config.model_dump(mode="json").items()
        if name not in unread and role_of(name) in {None, *roles}
    }


def route(model: nn.Module, config: OptimiserConfig) -> dict[str, Group]:
    """Group of every parameter by qualified name. RoleError where a role has no group."""
    known: Mapping[Role, Group] = groups(config)
    routed: dict[str, Group] = {}
    for name, declaration in declarations(model).items():
        if declaration.role not in known:
            raise RoleError(
                f"parameter '{name}' has role '{declaration.role}', which no optimiser group takes",
                expected=", ".join(known),
                remedy="add the role's group to paribus.optim.groups",
            )
        if declaration.role is Role.MATRIX and model.get_parameter(name).ndim != 2:
            raise RoleError(
                f"parameter '{name}' is declared a hidden matrix but has shape {list(model.get_parameter(name).shape)}",
                expected="two axes: [output feature, input feature]",
                remedy="declare one matrix per orthogonalisation unit",
            )
        routed[name] = known[declaration.role]
    return routed


def build_optimisers(model: nn.Module, config: OptimiserConfig) -> list[Optimizer]:
    """The optimiser of the hidden matrices and AdamW over the routed parameters, one group a role, in order of name.

    `base_lr`, and of hidden matrices `base_weight_decay` and `base_momentum`, are what `set_schedule` starts from. An
    optimiser without parameters is left out.
    """
    routed, declared = route(model, config), declarations(model)
    by_role: dict[Role, list[nn.Parameter]] = {}
    for name in sorted(routed):
        by_role.setdefault(declared[name].role, []).append(model.get_parameter(name))
    orthogonalised, others = [], []
    for role, parameters in by_role.items():
        group = groups(config)[role]
        if group == NO_GROUP:
            continue
        table: dict[str, Any] = {
            "params": parameters,
            "lr": group.learning_rate,
            "base_lr": group.learning_rate,
            "weight_decay": group.weight_decay,
        }
        if role is Role.MATRIX:
            table["base_weight_decay"] = group.weight_decay
        if group.betas is not None:
            others.append({**table, "betas": group.betas})
        else:
            orthogonalised.append({**table, "base_momentum": config.matrix_momentum})
    return list(_optimisers(config, orthogonalised, others))


def _optimisers(
    config: OptimiserConfig, orthogonalised: list[dict[str, Any]], others: list[dict[str, Any]]
) -> Iterator[Optimizer]:
    rate, momentum, scale = config.matrix_learning_rate, config.matrix_momentum, config.matrix_scale
    compute = config.matrix_compute
    if orthogonalised and config.matrix_update == "muon":
        yield Muon(orthogonalised, rate, momentum, 0.0, scale, compute)
    elif orthogonalised:
        yield NanochatMuon(
            orthogonalised,
            rate,
            momentum,
            0.0,
            beta2=config.matrix_variance_beta2,
            row_equilibration=config.matrix_row_equilibration,
            unit_norm=config.matrix_unit_norm,
            scale=scale,
            compute=compute,
        )
    if others:
        yield AdamW(others, betas=(config.adam_beta1, config.adam_beta2), eps=config.adam_eps, fused=True)


def set_schedule(optimisers: list[Optimizer], moment: Moment) -> None:
    """Every group at this moment of the run: its rate, and decay and momentum of hidden matrices, from their base."""
    for optimiser in optimisers:
        for group in optimiser.param_groups:
            group["lr"] = group["base_lr"] * moment.learning_rate
            if "base_weight_decay" in group:
                group["weight_decay"] = group["base_weight_decay"] * moment.weight_decay
            if "base_momentum" in group:
                group["momentum"] = moment.momentum(group["base_momentum"])


def state_tensors(model: nn.Module, optimisers: list[Optimizer]) -> dict[str, torch.Tensor]:
    """Optimiser state by "parameter name/state key": what a checkpoint keeps beside the parameters."""
    names: dict[torch.Tensor, str] = {parameter: name for name, parameter in model.named_parameters()}
    return {
        f"{names[parameter]}/{key}": value
        for optimiser in optimisers
        for parameter, state in optimiser.state.items()
        for key, value in state.items()
    }


def load_state_tensors(model: nn.Module, optimisers: list[Optimizer], tensors: Mapping[str, torch.Tensor]) -> None:
    """Inverse of `state_tensors` on freshly built optimisers."""
    owner = {p: o for o in optimisers for group in o.param_groups for p in group["params"]}
    for qualified, value in tensors.items():
        name, key = qualified.rsplit("/", 1)
        parameter = model.get_parameter(name)
        owner[parameter].state[parameter][key] = value.to(parameter.device, copy=True)
