"""Backbones read through the norm where the routing offers it: the same model, and nobody who reads otherwise is passed
over."""

from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from paribus.kernels.norm import Norm
from paribus.mechanisms.attention_residuals import BlockResiduals
from paribus.mechanisms.contract import Reads
from paribus.model.backbone import Backbone
from paribus.model.lawbench import LawBench

U32 = 2.0**-24
ROUNDINGS = 1000
"""of float32, of a tensor's largest number: products over some tens of features in four layers, forth and back"""
Arm = Mapping[str, Mapping[str, Any]]
ARMS: dict[str, Arm] = {
    "block": {"routing": {"name": "block-attnres", "blocks": 2}},
    "two routes": {"routing": {"name": "role-decoupled", "blocks": 2}},
    "three routes": {"routing": {"name": "role-decoupled", "blocks": "full", "routes": "q|k|v"}},
    "the mean of two": {"routing": {"name": "role-decoupled", "blocks": 2, "average": True}},
    "routes of the MLP": {"routing": {"name": "mlp-decoupled", "blocks": 2}},
}
both_backbones = pytest.mark.parametrize("backbone", ["prenorm", "nanochat"])
each_arm = pytest.mark.parametrize(
    ("backbone", "arm"),
    [
        pytest.param(backbone, arm, id=f"{backbone} {name}")
        for backbone in ("prenorm", "nanochat")
        for name, arm in ARMS.items()
        if backbone == "prenorm" or name != "routes of the MLP"  # one matrix product reads nanochat's MLP input
    ],
)


def model_of(bench: LawBench, arm: Arm, *, double: bool = False) -> Backbone:
    model = bench.model(arm, double=double)
    bench.disturb(model, "")
    return model


def found(bench: LawBench, model: Backbone) -> list[Tensor]:
    """Logits, and the gradient of every parameter that has one."""
    model.zero_grad()
    logits = bench.logits(model)
    functional.cross_entropy(logits.flatten(0, 1), bench.targets.flatten()).backward()
    return [logits.detach(), *(p.grad for p in model.parameters() if p.grad is not None)]


def reading_plainly(model: Backbone) -> Backbone:
    """The same model, on whose routing somebody looks at plain reads."""
    routing: Any = model.routing
    routing.read = routing.read
    return model


def differ(ones: list[Tensor], others: list[Tensor]) -> bool:
    return any(
        bool(((a - b).abs() > ROUNDINGS * U32 * b.abs().max().clamp_min(1e-6)).any())
        for a, b in zip(ones, others, strict=True)
    )


@each_arm
def test_both_ways_are_the_model_in_float64(backbone: str, arm: Arm):
    bench = LawBench(backbone)
    exact = found(bench, reading_plainly(model_of(bench, arm, double=True)))
    normed = found(bench, model_of(bench, arm))
    plain = found(bench, reading_plainly(model_of(bench, arm)))
    assert not differ(normed, exact)
    assert not differ(plain, exact)


@both_backbones
def test_the_bound_sees_a_norm_of_another_eps(backbone: str, monkeypatch: pytest.MonkeyPatch):
    bench = LawBench(backbone)
    model = model_of(bench, ARMS["two routes"])
    exact = found(bench, model_of(bench, ARMS["two routes"], double=True))
    monkeypatch.setattr("paribus.model.backbone.Norm", lambda gain, eps: Norm(gain, eps + 1e-3))
    assert differ(found(bench, model), exact)


@both_backbones
def test_every_sublayer_asks_for_a_normed_read(backbone: str, monkeypatch: pytest.MonkeyPatch):
    bench = LawBench(backbone)
    asked: list[Norm] = []
    general = BlockResiduals.read_normed

    def noting(self: BlockResiduals, memory: Any, layer: int, site: Any, tap: Any, norm: Norm) -> Reads:
        asked.append(norm)
        return general(self, memory, layer, site, tap, norm)

    monkeypatch.setattr(BlockResiduals, "read_normed", noting)
    bench.logits(model_of(bench, ARMS["block"]))
    assert len(asked) == 2 * bench.config.layers
    assert {norm.eps for norm in asked} == {bench.config.norm_eps}


@both_backbones
def test_a_subclass_that_reads_otherwise_is_not_passed_over_by_the_inherited_normed_read(backbone: str):
    class Deaf(BlockResiduals):
        def read(self, memory: Any, layer: int, site: Any, tap: Any) -> Reads:
            return Reads.shared(torch.ones_like(super().read(memory, layer, site, tap).q))

    bench = LawBench(backbone)
    model = model_of(bench, ARMS["block"])
    routing: Any = model.routing
    routing.__class__ = Deaf
    hearing, deaf = (found(bench, m)[0] for m in (model_of(bench, ARMS["block"]), model))
    assert not torch.allclose(hearing, deaf)


@both_backbones
def test_a_subclass_that_offers_both_is_asked_for_normed_reads(backbone: str):
    class Both(BlockResiduals):
        def read(self, memory: Any, layer: int, site: Any, tap: Any) -> Reads:
            del memory, layer, site, tap
            raise AssertionError("the plain read, though a normed one is offered")

        def read_normed(self, memory: Any, layer: int, site: Any, tap: Any, norm: Norm) -> Reads:
            return super().read_normed(memory, layer, site, tap, norm)

    bench = LawBench(backbone)
    model = model_of(bench, ARMS["block"])
    expected = found(bench, model_of(bench, ARMS["block"]))
    routing: Any = model.routing
    routing.__class__ = Both
    assert all(torch.equal(a, b) for a, b in zip(found(bench, model), expected, strict=True))


@both_backbones
def test_who_replaces_the_read_of_one_model_sees_every_read(backbone: str):
    bench = LawBench(backbone)
    model = model_of(bench, ARMS["block"])
    routing: Any = model.routing
    seen: list[tuple[int, str]] = []
    plain = routing.read

    def watching(memory: Any, layer: int, site: Any, tap: Any) -> Reads:
        seen.append((layer, str(site)))
        return plain(memory, layer, site, tap)

    routing.read = watching
    bench.logits(model)
    assert seen == [(layer, site) for layer in range(bench.config.layers) for site in ("attention", "mlp")]
