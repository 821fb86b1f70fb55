import pytest
import torch
from torch import Tensor

from paribus.mechanisms import exclusive as module
from paribus.mechanisms import interventions_of
from paribus.mechanisms.exclusion.laws import output_maps
from paribus.mechanisms.exclusion.switch import PROJECTION_SWITCHED
from paribus.model.backbone import Backbone
from paribus.model.lawbench import LawBench

XSA = {"output_map": {"name": "xsa"}}


def logits(bench: LawBench, model: Backbone) -> Tensor:
    with torch.no_grad():
        return bench.logits(model)


def test_the_intervention_is_found_with_the_mechanism():
    assert interventions_of(module) == (PROJECTION_SWITCHED,)


@pytest.mark.parametrize(
    "fields", [{}, {"strength": 0.5}, {"strength": "learned", "initial_strength": 0.9}, {"layers": "last:1"}]
)
def test_a_model_trained_with_the_projection_has_it_switched_off(bench: LawBench, fields: dict[str, object]):
    model = bench.model({"output_map": {**XSA["output_map"], **fields}})
    own, standard = logits(bench, model), logits(bench, bench.model({}))
    variants = PROJECTION_SWITCHED.variants(model)
    assert set(variants) == {"off"}
    with variants["off"]():
        assert torch.equal(logits(bench, model), standard)
    assert torch.equal(logits(bench, model), own)
    assert not torch.equal(own, standard)


@pytest.mark.parametrize("arm", [{}, {"output_map": {"name": "xsa", "strength": 0.0}}])
def test_a_model_whose_output_map_is_the_identity_has_it_switched_on(
    bench: LawBench, arm: dict[str, dict[str, object]]
):
    model = bench.model(arm)
    own, with_projection = logits(bench, model), logits(bench, bench.model(XSA))
    variants = PROJECTION_SWITCHED.variants(model)
    assert set(variants) == {"on"}
    with variants["on"]():
        assert torch.equal(logits(bench, model), with_projection)
    assert torch.equal(logits(bench, model), own)


@pytest.mark.parametrize("layers", ["all", "last:1"])
def test_a_control_is_neither_switched_on_nor_off(bench: LawBench, layers: str):
    model = bench.model({"output_map": {"name": "xsa-shrink", "layers": layers}})
    assert PROJECTION_SWITCHED.variants(model) == {}


def test_every_context_leaves_modules_as_they_were_even_after_an_error(bench: LawBench):
    model = bench.model(XSA)
    before = [dict(vars(m)) for m in model.modules()]
    switched_off = PROJECTION_SWITCHED.variants(model)["off"]
    with switched_off():
        assert all("forward" in vars(m) for m in output_maps(model))
    with pytest.raises(ZeroDivisionError), switched_off():
        _ = 1 / 0
    with switched_off(), switched_off():
        pass
    assert [dict(vars(m)) for m in model.modules()] == before


def test_a_forward_that_somebody_else_had_put_there_comes_back(bench: LawBench):
    model = bench.model(XSA)
    (first, *_) = output_maps(model)
    theirs = first.forward
    first.forward = theirs
    with PROJECTION_SWITCHED.variants(model)["off"]():
        assert vars(first)["forward"] is not theirs
    assert vars(first)["forward"] is theirs
