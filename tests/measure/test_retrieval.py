"""Attention on the answer: planted heads, a loop over pairs in float64, and the rows that a study keeps of it."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from paribus.data.frozen import FrozenCorpus
from paribus.data.held_out import HeldOut
from paribus.data.material import Material, held_out_of
from paribus.data.split import Split
from paribus.data.tasks.cross import Cross
from paribus.data.tasks.stream import TaskCorpus
from paribus.experiment import spec
from paribus.measure import retrieval
from paribus.measure.probes import Asked, Reading, Scoring, probe
from paribus.measure.retrieval import ANSWER_MASS, LARGEST_HEAD, answer_masses
from paribus.measuring import measure, probing_batches
from paribus.mechanisms.contract import Diagnostic, Tap
from paribus.mechanisms.depth.diagnostics import OF_EVERY_ROUTING
from paribus.model.lawbench import LawBench
from paribus.runs.folder import CellFolder
from paribus.seeds import generator
from paribus.train.loop import MilestoneReached
from paribus.train.step import Consumed

TIME, FAR = 8, 40.0
"""FAR: a score so much above the others that exp(-FAR) is below the rounding of a float32 weight"""
ANSWER = torch.tensor([[-1, 0, 1, 0, 3, -1, 2, 7], [-1, -1, 0, 2, 2, 4, 1, 0]])
"""the last place of row 0 is its own answer"""
SLICE = torch.tensor([[0, 0, 0, 0, 1, 1, 1, 1], [0, 0, 0, 0, 1, 1, 1, 1]])


class Planted(nn.Module):
    """Layer 0: two heads that attend evenly. Layer 1: the second head attends to the answer alone."""

    def forward(self, tokens: Tensor, document: Tensor, tap: Tap | None = None) -> Tensor:
        del document
        if tap is not None:
            even = torch.zeros(*tokens.shape, 2, TIME)
            keys = torch.eye(TIME).expand(len(tokens), TIME, TIME)[:, :, None]  # one key-value head: a shared key
            to_answer = FAR * TIME**0.5 * nn.functional.one_hot(tokens.clamp_min(0), TIME)
            tap("attention", 0, q=even, k=keys)
            tap("attention", 1, q=torch.stack([torch.zeros_like(to_answer), to_answer], 2), k=keys)
        return tokens


def planted() -> Scoring:
    """The model is told the answers as its tokens."""
    weight = (ANSWER != -1).float()
    weight[1, 1] = 1.0  # asked, but no single place answers it
    read = Consumed(ANSWER, ANSWER, weight, torch.zeros_like(ANSWER), SLICE)
    return Asked.of(read, ANSWER), np.arange(2)


def test_a_planted_head_has_all_of_its_mass_on_the_answer_and_an_even_one_its_share():
    readings = probe(Planted(), [planted()], [ANSWER_MASS], ("early", "late"))
    found = {(r.layer, r.group, r.bucket): r.value for r in readings}
    for bucket, late in (("all", (0, 1)), ("early", (0,)), ("late", (1,))):
        shares = [
            1 / (place + 1)
            for row in range(2)
            for place in range(1, TIME)
            if ANSWER[row, place] >= 0 and int(SLICE[row, place]) in late
        ]
        even = sum(shares) / len(shares)
        assert found[1, "head:1", bucket] == found[1, LARGEST_HEAD, bucket] == pytest.approx(1.0, abs=1e-6)
        # A softmax over at most 8 equal scores in float32.
        assert found[1, "head:0", bucket] == pytest.approx(even, abs=1e-6)
        assert found[1, "mean over heads", bucket] == pytest.approx((1 + even) / 2, abs=1e-6)
        assert found[0, LARGEST_HEAD, bucket] == pytest.approx(even, abs=1e-6)


def test_a_slice_whose_targets_have_no_single_answer_has_no_mass():
    (batch, document) = planted()
    assert isinstance(batch, Asked)
    assert batch.answer is not None
    none = Asked.of(batch, torch.where(SLICE == 1, -1, batch.answer))
    found = {(r.layer, r.bucket): r.value for r in probe(Planted(), [(none, document)], [ANSWER_MASS], ("a", "b"))}
    assert {bucket for _, bucket in found} == {"all", "a"}
    assert found[1, "all"] == found[1, "a"]


def naive_mass(q: NDArray, k: NDArray, allowed: NDArray | None, answer: NDArray) -> NDArray[np.float64]:
    """[row time head] from the definition, one pair at a time, in float64."""
    rows, time, heads, width = q.shape
    group = heads // k.shape[2]
    found = np.zeros((rows, time, heads))
    for row in range(rows):
        for t in range(time):
            s = int(answer[row, t])
            seen = [j for j in range(time) if (j <= t if allowed is None else bool(allowed[row, t, j]))]
            if s < 0 or s not in seen:
                continue
            for head in range(heads):
                scores = [float(q[row, t, head] @ k[row, j, head // group]) / width**0.5 for j in seen]
                exponentials = [math.exp(score) for score in scores]
                found[row, t, head] = exponentials[seen.index(s)] / math.fsum(exponentials)
    return found


ARMS: dict[str, dict[str, dict[str, Any]]] = {
    "plain": {},
    "document mask": {"mask": {"name": "document"}},
    "nobody attends to itself": {"mask": {"name": "diagonal-mask"}},
    "nobody, within documents": {"mask": {"name": "diagonal-mask", "within_document": True}},
}


@pytest.mark.parametrize("scores_at_once", [1, 2**24])
@pytest.mark.parametrize("group", [1, 3])
@pytest.mark.parametrize("arm", ARMS.values(), ids=ARMS)
def test_the_mass_on_the_answer_is_that_of_a_loop_over_pairs(
    arm: Mapping[str, Mapping[str, Any]], group: int, scores_at_once: int, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(retrieval, "SCORES_AT_ONCE", scores_at_once)
    bench = LawBench(layers=2, query_heads_per_kv_head=group)
    # Every place, its own included, places that come later or belong to another document, and none.
    answer = torch.from_numpy(generator("tests", "answers").integers(-1, 12, bench.tokens.shape))
    answer[:, -1] = 11
    seen: list[Mapping[str, Tensor]] = []

    def keep(site: str, layer: int, **tensors: Tensor) -> None:
        del layer
        if site == "attention":
            seen.append(tensors)

    with torch.no_grad():
        bench.logits(bench.model(arm), tap=keep)
    assert len(seen) == 2
    for layer in seen:
        allowed = layer.get("allowed")
        assert (allowed is None) == (not arm)
        found = answer_masses(layer["q"], layer["k"], allowed, answer).flatten(-2)
        q, k = (layer[name].double().numpy() for name in "qk")
        expected = naive_mass(q, k, None if allowed is None else allowed.numpy(), answer.numpy())
        assert (expected > 0).any()
        # Scores of at most 3 over 8 features and a sum of 12 exponentials, in float32.
        assert np.abs(found.double().numpy() - expected).max() < 1e-6
        if "diagonal-mask" in str(arm):
            assert not found[:, -1].any(), "attention to oneself where it is masked"


def reading(readings: list[Reading], group: str, bucket: str) -> Reading:
    (found,) = (r for r in readings if (r.group, r.bucket, r.layer) == (group, bucket, 1))
    return found


def test_the_largest_head_is_chosen_by_its_mean_and_not_place_by_place():
    q = torch.zeros(1, 4, 2, TIME)
    q[0, 1, 0, 0], q[0, 2, 1, 0] = FAR * TIME**0.5, FAR * TIME**0.5  # each head finds it once
    keys = torch.eye(4, TIME)[None, :, None]

    class Half(nn.Module):
        def forward(self, tokens: Tensor, document: Tensor, tap: Tap | None = None) -> Tensor:
            del document
            if tap is not None:
                tap("attention", 1, q=q, k=keys)
            return tokens

    ids, asked = torch.tensor([[0, 0, 0, 0]]), torch.tensor([[0.0, 1.0, 1.0, 0.0]])
    batch = Asked.of(Consumed(ids, ids, asked, ids, ids), torch.zeros_like(ids))
    readings = probe(Half(), [(batch, np.arange(1))], [ANSWER_MASS], ("only",))
    assert reading(readings, "head:0", "only").value == pytest.approx((1 + 1 / 3) / 2, abs=1e-6)
    assert reading(readings, "head:1", "only").value == pytest.approx((1 / 2 + 1) / 2, abs=1e-6)
    assert reading(readings, LARGEST_HEAD, "only").value == reading(readings, "head:1", "only").value


def test_the_model_sees_nothing_of_the_answers():
    bench = LawBench(layers=2)
    seen: list[Tensor] = []
    model = bench.model({})
    model.register_forward_hook(lambda *call: seen.append(call[-1]))
    ones = torch.ones_like(bench.tokens)
    read = Consumed(bench.tokens, bench.targets, ones.float(), bench.document, torch.zeros_like(ones))
    for answer in (torch.zeros_like(ones), ones):
        probe(model, [(Asked.of(read, answer), np.arange(2))], [ANSWER_MASS], ("only",))
    assert torch.equal(*seen)


LAST = MilestoneReached(step=20, tokens_seen=640, budget_tokens=640, final=True)


def kept(material: Material, folder: Path, diagnostics: tuple[Diagnostic, ...]) -> list[dict[str, Any]]:
    """Rows of the diagnostics that a finished cell of a small model keeps."""
    bench = LawBench(layers=2)
    bench.config = bench.config.model_copy(update={"vocabulary_size": material.vocabulary_size, "context_length": 32})
    model = bench.model({"routing": {"name": "role-decoupled", "blocks": 2}})

    def of(split: Split, tokens: int | None) -> HeldOut:
        return held_out_of(material, split, tokens, 32, study="s", scale="S", seed=0)

    evaluation = spec.Evaluation(test_tokens=64, validation_tokens=64, probe_tokens=64)
    cell = CellFolder(folder)
    list(measure(of, evaluation, cell, model, LAST, diagnostics, ()))
    return [row for name in cell.row_files("diagnostics") for row in cell.rows(name).to_pylist()]


def test_a_finished_cell_of_a_task_keeps_the_mass_by_layer_head_and_slice(tmp_path: Path):
    rows = kept(TaskCorpus(Cross(), 32), tmp_path, OF_EVERY_ROUTING)
    own = {(r["layer"], r["group"], r["bucket"]): r["value"] for r in rows if r["diagnostic"] == "answer_mass"}
    groups = ("mean over heads", "head:0", "head:1", LARGEST_HEAD)
    assert set(own) == {(layer, g, b) for layer in (0, 1) for g in groups for b in ("all", "QD", "QS")}
    for layer in (0, 1):
        for bucket in ("all", "QD", "QS"):
            mean, first, second, largest = (own[layer, group, bucket] for group in groups)
            assert mean == pytest.approx((first + second) / 2, abs=1e-7)  # the mean is taken in float32
            assert largest == max(first, second)
    # The other readings are kept by slice too, whether or not they are read by position in a text.
    assert {r["bucket"] for r in rows if r["diagnostic"] == "depth_embedding_mass_attention"} == {"all", "QD", "QS"}


def test_a_cell_whose_mechanisms_nobody_looks_at_and_a_text_keep_no_such_rows(tmp_path: Path, frozen: FrozenCorpus):
    assert kept(TaskCorpus(Cross(), 32), tmp_path / "a", ()) == []
    rows = kept(frozen, tmp_path / "b", OF_EVERY_ROUTING)
    assert rows
    assert "answer_mass" not in {row["diagnostic"] for row in rows}
    text = held_out_of(frozen, "test", None, 32, study="s", scale="S", seed=0)
    assert not any(isinstance(batch, Asked) for batch, _ in probing_batches(text, torch.device("cpu")))
