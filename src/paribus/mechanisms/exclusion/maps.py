"""The output maps of Exclusive Self-Attention: a fixed strength, and one that is learned per layer and head."""

import math
from typing import Literal

import torch
from torch import nn

from paribus.kernels.exclude_self import exclude_self
from paribus.kernels.precision import wide
from paribus.mechanisms.contract import Geometry, Values
from paribus.roles import DeclaredModule, Init, Role
from paribus.shapes import Documents, GroupedHeads, GroupValues

ExcludedValue = Literal["aggregated", "projected", "embedding"]


def excluded(values: Values, which: ExcludedValue) -> GroupValues:
    """The value whose direction is removed. What a ValueMap added is aggregated - projected, in float32 or wider; it
    is zero where nothing was added, and such a row passes unchanged."""
    if which == "aggregated":
        return values.aggregated
    if which == "projected":
        return values.projected
    aggregated, projected = (wide(t) for t in values)
    return aggregated - projected


class ExcludeSelf(nn.Module):
    """z = y - strength * proj_v(y)."""

    position_local = True

    def __init__(self, strength: float, value: ExcludedValue) -> None:
        super().__init__()
        self.strength = strength
        self.value: ExcludedValue = value

    def forward(self, y: GroupedHeads, values: Values, document: Documents) -> GroupedHeads:
        del document
        return exclude_self(y, excluded(values, self.value), self.strength)


class ExcludeSelfByLearnedStrength(DeclaredModule):
    """z = y - tanh(a) * proj_v(y), one a per head: standard attention at a = 0, where its gradient is not zero."""

    position_local = True

    def __init__(self, geometry: Geometry, initial_strength: float, value: ExcludedValue) -> None:
        super().__init__()
        self.value: ExcludedValue = value
        start = Init(constant=math.atanh(initial_strength))
        self.declare("strength_before_tanh", (geometry.kv_heads, geometry.group), Role.SCALAR, start)

    def forward(self, y: GroupedHeads, values: Values, document: Documents) -> GroupedHeads:
        del document
        strength = torch.tanh(self.get_parameter("strength_before_tanh")).unsqueeze(-1)
        return exclude_self(y, excluded(values, self.value), strength)
