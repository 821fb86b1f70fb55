"""Role-decoupled reads: which controls may be combined, what a donor gives, what untying does over a run."""

from itertools import combinations
from typing import Any

import pytest
import torch
from torch import Tensor

from paribus.errors import ExperimentFileError
from paribus.mechanisms import resolve
from paribus.mechanisms.contract import Scheduled, Seam
from paribus.mechanisms.depth import reads as depth_reads
from paribus.mechanisms.depth.reads import DepthRead
from paribus.mechanisms.role_decoupled import RoleDecoupledAttentionResiduals, queries_of, untie_step
from paribus.model.backbone import Backbone
from paribus.model.lawbench import LawBench
from paribus.optim.config import OptimiserConfig
from paribus.train.loop import announce
from paribus.train.state import TrainState

CONTROLS: dict[str, Any] = {
    "tied": True,
    "average": True,
    "frozen_v": True,
    "frozen_qk": True,
    "frozen_v_from": "parent",
    "untie_at": 0.5,
}
PARENT = {"routing": {"name": "block-attnres", "blocks": 3}}


def table(**control: Any) -> dict[str, Any]:
    return {"name": "role-decoupled", "blocks": 3, **control}


def config(**control: Any) -> RoleDecoupledAttentionResiduals:
    found = resolve(Seam.ROUTING, table(**control), "arms.a.routing")
    assert isinstance(found, RoleDecoupledAttentionResiduals)
    return found


def model_of(bench: LawBench, **control: Any) -> Backbone:
    return bench.model({"routing": table(**control)})


@pytest.mark.parametrize(("first", "second"), list(combinations(CONTROLS, 2)))
def test_two_controls_are_refused_naming_both_unless_they_are_a_corner_of_the_2x2(first: str, second: str):
    both = {name: CONTROLS[name] for name in (first, second)}
    if "frozen_qk" in both and {"frozen_v", "frozen_v_from"} & both.keys():
        config(**both)
        return
    with pytest.raises(ExperimentFileError) as caught:
        config(**both)
    assert caught.value.what == (
        f"arms.a.routing: '{first}' contradicts '{second}'; valid: one of tied, average, frozen_v, frozen_qk, "
        "frozen_v_from and untie_at, or frozen_qk with frozen_v or with frozen_v_from"
    )


@pytest.mark.parametrize("routes", ["q|kv", "k|qv", "q|k|v"])
@pytest.mark.parametrize("control", CONTROLS)
def test_controls_of_the_value_route_are_refused_with_other_routes_naming_both(control: str, routes: str):
    if control in ("average", "untie_at"):
        config(routes=routes, **{control: CONTROLS[control]})
        return
    with pytest.raises(ExperimentFileError) as caught:
        config(routes=routes, **{control: CONTROLS[control]})
    assert caught.value.what == (
        f"arms.a.routing: '{control}' contradicts routes = '{routes}'; "
        "valid with other routes than 'qk|v': average, untie_at"
    )


@pytest.mark.parametrize("fraction", [-0.5, 0.0, 1.0, 1, float("nan"), "half"])
def test_a_fraction_of_the_run_out_of_range_is_answered_with_both_ends(fraction: object):
    with pytest.raises(ExperimentFileError) as caught:
        config(untie_at=fraction)
    assert "greater than 0 and less than 1" in caught.value.expected


@pytest.mark.parametrize(
    ("key", "value"),
    [("routes", "v|qk"), ("untie_at", 0.0), ("untie_at", 1.0), ("untie_at", 1), ("frozen_v_from", ""), ("tied", 1)],
)
def test_a_value_outside_its_range_is_refused_by_key(key: str, value: object):
    with pytest.raises(ExperimentFileError, match=rf"arms\.a\.routing\.{key}"):
        config(**{key: value})


def test_off_is_not_a_control():
    assert config(tied=False, average=False, frozen_v=True, frozen_v_from=None, untie_at=None).frozen_v


@pytest.mark.parametrize("routes", ["qk|v", "q|kv", "k|qv", "q|k|v"])
def test_a_resolved_table_resolves_to_itself(routes: Any):
    full = config(routes=routes)
    assert resolve(Seam.ROUTING, {"name": full.name, **full.model_dump()}, "here") == full


@pytest.mark.parametrize(
    ("routes", "names", "inputs"),
    [
        ("qk|v", ("query", "value_query"), (0, 0, 1)),
        ("q|kv", ("query", "key_value_query"), (0, 1, 1)),
        ("k|qv", ("query", "key_query"), (0, 1, 0)),
        ("q|k|v", ("query", "key_query", "value_query"), (0, 1, 2)),
    ],
)
def test_the_query_projection_reads_with_the_parents_query_and_others_are_called_after_what_they_feed(
    routes: str, names: tuple[str, ...], inputs: tuple[int, int, int]
):
    queries, found = queries_of(routes)
    assert tuple(query.name for query in queries) == names
    assert found == inputs


@pytest.mark.parametrize("routes", ["qk|v", "q|k|v"])
def test_every_control_keeps_the_names_that_the_parent_has(routes: str, bench: LawBench):
    parents = {name for name, _ in bench.model(PARENT).named_parameters()}
    assert parents < {name for name, _ in model_of(bench, routes=routes).named_parameters()}


def test_all_queries_of_a_read_are_read_in_one_pass_over_the_sources(bench: LawBench, monkeypatch: pytest.MonkeyPatch):
    passes: list[int] = []
    read = depth_reads.depth_read

    def counted(sources: Any, queries: Tensor, *of_keys_and_norm: Any) -> tuple[tuple[Tensor, ...], Tensor]:
        passes.append(len(queries))
        return read(sources, queries, *of_keys_and_norm)

    monkeypatch.setattr(depth_reads, "depth_read", counted)
    with torch.no_grad():
        bench.logits(model_of(bench, routes="q|k|v"))
    assert passes == [3, 1] * bench.config.layers + [1]


# A donor.


def donor_tensors(bench: LawBench, **control: Any) -> dict[str, Tensor]:
    model = model_of(bench, **control) if control else bench.model(PARENT)
    bench.disturb(model, "")
    return {name.removeprefix("routing."): p.detach() for name, p in model.named_parameters() if "routing" in name}


@pytest.mark.parametrize(
    ("control", "query", "gain"),
    [
        ({}, "query", "key_gain"),
        ({"tied": True}, "query", "key_gain"),
        ({"routes": "qk|v"}, "value_query", "key_gain"),
        ({"routes": "q|k|v"}, "value_query", "key_gain"),
        ({"routes": "q|kv"}, "key_value_query", "key_gain"),
        ({"routes": "k|qv"}, "query", "key_gain"),
        ({"frozen_v_from": "another"}, "value_query", "value_key_gain"),
    ],
    ids=str,
)
def test_the_adopted_route_is_the_query_and_gain_by_which_the_donors_value_reads(
    bench: LawBench, control: dict[str, Any], query: str, gain: str
):
    tensors = donor_tensors(bench, **control)
    child = config(frozen_v_from="donor")
    model = model_of(bench, frozen_v_from="donor")
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    child.adopt(model.routing, tensors)
    for layer in range(bench.config.layers):
        place = f"attention.{layer}"
        assert torch.equal(model.routing.get_parameter(f"{place}.value_query"), tensors[f"{place}.{query}"])
        assert torch.equal(model.routing.get_parameter(f"{place}.value_key_gain"), tensors[f"{place}.{gain}"])
    changed = {name for name, p in model.named_parameters() if not torch.equal(p, before[name])}
    assert {name.rpartition(".")[2] for name in changed} == {"value_query", "value_key_gain"}


def test_only_a_copied_route_has_a_donor():
    assert config(frozen_v_from="block").donor() == "block"
    assert config().donor() is None
    assert config(frozen_v=True).donor() is None


@pytest.mark.parametrize("tensors", [{}, {"attention.0.query": torch.zeros(16)}], ids=["no routing", "no gain"])
def test_a_donor_without_an_attention_route_is_refused_by_name(bench: LawBench, tensors: dict[str, Tensor]):
    with pytest.raises(
        ExperimentFileError, match="frozen_v_from = 'plain': that arm has no attention route at layer 0"
    ):
        config(frozen_v_from="plain").adopt(model_of(bench, frozen_v_from="plain").routing, tensors)


# Over a run.


def trained(bench: LawBench, state: TrainState, steps: int, upto: int) -> list[Tensor]:
    """Train `state` to `upto` of `steps` updates as the loop does; the losses."""
    losses = []
    while state.step < upto:
        announce(state.model, state.step, steps)
        assert isinstance(state.model, Backbone)
        losses.append(bench.loss_and_gradients(state.model)["loss"])
        for optimiser in state.optimisers:
            optimiser.step()
            optimiser.zero_grad(set_to_none=True)
        state.step += 1
    return losses


def fresh(bench: LawBench, **control: Any) -> TrainState:
    return TrainState.fresh(model_of(bench, **control), OptimiserConfig())


def parameters(state: TrainState) -> dict[str, Tensor]:
    return {name: parameter.detach().clone() for name, parameter in state.model.named_parameters()}


@pytest.mark.parametrize(
    ("fraction", "steps", "expected"),
    [(0.5, 4, 2), (0.5, 5, 3), (0.07, 100, 7), (0.01, 10, 1), (0.99, 10, 9), (0.99, 1, 0), (0.999, 5, 4)],
)
def test_untying_happens_at_the_fraction_rounded_up_and_at_the_last_update_at_the_latest(
    fraction: float, steps: int, expected: int
):
    assert untie_step(fraction, steps) == expected


def test_tied_trains_like_the_parent_bit_for_bit_as_its_equivalence_claims(bench: LawBench):
    [claim] = config(tied=True).equivalences()
    states = [TrainState.fresh(bench.model(arm), OptimiserConfig()) for arm in (claim.arm, claim.twin, claim.perturbed)]
    losses = [trained(bench, state, 3, 3) for state in states]
    tied, twin, perturbed = map(parameters, states)
    assert losses[0] == losses[1] != losses[2]
    assert tied.keys() == twin.keys()
    assert all(torch.equal(tied[name], twin[name]) for name in twin)
    assert any(not torch.equal(perturbed[name], twin[name]) for name in twin)


def test_an_equivalence_is_made_for_the_blocks_of_its_own_arm():
    [claim] = RoleDecoupledAttentionResiduals(block_layers=2, routes="q|kv").equivalences()
    assert claim.arm["routing"] == {"name": "role-decoupled", "block_layers": 2, "tied": True}
    assert claim.twin["routing"] == {"name": "block-attnres", "block_layers": 2}


@pytest.mark.parametrize("routes", ["qk|v", "q|k|v"])
def test_until_it_unties_an_arm_is_the_parent_under_the_real_optimisers_and_then_it_is_not(
    bench: LawBench, routes: str
):
    untying = fresh(bench, routes=routes, untie_at=0.5)
    parent = TrainState.fresh(bench.model(PARENT), OptimiserConfig())
    assert trained(bench, untying, 6, 3) == trained(bench, parent, 6, 3)
    child, single = parameters(untying), parameters(parent)
    assert all(torch.equal(child[name], value) for name, value in single.items())
    others = [name for name in child if name.endswith("_query")]
    assert len(others) == 4 * (len(routes.split("|")) - 1)
    assert not any(child[name].any() for name in others), "tied queries are neither trained nor decayed"
    trained(bench, untying, 6, 5)
    trained(bench, parent, 6, 5)
    child, single = parameters(untying), parameters(parent)
    assert not torch.equal(child["routing.attention.1.query"], single["routing.attention.1.query"])
    assert not torch.equal(child["routing.attention.1.query"], child["routing.attention.1.value_query"])


@pytest.mark.parametrize("routes", ["qk|v", "q|k|v"])
def test_at_its_step_every_other_query_starts_where_the_first_is_and_is_never_written_again(
    bench: LawBench, routes: str
):
    state = fresh(bench, routes=routes, untie_at=0.5)
    trained(bench, state, 6, 3)
    announce(state.model, 3, 6)
    found = parameters(state)
    assert found["routing.attention.1.query"].any()
    for name in found:
        if name.endswith("_query"):
            assert torch.equal(found[name], found[f"{name.rpartition('.')[0]}.query"])
    trained(bench, state, 6, 4)
    before = parameters(state)
    for _ in range(2):
        announce(state.model, 4, 6)
    after = parameters(state)
    assert all(torch.equal(after[name], value) for name, value in before.items())
    assert not torch.equal(after["routing.attention.1.value_query"], after["routing.attention.1.query"])


def test_an_adopted_gain_is_used_by_the_adopted_query_and_by_no_other(bench: LawBench):
    model = model_of(bench, frozen_v_from="donor")
    bench.disturb(model, "query", std=1.0)
    reads: list[Any] = []
    model.get_submodule("layers.2.attention").register_forward_pre_hook(lambda _, inputs: reads.append(inputs[0]))
    with torch.no_grad():
        for gain in ("value_key_gain", "key_gain"):
            bench.logits(model)
            model.routing.get_parameter(f"attention.2.{gain}").mul_(2.0)
        bench.logits(model)
    first, with_value_gain, with_both = reads
    assert not torch.equal(first.v, with_value_gain.v)
    assert torch.equal(first.q, with_value_gain.q)
    assert torch.equal(with_value_gain.v, with_both.v)
    assert not torch.equal(with_value_gain.q, with_both.q)


@pytest.mark.parametrize("stop", range(6))
def test_a_run_that_was_stopped_and_resumed_at_any_step_is_the_uninterrupted_one_bit_for_bit(
    bench: LawBench, stop: int
):
    whole = fresh(bench, untie_at=0.5)
    trained(bench, whole, 6, 6)
    first = fresh(bench, untie_at=0.5)
    trained(bench, first, 6, stop)
    resumed = fresh(bench, untie_at=0.5)
    resumed.restore(first.to_files())
    for _ in range(2):  # a restart announces the step once more
        announce(resumed.model, resumed.step, 6)
    trained(bench, resumed, 6, 6)
    expected, found = parameters(whole), parameters(resumed)
    assert all(torch.equal(found[name], value) for name, value in expected.items())


@pytest.mark.parametrize("stop", range(1, 7))
def test_a_saved_model_that_is_only_evaluated_reads_as_it_did_when_it_was_trained(bench: LawBench, stop: int):
    state = fresh(bench, untie_at=0.5)
    trained(bench, state, 6, stop)
    loaded = fresh(bench, untie_at=0.5)
    loaded.restore(state.to_files())
    assert isinstance(state.model, Backbone)
    assert isinstance(loaded.model, Backbone)
    with torch.no_grad():
        assert torch.equal(bench.logits(loaded.model), bench.logits(state.model))
    read = loaded.model.get_submodule("routing.attention.1")
    assert isinstance(read, DepthRead)
    assert read.tied == (stop <= 3)


def test_only_an_untying_arm_changes_during_a_run(bench: LawBench):
    def scheduled(model: Backbone) -> list[str]:
        return [name for name, module in model.named_modules() if isinstance(module, Scheduled)]

    assert scheduled(model_of(bench, untie_at=0.5)) == ["routing"]
    assert scheduled(model_of(bench)) == scheduled(model_of(bench, tied=True)) == []
