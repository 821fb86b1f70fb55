"""The two problems that everything in the table solves, and what the right answer is.

Tokens stand in one sequence. The right answer comes from the float64 references of `paribus.kernels`, which take one
token at a time; so outputs are compared on the first `CHECKED` tokens, and the gradient that enters there is zero for
all others: gradients that are sums over tokens (of queries, of the gain) then depend on those tokens alone.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from paribus.kernels.depth_read import depth_read_reference
from paribus.kernels.exclude_self import exclude_self_reference
from paribus.seeds import unit_noise

CHECKED = 160
"""tokens compared with the reference: more than the 128 whose sums a compiled kernel forms together"""
SOURCES, QUERIES, EPS = 9, 2, 1e-6
HEAD_WIDTH, GROUP = 64, 2
"""of `exclude_self`: features of a head, and query heads that share a value"""


@dataclass(frozen=True)
class Problem:
    """Tensors that a peer is given, all of one dtype, and the gradients that enter its outputs."""

    mechanism: str
    width: int
    inputs: dict[str, Tensor]
    """leaves that want gradients, by name"""
    upstream: list[Tensor]
    """of each output"""

    @property
    def dtype(self) -> torch.dtype:
        return self.upstream[0].dtype

    @property
    def sources(self) -> list[Tensor]:
        """K tensors [1 token width] of a depth read."""
        return [t for name, t in self.inputs.items() if name.startswith("source")]

    @property
    def tokens(self) -> int:
        return self.upstream[0].shape[1]

    def __str__(self) -> str:
        return f"{self.mechanism}, width {self.width}, {str(self.dtype).removeprefix('torch.')}"


class Prepare(Protocol):
    """Turns a problem into what computes its outputs, anew at every call."""

    def __call__(self, problem: Problem) -> "Solver": ...


class Solver(Protocol):
    def __call__(self) -> Sequence[Tensor]: ...


@dataclass(frozen=True)
class Peer:
    """One way to compute a mechanism: ours, the plain one, or another package's."""

    name: str
    computes: str
    """in words, above all what it computes differently"""
    prepare: Prepare
    package: str = ""
    """its name on PyPI; ours and the plain ones have none"""
    module: str = ""
    """what is imported of it"""
    on_gpu: bool | None = None
    """True where it needs one, False where it is of interest on a CPU alone"""
    dtypes: tuple[torch.dtype, ...] = (torch.float32, torch.bfloat16)
    power_of_two: bool = False
    """whether the width must be one"""
    compiles: bool = False
    """whether its first call compiles"""
    within: Callable[[], AbstractContextManager[None]] = nullcontext
    """entered around every call, backward passes included"""


def depth_problem(width: int, dtype: torch.dtype, tokens: int, device: torch.device) -> Problem:
    """K sources whose sizes grow as sums of sublayers' outputs do, M queries with scores of order 1."""
    names = [f"source {k}" for k in range(SOURCES)]
    drawn = {name: (k + 1) ** 0.5 * _noise((1, tokens, width), name) for k, name in enumerate(names)}
    drawn["queries"] = _noise((QUERIES, width), "queries") / width**0.5
    drawn["key gain"] = 1 + 0.1 * _noise((width,), "key gain")
    return _problem("depth_read", width, drawn, [(1, tokens, width)] * QUERIES, dtype, device)


def exclusion_problem(width: int, dtype: torch.dtype, tokens: int, device: torch.device) -> Problem:
    """y [1 token kv_head group head_width] partly along v [1 token kv_head 1 head_width], as attention's output is."""
    kv_heads = max(1, width // HEAD_WIDTH // GROUP)
    v = _noise((1, tokens, kv_heads, 1, HEAD_WIDTH), "v")
    shape = (1, tokens, kv_heads, GROUP, HEAD_WIDTH)
    return _problem("exclude_self", width, {"y": 0.5 * v + _noise(shape, "y"), "v": v}, [shape], dtype, device)


def _problem(
    mechanism: str,
    width: int,
    drawn: dict[str, Tensor],
    outputs: Sequence[tuple[int, ...]],
    dtype: torch.dtype,
    device: torch.device,
) -> Problem:
    inputs = {name: t.to(device, dtype).requires_grad_() for name, t in drawn.items()}
    upstream = [_noise(shape, "upstream", k).to(device, dtype) for k, shape in enumerate(outputs)]
    return Problem(mechanism, width, inputs, upstream)


def _noise(shape: tuple[int, ...], *name: str | int) -> Tensor:
    return torch.from_numpy(unit_noise(shape, "bench", "peers", *name))


@dataclass(frozen=True)
class Deviation:
    """The largest error relative to the largest element of its tensor, of the worst tensor. NaN where not finite."""

    outputs: float
    gradients: float


class Reference:
    """The right answer of a problem on its first tokens."""

    def __init__(self, problem: Problem) -> None:
        self.problem, self.checked = problem, min(problem.tokens, CHECKED)
        inputs = {name: self._first(t.detach().cpu()).double().requires_grad_() for name, t in problem.inputs.items()}
        if problem.mechanism == "depth_read":
            sources = [t for name, t in inputs.items() if name.startswith("source")]
            outputs = list(depth_read_reference(sources, inputs["queries"], inputs["key gain"], EPS)[0])
        else:
            outputs = [exclude_self_reference(inputs["y"], inputs["v"], 1.0)]
        upstream = [self._first(g.cpu()).double() for g in problem.upstream]
        self.outputs = [t.detach() for t in outputs]
        self.gradients = dict(zip(inputs, torch.autograd.grad(outputs, list(inputs.values()), upstream), strict=True))

    def deviation(self, solve: Solver) -> Deviation:
        """Of one forward and one backward pass."""
        clear(self.problem)
        outputs = solve()
        torch.autograd.backward(list(outputs), list(self._entering()))
        off = [_off(self._first(t), right) for t, right in zip(outputs, self.outputs, strict=True)]
        of_gradients = [
            _off(self._first(torch.zeros_like(t) if t.grad is None else t.grad), self.gradients[name])
            for name, t in self.problem.inputs.items()
        ]
        clear(self.problem)
        return Deviation(_worst(off), _worst(of_gradients))

    def _entering(self) -> Iterator[Tensor]:
        for gradient in self.problem.upstream:
            entering = torch.zeros_like(gradient)
            entering[:, : self.checked] = gradient[:, : self.checked]
            yield entering

    def _first(self, t: Tensor) -> Tensor:
        """The first tokens of what has tokens."""
        return t[:, : self.checked] if t.ndim > 2 else t


def clear(problem: Problem) -> None:
    for t in problem.inputs.values():
        t.grad = None


def _off(found: Tensor, right: Tensor) -> float:
    return float((found.detach().cpu().double() - right).abs().max() / right.abs().max())


def _worst(deviations: Sequence[float]) -> float:
    """NaN where any is."""
    return float(torch.tensor(deviations).max())
