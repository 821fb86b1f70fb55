"""What must hold of the controls for Exclusive Self-Attention: that each takes what it says, and as much as it says."""

from typing import Any

import torch
from torch import Tensor

from paribus.kernels.exclude_self import exclude_self
from paribus.mechanisms.contract import Bench, Law, Seam, largest
from paribus.mechanisms.exclusion.laws import (
    DOCUMENT_STARTS,
    U32,
    U64,
    Arm,
    Call,
    map_calls,
    norm,
    output_maps,
    trained_difference,
    xsa,
)
from paribus.mechanisms.exclusion.prefix import document_mean

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


def _random_never_adds_to_what_is_there(bench: Bench, perturbed: bool) -> float:
    found = []
    for call, r in random_direction_calls(bench, 1.0):
        u = call.values.aggregated / norm(call.values.aggregated)
        without_sign = (call.y * u).sum(-1, keepdim=True) * r
        removed = without_sign if perturbed else (call.y - call.z).double()
        grown = -(removed * call.y).sum(-1, keepdim=True) / norm(call.y).square()
        found.append(float(grown.clamp_min(0.0).max()))
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


CONTROL_LAWS = (
    Law(
        claim="every control at strength 0 is standard attention: loss and every shared gradient, bit for bit",
        measure=_zero_strength,
        perturbation="strength 0.001, the control that differs least",
        bound=0.0,
        why="strength 0 runs the standard path",
    ),
    Law(
        claim="a random direction removes exactly XSA's norm of every token",
        measure=_random_removes_xsas_norm,
        perturbation="the projection on the random direction itself, not scaled",
        bound=2 * (2 * 8 + 6) * U32,
        why="float32 sums of 8 products, quotient and subtraction, twice, relative to |y|",
    ),
    Law(
        claim="a random direction removes along that direction only",
        measure=_random_removes_along_its_direction_only,
        perturbation="XSA's own removal",
        bound=2 * (2 * 8 + 6) * U32,
        why="the float32 rounding of the subtraction and of the unit direction, relative to |y|",
    ),
    Law(
        claim="a random direction takes away from y's own component along it and never adds to it",
        measure=_random_never_adds_to_what_is_there,
        perturbation="y . u with its own sign in place of |y . u| sign(y . r)",
        bound=2 * (2 * 8 + 6) * U32,
        why="the float32 rounding of the subtraction, relative to |y|^2",
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
)
