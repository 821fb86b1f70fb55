"""`tally`: the target is the running count, and the levels follow from the binomial distribution."""

import math
from collections.abc import Callable
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from pydantic import ValidationError
from scipy import stats

from paribus.data.tasks.contract import Rows, sample
from paribus.data.tasks.tally import Tally

MeanOnSlice = Callable[[NDArray[np.float64], NDArray[np.bool_]], tuple[float, float]]
SEED = 12


def slice_of(count: int) -> str:
    return "one" if count == 1 else "few" if count <= 3 else "many"


@settings(deadline=None, max_examples=60)
@given(
    symbols=st.integers(2, 9),
    classes=st.integers(2, 10),
    anchor=st.booleans(),
    row_length=st.integers(2, 40),
    seed=st.integers(0, 2**63),
)
def test_the_target_is_how_often_the_symbol_has_stood_so_far(
    symbols: int, classes: int, anchor: bool, row_length: int, seed: int
) -> None:
    task = Tally(symbols=symbols, classes=classes, anchor=anchor)
    drawn = sample(task, seed, 1, 4, row_length)
    for r, row in enumerate(drawn.tokens.tolist()):
        for t, token in enumerate(row):
            if anchor and t == 0:
                assert token == max(symbols, classes) == task.vocabulary_size - 1
                assert not drawn.asked[r, t]
                continue
            assert token < symbols
            count = sum(other == token for other in row[anchor : t + 1])
            assert drawn.asked[r, t]
            assert drawn.targets[r, t] == min(count, classes) - 1
            assert task.slices[drawn.slice[r, t]] == slice_of(count)
    assert (drawn.answer == -1).all()


def test_symbols_are_uniform_and_neighbours_independent() -> None:
    tokens = sample(Tally(symbols=5), SEED, 0, 2000, 64).tokens
    table = np.zeros((5, 5))
    np.add.at(table, (tokens[:, ::2], tokens[:, 1::2]), 1)
    assert stats.chisquare(table.ravel()).pvalue > 1e-4


def test_the_oracle_reads_no_later_token() -> None:
    task = Tally(symbols=3, classes=4, anchor=True)
    tokens = sample(task, SEED, 0, 20, 12).tokens
    whole = task.oracle(tokens, SEED)
    for t in range(1, 12):
        np.testing.assert_array_equal(task.oracle(tokens[:, : t + 1], SEED)[:, t], whole[:, t])


@pytest.mark.parametrize(("symbols", "classes", "length"), [(2, 3, 5), (2, 6, 8), (3, 2, 6), (2, 3, 3), (4, 4, 1)])
def test_the_levels_are_exact_over_all_rows(symbols: int, classes: int, length: int) -> None:
    """Every row is equally likely: frequencies and losses by enumeration."""
    targets = [
        (t, slice_of(row[: t + 1].count(row[t])), min(row[: t + 1].count(row[t]), classes))
        for row in product(range(symbols), repeat=length)
        for t in range(length)
    ]
    levels = Tally(symbols=symbols, classes=classes).levels(length)
    assert set(levels) == {name for _, name, _ in targets}
    answers = [answer for _, _, answer in targets]
    at_place = [[answer for place, _, answer in targets if place == t] for t in range(length)]
    for name, found in levels.items():
        here = [(t, answer) for t, label, answer in targets if label == name]
        chance = [-math.log(answers.count(answer) / len(answers)) for _, answer in here]
        place = [-math.log(at_place[t].count(answer) / len(at_place[t])) for t, answer in here]
        assert found.floor == 0
        assert found.chance == pytest.approx(np.mean(chance), abs=1e-12)
        assert found.shortcuts == {"the place alone": pytest.approx(np.mean(place), abs=1e-12)}


@pytest.mark.parametrize("anchor", [False, True])
def test_fitted_frequencies_attain_the_declared_levels(anchor: bool, mean_on_slice: MeanOnSlice) -> None:
    task = Tally(anchor=anchor)
    places = 64 - anchor
    fit, score = (sample(task, SEED, step, 4000, 64) for step in (1, 2))
    loss = np.zeros((4000, 64))
    for t in range(int(anchor), 64):
        frequency = (np.bincount(fit.targets[:, t], minlength=8) + 0.5) / 4004
        # Independent check of the fit: the count after n others is 1 + Binomial(n, 1 / 16).
        expected = stats.binom.pmf(np.arange(7), t - anchor, 1 / 16)
        np.testing.assert_allclose(frequency[:7], expected, atol=5 * 0.5 / math.sqrt(4000))
        loss[:, t] = -np.log(frequency[score.targets[:, t]])
    for name, levels in task.levels(64).items():
        mean, error = mean_on_slice(loss, score.asked & (score.slice == task.slices.index(name)))
        # Fitting 8 frequencies a place on 4,000 rows costs about 7 / 8,000 nats and scatters like the score.
        assert abs(mean - levels.shortcuts["the place alone"]) < 4 * math.sqrt(2) * error + 8 / 8000, name
    assert places == score.asked[0].sum()


def test_the_published_shortcuts_are_those_of_all_targets_together() -> None:
    """1.82 nats for the class frequencies and 1.50 for the place, with 16 symbols, 8 classes and 64 places."""
    levels = Tally().levels(64)
    drawn = sample(Tally(), SEED, 5, 4000, 64)
    share = [np.mean(drawn.slice == index) for index in range(3)]
    chance = sum(part * levels[name].chance for part, name in zip(share, Tally.slices, strict=True))
    place = sum(
        part * levels[name].shortcuts["the place alone"] for part, name in zip(share, Tally.slices, strict=True)
    )
    assert chance == pytest.approx(1.82, abs=0.005)
    assert place == pytest.approx(1.50, abs=0.005)


@pytest.mark.parametrize(("length", "names"), [(1, ["one"]), (3, ["one", "few"]), (4, ["one", "few", "many"])])
def test_slices_that_a_short_row_cannot_reach_have_no_levels(length: int, names: list[str]) -> None:
    assert list(Tally().levels(length)) == names
    assert list(Tally(anchor=True).levels(length + 1)) == names


@pytest.mark.parametrize("knobs", [{"symbols": 1}, {"classes": 1}, {"anchor": 1}, {"symbols": 2.0}])
def test_knobs_that_make_no_task_are_refused(knobs: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        Tally.model_validate(knobs)


@pytest.mark.parametrize(("anchor", "expected"), [(False, "efa9a9e2064c1605"), (True, "830db169399b65f7")])
def test_the_numbers_are_frozen(anchor: bool, expected: str, digest: Callable[[Rows], str]) -> None:
    assert digest(sample(Tally(anchor=anchor), SEED, 3, 16, 64)) == expected
