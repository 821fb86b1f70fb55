"""`carry`: its triples and queries, read back by hand."""

import hashlib
import math
from collections import Counter
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from paribus.data.tasks import resolve
from paribus.data.tasks.carry import Carry, expected_entropy_nats
from paribus.data.tasks.contract import Rows, sample
from paribus.errors import CorpusError, ExperimentFileError

FIRST_HOP, FIRST_ADDEND = 32 + 8, 32 + 8 + 4
STANDARD_ERRORS = 4.0


def digest(rows: Rows) -> str:
    found = hashlib.blake2b(digest_size=8)
    for array in (rows.tokens, rows.targets, rows.asked, rows.slice, rows.answer, rows.document):
        found.update(np.ascontiguousarray(array, dtype="<i8").tobytes())
    return found.hexdigest()


def test_the_default_is_the_published_instance() -> None:
    assert (Carry().vocabulary_size, Carry().least_row_length) == (32 + 8 + 4 + 8, 36)


def test_the_numbers_of_a_sample_are_frozen() -> None:
    assert digest(sample(Carry(), 7, 3, 16, 36)) == "c46f818abb03befd"
    assert digest(sample(Carry(by="hops"), 7, 3, 16, 36)) == "def437ea4646e4f8"


def test_the_target_is_the_value_at_the_end_of_the_edges_plus_the_addend() -> None:
    rows = sample(Carry(), 2, 5, 64, 36)
    for r, row in enumerate(rows.tokens.tolist()):
        triples = [row[i : i + 3] for i in range(0, 18, 3)]
        assert len({start for start, _, _ in triples}) == len({end for _, end, _ in triples}) == 6
        for t in range(20, 36, 3):
            hops, name, addend = row[t - 2] - FIRST_HOP, row[t - 1], row[t] - FIRST_ADDEND
            for _ in range(hops):
                (name,) = [end for start, end, _ in triples if start == name]
            (value,) = [v - 32 for start, _, v in triples if start == name]
            assert 0 <= hops <= 3
            assert 0 <= addend < 8
            assert rows.targets[r, t] == 32 + (value + addend) % 8
            assert Carry.slices[rows.slice[r, t]] == ("fixed" if addend == 0 else "free")
            assert rows.tokens[r, rows.answer[r, t]] == 32 + value
            assert rows.tokens[r, rows.answer[r, t] - 2] == name
    assert rows.asked.sum() == 64 * 6


@settings(max_examples=25, deadline=None)
@given(data=st.data(), nodes=st.integers(1, 8), queries=st.integers(1, 5), values=st.integers(2, 9))
def test_the_oracle_is_sure_of_every_target(data: st.DataObject, nodes: int, queries: int, values: int) -> None:
    names, hops = data.draw(st.integers(nodes, 20)), data.draw(st.integers(0, min(7, nodes - 1)))
    task = Carry(nodes=nodes, names=names, hops=hops, queries=queries, values=values)
    rows = sample(task, 3, 1, 6, task.least_row_length + 2)
    r, t = np.nonzero(rows.asked)
    assert (task.oracle(rows.tokens, 3)[r, t, rows.targets[r, t]] == 1.0).all()


def test_the_two_ways_to_slice_label_the_same_rows() -> None:
    by_addend, by_hops = sample(Carry(), 1, 0, 64, 36), sample(Carry(by="hops"), 1, 0, 64, 36)
    assert np.array_equal(by_addend.tokens, by_hops.tokens)
    assert np.array_equal(by_addend.targets, by_hops.targets)
    r, t = np.nonzero(by_hops.asked)
    hops = by_hops.tokens[r, t - 2] - FIRST_HOP
    assert [Carry.slices[label] for label in by_hops.slice[r, t]] == [f"k{k}" for k in hops]
    assert list(Carry().levels(36)) == ["free", "fixed"]
    assert list(Carry(by="hops").levels(36)) == ["k0", "k1", "k2", "k3"]


@pytest.mark.parametrize(("draws", "choices"), [(1, 5), (2, 2), (3, 4), (4, 3)])
def test_the_expected_entropy_is_that_of_every_histogram(draws: int, choices: int) -> None:
    """Exact enumeration; a sum of at most 64 terms in float64."""
    entropies = [
        -sum(count / draws * math.log(count / draws) for count in Counter(drawn).values())
        for drawn in product(range(choices), repeat=draws)
    ]
    assert expected_entropy_nats(draws, choices) == pytest.approx(math.fsum(entropies) / len(entropies), rel=1e-12)


@pytest.mark.parametrize("by", ["addend", "hops"])
def test_naming_any_value_of_the_row_plus_the_addend_costs_what_the_levels_say(by: Any) -> None:
    """Mean over 3,000 rows, within 4 standard errors by row."""
    task = Carry(by=by)
    rows = sample(task, 9, 1, 3000, 36)
    for name, levels in task.levels(36).items():
        by_row = []
        for r, row in enumerate(rows.tokens.tolist()):
            values = [v - 32 for v in row[2:18:3]]
            losses = [
                -math.log(values.count((rows.targets[r, t] - 32 - (row[t] - FIRST_ADDEND)) % 8) / 6)
                for t in range(20, 36, 3)
                if task.slices[rows.slice[r, t]] == name
            ]
            by_row.extend([sum(losses) / len(losses)] if losses else [])
        error = np.std(by_row) / math.sqrt(len(by_row))
        assert abs(np.mean(by_row) - levels.shortcuts["any value of the row, plus a"]) < STANDARD_ERRORS * error


def test_answers_hops_places_and_addends_are_as_declared() -> None:
    """Chi-squares of one query of each row; p below 1e-4 once in ten thousand correct generators each."""
    task = Carry()
    rows = sample(task, 21, 0, 8000, 36)
    for label in (0, 1):
        here = rows.slice[:, 20] == label
        assert chisquare(np.bincount(rows.targets[here, 20] - 32, minlength=8)).pvalue > 1e-4
    assert chisquare(np.bincount(rows.tokens[:, 18] - FIRST_HOP, minlength=4)).pvalue > 1e-4
    assert chisquare(np.bincount(rows.answer[:, 20] // 3, minlength=6)).pvalue > 1e-4
    expected = 8000 * np.array([1 / 2, *[1 / 14] * 7])
    assert chisquare(np.bincount(rows.tokens[:, 20] - FIRST_ADDEND, minlength=8), expected).pvalue > 1e-4
    assert task.levels(36)["free"].chance == pytest.approx(math.log(8), rel=1e-15)


def test_the_triples_stand_in_an_order_that_says_nothing_of_the_cycle() -> None:
    """Chi-square of the place, among the other three, of the triple that continues the first one and of the one after
    it: 6 orders; p below 1e-4 once in ten thousand correct generators."""
    tokens = sample(Carry(nodes=4, names=4, values=2, hops=1, queries=1), 23, 0, 4000, 15).tokens
    starts, ends = tokens[:, 0:12:3], tokens[:, 1:12:3]
    second = (starts == ends[:, :1]).argmax(axis=1)
    third = (starts == np.take_along_axis(ends, second[:, None], axis=1)).argmax(axis=1)
    _, counts = np.unique(4 * second + third, return_counts=True)
    assert len(counts) == 6
    assert chisquare(counts).pvalue > 1e-4


def test_the_queries_of_a_row_are_drawn_independently() -> None:
    """Chi-square of the pairs of two queries; p below 1e-4 once in ten thousand correct generators each."""
    rows = sample(Carry(nodes=4, names=4, values=2, hops=1, queries=2), 22, 0, 4000, 18)
    first, second = rows.tokens[:, 12:15], rows.tokens[:, 15:18]
    for column, lowest, choices in ((0, 4 + 2, 2), (1, 0, 4), (2, 4 + 2 + 2, 2)):
        pairs = (first[:, column] - lowest) * choices + second[:, column] - lowest
        assert chisquare(np.bincount(pairs, minlength=choices**2)).pvalue > 1e-4
    values = rows.tokens[:, 2:12:3] - 4
    assert chisquare(np.bincount(values @ (2 ** np.arange(4)), minlength=16)).pvalue > 1e-4


def test_a_longer_row_is_the_same_example_and_padding_that_asks_nothing() -> None:
    short, long = sample(Carry(), 3, 1, 8, 36), sample(Carry(), 3, 1, 8, 37)
    for name in ("tokens", "targets", "asked", "slice", "answer", "document"):
        assert np.array_equal(getattr(long, name)[:, :36], getattr(short, name))
    assert not long.asked[:, 36:].any()
    assert (long.document[:, 36:] == 1).all()


@pytest.mark.parametrize(
    ("knobs", "words"),
    [
        ({"nodes": 33}, "as many different names, not names = 32"),
        ({"nodes": 3}, "hops = 3 must be below nodes = 3"),
        ({"values": 1}, "values: not a valid value"),
        ({"by": "value"}, "by: not a valid value"),
    ],
)
def test_knobs_that_do_not_fit_are_refused_in_one_sentence(knobs: dict[str, Any], words: str) -> None:
    with pytest.raises(ExperimentFileError, match=words):
        resolve("carry", knobs, "base.corpus")


def test_a_row_too_short_for_the_queries_is_refused_with_both_numbers() -> None:
    with pytest.raises(CorpusError, match=r"row of 30 tokens[\s\S]*at least 36"):
        sample(Carry(), 0, 0, 1, 30)
