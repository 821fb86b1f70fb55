"""Numbers by counter: equal to splitmix64 written with Python's integers, uniform, and independent across parts of the
key."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from paribus.data.tasks.hashing import Draws, mix
from paribus.seeds import stream_key

WORD = 2**64
STRIDE = 0x9E3779B97F4A7C15
words = st.integers(0, WORD - 1)


def naive_mix(z: int) -> int:
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) % WORD
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) % WORD
    return z ^ (z >> 31)


def naive_bits(seed: int, step: int, row: int, purpose: str, index: int) -> int:
    key = naive_mix((step * STRIDE + seed) % WORD)
    key = naive_mix((key + (row + 1) * STRIDE) % WORD)
    key = naive_mix((key + stream_key("task draw", purpose)) % WORD)
    return naive_mix((key + (index + 1) * STRIDE) % WORD)


def draws(rows: int, seed: int = 5, step: int = 0) -> Draws:
    return Draws.of(seed, np.full(rows, step), np.arange(rows))


def test_the_mixer_reproduces_the_published_outputs_of_splitmix64() -> None:
    """The first outputs of the generator with seed 1234567: the mixer applied to seed + k x stride."""
    state = np.uint64(1234567) + np.arange(1, 6, dtype=np.uint64) * np.uint64(STRIDE)
    expected = [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
        4593380528125082431,
        16408922859458223821,
    ]
    assert mix(state).tolist() == expected


@given(st.lists(words, min_size=1, max_size=20))
def test_the_mixer_equals_exact_integers(values: list[int]) -> None:
    assert mix(np.array(values, dtype=np.uint64)).tolist() == [naive_mix(value) for value in values]


@settings(deadline=None)
@given(words, st.integers(0, 2**40), st.integers(0, 2**40), st.text(max_size=8))
def test_bits_are_the_hash_of_seed_step_row_purpose_and_index(seed: int, step: int, row: int, purpose: str) -> None:
    found = Draws.of(seed, np.array([step]), np.array([row])).bits(purpose, 2, 3)
    expected = [naive_bits(seed, step, row, purpose, index) for index in range(6)]
    assert found.reshape(-1).tolist() == expected


def test_what_else_is_drawn_changes_nothing() -> None:
    one, other = draws(4), draws(4)
    other.bits("something else", 1000)
    np.testing.assert_array_equal(one.bits("a", 5), other.bits("a", 5))
    np.testing.assert_array_equal(one.bits("a", 5), one.bits("a", 9)[:, :5])
    assert not np.array_equal(one.bits("a", 5), one.bits("b", 5))


@pytest.mark.parametrize("high", [2, 3, 7, 16, 50])
def test_integers_are_uniform_and_cover_their_range(high: int) -> None:
    counts = np.bincount(draws(2000).integers("x", high, 50).ravel(), minlength=high)
    assert len(counts) == high
    assert stats.chisquare(counts).pvalue > 1e-4


def test_uniform_numbers_pass_kolmogorov_and_stay_below_one() -> None:
    values = draws(2000).uniform("x", 50).ravel()
    assert values.min() >= 0
    assert values.max() < 1
    assert stats.kstest(values, "uniform").pvalue > 1e-4


@pytest.mark.parametrize("part", ["seed", "step", "row", "purpose", "index"])
def test_numbers_of_neighbouring_keys_are_independent(part: str) -> None:
    """An 8 x 8 table of the numbers of two keys that differ by one in one part."""
    rows = np.arange(40_000)
    base = Draws.of(5, np.full(40_000, 3), rows)
    neighbour = {
        "seed": Draws.of(6, np.full(40_000, 3), rows),
        "step": Draws.of(5, np.full(40_000, 4), rows),
        "row": Draws.of(5, np.full(40_000, 3), rows + 1),
    }.get(part, base)
    left = base.integers("a", 8, 2)[:, 0]
    right = neighbour.integers("b" if part == "purpose" else "a", 8, 2)[:, 1 if part == "index" else 0]
    table = np.zeros((8, 8))
    np.add.at(table, (left, right), 1)
    assert stats.chisquare(table.ravel()).pvalue > 1e-4


def test_permutations_are_uniform() -> None:
    orders = draws(24_000).permutations("x", 4)
    np.testing.assert_array_equal(np.sort(orders, axis=1), np.broadcast_to(np.arange(4), orders.shape))
    _, counts = np.unique(orders, axis=0, return_counts=True)
    assert len(counts) == 24
    assert stats.chisquare(counts).pvalue > 1e-4


def test_the_chosen_differ_and_every_set_is_equally_likely() -> None:
    chosen = draws(20_000).chosen("x", 5, 2)
    assert (chosen[:, 0] != chosen[:, 1]).all()
    _, counts = np.unique(chosen, axis=0, return_counts=True)
    assert len(counts) == 20
    assert stats.chisquare(counts).pvalue > 1e-4
