"""Exclusive Self-Attention, XSA (Zhai, arXiv 2603.09078; the strength is the parameter of the XSA-under-Muon study).

    z_i = y_i - strength * (y_i . v_i) / |v_i|^2 * v_i        per token and head, after the mix, before heads merge

What stays: softmax, projections, cost of attention, and the parameters unless the strength is learned. What it
recovers: strength 0 is standard attention. At strength 1 the first token of a document has y = v, so z = 0 there up
to rounding, and cos(z, v) is undefined.
Free choices the paper leaves open, each a field: which layers; which value where a ValueMap changes it (only the
aggregated one makes z orthogonal to what attention mixed); a learned strength, tanh(a) per layer and head, from a = 0
(the modded-nanogpt record of 2026-04-29) or from further up. Grouped queries use the value of their own group.
"""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator
from pydantic_core import PydanticCustomError
from torch import nn

from paribus.mechanisms.contract import Geometry, Seam, Tensors
from paribus.mechanisms.exclusion.diagnostics import EXCLUSIVE_DIAGNOSTICS
from paribus.mechanisms.exclusion.laws import EXCLUSIVE_LAWS
from paribus.mechanisms.exclusion.layer_choice import listed
from paribus.mechanisms.exclusion.layers import OnChosenLayers, exclusion_bytes, exclusion_flops
from paribus.mechanisms.exclusion.maps import ExcludedValue, ExcludeSelf, ExcludeSelfByLearnedStrength
from paribus.mechanisms.exclusion.switch import PROJECTION_SWITCHED
from paribus.roles import Role

LEARNED = "learned"


def _share_or_learned(value: Any) -> Any:
    """One sentence for every value that is neither, instead of one for each type that it could have had."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if value == LEARNED or (number and 0.0 <= value <= 1.0):
        return value
    expected = f'a number greater than or equal to 0 and less than or equal to 1, or "{LEARNED}"'
    if number and value < 0.0:
        expected += (
            "; a fixed negative strength would add to every token more of the value that it already has, which no study"
            " proposes (a learned strength may become negative by itself)"
        )
    raise PydanticCustomError("strength", expected)


Strength = Annotated[float | Literal["learned"], BeforeValidator(_share_or_learned)]


class ExclusiveSelfAttention(OnChosenLayers):
    """Remove from each head's output the part along the token's own value."""

    name = "xsa"
    seam = Seam.OUTPUT_MAP

    strength: Strength = 1.0
    """share of the projection that is removed, 0 (standard attention, by its own path) to 1 (all of it), or "learned":
    tanh of a scalar per layer and head"""
    initial_strength: Annotated[float, Field(ge=0.0, le=0.99)] = 0.0
    """where a learned strength starts, 0 (standard attention) to 0.99; only with strength = "learned\""""
    value: ExcludedValue = "aggregated"
    """the value whose direction is removed: "aggregated" (what attention mixed), "projected" (before value embeddings
    were added) or "embedding" (only what was added)"""

    @model_validator(mode="after")
    def _a_fixed_strength_starts_nowhere_else(self) -> "ExclusiveSelfAttention":
        if self.strength != LEARNED and self.initial_strength != 0.0:
            raise ValueError(
                f"initial_strength = {self.initial_strength:g} is where a learned strength starts; "
                f'with it write strength = "{LEARNED}"'
            )
        return self

    def validate_for(self, geometry: Geometry) -> str | None:
        problem = super().validate_for(geometry)
        if problem is not None or self.value == "aggregated":
            return problem
        have = geometry.value_embedding_layers
        lacking = self.chosen_layers(geometry) - have
        if not lacking:
            return None
        return (
            f'value = "{self.value}" needs value embeddings in every chosen layer: layers {listed(lacking)} have none '
            f"(layers with value embeddings: {listed(have)})"
        )

    def active_layers(self, geometry: Geometry) -> frozenset[int]:
        # Strength 0 shares the standard path, so that "strength 0 is standard attention" holds bit for bit.
        return frozenset() if self.strength == 0.0 else self.chosen_layers(geometry)

    def map_for(self, geometry: Geometry) -> nn.Module:
        if self.strength == LEARNED:
            return ExcludeSelfByLearnedStrength(geometry, self.initial_strength, self.value)
        return ExcludeSelf(float(self.strength), self.value)

    def layer_flops_per_token(self, geometry: Geometry) -> float:
        """One exclusion, and the difference of two values where the embedding alone is excluded."""
        return exclusion_flops(geometry) + (self.value == "embedding") * geometry.kv_heads * geometry.head_width

    def layer_parameters(self, geometry: Geometry) -> tuple[Tensors, ...]:
        if self.strength != LEARNED:
            return ()
        return (Tensors(Role.SCALAR, (geometry.kv_heads, geometry.group)),)

    def layer_bytes_per_token(self, geometry: Geometry, number: int) -> float:
        """One exclusion, and the excluded value where it is not what attention aggregates; a difference is float32."""
        size = {"aggregated": 0, "projected": number, "embedding": 4}[self.value]
        return exclusion_bytes(geometry, number) + size * geometry.kv_heads * geometry.head_width


DIAGNOSTICS = EXCLUSIVE_DIAGNOSTICS
INTERVENTIONS = (PROJECTION_SWITCHED,)
LAWS = EXCLUSIVE_LAWS
