"""`hop`: its cycle and queries, read back by hand."""

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
from paribus.data.tasks.hop import Hop
from paribus.errors import CorpusError, ExperimentFileError


def digest(rows: Rows) -> str:
    found = hashlib.blake2b(digest_size=8)
    for array in (rows.tokens, rows.targets, rows.asked, rows.slice, rows.answer, rows.document):
        found.update(np.ascontiguousarray(array, dtype="<i8").tobytes())
    return found.hexdigest()


def test_the_default_is_the_published_instance() -> None:
    assert (Hop().vocabulary_size, Hop().least_row_length) == (36, 32)


def test_the_numbers_of_a_sample_are_frozen() -> None:
    assert digest(sample(Hop(), 7, 3, 16, 32)) == "cf69130558a517db"


def test_the_edges_close_one_cycle_through_all_the_nodes() -> None:
    for row in sample(Hop(), 1, 0, 64, 32).tokens.tolist():
        successor = dict(zip(row[0:16:2], row[1:16:2], strict=True))
        assert len(successor) == 8
        name, seen = row[0], []
        for _ in range(8):
            seen.append(name)
            name = successor[name]
        assert name == row[0]
        assert len(set(seen)) == 8


def test_the_target_is_found_by_following_the_edges() -> None:
    rows = sample(Hop(), 2, 5, 64, 32)
    for r, row in enumerate(rows.tokens.tolist()):
        edges = [(row[i], row[i + 1]) for i in range(0, 16, 2)]
        for t in range(17, 32, 2):
            k = row[t - 1] - 32 + 1
            name = row[t]
            for _ in range(k):
                (name,) = [end for start, end in edges if start == name]
            assert rows.targets[r, t] == name != row[t]
            assert Hop.slices[rows.slice[r, t]] == f"k{k}"
            assert rows.asked[r, t]
    assert rows.asked.sum() == 64 * 8


@settings(max_examples=25, deadline=None)
@given(data=st.data(), nodes=st.integers(2, 10), queries=st.integers(1, 6))
def test_the_oracle_is_sure_of_every_target(data: st.DataObject, nodes: int, queries: int) -> None:
    names, hops = data.draw(st.integers(nodes, 20)), data.draw(st.integers(1, min(8, nodes - 1)))
    task = Hop(nodes=nodes, names=names, hops=hops, queries=queries)
    rows = sample(task, 3, 1, 6, task.least_row_length + 2)
    r, t = np.nonzero(rows.asked)
    assert (task.oracle(rows.tokens, 3)[r, t, rows.targets[r, t]] == 1.0).all()


def test_the_answer_is_the_end_of_the_edge_that_leads_to_it() -> None:
    rows = sample(Hop(), 4, 0, 64, 32)
    r, t = np.nonzero(rows.asked)
    at = rows.answer[r, t]
    assert (rows.tokens[r, at] == rows.targets[r, t]).all()
    assert (at % 2 == 1).all()
    assert (at < 16).all()
    one_hop = rows.slice[r, t] == 0
    assert (rows.tokens[r, at - 1] == rows.tokens[r, t])[one_hop].all()


def test_naming_any_name_of_the_row_costs_what_the_levels_say() -> None:
    """Every target is among the candidates, so the losses have no sampling noise."""
    rows = sample(Hop(), 9, 1, 64, 32)
    levels = Hop().levels(32)
    r, t = np.nonzero(rows.asked)
    for i, j in zip(r.tolist(), t.tolist(), strict=True):
        names = set(rows.tokens[i, :16].tolist())
        others = names - {int(rows.tokens[i, j])}
        assert rows.targets[i, j] in others
        shortcuts = levels[Hop.slices[rows.slice[i, j]]].shortcuts
        assert shortcuts["any name of the row"] == pytest.approx(math.log(len(names)), rel=1e-12)
        assert shortcuts["any name of the row but the queried one"] == pytest.approx(math.log(len(others)), rel=1e-12)


def test_answers_hops_and_places_are_uniform() -> None:
    """Chi-squares of one query of each row; p below 1e-4 once in ten thousand correct generators each."""
    task = Hop()
    rows = sample(task, 21, 0, 8000, 32)
    assert chisquare(np.bincount(rows.targets[:, 21], minlength=32)).pvalue > 1e-4
    assert chisquare(np.bincount(rows.slice[:, 21], minlength=4)).pvalue > 1e-4
    assert chisquare(np.bincount(rows.answer[:, 21] // 2, minlength=8)).pvalue > 1e-4
    assert task.levels(32)["k1"].chance == pytest.approx(math.log(32), rel=1e-15)


def test_the_edges_stand_in_an_order_that_says_nothing_of_the_cycle() -> None:
    """Chi-square of the place, among the other three, of the edge that continues the first one and of the one after
    it: 6 orders; p below 1e-4 once in ten thousand correct generators."""
    tokens = sample(Hop(nodes=4, names=4, hops=1, queries=1), 23, 0, 4000, 10).tokens
    starts, ends = tokens[:, 0:8:2], tokens[:, 1:8:2]
    second = (starts == ends[:, :1]).argmax(axis=1)
    third = (starts == np.take_along_axis(ends, second[:, None], axis=1)).argmax(axis=1)
    _, counts = np.unique(4 * second + third, return_counts=True)
    assert len(counts) == 6
    assert chisquare(counts).pvalue > 1e-4


def test_the_queries_of_a_row_are_drawn_independently() -> None:
    """Chi-square of the pairs (k, k') and (u, u') of two queries; p below 1e-4 once in ten thousand generators."""
    rows = sample(Hop(nodes=4, hops=3, queries=2), 22, 0, 4000, 12)
    assert chisquare(np.bincount(3 * rows.slice[:, 9] + rows.slice[:, 11], minlength=9)).pvalue > 1e-4
    start = (rows.tokens[:, :8:2, None] == rows.tokens[:, None, [9, 11]]).argmax(axis=1)
    assert chisquare(np.bincount(4 * start[:, 0] + start[:, 1], minlength=16)).pvalue > 1e-4


def test_the_slices_follow_the_largest_k() -> None:
    assert list(Hop().levels(32)) == ["k1", "k2", "k3", "k4"]
    deep = Hop(nodes=9, hops=8)
    assert list(deep.levels(40)) == list(Hop.slices)
    rows = sample(deep, 1, 0, 100, 34)
    assert set(rows.slice[rows.asked].tolist()) == set(range(8))


def test_a_longer_row_is_the_same_example_and_padding_that_asks_nothing() -> None:
    short, long = sample(Hop(), 3, 1, 8, 32), sample(Hop(), 3, 1, 8, 37)
    for name in ("tokens", "targets", "asked", "slice", "answer", "document"):
        assert np.array_equal(getattr(long, name)[:, :32], getattr(short, name))
    assert not long.asked[:, 32:].any()
    assert (long.document[:, 32:] == 1).all()


@pytest.mark.parametrize(
    ("knobs", "words"),
    [
        ({"nodes": 33}, "as many different names, not names = 32"),
        ({"nodes": 4}, "hops = 4 must be below nodes = 4"),
        ({"hops": 9}, "hops: not a valid value"),
    ],
)
def test_knobs_that_do_not_fit_are_refused_in_one_sentence(knobs: dict[str, Any], words: str) -> None:
    with pytest.raises(ExperimentFileError, match=words):
        resolve("hop", knobs, "base.corpus")


def test_a_row_too_short_for_the_queries_is_refused_with_both_numbers() -> None:
    with pytest.raises(CorpusError, match=r"row of 30 tokens[\s\S]*at least 32"):
        sample(Hop(), 0, 0, 1, 30)
