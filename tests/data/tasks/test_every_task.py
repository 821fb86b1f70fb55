"""What holds for every task, also for one that is added tomorrow: the registry says which there are."""

import json
import math
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import fields

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from paribus.data.tasks import tasks
from paribus.data.tasks.contract import ALL, Rows, Task, sample
from paribus.errors import CorpusError

MeanOnSlice = Callable[[NDArray[np.float64], NDArray[np.bool_]], tuple[float, float]]
NAMES = sorted(tasks())
INSTANCES = [(name, size) for name in NAMES for size in ("default", "tiny")]
SEED = 20_261
KINDS = {"tokens": np.int64, "targets": np.int64, "asked": np.bool_, "slice": np.int16, "floor_nats": np.float64}
KINDS |= {"answer": np.int64, "document": np.int32}

every_instance = pytest.mark.parametrize(("name", "size"), INSTANCES)
every_name = pytest.mark.parametrize("name", NAMES)


def instance(name: str, size: str) -> tuple[Task, int]:
    """The task and a row length: that of the tiny instance, or 64 places, more where the default knobs ask for more."""
    kind = tasks()[name]
    if size == "tiny":
        return kind.model_validate(dict(kind.tiny)), kind.tiny_row_length
    task = kind()
    return task, max(64, task.least_row_length)


def chosen(rows: Rows, index: NDArray[np.int64]) -> dict[str, NDArray]:
    return {field.name: getattr(rows, field.name)[index] for field in fields(Rows)}


def assert_same(left: dict[str, NDArray], right: dict[str, NDArray]) -> None:
    for field, values in left.items():
        np.testing.assert_array_equal(values, right[field], err_msg=field)


@every_instance
def test_a_row_is_what_the_contract_says(name: str, size: str) -> None:
    task, row_length = instance(name, size)
    drawn = sample(task, SEED, 0, 64, row_length)
    for field, kind in KINDS.items():
        values = getattr(drawn, field)
        assert values.dtype == kind, field
        assert values.shape == (64, row_length), field
    for field in ("tokens", "targets"):
        values = getattr(drawn, field)
        assert values.min() >= 0, field
        assert values.max() < task.vocabulary_size, field
    assert drawn.asked.any(axis=1).all(), "a row that asks for nothing"
    for field in ("targets", "slice"):
        assert (getattr(drawn, field)[~drawn.asked] == 0).all(), f"{field} where nothing is asked"
    assert np.isfinite(drawn.floor_nats).all()
    assert (drawn.floor_nats >= 0).all()
    place = np.arange(row_length)[None, :]
    assert (drawn.answer >= -1).all()
    assert (drawn.answer <= place).all(), "an answer that is read from a later place"
    assert (drawn.answer[~drawn.asked] == -1).all()
    assert (drawn.document[:, 0] == 0).all()
    assert np.isin(np.diff(drawn.document, axis=1), (0, 1)).all()


@every_instance
@settings(deadline=None, max_examples=10)
@given(data=st.data())
def test_a_row_depends_on_its_seed_step_and_number_alone(name: str, size: str, data: st.DataObject) -> None:
    task, row_length = instance(name, size)
    steps, rows = 3, 5
    whole = [chosen(sample(task, SEED, step, rows, row_length), np.arange(rows)) for step in range(steps)]
    asked_for = data.draw(
        st.lists(st.tuples(st.integers(0, steps - 1), st.integers(0, rows - 1)), min_size=1, max_size=12)
    )
    step, row = (np.array(numbers, dtype=np.int64) for numbers in zip(*asked_for, strict=True))
    mixed = chosen(task.rows(SEED, step, row, row_length), np.arange(len(row)))
    alone = {field: np.stack([whole[s][field][r] for s, r in asked_for]) for field in mixed}
    assert_same(mixed, alone)


@every_instance
def test_seeds_steps_and_rows_differ(name: str, size: str) -> None:
    task, row_length = instance(name, size)
    one = sample(task, SEED, 0, 64, row_length).tokens
    assert not np.array_equal(one, sample(task, SEED + 1, 0, 64, row_length).tokens)
    assert not np.array_equal(one, sample(task, SEED, 1, 64, row_length).tokens)
    assert len(np.unique(one, axis=0)) > 1


def test_two_processes_draw_the_same_rows(digest: Callable[[Rows], str]) -> None:
    code = (
        "import hashlib, sys\n"
        "import numpy as np\n"
        "from paribus.data.tasks import tasks\n"
        "from paribus.data.tasks.contract import sample\n"
        "for name in sorted(tasks(), reverse=True):\n"
        "    task = tasks()[name]()\n"
        f"    drawn = sample(task, {SEED}, 7, 9, max(64, task.least_row_length))\n"
        "    found = hashlib.sha256()\n"
        "    for field in ('tokens', 'targets', 'asked', 'slice', 'answer', 'document'):\n"
        "        found.update(np.ascontiguousarray(getattr(drawn, field)).astype('<i8').tobytes())\n"
        "    sys.stdout.write(name + ' ' + found.hexdigest()[:16] + chr(10))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONHASHSEED": "77"},
    )
    elsewhere = dict(line.split() for line in done.stdout.splitlines())
    here = {}
    for name in NAMES:
        task, row_length = instance(name, "default")
        here[name] = digest(sample(task, SEED, 7, 9, row_length))
    assert elsewhere == here


@every_instance
def test_every_declared_slice_occurs_and_no_other(name: str, size: str) -> None:
    task, row_length = instance(name, size)
    drawn = sample(task, SEED, 0, 2048, row_length)
    found = {task.slices[index] for index in np.unique(drawn.slice[drawn.asked]).tolist()}
    assert found == set(task.levels(row_length))
    assert list(task.levels(row_length)) == [name for name in task.slices if name in found]
    parts = task.primary.split("-")
    assert task.primary == ALL or (len(parts) in (1, 2) and set(parts) <= set(task.slices))
    for label in task.slices:
        assert re.fullmatch(r"\w+", label)
        assert label != ALL


@every_instance
def test_the_oracle_gives_each_target_the_declared_probability(name: str, size: str) -> None:
    task, row_length = instance(name, size)
    drawn = sample(task, SEED, 3, 24, row_length)
    answers = task.oracle(drawn.tokens, SEED)
    assert answers.shape == (24, row_length, task.vocabulary_size)
    np.testing.assert_allclose(answers[drawn.asked].sum(axis=-1), 1, rtol=0, atol=1e-12)
    found = np.take_along_axis(answers, drawn.targets[..., None], axis=-1)[..., 0][drawn.asked]
    # Both sides are a handful of float64 operations.
    np.testing.assert_allclose(found, np.exp(-drawn.floor_nats[drawn.asked]), rtol=0, atol=1e-9)


@every_instance
def test_the_floor_of_a_slice_is_the_mean_loss_of_the_best_predictor(
    name: str, size: str, mean_on_slice: MeanOnSlice
) -> None:
    task, row_length = instance(name, size)
    drawn = sample(task, SEED, 1, min(2**17 // row_length, 2**12), row_length)
    for label, levels in task.levels(row_length).items():
        here = drawn.asked & (drawn.slice == task.slices.index(label))
        mean, error = mean_on_slice(drawn.floor_nats, here)
        # A simulated level comes from sixteen times as many rows: sqrt(1 + 1 / 16) < 1.04.
        assert abs(mean - levels.floor) <= 4 * 1.04 * error + 1e-12, label


@every_instance
def test_chance_is_the_loss_of_the_frequencies_of_the_answers(name: str, size: str, mean_on_slice: MeanOnSlice) -> None:
    """Frequencies over all targets, or over the slice where a reader sees which slice it is asked for."""
    task, row_length = instance(name, size)
    rows = max(2048, 2**17 // row_length)
    fit, score = (sample(task, SEED, step, rows, row_length) for step in (10, 11))
    for label, levels in task.levels(row_length).items():
        index = task.slices.index(label)
        here = score.asked & (score.slice == index)
        distances = []
        for counted in (fit.asked, fit.asked & (fit.slice == index)):
            count = np.bincount(fit.targets[counted], minlength=task.vocabulary_size) + 0.5
            kinds = np.count_nonzero(count > 0.5)
            frequency = count / count.sum()
            mean, error = mean_on_slice(-np.log(frequency)[score.targets], here)
            # First order: the fitted frequencies scatter, and the loss follows them by share / frequency.
            share = np.bincount(score.targets[here], minlength=task.vocabulary_size) / here.sum()
            _, fitted = mean_on_slice((share / frequency)[fit.targets], counted)
            # Second order: (kinds - 1) / 2 divided by the independent draws, of which each row is at least one; twice
            # that covers its own scatter.
            distances.append(abs(mean - levels.chance) - 4 * math.hypot(error, fitted) - kinds / rows)
        assert min(distances) <= 0, f"{label}: declared {levels.chance:.4f}"


@every_name
def test_rows_of_the_tiny_instance_that_begin_alike_are_asked_alike(name: str) -> None:
    """Brute force: among rows with equal tokens up to a place, the question and the best answer agree there."""
    task, row_length = instance(name, "tiny")
    drawn = sample(task, SEED, 6, 600, row_length)
    whole = task.oracle(drawn.tokens, SEED)
    compared = 0
    for t in range(row_length):
        first: dict[bytes, int] = {}
        for r in range(len(drawn.tokens)):
            begins = first.setdefault(drawn.tokens[r, : t + 1].tobytes(), r)
            if begins == r:
                continue
            assert drawn.asked[begins, t] == drawn.asked[r, t]
            if drawn.asked[r, t]:
                np.testing.assert_array_equal(whole[begins, t], whole[r, t])
                if drawn.floor_nats[r, t] == 0:
                    assert drawn.targets[begins, t] == drawn.targets[r, t]
                compared += 1
    assert compared > 50, "too few rows of the tiny instance begin alike: it is not tiny"


@every_instance
def test_a_row_too_short_for_an_example_is_refused_with_both_lengths(name: str, size: str) -> None:
    task, _ = instance(name, size)
    least = task.least_row_length
    assert sample(task, SEED, 0, 400, least).asked.any()
    assert task.levels(least)
    with pytest.raises(CorpusError) as refused:
        sample(task, SEED, 0, 2, least - 1)
    assert name in refused.value.what
    assert str(least) in refused.value.expected
    assert str(least - 1) in refused.value.received
    assert "length" in refused.value.remedy


@every_name
def test_a_task_explains_itself_in_json_and_each_knob_has_a_sentence(name: str) -> None:
    task, row_length = instance(name, "default")
    told = json.loads(json.dumps(task.describe(row_length)))
    assert told["name"] == name
    assert set(told["slices"]) <= set(task.slices)
    for knob, field in type(task).model_fields.items():
        assert field.description, knob
    for levels in task.levels(row_length).values():
        assert levels.floor >= 0
        assert all(np.isfinite(list(levels.shortcuts.values())))
