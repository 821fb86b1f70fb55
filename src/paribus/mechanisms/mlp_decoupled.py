"""Role-decoupled MLP reads: the placebo of Role-Decoupled Attention Residuals, at the same number of parameters.

    h_gate = read(w_gate; sources)     h_up = read(w_up; the same sources)     down(silu(W_gate h_gate) * W_up h_up)

If a second depth query per layer helps wherever it is put, a gain at the attention read says nothing about the value.
What stays: everything of Block Attention Residuals, the attention reads among it. What it adds: one vector of the
stream's width per layer. What it recovers: equal queries are the parent exactly, and the parent's query gradient is
the sum of the two. Not matched: the first MLP read has two sources and so a live second query, where the first
attention read has one source and a dead one; and the sources of an MLP read are one sublayer newer.
"""

from paribus.mechanisms.attention_residuals import BlockAttentionResiduals
from paribus.mechanisms.contract import PRENORM, Law, Site
from paribus.mechanisms.depth.diagnostics import js_of_roles
from paribus.mechanisms.depth.interventions import ROUTES_EXCHANGED
from paribus.mechanisms.depth.laws import (
    FINITE_PERTURBATION,
    FINITE_RANGE,
    FINITE_WHY,
    GRADIENT_BOUND,
    GRADIENT_WHY,
    equal_queries_are_the_parent,
    query_gradient_is_the_sum,
    reads_that_are_not_finite,
    routing,
    untouched_initial_values,
    zero_query_parity,
)
from paribus.mechanisms.depth.reads import DepthQuery, ReadPlan


class MlpDecoupledAttentionResiduals(BlockAttentionResiduals):
    """Let the up projection of the MLP read a depth mix of its own."""

    name = "mlp-decoupled"
    backbones = PRENORM  # whose MLP has two input projections

    def mlp_plan(self) -> ReadPlan:
        return ReadPlan((DepthQuery("query", "gate"), DepthQuery("up_query", "up")), (0, 0, 1))


DIAGNOSTICS = (js_of_roles(Site.MLP),)
INTERVENTIONS = (ROUTES_EXCHANGED,)

ARMS = (routing(MlpDecoupledAttentionResiduals.name),)
PARENT = routing(BlockAttentionResiduals.name)

LAWS = (
    Law(
        claim="zero queries: loss and every non-routing gradient equal PreNorm's (float64, eps -> 0)",
        measure=lambda bench, perturbed: zero_query_parity(bench, ARMS, perturbed),
        perturbation="noise of 0.1 on the queries",
        bound=GRADIENT_BOUND,
        why=GRADIENT_WHY,
        backbones=PRENORM,
    ),
    Law(
        claim="queries start at exactly zero and key gains at exactly one, and every parameter was written",
        measure=lambda bench, perturbed: untouched_initial_values(bench, ARMS, perturbed),
        perturbation="queries drawn with a standard deviation of 1e-6",
        bound=0.0,
        why="a constant is written, and no later initialiser touches it",
        backbones=PRENORM,
    ),
    Law(
        claim="two equal queries are Block AttnRes: loss and gradients, computed as two mixes (float64)",
        measure=lambda bench, perturbed: equal_queries_are_the_parent(bench, ARMS, PARENT, perturbed),
        perturbation="noise of 0.01 on the second queries",
        bound=GRADIENT_BOUND,
        why=GRADIENT_WHY,
        backbones=PRENORM,
    ),
    Law(
        claim=f"reads and their gradients are finite {FINITE_RANGE}",
        measure=lambda bench, perturbed: reads_that_are_not_finite(bench, ARMS, perturbed),
        perturbation=FINITE_PERTURBATION,
        bound=0.0,
        why=FINITE_WHY,
        backbones=PRENORM,
    ),
    Law(
        claim="the parent's query gradient is the sum of the child's two (float64)",
        measure=lambda bench, perturbed: query_gradient_is_the_sum(bench, ARMS, PARENT, perturbed),
        perturbation="noise of 0.01 on the second queries",
        bound=GRADIENT_BOUND,
        why=GRADIENT_WHY,
        backbones=PRENORM,
    ),
)
