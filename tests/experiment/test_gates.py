from dataclasses import replace

import pytest

from paribus.errors import GateError
from paribus.experiment.gates import (
    EFFECTIVE_EPS_LIMIT,
    Gate,
    effective_eps_by_read,
    gates,
    number_of_gates,
    require_all,
)
from paribus.model import build
from paribus.roles import declarations, initialise

ARMS = ("standard", "xsa", "block", "rd")

PEEK = '''
"""An output map in which a token sees the next one."""

from torch import nn

from paribus.mechanisms.contract import MechanismConfig, Seam


class Peek(nn.Module):
    def forward(self, y, v):
        return y + 1e-4 * v.roll(-1, dims=1)


class PeekConfig(MechanismConfig):
    name = "peek"
    seam = Seam.OUTPUT_MAP

    def build(self, geometry, layer):
        return Peek()
'''

FAINT = '''
"""A residual path whose stream is a thousandth of what the norms expect."""

from paribus.mechanisms.contract import MechanismConfig, Seam
from paribus.mechanisms.standard import SerialResidual


class Faint(SerialResidual):
    def open(self, x0):
        return super().open(x0) * 1e-3


class FaintConfig(MechanismConfig):
    name = "faint"
    seam = Seam.ROUTING

    def build(self, geometry, layer):
        return Faint(geometry.layers)
'''

LAWFUL = '''
"""An output map that changes nothing, with a law."""

from paribus.mechanisms.contract import Law, MechanismConfig, Seam
from paribus.mechanisms.standard import UnchangedOutput


class LawfulConfig(MechanismConfig):
    name = "lawful"
    seam = Seam.OUTPUT_MAP

    def build(self, geometry, layer):
        return UnchangedOutput()


LAWS = (Law("it is what it is", lambda bench, perturbed: {measured}, "nothing", 0.5, "a half"),)
'''


def failed(found: list[Gate]) -> list[tuple[str, str]]:
    return [(gate.subject, gate.name) for gate in found if not gate.passed]


def test_every_gate_passes_for_the_four_arms_of_the_demo(resolve, tiny: str):
    experiment, arms = resolve(tiny)
    found = list(gates(experiment, arms))
    assert failed(found) == []
    require_all(found)
    assert len(found) == number_of_gates(experiment, arms)
    assert [gate.subject for gate in found if gate.name == "pair check"] == ["block", "xsa", "rd"]
    per_arm = [gate.subject for gate in found if gate.name == "norms are scale-invariant at every read"]
    assert per_arm == [f"tiny/{arm}" for arm in ARMS]
    laws = {gate.subject for gate in found}
    assert {"exclusive", "attention_residuals", "role_decoupled"} <= laws, "the mechanisms' own laws are shown"
    causal = [gate.subject for gate in found if "changes no earlier logit" in gate.name]
    assert causal == [f"tiny/{arm}" for arm in ARMS], "causality is shown for every arm"


def test_a_mechanism_that_sees_the_next_token_is_caught_and_named(resolve, register, tiny: str):
    register("peeking", PEEK)
    experiment, arms = resolve(tiny.replace('name = "xsa", strength = 1.0', 'name = "peek"'))
    found = list(gates(experiment, arms))
    assert failed(found) == [("tiny/xsa", "a token changes no earlier logit, bit for bit")]
    with pytest.raises(GateError, match="gate 'a token changes no earlier logit, bit for bit' failed for tiny/xsa"):
        require_all(found)


def test_a_stream_too_faint_for_the_norms_eps_is_caught_and_named(resolve, register, tiny: str):
    register("fainting", FAINT)
    experiment, arms = resolve(tiny.replace('name = "block-attnres", blocks = 2', 'name = "faint"'))
    found = list(gates(experiment, arms))
    assert failed(found) == [("tiny/block", "norms are scale-invariant at every read")]
    worst = next(gate for gate in found if not gate.passed)
    assert "layer 0, attention" in worst.detail
    assert f"{EFFECTIVE_EPS_LIMIT:.0e}" in worst.detail


def test_a_larger_eps_makes_every_read_of_every_arm_fail(resolve, tiny: str):
    experiment, arms = resolve(tiny)
    large = {key: replace(arm, model=arm.model.model_copy(update={"norm_eps": 0.01})) for key, arm in arms.items()}
    found = [gate for gate in gates(experiment, large) if gate.name == "norms are scale-invariant at every read"]
    assert not any(gate.passed for gate in found)


def test_the_effective_eps_grows_with_the_square_of_the_number_of_sources(resolve, tiny: str):
    experiment, arms = resolve(tiny)
    reads = effective_eps_by_read(experiment, arms["tiny", "block"])
    # At step 0 the stream has about unit mean square, and a read is its K-th part.
    sources = [len(entry["sources"]) for entry in arms["tiny", "block"].source_lists]
    assert sources == [1, 2, 2, 3, 3]
    for read, count in zip(reads, sources, strict=True):
        assert read["effective_eps"] == pytest.approx(1e-6 * count**2, rel=0.4)


def test_a_parameter_that_no_initialiser_writes_is_caught_and_named(resolve, tiny: str, monkeypatch):
    def forgetful(model, *stream):
        kept = {name: model.get_parameter(name).detach().clone() for name in declarations(model)}
        initialise(model, *stream)
        if "routing.output.query" in kept:
            # One number of it is enough.
            model.get_parameter("routing.output.query").data[3] = kept["routing.output.query"][3]

    monkeypatch.setattr(build, "initialise", forgetful)
    experiment, arms = resolve(tiny)
    # Laws build models too; only the arms' own gates are asked here.
    found = [gate for gate, _ in zip(gates(experiment, arms), range(3 + 3 * len(arms)), strict=False)]
    unwritten = [gate for gate in found if gate.name == "every parameter has a value" and not gate.passed]
    assert [gate.subject for gate in unwritten] == ["tiny/block", "tiny/rd"]
    assert unwritten[0].detail == "never written: routing.output.query"


@pytest.mark.parametrize(("measured", "passes"), [("float(perturbed)", True), ("1.0", False), ("0.0", False)])
def test_a_law_passes_where_it_holds_and_its_perturbation_breaks_it(
    resolve, register, tiny: str, measured: str, passes: bool
):
    register(f"lawful_{passes}_{measured[0]}", LAWFUL.replace("{measured}", measured))
    experiment, arms = resolve(tiny.replace('name = "xsa", strength = 1.0', 'name = "lawful"'))
    found = next(gate for gate in gates(experiment, arms) if gate.name == "it is what it is")
    assert found.passed is passes
    assert ("the check cannot fail" in found.detail) is (measured == "0.0")
