"""`twin`: the answer is the colour at the last occurrence of the id, under each overlap, and the shortcuts are real."""

import math
from collections.abc import Callable
from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from pydantic import ValidationError
from scipy import stats

from paribus.data.tasks.contract import Rows, sample
from paribus.data.tasks.twin import Twin
from paribus.errors import CorpusError

MeanOnSlice = Callable[[NDArray[np.float64], NDArray[np.bool_]], tuple[float, float]]
SEED = 11
SAME, DIFFERENT = 0, 1
OVERLAPS = ("free", "never", "split")


def records(task: Twin, drawn: Rows) -> list[list[tuple[int, int, int]]]:
    """(id, colour, place of the question) of each record, read from the tokens; colour -1 where the row ends first."""
    found = []
    for row in drawn.tokens.tolist():
        if task.overlap == "split":
            colours = [*row[1::2], -1]
            found.append([(name - task.colours, colours[n], 2 * n) for n, name in enumerate(row[::2])])
        else:
            found.append([(token // task.colours, token % task.colours, t) for t, token in enumerate(row)])
    return found


@settings(deadline=None, max_examples=60)
@given(
    ids=st.integers(2, 9),
    half=st.integers(1, 4),
    overlap=st.sampled_from(OVERLAPS),
    row_length=st.integers(3, 40),
    seed=st.integers(0, 2**63),
)
def test_the_target_is_the_colour_at_the_last_occurrence_of_the_id(
    ids: int, half: int, overlap: str, row_length: int, seed: int
) -> None:
    task = Twin.model_validate({"ids": ids, "colours": 2 * half, "overlap": overlap})
    drawn = sample(task, seed, 2, 4, row_length)
    for r, row in enumerate(records(task, drawn)):
        asked_at = set()
        for index, (name, colour, place) in enumerate(row):
            earlier = [record for record in row[:index] if record[0] == name]
            assert drawn.asked[r, place] == bool(earlier)
            if not earlier:
                continue
            asked_at.add(place)
            _, answer, there = earlier[-1]
            assert drawn.targets[r, place] == answer
            assert drawn.answer[r, place] == there + (overlap == "split")
            if colour >= 0:
                assert drawn.slice[r, place] == (SAME if answer == colour else DIFFERENT)
        assert set(np.flatnonzero(drawn.asked[r])) == asked_at


@pytest.mark.parametrize("overlap", OVERLAPS)
def test_the_token_at_the_answer_shows_the_target_and_lies_before_the_question(overlap: str) -> None:
    task = Twin.model_validate({"overlap": overlap})
    drawn = sample(task, SEED, 0, 200, 64)
    r, t = np.nonzero(drawn.asked)
    place = drawn.answer[r, t]
    assert (place < t).all()
    np.testing.assert_array_equal(drawn.tokens[r, place] % task.colours, drawn.targets[r, t])


@pytest.mark.parametrize("overlap", OVERLAPS)
def test_the_oracle_reads_no_later_token(overlap: str) -> None:
    task = Twin.model_validate({"ids": 3, "colours": 4, "overlap": overlap})
    tokens = sample(task, SEED, 0, 20, 15).tokens
    whole = task.oracle(tokens, SEED)
    for t in range(15):
        np.testing.assert_array_equal(task.oracle(tokens[:, : t + 1], SEED)[:, t], whole[:, t])


@pytest.mark.parametrize("overlap", OVERLAPS)
def test_ids_and_colours_are_uniform_and_independent(overlap: str) -> None:
    task = Twin.model_validate({"ids": 4, "colours": 6, "overlap": overlap})
    table = np.zeros((4, 6))
    for row in records(task, sample(task, SEED, 0, 1500, 32)):
        # One record a row: under `never` the occurrences of an id depend on each other.
        table[row[-1][0], row[-1][1]] += 1
    assert stats.chisquare(table.ravel()).pvalue > 1e-4


def test_never_changes_sides_at_each_occurrence_and_begins_on_either_side() -> None:
    task = Twin(ids=3, colours=6, overlap="never")
    begins = []
    for row in records(task, sample(task, SEED, 0, 500, 24)):
        for name in range(3):
            sides = [colour // 3 for record, colour, _ in row if record == name]
            assert all(one != other for one, other in pairwise(sides))
            begins += sides[:1]
    assert stats.binomtest(sum(begins), len(begins)).pvalue > 1e-4


@pytest.mark.parametrize("overlap", ["free", "split"])
def test_the_answer_equals_the_own_colour_once_in_colours(overlap: str, mean_on_slice: MeanOnSlice) -> None:
    task = Twin.model_validate({"colours": 5, "overlap": overlap})
    drawn = sample(task, SEED, 0, 2000, 64)
    share, error = mean_on_slice((drawn.slice == SAME).astype(np.float64), drawn.asked)
    assert abs(share - 1 / 5) < 4 * error
    assert set(task.levels(64)) == {"same", "different"}


def test_under_never_no_answer_is_the_own_colour_and_no_level_names_that_slice() -> None:
    task = Twin(overlap="never")
    drawn = sample(task, SEED, 0, 500, 64)
    assert (drawn.slice[drawn.asked] == DIFFERENT).all()
    assert (drawn.targets != drawn.tokens % task.colours)[drawn.asked].all()
    assert set(task.levels(64)) == {"different"}


def without_ids(task: Twin, row: list[tuple[int, int, int]], index: int) -> NDArray[np.float64]:
    """Probability of each colour by the reader of colours and places: the weights of distance, summed by colour."""
    found = np.zeros(task.colours)
    for back in range(1, index + 1):
        found[row[index - back][1]] += (1 - 1 / task.ids) ** (back - 1)
    return found / found.sum()


@pytest.mark.parametrize(
    ("knobs", "row_length"),
    [({}, 64), ({"ids": 3, "colours": 4}, 12), ({"overlap": "split"}, 33), ({"ids": 40, "colours": 2}, 20)],
)
def test_a_reader_of_colours_and_places_attains_the_declared_shortcut(
    knobs: dict[str, object], row_length: int, mean_on_slice: MeanOnSlice
) -> None:
    task = Twin.model_validate(knobs)
    drawn = sample(task, SEED, 1, 600, row_length)
    loss = np.zeros(drawn.tokens.shape)
    for r, row in enumerate(records(task, drawn)):
        for index, (_, _, place) in enumerate(row):
            if drawn.asked[r, place]:
                loss[r, place] = -math.log(without_ids(task, row, index)[drawn.targets[r, place]])
    for name, levels in task.levels(row_length).items():
        mean, error = mean_on_slice(loss, drawn.asked & (drawn.slice == task.slices.index(name)))
        assert abs(mean - levels.shortcuts["a colour of the row"]) < 4 * error, name


def test_the_declared_shortcut_is_exact_over_all_rows_of_the_tiny_instance() -> None:
    task = Twin.model_validate(dict(Twin.tiny))
    total = count = 0.0
    for tokens in product(range(4), repeat=Twin.tiny_row_length):
        row = [(*divmod(token, 2), t) for t, token in enumerate(tokens)]
        for index, (name, _, _) in enumerate(row):
            earlier = [colour for other, colour, _ in row[:index] if other == name]
            if earlier:
                total -= math.log(without_ids(task, row, index)[earlier[-1]])
                count += 1
    declared = task.levels(Twin.tiny_row_length)["same"].shortcuts["a colour of the row"]
    # What the quadrature cuts off is below exp(-24) = 4e-11.
    assert declared == pytest.approx(total / count, abs=1e-9)


def test_under_never_the_own_colour_tells_the_half_and_no_more() -> None:
    task = Twin(overlap="never")
    drawn = sample(task, SEED, 2, 500, 64)
    own, answer = drawn.tokens[drawn.asked] % 8, drawn.targets[drawn.asked]
    assert (own // 4 != answer // 4).all()
    assert task.levels(64)["different"].shortcuts == {"the other half": math.log(4)}
    table = np.zeros((4, 4))
    last = drawn.asked[:, -1]
    np.add.at(table, (drawn.tokens[last, -1] % 4, drawn.targets[last, -1] % 4), 1)
    assert stats.chisquare(table.ravel()).pvalue > 1e-4


def test_split_shows_an_id_and_then_its_colour_and_asks_at_ids_only() -> None:
    task = Twin(overlap="split")
    assert task.vocabulary_size == 24
    drawn = sample(task, SEED, 0, 100, 31)
    assert (drawn.tokens[:, ::2] >= 8).all()
    assert (drawn.tokens[:, 1::2] < 8).all()
    assert not drawn.asked[:, 1::2].any()
    assert drawn.asked[:, 30].any(), "the last id of an odd row is asked although its own colour is cut off"


@pytest.mark.parametrize(("overlap", "least"), [("free", 2), ("never", 2), ("split", 3)])
def test_the_shortest_row_is_the_first_that_can_ask(overlap: str, least: int) -> None:
    task = Twin.model_validate({"overlap": overlap})
    assert sample(task, SEED, 0, 400, least).asked.any()
    for refuses in (lambda: sample(task, SEED, 0, 4, least - 1), lambda: task.levels(least - 1)):
        with pytest.raises(CorpusError, match=f"row of {least - 1} tokens"):
            refuses()


@pytest.mark.parametrize("knobs", [{"colours": 7, "overlap": "never"}, {"ids": 1}, {"colours": 1}, {"overlap": "some"}])
def test_knobs_that_make_no_task_are_refused(knobs: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        Twin.model_validate(knobs)


@pytest.mark.parametrize(
    ("overlap", "expected"),
    [("free", "fb1f99d675322f50"), ("never", "47ddaf58159d2c76"), ("split", "ddd68859b59515e6")],
)
def test_the_numbers_are_frozen(overlap: str, expected: str, digest: Callable[[Rows], str]) -> None:
    assert digest(sample(Twin.model_validate({"overlap": overlap}), SEED, 3, 16, 64)) == expected
