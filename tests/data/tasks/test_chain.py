"""`chain`: rows have the law of a Dirichlet matrix drawn first, and the floor is Bayes' rule on the row."""

import math
from collections import Counter
from collections.abc import Callable
from functools import cache
from itertools import product
from typing import Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from pydantic import ValidationError
from scipy import stats
from scipy.special import gammaln

from paribus.data.tasks.chain import Chain
from paribus.data.tasks.contract import Rows, sample
from paribus.seeds import generator

MeanOnSlice = Callable[[NDArray[np.float64], NDArray[np.bool_]], tuple[float, float]]
SEED = 13
TINY = Chain.model_validate(dict(Chain.tiny))
PLACES = Chain.tiny_row_length


def transitions(row: tuple[int, ...], order: int) -> list[tuple[tuple[int, ...], int]]:
    return [(row[t - order : t], row[t]) for t in range(order, len(row))]


def log_probability(row: tuple[int, ...], states: int, concentration: float, order: int) -> float:
    """Of a whole row, the matrix integrated out: a product of Dirichlet-multinomial (Beta) integrals, one a state."""
    found = -order * math.log(states)
    by_state: dict[tuple[int, ...], Counter[int]] = {}
    for state, symbol in transitions(row, order):
        by_state.setdefault(state, Counter())[symbol] += 1
    for counts in by_state.values():
        found += gammaln(states * concentration) - gammaln(states * concentration + counts.total())
        found += sum(gammaln(concentration + n) - gammaln(concentration) for n in counts.values())
    return float(found)


@cache
def enumerated(order: Literal[1, 2]) -> tuple[tuple[tuple[int, ...], float], ...]:
    """Every row of the tiny instance with the target of its last place, and its probability."""
    rows = product(range(TINY.states), repeat=PLACES + 1)
    return tuple((row, math.exp(log_probability(row, TINY.states, TINY.concentration, order))) for row in rows)


def label_of(row: tuple[int, ...], t: int, order: int) -> str:
    """The slice of the target that follows place t, from the definition."""
    state = row[t - order + 1 : t + 1]
    if all(row[u - order + 1 : u + 1] != state for u in range(order - 1, t)):
        return "first"
    return "self" if row[t + 1] == row[t] else "later"


@pytest.mark.parametrize("order", [1, 2])
def test_rows_have_the_law_of_a_matrix_drawn_from_the_dirichlet(order: Literal[1, 2]) -> None:
    rows = enumerated(order)
    assert sum(p for _, p in rows) == pytest.approx(1, abs=1e-12)
    task = Chain(states=TINY.states, concentration=TINY.concentration, order=order)
    drawn = sample(task, SEED, 0, 40_000, PLACES)
    whole = np.concatenate([drawn.tokens, drawn.targets[:, -1:]], axis=1)
    counts = Counter(map(tuple, whole.tolist()))
    observed = np.array([counts[row] for row, _ in rows])
    assert observed.sum() == 40_000
    assert stats.chisquare(observed, 40_000 * np.array([p for _, p in rows])).pvalue > 1e-4


def test_the_default_rows_agree_with_matrices_drawn_by_numpy() -> None:
    """Shares of the slices and of repeated symbols against 1,500 chains simulated from explicit matrices."""
    task = Chain()
    draw = generator("tests", "chain", "explicit matrices")
    labels: list[list[float]] = []
    for _ in range(1500):
        matrix = draw.dirichlet(np.full(16, 0.1), size=16).cumsum(axis=1)
        row = [int(draw.integers(16))]
        for point in draw.random(48):
            row.append(min(int(np.searchsorted(matrix[row[-1]], point)), 15))
        found = Counter(label_of(tuple(row), t, 1) for t in range(48))
        labels.append([found[name] / 48 for name in Chain.slices])
    drawn = sample(task, SEED, 1, 1500, 48)
    urn = np.stack([np.mean(drawn.slice == index, axis=1) for index in range(3)], axis=1)
    explicit = np.array(labels)
    error = np.sqrt((urn.var(axis=0) + explicit.var(axis=0)) / 1500)
    assert (np.abs(urn.mean(axis=0) - explicit.mean(axis=0)) < 4 * error).all()


@settings(deadline=None, max_examples=40)
@given(
    states=st.integers(2, 6),
    concentration=st.floats(0.001, 50),
    order=st.sampled_from([1, 2]),
    row_length=st.integers(2, 30),
    seed=st.integers(0, 2**63),
)
def test_targets_slices_and_floor_follow_from_the_row(
    states: int, concentration: float, order: Literal[1, 2], row_length: int, seed: int
) -> None:
    task = Chain(states=states, concentration=concentration, order=order)
    drawn = sample(task, seed, 1, 3, row_length)
    best = task.oracle(drawn.tokens, 0)
    for r in range(3):
        row = (*drawn.tokens[r].tolist(), int(drawn.targets[r, -1]))
        for t in range(row_length):
            assert drawn.asked[r, t] == (t >= order - 1)
            if drawn.asked[r, t]:
                assert drawn.targets[r, t] == row[t + 1]
                assert task.slices[drawn.slice[r, t]] == label_of(row, t, order)
                assert drawn.floor_nats[r, t] == pytest.approx(-math.log(best[r, t, row[t + 1]]), abs=1e-9)
    # Bayes' rule along the row multiplies to the probability of the row.
    whole = (*drawn.tokens[0].tolist(), int(drawn.targets[0, -1]))
    expected = -log_probability(whole, states, concentration, order) - order * math.log(states)
    assert drawn.floor_nats[0].sum() == pytest.approx(expected, abs=1e-8)
    assert (drawn.answer == -1).all()


def exact_levels(order: Literal[1, 2]) -> dict[str, dict[str, float]]:
    """Losses on each slice of the tiny instance by enumeration: Bayes' rule as a ratio of probabilities of rows."""
    probability = {}
    for length in range(order, PLACES + 2):
        for row in product(range(TINY.states), repeat=length):
            probability[row] = math.exp(log_probability(row, TINY.states, TINY.concentration, order))
    repeats = asked = 0.0
    for row, p in enumerated(order):
        for t in range(order - 1, PLACES):
            repeats += p * (row[t + 1] == row[t])
            asked += p
    rate = repeats / asked
    found: dict[str, dict[str, float]] = {}
    weight: dict[str, float] = {}
    for row, p in enumerated(order):
        for t in range(order - 1, PLACES):
            name = label_of(row, t, order)
            target, seen = row[t + 1], row[: t + 1]
            losses = {
                "floor": -math.log(probability[(*seen, target)] / probability[seen]),
                "symbols of the row": -math.log((seen.count(target) + 1) / (len(seen) + TINY.states)),
                "the own symbol again": -math.log(rate if target == seen[-1] else (1 - rate) / (TINY.states - 1)),
            }
            weight[name] = weight.get(name, 0) + p
            into = found.setdefault(name, dict.fromkeys(losses, 0.0))
            for key, loss in losses.items():
                into[key] += p * loss
    return {name: {key: value / weight[name] for key, value in of.items()} for name, of in found.items()}


@pytest.mark.parametrize("order", [1, 2])
def test_the_simulated_levels_agree_with_exact_enumeration(order: Literal[1, 2]) -> None:
    task = Chain(states=TINY.states, concentration=TINY.concentration, order=order)
    declared, errors, exact = task.levels(PLACES), task.standard_errors(PLACES), exact_levels(order)
    assert set(declared) == set(exact) == set(errors)
    for name, levels in declared.items():
        assert levels.chance == math.log(2)
        assert abs(levels.floor - exact[name]["floor"]) < 4 * errors[name] + 1e-12, name
        assert errors[name] < 0.004
        for shortcut, loss in levels.shortcuts.items():
            # Their losses lie between ln(7/6) and ln 7, so their standard deviation is below 1; a slice has a target
            # in at least every second of the 65,536 rows: 4 / sqrt(32,768).
            assert abs(loss - exact[name][shortcut]) < 0.022, (name, shortcut)


@pytest.mark.parametrize(("knobs", "row_length"), [({}, 128), ({"states": 6, "order": 2}, 64)])
def test_independent_predictors_attain_the_declared_shortcuts(
    knobs: dict[str, object], row_length: int, mean_on_slice: MeanOnSlice
) -> None:
    task = Chain.model_validate(knobs)
    drawn = sample(task, SEED, 4, 500, row_length)
    rate = np.mean((drawn.targets == drawn.tokens)[drawn.asked])
    unigram, again = np.zeros(drawn.tokens.shape), np.zeros(drawn.tokens.shape)
    for r, row in enumerate(drawn.tokens.tolist()):
        seen: Counter[int] = Counter()
        for t, symbol in enumerate(row):
            seen[symbol] += 1
            target = int(drawn.targets[r, t])
            unigram[r, t] = -math.log((seen[target] + 1) / (t + 1 + task.states))
            again[r, t] = -math.log(rate if target == symbol else (1 - rate) / (task.states - 1))
    for name, levels in task.levels(row_length).items():
        here = drawn.asked & (drawn.slice == task.slices.index(name))
        mean, error = mean_on_slice(unigram, here)
        # The declared level comes from at least thirty times as many rows.
        assert abs(mean - levels.shortcuts["symbols of the row"]) < 4 * 1.02 * error, name
        mean, error = mean_on_slice(again, here)
        # The rate is fitted on these rows; its error moves both branches by about that much.
        _, of_rate = mean_on_slice((drawn.targets == drawn.tokens).astype(np.float64), drawn.asked)
        assert abs(mean - levels.shortcuts["the own symbol again"]) < 4 * 1.02 * math.hypot(
            error, of_rate / (rate * (1 - rate))
        )


def test_standard_errors_are_small_beside_what_the_task_shows() -> None:
    errors = Chain().standard_errors(128)
    assert errors["first"] < 1e-12
    assert errors["later"] < 0.003
    assert errors["self"] < 0.012


def test_a_first_visit_leaves_only_the_prior() -> None:
    drawn = sample(Chain(), SEED, 2, 300, 64)
    first = drawn.asked & (drawn.slice == 0)
    np.testing.assert_allclose(drawn.floor_nats[first], math.log(16), rtol=0, atol=1e-12)
    assert Chain().levels(64)["first"].floor == pytest.approx(math.log(16), abs=1e-12)


def test_the_oracle_reads_no_later_token() -> None:
    for order in (1, 2):
        task = Chain(states=3, order=order)
        tokens = sample(task, SEED, 0, 20, 10).tokens
        whole = task.oracle(tokens, SEED)
        for t in range(10):
            np.testing.assert_array_equal(task.oracle(tokens[:, : t + 1], SEED)[:, t], whole[:, t])


@pytest.mark.parametrize(
    "knobs", [{"states": 1}, {"order": 3}, {"concentration": 0.0}, {"states": 17, "order": 2}, {"states": 65}]
)
def test_knobs_that_make_no_task_are_refused(knobs: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        Chain.model_validate(knobs)


@pytest.mark.parametrize(
    ("knobs", "expected"), [({}, "350362642797b067"), ({"states": 6, "order": 2}, "247f0f55f8e08507")]
)
def test_the_numbers_are_frozen(knobs: dict[str, object], expected: str, digest: Callable[[Rows], str]) -> None:
    assert digest(sample(Chain.model_validate(knobs), SEED, 3, 16, 128)) == expected
