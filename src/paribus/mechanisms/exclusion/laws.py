"""What must hold of Exclusive Self-Attention, and how its own and its controls' laws look into a model."""

from collections.abc import Callable, Mapping
from itertools import product
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from paribus.kernels.exclude_self import exclude_self, exclude_self_reference
from paribus.mechanisms.contract import Bench, Law, Seam, Values, largest
from paribus.mechanisms.exclusion.maps import (
    ExcludedValue,
    ExcludeSelf,
    ExcludeSelfByLearnedStrength,
    excluded,
)
from paribus.shapes import Documents, GroupedHeads

Arm = Mapping[str, Mapping[str, Any]]
U32, U64 = 2.0**-24, 2.0**-53
"""unit roundoff of float32 and float64"""
DOCUMENT_STARTS = ((0, 0), (0, 5), (1, 0))
"""(row, position) of each document's first token on the bench"""


class Call(NamedTuple):
    """One layer's output map at work."""

    output_map: nn.Module
    y: GroupedHeads
    values: Values
    document: Documents
    z: GroupedHeads
    g: GroupedHeads
    """gradient of the loss with respect to z"""


def output_maps(model: nn.Module) -> list[Any]:
    """The output map of every layer, in order."""
    return [module for name, module in model.named_modules() if name.rpartition(".")[2] == Seam.OUTPUT_MAP]


def map_calls(bench: Bench, model: Any) -> list[Call]:
    """Arguments, result and its gradient of every output map, in the order of layers. Leaves gradients in the model."""
    seen: list[tuple[nn.Module, tuple[Any, ...], Tensor]] = []

    def note(module: nn.Module, arguments: tuple[Any, ...], z: Tensor) -> None:
        z.retain_grad()
        seen.append((module, arguments, z))

    hooks = [module.register_forward_hook(note) for module in output_maps(model)]
    bench.loss_and_gradients(model)
    for hook in hooks:
        hook.remove()
    calls = []
    for module, (y, values, document), z in seen:
        assert z.grad is not None
        detached = Values(*(v.detach() for v in values))
        calls.append(Call(module, y.detach(), detached, document, z.detach(), z.grad))
    return calls


def xsa(**fields: Any) -> Arm:
    return {Seam.OUTPUT_MAP: {"name": "xsa", **fields}}


def norm(t: Tensor) -> Tensor:
    """Float64 norm over head_width, kept as an axis of size 1."""
    return t.detach().double().norm(dim=-1, keepdim=True)


def trained_difference(bench: Bench, left: Any, right: Any) -> float:
    """Largest difference of the loss and of the gradient of any tensor that both models have."""
    a, b = bench.loss_and_gradients(left), bench.loss_and_gradients(right)
    return largest(float((a[name] - b[name]).abs().max()) for name in a.keys() & b.keys())


def _zero_strength(bench: Bench, perturbed: bool) -> float:
    return trained_difference(bench, bench.model(xsa(strength=1e-3 if perturbed else 0.0)), bench.model({}))


def _zero_strength_through_the_arithmetic(bench: Bench, perturbed: bool) -> float:
    model = bench.model(xsa(strength=0.5))
    for module in model.modules():
        if isinstance(module, ExcludeSelf):
            module.strength = 1e-3 if perturbed else 0.0
    return trained_difference(bench, model, bench.model({}))


def _orthogonal(bench: Bench, perturbed: bool) -> float:
    calls = map_calls(bench, bench.model(xsa(strength=0.99 if perturbed else 1.0)))
    found = []
    for call in calls:
        y, v, z = (t[:, 1:].double() for t in (call.y, call.values.aggregated, call.z))
        found.append(float(((z * v).sum(-1).abs() / (y.norm(dim=-1) * v.norm(dim=-1))).max()))
    return largest(found)


def _orthogonal_to_the_chosen_value(bench: Bench, perturbed: bool) -> float:
    others: dict[ExcludedValue, ExcludedValue] = {
        "aggregated": "projected",
        "projected": "aggregated",
        "embedding": "aggregated",
    }
    found = []
    for which, other in others.items():
        model = bench.model({Seam.VALUE_MAP: {"name": "value-embedding"}, **xsa(value=which)})
        bench.disturb(model, "value_map")
        for call in map_calls(bench, model):
            v = excluded(call.values, other if perturbed else which).double()
            found.append(float(((call.z * v).sum(-1, keepdim=True).abs() / (norm(call.y) * norm(v))).max()))
    return largest(found)


def _first_token_vanishes(bench: Bench, perturbed: bool) -> float:
    mask = {Seam.MASK: {"name": "causal" if perturbed else "document"}}
    found = []
    for call in map_calls(bench, bench.model({**mask, **xsa()})):
        for dtype in (torch.float32, torch.bfloat16):
            y, v = call.y.to(dtype), call.values.aggregated.to(dtype)
            left = norm(exclude_self(y, v, 1.0)) / norm(v)
            found.extend(float(left[start].max()) for start in DOCUMENT_STARTS)
        found.extend(float((norm(call.z) / norm(call.y))[start].max()) for start in DOCUMENT_STARTS)
    return largest(found)


def _learned_at_zero(bench: Bench, perturbed: bool) -> float:
    start = 1e-3 if perturbed else 0.0
    return trained_difference(bench, bench.model(xsa(strength="learned", initial_strength=start)), bench.model({}))


def _strength_gradient(bench: Bench, perturbed: bool) -> float:
    found = []
    for start in (0.0, 0.3):
        model = bench.model(xsa(strength="learned", initial_strength=start), double=True)
        for call in map_calls(bench, model):
            v = call.values.aggregated.roll(1, dims=1) if perturbed else call.values.aggregated
            assert isinstance(call.output_map, ExcludeSelfByLearnedStrength)
            a = call.output_map.get_parameter("strength_before_tanh")
            assert a.grad is not None
            u = v / norm(v)
            of_strength = -((call.y * u).sum(-1) * (call.g * u).sum(-1)).sum((0, 1))
            expected = of_strength * (1 - torch.tanh(a.detach()) ** 2)
            terms = (norm(call.y) * norm(call.g)).sum()
            found.append(float((a.grad - expected).abs().max() / terms))
    return largest(found)


SIZES = (1e-37, 1e-18, 1e-6, 1.0, 1e6, 1e18, 1e37)


def by_squares_alone(y: Tensor, v: Tensor, strength: float) -> Tensor:
    y_full, v_full = y.float(), v.float()
    along = (y_full * v_full).sum(-1, keepdim=True) / v_full.square().sum(-1, keepdim=True)
    return (y_full - strength * along * v_full).to(y.dtype)


ROOMY = (64, 256)
"""head width and tokens at which a sum of numbers of size 1e37 and one sign leaves float32"""


def not_finite(bench: Bench, apply: Callable[[Tensor, Tensor, Documents], Tensor]) -> float:
    """Number of results and gradients that are not finite, of a map (y, v, document) -> z in bfloat16, over the sizes
    of y and of v: signs and sizes of the features as on the bench, one size, and one sign and size."""
    width, time = ROOMY
    [first, *_] = map_calls(bench, bench.model({}))
    y, v = (
        (t / t.abs().amax()).repeat(1, time // t.shape[1] + 1, 1, 1, width // t.shape[-1])[:1, :time]
        for t in (first.y, first.values.aggregated)
    )
    document, bad = torch.zeros(1, time, dtype=torch.long), 0
    for of_y, of_v in product(SIZES, SIZES):
        for shape in (torch.clone, torch.sign, torch.ones_like):
            a, b = ((size * shape(t)).bfloat16().requires_grad_() for size, t in ((of_y, y), (of_v, v)))
            z = apply(a, b, document)
            results = (z, *torch.autograd.grad(z, (a, b), torch.ones_like(z)))
            bad += sum(int((~result.isfinite()).sum()) for result in results)
    return float(bad)


def _finite_in_bfloat16(bench: Bench, perturbed: bool) -> float:
    remove = by_squares_alone if perturbed else exclude_self
    return not_finite(bench, lambda y, v, _: remove(y, v, 1.0))


POWERS = ((-60, -60), (60, 60), (0, -8), (0, 60), (-8, 0))
"""exponents of two by which y and v are scaled"""


def _with_a_norm_clamped_at(floor: float, y: Tensor, v: Tensor, strength: float) -> Tensor:
    unit = v / torch.linalg.vector_norm(v, dim=-1, keepdim=True).clamp_min(floor)
    return y - strength * (y * unit).sum(-1, keepdim=True) * unit


def _size_of_the_value_does_not_matter(bench: Bench, perturbed: bool) -> float:
    found = []
    for call in map_calls(bench, bench.model({})):
        y, v = call.y, call.values.aggregated
        z = exclude_self(y, v, 1.0)
        for of_y, of_v in POWERS:
            scaled = 2.0**of_y * y, 2.0**of_v * v
            again = _with_a_norm_clamped_at(1e-12, *scaled, 1.0) if perturbed else exclude_self(*scaled, 1.0)
            found.append(float((2.0**-of_y * again - z).abs().max()))
    return largest(found)


def _zero_values_pass(bench: Bench, perturbed: bool) -> float:
    found = []
    for call in map_calls(bench, bench.model({})):
        v = call.values.aggregated.clone()
        v[:, 3:7] *= 1e-3 if perturbed else 0.0
        y, v = call.y.clone().requires_grad_(), v.requires_grad_()
        z = exclude_self(y, v, 1.0)
        of_y, of_v = torch.autograd.grad(z, (y, v), call.g)
        found.extend(float(t[:, 3:7].abs().max()) for t in (z.detach() - y.detach(), of_y - call.g, of_v))
        found.append(0.0 if bool(of_v.isfinite().all()) else torch.inf)
    return largest(found)


def _grouped_queries(bench: Bench, perturbed: bool) -> float:
    # Two query heads for each of the bench's two values: those of two layers, in an order that tells h // 2 from h % 2.
    calls = map_calls(bench, bench.model({}, double=True))
    y = torch.cat([calls[0].y, calls[1].y], dim=2).flatten(2, 3)
    v = calls[0].values.aggregated
    found = exclude_self(y.unflatten(2, (2, 2)), v, 1.0).flatten(2, 3)
    worst = [0.0]
    for head in range(4):
        own = v[:, :, head % 2 if perturbed else head // 2]
        expected = exclude_self_reference(y[:, :, head : head + 1, None], own.unsqueeze(2), 1.0)[:, :, 0, 0]
        worst.append(float(((found[:, :, head] - expected).abs() / norm(y[:, :, head])).max()))
    return largest(worst)


EXCLUSIVE_LAWS = (
    Law(
        claim="strength 0 is standard attention: loss and every gradient, bit for bit",
        measure=_zero_strength,
        perturbation="strength 0.001",
        bound=0.0,
        why="strength 0 runs the standard path",
    ),
    Law(
        claim="strength 0 through the projection's own arithmetic is standard attention",
        measure=_zero_strength_through_the_arithmetic,
        perturbation="strength 0.001 in the same arithmetic",
        bound=0.0,
        why="0 * finite = 0 and y - 0 = y are exact in floating point, forward and backward",
    ),
    Law(
        claim="z is orthogonal to v at strength 1: |z . v| <= bound |y| |v|, first token of a row left out",
        measure=_orthogonal,
        perturbation="strength 0.99",
        bound=16 * U32,
        why="float32 roundings of terms bounded by |y||v|: two sums of 8 products in a tree, quotient, subtraction",
    ),
    Law(
        claim="with value embeddings, z is orthogonal to the value that the arm chose, whichever of the three it is",
        measure=_orthogonal_to_the_chosen_value,
        perturbation="measured against another value than the chosen one",
        bound=16 * U32,
        why="as above",
    ),
    Law(
        claim="the first token of a document gives z = 0 up to rounding, in float32 and from bfloat16 inputs",
        measure=_first_token_vanishes,
        perturbation="without the document mask the second document's first token attends to the first document",
        bound=2 * (2 * 8 + 4) * U32,
        why="y = v there, so the quotient is 1 up to two float32 sums of 8 products; bfloat16 inputs are widened first",
    ),
    Law(
        claim="a learned strength of 0 is standard attention: loss and every shared gradient, bit for bit",
        measure=_learned_at_zero,
        perturbation="a learned strength that starts at 0.001",
        bound=0.0,
        why="tanh(0) = 0, and the arithmetic at strength 0 is exact",
    ),
    Law(
        claim="the gradient of a learned strength is -(y.u)(g.u) summed over tokens, times 1 - tanh^2 (float64)",
        measure=_strength_gradient,
        perturbation="u of the token before",
        bound=64 * U64,
        why="float64 sums of 24 tokens, each of products of two sums of 8 terms, relative to sum |y||g|",
    ),
    Law(
        claim="finite forwards and backwards in bfloat16 for values and outputs of size 1e-37 to 1e37, at 64 features "
        "of one sign",
        measure=_finite_in_bfloat16,
        perturbation="the same equation with |v|^2 formed from v as it is",
        bound=0.0,
        why="a count of numbers that are not finite",
    ),
    Law(
        claim="the whole component goes whatever the size of the value: powers of two change no bit of z",
        measure=_size_of_the_value_does_not_matter,
        perturbation="|v| clamped at 1e-12, which removes a part where v is small",
        bound=0.0,
        why="v / max|v| is the same number, and scaling y by a power of two is exact",
    ),
    Law(
        claim="where the value is zero, y and its gradient pass unchanged and the value receives none",
        measure=_zero_values_pass,
        perturbation="a thousandth of the value instead of zero",
        bound=0.0,
        why="such a row's coefficient is exactly zero",
    ),
    Law(
        claim="query heads that share a value are treated like heads alone, head h with value h // group (float64)",
        measure=_grouped_queries,
        perturbation="value h % group instead",
        bound=4 * (2 * 8 + 4) * U64,
        why="two float64 sums of 8 products, on both sides",
    ),
)
