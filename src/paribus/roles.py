"""What a parameter IS. Optimiser groups, counts and initial values follow from the declaration, never from a shape.

(A rule such as "two or more axes go to Muon" would orthogonalise a stack of pseudo-queries across layers.)
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

import torch
from torch import nn

from paribus.errors import RoleError
from paribus.seeds import unit_noise, unit_uniform_noise


class Role(StrEnum):
    """The kinds of parameter that the optimisers know."""

    EMBEDDING = "embedding"
    """Rows looked up by token id; where the output head is tied, it is the same tensor."""
    VALUE_EMBEDDING = "value embedding"
    """Rows looked up by token id that a backbone adds to the values of its attention."""
    HEAD = "head"
    """The output head of a backbone that does not tie it to the embedding: one row for each token id."""
    MATRIX = "matrix"
    """A hidden matrix (row = output feature): one orthogonalisation unit."""
    GAIN = "gain"
    """Learned per-feature factors of a normalisation in the backbone."""
    STREAM_SCALE = "stream scale"
    """A backbone's learned factor of the stream before each layer."""
    EMBEDDING_SCALE = "embedding scale"
    """A backbone's learned share of the embedding that enters the stream before each layer."""
    SHORTCUT = "shortcut"
    """What a backbone learns about its other shortcuts: how much of the previous token's embedding joins a token's, how
    much of the middle of the network is taken out at its end."""
    DEPTH_READ = "depth read"
    """Pseudo-queries over depth sources and the gains of their keys."""
    SCALAR = "scalar"
    """Learned scalars of a mechanism, such as one strength per head."""
    FIXED = "fixed"
    """Values that no optimiser touches: drawn by name like any other, saved with the model, never trained."""


@dataclass(frozen=True)
class Init:
    """Initial law of a parameter: `constant + std * unit noise`."""

    constant: float | tuple[float, ...] = 0.0
    """one number, or one for each place of the first axis"""
    std: float = 0.0
    noise: Literal["normal", "uniform"] = "normal"
    """the law of the unit noise, whose mean is 0 and standard deviation 1"""

    @classmethod
    def uniform(cls, low: float, high: float) -> "Init":
        """Uniform from `low` to `high`."""
        return cls((low + high) / 2, (high - low) / 12**0.5, "uniform")


ZEROS = Init()
ONES = Init(constant=1.0)


@dataclass(frozen=True)
class Declaration:
    """Role and initial law of one parameter."""

    role: Role
    init: Init


class DeclaredModule(nn.Module):
    """A module whose parameters say what they are. Values are written by `initialise`, never by the constructor."""

    def __init__(self) -> None:
        super().__init__()
        self.own_declarations: dict[str, Declaration] = {}

    def declare(self, name: str, shape: tuple[int, ...], role: Role, init: Init) -> None:
        """Register the parameter `name` of `shape` (float32) with its role and initial law."""
        if name in self.own_declarations:
            raise RoleError(f"parameter '{name}' is declared twice", remedy="give the second one its own name")
        empty = torch.empty(shape, dtype=torch.float32)
        self.register_parameter(name, nn.Parameter(empty, requires_grad=role is not Role.FIXED))
        self.own_declarations[name] = Declaration(role, init)


def declarations(model: nn.Module) -> dict[str, Declaration]:
    """Declaration of every parameter by qualified name.

    Raises RoleError for a parameter without a declaration and for one tensor reachable under two names.
    """
    found: dict[str, Declaration] = {}
    for prefix, module in model.named_modules():
        own = module.own_declarations if isinstance(module, DeclaredModule) else {}
        for name, _ in module.named_parameters(recurse=False):
            qualified = f"{prefix}.{name}" if prefix else name
            if name not in own:
                raise RoleError(
                    f"parameter '{qualified}' has no declared role",
                    expected="a parameter registered through DeclaredModule.declare(name, shape, role, init)",
                    received=f"a bare parameter of {type(module).__name__}",
                    remedy="declare it, so that its optimiser and its initial values are a decision",
                )
            found[qualified] = own[name]
    names_by_tensor: dict[int, list[str]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        names_by_tensor.setdefault(id(parameter), []).append(name)
    for names in names_by_tensor.values():
        if len(names) > 1:
            raise RoleError(
                f"one tensor is a parameter under {len(names)} names: {', '.join(names)}",
                expected="every trainable tensor under exactly one name, so that exactly one optimiser group takes it",
                remedy="register it once and pass it where else it is needed",
            )
    return found


def initialise(model: nn.Module, *stream: str | int) -> None:
    """Write every parameter from the stream (*stream, "init", qualified name): unit noise first, the scale after.

    Shared parameters are bit-identical across arms whatever a mechanism adds, because no draw depends on another.
    """
    with torch.no_grad():
        for name, declaration in declarations(model).items():
            parameter = model.get_parameter(name)
            init = declaration.init
            if isinstance(init.constant, tuple):
                along_first = torch.tensor(init.constant).view(-1, *[1] * (parameter.ndim - 1))
                parameter.copy_(along_first.expand_as(parameter))
            else:
                parameter.fill_(init.constant)
            if init.std != 0.0:
                draw = unit_noise if init.noise == "normal" else unit_uniform_noise
                noise = torch.from_numpy(draw(tuple(parameter.shape), *stream, "init", name))
                parameter.add_(noise.to(parameter.device, parameter.dtype), alpha=init.std)
