"""The seams through which a mechanism enters a backbone, and what a mechanism file declares about itself.

A backbone calls four seams. Each has an identity in `standard.py` that costs nothing, and all compose freely:

    ValueMap       what attention aggregates, from the token's own value
    AttentionMask  which earlier positions may be attended to, beyond causality
    OutputMap      after the attention mix, before heads merge and the output projection
    DepthRouting   what a sublayer reads, and where its result goes

A mechanism file holds: pure functions, a frozen `MechanismConfig`, thin modules whose parameters declare their role,
`DIAGNOSTICS`, `INTERVENTIONS` and `LAWS`. The folder (plus the entry points of group "paribus.mechanisms") is the
registry. A module that changes during a run has a method `at_step(step, steps)`; see `Scheduled`.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, ClassVar, NamedTuple, Protocol, runtime_checkable

import torch
from pydantic import BaseModel, ConfigDict
from torch import Tensor, nn

from paribus.errors import MechanismError
from paribus.kernels.norm import Norm
from paribus.roles import Role, declarations
from paribus.shapes import AllowedPairs, Documents, GroupedHeads, GroupValues, Heads, Stream, Tokens

PRENORM = ("prenorm",)
BACKBONES = (*PRENORM, "nanochat")
"""by the names of their files in `paribus.model`"""


class Site(StrEnum):
    """Where a depth read happens."""

    ATTENTION = "attention"
    MLP = "mlp"
    OUTPUT = "output"


class Seam(StrEnum):
    """The key under which an arm names its mechanism."""

    VALUE_MAP = "value_map"
    MASK = "mask"
    OUTPUT_MAP = "output_map"
    ROUTING = "routing"


@dataclass(frozen=True)
class Geometry:
    """What a mechanism may know about the backbone it enters."""

    layers: int
    width: int
    heads: int
    head_width: int
    context_length: int
    norm_eps: float
    """added to the mean square inside every RMS normalisation of the stream and of depth keys"""
    kv_heads: int
    """key-value heads; heads / kv_heads query heads share one"""
    vocabulary_size: int
    """token ids, for tables that hold something for each of them"""
    value_embedding_layers: frozenset[int] = frozenset()
    """layers whose attention aggregates more than the projected value (an embedding of the token is added)"""

    @property
    def sublayers(self) -> int:
        return 2 * self.layers

    @property
    def group(self) -> int:
        """Query heads that share one key-value head."""
        return self.heads // self.kv_heads


@runtime_checkable
class Tap(Protocol):
    """Receives tensors by site and layer while a model runs. Absent (None) the graph is the same."""

    def __call__(self, site: str, layer: int, **tensors: Tensor) -> None: ...


class Reads(NamedTuple):
    """Inputs of the query, key and value projections: one tensor thrice when they share it.

    At a gated MLP the gate projection reads `q` and the up projection reads `v`; one with a single input projection and
    the output read have one tensor.
    """

    q: Stream
    k: Stream
    v: Stream

    @classmethod
    def shared(cls, h: Stream) -> "Reads":
        return cls(h, h, h)

    @property
    def only(self) -> Stream:
        """The one input of a sublayer that has a single role."""
        assert self.q is self.k is self.v, "this site reads one tensor"
        return self.q


class DepthRouting(Protocol):
    """The residual path. `memory` is the mechanism's own immutable value, passed along by the backbone. A read looks at
    its own position alone, so that a memory never outlives the call that opened it.

    Stream, block sums and depth sources are float32 in every arm and every mode.
    """

    def open(self, x0: Stream) -> Any: ...
    def read(self, memory: Any, layer: int, site: Site, tap: Tap | None) -> Reads: ...
    def write(self, memory: Any, delta: Stream, layer: int, site: Site) -> Any: ...
    def close(self, memory: Any, tap: Tap | None) -> Stream: ...
    def source_lists(self) -> list[dict[str, Any]]:
        """Every read in order: {"layer", "site", "sources": names of its sources, oldest first}. Goes on record."""
        ...


class NormingRouting(DepthRouting, Protocol):
    """A routing that can do what the norm behind a read does in the same pass. A backbone asks it for that, except
    where a subclass or a watcher replaces `read` and leaves this method as it is."""

    def read_normed(self, memory: Any, layer: int, site: Site, tap: Tap | None, norm: Norm) -> Reads:
        """`norm` of each distinct tensor of `read`."""
        ...


class Values(NamedTuple):
    """The values of each query head's own group, by view: the axis `group` has size 1 and broadcasts against y."""

    aggregated: GroupValues
    """what attention mixes"""
    projected: GroupValues
    """the plain value projection, before a ValueMap changed it (the same tensor where none does)"""


class OutputMap(Protocol):
    """(y, values, document index of each token) -> z, shaped like y: [batch time kv_head group head_width].

    Query heads are laid out by the key-value head that they share, so that `y * values.aggregated` is right under
    grouped queries and without. A map that looks at other positions must stay within the token's document and its past.

    Where rows are continued token by token (`paribus.model.cache`), a map whose class says `position_local = True` is
    given the new positions alone. One that does not say it may look back: it is given the whole row again, y and values
    of the past among it, and its last positions are taken, which is right for every map and costs more.
    """

    def __call__(self, y: GroupedHeads, values: Values, document: Documents, /) -> GroupedHeads: ...


class ValueMap(Protocol):
    """(own value, value of the first layer, token ids) -> the value that attention aggregates, each position by itself:
    where rows are continued it is given the new positions alone."""

    def __call__(self, own: Heads, first: Heads, tokens: Tokens, /) -> Heads: ...


class AttentionMask(Protocol):
    """(document index of each token) -> pairs (query, key) that may attend, or None for plain causal attention.

    Whether a pair may depends on nothing behind its query: a longer row has the pairs of a shorter one, and more.
    """

    def __call__(self, document: Documents, /) -> AllowedPairs | None: ...


@runtime_checkable
class Scheduled(Protocol):
    """A module that changes during a run. It may write its own parameters; everything follows from the arguments."""

    def at_step(self, step: int, steps: int) -> None:
        """Called before update `step` (from 0) of `steps`, and once more with the same step after a restart."""
        ...


class Tensors(NamedTuple):
    """Parameters of one role and one shape."""

    role: Role
    shape: tuple[int, ...]
    copies: int = 1


@dataclass(frozen=True)
class Kept:
    """What a mechanism makes autograd keep until the backward pass, beside what it keeps of the seam's identity: bytes
    of one token, at the hungriest of a mechanism that changes during a run. Tensors without an axis for tokens are left
    out."""

    layers: Mapping[int, float] = field(default_factory=dict)
    """by layer, from 0; what a routing's last read keeps stands at the number of layers"""
    reads: int = 2
    """tensors that the two sublayers of a layer read, each of which the backbone normalises"""
    normed_reads: int = 0
    """those among them that `NormingRouting` can hand over normalised, of which nothing but a statistic is then kept"""
    memory: float | None = None
    """of a routing: what its memories hold where layers begin and behind the last one, every tensor once; None for the
    backbone's own residual path"""


@dataclass(frozen=True)
class Equivalence:
    """Two arms that must stay equal while both are trained. Tables as in an experiment file, by seam."""

    claim: str
    arm: Mapping[str, Mapping[str, Any]]
    twin: Mapping[str, Mapping[str, Any]]
    perturbed: Mapping[str, Mapping[str, Any]]
    """an arm that must differ from `twin` within the same steps: the proof that the comparison can fail"""
    perturbation: str
    why: str
    """why the two are equal bit for bit in every tensor that both have"""


class MechanismConfig(BaseModel, ABC):
    """Base of every mechanism's configuration: frozen, strict, unknown keys refused.

    `build(geometry, layer)` returns the module for one layer (value_map, mask, output_map) or, for routing, the module
    for the whole model (layer is -1).
    """

    model_config = ConfigDict(
        strict=True, extra="forbid", frozen=True, allow_inf_nan=False, use_attribute_docstrings=True
    )

    name: ClassVar[str]
    """what an experiment file calls it"""
    seam: ClassVar[Seam]
    backbones: ClassVar[Sequence[str]] = BACKBONES
    """those that have what it needs"""
    example: ClassVar[Mapping[str, Any]] = {}
    """the fewest fields that make a valid table on a model of two or more layers; laws of every mechanism use it"""

    @abstractmethod
    def build(self, geometry: Geometry, layer: int) -> nn.Module: ...

    def validate_for(self, geometry: Geometry) -> str | None:
        """What is wrong with this configuration on this geometry, with the valid range; None when nothing is."""
        del geometry
        return None

    def dead_parameters(self, geometry: Geometry) -> tuple[str, ...]:
        """Trained parameters (names inside the seam) whose gradient is zero by construction."""
        del geometry
        return ()

    def value_embedding_layers(self, geometry: Geometry) -> frozenset[int]:
        """Layers in which this ValueMap adds something to the projected value; see `Geometry`."""
        del geometry
        return frozenset()

    def equivalences(self) -> tuple[Equivalence, ...]:
        """Arms that must train exactly like an arm of this configuration or of its close relatives."""
        return ()

    def donor(self) -> str | None:
        """Name of an arm of the same study whose trained tensors this one starts from (`adopt`); None for none."""
        return None

    def adopt(self, module: nn.Module, tensors: Mapping[str, Tensor]) -> None:
        """Write FIXED parameters of this mechanism's `module` from the donor's final tensors of the same seam, by their
        names inside it. MechanismError where a mechanism names a donor and does not override this."""
        del module, tensors
        raise MechanismError(
            f"the mechanism '{self.name}' names a donor but does not say what it takes from it",
            expected="a method adopt(module, tensors) beside donor()",
            remedy="write what is taken into parameters of role 'fixed'",
        )

    def flops_per_token(self, geometry: Geometry) -> float:
        """Closed-form forward FLOPs per token that the mechanism adds."""
        del geometry
        return 0.0

    def parameters(self, geometry: Geometry) -> tuple[Tensors, ...]:
        """Every parameter of the mechanism in all layers, FIXED ones among them. A mechanism says it in closed form;
        one that does not is built on the meta device and counted."""
        layers = (-1,) if self.seam is Seam.ROUTING else range(geometry.layers)
        with torch.device("meta"):
            built = [self.build(geometry, layer) for layer in layers]
        return tuple(
            Tensors(declaration.role, tuple(module.get_parameter(name).shape))
            for module in built
            for name, declaration in declarations(module).items()
        )

    def kept_for_backward(self, geometry: Geometry, number: int) -> Kept:
        """Closed-form memory of a training step, for plans; the default counts nothing. `number` is the size in bytes
        of one number of what matrix products and attention return: 4 in float32, 2 in bfloat16."""
        del geometry, number
        return Kept()


@runtime_checkable
class Bench(Protocol):
    """A small backbone on which laws are shown. Arms are given as {seam: mechanism table}, as in an experiment file."""

    tokens: Tensor
    """[batch time] token ids; row 0 holds two documents, the second starting at position 5"""

    def model(
        self, arm: Mapping[str, Mapping[str, Any]], *, double: bool = False, norm_eps: float | None = None
    ) -> Any:
        """A model of the arm from the bench's named streams (equal across arms), float32 or float64."""
        ...

    def disturb(self, model: Any, pattern: str, std: float = 0.1) -> None:
        """Add named noise of `std` to every parameter that the standard arm lacks and whose qualified name contains
        `pattern` (at least one)."""
        ...

    def wrap_output_maps(self, model: Any, wrapper: Callable[[nn.Module], nn.Module]) -> None:
        """Put `wrapper(output map)` in the place of the output map of every layer."""
        ...

    def logits(self, model: Any, *, tap: Tap | None = None) -> Tensor:
        """[batch time vocab] on the bench's tokens."""
        ...

    def loss_and_gradients(self, model: Any) -> dict[str, Tensor]:
        """{"loss": scalar, qualified parameter name: gradient}."""
        ...


def largest(discrepancies: Iterable[float]) -> float:
    """The largest, and NaN where any is NaN: no bound admits it, but `max` would lose it."""
    values = list(discrepancies)
    return math.nan if any(math.isnan(value) for value in values) else max(values)


@dataclass(frozen=True)
class Law:
    """An exact statement about a mechanism, as data. A law is shown when `measure(bench, False) <= bound`
    and proven able to fail when `measure(bench, True) > bound`."""

    claim: str
    measure: Callable[[Bench, bool], float]
    """discrepancy; True applies the perturbation that must break the law"""
    perturbation: str
    bound: float
    """0.0 means bit for bit"""
    why: str
    """where the bound comes from"""
    backbones: Sequence[str] = BACKBONES
    """on which it holds; a law that compares with the plain residual path does on `PRENORM` alone"""


@dataclass(frozen=True)
class Diagnostic:
    """A number read by taps at one site, on every arm of the study that has the site.

    What the report goes by: the unit; a name that starts with `js_` is a divergence of routes in nats; groups
    `head:<n>`, `kv head:<n>` and `<role> source:<k>` are parts; a group that ends in ", in bits" repeats another.
    """

    name: str
    title: str
    sentence: str
    """what it means and what it is evidence of"""
    unit: str
    sites: tuple[str, ...]
    """the tap sites it needs, all at one layer"""
    observe: Callable[[Mapping[str, Tensor], Tensor], Mapping[str, Tensor]]
    """({"site/name": tensor tapped at one layer}, [batch time] weight of each position, 0 for padding and a row's first
    position) -> {group: [batch time] value at each position}. Averaging is the caller's: over positions by weight, by
    position bucket and by document. A group is left out where the diagnostic says nothing about a layer."""
    derive: Callable[[Mapping[str, float]], Mapping[str, float]] = dict
    """what to make of the means of all groups; for quantities that are not linear in positions (ratios, divergences)"""
    by_bucket: bool = False
    """also averaged by bucket of position in the row; of a task every diagnostic is, by slice of the targets"""
    correctness_only: bool = False
    """True for a tautology of the mechanism: a check, never evidence"""


ROUTE = "weights of "
"""a tensor tapped under this name + a role is that role's depth route: [batch time source], summing to 1"""


@dataclass(frozen=True)
class Intervention:
    """A change of a trained model at evaluation; measured as the change in NLL that it makes, by document."""

    name: str
    title: str
    sentence: str
    """what a rise or fall is evidence of"""
    variants: Callable[[nn.Module], Mapping[str, Callable[[], AbstractContextManager[None]]]]
    """trained model -> {label: context in which the model is changed}; empty where it does not apply. The model is
    exactly what it was after the context."""
