"""Interventions change what they say, on every read they mean, and leave the model bit for bit as it was."""

from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import torch
from torch import Tensor

from paribus.mechanisms import interventions_of, modules
from paribus.mechanisms.depth.block_layout import BlockLayout
from paribus.mechanisms.depth.interventions import ROUTES_EXCHANGED, SOURCE_ABLATED
from paribus.mechanisms.depth.reads import DepthRead
from paribus.model.backbone import Backbone
from paribus.model.lawbench import LawBench

BLOCK = {"name": "block-attnres", "blocks": 3}
ARMS = [
    BLOCK,
    {"name": "block-attnres", "blocks": 1},
    {"name": "block-attnres", "blocks": "full"},
    {"name": "role-decoupled", "blocks": 3},
    {"name": "role-decoupled", "blocks": 3, "routes": "q|k|v"},
    {"name": "role-decoupled", "blocks": 3, "frozen_v_from": "block"},
    {"name": "mlp-decoupled", "blocks": 3},
]


def disturbed(bench: LawBench, table: dict[str, Any]) -> Backbone:
    model = bench.model({"routing": table})
    bench.disturb(model, "", std=0.5)
    return model


def routes(bench: LawBench, model: Backbone) -> dict[tuple[str, int, str], Tensor]:
    """Routes by (site, layer, role)."""
    found: dict[tuple[str, int, str], Tensor] = {}

    def tap(site: str, layer: int, **tensors: Tensor) -> None:
        found.update({(site, layer, name): t for name, t in tensors.items() if name.startswith("weights of ")})

    with torch.no_grad():
        bench.logits(model, tap=tap)
    return found


def reads(model: Backbone) -> Iterator[tuple[tuple[str, int], DepthRead]]:
    for name, module in model.routing.named_modules():
        if isinstance(module, DepthRead):
            site, _, layer = name.partition(".")
            yield (f"{site} depth read", int(layer or model.config.layers)), module


@pytest.mark.parametrize("table", ARMS, ids=str)
@pytest.mark.parametrize("intervention", [SOURCE_ABLATED, ROUTES_EXCHANGED], ids=lambda i: i.name)
def test_a_variant_changes_the_logits_and_leaves_the_model_as_it_was(
    bench: LawBench, table: dict[str, Any], intervention: Any
):
    model = disturbed(bench, table)
    with torch.no_grad():
        before = bench.logits(model)
        parameters = {name: p.clone() for name, p in model.named_parameters()}
        for context in intervention.variants(model).values():
            for _ in range(2):  # a context can be entered again
                with context():
                    assert not torch.equal(bench.logits(model), before)
                assert torch.equal(bench.logits(model), before)
    assert all(torch.equal(p, parameters[name]) for name, p in model.named_parameters())


@pytest.mark.parametrize("intervention", [SOURCE_ABLATED, ROUTES_EXCHANGED], ids=lambda i: i.name)
def test_an_error_inside_the_context_still_restores_the_model(bench: LawBench, intervention: Any):
    model = disturbed(bench, {"name": "role-decoupled", "blocks": 3})
    with torch.no_grad():
        before = bench.logits(model)
    for context in intervention.variants(model).values():
        with pytest.raises(KeyboardInterrupt), context():
            raise KeyboardInterrupt
    with torch.no_grad():
        assert torch.equal(bench.logits(model), before)


def test_a_model_without_depth_reads_has_no_variants(bench: LawBench):
    model = bench.model({})
    assert dict(SOURCE_ABLATED.variants(model)) == dict(ROUTES_EXCHANGED.variants(model)) == {}


@pytest.mark.parametrize(
    ("table", "labels"),
    [
        (BLOCK, ["embedding", "block 1", "block 2"]),
        ({"name": "block-attnres", "blocks": 1}, ["embedding"]),
        ({"name": "block-attnres", "blocks": "full"}, ["embedding", *(f"block {n}" for n in range(1, 8))]),
        ({"name": "block-attnres", "block_layers": 2}, ["embedding", "block 1"]),
    ],
    ids=str,
)
def test_the_finished_sources_that_several_reads_mix_can_be_taken_away(
    bench: LawBench, table: dict[str, Any], labels: list[str]
):
    assert list(SOURCE_ABLATED.variants(bench.model({"routing": table}))) == labels


@pytest.mark.parametrize("table", ARMS, ids=str)
def test_without_a_source_the_first_read_that_has_it_renormalises_the_other_weights(
    bench: LawBench, table: dict[str, Any]
):
    model = disturbed(bench, table)
    before = routes(bench, model)
    places = dict(reads(model))
    for source, context in SOURCE_ABLATED.variants(model).items():
        with context():
            after = routes(bench, model)
        affected = [
            place for place, read in places.items() if source in read.source_names and len(read.source_names) > 1
        ]
        # Reads before the first affected one see the same numbers, and so does that one; later ones other sources.
        first = min(affected, key=lambda place: (place[1], place[0]))
        for (site, layer, role), route in before.items():
            names = places[site, layer].source_names
            kept = [k for k, name in enumerate(names) if name != source] or list(range(len(names)))
            assert after[site, layer, role].shape[-1] == len(kept)
            if (site, layer) == first:
                expected = route[..., kept] / route[..., kept].sum(-1, keepdim=True)
                # Two float32 softmaxes of the same scores.
                assert (after[site, layer, role] - expected).abs().max() < 64 * 2.0**-24


def test_a_read_of_only_the_source_that_is_taken_away_keeps_it(bench: LawBench):
    model = disturbed(bench, BLOCK)
    with SOURCE_ABLATED.variants(model)["embedding"]():
        assert routes(bench, model)["attention depth read", 0, "weights of query"].shape[-1] == 1


def test_a_source_is_taken_away_by_name_and_not_by_place(bench: LawBench):
    """The running sum of block 2 stands where block 2 will stand when it is finished."""
    layout = BlockLayout.of_blocks(8, 2)
    assert layout.sources(5) == ("embedding", "block 1", "running block 2")
    assert layout.sources(8) == ("embedding", "block 1", "block 2")
    model = disturbed(bench, {"name": "block-attnres", "blocks": 3})
    with SOURCE_ABLATED.variants(model)["block 2"]():
        after = routes(bench, model)
    names = dict(reads(model))["mlp depth read", 1].source_names
    assert names == ("embedding", "block 1", "running block 2")
    assert after["mlp depth read", 1, "weights of query"].shape[-1] == 3


EXCHANGES: list[tuple[dict[str, Any], Mapping[str, tuple[str, str]]]] = [
    (
        {"name": "role-decoupled", "blocks": 3},
        {
            "query-key reads with the value query": ("query", "value_query"),
            "value reads with the query-key query": ("value_query", "query"),
        },
    ),
    (
        {"name": "role-decoupled", "blocks": 3, "routes": "q|kv"},
        {
            "query reads with the key-value query": ("query", "key_value_query"),
            "key-value reads with the query query": ("key_value_query", "query"),
        },
    ),
    (
        {"name": "role-decoupled", "blocks": 3, "frozen_v_from": "block"},
        {
            "query-key reads with the value query": ("query", "value_query"),
            "value reads with the query-key query": ("value_query", "query"),
        },
    ),
    (
        {"name": "mlp-decoupled", "blocks": 3},
        {"gate reads with the up query": ("query", "up_query"), "up reads with the gate query": ("up_query", "query")},
    ),
]


@pytest.mark.parametrize(("table", "variants"), EXCHANGES, ids=str)
def test_an_exchange_is_the_same_model_with_one_query_and_its_gain_written_over_the_other(
    bench: LawBench, table: dict[str, Any], variants: Mapping[str, tuple[str, str]]
):
    model = disturbed(bench, table)
    found = ROUTES_EXCHANGED.variants(model)
    assert set(found) == set(variants)
    for label, (taker, giver) in variants.items():
        with torch.no_grad():
            with found[label]():
                exchanged = bench.logits(model)
            written = disturbed(bench, table)
            for _, read in reads(written):
                queries = {query.name: query for query in read.plan.queries}
                if taker in queries and giver in queries:
                    read.get_parameter(taker).copy_(read.get_parameter(giver))
                    taken, given = (read.get_parameter(queries[name].gain_name) for name in (taker, giver))
                    taken.copy_(given)
            assert torch.equal(exchanged, bench.logits(written))


def test_three_roles_exchange_in_six_ways(bench: LawBench):
    model = bench.model({"routing": {"name": "role-decoupled", "blocks": 3, "routes": "q|k|v"}})
    assert len(ROUTES_EXCHANGED.variants(model)) == 6


@pytest.mark.parametrize("control", [{"tied": True}, {"average": True}, {"untie_at": 0.5}], ids=str)
def test_arms_whose_projections_share_their_input_have_nothing_to_exchange(bench: LawBench, control: dict[str, Any]):
    model = bench.model({"routing": {"name": "role-decoupled", "blocks": 3, **control}})
    assert dict(ROUTES_EXCHANGED.variants(model)) == {}


def test_every_routing_finds_its_interventions_in_the_registry():
    names = {module.__name__.rpartition(".")[2]: {i.name for i in interventions_of(module)} for module in modules()}
    assert names["attention_residuals"] == {"source_ablated"}
    assert names["role_decoupled"] == names["mlp_decoupled"] == {"routes_exchanged"}
