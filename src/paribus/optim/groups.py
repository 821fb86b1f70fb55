"""Which optimiser takes which parameter: by declared role, nothing else."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import nn
from torch.optim import AdamW, Optimizer

from paribus.errors import RoleError
from paribus.optim.config import OptimiserConfig
from paribus.optim.muon import Muon
from paribus.roles import Role, declarations


@dataclass(frozen=True)
class Group:
    """One optimiser group: its algorithm, and the rate and decay before the schedule."""

    optimiser: str
    learning_rate: float
    weight_decay: float
    orthogonalisation_unit: str
    """what Muon orthogonalises as one matrix; empty for AdamW"""


def groups(config: OptimiserConfig) -> dict[Role, Group]:
    """The group of each role."""
    return {
        Role.MATRIX: Group("Muon", config.matrix_learning_rate, config.matrix_weight_decay, "the tensor"),
        Role.EMBEDDING: Group("AdamW", config.embedding_learning_rate, 0.0, ""),
        Role.GAIN: Group("AdamW", config.gain_learning_rate, 0.0, ""),
        Role.DEPTH_READ: Group("AdamW", config.depth_read_learning_rate, 0.0, ""),
        Role.SCALAR: Group("AdamW", config.scalar_learning_rate, 0.0, ""),
        Role.FIXED: Group("none", 0.0, 0.0, ""),
    }


def used_fields(config: OptimiserConfig, roles: set[Role]) -> dict[str, float]:
    """The recipe without the fields of roles that a model does not have: they change nothing about its training."""
    unused = tuple(f"{role.replace(' ', '_')}_" for role in Role if role not in roles)
    return {name: value for name, value in config.model_dump().items() if not name.startswith(unused or ("\0",))}


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
        if known[declaration.role].optimiser == "Muon" and model.get_parameter(name).ndim != 2:
            raise RoleError(
                f"parameter '{name}' is declared a hidden matrix but has shape {list(model.get_parameter(name).shape)}",
                expected="two axes: [output feature, input feature]",
                remedy="declare one matrix per orthogonalisation unit",
            )
        routed[name] = known[declaration.role]
    return routed


def build_optimisers(model: nn.Module, config: OptimiserConfig) -> list[Optimizer]:
    """Muon and AdamW over the routed parameters, in order of name. `base_lr` of a group is its rate at multiplier 1."""
    by_group: dict[Group, list[nn.Parameter]] = {}
    for name, group in sorted(route(model, config).items()):
        by_group.setdefault(group, []).append(model.get_parameter(name))
    muon, adamw = (
        [
            {"params": parameters, "lr": g.learning_rate, "base_lr": g.learning_rate, "weight_decay": g.weight_decay}
            for g, parameters in by_group.items()
            if g.optimiser == algorithm
        ]
        for algorithm in ("Muon", "AdamW")
    )
    return [
        Muon(muon, lr=config.matrix_learning_rate, momentum=config.matrix_momentum, weight_decay=0.0),
        AdamW(adamw, betas=(config.adam_beta1, config.adam_beta2), eps=config.adam_eps, fused=True),
    ]


def set_multiplier(optimisers: list[Optimizer], value: float) -> None:
    """Scale every group's learning rate to `value` times its base."""
    for optimiser in optimisers:
        for group in optimiser.param_groups:
            group["lr"] = group["base_lr"] * value


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
