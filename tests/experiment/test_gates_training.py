"""Gates that need a few updates: each names the arm, the tensor and the first update of a mechanism gone wrong."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from paribus.data.order import Batch, Order
from paribus.experiment.gate import Gate
from paribus.experiment.gates import gates
from paribus.experiment.narrow import narrowed
from paribus.experiment.short_run import STEPS, Setting, ShortRun, batch, first_difference, short_run
from paribus.model import build
from paribus.roles import initialise
from paribus.train.loop import RunLength, train
from paribus.train.state import TrainState

LEAKY = '''
"""Said to be the standard arm; from update {update} on it scales what attention found by a millionth."""

from typing import ClassVar

from torch import nn

from paribus.mechanisms.contract import Equivalence, MechanismConfig, Seam


class Leaky(nn.Module):
    def __init__(self, leaks):
        super().__init__()
        self.leaks, self.factor = leaks, 1.0

    def at_step(self, step, steps):
        self.factor = 1.0 + 1e-6 if step + 1 >= self.leaks else 1.0

    def forward(self, y, values, document):
        return y * self.factor


class LeakyConfig(MechanismConfig):
    name = "leaky"
    seam = Seam.OUTPUT_MAP
    leaks: int = {update}

    def build(self, geometry, layer):
        return Leaky(self.leaks)

    def equivalences(self):
        return (
            Equivalence(
                claim="leaky is the standard arm",
                arm={{"output_map": {{"name": "leaky", "leaks": self.leaks}}}},
                twin={{}},
                perturbed={{"output_map": {{"name": "leaky", "leaks": {perturbed}}}}},
                perturbation="it leaks from update {perturbed} on",
                why="a factor of one is exact",
            ),
        )
'''

MODULE = '''
"""An output map with one parameter for each layer."""

import torch
from torch import nn

from paribus.mechanisms.contract import MechanismConfig, Seam
from paribus.roles import DeclaredModule, Init, Role


class Map(DeclaredModule):
    def __init__(self, geometry):
        super().__init__()
        self.declare("own", (geometry.head_width,), Role.{role}, Init(constant=1.0))
        self.calls = 0

    def at_step(self, step, steps):
        {at_step}

    def forward(self, y, values, document):
        return {z}


class MapConfig(MechanismConfig):
    name = "map"
    seam = Seam.OUTPUT_MAP

    def build(self, geometry, layer):
        return Map(geometry)

    def dead_parameters(self, geometry):
        return {dead}
'''
MULTIPLIED = "y * self.get_parameter('own')"

Tried = Callable[..., dict[str, Gate]]


@pytest.fixture
def two_arms(resolve, study_text: Callable[..., str]) -> Callable[..., Any]:
    """The experiment whose arm `tried` holds a table, with its arms."""
    return lambda table="": resolve(study_text("tried", table, scale={"layers": "2"}))


@pytest.fixture
def tried(two_arms, register) -> Tried:
    """The gates of the arm `tried` by name, whose mechanism is registered from a source."""

    def run(name: str, source: str, table: str) -> dict[str, Gate]:
        register(name, source)
        experiment, arms = two_arms(table)
        return {gate.name: gate for gate in gates(experiment, arms) if gate.subject == "tiny/tried"}

    return run


def mapped(**parts: str) -> str:
    return MODULE.format(**{"role": "GAIN", "at_step": "pass", "z": MULTIPLIED, "dead": "()", **parts})


def failed(found: dict[str, Gate]) -> list[str]:
    return [name for name, gate in found.items() if not gate.passed]


GRADIENT = f"gradient reaches every trained parameter within {STEPS} updates"
RESUMED = "a resumed run repeats the uninterrupted one, bit for bit"
FIXED = "no update changes a fixed parameter"


def test_an_arm_that_leaks_from_its_third_update_is_caught_with_tensor_and_update(tried: Tried):
    found = tried("leaky", LEAKY.format(update=3, perturbed=1), 'output_map = { name = "leaky" }')
    assert failed(found) == ["leaky is the standard arm"]
    detail = found["leaky is the standard arm"].detail
    assert detail.startswith("embedding first differs after update 3, by ")


def test_an_equivalence_that_holds_says_where_its_perturbation_broke_it(tried: Tried):
    found = tried("leaky_late", LEAKY.format(update=99, perturbed=2), 'output_map = { name = "leaky" }')
    assert failed(found) == []
    detail = found["leaky is the standard arm"].detail
    assert detail.startswith(
        "equal through 5 updates; it leaks from update 2 on: embedding first differs after update 2"
    )


def test_an_equivalence_whose_perturbation_changes_nothing_proves_nothing(tried: Tried):
    found = tried("leaky_never", LEAKY.format(update=99, perturbed=98), 'output_map = { name = "leaky" }')
    assert failed(found) == ["leaky is the standard arm"]
    assert "the check cannot fail: equal through 5 updates" in found["leaky is the standard arm"].detail


def test_a_learned_parameter_that_is_used_passes_every_gate(tried: Tried):
    found = tried("used", mapped(), 'output_map = { name = "map" }')
    assert failed(found) == []
    assert found[GRADIENT].detail == "all trained tensors, the last in update 1"
    assert FIXED not in found


def test_a_parameter_that_no_gradient_reaches_is_named(tried: Tried):
    found = tried("unused", mapped(z="y"), 'output_map = { name = "map" }')
    assert failed(found) == [GRADIENT]
    assert "layers.0.attention.output_map.own: no gradient in 5 updates" in found[GRADIENT].detail
    assert "layers.1.attention.output_map.own" in found[GRADIENT].detail


def test_a_matrix_that_no_gradient_reaches_is_a_failed_gate_not_a_crash(tried: Tried):
    source = mapped(z="y", role="MATRIX").replace("(geometry.head_width,)", "(2, geometry.head_width)")
    assert failed(tried("unused_matrix", source, 'output_map = { name = "map" }')) == [GRADIENT]


@pytest.mark.parametrize(
    ("dead", "z", "passes", "detail"),
    [
        ("('own',)", "y", True, "dead by construction: layers.0.attention.output_map.own, layers.1.attention"),
        ("('0.own',)", "y", False, "layers.1.attention.output_map.own: no gradient"),
        ("('own',)", MULTIPLIED, False, "layers.0.attention.output_map.own: declared dead, but gradient reached it"),
        ("('other',)", MULTIPLIED, False, "output_map.other: declared dead, but the arm has no such parameter"),
    ],
    ids=["rightly, in every layer", "in one layer of two", "although it learns", "although there is none"],
)
def test_what_a_mechanism_declares_dead_must_be_exactly_what_is(
    tried: Tried, dead: str, z: str, passes: bool, detail: str
):
    gate = tried(f"dead{len(dead)}{len(z)}", mapped(dead=dead, z=z), 'output_map = { name = "map" }')[GRADIENT]
    assert gate.passed is passes
    assert detail in gate.detail


def test_state_that_a_checkpoint_does_not_hold_is_caught_with_tensor_and_update(tried: Tried):
    source = mapped(at_step="self.calls += 1", z=f"{MULTIPLIED} * (1 + 1e-3 * self.calls)")
    found = tried("forgetful", source, 'output_map = { name = "map" }')
    assert failed(found) == [RESUMED]
    assert found[RESUMED].detail.startswith("embedding first differs after update 2, by ")


def test_state_that_follows_from_the_step_survives_a_restart(tried: Tried):
    source = mapped(at_step="self.calls = step", z=f"{MULTIPLIED} * (1 + 1e-3 * self.calls)")
    assert failed(tried("scheduled", source, 'output_map = { name = "map" }')) == []


def test_a_change_made_once_behind_a_flag_of_its_own_is_caught_after_a_restart(tried: Tried):
    # Right in one go, and right when interrupted before the change. A restart after it makes it a second time, which
    # undoes what was learned in between.
    once = "torch.nn.init.constant_(self.own, 2.0) if step >= 2 and not self.calls else None; self.calls = step >= 2"
    found = tried("once", mapped(at_step=once), 'output_map = { name = "map" }')
    assert failed(found) == [RESUMED]
    assert found[RESUMED].detail.startswith("embedding first differs after update 4, by ")


def test_a_fixed_parameter_that_moves_is_named_with_its_update(tried: Tried):
    moving = f"(self.own.data.add_(self.calls == 2), {MULTIPLIED})[1]"
    found = tried(
        "moving", mapped(role="FIXED", at_step="self.calls = step", z=moving), 'output_map = { name = "map" }'
    )
    assert FIXED in failed(found)
    assert found[FIXED].detail.startswith("layers.0.attention.output_map.own moved in update 3; layers.1.")


def test_a_fixed_parameter_that_its_own_schedule_writes_passes_and_is_named(tried: Tried):
    written = "self.own.data.fill_(3.0 if step >= 2 else 1.0)"
    found = tried("written", mapped(role="FIXED", at_step=written), 'output_map = { name = "map" }')
    assert failed(found) == []
    assert "layers.0.attention.output_map.own was written by its schedule before update 3" in found[FIXED].detail


def test_a_fixed_parameter_that_stays_is_listed_and_needs_no_gradient(tried: Tried):
    found = tried("staying", mapped(role="FIXED"), 'output_map = { name = "map" }')
    assert failed(found) == []
    assert found[FIXED].detail.startswith("fixed: layers.0.attention.output_map.own, ")


@pytest.fixture
def setting(two_arms) -> Setting:
    """Of the baseline, narrowed."""
    _, arms = two_arms()
    arm = arms["tiny", "standard"]
    return Setting(narrowed(arm.model, 8), arm.mechanisms, arm.base.optimiser, arm.base.schedule)


class SameBatches(Order):
    """The batches of a short run, as the training loop asks for them."""

    def __init__(self, vocabulary_size: int) -> None:
        self.vocabulary_size = vocabulary_size
        self.context_length, self.rows_per_batch, self.slices = 0, 0, ()

    def batch(self, step: int) -> Batch:
        consumed = batch(step, self.vocabulary_size)
        tokens, targets, weight, document = (
            getattr(consumed, name).numpy() for name in ("tokens", "targets", "weight", "document")
        )
        return Batch(tokens, targets, weight, document.astype(np.int32), np.zeros(tokens.shape, np.int16))


def test_a_short_run_takes_the_steps_of_the_training_loop(setting: Setting):
    run = short_run(setting)

    model = build.build_model(setting.model, dict(setting.mechanisms), ("gates",))
    state = TrainState.fresh(model, setting.optimiser)
    order, length = SameBatches(setting.model.vocabulary_size), RunLength(STEPS * 32, 32)
    for event in train(state, order, length, setting.schedule, micro_batch_rows=2):
        for name, parameter in model.named_parameters():
            assert torch.equal(parameter.detach(), run.values[event.step][name]), f"{name} after update {event.step}"
    assert state.step == STEPS
    moved = [n for n in run.values[0] if not torch.equal(run.values[0][n], run.values[STEPS][n])]
    assert moved == list(run.values[0]), "the optimisers reach every tensor"


def test_matrices_that_start_at_zero_are_given_values_before_arms_are_compared(setting: Setting, monkeypatch):
    def without_outputs(model, *stream):
        initialise(model, *stream)
        for name, parameter in model.named_parameters():
            if name.endswith("attention.output"):
                parameter.data.zero_()

    monkeypatch.setattr(build, "initialise", without_outputs)
    run = short_run(setting)
    assert all(bool(v.any()) for name, v in run.values[0].items() if name.endswith("attention.output"))


def test_narrowing_keeps_everything_but_the_width(two_arms):
    _, arms = two_arms()
    model = arms["tiny", "standard"].model
    wide = model.model_copy(
        update={"width": 768, "head_width": 64, "layers": 24, "query_heads_per_kv_head": 3, "mlp_width": 2048}
    )
    small = narrowed(wide, 8)
    assert (small.width, small.head_width, small.kv_heads, small.heads) == (48, 8, 2, 6)
    changed = {name for name, value in small.model_dump().items() if value != wide.model_dump()[name]}
    assert changed == {"width", "head_width", "mlp_width", "vocabulary_size"}


def run_of(*values: dict[str, float]) -> ShortRun:
    tensors = tuple({name: torch.tensor(value) for name, value in step.items()} for step in values)
    return ShortRun(tensors, {}, (), {}, {})


def test_runs_are_compared_step_by_step_in_what_both_have_and_a_nan_differs():
    same = [{"a": 1.0, "b": 2.0}] * 3
    assert first_difference(run_of(*same), run_of(*same)) is None
    other = [*same[:2], {"a": 1.5, "b": 2.0}]
    assert first_difference(run_of(*same), run_of(*other)) == (2, "a", 0.5)
    assert first_difference(run_of(*same), run_of(*[{"b": 2.0, "c": 9.0}] * 3)) is None
    broken = first_difference(run_of(*same), run_of(*[{"a": 1.0, "b": float("nan")}] * 3))
    assert broken is not None
    assert broken[:2] == (0, "b")
