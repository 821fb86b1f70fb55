"""What every depth routing keeps: initial values, roles, dead parameters, cost, and which projection a query moves."""

from typing import Any

import pytest
import torch
from torch import Tensor

from paribus.mechanisms import resolve
from paribus.mechanisms.attention_residuals import BlockAttentionResiduals, BlockResiduals
from paribus.mechanisms.contract import Geometry, Reads, Seam, Site
from paribus.mechanisms.depth.laws import disturb_trained
from paribus.mechanisms.depth.reads import ReadPlan
from paribus.model.backbone import Backbone, geometry_of
from paribus.model.lawbench import LawBench
from paribus.optim.config import OptimiserConfig
from paribus.optim.groups import build_optimisers, route
from paribus.roles import Role, declarations


def rd(**control: Any) -> dict[str, Any]:
    return {"name": "role-decoupled", "blocks": 3, **control}


ARMS = [
    {"name": "block-attnres", "blocks": 1},
    {"name": "block-attnres", "blocks": 3},
    {"name": "block-attnres", "blocks": "full"},
    {"name": "block-attnres", "block_layers": 3},
    {"name": "mlp-decoupled", "blocks": 3},
    rd(),
    rd(tied=True),
    rd(routes="q|kv"),
    rd(routes="k|qv"),
    rd(routes="q|k|v"),
    rd(average=True),
    rd(routes="q|k|v", average=True),
    rd(frozen_v=True),
    rd(frozen_qk=True),
    rd(frozen_v=True, frozen_qk=True),
    rd(frozen_v_from="parent"),
    rd(frozen_v_from="parent", frozen_qk=True),
    rd(untie_at=0.25),
]


def readable(table: dict[str, Any]) -> str:
    return " ".join(f"{key} {value}" for key, value in table.items()).removeprefix("name ")


arms = pytest.mark.parametrize("table", ARMS, ids=readable)


def config_of(table: dict[str, Any]) -> BlockAttentionResiduals:
    config = resolve(Seam.ROUTING, table, "here")
    assert isinstance(config, BlockAttentionResiduals)
    return config


def geometry(bench: LawBench) -> Geometry:
    return geometry_of(bench.config, {seam: resolve(seam, None, "here") for seam in Seam})


def untied(model: Backbone) -> None:
    """Bring a routing that changes during a run to its final form."""
    at_step = getattr(model.routing, "at_step", None)
    if at_step is not None:
        at_step(1, 2)


@arms
def test_queries_start_at_exactly_zero_and_key_gains_at_exactly_one(table: dict[str, Any], bench: LawBench):
    own = dict(bench.model({"routing": table}).routing.named_parameters())
    gains = [p for name, p in own.items() if name.endswith("key_gain")]
    others = [p for name, p in own.items() if not name.endswith("key_gain")]
    assert len(gains) >= 9
    assert not any(query.any() for query in others)
    assert all(torch.equal(gain, torch.ones_like(gain)) for gain in gains)


@arms
def test_queries_and_gains_are_on_adamw_without_decay_or_on_no_optimiser_and_never_on_muon(
    table: dict[str, Any], bench: LawBench
):
    model = bench.model({"routing": table})
    routed = route(model, OptimiserConfig())
    own = {name: d for name, d in declarations(model).items() if name.startswith("routing.")}
    assert {d.role for d in own.values()} <= {Role.DEPTH_READ, Role.FIXED}
    for name, declaration in own.items():
        trained = declaration.role is Role.DEPTH_READ
        assert model.get_parameter(name).requires_grad == trained
        assert (routed[name].optimiser, routed[name].weight_decay) == ("AdamW" if trained else "none", 0.0)
    stepped = {p for o in build_optimisers(model, OptimiserConfig()) for g in o.param_groups for p in g["params"]}
    assert {name for name in own if model.get_parameter(name) in stepped} == {
        name for name, d in own.items() if d.role is Role.DEPTH_READ
    }


FIXED = {
    "frozen_v": {"value_query"},
    "frozen_qk": {"query"},
    "frozen_v frozen_qk": {"query", "value_query", "key_gain"},
    "frozen_v_from": {"value_query", "value_key_gain"},
    "frozen_v_from frozen_qk": {"query", "key_gain", "value_query", "value_key_gain"},
    "untie_at": set(),
    "": set(),
}


@pytest.mark.parametrize("controls", FIXED)
def test_a_frozen_route_is_fixed_with_its_query_and_with_a_gain_that_no_trained_query_shares(
    controls: str, bench: LawBench
):
    value = {"untie_at": 0.5, "frozen_v_from": "parent"}
    model = bench.model({"routing": rd(**{name: value.get(name, True) for name in controls.split()})})
    fixed = {name for name, d in declarations(model).items() if d.role is Role.FIXED} - {"routing.untied"}
    assert fixed == {f"routing.attention.{i}.{name}" for i in range(4) for name in FIXED[controls]}


@arms
def test_declared_dead_parameters_are_exactly_the_trained_ones_without_gradient(table: dict[str, Any], bench: LawBench):
    model = bench.model({"routing": table})
    untied(model)
    disturb_trained(bench, model, "")
    gradients = bench.loss_and_gradients(model)
    trained = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
    dead = {name for name, gradient in gradients.items() if not gradient.any()} & trained
    declared = config_of(table).dead_parameters(geometry(bench))
    assert dead == {f"routing.{name}" for name in declared}


def test_the_dead_parameters_by_name(bench: LawBench):
    def dead(**table: Any) -> set[str]:
        return {n.removeprefix("attention.0.") for n in config_of(table).dead_parameters(geometry(bench))}

    assert dead(name="block-attnres", blocks=3) == dead(**rd(tied=True)) == {"query", "key_gain"}
    assert dead(name="mlp-decoupled", blocks=3) == {"query", "key_gain"}
    assert dead(**rd()) == {"query", "value_query", "key_gain"}
    assert dead(**rd(routes="q|k|v")) == {"query", "key_query", "value_query", "key_gain"}
    assert dead(**rd(frozen_v=True)) == {"query", "key_gain"}
    assert dead(**rd(frozen_qk=True)) == {"value_query", "key_gain"}
    assert dead(**rd(frozen_v=True, frozen_qk=True)) == set()


def test_the_identity_and_the_output_map_have_no_dead_parameters(bench: LawBench):
    for arm in ({}, {"output_map": {"name": "xsa"}}):
        assert all(gradient.any() for gradient in bench.loss_and_gradients(bench.model(arm)).values())


@pytest.mark.parametrize("table", [table for table in ARMS if "untie_at" not in table], ids=readable)
def test_declared_flops_count_what_the_reads_were_seen_to_mix(table: dict[str, Any], bench: LawBench):
    """4 width for each query and source (score and mix, two FLOPs a feature each), 2 width for each published source
    (its mean square): the embedding and every sublayer's running sum; and width for each mix that is averaged."""
    mixed = 0

    def tap(site: str, layer: int, **tensors: Tensor) -> None:
        nonlocal mixed
        del layer
        if site.endswith("depth read"):
            mixed += sum(t.shape[-1] for name, t in tensors.items() if name.startswith("weights of "))

    with torch.no_grad():
        bench.logits(bench.model({"routing": table}), tap=tap)
    width, layers = bench.config.width, bench.config.layers
    averaged = layers * len(config_of(table).attention_plan().queries) if table.get("average") else 0
    expected = 4 * width * mixed + 2 * width * (2 * layers + 1) + width * averaged
    assert config_of(table).flops_per_token(geometry(bench)) == expected


def test_the_cost_of_untying_is_the_mean_over_the_run(bench: LawBench):
    def flops(table: dict[str, Any]) -> float:
        return config_of(table).flops_per_token(geometry(bench))

    assert flops(rd(untie_at=0.25)) == 0.25 * flops(rd(tied=True)) + 0.75 * flops(rd())


@arms
def test_depth_sources_are_float32_whatever_the_sublayers_write(table: dict[str, Any], bench: LawBench):
    built = config_of(table).build(geometry(bench), -1)
    assert isinstance(built, BlockResiduals)
    for parameter in built.parameters():
        parameter.data.zero_()
    half = torch.ones(1, 2, bench.config.width, dtype=torch.bfloat16)
    memory = built.open(half)
    for sublayer in range(8):
        memory = built.write(memory, half, sublayer // 2, Site.MLP if sublayer % 2 else Site.ATTENTION)
    assert {source.value.dtype for source in memory.sources} == {torch.float32}
    assert sum(float(source.value[0, 0, 0]) for source in memory.sources) == 9


MOVED = [
    (rd(), "query", "qk"),
    (rd(), "value_query", "v"),
    (rd(routes="q|kv"), "query", "q"),
    (rd(routes="q|kv"), "key_value_query", "kv"),
    (rd(routes="k|qv"), "query", "qv"),
    (rd(routes="k|qv"), "key_query", "k"),
    (rd(routes="q|k|v"), "query", "q"),
    (rd(routes="q|k|v"), "key_query", "k"),
    (rd(routes="q|k|v"), "value_query", "v"),
    (rd(average=True), "query", "qkv"),
    (rd(average=True), "value_query", "qkv"),
    (rd(tied=True), "query", "qkv"),
]


@pytest.mark.parametrize(("table", "query", "moved"), MOVED)
def test_a_query_moves_the_projections_of_its_own_role_and_no_others(
    bench: LawBench, table: dict[str, Any], query: str, moved: str
):
    model = bench.model({"routing": table})
    assert change(bench, model, "layers.1.attention", f"attention.1.{query}") == set(moved)


@pytest.mark.parametrize(("query", "moved"), [("query", "qk"), ("up_query", "v")])
def test_the_second_mlp_query_moves_the_up_projection_and_the_first_the_gate(bench: LawBench, query: str, moved: str):
    model = bench.model({"routing": {"name": "mlp-decoupled", "blocks": 3}})
    assert change(bench, model, "layers.1.mlp", f"mlp.1.{query}") == set(moved)
    assert change(bench, model, "layers.1.mlp", "mlp.2.query") == set()


def change(bench: LawBench, model: Backbone, sublayer: str, query: str) -> set[str]:
    """Which inputs of a sublayer change when a query does."""
    seen: list[Reads] = []
    hook = model.get_submodule(sublayer).register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    for _ in range(2):
        with torch.no_grad():
            bench.logits(model)
            model.get_parameter(f"routing.{query}").add_(torch.linspace(-1, 1, bench.config.width))
    hook.remove()
    before, after = seen
    return {role for role in "qkv" if not torch.equal(getattr(before, role), getattr(after, role))}


def test_the_placebo_has_as_many_parameters_as_the_treatment(bench: LawBench):
    counts = {
        name: sum(p.numel() for p in bench.model({"routing": {"name": name, "blocks": 3}}).parameters())
        for name in ("block-attnres", "role-decoupled", "mlp-decoupled")
    }
    assert counts["mlp-decoupled"] == counts["role-decoupled"]
    assert counts["role-decoupled"] == counts["block-attnres"] + bench.config.layers * bench.config.width


def test_projections_that_share_a_query_get_one_tensor_so_that_its_norm_is_computed_once():
    mixes = tuple(torch.full((1, 1, 2), float(i)) for i in range(2))
    reads = ReadPlan(inputs=(0, 0, 1)).assign(mixes)
    assert reads.q is reads.k
    assert reads.v is mixes[1]
    assert ReadPlan().assign(mixes[:1]).only is mixes[0]


def test_an_average_is_the_mean_of_all_mixes_and_one_tensor_for_all():
    mixes = tuple(torch.full((1, 1, 2), float(value)) for value in (1, 2, 6))
    assert torch.equal(ReadPlan(average=True).assign(mixes).only, torch.full((1, 1, 2), 3.0))


@arms
def test_updates_leave_fixed_parameters_bit_for_bit(table: dict[str, Any], bench: LawBench):
    model = bench.model({"routing": table})
    before = {name: p.detach().clone() for name, p in model.named_parameters() if not p.requires_grad}
    optimisers = build_optimisers(model, OptimiserConfig())
    for _ in range(2):
        bench.loss_and_gradients(model)
        for optimiser in optimisers:
            optimiser.step()
    assert all(torch.equal(model.get_parameter(name), value) for name, value in before.items())
