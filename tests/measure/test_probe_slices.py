"""Readings of a task: means over the places that are asked, slice by slice, against loops; nothing else enters."""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from paribus import measuring
from paribus.data.tasks.cross import Cross
from paribus.data.tasks.stream import TaskCorpus, held_out_rows
from paribus.data.tasks.tally import Tally
from paribus.data.tasks.twin import Twin
from paribus.measure.probes import Asked, Scoring, probe
from paribus.measuring import probing_batches
from paribus.mechanisms.contract import Diagnostic, Tap
from paribus.seeds import generator
from paribus.train.step import Consumed

SLICES = ("first", "second", "empty")
ROWS, TIME = 9, 11


class Shown(nn.Module):
    """Shows a value that it was given for each token id at layer 0, and twice of it at layer 1."""

    def __init__(self, value: Tensor) -> None:
        super().__init__()
        self.value = value

    def forward(self, tokens: Tensor, document: Tensor, tap: Tap | None = None) -> Tensor:
        del document
        if tap is not None:
            for layer in (0, 1):
                tap("here", layer, x=(layer + 1) * self.value[tokens])
        return tokens


def itself(tapped: Mapping[str, Tensor], weight: Tensor) -> Mapping[str, Tensor]:
    del weight
    return {"x": tapped["here/x"], "x^2": tapped["here/x"].square()}


def deviation(means: Mapping[str, float]) -> Mapping[str, float]:
    return {"sd": math.sqrt(means["x^2"] - means["x"] ** 2)}


PLAIN = Diagnostic(name="d", title="", sentence="", unit="", sites=("here",), observe=itself)
BY_POSITION = replace(PLAIN, by_bucket=True)
DERIVED = replace(PLAIN, derive=deviation)

DRAW = generator("tests", "probe slices")
VALUES = torch.from_numpy(DRAW.normal(size=ROWS * TIME))
IDS = torch.arange(ROWS * TIME).unflatten(0, (ROWS, TIME))
"""every place has a token of its own, hence a value of its own"""
ASKED = torch.from_numpy(DRAW.random((ROWS, TIME)) < 0.5)
SLICE = torch.from_numpy(DRAW.integers(0, 2, (ROWS, TIME)))
DOCUMENT = np.array([0, 0, 1, 2, 3, 3, 3, 4, 4])


def batches(asked: Tensor = ASKED, part: Tensor = SLICE, document: np.ndarray = DOCUMENT) -> list[Scoring]:
    """Two batches of unequal size; places that nobody asks about belong to slice 0, as a task has it."""
    whole = Consumed(IDS, IDS, asked.float(), torch.zeros_like(IDS), torch.where(asked, part, 0))
    return [(whole.rows(0, 6), document[:6]), (whole.rows(6, ROWS), document[6:])]


def naive(bucket: str) -> list[tuple[float, int]]:
    """The values that count, one by one, with the document of each."""
    return [
        (float(VALUES[IDS[row, place]]), int(DOCUMENT[row]))
        for row in range(ROWS)
        for place in range(1, TIME)
        if ASKED[row, place] and (bucket == "all" or SLICES[int(SLICE[row, place])] == bucket)
    ]


@pytest.mark.parametrize("diagnostic", [PLAIN, BY_POSITION], ids=["over all positions", "by position"])
def test_a_reading_of_a_slice_is_the_mean_of_a_loop_over_its_targets(diagnostic: Diagnostic):
    readings = probe(Shown(VALUES), batches(), [diagnostic], SLICES)
    found = {(r.layer, r.group, r.bucket): r for r in readings}
    assert {bucket for _, _, bucket in found} == {"all", "first", "second"}, "a slice without a target has no reading"
    for layer in (0, 1):
        for bucket in ("all", "first", "second"):
            values = [(layer + 1) * value for value, _ in naive(bucket)]
            # Sums of about 50 numbers of size one in float64, in two orders.
            assert found[layer, "x", bucket].value == pytest.approx(math.fsum(values) / len(values), abs=1e-14)
            squares = math.fsum(value**2 for value in values) / len(values)
            assert found[layer, "x^2", bucket].value == pytest.approx(squares, rel=1e-14)
            assert found[layer, "x", bucket].documents == len({document for _, document in naive(bucket)})


@pytest.mark.parametrize("diagnostic", [PLAIN, DERIVED], ids=["a mean", "derived from means"])
def test_errors_of_a_slice_are_those_of_leaving_out_each_document(diagnostic: Diagnostic):
    found = {(r.layer, r.group, r.bucket): r for r in probe(Shown(VALUES), batches(), [diagnostic], SLICES)}
    group = "x" if diagnostic is PLAIN else "sd"
    for bucket in ("all", "first", "second"):
        documents = sorted({document for _, document in naive(bucket)})
        left = [[value for value, of in naive(bucket) if of != document] for document in documents]
        without = np.array([np.std(values) if group == "sd" else np.mean(values) for values in left])
        share = (len(documents) - 1) / len(documents)
        expected = math.sqrt(share * float(((without - without.mean()) ** 2).sum()))
        assert found[0, group, bucket].standard_error == pytest.approx(expected, rel=1e-9)


def test_what_stands_where_nothing_is_asked_never_enters():
    poisoned = VALUES.clone()
    poisoned[IDS[~ASKED]] = math.nan
    poisoned[IDS[:, 0]] = math.nan
    clean, dirty = (probe(Shown(values), batches(), [PLAIN, DERIVED], SLICES) for values in (VALUES, poisoned))
    assert [r.value for r in clean] == [r.value for r in dirty]
    other = batches(part=torch.where(ASKED, SLICE, 1))
    assert probe(Shown(VALUES), other, [PLAIN], SLICES) == probe(Shown(VALUES), batches(), [PLAIN], SLICES)


def test_slices_share_out_the_targets():
    found = {(r.layer, r.group, r.bucket): r.value for r in probe(Shown(VALUES), batches(), [PLAIN], SLICES)}
    number = {name: len(naive(name)) for name in ("all", "first", "second")}
    assert number["first"] + number["second"] == number["all"]
    together = sum(found[0, "x", name] * number[name] for name in ("first", "second")) / number["all"]
    assert together == pytest.approx(found[0, "x", "all"], abs=1e-14)


def test_without_named_slices_a_batch_is_read_by_position_whatever_its_slices():
    bare = [(Consumed(b.tokens, b.targets, b.weight, b.document), d) for b, d in batches()]
    for diagnostic in (PLAIN, BY_POSITION):
        assert probe(Shown(VALUES), batches(), [diagnostic]) == probe(Shown(VALUES), bare, [diagnostic])
    assert {r.bucket for r in probe(Shown(VALUES), batches(), [BY_POSITION])} == {"all", "1-15"}


@pytest.mark.parametrize(
    ("corpus", "token_of"),
    [
        (TaskCorpus(Cross(), 32), lambda token, deep: np.where(deep, token, token + 16 + 32)),
        (TaskCorpus(Twin(), 24), lambda token, _: token % 8),
    ],
    ids=["cross", "twin"],
)
def test_the_batches_of_a_task_say_where_each_answer_stands(
    corpus: TaskCorpus, token_of: Callable[[np.ndarray, np.ndarray], np.ndarray], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(measuring, "EVALUATION_TOKENS", 3 * corpus.row_length)
    held_out = held_out_rows(corpus, "validation", 200, study="s", scale="S", seed=0)
    read = list(probing_batches(held_out, torch.device("cpu")))
    assert len(read) > 1
    for batch, _ in read:
        assert isinstance(batch, Asked)
        assert batch.answer is not None
        assert batch.slice is not None
        assert ((batch.answer >= 0) == (batch.weight > 0)).all()
        asked = (batch.weight > 0).numpy()
        token = np.take_along_axis(batch.tokens.numpy(), np.maximum(batch.answer.numpy(), 0), axis=1)
        told = token_of(token, batch.slice.numpy() == 0)
        assert np.array_equal(told[asked], batch.targets.numpy()[asked])


def test_every_target_of_a_task_but_those_at_the_first_place_of_a_row_is_read_in_its_slice():
    corpus = TaskCorpus(Tally(), 16)
    held_out = held_out_rows(corpus, "validation", 150, study="s", scale="S", seed=0)
    read = list(probing_batches(held_out, torch.device("cpu")))
    readings = probe(Shown(torch.arange(corpus.vocabulary_size).double()), read, [PLAIN], held_out.slices)
    found = {r.bucket: r.value for r in readings if (r.layer, r.group) == (0, "x")}
    of_slice: dict[str, list[int]] = {}
    for batch, _ in read:
        assert batch.slice is not None
        for row, place in torch.nonzero(batch.weight).tolist():
            if place:
                of_slice.setdefault(held_out.slices[int(batch.slice[row, place])], []).append(
                    int(batch.tokens[row, place])
                )
    assert set(of_slice) == set(held_out.slices)
    assert {name: found[name] for name in held_out.slices} == {name: np.mean(of_slice[name]) for name in of_slice}
    assert list(found) == ["all", *held_out.slices]
