"""Controls for Exclusive Self-Attention: each does something that XSA does, and not the thing that it claims to do.

With u = v/|v| and c = y . u (rows whose value has no size have c = 0, as in XSA):

    xsa-random-direction   z = y - s |c| sign(y . r) r     as far from y, along a fixed direction r of the head
    xsa-wrong-token        z = y - s proj_v'(y)            v' of the token `offset` positions earlier
    xsa-common-mode        z = y - s proj_m(y)             m the mean of v over the document's tokens up to this one
    xsa-shrink             z = y |y - s c u| / |y|         as short, in y's own direction

If a gain of XSA is about the token's own value, none of these shows it. The first moves z as far from y as XSA does,
usually past zero along r, so that z is often longer than y (`norm_kept` shows it); the last leaves XSA's norm exactly.
The other two project, and remove what they find: read them beside `share_removed`. All stay
within the token's document and its past, and share a value within a group of query heads. What each recovers: strength
0 is standard attention. `diagonal_mask` is the control at the attention mask.
"""

from typing import Annotated

import torch
from pydantic import Field
from torch import nn

from paribus.kernels.exclude_self import exclude_self, own_component, shrunk
from paribus.kernels.precision import wide
from paribus.mechanisms.contract import Geometry, Seam, Tensors, Values
from paribus.mechanisms.exclusion.control_laws import CONTROL_LAWS
from paribus.mechanisms.exclusion.diagnostics import EXCLUSIVE_DIAGNOSTICS
from paribus.mechanisms.exclusion.layers import OnChosenLayers, exclusion_bytes, exclusion_flops
from paribus.mechanisms.exclusion.prefix import document_mean, earlier_value, scan_steps
from paribus.roles import DeclaredModule, Init, Role
from paribus.shapes import Documents, GroupedHeads


class RandomDirection(DeclaredModule):
    """Moves y as far as XSA does, along r and towards zero there. The sign chooses that way, but |c| is XSA's: a random
    direction holds far less of y than v does, so the move usually goes past zero, and z is longer than y wherever
    s |c| > 2 |y . r|: 87 % of tokens at head width 64 where cos(y, v) is 0.38, and more where it is larger. The
    gradient reaches v, and y, through |c| as it does in XSA; the sign and r carry none."""

    position_local = True

    def __init__(self, geometry: Geometry, strength: float) -> None:
        super().__init__()
        self.strength = strength
        shape = (geometry.kv_heads, geometry.group, geometry.head_width)
        self.declare("direction", shape, Role.FIXED, Init(std=1.0))

    def forward(self, y: GroupedHeads, values: Values, document: Documents) -> GroupedHeads:
        del document
        drawn = self.get_parameter("direction")
        r = wide(drawn / torch.linalg.vector_norm(drawn, dim=-1, keepdim=True))
        c, _ = own_component(y, values.aggregated)
        along = (wide(y) * r).sum(-1, keepdim=True)
        return (wide(y) - self.strength * c.abs() * along.detach().sign() * r).to(y.dtype)


class WrongToken(nn.Module):
    """Projects on another token's value. Where the document has no such token, the value is zero and the row passes."""

    def __init__(self, strength: float, offset: int) -> None:
        super().__init__()
        self.strength, self.offset = strength, offset

    def forward(self, y: GroupedHeads, values: Values, document: Documents) -> GroupedHeads:
        return exclude_self(y, earlier_value(values.aggregated, document, self.offset), self.strength)


class CommonMode(nn.Module):
    """Projects on the running mean of the document's values, accumulated in float32 or wider."""

    def __init__(self, strength: float) -> None:
        super().__init__()
        self.strength = strength

    def forward(self, y: GroupedHeads, values: Values, document: Documents) -> GroupedHeads:
        return exclude_self(y, document_mean(wide(values.aggregated), document), self.strength)


class Shrink(nn.Module):
    """Scales y to the norm that XSA would leave."""

    position_local = True

    def __init__(self, strength: float, *, through_factor: bool) -> None:
        super().__init__()
        self.strength, self.through_factor = strength, through_factor

    def forward(self, y: GroupedHeads, values: Values, document: Documents) -> GroupedHeads:
        del document
        return shrunk(y, values.aggregated, self.strength, through_factor=self.through_factor)


class ExclusiveControl(OnChosenLayers):
    """What the controls share: a strength and layers, as XSA has them."""

    strength: Annotated[float, Field(ge=0.0, le=1.0)] = 1.0
    """XSA's strength that is matched, 0 (standard attention, by its own path) to 1"""

    def active_layers(self, geometry: Geometry) -> frozenset[int]:
        return frozenset() if self.strength == 0.0 else self.chosen_layers(geometry)


class XsaRandomDirection(ExclusiveControl):
    """Move each token's output by XSA's norm, along a direction that is fixed per layer and head."""

    name = "xsa-random-direction"
    seam = Seam.OUTPUT_MAP

    def map_for(self, geometry: Geometry) -> nn.Module:
        return RandomDirection(geometry, self.strength)

    def layer_flops_per_token(self, geometry: Geometry) -> float:
        """Per query head element two dot products, a scaling of r and a subtraction (6); per value element the unit
        vector (4)."""
        return float((6 * geometry.heads + 4 * geometry.kv_heads) * geometry.head_width)

    def layer_parameters(self, geometry: Geometry) -> tuple[Tensors, ...]:
        return (Tensors(Role.FIXED, (geometry.kv_heads, geometry.group, geometry.head_width)),)

    def layer_bytes_per_token(self, geometry: Geometry, number: int) -> float:
        """z, and y in float32 where it is not; for each value v over its largest element and u, both whole, that
        element, the norm, and whether it is zero; for each query head the sign, the scaled sign, and whether the row
        passes."""
        y_and_z = number if number == 4 else number + 4
        per_head, per_value = y_and_z * geometry.head_width + 9.0, 8.0 * geometry.head_width + 9.0
        return geometry.heads * per_head + geometry.kv_heads * per_value


class XsaWrongToken(ExclusiveControl):
    """Project on the value of an earlier token of the same document. Not norm-matched: compare share_removed."""

    name = "xsa-wrong-token"
    seam = Seam.OUTPUT_MAP

    offset: Annotated[int, Field(ge=1)] = 1
    """how many positions earlier the other token stands, from 1; a token without one passes unchanged"""

    def map_for(self, geometry: Geometry) -> nn.Module:
        del geometry
        return WrongToken(self.strength, self.offset)

    def validate_for(self, geometry: Geometry) -> str | None:
        if self.offset >= geometry.context_length:
            valid = f"valid are 1 to {geometry.context_length - 1}"
            return f"offset = {self.offset} reaches out of every row: {valid}"
        return super().validate_for(geometry)

    def layer_flops_per_token(self, geometry: Geometry) -> float:
        """One exclusion; the other token's value is moved, and zeroed across documents (1 per value element)."""
        return exclusion_flops(geometry) + geometry.kv_heads * geometry.head_width

    def layer_bytes_per_token(self, geometry: Geometry, number: int) -> float:
        """One exclusion, the other token's value, and whether there is one, as a number."""
        return exclusion_bytes(geometry, number) + number * (geometry.kv_heads * geometry.head_width + 1)


class XsaCommonMode(ExclusiveControl):
    """Project on the mean value of the document up to this token. Not norm-matched: compare share_removed."""

    name = "xsa-common-mode"
    seam = Seam.OUTPUT_MAP

    def map_for(self, geometry: Geometry) -> nn.Module:
        del geometry
        return CommonMode(self.strength)

    def layer_flops_per_token(self, geometry: Geometry) -> float:
        """One exclusion; per value element a masked mean of two in each step of the scan (4)."""
        scan = 4 * scan_steps(geometry.context_length)
        return exclusion_flops(geometry) + scan * geometry.kv_heads * geometry.head_width

    def layer_bytes_per_token(self, geometry: Geometry, number: int) -> float:
        """One exclusion and the mean; for each step of the scan two shares a value, and whether there is another mean,
        as a number."""
        scan = scan_steps(geometry.context_length) * (8.0 * geometry.kv_heads + 4.0)
        return exclusion_bytes(geometry, number) + 4.0 * geometry.kv_heads * geometry.head_width + scan


class XsaShrink(ExclusiveControl):
    """Scale each head's output to the norm that XSA would leave."""

    name = "xsa-shrink"
    seam = Seam.OUTPUT_MAP

    through_factor: bool = True
    """True: the factor is differentiated, so that y and v learn to change it, as XSA lets them; False: a constant"""

    def map_for(self, geometry: Geometry) -> nn.Module:
        del geometry
        return Shrink(self.strength, through_factor=self.through_factor)

    def layer_flops_per_token(self, geometry: Geometry) -> float:
        """Per query head element the unit vector (4), a dot product and the remainder (2 each), two norms (4), the
        factor, and into other units and back (2)."""
        return float(15 * geometry.heads * geometry.head_width)

    def layer_bytes_per_token(self, geometry: Geometry, number: int) -> float:
        """Whole query heads: z; in float32 the value over its largest element, u, y in its own units without the rows
        that pass, the remainder, and, where the factor is differentiated, y in those units. For each query head seven
        numbers and one truth value, two with that factor; for each value whether it is zero."""
        whole, truths = (5, 2) if self.through_factor else (4, 1)
        per_head = (4.0 * whole + number) * geometry.head_width + 28.0 + truths
        return geometry.heads * per_head + geometry.kv_heads


DIAGNOSTICS = EXCLUSIVE_DIAGNOSTICS
LAWS = CONTROL_LAWS
