"""Plateaus of an arm by their definition, and what a contrast of arms on them can say."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from paribus.errors import ParibusError
from paribus.seeds import generator
from paribus.stats.plateaus import CHANCE, FLOOR, Plateau, informative, informative_area, measured, plateau

LN_32, LN_8 = math.log(32), math.log(8)
CONTENT = "any content of the row"
LEVELS: dict[str, Any] = {"chance": LN_32, "shortcuts": {CONTENT: LN_8}}

SEEDS = st.lists(st.integers(-10, 500).map(lambda hundredths: hundredths / 100), min_size=1, max_size=10)
SLICES = st.tuples(
    st.integers(50, 400), st.dictionaries(st.sampled_from("abc"), st.integers(0, 400), min_size=0, max_size=3)
).map(lambda found: (found[0] / 100, {name: at / 100 for name, at in found[1].items()}))


def around(level: float, spread: float, count: int, name: str) -> list[float]:
    return (level + spread * generator("tests", "plateaus", count, "seeds", name).standard_normal(count)).tolist()


@given(SEEDS, SLICES)
@settings(max_examples=300, deadline=None)
def test_an_arm_sits_on_the_levels_in_its_band_where_all_seeds_agree(
    seeds: list[float], slice_levels: tuple[float, dict[str, float]]
) -> None:
    chance, shortcuts = slice_levels
    found = plateau(seeds, chance=chance, shortcuts=shortcuts)
    levels = {CHANCE: chance, **shortcuts, FLOOR: 0.0}
    assert found.levels == levels
    mean, least = np.mean(seeds), 0.05 * chance
    width = least
    if len(seeds) > 1:
        sd = np.std(seeds, ddof=1)
        width = max(least, stats.t.ppf(0.975, len(seeds) - 1) * sd * math.sqrt(1 + 1 / len(seeds)))
    assert found.half_width == pytest.approx(width, rel=1e-9)
    assert sum(found.nearest.values()) == len(seeds)
    assert set(found.sits_on) <= {name for name, at in levels.items() if abs(mean - at) <= width + 1e-9}
    gaps = [abs(a - b) for a in levels.values() for b in levels.values() if a != b]
    if min(gaps) <= least + 1e-9 or len(set(levels.values())) < len(levels):
        return  # levels told as one have a test of their own
    homes = {min(levels, key=lambda name: (abs(seed - levels[name]), -levels[name])) for seed in seeds}
    near = [name for name, at in levels.items() if abs(mean - at) <= width]
    edge = any(abs(abs(mean - at) - width) < 1e-9 for at in levels.values()) or abs(width - chance / 2) < 1e-9
    tie = any(
        abs(abs(s - a) - abs(s - b)) < 1e-9 for s in seeds for a in levels.values() for b in levels.values() if a != b
    )
    if edge or tie:
        return
    sits = len(homes) == 1 and homes <= set(near) and width <= chance / 2
    assert set(found.sits_on) == (set(near) if sits else set())


@given(SEEDS, st.randoms())
@settings(max_examples=50, deadline=None)
def test_the_order_of_seeds_does_not_matter(seeds: list[float], random: Any) -> None:
    shuffled = random.sample(seeds, len(seeds))
    one, other = plateau(seeds, **LEVELS), plateau(shuffled, **LEVELS)
    assert (one.sits_on, one.nearest) == (other.sits_on, other.nearest)


@given(SEEDS, st.integers(-3, 3))
@settings(max_examples=50, deadline=None)
def test_a_change_of_unit_changes_no_plateau(seeds: list[float], power: int) -> None:
    scale = 2.0**power
    one = plateau(seeds, **LEVELS)
    other = plateau([s * scale for s in seeds], chance=scale * LN_32, shortcuts={CONTENT: scale * LN_8})
    assert (one.sits_on, one.nearest) == (other.sits_on, other.nearest)


def test_seeds_around_a_shortcut_sit_on_it() -> None:
    found = plateau(around(LN_8, 0.03, 5, "shortcut"), **LEVELS)
    assert found.sits_on == (CONTENT,)
    assert found.nearest == {(CONTENT,): 5}
    assert found.sentence == "sits on 'any content of the row' (2.08 nats)"


def test_the_band_is_the_prediction_interval_of_another_seed_of_the_arm() -> None:
    # Half of t_{1, 0.975} = 12.706 times sqrt 3: two seeds 0.02 nats apart.
    assert plateau([LN_8 - 0.01, LN_8 + 0.01], **LEVELS).half_width == pytest.approx(
        max(0.05 * LN_32, 12.7062047 * 0.02 / math.sqrt(2) * math.sqrt(1.5)), rel=1e-6
    )
    rng = generator("tests", "plateaus", 5, "coverage", "normal")
    cells = rng.standard_normal((4000, 6))
    hits = [
        abs(cell[5] - np.mean(cell[:5])) <= (plateau(cell[:5].tolist(), chance=1e-3, shortcuts={}).half_width or 0)
        for cell in cells
    ]
    assert np.mean(hits) == pytest.approx(0.95, abs=3 * math.sqrt(0.95 * 0.05 / len(cells)))


def test_a_bimodal_arm_sits_on_nothing_and_tells_how_its_seeds_parted() -> None:
    for low, high in ((0.0, LN_32), (0.0, LN_8), (LN_8, LN_32)):
        for solved in (1, 3, 5, 9):
            seeds = [low] * solved + [high] * (10 - solved)
            found = plateau(seeds, **LEVELS)
            assert found.sits_on == ()
            assert sorted(found.nearest.values()) == sorted((solved, 10 - solved))
    assert plateau([0.01, 0.0, LN_8, LN_8, LN_8], **LEVELS).sentence == (
        "between levels at 1.25 nats: 5 seeds, 3 nearest 'any content of the row', 2 nearest the floor"
    )


def test_seeds_that_agree_away_from_every_level_are_between() -> None:
    found = plateau([1.5, 1.51, 1.52], **LEVELS)
    assert found.sits_on == ()
    assert found.sentence == "between levels at 1.51 nats: 3 seeds, 3 below the threshold"
    assert plateau([4.5, 4.51], **LEVELS).sentence == "above every level at 4.50 nats: 2 seeds, 2 nearest chance"


def test_one_seed_has_the_least_band_alone_and_says_that_it_is_one() -> None:
    inside, outside = LN_8 + 0.049 * LN_32, LN_8 + 0.051 * LN_32
    assert plateau([inside], **LEVELS).sentence == "sits on 'any content of the row' (2.08 nats) (one seed)"
    assert plateau([outside], **LEVELS).sits_on == ()


def test_identical_seeds_keep_the_least_band() -> None:
    found = plateau([LN_8 + 0.1] * 5, **LEVELS)
    assert found.half_width == 0.05 * LN_32
    assert found.sits_on == (CONTENT,)
    assert plateau([LN_8 + 0.2] * 5, **LEVELS).sits_on == ()


def test_two_seeds_so_far_apart_that_their_band_tells_nothing_sit_nowhere() -> None:
    found = plateau([2.0, 2.3], **LEVELS)
    assert found.half_width == pytest.approx(3.30, abs=0.01)
    assert found.untold
    assert found.sits_on == ()
    assert found.sentence == (
        "on no plateau that can be told within 3.30 nats: 2 seeds, 2 nearest 'any content of the row'"
    )


def test_two_levels_that_the_band_cannot_tell_apart_are_told_as_one() -> None:
    # 0.2 nats apart, further than the least band: seeds all nearest to chance, with a band of 0.37 nats.
    levels: dict[str, Any] = {"chance": 2.0, "shortcuts": {"unigram": 1.8}}
    wide = plateau([1.91, 2.05, 2.11, 1.94, 2.18], **levels)
    assert wide.sentence == "sits on chance or 'unigram' (2.00 or 1.80 nats)"
    assert plateau([1.99, 2.01, 2.0], **levels).sits_on == (CHANCE,)


def test_seeds_on_either_side_of_levels_closer_than_the_least_band_have_not_parted() -> None:
    levels: dict[str, Any] = {"chance": 2.0, "shortcuts": {"unigram": 1.95}}
    found = plateau([2.0, 1.95, 1.99, 1.96], **levels)
    assert found.nearest == {(CHANCE, "unigram"): 4}
    assert found.sits_on == (CHANCE, "unigram")


def test_where_chance_is_the_floor_every_arm_at_it_sits_on_both() -> None:
    found = plateau([0.001, -0.002, 0.0005], chance=0.0, shortcuts={}, floor_nats=LN_8)
    assert found.sentence == "sits on chance or the floor (2.08 nats)"
    assert plateau([0.101, 0.102, 0.1015], chance=0.0, shortcuts={}).sits_on == ()


def test_losses_are_printed_with_the_loss_of_the_floor() -> None:
    found = plateau([1.0, 1.0], chance=1.0, shortcuts={}, floor_nats=0.5)
    assert found.sentence == "sits on chance (1.50 nats)"


def test_a_diverged_cell_is_counted_and_its_arm_sits_on_nothing() -> None:
    found = plateau([LN_8, None, LN_8], **LEVELS)
    assert (found.seeds, found.diverged, found.sits_on) == (3, 1, ())
    assert found.nearest == {(CONTENT,): 2}
    assert found.sentence == "on no plateau: 1 of 3 seeds diverged"
    none = plateau([None, None], **LEVELS)
    assert (none.mean, none.half_width, none.sentence) == (None, None, "on no plateau: 2 of 2 seeds diverged")


def test_losses_that_are_not_finite_no_seeds_and_malformed_levels_are_refused() -> None:
    for seeds in ([math.nan], [1.0, math.inf], []):
        with pytest.raises(ParibusError, match="tell no plateau"):
            plateau(seeds, **LEVELS)
    for chance, shortcuts in (
        (-0.1, {}),
        (math.nan, {}),
        (1.0, {"a": -0.5}),
        (1.0, {CHANCE: 0.5}),
        (1.0, {FLOOR: 0.1}),
    ):
        with pytest.raises(ParibusError, match="malformed"):
            plateau([1.0], chance=chance, shortcuts=shortcuts)


def on(level: float, name: str) -> Plateau:
    return plateau(around(level, 0.02, 5, name), **LEVELS)


def test_a_contrast_whose_arms_all_sit_on_one_plateau_is_not_informative() -> None:
    content = {"baseline": on(LN_8, "a"), "new": on(LN_8, "b")}
    found = informative(content)
    assert (found.informative, found.ratio_bounded) == (False, False)
    assert found.reason == "both sit on 'any content of the row' (2.08 nats)"
    floor = informative({"baseline": on(0.0, "a"), "new": on(0.0, "b"), "control": on(0.0, "c")})
    assert (floor.informative, floor.reason) == (False, "all 3 arms sit on the floor (0.00 nats)")


def test_where_exactly_one_arm_leaves_the_contrast_is_informative_and_the_ratio_bounded() -> None:
    solved, between = on(0.0, "solved"), plateau([LN_8, LN_8, 0.0, 0.0, 0.0], **LEVELS)
    for leaving in (solved, between, on(1.2, "half")):
        arms = {"baseline": on(LN_8, "a"), "new": leaving}
        found = informative(arms, acquired=("new",))
        assert (found.informative, found.ratio_bounded) == (True, True)
        assert found.reason == (
            "only new leaves 'any content of the row' (2.08 nats), so the ratio of updates is bounded; "
            f"new {leaving.sentence}"
        )
        # Without an update at which a cell of it acquired the slice nothing is bounded, and nothing is said of a ratio.
        for none in ((), ("baseline",)):
            silent = informative(arms, acquired=none)
            assert (silent.informative, silent.ratio_bounded) == (True, False)
            assert "ratio" not in silent.reason
    three = informative({"baseline": on(LN_32, "a"), "new": on(0.0, "b"), "control": on(LN_32, "c")}, acquired=["new"])
    assert three.ratio_bounded
    assert three.reason.startswith("only new leaves chance (3.47 nats)")


def test_where_several_arms_leave_or_none_sits_the_contrast_is_informative_without_a_bound() -> None:
    both = informative({"baseline": on(1.2, "a"), "new": on(0.0, "b")})
    assert (both.informative, both.ratio_bounded) == (True, False)
    assert both.reason == (
        "baseline between levels at 1.20 nats: 5 seeds, 5 below the threshold; new sits on the floor (0.00 nats)"
    )
    three = informative({"baseline": on(LN_32, "a"), "new": on(LN_8, "b"), "control": on(0.0, "c")})
    assert (three.informative, three.ratio_bounded) == (True, False)


def test_an_arm_that_diverged_rose_or_cannot_be_told_does_not_leave_a_plateau() -> None:
    diverged = plateau([0.0, None], **LEVELS)
    above = plateau([4.5, 4.51, 4.52], **LEVELS)
    untold = plateau([1.6, 2.3], **LEVELS)
    assert untold.untold
    for other in (diverged, above, untold):
        found = informative({"baseline": on(LN_8, "a"), "new": other})
        assert (found.informative, found.ratio_bounded) == (True, False)
        assert found.reason == f"baseline sits on 'any content of the row' (2.08 nats); new {other.sentence}"


def test_an_arm_within_its_own_band_of_the_others_plateau_sits_on_the_same_one() -> None:
    levels: dict[str, Any] = {"chance": 2.0, "shortcuts": {"unigram": 1.8}}
    wide, narrow = plateau([1.91, 2.05, 2.11, 1.94, 2.18], **levels), plateau([1.79, 1.8, 1.81], **levels)
    found = informative({"baseline": wide, "new": narrow})
    assert (found.informative, found.reason) == (False, "both sit on 'unigram' (1.80 nats)")


@given(st.lists(SEEDS, min_size=2, max_size=4))
@settings(max_examples=100, deadline=None)
def test_only_arms_that_all_sit_on_one_level_are_called_not_informative(arms: list[list[float]]) -> None:
    plateaus = {f"arm {index}": plateau(seeds, **LEVELS) for index, seeds in enumerate(arms)}
    found = informative(plateaus)
    above = [min(seeds) >= LN_32 for seeds in arms]
    shared = set.intersection(*(set(arm.sits_on) for arm in plateaus.values()))
    if shared or all(above):
        assert not found.informative
    elif not any(above):
        lowest = [min(arm.excess) - (LN_32 - (arm.half_width or 0)) for arm in plateaus.values()]
        if all(gap < -1e-9 for gap in lowest):
            assert found.informative
    bounded = informative(plateaus, acquired=[*plateaus])
    assert bounded.informative == found.informative
    if bounded.ratio_bounded:
        assert sum(not arm.at for arm in plateaus.values()) <= 1 or len({arm.at for arm in plateaus.values()}) > 1
        assert bounded.informative


def test_one_arm_or_arms_of_different_slices_make_no_contrast() -> None:
    other = plateau([1.0], chance=2.0, shortcuts={})
    for arms in ({"baseline": on(0.0, "a")}, {"baseline": on(0.0, "a"), "new": other}):
        with pytest.raises(ParibusError, match="make no contrast"):
            informative(arms)


def test_an_arm_between_two_levels_says_how_many_seeds_acquired_the_slice() -> None:
    told = plateau([0.7, 0.78, 0.86], chance=2.0, shortcuts={})
    assert told.sentence == "between levels at 0.78 nats: 3 seeds, 3 below the threshold"
    strict = plateau([0.7, 0.78, 0.86], chance=2.0, shortcuts={}, threshold=0.75)
    assert strict.sentence == "between levels at 0.78 nats: 3 seeds, 1 below the threshold"


START: dict[str, tuple[float, ...]] = {
    "above": (2.3, 2.6, 2.2),
    "chance": (2.0, 2.01, 1.99),
    "unused": (1.95, 1.95, 1.95),
    "shortcut": (1.0, 1.0, 1.0),
    "nearly the shortcut": (1.15, 1.17, 1.16),
    "between": (1.5, 1.52, 1.48),
    "floor": (0.0, 0.0, 0.0),
    "one seed at the floor": (3.2, 3.2, 0.0),
    "below chance": (1.7, 1.75, 1.72),
}
"""excess of three seeds at each place; chance is 2, a shortcut is at 1 and a useless one at 1.95"""


def of(start: str, smallest_effect: float | None = 0.1) -> Plateau:
    levels: dict[str, Any] = {"chance": 2.0, "shortcuts": {"a part": 1.0, "a habit": 1.95}}
    return plateau(START[start], **levels, smallest_effect=smallest_effect)


@pytest.mark.parametrize(
    ("area", "end", "found"),
    [
        # At chance or above it nothing was learned, wherever the whole curve came from and wherever it ends.
        (("above", "above"), ("chance", "chance"), False),
        (("above", "chance"), ("chance", "chance"), False),
        (("above", "above"), ("above", "above"), False),
        (("above", "chance"), ("above", "chance"), False),
        # What some seed learned on the way counts.
        (("one seed at the floor", "above"), ("chance", "chance"), True),
        (("below chance", "above"), ("chance", "chance"), True),
        (("shortcut", "chance"), ("chance", "chance"), True),
        # A shortcut is found, and so is the floor, by the whole curve's account as soon as one arm took time to it.
        (("above", "above"), ("shortcut", "shortcut"), True),
        (("nearly the shortcut", "nearly the shortcut"), ("shortcut", "shortcut"), True),
        (("nearly the shortcut", "shortcut"), ("shortcut", "shortcut"), True),
        (("shortcut", "shortcut"), ("shortcut", "shortcut"), False),
        (("between", "below chance"), ("floor", "floor"), True),
        (("floor", "floor"), ("floor", "floor"), False),
        (("chance", "above"), ("unused", "unused"), True),
        (("unused", "unused"), ("unused", "unused"), False),
        (("above", "above"), ("chance", "shortcut"), True),
    ],
)
def test_areas_were_not_told_apart_only_where_the_whole_curves_of_all_arms_lie_on_the_plateau_of_their_end(
    area: tuple[str, str], end: tuple[str, str], found: bool
) -> None:
    names = ("new", "baseline")
    whole, at_end = ({n: of(one) for n, one in zip(names, where, strict=True)} for where in (area, end))
    assert informative_area(whole, at_end).informative == found


def test_arms_that_reach_the_floor_early_at_different_updates_are_told_apart_by_their_areas() -> None:
    # Found at update 20 and at 70 of 300: before the first third both sit on the floor, and the areas differ by 0.58.
    floor = plateau([0.0, 0.001, -0.001], chance=3.47, shortcuts={}, smallest_effect=0.1)
    soon = plateau([3.47 * 20 / 300 + noise for noise in (0.0, 0.01, -0.01)], chance=3.47, shortcuts={})
    late = plateau([3.47 * 70 / 300 + noise for noise in (0.0, 0.01, -0.01)], chance=3.47, shortcuts={})
    found = informative_area({"new": soon, "old": late}, {"new": floor, "old": floor})
    assert found.informative
    assert found.reason.endswith("the area compares how soon the floor is reached")


def test_what_an_area_compares_is_said() -> None:
    def said(area: str, end: str) -> str:
        return informative_area({"a": of(area), "b": of(area)}, {"a": of(end), "b": of(end)}).reason

    assert said("between", "floor").endswith("the area compares how soon the floor is reached")
    assert said("between", "shortcut") == (
        "both sit on 'a part' (1.00 nats) at the end, and the areas under their whole curves are not there: the area "
        "compares how soon 'a part' is found; nobody got further"
    )
    assert said("shortcut", "shortcut").endswith("at the end and by the areas under their whole curves")
    assert said("above", "above").startswith("both are at chance or 'a habit' (2.00 or 1.95 nats) or above it")


@pytest.mark.parametrize("smallest_effect", [0.02, 0.05, 0.1, 0.5])
def test_no_effect_as_large_as_the_declared_one_fits_into_the_least_band(smallest_effect: float) -> None:
    # Two arms of agreeing seeds on either side of a shortcut, the declared effect apart: each would be in a band of 5 %
    # of 3.47 nats.
    def arm(at: float) -> Plateau:
        return plateau([at] * 5, **LEVELS, smallest_effect=smallest_effect)

    apart = {"a": arm(LN_8 - 0.51 * smallest_effect), "b": arm(LN_8 + 0.51 * smallest_effect)}
    assert informative(apart).informative
    assert arm(LN_8).half_width == pytest.approx(min(smallest_effect / 2, 0.05 * LN_32))
    assert not informative({"a": arm(LN_8), "b": arm(LN_8)}).informative


def test_scattered_seeds_do_not_widen_the_band_of_a_contrast_beyond_a_tenth_of_the_way_to_chance() -> None:
    scattered = plateau([LN_8 - 0.3, LN_8, LN_8 + 0.3], **LEVELS, smallest_effect=0.1)
    assert scattered.half_width == pytest.approx(0.1 * LN_32)
    assert plateau([LN_8 - 0.3, LN_8, LN_8 + 0.3], **LEVELS).half_width == pytest.approx(1.49, abs=0.01)
    assert not informative({"a": scattered, "b": plateau([LN_8] * 3, **LEVELS)}).informative
    shifted = plateau([LN_8 - 0.1, LN_8 + 0.4, LN_8 + 0.9], **LEVELS, smallest_effect=0.1)
    assert informative({"a": shifted, "b": plateau([LN_8] * 3, **LEVELS)}).informative


def test_a_paired_interval_that_excludes_0_is_informative_wherever_the_arms_sit() -> None:
    both = informative({"a": of("chance"), "b": of("chance")})
    assert not both.informative
    for nothing in (None, (-0.1, 0.2), (0.0, 0.2)):
        assert measured(both, nothing) is both
    for found in ((0.01, 0.2), (-0.2, -0.01)):
        told = measured(both, found)
        assert told.informative
        assert told.reason.startswith(f"{both.reason}; the paired interval excludes 0 all the same")
    apart = informative({"a": of("chance"), "b": of("floor")})
    assert measured(apart, (0.1, 0.2)) is apart


def test_where_nothing_can_be_learned_coming_down_to_chance_tells_nothing() -> None:
    def arms(values: tuple[float, ...]) -> dict[str, Plateau]:
        return {name: plateau(values, chance=0.0, shortcuts={}, smallest_effect=0.02) for name in ("new", "baseline")}

    # The floor is chance there: a leak detector.
    assert not informative_area(arms((0.4, 0.5, 0.45)), arms((0.001, -0.001, 0.0))).informative
    assert informative_area(arms((-0.4, -0.5, -0.45)), arms((0.001, -0.001, 0.0))).informative
