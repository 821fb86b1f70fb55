"""Which part of an update takes how long: every moment belongs to one part, and what is watched runs as before."""

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from paribus.costing import parts
from paribus.costing.parts import BACKWARD, BATCH, LOSS, NORM, REST, ROUTING, measured_parts, parts_of
from paribus.experiment.plan import resolve_arms
from paribus.mechanisms.attention_residuals import BlockResiduals
from paribus.mechanisms.contract import Reads
from paribus.sample_update import SampleUpdate, stepper

BLOCK = ('output_map = { name = "xsa" }', 'routing = { name = "block-attnres", blocks = 2 }')


@pytest.fixture
def update(load) -> Callable[..., SampleUpdate]:
    def made(*changes: tuple[str, str], arm: str = "trick", rows: int = 0, recompute: bool = False) -> SampleUpdate:
        return stepper(resolve_arms(load(*changes))["small", arm], torch.device("cpu"), rows, recompute)

    return made


def borders() -> Callable[[], float]:
    """A clock that says how often it was looked at: a part has as many seconds as borders end in it."""
    return itertools.count(1.0).__next__


@pytest.mark.parametrize("rows", [0, 2])
@pytest.mark.parametrize("recompute", [False, True])
def test_parts_add_up_to_the_update_whatever_the_micro_batches(update, rows: int, recompute: bool) -> None:
    looked = 0

    def clock() -> float:
        nonlocal looked
        looked += 1
        return float(looked)

    found = parts_of(update(BLOCK, rows=rows, recompute=recompute), clock)
    assert sum(found.values()) == looked - 1 > 20
    assert all(found[part] > 0 for part in (BATCH, REST, ROUTING, LOSS, BACKWARD, NORM, "Muon", "AdamW"))


def test_borders_lie_where_the_parts_do(update) -> None:
    layers, batches = 2, 4
    found = parts_of(update(rows=2), borders())
    assert found[BATCH] == found[LOSS] == batches, "once for each micro-batch"
    assert found["Muon"] == found["AdamW"] == found[NORM] == 1
    assert found["forward: output_map"] == found["forward: mask"] == found["forward: MLP"] == layers * batches
    # An attention is interrupted by its three seams.
    assert found["forward: attention"] == 4 * layers * batches
    sample = update(rows=2)
    trained = sum(parameter.requires_grad for parameter in sample.model.parameters())
    assert found[BACKWARD] == trained * batches


def slow(module: nn.Module, clock: list[float], seconds: float) -> None:
    module.register_forward_hook(lambda *_: clock.__setitem__(0, clock[0] + seconds))


def test_the_time_of_a_part_goes_to_that_part_alone(update) -> None:
    """A clock that stands still but for what takes long."""
    sample, clock = update(), [0.0]
    for layer in sample.model.layers:
        slow(layer.attention.output_map, clock, 1.0)
        slow(layer.mlp, clock, 10.0)
    for optimiser in sample.optimisers:
        optimiser.register_step_pre_hook(lambda *_: clock.__setitem__(0, clock[0] + 100.0))
    found = parts_of(sample, lambda: clock[0])
    spent = {part: seconds for part, seconds in found.items() if seconds}
    # Hooks of the test run before those of the watch, within the part; before an optimiser's first border they are
    # what comes before it.
    assert spent.pop("forward: output_map") == 2.0
    assert spent.pop("forward: MLP") == 20.0
    assert sum(spent.values()) == 200.0
    assert spent.keys() <= {NORM, parts.OTHER}


def test_watching_changes_nothing_and_leaves_nothing_behind(update) -> None:
    watched, plain = update(BLOCK), update(BLOCK)
    for _ in range(2):
        parts_of(watched)
        plain()
    for one, other in zip(watched.model.parameters(), plain.model.parameters(), strict=True):
        assert torch.equal(one, other)
        assert not one._post_accumulate_grad_hooks
    for module in watched.model.modules():
        assert not module._forward_hooks
        assert not module._forward_pre_hooks
    assert not {*parts.ROUTED} & vars(watched.model.routing).keys()


def test_a_routing_that_only_replaces_its_read_is_watched_as_it_reads(update) -> None:
    class Deaf(BlockResiduals):
        def read(self, memory: Any, layer: int, site: Any, tap: Any) -> Reads:
            return Reads.shared(torch.ones_like(super().read(memory, layer, site, tap).q))

    watched, plain = update(BLOCK), update(BLOCK)
    watched.model.routing.__class__ = plain.model.routing.__class__ = Deaf
    parts_of(watched)
    plain()
    for one, other in zip(watched.model.parameters(), plain.model.parameters(), strict=True):
        assert torch.equal(one, other)


def test_an_update_that_fails_leaves_no_hooks(update) -> None:
    sample = update()

    def fails(*_: object) -> None:
        raise RuntimeError("broken")

    broken = sample.model.layers[1].mlp.register_forward_hook(fails)
    with pytest.raises(RuntimeError, match="broken"):
        parts_of(sample)
    broken.remove()
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in sample.model.modules())


def test_every_column_has_the_same_updates_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []

    def one(update: str) -> dict[str, float]:
        order.append(update)
        return {"loss": float(order.count(update))}

    monkeypatch.setattr(parts, "parts_of", one)
    found = measured_parts({"x": "a", "y": "b"})  # pyright: ignore[reportArgumentType]
    assert order == ["a", "b"] * 3
    assert found == {"x": {"loss": 2.0}, "y": {"loss": 2.0}}, "medians"
