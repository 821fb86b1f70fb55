"""What must hold of the controls for Exclusive Self-Attention: that each takes what it says, and as much as it says."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from paribus.kernels.exclude_self import exclude_self
from paribus.mechanisms import resolve
from paribus.mechanisms.contract import Bench, Geometry, Law, Seam, Values, largest
from paribus.mechanisms.exclusion.laws import (
    DOCUMENT_STARTS,
    ROOMY,
    U32,
    U64,
    Arm,
    Call,
    by_squares_alone,
    map_calls,
    norm,
    not_finite,
    output_maps,
    trained_difference,
    xsa,
)
from paribus.mechanisms.exclusion.prefix import document_mean, earlier_value
from paribus.roles import initialise

CONTROLS = ("random-direction", "wrong-token", "common-mode", "shrink")
STRENGTHS = (0.5, 1.0)


def control(of: str, **fields: Any) -> Arm:
    return {Seam.OUTPUT_MAP: {"name": f"xsa-{of}", **fields}}


def _zero_strength(bench: Bench, perturbed: bool) -> float:
    strength, plain = 1e-3 if perturbed else 0.0, bench.model({})
    found = [trained_difference(bench, bench.model(control(of, strength=strength)), plain) for of in CONTROLS]
    # Every control has to differ from the standard arm, not only the one that differs most.
    return min(found) if perturbed else largest(found)


def by_xsa(call: Call, strength: float) -> Tensor:
    """What XSA would have made of this layer's output."""
    return exclude_self(call.y, call.values.aggregated, strength)


def random_direction_calls(bench: Bench, strength: float) -> list[tuple[Call, Tensor]]:
    """Each layer's call and its unit direction."""
    calls = map_calls(bench, bench.model(control("random-direction", strength=strength)))
    directions = [call.output_map.get_parameter("direction").detach() for call in calls]
    return [(call, r / norm(r)) for call, r in zip(calls, directions, strict=True)]


def _random_removes_xsas_norm(bench: Bench, perturbed: bool) -> float:
    found = []
    for strength in STRENGTHS:
        for call, r in random_direction_calls(bench, strength):
            unscaled = call.y - strength * (call.y * r).sum(-1, keepdim=True) * r
            removed = norm(call.y - (unscaled if perturbed else call.z))
            found.append(float(((removed - norm(call.y - by_xsa(call, strength))).abs() / norm(call.y)).max()))
    return largest(found)


def _random_removes_along_its_direction_only(bench: Bench, perturbed: bool) -> float:
    found = []
    for call, r in random_direction_calls(bench, 1.0):
        removed = (call.y - (by_xsa(call, 1.0) if perturbed else call.z)).double()
        across = removed - (removed * r).sum(-1, keepdim=True) * r
        found.append(float((norm(across) / norm(call.y)).max()))
    return largest(found)


def _random_moves_towards_zero_and_past_it(bench: Bench, perturbed: bool) -> float:
    found = []
    for strength in STRENGTHS:
        for call, r in random_direction_calls(bench, strength):
            u = call.values.aggregated.double() / norm(call.values.aggregated)
            c = strength * (call.y * u).sum(-1, keepdim=True)
            z = call.y - c * r if perturbed else call.z.double()
            before, after = ((t * r).sum(-1, keepdim=True).abs() for t in (call.y.double(), z))
            found.append(float(((after - (before - c.abs()).abs()).abs() / norm(call.y)).max()))
    return largest(found)


def _shrink_leaves_xsas_norm(bench: Bench, perturbed: bool) -> float:
    found = []
    for through_factor in (True, False):
        for strength in STRENGTHS:
            arm = control("shrink", strength=strength, through_factor=through_factor)
            for call in map_calls(bench, bench.model(arm)):
                wanted = norm(by_xsa(call, 0.9 * strength if perturbed else strength))
                found.append(float(((norm(call.z) - wanted).abs() / norm(call.y)).max()))
    return largest(found)


def _right_token_is_xsa(bench: Bench, perturbed: bool) -> float:
    found = []
    for strength in STRENGTHS:
        model = bench.model(control("wrong-token", strength=strength))
        for output_map in output_maps(model):
            output_map.offset = 1 if perturbed else 0
        found.append(trained_difference(bench, model, bench.model(xsa(strength=strength))))
    return largest(found)


def _no_such_token_passes(bench: Bench, perturbed: bool) -> float:
    calls = map_calls(bench, bench.model(control("wrong-token", offset=2)))
    # Two positions without a token two earlier, at each document's start; the third has one.
    places = [(row, start + (2 if perturbed else later)) for row, start in DOCUMENT_STARTS for later in (0, 1)]
    return largest(float((call.z - call.y)[place].abs().max()) for call in calls for place in places)


def _common_mode_of_one_token_is_xsa(bench: Bench, perturbed: bool) -> float:
    found = []
    for strength in STRENGTHS:
        for call in map_calls(bench, bench.model(control("common-mode", strength=strength))):
            difference = (call.z - by_xsa(call, strength)).abs()
            found.extend(float(difference[row, start + perturbed].max()) for row, start in DOCUMENT_STARTS)
    return largest(found)


def _common_mode_is_the_documents_mean(bench: Bench, perturbed: bool) -> float:
    found = []
    for call in map_calls(bench, bench.model({}, double=True)):
        v, document = call.values.aggregated, call.document
        means = document_mean(v, torch.zeros_like(document) if perturbed else document)
        for row in range(len(v)):
            for time in range(v.shape[1]):
                own = [s for s in range(time + 1) if document[row, s] == document[row, time]]
                expected = sum((v[row, s] for s in own), torch.zeros_like(v[row, 0])) / len(own)
                found.append(float((means[row, time] - expected).abs().max() / v.abs().max()))
    return largest(found)


def _root_of_squares(t: Tensor) -> Tensor:
    return t.square().sum(-1, keepdim=True).sqrt()


def _naive(of: str, output_map: Any) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    """The same equation without the care: squares of v as it is, sums before they are divided, y in its own units."""

    def apply(y: Tensor, v: Tensor, document: Tensor) -> Tensor:
        y_wide, v_wide = y.float(), v.float()
        if of == "wrong-token":
            return by_squares_alone(y, earlier_value(v, document, 1), 1.0)
        if of == "common-mode":
            count = torch.arange(1, v.shape[1] + 1)[None, :, None, None, None]
            return exclude_self(y, v_wide.cumsum(1) / count, 1.0)
        if of == "shrink":
            left = _root_of_squares(exclude_self(y_wide, v_wide, 1.0))
            return (y_wide * left / _root_of_squares(y_wide)).to(y.dtype)
        r = output_map.get_parameter("direction")
        r = r / _root_of_squares(r)
        c = (y_wide * v_wide).sum(-1, keepdim=True) / _root_of_squares(v_wide)
        return (y_wide - c.abs() * (y_wide * r).sum(-1, keepdim=True).detach().sign() * r).to(y.dtype)

    return apply


def _finite_in_bfloat16(bench: Bench, perturbed: bool) -> float:
    """Results and gradients that are not finite; perturbed, of the control that has the fewest."""
    width, time = ROOMY
    [first, *_] = map_calls(bench, bench.model({}))
    kv_heads, group = first.y.shape[2:4]
    geometry = Geometry(
        layers=1,
        width=kv_heads * group * width,
        heads=kv_heads * group,
        head_width=width,
        context_length=time,
        norm_eps=1e-6,
        kv_heads=kv_heads,
        vocabulary_size=2,
    )
    bad = []
    for of in CONTROLS:
        output_map = resolve(Seam.OUTPUT_MAP, dict(control(of)[Seam.OUTPUT_MAP]), "laws").build(geometry, 0)
        initialise(output_map, "laws", of)

        def careful(y: Tensor, v: Tensor, document: Tensor, output_map: Any = output_map) -> Tensor:
            return output_map(y, Values(v, v), document)

        bad.append(not_finite(bench, _naive(of, output_map) if perturbed else careful))
    return min(bad) if perturbed else largest(bad)


CONTROL_LAWS = (
    Law(
        claim="every control at strength 0 is standard attention: loss and every shared gradient, bit for bit",
        measure=_zero_strength,
        perturbation="strength 0.001, the control that differs least",
        bound=0.0,
        why="strength 0 runs the standard path",
    ),
    Law(
        claim="a random direction moves every token's output exactly as far as XSA does",
        measure=_random_removes_xsas_norm,
        perturbation="the projection on the random direction itself, not scaled",
        bound=2 * (2 * 8 + 6) * U32,
        why="float32 sums of 8 products, quotient and subtraction, twice, relative to |y|",
    ),
    Law(
        claim="a random direction moves the output along that direction only",
        measure=_random_removes_along_its_direction_only,
        perturbation="XSA's own removal",
        bound=2 * (2 * 8 + 6) * U32,
        why="the float32 rounding of the subtraction and of the unit direction, relative to |y|",
    ),
    Law(
        claim="a random direction moves y's component along it towards zero, and past it where s |y . u| is larger: "
        "|z . r| = ||y . r| - s |y . u||, so z may be longer than y",
        measure=_random_moves_towards_zero_and_past_it,
        perturbation="y . u with its own sign in place of |y . u| sign(y . r)",
        bound=2 * (2 * 8 + 6) * U32,
        why="float32 sums of 8 products, quotient and subtraction, relative to |y|",
    ),
    Law(
        claim="shrinking leaves exactly XSA's norm of every token, with and without a gradient through the factor",
        measure=_shrink_leaves_xsas_norm,
        perturbation="XSA's norm at 0.9 of the strength",
        bound=2 * (2 * 8 + 8) * U32,
        why="float32 sums of 8 products, two norms and a quotient, relative to |y|",
    ),
    Law(
        claim="the wrong token's arithmetic with the right token is XSA: loss and every gradient, bit for bit",
        measure=_right_token_is_xsa,
        perturbation="the token before",
        bound=0.0,
        why="at offset 0 the value is multiplied by one; everything else is XSA's arithmetic",
    ),
    Law(
        claim="a token whose document holds no token `offset` positions earlier passes unchanged",
        measure=_no_such_token_passes,
        perturbation="the first token that has one",
        bound=0.0,
        why="its other token's value is exactly zero",
    ),
    Law(
        claim="the common mode of a document's first token is its own value: XSA, bit for bit",
        measure=_common_mode_of_one_token_is_xsa,
        perturbation="the second token of each document",
        bound=0.0,
        why="adding zeros and dividing by one are exact",
    ),
    Law(
        claim="the common mode is the mean over the document's tokens up to this one (float64)",
        measure=_common_mode_is_the_documents_mean,
        perturbation="the mean over the row",
        bound=2 * 12 * U64,
        why="sums of at most 12 values in two orders, relative to the largest value",
    ),
    Law(
        claim="every control is finite forwards and backwards in bfloat16 for values and outputs of size 1e-37 to "
        "1e37, at 64 features and 256 tokens of one sign",
        measure=_finite_in_bfloat16,
        perturbation="each control's equation on sizes as they are: squares of v, sums over tokens, squares of y",
        bound=0.0,
        why="a count of numbers that are not finite",
    ),
)
