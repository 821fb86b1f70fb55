"""`cross`: its records and queries, read back by hand."""

import hashlib
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from paribus.data.tasks import resolve
from paribus.data.tasks.contract import Rows, sample
from paribus.data.tasks.cross import Cross
from paribus.errors import CorpusError, ExperimentFileError

KNOBS: list[dict[str, Any]] = [
    {},
    {"m": 0},
    {"m": 2, "digits": 7, "records": 5, "contents": 24},
    {"m": 3, "digits": 5, "records": 5, "contents": 5},
]
STANDARD_ERRORS = 4.0


def digest(rows: Rows) -> str:
    found = hashlib.blake2b(digest_size=8)
    for array in (rows.tokens, rows.targets, rows.asked, rows.slice, rows.answer, rows.document):
        found.update(np.ascontiguousarray(array, dtype="<i8").tobytes())
    return found.hexdigest()


def records_of(task: Cross, row: list[int]) -> list[tuple[int, int]]:
    """(key, content) of each record, both counted from 0, from the definition."""
    found = []
    for j in range(task.records):
        *digits, content = row[j * (task.m + 1) : (j + 1) * (task.m + 1)]
        content -= task.digits
        found.append((sum(digits) % task.digits if task.m else content % task.digits, content))
    return found


def queries_of(task: Cross, row: list[int]) -> list[tuple[str, int]]:
    """(face, asked key or content counted from 0) of each query."""
    begin = task.records * (task.m + 1)
    found = []
    for j in range(task.records):
        face, asked = row[begin + 2 * j], row[begin + 2 * j + 1]
        deep_query = face == 2 * task.digits + task.contents
        found.append(("QD" if deep_query else "QS", asked - task.digits - (task.contents if deep_query else 0)))
    return found


def test_the_default_is_the_published_instance() -> None:
    task = Cross()
    assert (task.vocabulary_size, task.least_row_length) == (66, 32)


def test_the_numbers_of_a_sample_are_frozen() -> None:
    assert digest(sample(Cross(), 7, 3, 16, 32)) == "4de902b9b93a555c"
    assert digest(sample(Cross(m=2, digits=7, records=5, contents=24), 7, 3, 16, 30)) == "003efc08533fd573"


@pytest.mark.parametrize("knobs", KNOBS, ids=str)
def test_keys_and_contents_differ_within_a_row_and_each_record_is_asked_for_once(knobs: dict[str, Any]) -> None:
    task = Cross(**knobs)
    for row in sample(task, 1, 2, 64, task.least_row_length).tokens.tolist():
        records, queries = records_of(task, row), queries_of(task, row)
        assert len({key for key, _ in records}) == len({content for _, content in records}) == task.records
        key_of = {content: key for key, content in records}
        assert sorted(asked if face == "QD" else key_of[asked] for face, asked in queries) == sorted(key_of.values())


@pytest.mark.parametrize("knobs", KNOBS, ids=str)
def test_the_target_is_the_partner_of_what_the_query_names(knobs: dict[str, Any]) -> None:
    task = Cross(**knobs)
    rows = sample(task, 1, 2, 64, task.least_row_length)
    for r, row in enumerate(rows.tokens.tolist()):
        content_of = dict(records_of(task, row))
        key_of = {content: key for key, content in content_of.items()}
        for j, (face, asked) in enumerate(queries_of(task, row)):
            t = task.records * (task.m + 1) + 2 * j + 1
            expected = task.digits + content_of[asked] if face == "QD" else task.digits + task.contents + key_of[asked]
            assert rows.targets[r, t] == expected
            assert task.slices[rows.slice[r, t]] == face
            assert rows.asked[r, t]
    assert rows.asked.sum() == 64 * task.records


@settings(max_examples=25, deadline=None)
@given(data=st.data(), m=st.integers(0, 3), digits=st.integers(2, 9), kind=st.sampled_from(["mixed", "deep-query"]))
def test_the_oracle_is_sure_of_every_target(data: st.DataObject, m: int, digits: int, kind: Any) -> None:
    contents = digits * data.draw(st.integers(1, 3)) if m == 0 else data.draw(st.integers(2, 12))
    records = data.draw(st.integers(2, min(digits, contents)))
    task = Cross(m=m, digits=digits, records=records, contents=contents, kind=kind)
    rows = sample(task, 5, 0, 8, task.least_row_length + 3)
    r, t = np.nonzero(rows.asked)
    assert (task.oracle(rows.tokens, 5)[r, t, rows.targets[r, t]] == 1.0).all()
    assert (rows.floor_nats == 0).all()


@pytest.mark.parametrize("knobs", KNOBS, ids=str)
def test_the_answer_stands_where_it_says(knobs: dict[str, Any]) -> None:
    task = Cross(**knobs)
    rows = sample(task, 4, 0, 64, task.least_row_length)
    r, t = np.nonzero(rows.asked)
    target, at, deep_query = rows.targets[r, t], rows.answer[r, t], rows.slice[r, t] == 0
    assert (rows.tokens[r, at][deep_query] == target[deep_query]).all()
    assert (rows.answer[~rows.asked] == -1).all()
    key = target[~deep_query] - task.digits - task.contents
    if task.m == 0:
        assert (at[~deep_query] == t[~deep_query]).all()
        assert ((rows.tokens[r, at][~deep_query] - task.digits) % task.digits == key).all()
    elif task.m == 1:
        assert (rows.tokens[r, at][~deep_query] == key).all()
        assert (at[~deep_query] < task.records * 2).all()
    else:
        assert (at[~deep_query] == -1).all()


@pytest.mark.parametrize("knobs", KNOBS, ids=str)
def test_naming_any_candidate_of_the_row_costs_what_the_levels_say(knobs: dict[str, Any]) -> None:
    """The candidates are read off the row by hand; every target is one of them, so the loss has no sampling noise."""
    task = Cross(**knobs)
    levels = task.levels(task.least_row_length)
    losses: dict[tuple[str, str], list[float]] = {}
    for row in sample(task, 9, 1, 64, task.least_row_length).tokens.tolist():
        content_of = dict(records_of(task, row))
        key_of = {content: key for key, content in content_of.items()}
        for face, asked in queries_of(task, row):
            target = content_of[asked] if face == "QD" else key_of[asked]
            in_row = list(content_of.values() if face == "QD" else content_of)
            named = {"any content of the row" if face == "QD" else "any key of the row": in_row}
            if task.m == 0 and face == "QD":
                named["any content of the key"] = [c for c in range(task.contents) if c % task.digits == asked]
            if task.m == 0 and face == "QS":
                named["the key that the content names"] = [asked % task.digits]
            for words, candidates in named.items():
                losses.setdefault((face, words), []).append(-math.log(candidates.count(target) / len(candidates)))
    declared = {(face, words) for face in levels for words in levels[face].shortcuts if "not shown" not in words}
    assert declared == set(losses)
    for (face, words), found in losses.items():
        np.testing.assert_allclose(found, levels[face].shortcuts[words], rtol=1e-12)


@pytest.mark.parametrize("knobs", [{}, {"m": 2, "digits": 7, "records": 5, "contents": 24}, {"m": 0}], ids=str)
def test_a_reader_that_never_matches_leaves_out_what_earlier_queries_have_shown(knobs: dict[str, Any]) -> None:
    """Each record is asked for once, and a query of the other face shows its answer's side of its record."""
    task = Cross(**knobs)
    levels = task.levels(task.least_row_length)
    by_row: dict[str, list[float]] = {"QD": [], "QS": []}
    for row in sample(task, 10, 1, 3000, task.least_row_length).tokens.tolist():
        pairs = records_of(task, row)
        content_of = dict(pairs)
        key_of = {content: key for key, content in pairs}
        shown: dict[str, set[int]] = {"QD": set(), "QS": set()}  # answers that a face can leave out
        for face, asked in queries_of(task, row):
            answers = set(key_of) if face == "QD" else set(content_of)
            target = content_of[asked] if face == "QD" else key_of[asked]
            left = answers - shown[face]
            assert target in left
            by_row[face].append(math.log(len(left)))
            shown["QS" if face == "QD" else "QD"].add(asked)
    for face, words in (("QD", "any content not shown yet"), ("QS", "any key not shown yet")):
        error = np.std(by_row[face]) / math.sqrt(3000)  # as if a row were one query: more than it is
        assert abs(np.mean(by_row[face]) - levels[face].shortcuts[words]) < STANDARD_ERRORS * error


def test_a_fixed_face_shows_no_answer_of_its_own() -> None:
    for kind in ("deep-query", "deep-content"):
        task = Cross.model_validate({"kind": kind})
        assert all("not shown" not in words for of in task.levels(32).values() for words in of.shortcuts)


@pytest.mark.parametrize("knobs", KNOBS, ids=str)
def test_every_answer_is_asked_for_equally_often(knobs: dict[str, Any]) -> None:
    """Chance is ln of the number of answers. Chi-square of the first query of each row (later ones avoid earlier
    ones), p below 1e-4 once in ten thousand correct generators."""
    task = Cross(**knobs)
    rows = sample(task, 21, 0, 6000, task.least_row_length)
    t = task.records * (task.m + 1) + 1
    for index, (first, count) in enumerate([(task.digits, task.contents), (task.digits + task.contents, task.digits)]):
        target = rows.targets[:, t][rows.slice[:, t] == index] - first
        assert chisquare(np.bincount(target, minlength=count)).pvalue > 1e-4
        assert task.levels(t + 100)[task.slices[index]].chance == pytest.approx(math.log(count), rel=1e-15)


def test_the_faces_are_tossed_fairly_and_a_fixed_kind_asks_one_face() -> None:
    labels = sample(Cross(), 2, 0, 2000, 32)
    share = labels.slice[labels.asked].mean()
    assert abs(share - 0.5) < STANDARD_ERRORS * 0.5 / math.sqrt(2000 * 8)
    for kind, index in (("deep-query", 0), ("deep-content", 1)):
        task = Cross.model_validate({"kind": kind})
        rows = sample(task, 2, 0, 50, 32)
        assert (rows.slice[rows.asked] == index).all()
        assert list(task.levels(32)) == [task.slices[index]]


def test_faces_and_records_of_two_queries_are_drawn_independently() -> None:
    """Chi-square of the pairs of faces, and of the order of the records; p below 1e-4 once in ten thousand correct
    generators each."""
    rows = sample(Cross(digits=4, records=3, contents=5), 22, 0, 4000, 12)
    faces = rows.slice[:, 7:12:2].astype(np.int64)
    assert chisquare(np.bincount(faces @ (2 ** np.arange(3)), minlength=8)).pvalue > 1e-4
    order = rows.answer[:, 7:12:2] // 2
    assert chisquare(np.unique(order @ (3 ** np.arange(3)), return_counts=True)[1]).pvalue > 1e-4
    assert len(np.unique(order, axis=0)) == 6


def test_a_longer_row_is_the_same_example_and_padding_that_asks_nothing() -> None:
    short, long = sample(Cross(), 3, 1, 8, 32), sample(Cross(), 3, 1, 8, 40)
    for name in ("tokens", "targets", "asked", "slice", "answer", "document"):
        assert np.array_equal(getattr(long, name)[:, :32], getattr(short, name))
    assert not long.asked[:, 32:].any()
    assert (long.document[:, :32] == 0).all()
    assert (long.document[:, 32:] == 1).all()


@pytest.mark.parametrize(
    ("knobs", "words"),
    [
        ({"records": 17}, "different keys among digits = 16"),
        ({"digits": 64, "records": 40}, "different contents among contents = 32"),
        ({"m": 0, "contents": 40}, "must be a multiple of digits = 16"),
        ({"m": -1}, "m: not a valid value"),
        ({"kind": "deep"}, "kind: not a valid value"),
    ],
)
def test_knobs_that_do_not_fit_are_refused_in_one_sentence(knobs: dict[str, Any], words: str) -> None:
    with pytest.raises(ExperimentFileError, match=words):
        resolve("cross", knobs, "base.corpus")


def test_a_row_too_short_for_the_records_is_refused_with_both_numbers() -> None:
    with pytest.raises(CorpusError, match=r"row of 31 tokens[\s\S]*at least 32[\s\S]*31"):
        sample(Cross(), 0, 0, 1, 31)
    with pytest.raises(CorpusError, match="at least 32"):
        Cross().levels(31)
