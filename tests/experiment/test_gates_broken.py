"""Mechanisms that are broken, not merely wrong: each fails a gate that says what is broken and where."""

import re
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from rich.console import Console

from paribus.checking import gate_table, run_jobs
from paribus.errors import MechanismError, PairCheckError
from paribus.experiment.gate import Gate, Job, crash
from paribus.experiment.gates import gates, planned_gates
from paribus.experiment.law_gates import LONGEST_ROW, bench_of, law_gate, row_of
from paribus.experiment.step_zero import FINITE, FLOAT32, PROBE_GATES, SCALE, WRITTEN
from paribus.experiment.training_gates import GRADIENT, RESUMED
from paribus.mechanisms.contract import Law
from paribus.mechanisms.laws import Located
from paribus.model.lawbench import LawBench

CAUSAL = "a token changes no earlier logit, bit for bit"
ROWS = "a row changes no logit of another row, bit for bit"

MAP = '''
"""An output map."""

import torch
from torch import nn

from paribus.mechanisms.contract import MechanismConfig, Seam


class Map(nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, y, values, document):
        {body}


class MapConfig(MechanismConfig):
    name = "map"
    seam = Seam.OUTPUT_MAP

    def build(self, geometry, layer):
        return Map(layer)
'''

ROUTING = '''
"""Block Attention Residuals whose sources lose half their bits."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from paribus.kernels.depth_read import Source
from paribus.mechanisms.attention_residuals import BlockAttentionResiduals, BlockResiduals
from paribus.mechanisms.contract import Seam
from paribus.mechanisms.depth.reads import Memory


def half(source):
    return Source(source.value.bfloat16(), source.inverse_rms)


class Narrow(BlockResiduals):
    {methods}


class NarrowConfig(BlockAttentionResiduals):
    name = "narrow"
    seam = Seam.ROUTING

    def build(self, geometry, layer):
        return Narrow(geometry, self.layout(geometry), self.attention_plan(), self.mlp_plan())
'''

OPENS_NARROW = """
    def open(self, x0):
        [first] = super().open(x0).finished
        return Memory((half(first),), None)

    def write(self, memory, delta, layer, site):
        wide = Memory(tuple(Source(s.value.float(), s.inverse_rms) for s in memory.finished), memory.running)
        return super().write(wide, delta, layer, site)
"""
WRITES_NARROW = """
    def write(self, memory, delta, layer, site):
        memory = super().write(memory, delta, layer, site)
        return Memory(memory.finished, None if memory.running is None else half(memory.running))
"""

Tried = Callable[[str, str], dict[str, Gate]]


@pytest.fixture
def tried(resolve, register, tiny: str) -> Tried:
    """The gates, by name, of an arm of rows of 128 whose mechanism is registered from a source: (source, its table)."""

    def run(source: str, table: str) -> dict[str, Gate]:
        register(f"broken_{zlib.crc32(source.encode())}", source)
        text = tiny.replace("context_length = 32", "context_length = 128")
        experiment, arms = resolve(text.replace('output_map = { name = "xsa", strength = 1.0 }', table))
        return {gate.name: gate for gate in gates(experiment, {k: arm for k, arm in arms.items() if k[1] == "xsa"})}

    return run


def mapped(body: str) -> tuple[str, str]:
    return MAP.replace("{body}", body), 'output_map = { name = "map" }'


def failed(found: dict[str, Gate]) -> set[str]:
    return {name for name, gate in found.items() if not gate.passed}


@pytest.mark.parametrize("distance", [16, 100])
def test_looking_far_ahead_is_caught_on_rows_as_long_as_the_studys(tried: Tried, distance: int):
    ahead = f"z = y.clone(); z[:, :-{distance}] += 0.5 * values.aggregated[:, {distance}:]; return z"
    found = tried(*mapped(ahead))
    assert failed(found) == {CAUSAL}
    said = re.match(r"the token at (\d+) changes the logits at (\d+) \(", found[CAUSAL].detail)
    assert said is not None
    assert int(said[1]) - int(said[2]) == distance
    assert found[ROWS].detail.startswith("exact on rows of 128 positions; broken by: ")


def test_rows_of_the_gates_are_as_long_as_the_studys_up_to_a_limit(resolve, tiny: str):
    _, arms = resolve(tiny)
    arm = arms["tiny", "standard"]
    lengths = {
        context: row_of(replace(arm, model=arm.model.model_copy(update={"context_length": context})))
        for context in (2, 32, 256, 4096)
    }
    assert lengths == {2: 12, 32: 32, 256: 256, 4096: LONGEST_ROW}
    assert bench_of(arm).tokens.shape == (2, 32)
    assert bench_of(arm).config.context_length == 32


def test_arms_of_equal_wiring_on_longer_rows_are_shown_again(resolve, tiny: str):
    experiment, arms = resolve(tiny)
    arm = arms["tiny", "standard"]
    longer = replace(arm, model=arm.model.model_copy(update={"context_length": 64}))
    jobs = planned_gates(experiment, {("tiny", "standard"): arm, ("long", "standard"): longer})
    assert [job.subject for job in jobs if isinstance(job, Job) and job.name == CAUSAL] == [
        "tiny/standard",
        "long/standard",
    ]


def test_values_averaged_over_the_batch_are_caught(tried: Tried):
    found = tried(*mapped("return y - values.aggregated.mean(0, keepdim=True)"))
    assert failed(found) == {ROWS}
    assert re.match(r"the token at (\d+) of row 1 changes the logits at \1 of row 0 \(", found[ROWS].detail)


@pytest.mark.parametrize(
    ("methods", "said"),
    [
        (OPENS_NARROW, "torch.bfloat16 kept before layer 0 (open)"),
        (WRITES_NARROW, "torch.bfloat16 kept after layer 0, attention"),
    ],
    ids=["when it opens", "when it writes"],
)
def test_depth_sources_kept_in_bfloat16_are_caught_although_reads_are_float32(tried: Tried, methods: str, said: str):
    found = tried(ROUTING.replace("    {methods}", methods), 'routing = { name = "narrow", blocks = 2 }')
    assert (found[FLOAT32].passed, found[FLOAT32].detail) == (False, said)


@pytest.mark.parametrize("kept", ["[{t}]", "{{'a': ({t},)}}", "Held({t})", "Named(1, {t})"])
def test_sources_are_found_however_a_routing_keeps_them(tried: Tried, kept: str):
    methods = f"""
    def open(self, x0):
        return super().open(x0), {kept.format(t="x0.bfloat16()").replace("{{", "{").replace("}}", "}")}

    def read(self, memory, *rest):
        return super().read(memory[0], *rest)

    def write(self, memory, *rest):
        return super().write(memory[0], *rest), memory[1]

    def close(self, memory, tap):
        return super().close(memory[0], tap)


@dataclass(frozen=True)
class Held:
    tensor: Any


class Named(NamedTuple):
    count: int
    tensor: Any
"""
    found = tried(ROUTING.replace("    {methods}", methods), 'routing = { name = "narrow", blocks = 2 }')
    assert failed(found) == {FLOAT32}


def test_the_first_tensor_that_is_not_finite_is_named_and_norms_are_not_blamed(tried: Tried):
    found = tried(*mapped("return y * torch.nan if self.layer == 1 else y"))
    assert next(iter(found)) == FINITE
    assert found[FINITE].detail.startswith("'z' of layer 1, attention output, is not finite (")
    assert found[SCALE].detail == "the read of layer 1, mlp is not finite: nothing can be said of its scale"
    assert found[GRADIENT].detail.startswith("gradient of embedding is not finite in update 1; ")
    assert "no gradient" not in found[GRADIENT].detail
    assert "is not a number" in found[RESUMED].detail
    assert found[CAUSAL].detail == "not a number, on the mechanism as it is: nothing can be shown"
    assert found[WRITTEN].passed


def test_an_infinite_gradient_of_a_finite_loss_does_not_count_as_reached(tried: Tried):
    # sqrt has no slope at zero: the outputs are finite, the gradient is not.
    found = tried(*mapped("return y + (y - y.detach()).abs().sqrt()"))
    assert found[FINITE].passed
    assert not found[GRADIENT].passed
    assert found[GRADIENT].detail.startswith("gradient of embedding is not finite in update 1")


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("raise KeyError('strength')", "KeyError: 'strength' ("),
        ("return torch.einsum('bt,bt->b', y, y)", "RuntimeError: einsum()"),
        ("return None", "Map of layer 0 returned what the backbone cannot use; expected [batch time kv_head group"),
        ("return y.flatten(2)", "received [2, 32, 32], torch.float32"),
        ("return y.double()", "torch.float64"),
    ],
)
def test_a_mechanism_that_crashes_fails_its_gates_with_error_and_line(tried: Tried, body: str, said: str):
    source, table = mapped(body)
    found = tried(source, table)
    assert {*PROBE_GATES, GRADIENT, RESUMED, CAUSAL} <= failed(found)
    assert said in found[FINITE].detail
    assert "Traceback" not in found[FINITE].detail
    if "returned" not in found[FINITE].detail:
        line = source.splitlines().index(f"        {body}") + 1
        assert found[FINITE].detail.endswith(f".py:{line})")
        assert "broken_" in found[FINITE].detail


def test_a_crash_inside_a_law_of_the_mechanism_is_a_failed_gate(tried: Tried):
    source, table = mapped("return y")
    law = "LAWS = (Law('it holds', lambda bench, perturbed: 1 / 0, 'nothing', 0.0, 'never'),)"
    found = tried(source.replace("import MechanismConfig", "import Law, MechanismConfig") + law, table)
    assert failed(found) == {"it holds"}
    assert found["it holds"].detail.startswith("ZeroDivisionError: division by zero (")


def test_the_pair_check_still_raises(resolve, tiny: str):
    experiment, arms = resolve(tiny)
    other = dict(arms)
    block = arms["tiny", "block"]
    other["tiny", "block"] = replace(block, base=block.base.model_copy(update={"batch_tokens": 1024}))
    with pytest.raises(PairCheckError):
        run_jobs(planned_gates(experiment, other)[:1], Console())


def test_an_interrupt_is_not_a_failed_gate():
    def interrupted() -> Gate:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_jobs([Job("a gate", "tiny/arm", interrupted)], Console())


def test_an_error_of_ours_is_said_in_one_line_with_what_was_expected():
    error = MechanismError("it is wrong", expected="[2]", received="[3]", remedy="mend it")
    with pytest.raises(MechanismError) as caught:
        raise error
    assert crash(caught.value).startswith("it is wrong; expected [2]; received [3]")


def test_a_crash_under_a_mechanism_is_placed_in_the_mechanisms_file():
    with pytest.raises(IndexError) as caught:
        torch.nn.Sequential()[3]
    place = crash(caught.value).rpartition("(")[2]
    assert place.startswith(str(Path(__file__).relative_to(Path.cwd())))


def of_law(found: float, perturbed: float) -> str:
    measured = Law("a law", lambda _, is_perturbed: perturbed if is_perturbed else found, "a push", 0.5, "a half")
    return law_gate("a module", measured, LawBench()).detail


def test_what_a_law_gate_says_fits_what_failed():
    nan = float("nan")
    assert of_law(0.25, 1.0) == "2.5e-01 (bound 5.0e-01); 1.0e+00 when perturbed: a push"
    assert of_law(0.75, 1.0) == "does not hold: 7.5e-01 (bound 5.0e-01)"
    assert of_law(Located(0.75, "here it is"), 1.0) == "here it is"
    blind = "the check cannot fail: 1.0e-01, within the bound, when perturbed: a push"
    assert of_law(0.25, 0.1) == f"2.5e-01 (bound 5.0e-01), but {blind}"
    assert of_law(0.75, 0.1) == f"does not hold: 7.5e-01 (bound 5.0e-01); and {blind}"
    assert of_law(nan, nan) == of_law(nan, 1.0) == "not a number, on the mechanism as it is: nothing can be shown"
    assert of_law(0.25, nan).endswith("but the check cannot fail: not a number when perturbed: a push")


def test_the_laws_of_what_a_mechanism_extends_are_shown_too(resolve, tiny: str):
    experiment, arms = resolve(tiny)
    jobs = planned_gates(experiment, {key: arm for key, arm in arms.items() if key[1] == "rd"})
    assert {"role_decoupled", "attention_residuals"} <= {job.subject for job in jobs if isinstance(job, Job)}


def test_the_only_arm_is_called_by_its_name():
    [subject] = list(gate_table([Gate("written", "tiny/a", True, "all")]).columns[2].cells)
    assert subject == "tiny/a"
    [subject] = list(gate_table([Gate("w", f"tiny/{arm}", True, "all") for arm in "ab"]).columns[2].cells)
    assert subject == "all 2 arms"
