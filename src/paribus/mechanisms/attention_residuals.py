"""Full and Block Attention Residuals (Kimi Team, arXiv 2603.15031): each sublayer reads a softmax mix over depth.

    h = sum_k p_k v_k,   p = softmax_k( w . (g * v_k / rms(v_k)) )        one pseudo-query w and key gain g per read

Sources of a read: b_0 (the embedding), b_n (the sum of block n's sublayer outputs) for each finished block, and the
running sum of the current block once it holds something. "Layer" in the paper means sublayer (attention or MLP); how
they form blocks is `block_layout`. Full Attention Residuals make every sublayer its own block. The output has a read of
its own over all blocks, before the final norm.

What stays: projections, norms, attention, write-back. What it recovers: at zero queries every read is the mean of
its sources, (stream)/K, and a scale-invariant norm makes loss and all non-routing gradients equal PreNorm's; that is
why queries start at zero. The first attention read has one source: its query is dead by construction.
Free choices: queries and gains are float32, on AdamW without decay, at a learning rate of their own.
"""

from typing import Any

from torch import nn

from paribus.kernels.depth_read import publish
from paribus.kernels.norm import Norm
from paribus.mechanisms.contract import Geometry, Kept, Reads, Seam, Site, Tap, Tensors
from paribus.mechanisms.depth.block_layout import BlockedConfig, BlockLayout
from paribus.mechanisms.depth.diagnostics import OF_EVERY_ROUTING
from paribus.mechanisms.depth.interventions import SOURCE_ABLATED
from paribus.mechanisms.depth.parent_laws import ATTENTION_RESIDUALS_LAWS
from paribus.mechanisms.depth.reads import (
    DepthRead,
    Memory,
    ReadPlan,
    depth_parameters,
    depth_read_flops,
    kept_of_depth_reads,
)
from paribus.roles import DeclaredModule
from paribus.shapes import Stream


class BlockResiduals(DeclaredModule):
    """The routing. A child reads by other plans than one query a site."""

    def __init__(self, geometry: Geometry, layout: BlockLayout, attention: ReadPlan, mlp: ReadPlan) -> None:
        super().__init__()
        self.layout, self.eps = layout, geometry.norm_eps
        plans = {Site.ATTENTION: attention, Site.MLP: mlp, Site.OUTPUT: ReadPlan()}
        reads: dict[Site, list[DepthRead]] = {site: [] for site in Site}
        for _, site, sources in layout.reads():
            reads[site].append(DepthRead(geometry.width, sources, plans[site]))
        self.attention, self.mlp = nn.ModuleList(reads[Site.ATTENTION]), nn.ModuleList(reads[Site.MLP])
        [self.output] = reads[Site.OUTPUT]

    def open(self, x0: Stream) -> Memory:
        return Memory((publish(x0, self.eps),), None)

    def read(self, memory: Memory, layer: int, site: Site, tap: Tap | None) -> Reads:
        read = (self.attention if site is Site.ATTENTION else self.mlp)[layer]
        assert isinstance(read, DepthRead)
        return read.plan.assign(read(memory.sources, layer, site, tap))

    def read_normed(self, memory: Memory, layer: int, site: Site, tap: Tap | None, norm: Norm) -> Reads:
        read = (self.attention if site is Site.ATTENTION else self.mlp)[layer]
        assert isinstance(read, DepthRead)
        if read.plan.average:  # of mixes, not of what a norm makes of them
            return Reads.shared(norm(self.read(memory, layer, site, tap).q))
        return read.plan.assign(read(memory.sources, layer, site, tap, norm))

    def write(self, memory: Memory, delta: Stream, layer: int, site: Site) -> Memory:
        running = publish(delta, self.eps, memory.running)
        if self.layout.ends_block(2 * layer + (site is Site.MLP)):
            return Memory((*memory.finished, running), None)
        return Memory(memory.finished, running)

    def close(self, memory: Memory, tap: Tap | None) -> Stream:
        return self.output(memory.sources, self.layout.sublayers // 2, Site.OUTPUT, tap)[0]

    def source_lists(self) -> list[dict[str, Any]]:
        return self.layout.source_lists()


class BlockAttentionResiduals(BlockedConfig):
    """Read a learned mix of block sums instead of the running stream."""

    name = "block-attnres"
    seam = Seam.ROUTING

    def attention_plan(self) -> ReadPlan:
        """The queries of an attention read, and what they feed."""
        return ReadPlan()

    def mlp_plan(self) -> ReadPlan:
        """The queries of an MLP read, and what they feed."""
        return ReadPlan()

    def build(self, geometry: Geometry, layer: int) -> nn.Module:
        del layer
        return BlockResiduals(geometry, self.layout(geometry), self.attention_plan(), self.mlp_plan())

    def dead_parameters(self, geometry: Geometry) -> tuple[str, ...]:
        # The first attention read has one source: weight 1 on it whatever its queries are.
        first = DepthRead(geometry.width, self.layout(geometry).sources(0), self.attention_plan())
        return tuple(f"attention.0.{name}" for name in first.trained())

    def flops_per_token(self, geometry: Geometry) -> float:
        return depth_read_flops(geometry, self.layout(geometry), self.attention_plan(), self.mlp_plan())

    def parameters(self, geometry: Geometry) -> tuple[Tensors, ...]:
        return depth_parameters(geometry, self.attention_plan(), self.mlp_plan(), *self.further_parameters())

    def further_parameters(self) -> tuple[Tensors, ...]:
        """Parameters beside those of the reads."""
        return ()

    def kept_for_backward(self, geometry: Geometry, number: int) -> Kept:
        del number  # sources and reads are float32 whatever the sublayers compute in
        return kept_of_depth_reads(geometry, self.layout(geometry), self.attention_plan(), self.mlp_plan())


DIAGNOSTICS = OF_EVERY_ROUTING
INTERVENTIONS = (SOURCE_ABLATED,)
LAWS = ATTENTION_RESIDUALS_LAWS
