"""Role-Decoupled Attention Residuals, RD-AttnRes (Wang, arXiv 2608.01075): the value reads depth by its own query.

    h_QK = read(w_QK; sources)     h_V = read(w_V; the same sources)     W_q, W_k consume h_QK and W_v consumes h_V

What stays: the parent's sources, blocks, norms, MLP reads, output read and write-back (Block Attention Residuals).
What it adds: one vector of the stream's width per layer. What it recovers: equal queries are the parent exactly, and
the parent's query gradient is the sum of the two. Both queries start at zero and share the read's key gain.
Free choices the paper leaves open: optimiser and learning rate of the queries, number of blocks, whose gains.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from paribus.mechanisms.attention_residuals import (
    BlockAttentionResiduals,
    BlockResiduals,
    depth_read_flops,
    derive_js,
    observe_js,
)
from paribus.mechanisms.contract import Bench, Diagnostic, Geometry, Law, Reads, Site, largest
from paribus.shapes import Stream


class RoleDecoupledResiduals(BlockResiduals):
    """The parent with a second query at each attention read; both mixes come from one pass over the sources."""

    attention_roles = ("query", "value_query")

    def assign(self, mixes: tuple[Stream, ...]) -> Reads:
        return Reads.shared(mixes[0]) if len(mixes) == 1 else Reads(q=mixes[0], k=mixes[0], v=mixes[1])


class RoleDecoupledAttentionResiduals(BlockAttentionResiduals):
    """Let the value projection read a depth mix of its own."""

    name = "role-decoupled"

    tied: bool = False
    """True: one query for both roles, which is the parent by the parent's own code path (a control)"""

    def build(self, geometry: Geometry, layer: int) -> nn.Module:
        return super().build(geometry, layer) if self.tied else RoleDecoupledResiduals(geometry, self.blocks)

    def dead_parameters(self, geometry: Geometry) -> tuple[str, ...]:
        parents = super().dead_parameters(geometry)
        return parents if self.tied else (*parents, "attention.0.value_query")

    def flops_per_token(self, geometry: Geometry) -> float:
        return depth_read_flops(geometry, self.blocks, attention_queries=1 if self.tied else 2)


SITE = f"{Site.ATTENTION} depth read"


def _js_of_roles(tapped: Mapping[str, Tensor], weight: Tensor) -> Mapping[str, float]:
    if f"{SITE}/weights of value_query" not in tapped:
        return {}
    return observe_js(tapped[f"{SITE}/weights of query"], tapped[f"{SITE}/weights of value_query"], weight)


DIAGNOSTICS = (
    Diagnostic(
        name="js_qk_v",
        title="Divergence between the query-key route and the value route",
        sentence="Jensen-Shannon divergence in nats (at most ln 2 = 0.693) between the two depth distributions of one "
        "attention read. Reads with a single source are left out.",
        unit="nats",
        sites=(SITE,),
        observe=_js_of_roles,
        derive=derive_js,
    ),
)


def _rd(*, tied: bool) -> dict[str, dict[str, Any]]:
    return {"routing": {"name": "role-decoupled", "blocks": 3, "tied": tied}}


PARENT = {"routing": {"name": "block-attnres", "blocks": 3}}


def _tied_is_parent(bench: Bench, perturbed: bool) -> float:
    models = [bench.model(_rd(tied=True)), bench.model(PARENT)]
    for model in models:
        bench.disturb(model, "query")
    if perturbed:
        bench.disturb(models[0], "attention.2.query", std=1e-3)
    a, b = (bench.loss_and_gradients(model) for model in models)
    return largest(float((a[name] - b[name]).abs().max()) for name in b)


def _with_equal_queries(bench: Bench, *, perturbed: bool) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    child, parent = bench.model(_rd(tied=False), double=True), bench.model(PARENT, double=True)
    bench.disturb(parent, "query")
    with torch.no_grad():
        for name, parameter in parent.named_parameters():
            child.get_parameter(name).copy_(parameter)
        for name, parameter in child.named_parameters():
            if name.endswith("value_query"):
                parameter.copy_(parent.get_parameter(name.replace("value_query", "query")))
    if perturbed:
        bench.disturb(child, "value_query", std=1e-2)
    return bench.loss_and_gradients(child), bench.loss_and_gradients(parent)


def _equal_queries_are_parent(bench: Bench, perturbed: bool) -> float:
    child, parent = _with_equal_queries(bench, perturbed=perturbed)
    shared = [name for name in parent if not name.startswith("routing.attention")]
    return largest(float((child[n] - parent[n]).abs().max() / (1e-12 + parent[n].abs().max())) for n in shared)


def _query_gradient_is_the_sum(bench: Bench, perturbed: bool) -> float:
    child, parent = _with_equal_queries(bench, perturbed=perturbed)
    worst = 0.0
    for name, gradient in parent.items():
        if name.startswith("routing.attention") and name.endswith(".query"):
            total = child[name] + child[name.replace(".query", ".value_query")]
            worst = largest((worst, float((total - gradient).abs().max() / (1e-12 + gradient.abs().max()))))
    return worst


LAWS = (
    Law(
        claim="tied is Block AttnRes: loss and every gradient, bit for bit",
        measure=_tied_is_parent,
        perturbation="noise of 0.001 on one tied query",
        bound=0.0,
        why="a tied arm runs the parent's code path",
    ),
    Law(
        claim="two equal queries are Block AttnRes: loss and gradients, computed as two mixes (float64)",
        measure=_equal_queries_are_parent,
        perturbation="noise of 0.01 on the value queries",
        bound=1e-12,
        why="the two mixes' gradients are added in another order; float64 rounding of 1e-16 through 8 sublayers",
    ),
    Law(
        claim="the parent's query gradient is the sum of the child's two (float64)",
        measure=_query_gradient_is_the_sum,
        perturbation="noise of 0.01 on the value queries",
        bound=1e-12,
        why="float64 rounding, as above",
    ),
)
