"""`mano`: its expressions, parsed by hand; its levels, by enumeration of every expression."""

import hashlib
import math
from collections import Counter
from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from paribus.data.tasks import resolve
from paribus.data.tasks.contract import Rows, sample
from paribus.data.tasks.mano import Mano, tree_shapes
from paribus.errors import CorpusError, ExperimentFileError

EQUALS = 7 + 3
STANDARD_ERRORS = 4.0


def digest(rows: Rows) -> str:
    found = hashlib.blake2b(digest_size=8)
    for array in (rows.tokens, rows.targets, rows.asked, rows.slice, rows.answer, rows.document):
        found.update(np.ascontiguousarray(array, dtype="<i8").tobytes())
    return found.hexdigest()


def value_of(symbols: list[int], modulus: int) -> int:
    """Of a prefix expression, by Python's own arithmetic: written out with brackets and evaluated once at the end."""
    stack: list[str] = []
    for symbol in reversed(symbols):
        if symbol < modulus:
            stack.append(str(symbol))
        else:
            left, right = stack.pop(), stack.pop()
            stack.append(f"({left}{'+-*'[symbol - modulus]}{right})")
    (written,) = stack
    return eval(written) % modulus  # of digits, brackets and three operators only


def expressions_of(row: list[int], equals: int) -> Iterator[tuple[list[int], int]]:
    """(symbols, place of the "=") of each expression of a row."""
    begin = 0
    for t, token in enumerate(row):
        if token == equals:
            yield row[begin:t], t
            begin = t + 1


def test_the_default_is_the_published_instance() -> None:
    assert (Mano().vocabulary_size, Mano().least_row_length) == (11, 10)


def test_the_numbers_of_a_sample_are_frozen() -> None:
    assert digest(sample(Mano(), 7, 3, 16, 64)) == "8c56c67e57d6fa62"


@pytest.mark.parametrize(
    ("modulus", "max_operators", "row_length"), [(7, 4, 64), (7, 8, 64), (3, 1, 9), (10, 2, 31), (5, 0, 5)]
)
def test_the_target_is_the_value_of_the_expression(modulus: int, max_operators: int, row_length: int) -> None:
    task = Mano(modulus=modulus, max_operators=max_operators)
    rows = sample(task, 2, 5, 64, row_length)
    asked = 0
    for r, row in enumerate(rows.tokens.tolist()):
        document = 0
        for symbols, t in expressions_of(row, modulus + 3):
            operators = sum(symbol >= modulus for symbol in symbols)
            assert rows.targets[r, t] == value_of(symbols, modulus)
            assert task.slices[rows.slice[r, t]] == f"l{operators}"
            assert (rows.document[r, t - len(symbols) : t + 1] == document).all()
            assert rows.answer[r, t] == (t - 1 if operators == 0 else -1)
            document, asked = document + 1, asked + 1
        left = np.flatnonzero(rows.document[r] == document)
        assert not rows.asked[r, left].any()
        assert (rows.tokens[r, left] == 0).all()
        assert len(left) < 2 * max_operators + 2
    assert rows.asked.sum() == asked


@settings(max_examples=20, deadline=None)
@given(modulus=st.integers(2, 12), most=st.integers(0, 8), more=st.integers(0, 30))
def test_the_oracle_is_sure_of_every_target(modulus: int, most: int, more: int) -> None:
    task = Mano(modulus=modulus, max_operators=most)
    rows = sample(task, 3, 1, 6, task.least_row_length + more)
    r, t = np.nonzero(rows.asked)
    assert (task.oracle(rows.tokens, 3)[r, t, rows.targets[r, t]] == 1.0).all()


def test_there_are_catalan_many_shapes_and_they_differ() -> None:
    for operators, catalan in enumerate([1, 1, 2, 5, 14, 42, 132, 429, 1430]):
        shapes = tree_shapes(operators)
        assert len(shapes) == len(set(shapes)) == catalan == math.comb(2 * operators, operators) // (operators + 1)
        assert all(sum(shape) == operators and len(shape) == 2 * operators + 1 for shape in shapes)


@pytest.mark.parametrize(("operators", "shapes"), [(2, 2), (3, 5), (4, 14)])
def test_every_tree_shape_is_equally_likely(operators: int, shapes: int) -> None:
    """Chi-square over the shapes; p below 1e-4 once in ten thousand correct generators. Among the expressions of one l
    all shapes are equally long, so what does not fit into a row favours none."""
    rows = sample(Mano(), 21, 0, 2000, 64)
    seen = Counter(
        tuple(symbol >= 7 for symbol in symbols)
        for row in rows.tokens.tolist()
        for symbols, _ in expressions_of(row, EQUALS)
        if len(symbols) == 2 * operators + 1
    )
    assert len(seen) == shapes
    assert chisquare(list(seen.values())).pvalue > 1e-4


def test_operators_and_numbers_are_uniform() -> None:
    rows = sample(Mano(), 22, 0, 2000, 64)
    flat = [symbol for row in rows.tokens.tolist() for symbols, _ in expressions_of(row, EQUALS) for symbol in symbols]
    counts = np.bincount(flat, minlength=11)
    assert chisquare(counts[:7]).pvalue > 1e-4
    assert chisquare(counts[7:10]).pvalue > 1e-4


def test_the_lengths_are_uniform_but_for_what_does_not_fit() -> None:
    """Expected counts by renewal: an expression begins at place s with probability u(s), is any length equally likely,
    and counts where it ends within the row. Counts of a row are compared within 4 standard errors over rows."""
    row_length, most = 64, 4
    begins = np.zeros(row_length + 2 * most + 3)
    begins[0] = 1.0
    expected = np.zeros(most + 1)
    for s in range(row_length):
        for operators in range(most + 1):
            end = s + 2 * operators + 2
            if end <= row_length:
                begins[end] += begins[s] / (most + 1)
                expected[operators] += begins[s] / (most + 1)
    rows = sample(Mano(), 23, 0, 4000, row_length)
    for operators in range(most + 1):
        counts = (rows.asked & (rows.slice == operators)).sum(axis=1)
        assert abs(counts.mean() - expected[operators]) < STANDARD_ERRORS * counts.std() / math.sqrt(len(counts))
    assert expected[0] / expected[4] < 1.15  # the slices stay comparable in size


def entropy_given(pairs: Counter[tuple[int, int]]) -> float:
    """Entropy of the second given the first, nats."""
    total, first = sum(pairs.values()), Counter[int]()
    for (clue, _), count in pairs.items():
        first[clue] += count
    return -math.fsum(count / total * math.log(count / first[clue]) for (clue, _), count in pairs.items())


@pytest.mark.parametrize(("modulus", "operators"), [(7, 0), (7, 1), (7, 2), (3, 3), (4, 2)])
def test_chance_and_shortcuts_are_those_of_all_expressions(modulus: int, operators: int) -> None:
    """Exact enumeration of every shape, operator and number: at most 7^3 x 3^2 x 2; sums in float64."""
    nothing, by_first, by_last = Counter[tuple[int, int]](), Counter[tuple[int, int]](), Counter[tuple[int, int]]()
    for shape in tree_shapes(operators):
        kinds = [range(modulus, modulus + 3) if inner else range(modulus) for inner in shape]
        for symbols in product(*kinds):
            value = value_of(list(symbols), modulus)
            nothing[0, value] += 1
            by_first[symbols[0], value] += 1
            by_last[symbols[-1], value] += 1
    levels = Mano(modulus=modulus, max_operators=operators).levels(64)[f"l{operators}"]
    assert levels.chance == pytest.approx(entropy_given(nothing), rel=1e-12)
    assert levels.shortcuts["uniform"] == pytest.approx(math.log(modulus), rel=1e-15)
    if operators == 0:
        assert levels.shortcuts["the number itself"] == entropy_given(by_first) == 0.0
    else:
        assert levels.shortcuts["the first operator alone"] == pytest.approx(entropy_given(by_first), rel=1e-12)
        assert levels.shortcuts["the last number alone"] == pytest.approx(entropy_given(by_last), rel=1e-12)


def test_chance_is_what_the_values_of_a_large_sample_show() -> None:
    """Cross entropy of half of a sample under the frequencies of the other half, within 4 standard errors."""
    rows = sample(Mano(), 24, 0, 8000, 64)
    for operators, level in enumerate(Mano().levels(64).values()):
        values = rows.targets[rows.asked & (rows.slice == operators)]
        frequencies = np.bincount(values[::2], minlength=7) / len(values[::2])
        nats = -np.log(frequencies[values[1::2]])
        noise = STANDARD_ERRORS * nats.std() / math.sqrt(len(nats))
        assert abs(nats.mean() - level.chance) < noise + 6 / len(values)  # 6 / (2 n): what fitting 7 frequencies costs


@pytest.mark.parametrize(
    ("knobs", "words"),
    [({"modulus": 1}, "modulus: not a valid value"), ({"max_operators": 9}, "max_operators: not a valid value")],
)
def test_knobs_that_do_not_fit_are_refused_in_one_sentence(knobs: dict[str, Any], words: str) -> None:
    with pytest.raises(ExperimentFileError, match=words):
        resolve("mano", knobs, "base.corpus")


def test_a_row_too_short_for_the_longest_expression_is_refused_with_both_numbers() -> None:
    with pytest.raises(CorpusError, match=r"row of 9 tokens[\s\S]*at least 10"):
        sample(Mano(), 0, 0, 1, 9)
