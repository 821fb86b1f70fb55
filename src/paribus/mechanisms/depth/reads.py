"""The parts of a routing over depth: sources, one read of them, and which projection consumes which mix.

    h = sum_k p_k v_k,   p = softmax_k( w . (g * v_k / rms(v_k)) )        pseudo-query w and key gain g

The equation is Attention Residuals' (Kimi Team, arXiv 2603.15031); `paribus.kernels.depth_read` computes it for all
queries of a read in one pass over the sources.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from paribus.kernels.depth_read import Source, depth_read, weights_of
from paribus.kernels.norm import Norm
from paribus.mechanisms.contract import ROUTE, Geometry, Kept, Reads, Site, Tap, Tensors
from paribus.mechanisms.depth.block_layout import BlockLayout
from paribus.roles import ONES, ZEROS, DeclaredModule, Role
from paribus.shapes import Stream


@dataclass(frozen=True)
class Memory:
    """Finished sources, oldest first, and the running sum of the current block (None while it is empty)."""

    finished: tuple[Source, ...]
    running: Source | None

    @property
    def sources(self) -> tuple[Source, ...]:
        return self.finished if self.running is None else (*self.finished, self.running)


@dataclass(frozen=True)
class DepthQuery:
    """One pseudo-query of a read. It starts at zero, which is the uniform mix."""

    name: str = "query"
    """of the parameter"""
    feeds: str = "query-key-value"
    """the projections that consume its mix, in words"""
    fixed: bool = False
    """never trained"""
    own_gain: bool = False
    """its key gain is its own and fixed, not the one that the read's other queries share"""

    @property
    def gain_name(self) -> str:
        return self.name.replace("query", "key_gain") if self.own_gain else "key_gain"


@dataclass(frozen=True)
class ReadPlan:
    """The queries of a site's reads, and which one's mix the three inputs of `Reads` take, by index."""

    queries: tuple[DepthQuery, ...] = (DepthQuery(),)
    inputs: tuple[int, int, int] = (0, 0, 0)
    average: bool = False
    """the mean of all mixes is the one tensor that every projection consumes"""

    @property
    def roles(self) -> dict[str, Role]:
        """Role of every parameter of a read: the queries', then the gains'."""
        shared = [query for query in self.queries if not query.own_gain]
        trained = not all(query.fixed for query in shared)
        found = {query.name: Role.FIXED if query.fixed else Role.DEPTH_READ for query in self.queries}
        for query in self.queries:
            found[query.gain_name] = Role.DEPTH_READ if trained and not query.own_gain else Role.FIXED
        return found

    @property
    def distinct(self) -> int:
        """Tensors that the projections consume."""
        return 1 if self.average else len(set(self.inputs))

    def assign(self, mixes: tuple[Stream, ...]) -> Reads:
        """What each projection consumes. A single mix is one tensor for all: every arm with one query shares a path."""
        if len(mixes) == 1:
            return Reads.shared(mixes[0])
        if self.average:
            total = mixes[0]
            for mix in mixes[1:]:
                total = total + mix
            return Reads.shared(total / len(mixes))
        return Reads(*(mixes[index] for index in self.inputs))


class DepthRead(DeclaredModule):
    """One read site: pseudo-queries by name, and the key gain that they share."""

    def __init__(self, width: int, source_names: tuple[str, ...], plan: ReadPlan) -> None:
        super().__init__()
        self.source_names, self.plan = source_names, plan
        self.tied = False
        """only the first query is read"""
        self.without: str | None = None
        """an intervention's: the source left out wherever there is another"""
        self.exchanged: Mapping[str, str] = {}
        """an intervention's: the query (value) that a query's (key's) consumers get instead"""
        queries = {query.name for query in plan.queries}
        for name, role in plan.roles.items():
            self.declare(name, (width,), role, ZEROS if name in queries else ONES)

    def forward(
        self, sources: tuple[Source, ...], layer: int, site: Site, tap: Tap | None, norm: Norm | None = None
    ) -> tuple[Stream, ...]:
        """The mix of each query, or what a norm makes of it."""
        if self.without is not None:
            named = zip(self.source_names, sources, strict=True)
            sources = tuple(source for name, source in named if name != self.without) or sources
        queries = self.plan.queries[:1] if self.tied else self.plan.queries
        if self.exchanged:
            by_name = {query.name: query for query in queries}
            used = tuple(by_name[self.exchanged.get(query.name, query.name)] for query in queries)
        else:
            used = queries
        mixes, scores = depth_read(
            sources, torch.stack([self.get_parameter(query.name) for query in used]), self._gain(used), norm
        )
        if tap is not None:
            weights = weights_of(scores).unbind(0)
            routes = {f"{ROUTE}{query.name}": w for query, w in zip(queries, weights, strict=True)}
            rms = torch.stack([s.value.square().mean(-1).sqrt() for s in sources], dim=-1)
            tap(f"{site} depth read", layer, **routes, rms=rms)
        return mixes

    def _gain(self, queries: tuple[DepthQuery, ...]) -> Tensor:
        """[width] where the queries share one, else [query width]."""
        if all(query.gain_name == queries[0].gain_name for query in queries):
            return self.get_parameter(queries[0].gain_name)
        return torch.stack([self.get_parameter(query.gain_name) for query in queries])

    def trained(self) -> tuple[str, ...]:
        """Names of the parameters that an optimiser takes."""
        return tuple(name for name, d in self.own_declarations.items() if d.role is not Role.FIXED)


def depth_read_flops(geometry: Geometry, layout: BlockLayout, attention: ReadPlan, mlp: ReadPlan) -> float:
    """Per token: mean square of each published source (2 width), per read and source 4 width for each query, and a
    read's average (one width for each mix)."""
    plans = {Site.ATTENTION: attention, Site.MLP: mlp, Site.OUTPUT: ReadPlan()}
    total = 2.0 * geometry.width * (layout.sublayers + 1)
    for _, site, sources in layout.reads():
        queries = len(plans[site].queries)
        total += queries * geometry.width * (4.0 * len(sources) + plans[site].average)
    return total


def depth_parameters(geometry: Geometry, attention: ReadPlan, mlp: ReadPlan, *further: Tensors) -> tuple[Tensors, ...]:
    """Queries and key gains of all reads: an attention and an MLP in each layer, and the output."""
    reads = ((attention, geometry.layers), (mlp, geometry.layers), (ReadPlan(), 1))
    of_reads = (Tensors(role, (geometry.width,), reading) for plan, reading in reads for role in plan.roles.values())
    return (*of_reads, *further)


def kept_of_depth_reads(geometry: Geometry, layout: BlockLayout, attention: ReadPlan, mlp: ReadPlan) -> Kept:
    """Each source with its statistic, once; per read a score for each query and source."""
    plans = {Site.ATTENTION: attention, Site.MLP: mlp, Site.OUTPUT: ReadPlan()}
    source = 4.0 * (geometry.width + 1)
    layers = dict.fromkeys(range(geometry.layers + 1), 0.0)
    for layer, site, sources in layout.reads():
        layers[layer] += 4.0 * len(plans[site].queries) * len(sources)
    # What a sublayer publishes outlives its layer where the layer ends there, or a block.
    outliving = [s % 2 == 1 or layout.ends_block(s) for s in range(layout.sublayers)]
    for sublayer, outlives in enumerate(outliving):
        layers[sublayer // 2] += 0.0 if outlives else source
    normed = sum(0 if plan.average else plan.distinct for plan in (attention, mlp))
    return Kept(layers, attention.distinct + mlp.distinct, normed, source * (1 + sum(outliving)))
