from collections.abc import Mapping
from typing import Any

import pytest
import torch
from scipy.spatial.distance import jensenshannon
from torch import Tensor

from paribus.errors import ExperimentFileError
from paribus.mechanisms import resolve
from paribus.mechanisms.attention_residuals import DIAGNOSTICS as PARENTS
from paribus.mechanisms.attention_residuals import BlockResiduals, derive_js, js_divergence, observe_js
from paribus.mechanisms.contract import Geometry, MechanismConfig, Reads, Seam, Site
from paribus.mechanisms.role_decoupled import DIAGNOSTICS as CHILDS
from paribus.model.lawbench import LawBench
from paribus.seeds import generator

BY_NAME = {diagnostic.name: diagnostic for diagnostic in (*PARENTS, *CHILDS)}
ARMS = [
    {"name": "block-attnres", "blocks": 1},
    {"name": "block-attnres", "blocks": 3},
    {"name": "block-attnres", "blocks": 8},
    {"name": "role-decoupled", "blocks": 3},
    {"name": "role-decoupled", "blocks": 3, "tied": True},
]
arms = pytest.mark.parametrize("table", ARMS, ids=lambda t: f"{t['name']} {t['blocks']}{' tied' * ('tied' in t)}")


def routing(**table: Any) -> MechanismConfig:
    return resolve(Seam.ROUTING, table, "here")


def geometry_of(layers: int) -> Geometry:
    return Geometry(layers=layers, width=4, heads=1, head_width=4, context_length=8, norm_eps=1e-6)


def source_lists(layers: int, blocks: int) -> list[dict[str, Any]]:
    built = routing(name="block-attnres", blocks=blocks).build(geometry_of(layers), -1)
    assert isinstance(built, BlockResiduals)
    return built.source_lists()


@pytest.mark.parametrize("blocks", [0, -1, 2.0, "3", None, True])
def test_a_number_of_blocks_that_is_no_positive_integer_is_refused(blocks: object):
    with pytest.raises(ExperimentFileError, match=r"here\.blocks"):
        routing(name="block-attnres", blocks=blocks)


@pytest.mark.parametrize("name", ["block-attnres", "role-decoupled"])
def test_more_blocks_than_sublayers_are_refused_with_the_valid_range(name: str):
    assert routing(name=name, blocks=8).validate_for(geometry_of(4)) is None
    message = routing(name=name, blocks=9).validate_for(geometry_of(4))
    assert message == "blocks = 9 exceeds the 8 sublayers: valid are 1 to 8"


def test_24_layers_in_blocks_of_three_read_the_numbers_of_sources_of_the_paper():
    lists = source_lists(24, 8)
    counts = {site: [len(e["sources"]) for e in lists if e["site"] == site] for site in ("attention", "mlp", "output")}
    assert counts["attention"] == [1, 2, 2, 2, 3, 3, 3, 4, 4, 4, 5, 5, 5, 6, 6, 6, 7, 7, 7, 8, 8, 8, 9, 9]
    assert counts["mlp"] == [2, 2, 2, 3, 3, 3, 4, 4, 4, 5, 5, 5, 6, 6, 6, 7, 7, 7, 8, 8, 8, 9, 9, 9]
    assert counts["output"] == [9]


def test_the_sources_of_two_layers_in_two_blocks_by_name():
    assert [(e["layer"], e["site"], e["sources"]) for e in source_lists(2, 2)] == [
        (0, "attention", ["embedding"]),
        (0, "mlp", ["embedding", "running block 1"]),
        (1, "attention", ["embedding", "block 1"]),
        (1, "mlp", ["embedding", "block 1", "running block 2"]),
        (2, "output", ["embedding", "block 1", "block 2"]),
    ]


def test_the_last_block_takes_the_remainder_of_the_sublayers():
    # 10 sublayers in 4 blocks: 2, 2, 2 and 4.
    names = [e["sources"][-1] for e in source_lists(5, 4) if e["site"] != "output"]
    assert [name.removeprefix("running ") for name in names if name.startswith("running")] == [
        *("block 1", "block 2", "block 3"),
        *("block 4", "block 4", "block 4"),
    ]


def test_one_block_reads_the_embedding_and_the_running_sum():
    assert {tuple(e["sources"]) for e in source_lists(3, 1)} == {
        ("embedding",),
        ("embedding", "running block 1"),
        ("embedding", "block 1"),
    }


def test_as_many_blocks_as_sublayers_read_every_earlier_output_on_its_own():
    assert [len(e["sources"]) for e in source_lists(3, 6)] == [1, 2, 3, 4, 5, 6, 7]


@arms
def test_queries_start_at_exactly_zero_and_key_gains_at_exactly_one(table: dict[str, Any], bench: LawBench):
    own = dict(bench.model({"routing": table}).routing.named_parameters())
    queries = [p for name, p in own.items() if name.endswith("query")]
    gains = [p for name, p in own.items() if name.endswith("key_gain")]
    assert len(queries) + len(gains) == len(own)
    assert not any(query.any() for query in queries)
    assert all(torch.equal(gain, torch.ones_like(gain)) for gain in gains)


@arms
def test_declared_dead_parameters_are_exactly_those_without_gradient(table: dict[str, Any], bench: LawBench):
    model = bench.model({"routing": table})
    bench.disturb(model, "")
    gradients = bench.loss_and_gradients(model)
    dead = {name for name, gradient in gradients.items() if not gradient.any()}
    declared = routing(**table).dead_parameters(geometry_of(bench.config.layers))
    assert dead == {f"routing.{name}" for name in declared}
    assert len(declared) == (3 if table["name"] == "role-decoupled" and "tied" not in table else 2)


def test_the_identity_and_the_output_map_have_no_dead_parameters(bench: LawBench):
    for arm in ({}, {"output_map": {"name": "xsa"}}):
        assert all(gradient.any() for gradient in bench.loss_and_gradients(bench.model(arm)).values())


@arms
def test_declared_flops_count_what_the_reads_were_seen_to_mix(table: dict[str, Any], bench: LawBench):
    """4 width for each query and source (score and mix, two FLOPs a feature each) and 2 width for each published
    source (its mean square): the embedding and every sublayer's running sum."""
    mixed = 0

    def tap(site: str, layer: int, **tensors: Tensor) -> None:
        nonlocal mixed
        del layer
        if site.endswith("depth read"):
            mixed += sum(weights.shape[-1] for weights in tensors.values())

    with torch.no_grad():
        bench.logits(bench.model({"routing": table}), tap=tap)
    width, published = bench.config.width, 2 * bench.config.layers + 1
    geometry = Geometry(bench.config.layers, width, 2, 8, 12, 1e-6)
    assert routing(**table).flops_per_token(geometry) == 4 * width * mixed + 2 * width * published


@arms
def test_depth_sources_are_float32_whatever_the_sublayers_write(table: dict[str, Any]):
    built = routing(**table).build(geometry_of(4), -1)
    assert isinstance(built, BlockResiduals)
    half = torch.ones(1, 2, 4, dtype=torch.bfloat16)
    memory = built.open(half)
    for sublayer in range(8):
        memory = built.write(memory, half, sublayer // 2, Site.MLP if sublayer % 2 else Site.ATTENTION)
    assert {source.value.dtype for source in memory.sources} == {torch.float32}
    assert sum(float(source.value[0, 0, 0]) for source in memory.sources) == 9


@pytest.mark.parametrize(("query", "moved"), [("value_query", "v"), ("query", "qk")])
def test_a_query_moves_the_projections_of_its_own_role_and_no_others(bench: LawBench, query: str, moved: str):
    model = bench.model({"routing": {"name": "role-decoupled", "blocks": 3}})
    seen: list[Reads] = []
    model.get_submodule("layers.1.attention").register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    for _ in range(2):
        with torch.no_grad():
            bench.logits(model)
        bench.disturb(model, f"attention.1.{query}")
    before, after = seen
    changed = {role for role in "qkv" if not torch.equal(getattr(before, role), getattr(after, role))}
    assert changed == set(moved)


def distributions(name: str, *shape: int) -> Tensor:
    return torch.from_numpy(generator("tests", name).dirichlet([0.5] * shape[-1], shape[:-1]))


def test_js_divergence_is_the_square_of_scipys_distance():
    p, q = distributions("p", 3, 5, 4), distributions("q", 3, 5, 4)
    pairs = zip(p.flatten(0, 1).numpy(), q.flatten(0, 1).numpy(), strict=True)
    expected = torch.tensor([jensenshannon(*pair) ** 2 for pair in pairs], dtype=torch.float64).reshape(3, 5)
    # Sums of four products of logarithms, none above ln 2 times a few; scipy takes a root that is squared here.
    assert (js_divergence(p, q) - expected).abs().max() < 64 * 2.0**-53


def test_js_divergence_is_zero_for_equal_and_ln_2_for_disjoint_distributions():
    left, right = torch.tensor([1.0, 0.0, 0.0]), torch.tensor([0.0, 0.5, 0.5])
    assert float(js_divergence(left, left)) == 0.0
    assert float(js_divergence(left, right)) == pytest.approx(0.6931471805599453, rel=1e-15)


def mean_js(p: torch.Tensor, q: torch.Tensor, weight: torch.Tensor) -> Mapping[str, float]:
    return derive_js(observe_js(p, q, weight))


def test_mean_js_weights_tokens_and_tells_per_token_from_averaged_routes():
    # Two tokens with opposite routes: each diverges by ln 2, their averages not at all.
    p = torch.tensor([[[1.0, 0.0], [0.0, 1.0]]])
    found = mean_js(p, p.flip(-1), torch.tensor([[2.0, 2.0]]))
    assert found["per token, then averaged"] == pytest.approx(0.6931471805599453, rel=1e-15)
    assert found["of averaged routes"] == 0.0
    q = torch.tensor([[[1.0, 0.0], [1.0, 0.0]]])
    assert mean_js(p, q, torch.tensor([[3.0, 0.0]])) == {"per token, then averaged": 0.0, "of averaged routes": 0.0}
    quarter = mean_js(p, q, torch.tensor([[3.0, 1.0]]))["per token, then averaged"]
    assert quarter == pytest.approx(0.6931471805599453 / 4, rel=1e-15)


def test_a_single_source_or_unequal_numbers_of_sources_have_no_divergence():
    one, two, three = (torch.full((1, 2, k), 1 / k) for k in (1, 2, 3))
    assert observe_js(one, one, torch.ones(1, 2)) == {}
    assert observe_js(two, three, torch.ones(1, 2)) == {}


def test_depth_weights_are_weighted_means_by_role_without_reads_of_one_source():
    p = torch.tensor([[[0.2, 0.8], [0.6, 0.4]]], dtype=torch.float64)
    weight = torch.tensor([[1.0, 3.0]])
    observe = BY_NAME["depth_weights_attention"].observe
    found = observe({"attention depth read/weights of query": p}, weight)
    assert found == pytest.approx({"query source:0": 0.5, "query source:1": 0.5}, rel=1e-15)
    assert observe({"attention depth read/weights of query": p[..., :1]}, weight) == {}


def test_role_divergence_needs_two_roles_and_site_divergence_two_sites():
    p, q, weight = distributions("p", 1, 3, 2), distributions("q", 1, 3, 2), torch.ones(1, 3)
    attention, mlp = "attention depth read/weights of", "mlp depth read/weights of"
    expected = observe_js(p, q, weight)
    assert BY_NAME["js_qk_v"].observe({f"{attention} query": p, f"{attention} value_query": q}, weight) == expected
    assert BY_NAME["js_qk_v"].observe({f"{attention} query": p}, weight) == {}
    assert BY_NAME["js_attention_mlp"].observe({f"{attention} query": p, f"{mlp} query": q}, weight) == expected
