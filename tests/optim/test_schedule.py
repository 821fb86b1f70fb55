import math
from itertools import pairwise

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from paribus.optim.config import ScheduleConfig
from paribus.optim.schedule import PEAK, Moment, moment, multiplier, settled_after

SCHEDULE = ScheduleConfig(warmup=0.1, decay=0.5, final=0.2)


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        (0, 0.05),  # place 0.005 of a warm-up that ends at 0.1
        (9, 0.95),
        (10, 1.0),
        (49, 1.0),
        (50, 0.2 + 0.8 * 0.495 / 0.5),
        (99, 0.2 + 0.8 * 0.005 / 0.5),
    ],
)
def test_the_multiplier_at_the_edges_of_a_hundred_steps(step: int, expected: float):
    assert multiplier(step, 100, SCHEDULE) == pytest.approx(expected, rel=1e-12)


def test_runs_of_any_length_have_the_same_multiplier_at_the_same_share():
    for step in range(50):
        assert multiplier(3 * step + 1, 150, SCHEDULE) == pytest.approx(multiplier(step, 50, SCHEDULE), rel=1e-12)


@pytest.mark.parametrize(
    "schedule",
    [SCHEDULE, ScheduleConfig(), ScheduleConfig(warmup=0.6, decay=0.7), ScheduleConfig(warmup=1.0, decay=1.0)],
)
def test_the_multiplier_is_continuous_positive_and_at_most_one(schedule: ScheduleConfig):
    steps = 1000
    values = [multiplier(step, steps, schedule) for step in range(steps)]
    steepest = max(1 / schedule.warmup, (1 - schedule.final) / schedule.decay) / steps
    assert all(0 < value <= 1 for value in values)
    assert all(abs(b - a) <= steepest * (1 + 1e-9) for a, b in pairwise(values))


def test_without_warmup_and_decay_the_multiplier_is_one():
    flat = ScheduleConfig(warmup=0.0, decay=0.0)
    assert {multiplier(step, 7, flat) for step in range(7)} == {1.0}


@pytest.mark.parametrize("place", ["middle", "ends"])
def test_a_run_of_one_step_has_a_rate(place):
    assert multiplier(0, 1, ScheduleConfig(place=place)) == 1.0


# nanochat, written from its description: shares of a run as numbers of steps.
WARMUP, MOMENTUM_WARMUP, DECAY_SHARE, FLOOR = 40, 400, 0.65, 0.05
INITIAL, HIGHEST, FINAL = 0.85, 0.97, 0.90


def nanochat_rate(step: int, steps: int) -> float:
    falling = round(DECAY_SHARE * steps)
    if step < WARMUP:
        return (step + 1) / WARMUP
    if step <= steps - falling:
        return 1.0
    left = (steps - step) / falling
    return left + (1 - left) * FLOOR


def nanochat_momentum(step: int, steps: int) -> float:
    falling = round(DECAY_SHARE * steps)
    if step < MOMENTUM_WARMUP:
        return INITIAL + (HIGHEST - INITIAL) * step / MOMENTUM_WARMUP
    if step < steps - falling:
        return HIGHEST
    done = (step - (steps - falling)) / falling
    return HIGHEST + (FINAL - HIGHEST) * done


def test_a_d12_run_of_nanochat_has_its_three_schedules_at_every_step():
    steps = 2520  # 65 % of them is a whole number, and the momentum's warm-up ends before the decay begins
    schedule = ScheduleConfig(
        warmup=WARMUP / steps,
        decay=DECAY_SHARE,
        final=FLOOR,
        place="ends",
        momentum_initial=INITIAL,
        momentum_warmup=MOMENTUM_WARMUP / steps,
        momentum_final=FINAL,
        weight_decay="cosine",
    )
    for step in range(steps):
        found = moment(step, steps, schedule)
        assert found.learning_rate == pytest.approx(nanochat_rate(step, steps), rel=1e-12)
        assert found.momentum(HIGHEST) == pytest.approx(nanochat_momentum(step, steps), rel=1e-12)
        assert found.weight_decay == pytest.approx(0.5 * (1 + math.cos(math.pi * step / steps)), rel=1e-9)


shares = st.floats(0.0, 1.0)
momenta = st.floats(0.0, 1.0, exclude_max=True)


@st.composite
def schedules(draw: st.DrawFn) -> ScheduleConfig:
    decay = draw(shares)
    initial = draw(st.none() | momenta)
    return ScheduleConfig(
        warmup=draw(shares),
        decay=decay,
        final=draw(shares),
        place=draw(st.sampled_from(["middle", "ends"])),
        momentum_initial=initial,
        momentum_warmup=0.0 if initial is None else draw(st.floats(0.0, 1.0, exclude_min=True)),
        momentum_final=None if decay == 0 else draw(st.none() | momenta),
        weight_decay=draw(st.sampled_from(["constant", "cosine"])),
    )


@given(schedule=schedules(), peak=momenta, steps=st.integers(1, 2000), data=st.data())
def test_every_schedule_stays_in_its_range_at_every_step_of_a_run_of_any_length(schedule, peak, steps, data):
    found = moment(data.draw(st.integers(0, steps - 1)), steps, schedule)
    assert 0.0 <= found.learning_rate <= 1.0
    assert 0.0 <= found.weight_decay <= 1.0
    ends = [peak, schedule.momentum_initial, schedule.momentum_final]
    known = [end for end in ends if end is not None]
    # Between the smallest and the largest, up to the roundings of three products.
    assert min(known) - 2**-50 <= found.momentum(peak) <= max(known) + 2**-50


@settings(deadline=None, max_examples=60)
@given(schedule=schedules(), peak=momenta)
def test_no_schedule_jumps_whatever_overlaps(schedule, peak):
    widths = [w for w in (schedule.warmup, schedule.decay, schedule.momentum_warmup) if w > 0]
    assume(not widths or min(widths) > 0.05)
    steps = 200
    # Ramps of height 1 over the shares, and half a cosine over the run; two ramps may add up, and "ends" shifts by one.
    steepest = (sum(1 / width for width in widths) + math.pi / 2) / steps
    found = [moment(step, steps, schedule) for step in range(steps)]
    for a, b in pairwise(found):
        assert abs(b.learning_rate - a.learning_rate) <= steepest
        assert abs(b.weight_decay - a.weight_decay) <= steepest
        assert abs(b.momentum(peak) - a.momentum(peak)) <= steepest


@given(schedule=schedules(), steps=st.integers(2, 300))
def test_the_learning_rate_rises_and_then_falls_and_the_weight_decay_only_falls(schedule, steps):
    found = [moment(step, steps, schedule) for step in range(steps)]
    rates = [m.learning_rate for m in found]
    top = rates.index(max(rates))
    assert rates[:top] == sorted(rates[:top])
    assert all(b <= a * (1 + 2**-50) for a, b in pairwise(rates[top:]))
    decays = [m.weight_decay for m in found]
    assert decays == sorted(decays, reverse=True)


def test_the_momentum_rises_to_the_optimisers_holds_it_and_reaches_the_final_one_at_the_end():
    schedule = ScheduleConfig(warmup=0.1, decay=0.4, momentum_initial=0.8, momentum_warmup=0.3, momentum_final=0.9)
    found = [moment(step, 100, schedule).momentum(0.95) for step in range(100)]
    assert found[0] == pytest.approx(0.8 + 0.15 * 0.005 / 0.3, rel=1e-12)
    assert found[15] == pytest.approx(0.8 + 0.15 * 0.155 / 0.3, rel=1e-12)
    assert set(found[30:60]) == {0.95}
    assert found[80] == pytest.approx(0.95 - 0.05 * (1 - 0.195 / 0.4), rel=1e-12)
    assert found[99] == pytest.approx(0.9 + 0.05 * 0.005 / 0.4, rel=1e-12)


def test_a_decay_that_begins_within_the_momentums_warmup_still_ends_at_the_final_momentum():
    schedule = ScheduleConfig(warmup=0.1, decay=0.9, momentum_initial=0.5, momentum_warmup=1.0, momentum_final=0.9)
    assert moment(99_999, 100_000, schedule).momentum(0.95) == pytest.approx(0.9, abs=1e-4)


@pytest.mark.parametrize("place", [0.55, 0.75, 0.95])
def test_where_a_decay_overlaps_the_momentums_warmup_it_leads_from_the_warmups_value_to_the_final_one(place: float):
    schedule = ScheduleConfig(decay=0.5, momentum_initial=0.2, momentum_warmup=1.0, momentum_final=0.9)
    risen, fallen = 0.2 + (0.6 - 0.2) * place, (place - 0.5) / 0.5
    # One step of a thousand, whose middle is half a thousandth further.
    found = moment(round(1000 * place), 1000, schedule).momentum(0.6)
    assert found == pytest.approx(risen + (0.9 - risen) * fallen, abs=2e-3)


def test_a_schedule_that_says_nothing_leaves_momentum_and_decay_to_the_bit():
    for step in range(10):
        found = moment(step, 10, ScheduleConfig())
        assert found == Moment(learning_rate=multiplier(step, 10, ScheduleConfig()))
        assert (found.momentum(0.95), 0.1 * found.weight_decay) == (0.95, 0.1)
    assert (PEAK.learning_rate, PEAK.weight_decay, PEAK.momentum(0.95)) == (1.0, 1.0, 0.95)


@given(schedule=schedules(), steps=st.integers(2, 500))
def test_between_its_warmups_and_its_decay_a_schedule_is_at_rest(schedule, steps):
    resting = [
        moment(step, steps, schedule)
        for step in range(steps)
        if settled_after(schedule) * steps <= step and step + 1 <= (1 - schedule.decay) * steps
    ]
    assert all(found == PEAK for found in resting)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"momentum_initial": 0.8}, "momentum_initial = 0.8 needs the share of the run .* momentum_warmup"),
        ({"momentum_warmup": 0.1}, "momentum_warmup = 0.1 needs the momentum that it starts at: momentum_initial"),
        ({"momentum_final": 0.9, "decay": 0.0}, "momentum_final = 0.9 is reached over the decay .* decay = 0"),
        ({"momentum_initial": 1.0, "momentum_warmup": 0.1}, "less than 1"),
        ({"warmup": 1.01}, "less than or equal to 1"),
        ({"place": "start"}, "'middle' or 'ends'"),
        ({"weight_decay": "linear"}, "'constant' or 'cosine'"),
    ],
)
def test_a_schedule_that_cannot_be_followed_is_refused(fields, said):
    with pytest.raises(ValidationError, match=said):
        ScheduleConfig(**fields)
