"""The laws of Role-Decoupled Attention Residuals (2608.01075) and of every control of it."""

import torch

from paribus.mechanisms import resolve
from paribus.mechanisms.contract import PRENORM, Bench, Law, Reads, Seam, Site, largest
from paribus.mechanisms.depth.laws import (
    FINITE_PERTURBATION,
    FINITE_RANGE,
    FINITE_WHY,
    GRADIENT_BOUND,
    GRADIENT_WHY,
    descend,
    disturb_trained,
    equal_queries_are_the_parent,
    normalised_input_is_the_stream,
    query_gradient_is_the_sum,
    reads_that_are_not_finite,
    routing,
    unlearning_reads,
    untouched_initial_values,
    watched_reads,
    zero_query_parity,
)
from paribus.mechanisms.depth.reads import Memory

NAME = "role-decoupled"
PARENT = routing("block-attnres")
SPLITS = tuple(routing(NAME, routes=routes) for routes in ("qk|v", "q|kv", "k|qv", "q|k|v"))
AVERAGES = tuple(routing(NAME, routes=routes, average=True) for routes in ("qk|v", "q|k|v"))
FROZEN_V, FROZEN_QK = (routing(NAME, **{control: True}) for control in ("frozen_v", "frozen_qk"))
VARIANTS = (
    *SPLITS,
    *AVERAGES,
    FROZEN_V,
    FROZEN_QK,
    routing(NAME, frozen_v=True, frozen_qk=True),
    routing(NAME, frozen_v_from="parent"),
    routing(NAME, untie_at=0.5),
    routing(NAME, tied=True),
)


def _tied_is_parent(bench: Bench, perturbed: bool) -> float:
    models = [bench.model(routing(NAME, tied=True)), bench.model(PARENT)]
    for model in models:
        bench.disturb(model, "query")
    if perturbed:
        bench.disturb(models[0], "attention.2.query", std=1e-3)
    a, b = (bench.loss_and_gradients(model) for model in models)
    return largest(float((a[name] - b[name]).abs().max()) for name in b)


def _parent_until_untied(bench: Bench, perturbed: bool) -> float:
    """Largest difference from the parent in any tensor over the updates before the third of five; then of the queries
    of one read from each other, also when the step is announced twice, as after a restart; then, over the two updates
    that follow, of what an announcement makes of a query that has learned."""
    untying, parent = bench.model(routing(NAME, untie_at=0.2 if perturbed else 0.4)), bench.model(PARENT)
    found: list[float] = []
    for step in range(2):
        untying.routing.at_step(step, 5)
        a, b = descend(bench, untying), descend(bench, parent)
        found += [float((a[name] - b[name]).abs().max()) for name in b]
        found += [float(gradient.abs().max()) for name, gradient in a.items() if name.endswith("value_query")]
    for _ in range(2):
        untying.routing.at_step(2, 5)
        for read in untying.routing.attention:
            found += [float((read.value_query - read.query).detach().abs().max()), float(read.tied)]
    for step in (3, 4):
        descend(bench, untying)
        learned = [parameter.detach().clone() for parameter in untying.routing.parameters()]
        for _ in range(2):
            untying.routing.at_step(step, 5)
            now = untying.routing.parameters()
            found += [float((a.detach() - b).abs().max()) for a, b in zip(now, learned, strict=True)]
    return largest(found)


def _adopted_route_is_the_donors(bench: Bench, perturbed: bool) -> float:
    """Largest relative difference of the value's mix from the donor's read of the same sources, after training."""
    donor = bench.model(PARENT, double=True)
    bench.disturb(donor, "")
    copying = routing(NAME, frozen_v_from="parent")
    model = bench.model(copying, double=True)
    resolve(Seam.ROUTING, dict(copying[Seam.ROUTING]), "laws").adopt(
        model.routing, dict(donor.routing.named_parameters())
    )
    for _ in range(2):
        descend(bench, model)
    if perturbed:
        bench.disturb(model, "value_key_gain", std=1e-3)
    found: list[float] = []

    def see(memory: Memory, layer: int, site: Site, reads: Reads) -> None:
        if site is Site.ATTENTION:
            [expected] = donor.routing.attention[layer](memory.sources, layer, site, None)
            found.append(float((reads.v - expected).detach().abs().max() / expected.detach().abs().max()))

    with watched_reads(model, see), torch.no_grad():
        bench.logits(model)
    return largest(found)


_OTHER_QUERIES = "noise of 0.01 on the queries after the first"
_UNIFORM_WHY = (
    "a uniform mix is the sum over K, and the norm divides by it; some ten float64 roundings of numbers near 1"
)


def _unlearning_reads(bench: Bench, perturbed: bool) -> float:
    """Number of trained tensors whose gradient is zero where it should not be, or the reverse, over all variants."""
    wrong = 0
    for arm in VARIANTS:
        model = bench.model(arm)
        disturb_trained(bench, model, "")
        if "untie_at" in arm["routing"]:
            model.routing.at_step(0 if perturbed else 1, 2)
        wrong += unlearning_reads(bench, model)
    return float(wrong)


ROLE_DECOUPLED_LAWS = (
    Law(
        claim="tied is Block AttnRes: loss and every gradient, bit for bit",
        measure=_tied_is_parent,
        perturbation="noise of 0.001 on one tied query",
        bound=0.0,
        why="a tied arm runs the parent's code path",
    ),
    Law(
        claim="equal queries are Block AttnRes, for every split of routes and averaged: loss and gradients (float64)",
        measure=lambda bench, perturbed: equal_queries_are_the_parent(bench, (*SPLITS, *AVERAGES), PARENT, perturbed),
        perturbation=_OTHER_QUERIES,
        bound=GRADIENT_BOUND,
        why=f"the mixes' gradients are added in another order; {GRADIENT_WHY}",
    ),
    Law(
        claim="the parent's query gradient is the sum of the child's, for every split of routes and averaged (float64)",
        measure=lambda bench, perturbed: query_gradient_is_the_sum(bench, (*SPLITS, *AVERAGES), PARENT, perturbed),
        perturbation=_OTHER_QUERIES,
        bound=GRADIENT_BOUND,
        why=GRADIENT_WHY,
    ),
    Law(
        claim="zero queries: loss and every non-routing gradient of every variant equal PreNorm's (float64, eps -> 0)",
        measure=lambda bench, perturbed: zero_query_parity(bench, VARIANTS, perturbed),
        perturbation="noise of 0.1 on the queries",
        bound=GRADIENT_BOUND,
        why=GRADIENT_WHY,
        backbones=PRENORM,
    ),
    Law(
        claim="queries of every variant start at exactly zero, key gains at exactly one; every parameter was written",
        measure=lambda bench, perturbed: untouched_initial_values(bench, VARIANTS, perturbed),
        perturbation="queries drawn with a standard deviation of 1e-6",
        bound=0.0,
        why="a constant is written, and no later initialiser touches it",
    ),
    Law(
        claim="frozen_v: the value's normalised input is the norm of the sum of the sources, after every update",
        measure=lambda bench, perturbed: normalised_input_is_the_stream(
            bench, SPLITS[0] if perturbed else FROZEN_V, "v"
        ),
        perturbation="the value's query is trained",
        bound=1e-13,
        why=_UNIFORM_WHY,
        backbones=PRENORM,
    ),
    Law(
        claim="frozen_qk: query's and key's normalised input is the norm of the sum of the sources, after every update",
        measure=lambda bench, perturbed: normalised_input_is_the_stream(
            bench, SPLITS[0] if perturbed else FROZEN_QK, "q"
        ),
        perturbation="the query-key query is trained",
        bound=1e-13,
        why=_UNIFORM_WHY,
        backbones=PRENORM,
    ),
    Law(
        claim="untie_at: the parent bit for bit until then; then the first query twice, copied once, restart or not",
        measure=_parent_until_untied,
        perturbation="untied one update too early",
        bound=0.0,
        why="while tied it runs the parent's code path; then the first query is copied once",
    ),
    Law(
        claim="frozen_v_from: the value reads by the donor's final query and gain, also after training (float64)",
        measure=_adopted_route_is_the_donors,
        perturbation="noise of 0.001 on the adopted key gain",
        bound=1e-14,
        why="one read against a read of two queries: sums of 16 products in another order, 1e-16 each",
    ),
    Law(
        claim=f"reads of every variant and their gradients are finite {FINITE_RANGE}",
        measure=lambda bench, perturbed: reads_that_are_not_finite(bench, VARIANTS, perturbed),
        perturbation=FINITE_PERTURBATION,
        bound=0.0,
        why=FINITE_WHY,
    ),
    Law(
        claim="every read of several sources trains its queries and gain that are not fixed; one of one source none",
        measure=_unlearning_reads,
        perturbation="queries still tied",
        bound=0.0,
        why="a count",
    ),
)
