"""`static`: targets that are independent of every token of their row, and of each other."""

import math
from collections.abc import Callable

import numpy as np
import pytest
from scipy import stats

from paribus.data.tasks.chain import Chain
from paribus.data.tasks.contract import Levels, Rows, sample
from paribus.data.tasks.static import Static

SEED = 14


@pytest.mark.parametrize("knobs", [{}, {"states": 5, "order": 2}])
def test_the_tokens_are_those_of_the_chain(knobs: dict[str, object]) -> None:
    static, chain = Static.model_validate(knobs), Chain.model_validate(knobs)
    np.testing.assert_array_equal(sample(static, SEED, 0, 50, 40).tokens, sample(chain, SEED, 0, 50, 40).tokens)


def test_every_place_is_asked_at_one_level() -> None:
    drawn = sample(Static(states=6, order=2), SEED, 0, 50, 40)
    assert drawn.asked.all()
    assert (drawn.slice == 0).all()
    assert (drawn.answer == -1).all()
    assert (drawn.floor_nats == math.log(6)).all()
    assert Static().levels(128) == {"every": Levels(math.log(16), math.log(16), {})}


def test_targets_are_uniform() -> None:
    targets = sample(Static(), SEED, 0, 1000, 128).targets
    assert stats.chisquare(np.bincount(targets.ravel(), minlength=16)).pvalue > 1e-4


@pytest.mark.parametrize("back", [-3, -2, -1, 0, 1, 2, 3, 10])
def test_no_token_at_any_distance_foretells_a_target(back: int) -> None:
    """Nor a later one: a table of target by token, one target a row so that the rows are independent."""
    drawn = sample(Static(states=4, concentration=1.0), SEED, 1, 20_000, 24)
    table = np.zeros((4, 4))
    np.add.at(table, (drawn.targets[:, 12], drawn.tokens[:, 12 - back]), 1)
    assert stats.chisquare(table.ravel()).pvalue > 1e-4


@pytest.mark.parametrize(("place", "at"), [(0, 0), (0, 1), (1, 0), (1, 1), (23, 0), (23, 23)])
def test_no_token_at_a_fixed_place_foretells_a_target(place: int, at: int) -> None:
    """The first symbol is drawn apart from the others and could share its numbers with a target."""
    drawn = sample(Static(states=4, concentration=1.0), SEED, 3, 20_000, 24)
    table = np.zeros((4, 4))
    np.add.at(table, (drawn.targets[:, place], drawn.tokens[:, at]), 1)
    assert stats.chisquare(table.ravel()).pvalue > 1e-4


@pytest.mark.parametrize("back", [1, 2, 7])
def test_no_target_foretells_another(back: int) -> None:
    targets = sample(Static(states=4), SEED, 2, 2000, 64).targets
    table = np.zeros((4, 4))
    np.add.at(table, (targets[:, back:], targets[:, :-back]), 1)
    assert stats.chisquare(table.ravel()).pvalue > 1e-4


def test_the_numbers_are_frozen(digest: Callable[[Rows], str]) -> None:
    assert digest(sample(Static(), SEED, 3, 16, 128)) == "616212ae976ecee5"
