"""Gates of one forward pass: a table of sources that is not the wiring is caught and the read is named."""

from dataclasses import replace

import pytest
import torch

from paribus.experiment.step_zero import Probe, Read, dtype_gate, effective_eps_gate, routing_table_gate, written_gate

READS = [(0, "attention"), (0, "mlp"), (1, "output")]


def probe(
    listed: list[tuple[int, str, list[str]]],
    mixed: dict[tuple[int, str], int] | None = None,
    reads: tuple[Read, ...] = (),
    unwritten: tuple[str, ...] = (),
) -> Probe:
    table = tuple({"layer": layer, "site": site, "sources": sources} for layer, site, sources in listed)
    return Probe(unwritten, reads, tuple(READS), mixed or {}, table)


COMPLETE = [(0, "attention", ["embedding"]), (0, "mlp", ["embedding", "sum"]), (1, "output", ["embedding", "sum"])]


def test_a_table_that_names_every_read_once_with_its_sources_passes():
    gate = routing_table_gate("tiny/arm", probe(COMPLETE, {(0, "attention"): 1, (0, "mlp"): 2, (1, "output"): 2}))
    assert gate.passed, gate.detail
    assert gate.detail == "3 reads, 3 of them depth mixes"


@pytest.mark.parametrize(
    ("listed", "mixed", "said"),
    [
        (COMPLETE[:2], {}, "the output read is not listed"),
        (COMPLETE[1:], {}, "the attention read of layer 0 is not listed"),
        ([*COMPLETE, COMPLETE[1]], {}, "the mlp read of layer 0 is listed 2 times"),
        ([*COMPLETE, (1, "mlp", ["x"])], {}, "the mlp read of layer 1 is listed, but nothing reads there"),
        ([COMPLETE[1], COMPLETE[0], COMPLETE[2]], {}, "reads are listed in another order than they happen"),
        (COMPLETE, {(0, "mlp"): 3}, "the mlp read of layer 0 lists 2 sources (embedding, sum) but mixes 3"),
        ([*COMPLETE[:2], (1, "output", ["sum", "sum"])], {}, "the output read lists a source twice (sum, sum)"),
    ],
    ids=["no output", "no attention", "twice", "too many", "out of order", "too few sources", "same source"],
)
def test_a_table_that_is_not_the_wiring_fails_and_names_the_read(
    listed: list[tuple[int, str, list[str]]], mixed: dict[tuple[int, str], int], said: str
):
    gate = routing_table_gate("tiny/arm", probe(listed, mixed))
    assert not gate.passed
    assert said in gate.detail


def test_a_read_in_another_type_is_named():
    reads = (Read(0, "attention", 1e-6, torch.float32), Read(1, "mlp", 1e-6, torch.bfloat16))
    gate = dtype_gate("tiny/arm", probe(COMPLETE, reads=reads))
    assert (gate.passed, gate.detail) == (False, "torch.bfloat16 read by layer 1, mlp")
    assert dtype_gate("tiny/arm", probe(COMPLETE, reads=reads[:1])).passed


def test_what_is_kept_in_another_type_is_named_although_reads_are_float32():
    reads = (Read(0, "attention", 1e-6, torch.float32),)
    found = replace(probe(COMPLETE, reads=reads), kept=(("open", torch.float32), ("after it", torch.float16)))
    gate = dtype_gate("tiny/arm", found)
    assert (gate.passed, gate.detail) == (False, "torch.float16 kept after it")


def test_a_read_that_is_not_finite_is_not_blamed_on_eps():
    reads = (Read(0, "attention", 1e-6, torch.float32), Read(1, "mlp", float("nan"), torch.float32))
    gate = effective_eps_gate("tiny/arm", probe(COMPLETE, reads=reads))
    assert not gate.passed
    assert gate.detail == "the read of layer 1, mlp is not finite: nothing can be said of its scale"


def test_the_worst_read_decides_on_scale_invariance():
    reads = (Read(0, "attention", 1e-6, torch.float32), Read(2, "output", 2e-3, torch.float32))
    gate = effective_eps_gate("tiny/arm", probe(COMPLETE, reads=reads))
    assert not gate.passed
    assert gate.detail.startswith("eps K^2 / rms^2 at most 2.0e-03 (the output), limit 1e-03")
    assert effective_eps_gate("tiny/arm", probe(COMPLETE, reads=reads[:1])).passed


def test_tensors_without_a_value_are_named():
    gate = written_gate("tiny/arm", probe(COMPLETE, unwritten=("a.b", "c")))
    assert (gate.passed, gate.detail) == (False, "never written: a.b, c")
