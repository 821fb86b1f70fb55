"""What the frequencies of answers cost, against closed forms: the measure that a declared chance is held against."""

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from paribus.data.tasks.levels import frequencies, mean_floor
from paribus.data.tasks.readers import LEAST_UNITS, SEEDS_AT_FULL_SIZE, Asked
from paribus.seeds import generator

PER_SEED = 48
COUNT = SEEDS_AT_FULL_SIZE * PER_SEED


def asked(target: NDArray[np.int64], label: NDArray[np.int64], floor_nats: NDArray[np.float64] | None = None) -> Asked:
    """Independent targets, as many of each seed, one a row."""
    row = np.arange(COUNT)
    return Asked(
        seed=row // PER_SEED,
        row=row,
        place=np.zeros(COUNT, dtype=np.int64),
        target=target,
        label=label,
        floor_nats=np.zeros(COUNT) if floor_nats is None else floor_nats,
        learning=row < COUNT // 2,
    )


@pytest.mark.parametrize("kinds", [2, 8, 64, 512])
def test_the_entropy_of_equally_frequent_answers_lies_between_the_two_estimates(kinds: int) -> None:
    for draw in range(20):
        target = generator("test levels", "uniform", kinds, draw).integers(0, kinds, COUNT)
        found = frequencies(asked(target, np.zeros(COUNT, dtype=np.int64)), 0, own=False)
        assert found is not None
        assert found.low <= math.log(kinds) + 5 * found.standard_error
        assert found.high >= math.log(kinds) - 5 * found.standard_error
        assert found.admit(math.log(kinds))
        # Miller and Madow: each is off by about (kinds - 1) / (2 targets), the upper one counts on half of them.
        bias = (kinds - 1) / (2 * COUNT)
        assert found.high - found.low < 5 * bias + 0.002
        assert not found.admit(math.log(kinds) + 3 * bias + 0.03)
        assert not found.admit(math.log(kinds) - 2 * bias - 0.03)


def test_the_standard_error_counts_that_pooled_frequencies_scatter() -> None:
    """A slice that is one answer of share p costs -ln p by pooled frequencies: its error is that of the share alone,
    sqrt((1 - p) / (p n)) by the delta method; by its own frequencies it costs nothing, without error."""
    p, draws = 0.05, 200
    pooled = []
    for draw in range(draws):
        rare = generator("test levels", "rare", draw).random(COUNT) < p
        found = asked(np.where(rare, 3, 1), rare.astype(np.int64))
        pooled.append(frequencies(found, 1, own=False))
        own = frequencies(found, 1, own=True)
        assert own is not None
        assert (own.low, own.standard_error) == (0.0, 0.0)
        assert not own.admit(-math.log(p))
    expected = math.sqrt((1 - p) / (p * COUNT))
    low = np.array([found.low for found in pooled if found is not None])
    # The sd of 200 draws and the mean of 200 estimates are good to 5 %; four of these, and delta's second order.
    assert low.std(ddof=1) == pytest.approx(expected, rel=0.25)
    assert np.mean([found.standard_error for found in pooled if found is not None]) == pytest.approx(expected, rel=0.05)
    assert all(found is not None and found.admit(-math.log(p)) for found in pooled)


def test_targets_of_one_seed_that_lean_on_each_other_widen_the_error() -> None:
    """One answer a seed: as many independent targets as seeds."""
    answer = np.repeat(generator("test levels", "by seed").random(SEEDS_AT_FULL_SIZE) < 0.2, PER_SEED)
    found = frequencies(asked(answer.astype(np.int64), np.zeros(COUNT, dtype=np.int64)), 0, own=False)
    assert found is not None
    share = answer.mean()
    by_seed = math.sqrt(share * (1 - share) / SEEDS_AT_FULL_SIZE) * math.log((1 - share) / share)
    assert found.standard_error == pytest.approx(by_seed, rel=1e-9)


def test_a_slice_of_too_few_seeds_is_not_judged() -> None:
    label = (np.arange(COUNT) < (LEAST_UNITS - 1) * PER_SEED).astype(np.int64)
    target = generator("test levels", "few").integers(0, 4, COUNT)
    assert frequencies(asked(target, label), 1, own=True) is None
    assert mean_floor(asked(target, label), 1) is None
    assert frequencies(asked(target, label), 0, own=True) is not None


def test_the_floor_is_the_mean_of_the_slice_with_seeds_as_units() -> None:
    floor = generator("test levels", "floor").random(COUNT)
    label = np.arange(COUNT) % 2
    found = mean_floor(asked(label, label, floor), 1)
    assert found is not None
    means = floor[label == 1].reshape(SEEDS_AT_FULL_SIZE, -1).mean(axis=1)
    assert found[0] == pytest.approx(means.mean(), rel=1e-12)
    assert found[1] == pytest.approx(means.std() / math.sqrt(len(means)), rel=1e-9)


def test_a_mean_over_too_few_rows_is_no_number_instead_of_one_without_error() -> None:
    found = asked(np.zeros(COUNT, dtype=np.int64), np.zeros(COUNT, dtype=np.int64))
    here = np.arange(COUNT) >= COUNT - LEAST_UNITS
    nats = generator("test levels", "rows").random(COUNT)
    assert found.mean(nats, here)[0] == pytest.approx(nats[-LEAST_UNITS:].mean())
    assert math.isnan(found.mean(nats, here & (np.arange(COUNT) < COUNT - 1))[0])
