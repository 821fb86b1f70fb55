"""Exclusive Self-Attention, XSA (Zhai, arXiv 2603.09078; the strength is the parameter of the XSA-under-Muon study).

    z_i = y_i - strength * (y_i . v_i) / |v_i|^2 * v_i        per token and head, after the mix, before heads merge

What stays: softmax, projections, parameters, cost of attention. What it recovers: strength 0 is standard attention.
Free choices the paper leaves open: which layers (all here by default). `v` is the value that attention aggregated.
At strength 1 the first token of a document has y = v, so z = 0 there up to rounding, and cos(z, v) is undefined.
"""

from collections.abc import Mapping
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from paribus.kernels.exclude_self import cosine, exclude_self
from paribus.mechanisms.contract import Bench, Diagnostic, Geometry, Law, MechanismConfig, Seam, largest
from paribus.mechanisms.standard import UnchangedOutput
from paribus.shapes import Heads

SITE = "attention output"
LayerChoice = Literal["all"] | Annotated[str, Field(pattern=r"^last:[1-9][0-9]*$")]


class ExcludeSelf(nn.Module):
    def __init__(self, strength: float) -> None:
        super().__init__()
        self.strength = strength

    def forward(self, y: Heads, v: Heads) -> Heads:
        return exclude_self(y, v, self.strength)


class ExclusiveSelfAttention(MechanismConfig):
    """Remove from each head's output the part along the token's own value."""

    name = "xsa"
    seam = Seam.OUTPUT_MAP

    strength: Annotated[float, Field(ge=0.0, le=1.0)] = 1.0
    """share of the projection that is removed, 0 (standard attention, by its own path) to 1 (all of it)"""
    layers: LayerChoice | Annotated[tuple[int, ...], Field(strict=False, min_length=1)] = "all"
    """"all", "last:N", or a list of layer indices from 0"""

    def chosen_layers(self, geometry: Geometry) -> frozenset[int]:
        if self.layers == "all":
            return frozenset(range(geometry.layers))
        if isinstance(self.layers, str):
            return frozenset(range(geometry.layers - int(self.layers.removeprefix("last:")), geometry.layers))
        return frozenset(self.layers)

    def validate_for(self, geometry: Geometry) -> str | None:
        chosen = self.chosen_layers(geometry)
        if min(chosen) < 0 or max(chosen) >= geometry.layers:
            valid = f"valid layer indices are 0 to {geometry.layers - 1}"
            return f"layers = {self.layers!r} reaches outside the model: {valid}"
        return None

    def build(self, geometry: Geometry, layer: int) -> nn.Module:
        # Strength 0 shares the standard path, so that "strength 0 is standard attention" holds bit for bit.
        if self.strength == 0.0 or layer not in self.chosen_layers(geometry):
            return UnchangedOutput()
        return ExcludeSelf(self.strength)

    def flops_per_token(self, geometry: Geometry) -> float:
        """Two dot products and one scaled subtraction of head_width per head: 6 FLOPs an element."""
        active = 0 if self.strength == 0.0 else len(self.chosen_layers(geometry))
        return 6.0 * active * geometry.heads * geometry.head_width


def _weighted_mean(per_head: Tensor, weight: Tensor) -> float:
    return float((per_head.mean(-1) * weight).sum() / weight.sum())


def _self_alignment(tapped: Mapping[str, Tensor], weight: Tensor) -> Mapping[str, float]:
    return {"mean over heads": _weighted_mean(cosine(tapped[f"{SITE}/y"], tapped[f"{SITE}/v"]), weight)}


def _residual_alignment(tapped: Mapping[str, Tensor], weight: Tensor) -> Mapping[str, float]:
    z, y = tapped[f"{SITE}/z"], tapped[f"{SITE}/y"]
    if z is y:  # an output map that changes nothing makes no claim about z
        return {}
    return {"mean over heads": _weighted_mean(cosine(z, tapped[f"{SITE}/v"]).abs(), weight)}


DIAGNOSTICS = (
    Diagnostic(
        name="cos_y_v",
        title="Alignment of attention output with the token's own value",
        sentence="cos(y, v) before any projection, by layer: how much of what attention gathers a token already has. "
        "The first token of each document is left out.",
        unit="cosine",
        sites=(SITE,),
        observe=_self_alignment,
    ),
    Diagnostic(
        name="cos_z_v",
        title="Alignment left after the output map",
        sentence="|cos(z, v)|: zero by construction at strength 1, so it checks the implementation and is evidence of "
        "nothing else.",
        unit="cosine",
        sites=(SITE,),
        observe=_residual_alignment,
        correctness_only=True,
    ),
)


def _differs(
    bench: Bench, left: Mapping[str, Mapping[str, object]], right: Mapping[str, Mapping[str, object]]
) -> float:
    a, b = bench.loss_and_gradients(bench.model(left)), bench.loss_and_gradients(bench.model(right))
    return largest(float((a[name] - b[name]).abs().max()) for name in a)


def _zero_strength(bench: Bench, perturbed: bool) -> float:
    return _differs(bench, {"output_map": {"name": "xsa", "strength": 1e-3 if perturbed else 0.0}}, {})


def _zero_strength_through_the_arithmetic(bench: Bench, perturbed: bool) -> float:
    model, standard = bench.model({"output_map": {"name": "xsa", "strength": 0.5}}), bench.model({})
    for module in model.modules():
        if isinstance(module, ExcludeSelf):
            module.strength = 1e-3 if perturbed else 0.0
    a, b = bench.loss_and_gradients(model), bench.loss_and_gradients(standard)
    return largest(float((a[name] - b[name]).abs().max()) for name in a)


def _orthogonal(bench: Bench, perturbed: bool) -> float:
    model = bench.model({"output_map": {"name": "xsa", "strength": 0.99 if perturbed else 1.0}})
    worst = [0.0]

    def tap(site: str, layer: int, **tensors: Tensor) -> None:
        del layer
        if site == SITE:
            y, z, v = tensors["y"][:, 1:].double(), tensors["z"][:, 1:].double(), tensors["v"][:, 1:].double()
            along = (z * v).sum(-1).abs() / (y.norm(dim=-1) * v.norm(dim=-1))
            worst[0] = largest((worst[0], float(along.max())))

    with torch.no_grad():
        bench.logits(model, tap=tap)
    return worst[0]


LAWS = (
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
        bound=8 * 1.2e-7,
        why="three float32 roundings of terms bounded by |y||v| (dot, quotient, subtraction) and the dot's tree",
    ),
)
