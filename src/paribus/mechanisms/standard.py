"""The identities of the seams: the plain PreNorm Transformer.

Residual stream x <- x + f(norm(x)) (He et al. 1512.03385; PreNorm: Xiong et al. 2002.04745), causal attention
(Vaswani et al. 1706.03762) whose output, value and mask nobody touches. Every study has an arm that is this.
"""

from typing import Any

from torch import nn

from paribus.kernels.precision import wide
from paribus.mechanisms.contract import Geometry, MechanismConfig, Reads, Seam, Site, Tap, Tensors, Values
from paribus.shapes import AllowedPairs, Documents, GroupedHeads, Heads, Stream, Tokens


class SerialResidual(nn.Module):
    """Each sublayer reads the sum of everything before it. The memory is the stream itself."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.layers = layers

    def open(self, x0: Stream) -> Stream:
        return wide(x0)

    def read(self, memory: Stream, layer: int, site: Site, tap: Tap | None) -> Reads:
        del layer, site, tap
        return Reads.shared(memory)

    def write(self, memory: Stream, delta: Stream, layer: int, site: Site) -> Stream:
        del layer, site
        return memory + delta

    def close(self, memory: Stream, tap: Tap | None) -> Stream:
        del tap
        return memory

    def source_lists(self) -> list[dict[str, Any]]:
        sites = [(layer, site) for layer in range(self.layers) for site in (Site.ATTENTION, Site.MLP)]
        return [
            {"layer": layer, "site": str(site), "sources": ["stream"]}
            for layer, site in [*sites, (self.layers, Site.OUTPUT)]
        ]


class UnchangedOutput(nn.Module):
    """z = y."""

    position_local = True

    def forward(self, y: GroupedHeads, values: Values, document: Documents) -> GroupedHeads:
        del values, document
        return y


class OwnValue(nn.Module):
    """Attention aggregates each token's own projected value."""

    def forward(self, own: Heads, first: Heads, tokens: Tokens) -> Heads:
        del first, tokens
        return own


class CausalMask(nn.Module):
    """Every earlier position of the row may be attended to."""

    def forward(self, document: Documents) -> AllowedPairs | None:
        del document
        return None


class _Standard(MechanismConfig):
    """The identity has nothing to configure and costs nothing."""

    def parameters(self, geometry: Geometry) -> tuple[Tensors, ...]:
        del geometry
        return ()


class StandardRouting(_Standard):
    name = "serial"
    seam = Seam.ROUTING

    def build(self, geometry: Geometry, layer: int) -> nn.Module:
        del layer
        return SerialResidual(geometry.layers)


class StandardOutput(_Standard):
    name = "standard"
    seam = Seam.OUTPUT_MAP

    def build(self, geometry: Geometry, layer: int) -> nn.Module:
        del geometry, layer
        return UnchangedOutput()


class StandardValue(_Standard):
    name = "own"
    seam = Seam.VALUE_MAP

    def build(self, geometry: Geometry, layer: int) -> nn.Module:
        del geometry, layer
        return OwnValue()


class StandardMask(_Standard):
    name = "causal"
    seam = Seam.MASK

    def build(self, geometry: Geometry, layer: int) -> nn.Module:
        del geometry, layer
        return CausalMask()
