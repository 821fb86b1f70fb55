"""What depth reads show of themselves, on made-up routes with known answers and on a model that reads."""

import math
from collections.abc import Mapping
from functools import partial
from typing import Any

import pytest
import torch
from scipy.spatial.distance import jensenshannon
from torch import Tensor, nn

from paribus.mechanisms import diagnostics_of, modules
from paribus.mechanisms.contract import Diagnostic, Site
from paribus.mechanisms.depth.diagnostics import (
    derive_js,
    embedding_mass,
    entropy_share,
    expected_depth,
    js_divergence,
    observe_js,
)
from paribus.model.lawbench import LawBench
from paribus.seeds import generator

BY_NAME = {d.name: d for module in modules() for d in diagnostics_of(module) if "depth read" in "".join(d.sites)}
LN_2 = 0.6931471805599453
NO_WEIGHT = torch.zeros(0)
"""what `observe` gets where it must not look at weights"""


def distributions(name: str, *shape: int) -> Tensor:
    return torch.from_numpy(generator("tests", name).dirichlet([0.5] * shape[-1], shape[:-1]))


def observed(name: str, tapped: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return dict(BY_NAME[name].observe(tapped, NO_WEIGHT))


def averaged(found: Mapping[str, Tensor], weight: Tensor) -> dict[str, float]:
    """The means that a caller takes: over positions by weight."""
    return {group: float((value * weight).sum() / weight.sum()) for group, value in found.items()}


def test_every_site_has_its_route_diagnostics_and_each_says_what_it_leaves_out():
    of_sites = {f"depth_{what}_{site}" for site in Site for what in ("weights", "entropy", "expected_depth")}
    of_sites |= {f"depth_{what}_{site}" for site in Site for what in ("embedding_mass", "source_rms")}
    assert set(BY_NAME) == {*of_sites, "js_attention_mlp", "js_roles_attention", "js_roles_mlp"}
    for name, diagnostic in BY_NAME.items():
        assert "source_rms" in name or "single source" in diagnostic.sentence or "more than one" in diagnostic.sentence
        assert not diagnostic.correctness_only


# Divergence.


def test_js_divergence_is_the_square_of_scipys_distance():
    p, q = distributions("p", 3, 5, 4), distributions("q", 3, 5, 4)
    pairs = zip(p.flatten(0, 1).numpy(), q.flatten(0, 1).numpy(), strict=True)
    expected = torch.tensor([jensenshannon(*pair) ** 2 for pair in pairs], dtype=torch.float64).reshape(3, 5)
    # Sums of four products of logarithms, none above ln 2 times a few; scipy takes a root that is squared here.
    assert (js_divergence(p, q) - expected).abs().max() < 64 * 2.0**-53


def test_js_divergence_is_zero_for_equal_and_ln_2_for_disjoint_distributions():
    left, right = torch.tensor([1.0, 0.0, 0.0]), torch.tensor([0.0, 0.5, 0.5])
    assert float(js_divergence(left, left)) == 0.0
    assert float(js_divergence(left, right)) == pytest.approx(LN_2, rel=1e-15)


def derived(p: Tensor, q: Tensor, weight: Tensor) -> Mapping[str, float]:
    return derive_js(averaged(observe_js(p, q), weight))


def test_js_weights_tokens_and_tells_per_token_from_averaged_routes():
    # Two tokens with opposite routes: each diverges by ln 2, their averages not at all.
    p = torch.tensor([[[1.0, 0.0], [0.0, 1.0]]])
    found = derived(p, p.flip(-1), torch.tensor([[2.0, 2.0]]))
    assert found["per token, then averaged"] == pytest.approx(LN_2, rel=1e-15)
    assert found["of averaged routes"] == 0.0
    q = torch.tensor([[[1.0, 0.0], [1.0, 0.0]]])
    assert set(derived(p, q, torch.tensor([[3.0, 0.0]])).values()) == {0.0}
    quarter = derived(p, q, torch.tensor([[3.0, 1.0]]))["per token, then averaged"]
    assert quarter == pytest.approx(LN_2 / 4, rel=1e-15)


def test_js_in_bits_is_that_in_nats_over_ln_2_and_at_most_one():
    p = torch.tensor([[[1.0, 0.0]]])
    found = derived(p, p.flip(-1), torch.ones(1, 1))
    assert set(found) == {
        "per token, then averaged",
        "per token, then averaged, in bits",
        "of averaged routes",
        "of averaged routes, in bits",
    }
    assert found["per token, then averaged, in bits"] == found["of averaged routes, in bits"] == 1.0
    assert found["per token, then averaged"] == found["of averaged routes"] == pytest.approx(LN_2, rel=1e-15)


def test_js_of_averaged_routes_never_exceeds_the_average_of_js():
    """Jensen-Shannon divergence is jointly convex."""
    for k in range(2, 7):
        found = derived(distributions(f"p {k}", 4, 9, k), distributions(f"q {k}", 4, 9, k), torch.ones(4, 9))
        assert found["of averaged routes"] < found["per token, then averaged"] <= LN_2


def test_a_single_source_or_unequal_numbers_of_sources_have_no_divergence():
    one, two, three = (torch.full((1, 2, k), 1 / k) for k in (1, 2, 3))
    assert observe_js(one, one) == {}
    assert observe_js(two, three) == {}
    assert derive_js({}) == {}


@pytest.mark.parametrize("site", [Site.ATTENTION, Site.MLP])
def test_roles_of_one_read_diverge_by_pair_and_one_role_from_nothing(site: Site):
    tapped = {f"{site} depth read/weights of {role}": distributions(role, 1, 3, 4) for role in ("a", "b", "c")}
    tapped[f"{site} depth read/rms"] = torch.ones(1, 3, 4)
    found = observed(f"js_roles_{site}", tapped)
    routes = {key.rpartition(" ")[2]: value for key, value in tapped.items() if "weights" in key}
    for first, second in ("ab", "ac", "bc"):
        prefix = f"{first} vs {second}: "
        expected = observe_js(routes[first], routes[second])
        part = {group.removeprefix(prefix): value for group, value in found.items() if group.startswith(prefix)}
        assert part.keys() == expected.keys()
        assert all(torch.equal(part[group], expected[group]) for group in part)
        means = averaged(found, torch.ones(1, 3))
        assert {
            group.removeprefix(prefix): value for group, value in derive_js(means).items() if group.startswith(prefix)
        } == derive_js(averaged(expected, torch.ones(1, 3)))
    assert len(found) == 3 * len(observe_js(routes["a"], routes["b"]))
    only = f"{site} depth read/weights of a"
    assert observed(f"js_roles_{site}", {only: tapped[only]}) == {}
    assert observed(f"js_roles_{site}", {key: p[..., :1] for key, p in tapped.items()}) == {}


def test_the_yardstick_compares_the_first_route_of_both_sites():
    p, q = distributions("p", 1, 3, 2), distributions("q", 1, 3, 2)
    tapped = {"attention depth read/weights of query": p, "mlp depth read/weights of query": q}
    tapped["attention depth read/weights of value_query"] = q
    found, expected = observed("js_attention_mlp", tapped), observe_js(p, q)
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[group], expected[group]) for group in found)
    unequal = {**tapped, "mlp depth read/weights of query": distributions("q", 1, 3, 3)}
    assert observed("js_attention_mlp", unequal) == {}


# Shape of a route.


@pytest.mark.parametrize("k", range(2, 8))
def test_uniform_and_one_hot_routes_have_their_known_entropy_depth_and_embedding_mass(k: int):
    uniform = torch.full((1, 1, k), 1 / k, dtype=torch.float64)
    # Sums of at most seven rounded terms.
    assert float(entropy_share(uniform)) == pytest.approx(1.0, abs=1e-15)
    assert float(expected_depth(uniform)) == pytest.approx(0.5, abs=1e-15)
    assert float(embedding_mass(uniform)) == 1 / k
    for source in range(k):
        one_hot = nn.functional.one_hot(torch.tensor([[source]]), k).double()
        assert float(entropy_share(one_hot)) == 0.0
        assert float(expected_depth(one_hot)) == pytest.approx(source / (k - 1), abs=1e-15)
        assert float(embedding_mass(one_hot)) == float(source == 0)


def test_entropy_is_in_any_base_because_it_is_a_share():
    p = distributions("p", 2, 3, 5)
    in_bits = -(p * p.log2()).sum(-1) / math.log2(5)
    assert (entropy_share(p) - in_bits).abs().max() < 32 * 2.0**-53


@pytest.mark.parametrize("site", Site)
@pytest.mark.parametrize(
    ("name", "of_route"),
    [("entropy", entropy_share), ("expected_depth", expected_depth), ("embedding_mass", embedding_mass)],
)
def test_each_is_a_value_per_position_by_role_and_leaves_out_reads_of_one_source(site: Site, name: str, of_route: Any):
    tapped = {f"{site} depth read/weights of {role}": distributions(role, 2, 3, 4) for role in ("query", "x_query")}
    found = observed(f"depth_{name}_{site}", tapped)
    assert set(found) == {"query", "x_query"}
    for key, p in tapped.items():
        assert torch.equal(found[key.rpartition(" ")[2]], of_route(p))
    assert observed(f"depth_{name}_{site}", {key: p[..., :1] for key, p in tapped.items()}) == {}


def test_depth_weights_are_by_role_and_source_and_leave_out_reads_of_one_source():
    p = torch.tensor([[[0.2, 0.8], [0.6, 0.4]]], dtype=torch.float64)
    tapped = {"attention depth read/weights of query": p, "attention depth read/rms": torch.ones(1, 2, 2)}
    means = averaged(observed("depth_weights_attention", tapped), torch.tensor([[1.0, 3.0]]))
    assert means == pytest.approx({"query source:0": 0.5, "query source:1": 0.5}, rel=1e-15)
    assert observed("depth_weights_attention", {key: t[..., :1] for key, t in tapped.items()}) == {}


def test_the_size_of_a_source_is_its_rms_over_features(bench: LawBench):
    model = bench.model({"routing": {"name": "block-attnres", "blocks": 3}}, double=True)
    seen: dict[tuple[str, int], Tensor] = {}
    sources: dict[tuple[str, int], Tensor] = {}

    def tap(site: str, layer: int, **tensors: Tensor) -> None:
        if "rms" in tensors:
            seen[site, layer] = tensors["rms"]

    def keep(place: tuple[str, int], _: nn.Module, inputs: tuple[Any, ...]) -> None:
        sources[place] = torch.stack([source.value for source in inputs[0]], dim=-2)

    for site in ("attention", "mlp"):
        for layer in range(bench.config.layers):
            read = model.get_submodule(f"routing.{site}.{layer}")
            read.register_forward_pre_hook(partial(keep, (f"{site} depth read", layer)))
    with torch.no_grad():
        bench.logits(model, tap=tap)
    assert len(sources) == 2 * bench.config.layers
    for key, values in sources.items():
        expected = values.norm(dim=-1) / bench.config.width**0.5
        # A sum of 16 squares, a root and a quotient.
        assert (seen[key] - expected).abs().max() <= 32 * 2.0**-53 * expected.max()
    assert set(seen) == {*sources, ("output depth read", bench.config.layers)}


# On a model.

ARMS = [
    ({"name": "block-attnres", "blocks": 3}, set()),
    ({"name": "role-decoupled", "blocks": 3}, {"js_roles_attention"}),
    ({"name": "role-decoupled", "blocks": "full", "routes": "q|k|v"}, {"js_roles_attention"}),
    ({"name": "role-decoupled", "blocks": 3, "average": True}, {"js_roles_attention"}),
    ({"name": "role-decoupled", "blocks": 3, "tied": True}, set()),
    ({"name": "role-decoupled", "blocks": 3, "untie_at": 0.5}, set()),
    ({"name": "mlp-decoupled", "blocks": 3}, {"js_roles_mlp"}),
]


def readings(bench: LawBench, table: dict[str, Any], *, disturbed: bool) -> dict[tuple[str, int, str], Tensor]:
    """Every diagnostic of an arm by (name, layer, group), at every position."""
    model = bench.model({"routing": table})
    if disturbed:
        bench.disturb(model, "query", std=1.0)
    by_layer: dict[int, dict[str, Tensor]] = {}

    def tap(site: str, layer: int, **tensors: Tensor) -> None:
        by_layer.setdefault(layer, {}).update({f"{site}/{name}": t for name, t in tensors.items()})

    with torch.no_grad():
        bench.logits(model, tap=tap)

    def has_sites(diagnostic: Diagnostic, tapped: Mapping[str, Tensor]) -> bool:
        return all(any(key.startswith(f"{site}/") for key in tapped) for site in diagnostic.sites)

    return {
        (name, layer, group): value
        for layer, tapped in by_layer.items()
        for name, diagnostic in BY_NAME.items()
        if has_sites(diagnostic, tapped)
        for group, value in diagnostic.observe(tapped, NO_WEIGHT).items()
    }


@pytest.mark.parametrize(("table", "roles"), ARMS)
def test_a_model_shows_what_it_has_at_every_position_and_finitely(
    bench: LawBench, table: dict[str, Any], roles: set[str]
):
    found = readings(bench, table, disturbed=True)
    of_sites = {name for name in BY_NAME if not name.startswith("js_roles")}
    if table["blocks"] == "full":
        # An MLP read then always has one source more than the attention read before it.
        of_sites -= {"js_attention_mlp"}
    assert {name for name, _, _ in found} == of_sites | roles
    assert {value.shape for value in found.values()} == {bench.tokens.shape}
    assert all(value.isfinite().all() for value in found.values())
    assert not any(layer == 0 for name, layer, _ in found if name == "js_roles_attention"), "one source, no divergence"
    by_role: dict[tuple[str, int, str], Tensor] = {}
    for (name, layer, group), value in found.items():
        if name.startswith("depth_weights"):
            key = (name, layer, group.partition(" ")[0])
            by_role[key] = by_role.get(key, torch.zeros(())) + value
    # Softmax weights of float32.
    assert all((total - 1).abs().max() < 16 * 2.0**-24 for total in by_role.values())


def test_at_zero_queries_every_route_is_uniform_and_no_two_diverge(bench: LawBench):
    found = readings(bench, {"name": "role-decoupled", "blocks": 3, "routes": "q|k|v"}, disturbed=False)
    for (name, _, group), value in found.items():
        if name.startswith("depth_entropy"):
            assert (value - 1).abs().max() < 1e-7
        if name.startswith("js_roles") and group.endswith("averaged"):
            assert value.abs().max() < 1e-12
