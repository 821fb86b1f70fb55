from dataclasses import replace

import pytest

from paribus.errors import GateError
from paribus.experiment.gates import Arms, Gate, gates, number_of_gates, planned_gates, require_all
from paribus.experiment.law_gates import bench_of
from paribus.experiment.spec import Experiment
from paribus.experiment.step_zero import EFFECTIVE_EPS_LIMIT, effective_eps_gate, probe_arm, shared_gate, written_gate
from paribus.model import build
from paribus.roles import declarations, initialise

ARMS = ("standard", "xsa", "block", "rd")
CAUSAL = "a token changes no earlier logit, bit for bit"
SCALE_INVARIANT = "norms are scale-invariant at every read"

PEEK = '''
"""An output map in which a token sees the next one."""

from torch import nn

from paribus.mechanisms.contract import MechanismConfig, Seam


class Peek(nn.Module):
    def forward(self, y, values, document):
        return y + 1e-4 * values.aggregated.roll(-1, dims=1)


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

FORGETS_A_READ = '''
"""The plain residual path, with a record that leaves out the output's read."""

from paribus.mechanisms.contract import MechanismConfig, Seam
from paribus.mechanisms.standard import SerialResidual


class ForgetsARead(SerialResidual):
    def source_lists(self):
        return super().source_lists()[:-1]


class ForgetsAReadConfig(MechanismConfig):
    name = "forgets-a-read"
    seam = Seam.ROUTING

    def build(self, geometry, layer):
        return ForgetsARead(geometry.layers)
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


def of(found: list[Gate], name: str) -> list[str]:
    return [gate.subject for gate in found if gate.name == name]


def gates_of(arm: str, experiment: Experiment, arms: Arms) -> list[Gate]:
    """The gates of one arm of the study."""
    return list(gates(experiment, {key: resolved for key, resolved in arms.items() if key[1] == arm}))


def test_every_gate_passes_for_the_four_arms_of_the_demo(resolve, tiny: str):
    experiment, arms = resolve(tiny)
    found = list(gates(experiment, arms))
    assert failed(found) == []
    require_all(found)
    assert len(found) == number_of_gates(experiment, arms)
    assert of(found, "pair check") == ["block", "xsa", "rd"]
    for name in (
        "every parameter has a value",
        SCALE_INVARIANT,
        "the table of sources is the wiring",
        "gradient reaches every trained parameter within 5 updates",
        "a resumed run repeats the uninterrupted one, bit for bit",
        CAUSAL,
    ):
        assert of(found, name) == [f"tiny/{arm}" for arm in ARMS], name
    laws = {gate.subject for gate in found}
    assert {"exclusive", "attention_residuals", "role_decoupled"} <= laws, "the mechanisms' own laws are shown"
    claims = {e.claim for arm in arms.values() for c in arm.mechanisms.values() for e in c.equivalences()}
    assert claims
    equivalences = [gate for gate in found if gate.name in claims]
    assert len(equivalences) == len(claims), "what mechanisms declare equal is trained and compared, once"
    assert all("first differs after update" in gate.detail for gate in equivalences), "the perturbed arm differs"


def test_equal_mechanisms_at_equal_depth_are_shown_once_and_another_depth_again(resolve, tiny: str):
    experiment, arms = resolve(tiny)
    standard = arms["tiny", "standard"]
    wider = replace(standard, model=standard.model.model_copy(update={"width": 64, "mlp_width": 96}))
    deeper = replace(standard, model=standard.model.model_copy(update={"layers": 3}))
    both = {("tiny", "standard"): standard, ("wide", "standard"): wider, ("deep", "standard"): deeper}
    found = [job() for job in planned_gates(experiment, both)]
    assert failed(found) == []
    assert {gate.subject for gate in found} == {"tiny/standard", "deep/standard"}


def test_planning_the_gates_runs_nothing(resolve, tiny: str, monkeypatch: pytest.MonkeyPatch):
    experiment, arms = resolve(tiny)

    def refuse(*arguments: object) -> None:
        raise AssertionError(arguments)

    monkeypatch.setattr(build, "initialise", refuse)
    assert number_of_gates(experiment, arms) > len(arms)


def test_a_mechanism_that_sees_the_next_token_is_caught_and_named(resolve, register, tiny: str):
    register("peeking", PEEK)
    experiment, arms = resolve(tiny.replace('name = "xsa", strength = 1.0', 'name = "peek"'))
    found = gates_of("xsa", experiment, arms)
    assert failed(found) == [("tiny/xsa", CAUSAL)]
    with pytest.raises(GateError, match=f"gate '{CAUSAL}' failed for tiny/xsa"):
        require_all(found)


def test_a_stream_too_faint_for_the_norms_eps_is_caught_and_named(resolve, register, tiny: str):
    register("fainting", FAINT)
    experiment, arms = resolve(tiny.replace('name = "block-attnres", blocks = 2', 'name = "faint"'))
    found = gates_of("block", experiment, arms)
    assert failed(found) == [("tiny/block", SCALE_INVARIANT)]
    worst = next(gate for gate in found if not gate.passed)
    assert "layer 0, attention" in worst.detail
    assert f"{EFFECTIVE_EPS_LIMIT:.0e}" in worst.detail


def test_a_routing_that_leaves_a_read_off_its_table_is_caught_and_named(resolve, register, tiny: str):
    register("forgetting", FORGETS_A_READ)
    experiment, arms = resolve(tiny.replace('name = "block-attnres", blocks = 2', 'name = "forgets-a-read"'))
    found = gates_of("block", experiment, arms)
    assert failed(found) == [("tiny/block", "the table of sources is the wiring")]
    assert next(gate for gate in found if not gate.passed).detail == "the output read is not listed"


def test_a_larger_eps_makes_every_read_of_every_arm_fail(resolve, tiny: str):
    experiment, arms = resolve(tiny)
    large = {key: replace(arm, model=arm.model.model_copy(update={"norm_eps": 0.01})) for key, arm in arms.items()}
    probes = [effective_eps_gate("arm", probe_arm(arm, (experiment.study, "tiny", 0))) for arm in large.values()]
    assert not any(gate.passed for gate in probes)


def test_the_effective_eps_grows_with_the_square_of_the_number_of_sources(resolve, tiny: str):
    experiment, arms = resolve(tiny)
    probe = probe_arm(arms["tiny", "block"], (experiment.study, "tiny", 0))
    # At step 0 the stream has about unit mean square, and a read is its K-th part.
    sources = [len(entry["sources"]) for entry in arms["tiny", "block"].source_lists]
    assert sources == [1, 2, 2, 3, 3]
    assert list(probe.mixed.values()) == sources
    for read, count in zip(probe.reads, sources, strict=True):
        assert read.effective_eps == pytest.approx(1e-6 * count**2, rel=0.4)


def test_a_parameter_that_no_initialiser_writes_is_caught_and_named(resolve, tiny: str, monkeypatch):
    def forgetful(model, *stream):
        kept = {name: model.get_parameter(name).detach().clone() for name in declarations(model)}
        initialise(model, *stream)
        if "routing.output.query" in kept:
            # One number of it is enough.
            model.get_parameter("routing.output.query").data[3] = kept["routing.output.query"][3]

    monkeypatch.setattr(build, "initialise", forgetful)
    experiment, arms = resolve(tiny)
    stream = (experiment.study, "tiny", 0)
    found = [written_gate(name, probe_arm(arm, stream)) for (_, name), arm in arms.items()]
    assert [(gate.subject, gate.detail) for gate in found if not gate.passed] == [
        ("block", "never written: routing.output.query"),
        ("rd", "never written: routing.output.query"),
    ]


def test_a_shared_tensor_with_other_initial_values_is_caught_and_named(resolve, tiny: str, monkeypatch):
    def shifted_by_additions(model, *stream):
        initialise(model, *stream)
        if "routing.output.query" in declarations(model):
            model.get_parameter("layers.1.mlp.down").data[0, 0] += 1e-6

    monkeypatch.setattr(build, "initialise", shifted_by_additions)
    experiment, arms = resolve(tiny)
    found = [shared_gate(name, probe_arm(arm, (experiment.study, "tiny", 0))) for (_, name), arm in arms.items()]
    assert [(gate.subject, gate.detail) for gate in found if not gate.passed] == [
        ("block", "layers.1.mlp.down: other initial values"),
        ("rd", "layers.1.mlp.down: other initial values"),
    ]


@pytest.mark.parametrize(("measured", "passes"), [("float(perturbed)", True), ("1.0", False), ("0.0", False)])
def test_a_law_passes_where_it_holds_and_its_perturbation_breaks_it(
    resolve, register, tiny: str, measured: str, passes: bool
):
    register(f"lawful_{passes}_{measured[0]}", LAWFUL.replace("{measured}", measured))
    experiment, arms = resolve(tiny.replace('name = "xsa", strength = 1.0', 'name = "lawful"'))
    found = next(gate for gate in gates_of("xsa", experiment, arms) if gate.name == "it is what it is")
    assert found.passed is passes
    assert ("the check cannot fail" in found.detail) is (measured == "0.0")


def test_laws_are_shown_on_a_bench_of_the_studys_depth_and_groups(resolve, tiny: str):
    _, arms = resolve(
        tiny.replace("model = { head_width = 16 }", "model = { head_width = 8, query_heads_per_kv_head = 2 }")
    )
    bench = bench_of(arms["tiny", "xsa"])
    assert (bench.config.layers, bench.config.heads, bench.config.kv_heads) == (2, 4, 2)
