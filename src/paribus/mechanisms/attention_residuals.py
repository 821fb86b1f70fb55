"""Block Attention Residuals (Kimi Team, arXiv 2603.15031): each sublayer reads a softmax mix over depth.

    h = sum_k p_k v_k,   p = softmax_k( w . (g * v_k / rms(v_k)) )        one pseudo-query w and key gain g per read

Sources of a read: b_0 (the embedding), b_n (the sum of block n's sublayer outputs) for each finished block, and the
running sum of the current block once it holds something. "Layer" in the paper means sublayer (attention or MLP);
`blocks` N splits the 2 * layers sublayers into N blocks of floor(2 * layers / N), the remainder going to the last.
The output has a read of its own over all blocks, before the final norm.

What stays: projections, norms, attention, write-back. What it recovers: at zero queries every read is the mean of
its sources, (stream)/K, and a scale-invariant norm makes loss and all non-routing gradients equal PreNorm's; that is
why queries start at zero. The first attention read has one source: its query is dead by construction.
Free choices: queries and gains are float32, on AdamW without decay, at a learning rate of their own.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import torch
from pydantic import Field
from torch import Tensor, nn

from paribus.kernels.depth_read import depth_read, inverse_rms
from paribus.mechanisms.contract import (
    Bench,
    Diagnostic,
    Geometry,
    Law,
    MechanismConfig,
    Reads,
    Seam,
    Site,
    Tap,
    largest,
)
from paribus.roles import ONES, ZEROS, DeclaredModule, Role
from paribus.shapes import InverseRms, Stream


def block_of(sublayer: int, sublayers: int, blocks: int) -> int:
    """Block (from 0) of a sublayer (from 0). The remainder of sublayers / blocks goes to the last block."""
    return min(sublayer // (sublayers // blocks), blocks - 1)


def read_sources(sublayer: int, sublayers: int, blocks: int) -> list[str]:
    """Names of the sources that a sublayer reads, oldest first; `sublayer == sublayers` is the output read."""
    if sublayer == sublayers:
        return ["embedding", *(f"block {n}" for n in range(1, blocks + 1))]
    block = block_of(sublayer, sublayers, blocks)
    running = sublayer > 0 and block_of(sublayer - 1, sublayers, blocks) == block
    finished = [f"block {n}" for n in range(1, block + 1)]
    return ["embedding", *finished, *([f"running block {block + 1}"] if running else [])]


@dataclass(frozen=True)
class Source:
    """A depth source with the statistic that every later read shares."""

    value: Stream
    inverse_rms: InverseRms


@dataclass(frozen=True)
class Memory:
    """Finished sources, oldest first, and the running sum of the current block (None while it is empty)."""

    finished: tuple[Source, ...]
    running: Source | None

    @property
    def sources(self) -> tuple[Source, ...]:
        return self.finished if self.running is None else (*self.finished, self.running)


class DepthRead(DeclaredModule):
    """One read site: pseudo-queries by the name of their role, one key gain shared by them."""

    def __init__(self, width: int, roles: tuple[str, ...]) -> None:
        super().__init__()
        self.roles = roles
        for role in roles:
            self.declare(role, (width,), Role.DEPTH_READ, ZEROS)
        self.declare("key_gain", (width,), Role.DEPTH_READ, ONES)

    def forward(self, sources: tuple[Source, ...], layer: int, site: Site, tap: Tap | None) -> tuple[Stream, ...]:
        queries = torch.stack([self.get_parameter(role) for role in self.roles])
        mixes, weights = depth_read(
            [s.value for s in sources], [s.inverse_rms for s in sources], queries, self.get_parameter("key_gain")
        )
        if tap is not None:
            by_role = {f"weights of {role}": w for role, w in zip(self.roles, weights.unbind(0), strict=True)}
            tap(f"{site} depth read", layer, **by_role)
        return mixes.unbind(0)


class BlockResiduals(nn.Module):
    """The routing. `attention_roles` are the names of the attention read's queries; a child adds to them."""

    attention_roles: tuple[str, ...] = ("query",)

    def __init__(self, geometry: Geometry, blocks: int) -> None:
        super().__init__()
        self.sublayers, self.blocks, self.eps = geometry.sublayers, blocks, geometry.norm_eps
        width, layers = geometry.width, range(geometry.layers)
        self.attention = nn.ModuleList([DepthRead(width, self.attention_roles) for _ in layers])
        self.mlp = nn.ModuleList([DepthRead(width, ("query",)) for _ in layers])
        self.output = DepthRead(width, ("query",))

    def _publish(self, value: Stream) -> Source:
        return Source(value, inverse_rms(value, self.eps))

    def open(self, x0: Stream) -> Memory:
        return Memory((self._publish(x0.to(torch.promote_types(x0.dtype, torch.float32))),), None)

    def read(self, memory: Memory, layer: int, site: Site, tap: Tap | None) -> Reads:
        reads = self.attention if site is Site.ATTENTION else self.mlp
        return self.assign(reads[layer](memory.sources, layer, site, tap))

    def assign(self, mixes: tuple[Stream, ...]) -> Reads:
        """Which mix each projection consumes."""
        return Reads.shared(mixes[0])

    def write(self, memory: Memory, delta: Stream, layer: int, site: Site) -> Memory:
        sublayer = 2 * layer + (site is Site.MLP)
        delta = delta.to(memory.finished[0].value.dtype)
        running = self._publish(delta if memory.running is None else memory.running.value + delta)
        block = block_of(sublayer, self.sublayers, self.blocks)
        last = sublayer + 1 == self.sublayers or block_of(sublayer + 1, self.sublayers, self.blocks) != block
        return Memory((*memory.finished, running), None) if last else Memory(memory.finished, running)

    def close(self, memory: Memory, tap: Tap | None) -> Stream:
        return self.output(memory.sources, self.sublayers // 2, Site.OUTPUT, tap)[0]

    def source_lists(self) -> list[dict[str, Any]]:
        sites = [(s // 2, Site.MLP if s % 2 else Site.ATTENTION, s) for s in range(self.sublayers)]
        return [
            {"layer": layer, "site": str(site), "sources": read_sources(sublayer, self.sublayers, self.blocks)}
            for layer, site, sublayer in [*sites, (self.sublayers // 2, Site.OUTPUT, self.sublayers)]
        ]


class BlockAttentionResiduals(MechanismConfig):
    """Read a learned mix of block sums instead of the running stream."""

    name = "block-attnres"
    seam = Seam.ROUTING
    example: ClassVar[Mapping[str, Any]] = {"blocks": 3}

    blocks: Annotated[int, Field(ge=1)]
    """number of blocks N that the 2 * layers sublayers are split into, 1 to 2 * layers"""

    def validate_for(self, geometry: Geometry) -> str | None:
        if self.blocks > geometry.sublayers:
            valid = f"valid are 1 to {geometry.sublayers}"
            return f"blocks = {self.blocks} exceeds the {geometry.sublayers} sublayers: {valid}"
        return None

    def build(self, geometry: Geometry, layer: int) -> nn.Module:
        del layer
        return BlockResiduals(geometry, self.blocks)

    def dead_parameters(self, geometry: Geometry) -> tuple[str, ...]:
        del geometry
        return ("attention.0.query", "attention.0.key_gain")

    def flops_per_token(self, geometry: Geometry) -> float:
        return depth_read_flops(geometry, self.blocks, attention_queries=1)


def depth_read_flops(geometry: Geometry, blocks: int, attention_queries: int) -> float:
    """Per token: mean square of each published source (2 width), then per read and source 4 width for each query."""
    published = geometry.sublayers + 1
    total = 2.0 * geometry.width * published
    for sublayer in range(geometry.sublayers + 1):
        queries = attention_queries if sublayer < geometry.sublayers and sublayer % 2 == 0 else 1
        total += 4.0 * queries * geometry.width * len(read_sources(sublayer, geometry.sublayers, blocks))
    return total


def _mean_weights(tapped: Mapping[str, Tensor], weight: Tensor) -> Mapping[str, float]:
    """Mean weight of each source, by query role. Reads of a single source have nothing to say and are left out."""
    found: dict[str, float] = {}
    for key, p in tapped.items():
        if p.shape[-1] > 1:
            means = (p.double() * weight[..., None]).sum((0, 1)) / weight.sum()
            role = key.rpartition("weights of ")[2]
            found.update({f"{role} source:{k}": float(mean) for k, mean in enumerate(means)})
    return found


def js_divergence(p: Tensor, q: Tensor) -> Tensor:
    """Jensen-Shannon divergence in nats over the last axis: half KL(p|m) + half KL(q|m), m = (p + q) / 2."""
    p, q = p.double(), q.double()
    m = (p + q) / 2

    def kl(a: Tensor) -> Tensor:
        return torch.xlogy(a, a).sub(torch.xlogy(a, m)).sum(-1)

    return (kl(p) + kl(q)) / 2


def observe_js(p: Tensor, q: Tensor, weight: Tensor) -> Mapping[str, float]:
    """Means over positions of the per-token JS of two routes [batch time source], and of each route.

    Empty where a read has a single source (the divergence is 0 by definition) or the numbers of sources differ.
    """
    if p.shape[-1] == 1 or p.shape != q.shape:
        return {}
    share = weight.double() / weight.sum()
    routes = {
        f"{name} {k}": float(mean)
        for name, route in (("p", p), ("q", q))
        for k, mean in enumerate((route.double() * share[..., None]).sum((0, 1)))
    }
    return {"per token, then averaged": float((js_divergence(p, q) * share).sum()), **routes}


def derive_js(means: Mapping[str, float]) -> Mapping[str, float]:
    """JS per token and then averaged, and JS of the averaged routes, from the means over all positions."""
    p, q = (
        torch.tensor([m for key, m in means.items() if key.startswith(f"{name} ")], dtype=torch.float64)
        for name in ("p", "q")
    )
    key = "per token, then averaged"
    return {key: means[key], "of averaged routes": float(js_divergence(p, q))}


def _js_of_sites(tapped: Mapping[str, Tensor], weight: Tensor) -> Mapping[str, float]:
    attention, mlp = (tapped[f"{site} depth read/weights of query"] for site in (Site.ATTENTION, Site.MLP))
    return observe_js(attention, mlp, weight)


DIAGNOSTICS = (
    *(
        Diagnostic(
            name=f"depth_weights_{site}",
            title=f"Depth weights of the {site} reads",
            sentence="Mean softmax weight on each depth source: 0 is the embedding, then block sums, the running sum "
            "last. Reads with a single source are left out.",
            unit="weight",
            sites=(f"{site} depth read",),
            observe=_mean_weights,
        )
        for site in Site
    ),
    Diagnostic(
        name="js_attention_mlp",
        title="Divergence between the attention route and the MLP route",
        sentence="Jensen-Shannon divergence in nats (at most ln 2 = 0.693) between the depth distributions of a "
        "layer's attention read and its MLP read, where both have equally many sources: two routes that nobody claims "
        "to serve one purpose, the yardstick for any divergence between roles.",
        unit="nats",
        sites=(f"{Site.ATTENTION} depth read", f"{Site.MLP} depth read"),
        observe=_js_of_sites,
        derive=derive_js,
    ),
)


def _block(blocks: int) -> dict[str, dict[str, Any]]:
    return {"routing": {"name": "block-attnres", "blocks": blocks}}


def _zero_query_parity(bench: Bench, perturbed: bool) -> float:
    # Float64 and a vanishing eps: the identity is exact only where rms >> sqrt(eps) K.
    block, plain = (bench.model(arm, double=True, norm_eps=1e-30) for arm in (_block(3), {}))
    if perturbed:
        bench.disturb(block, "query")
    a, b = bench.loss_and_gradients(block), bench.loss_and_gradients(plain)
    return largest(float((a[name] - b[name]).abs().max() / (1e-12 + b[name].abs().max())) for name in b)


def _sources_sum_to_stream(bench: Bench, perturbed: bool) -> float:
    model = bench.model(_block(3), double=True)
    bench.disturb(model, "query")
    routing: BlockResiduals = model.routing
    total: list[Tensor] = []
    worst = 0.0
    read, write, opened = routing.read, routing.write, routing.open

    def watching_open(x0: Tensor) -> Memory:
        total[:] = [x0]
        return opened(x0)

    def watching_read(memory: Memory, layer: int, site: Site, tap: Tap | None) -> Reads:
        nonlocal worst
        stream = sum(s.value for s in memory.sources)
        worst = largest((worst, float((stream - total[0]).abs().max() / total[0].abs().max())))
        return read(memory, layer, site, tap)

    def watching_write(memory: Memory, delta: Tensor, layer: int, site: Site) -> Memory:
        total[0] = total[0] + delta
        return write(memory, delta * (1.001 if perturbed else 1.0), layer, site)

    routing.open, routing.read, routing.write = watching_open, watching_read, watching_write
    with torch.no_grad():
        bench.logits(model)
    return worst


def _recorded_sources(bench: Bench, perturbed: bool) -> float:
    model = bench.model(_block(2 if perturbed else 3))
    seen: list[int] = []

    def tap(site: str, layer: int, **tensors: Tensor) -> None:
        del layer
        if site.endswith("depth read"):
            seen.append(next(iter(tensors.values())).shape[-1])

    with torch.no_grad():
        bench.logits(model, tap=tap)
    expected = [len(entry["sources"]) for entry in bench.model(_block(3)).routing.source_lists()]
    return float(seen != expected)


LAWS = (
    Law(
        claim="zero queries: loss and every non-routing gradient equal PreNorm's (float64, eps -> 0)",
        measure=_zero_query_parity,
        perturbation="noise of 0.1 on the queries",
        bound=1e-12,
        why="relative float64 rounding of 1e-16, grown through some thousand operations in a row",
    ),
    Law(
        claim="sources sum to the PreNorm stream at every read",
        measure=_sources_sum_to_stream,
        perturbation="each write scaled by 1.001",
        bound=1e-14,
        why="a float64 sum of at most nine terms in another order",
    ),
    Law(
        claim="the sources on record are the sources that each read mixes",
        measure=_recorded_sources,
        perturbation="two blocks run, three on record",
        bound=0.0,
        why="counts are integers",
    ),
)
