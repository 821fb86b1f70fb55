"""Ratios of times from mirrored blocks: against closed forms, scipy, and simulated machines that drift and stall."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from paribus.errors import ParibusError
from paribus.seeds import generator
from paribus.stats.forms import Array
from paribus.stats.step_ratio import Reading, StepRatio, require_one_host, step_ratio

CHANCE = 1e-4
"""of a right program to fail one of the bounds on a share, by the binomial law"""


def machine(name: str, blocks: int, ratios: tuple[float, ...], *, noise: float = 0.01, stalls: float = 0.1) -> Array:
    """Seconds [turn arm] in mirrored blocks of a shared machine: a clock that runs down by half over the measurement, a
    wandering load, errors with heavy tails (t on 3 degrees of freedom), and now and then a turn that waits."""
    draws = generator("tests", "step ratio", 0, "machine", name)
    arms, turns = len(ratios), 2 * blocks
    first = draws.permuted(np.tile(np.arange(arms), (blocks, 1)), axis=1)
    order = np.stack([first, first[:, ::-1]], axis=1).reshape(-1)  # of arms, slot after slot
    slots = len(order)
    log = np.linspace(0, 0.5, slots) + 0.2 * noise * np.cumsum(draws.standard_normal(slots))
    log += noise * draws.standard_t(3, slots)
    log += (draws.random(slots) < stalls) * draws.exponential(0.5, slots) * (noise > 0)
    seconds = np.empty((turns, arms))
    seconds[np.repeat(np.arange(turns), arms), order] = 0.1 * np.exp(log) * np.array(ratios)[order]
    return seconds


def of_blocks(logs: Array) -> Array:
    """Seconds [turn arm] whose blocks have these log ratios."""
    return np.repeat(np.stack([np.ones_like(logs), np.exp(logs)], axis=1), 2, axis=0)


@pytest.mark.parametrize("blocks", [5, 6, 21])
def test_the_estimate_is_the_median_over_blocks_of_the_ratio_of_means(blocks: int) -> None:
    seconds = machine("by hand", blocks, (1.0, 1.1))
    by_block = [math.log(sum(seconds[i : i + 2, 1]) / sum(seconds[i : i + 2, 0])) for i in range(0, 2 * blocks, 2)]
    found = step_ratio(seconds, 0, 1)
    assert (found.blocks, found.rounds) == (blocks, 2 * blocks)
    assert found.log_ratio == pytest.approx(np.median(by_block), rel=1e-12)


def test_a_drift_that_is_linear_within_blocks_leaves_the_ratio_exactly() -> None:
    slots = 1 + 0.05 * np.arange(4 * 6)  # A B B A, six times, on a machine that slows down at every slot
    cost = {"A": 1.0, "B": 1.1}
    taken = {arm: [cost[arm] * slots[i] for i, of in enumerate("ABBA" * 6) if of == arm] for arm in "AB"}
    found = step_ratio(np.array([taken["A"], taken["B"]]).T, 0, 1)
    assert found.ratio == pytest.approx(1.1, rel=1e-12)
    assert found.se_log_ratio < 1e-12
    # The same machine with a fixed order in every round, which is what blocks are for.
    taken = {arm: [cost[arm] * slots[i] for i, of in enumerate("AB" * 12) if of == arm] for arm in "AB"}
    assert step_ratio(np.array([taken["A"], taken["B"]]).T, 0, 1).ratio > 1.12


@pytest.mark.parametrize("blocks", [9, 20])
def test_the_interval_and_the_error_are_those_of_scipys_bootstrap_up_to_its_draws(blocks: int) -> None:
    logs = 0.02 * generator("tests", "step ratio", 0, "scipy", blocks).standard_t(3, blocks)
    found = step_ratio(of_blocks(logs), 0, 1)
    theirs = stats.bootstrap(
        (logs,), np.median, n_resamples=20_000, method="percentile", rng=generator("tests", "step ratio", "theirs")
    )
    spread = logs.std()
    # Ends are order statistics: two sets of draws may end one gap between neighbours apart.
    assert found.log_interval == pytest.approx(tuple(theirs.confidence_interval), abs=0.2 * spread)
    assert found.se_log_ratio == pytest.approx(theirs.standard_error, rel=0.06)
    assert found.interval() == pytest.approx(tuple(np.exp(found.log_interval)))
    assert step_ratio(of_blocks(logs), 0, 1) == found, "the draws are a stream of their own name"


@pytest.mark.parametrize("blocks", [10, 50])
def test_the_interval_covers_the_ratio_on_a_machine_that_drifts_and_stalls(blocks: int) -> None:
    studies, covered = 400, 0
    for study in range(studies):
        bounds = step_ratio(machine(f"coverage {blocks} {study}", blocks, (1.0, 1.05)), 0, 1).interval()
        assert bounds is not None
        covered += bounds[0] <= 1.05 <= bounds[1]
    # The percentile interval of a median is approximate: at least 92 % here (4,000 studies: 93.7 and 95.3 %).
    assert covered >= stats.binom.ppf(CHANCE, studies, 0.92)
    assert covered <= stats.binom.ppf(1 - CHANCE, studies, 0.97), "nor is it wide for safety"


def test_a_trend_that_all_arms_share_would_be_missed_by_ratios_of_medians_and_not_by_blocks() -> None:
    """What pairing is for: the spread of the ratio of medians over machines against that of the paired one."""
    pairs = [machine(f"pairing {study}", 10, (1.0, 1.0), stalls=0.0) for study in range(100)]
    paired = np.std([step_ratio(seconds, 0, 1).log_ratio for seconds in pairs])
    unpaired = np.std([math.log(np.median(seconds[:, 1]) / np.median(seconds[:, 0])) for seconds in pairs])
    assert unpaired > 1.5 * paired


@pytest.mark.parametrize("blocks", [10, 50])
def test_two_equal_arms_are_not_called_different(blocks: int) -> None:
    studies, claimed = 400, 0
    for study in range(studies):
        found = step_ratio(machine(f"equal {blocks} {study}", blocks, (1.0, 1.0, 1.0)), 0, 1, again=2)
        claimed += found.reading is not Reading.NOT_RESOLVED
    assert claimed <= stats.binom.ppf(1 - CHANCE, studies, 0.05)


def test_a_difference_beyond_the_intervals_is_found_both_ways() -> None:
    seconds = machine("found", 50, (1.0, 1.05, 1.0))
    slower, faster = step_ratio(seconds, 0, 1, again=2), step_ratio(seconds, 1, 0, again=None)
    assert slower.reading is Reading.SLOWER
    assert faster.reading is Reading.NOT_RESOLVED, "without A/A nothing is claimed"
    assert replace(faster, again=slower.again).reading is Reading.FASTER


def ratio(low: float, middle: float, high: float, again: tuple[float, float] | None = (0.99, 1.01)) -> StepRatio:
    logs = tuple(map(math.log, (low, middle, high)))
    same = None
    if again is not None:
        same = StepRatio(20, 0.0, 0.0, (math.log(again[0]), math.log(again[1])))
    return StepRatio(20, logs[1], 0.0, (logs[0], logs[2]), same)


@pytest.mark.parametrize(
    ("found", "reading"),
    [
        (ratio(1.015, 1.02, 1.03), Reading.SLOWER),
        (ratio(0.97, 0.98, 0.985), Reading.FASTER),
        (ratio(0.999, 1.02, 1.03), Reading.NOT_RESOLVED),  # its own interval holds 1
        (ratio(1.001, 1.005, 1.008), Reading.NOT_RESOLVED),  # within the A/A interval, however narrow its own
        (ratio(0.992, 0.995, 0.999), Reading.NOT_RESOLVED),
        (ratio(1.015, 1.02, 1.03, (0.97, 0.99)), Reading.NOT_RESOLVED),  # an A/A that is off counts with its far end
        (ratio(1.015, 1.02, 1.03, None), Reading.NOT_RESOLVED),
    ],
)
def test_a_claim_within_the_interval_of_the_baseline_against_itself_is_refused(
    found: StepRatio, reading: Reading
) -> None:
    assert found.reading is reading


def test_a_target_is_met_by_the_upper_end_less_half_the_interval_of_the_baseline_against_itself() -> None:
    found = ratio(1.0, 1.01, 1.029)  # half the A/A interval is 0.01
    assert found.meets(1.02)
    assert not found.meets(1.018)
    assert not replace(found, again=None).meets(9.0), "without A/A nothing is met"
    assert not step_ratio(np.ones((2, 3)), 0, 1, again=2).meets(9.0), "nor by too few blocks"


@pytest.mark.parametrize("blocks", [5, 20])
def test_one_slow_block_moves_the_ratio_no_further_than_to_its_neighbour(blocks: int) -> None:
    seconds = machine("slow", blocks, (1.0, 1.1))
    ordered = np.sort(np.log(seconds.reshape(-1, 2, 2).mean(1)) @ [-1, 1])
    seconds[0, 1] *= 50
    found = step_ratio(seconds, 0, 1)
    middle = blocks // 2
    assert ordered[middle - 1] <= found.log_ratio <= ordered[min(middle + 1, blocks - 1)]


def test_a_baseline_that_differs_from_itself_is_said() -> None:
    honest = step_ratio(machine("again", 20, (1.0, 1.1, 1.0)), 0, 1, again=2)
    assert honest.again is not None
    assert honest.again.log_ratio == pytest.approx(0, abs=0.02)
    assert honest.notes == ()
    biased = step_ratio(machine("again", 20, (1.0, 1.1, 1.2)), 0, 1, again=2)
    assert any("the baseline against itself takes 1." in note for note in biased.notes)
    assert biased.reading is Reading.NOT_RESOLVED


def test_blocks_without_a_time_are_left_out_and_said() -> None:
    seconds = machine("gaps", 8, (1.0, 1.1))
    seconds[4, 1] = np.nan
    found = step_ratio(seconds.tolist(), 0, 1)
    assert found.blocks == 7
    assert found.notes == ("1 block left out: a time is missing",)
    assert found.log_ratio == step_ratio(np.delete(seconds, [4, 5], 0), 0, 1).log_ratio


def test_too_few_blocks_or_several_hosts_are_refused() -> None:
    few = step_ratio(machine("few", 4, (1.0, 1.1)), 0, 1)
    assert "at least 5, which are 10 rounds" in few.refusal
    assert math.isnan(few.log_ratio)
    assert few.interval() is None
    assert few.reading is Reading.NOT_RESOLVED
    hosts = step_ratio(machine("hosts", 8, (1.0, 1.1)), 0, 1, hosts=["a", "b"] * 8)
    assert "2 hosts (a, b)" in hosts.refusal
    assert not step_ratio(machine("hosts", 8, (1.0, 1.1)), 0, 1, hosts=["a"] * 16).refusal


def test_seconds_are_compared_on_one_host_only() -> None:
    assert require_one_host(["a", "a"]) == ""
    assert "2 hosts (a, b)" in require_one_host(["b", "a", "b"])
    assert "no host was recorded" in require_one_host([])
    assert "no host was recorded" in require_one_host(["a", ""])


@pytest.mark.parametrize(
    "seconds", [[[1.0, 0.0]] * 2, [[1.0, -2.0]] * 2, [[1.0, math.inf]] * 2, [1.0, 2.0], [[1.0]] * 2]
)
def test_times_that_cannot_be_are_one_clear_error(seconds: list) -> None:
    with pytest.raises(ParibusError):
        step_ratio(seconds, 0, 1)


def test_half_a_block_is_an_error() -> None:
    with pytest.raises(ParibusError, match="do not have the axes"):
        step_ratio(np.ones((11, 2)), 0, 1)
