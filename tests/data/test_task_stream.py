"""A task in the place of a corpus: batches by step, held-out rows, digests."""

import subprocess
import sys

import numpy as np
import pytest

from paribus.data import tasks
from paribus.data.held_out import HeldOut
from paribus.data.material import batches_of, held_out_of
from paribus.data.split import Split
from paribus.data.tasks.contract import sample
from paribus.data.tasks.steps import MOST_STEPS
from paribus.data.tasks.stream import (
    HELD_OUT_ROWS_PER_STEP,
    HELD_OUT_TOKENS,
    TaskBatch,
    TaskCorpus,
    TaskOrder,
)
from paribus.errors import CorpusError
from paribus.seeds import stream_key

ROWS, LENGTH = 6, 32
KEY = stream_key("study", "S", 0, "order", "task")
"""of the rows of study "study", scale "S", seed 0"""


def corpus(name: str = "twin", length: int = LENGTH, **knobs: int) -> TaskCorpus:
    return TaskCorpus(tasks.resolve(name, {**knobs}, "corpus"), length)


def order(of: TaskCorpus | None = None, study: str = "study", scale: str = "S", seed: int = 0) -> TaskOrder:
    found = batches_of(of or corpus(), LENGTH, ROWS, study=study, scale=scale, seed=seed)
    assert isinstance(found, TaskOrder)
    return found


def held_out(
    split: Split = "test",
    tokens: int | None = None,
    of: TaskCorpus | None = None,
    study: str = "study",
    scale: str = "S",
    seed: int = 0,
) -> HeldOut:
    return held_out_of(of or corpus(), split, tokens, LENGTH, study=study, scale=scale, seed=seed)


def same(left: TaskBatch, right: TaskBatch) -> bool:
    return all(np.array_equal(getattr(left, name), getattr(right, name)) for name in vars(left))


def test_a_batch_is_the_same_whatever_was_asked_before():
    forward, backward = order(), order()
    steps = [0, 1, 31, 32, 33, 100]
    first = {step: forward.batch(step) for step in steps}
    again = {step: backward.batch(step) for step in reversed(steps)}
    assert all(same(first[step], again[step]) for step in steps)
    assert not same(first[0], first[1])


def test_a_batch_holds_the_rows_of_the_task_and_their_floor():
    of = corpus("chain")
    batch = order(of).batch(37)
    rows = sample(of.task, KEY, 37, ROWS, LENGTH)
    assert np.array_equal(batch.tokens, rows.tokens)
    assert np.array_equal(batch.targets, rows.targets)
    assert np.array_equal(batch.weight > 0, rows.asked)
    assert np.array_equal(batch.floor_nats, rows.floor_nats)
    assert batch.weight.dtype == np.float32


@pytest.mark.parametrize(("study", "scale", "seed"), [("other", "S", 0), ("study", "M", 0), ("study", "S", 1)])
def test_study_scale_and_seed_each_have_rows_of_their_own(study: str, scale: str, seed: int):
    assert not same(order().batch(0), order(study=study, scale=scale, seed=seed).batch(0))
    assert not set(held_out().unit) & set(held_out(study=study, scale=scale, seed=seed).unit)


def test_no_held_out_row_is_trained_on_nor_shared_by_the_splits():
    def rows_of(found: HeldOut) -> set[bytes]:
        return {row.tobytes() for batch in found.batches(10_000) for row in batch.tokens}

    trained = {row.tobytes() for step in range(200) for row in order().batch(step).tokens}
    test, validation = rows_of(held_out("test")), rows_of(held_out("validation"))
    assert len(test) == len(validation) == HELD_OUT_TOKENS // LENGTH
    assert not test & validation
    assert not trained & (test | validation)


def test_units_are_the_slices_of_the_rows_and_partition_the_targets():
    found = held_out()
    counted = np.zeros(len(found.unit), dtype=np.int64)
    for batch in found.batches(100):
        assert batch.unit is not None
        asked = batch.weight > 0
        np.add.at(counted, batch.unit[asked], 1)
        for unit, part in zip(batch.unit[asked].tolist(), batch.slice[asked].tolist(), strict=True):
            assert found.source[unit] == found.slices[part]
    assert np.array_equal(counted, found.tokens)
    assert len(set(found.unit)) == len(found.unit)
    assert all(name.endswith(f":{source}") for name, source in zip(found.unit, found.source, strict=True))
    assert found.bytes is None


def test_the_floor_of_the_units_is_that_of_their_targets():
    of = corpus("chain")
    found = held_out(of=of)
    assert found.floor_nats is not None
    batch_floor = sum(
        sample(of.task, KEY, 2 * MOST_STEPS + step, HELD_OUT_ROWS_PER_STEP, LENGTH).floor_nats.sum()
        for step in range(HELD_OUT_TOKENS // LENGTH // HELD_OUT_ROWS_PER_STEP)
    )
    # Sums of the same float64 numbers in another order: 512 rows of 32 numbers below 10.
    assert found.floor_nats.sum() == pytest.approx(batch_floor, rel=1e-12)


def test_a_number_of_inputs_is_reached_by_whole_rows():
    one, many = held_out(tokens=1), held_out(tokens=400)
    assert one.documents == 1
    assert many.documents == -(-400 // LENGTH)
    assert many.unit[: len(one.unit)] == one.unit


def test_a_step_outside_the_stream_is_refused():
    with pytest.raises(CorpusError, match="no such step"):
        order().batch(-1)
    with pytest.raises(CorpusError, match="no such step"):
        order().batch(MOST_STEPS)
    with pytest.raises(CorpusError, match="too many steps"):
        order().require(MOST_STEPS + 1)
    order().require(MOST_STEPS)


def test_the_digest_is_of_the_declaration_and_of_the_rows():
    digests = {corpus().digest, corpus(length=64).digest, corpus(colours=4).digest, corpus("tally").digest}
    assert len(digests) == 4
    assert corpus().digest == corpus(colours=8).digest  # a default that is written out selects nothing else


def test_the_digest_is_the_same_in_another_process():
    code = (
        "from paribus.data import tasks\nfrom paribus.data.tasks.stream import TaskCorpus\n"
        f"print(TaskCorpus(tasks.resolve('twin', {{}}, 'corpus'), {LENGTH}).digest)"
    )
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert other.stdout.strip() == corpus().digest
