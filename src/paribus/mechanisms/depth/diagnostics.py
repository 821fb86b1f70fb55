"""What depth reads show of themselves: their weights, how far two of them diverge, and the sources they weigh.

Reads of a single source have weight 1 on it whatever their query is, so every number about routes leaves them out.
A weight is large where its source is small (the mix is what a projection consumes, not the weight), so the sources'
RMS belongs beside every figure of weights.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from itertools import combinations

import torch
from torch import Tensor

from paribus.mechanisms.contract import ROUTE, Diagnostic, Site

PER_TOKEN, OF_AVERAGED, IN_BITS = "per token, then averaged", "of averaged routes", ", in bits"
_EXCLUDED = "Reads with a single source are left out."


def tap_site(site: Site) -> str:
    """Where a depth read's tensors are tapped."""
    return f"{site} depth read"


def routes_of(tapped: Mapping[str, Tensor], site: Site) -> dict[str, Tensor]:
    """Routes [batch time source] of one read by the name of their query, in float64; none of a single source."""
    prefix = f"{tap_site(site)}/{ROUTE}"
    routes = {key.removeprefix(prefix): p.double() for key, p in tapped.items() if key.startswith(prefix)}
    return {role: p for role, p in routes.items() if p.shape[-1] > 1}


def entropy_share(p: Tensor) -> Tensor:
    """Entropy over its maximum log K: 1 for the uniform route, 0 for one source only."""
    return -torch.xlogy(p, p).sum(-1) / math.log(p.shape[-1])


def expected_depth(p: Tensor) -> Tensor:
    """sum_k p_k k / (K - 1) over sources k = 0 (the embedding) to K - 1 (the newest)."""
    return (p * torch.linspace(0, 1, p.shape[-1], dtype=p.dtype, device=p.device)).sum(-1)


def embedding_mass(p: Tensor) -> Tensor:
    """p_0."""
    return p[..., 0]


def js_divergence(p: Tensor, q: Tensor) -> Tensor:
    """Jensen-Shannon divergence in nats over the last axis: half KL(p|m) + half KL(q|m), m = (p + q) / 2."""
    p, q = p.double(), q.double()
    m = (p + q) / 2
    return (_kl(p, m) + _kl(q, m)) / 2


def _kl(p: Tensor, q: Tensor) -> Tensor:
    return torch.xlogy(p, p).sub(torch.xlogy(p, q)).sum(-1)


def observe_js(p: Tensor, q: Tensor, prefix: str = "") -> Mapping[str, Tensor]:
    """The JS of two routes [batch time source] at each position, and each route.

    Empty where a read has a single source (the divergence is 0 by definition) or the numbers of sources differ.
    """
    if p.shape[-1] == 1 or p.shape != q.shape:
        return {}
    routes = {
        f"{prefix}{name} {k}": of_source
        for name, route in (("p", p), ("q", q))
        for k, of_source in enumerate(route.double().unbind(-1))
    }
    return {f"{prefix}{PER_TOKEN}": js_divergence(p, q), **routes}


def derive_js(means: Mapping[str, float]) -> Mapping[str, float]:
    """JS per token and then averaged, and JS of the averaged routes, from the means over all positions: in nats, and
    in bits, of which two routes can differ by at most one."""
    found: dict[str, float] = {}
    for prefix in (key.removesuffix(PER_TOKEN) for key in means if key.endswith(PER_TOKEN)):
        p, q = (
            torch.tensor([m for key, m in means.items() if key.startswith(f"{prefix}{name} ")], dtype=torch.float64)
            for name in ("p", "q")
        )
        in_nats = {PER_TOKEN: means[f"{prefix}{PER_TOKEN}"], OF_AVERAGED: float(js_divergence(p, q))}
        for what, nats in in_nats.items():
            found[f"{prefix}{what}"] = nats
            found[f"{prefix}{what}{IN_BITS}"] = nats / math.log(2)
    return found


def observe_js_of_roles(tapped: Mapping[str, Tensor], site: Site) -> Mapping[str, Tensor]:
    """The JS of every pair of routes of one read, under "first vs second: "."""
    found: dict[str, Tensor] = {}
    for (first, p), (second, q) in combinations(routes_of(tapped, site).items(), 2):
        found.update(observe_js(p, q, f"{first} vs {second}: "))
    return found


def js_of_roles(site: Site) -> Diagnostic:
    """Divergence between the roles of a read that has several queries."""
    return Diagnostic(
        name=f"js_roles_{site}",
        title=f"Divergence between the roles of one {site} read",
        sentence="Jensen-Shannon divergence between the depth distributions of two queries of one read, by pair: in "
        f"nats (at most ln 2 = 0.693) and in bits (at most 1). {_EXCLUDED} Evidence of two routes only where it "
        "exceeds the divergence of the attention route from the MLP route and that of one route across seeds.",
        unit="nats (bits where said)",
        sites=(tap_site(site),),
        observe=lambda tapped, _: observe_js_of_roles(tapped, site),
        derive=derive_js,
    )


def _js_of_sites(tapped: Mapping[str, Tensor], weight: Tensor) -> Mapping[str, Tensor]:
    del weight
    attention, mlp = (tapped[f"{tap_site(site)}/{ROUTE}query"] for site in (Site.ATTENTION, Site.MLP))
    return observe_js(attention, mlp)


def _by_role(site: Site, of_route: Callable[[Tensor], Tensor]) -> Callable[..., Mapping[str, Tensor]]:
    return lambda tapped, _: {role: of_route(p) for role, p in routes_of(tapped, site).items()}


def _by_source(values: Tensor, label: str) -> dict[str, Tensor]:
    return {f"{label} source:{k}": of_source for k, of_source in enumerate(values.double().unbind(-1))}


def _weights(site: Site) -> Callable[..., Mapping[str, Tensor]]:
    def observe(tapped: Mapping[str, Tensor], weight: Tensor) -> Mapping[str, Tensor]:
        del weight
        return {key: value for role, p in routes_of(tapped, site).items() for key, value in _by_source(p, role).items()}

    return observe


def _of_site(site: Site) -> Iterable[Diagnostic]:
    """The diagnostics of all reads of one site, each by role."""
    described = (
        (
            "weights",
            "Depth weights",
            "Mean softmax weight on each depth source: 0 is the embedding, then block sums, the running sum last. "
            f"{_EXCLUDED}",
            "weight",
            _weights(site),
        ),
        (
            "entropy",
            "Entropy of the routes",
            "Entropy of a token's depth distribution over its maximum, log of the number of sources, then averaged: 1 "
            f"is the uniform mix that every query starts with, 0 a single source. {_EXCLUDED}",
            "share of log K",
            _by_role(site, entropy_share),
        ),
        (
            "expected_depth",
            "Expected depth of the routes",
            "Sum over sources k = 0 .. K - 1 of weight times k, over K - 1: 0 reads the embedding only, 1 the newest "
            f"source only, one half is the uniform mix. {_EXCLUDED}",
            "share of K - 1",
            _by_role(site, expected_depth),
        ),
        (
            "embedding_mass",
            "Embedding mass of the routes",
            f"Mean weight on the token's embedding; the uniform mix gives it 1 / K. {_EXCLUDED}",
            "weight",
            _by_role(site, embedding_mass),
        ),
        (
            "source_rms",
            "Size of the sources",
            "Root mean square over features of each source that a read mixes. Weights multiply values that are not "
            "normalised: a small weight on a large source can carry more than a large weight on a small one.",
            "RMS",
            lambda tapped, _: _by_source(tapped[f"{tap_site(site)}/rms"], "rms"),
        ),
    )
    for name, title, sentence, unit, observe in described:
        yield Diagnostic(
            name=f"depth_{name}_{site}",
            title=f"{title} of the {site} reads" if name == "weights" else f"{title}: {site} reads",
            sentence=sentence,
            unit=unit,
            sites=(tap_site(site),),
            observe=observe,
        )


OF_EVERY_ROUTING = (
    *(diagnostic for site in Site for diagnostic in _of_site(site)),
    Diagnostic(
        name="js_attention_mlp",
        title="Divergence between the attention route and the MLP route",
        sentence="Jensen-Shannon divergence, in nats (at most ln 2 = 0.693) and in bits (at most 1), between the depth "
        "distributions of a layer's attention read and its MLP read (the first query of each), where both have equally "
        "many sources, more than one: every second layer with blocks of two layers, and none where a "
        "block is one layer or one sublayer. Two routes that nobody claims to serve one purpose: the yardstick for "
        "any divergence between roles.",
        unit="nats (bits where said)",
        sites=(tap_site(Site.ATTENTION), tap_site(Site.MLP)),
        observe=_js_of_sites,
        derive=derive_js,
    ),
)
"""What is read of every arm that has depth reads."""
