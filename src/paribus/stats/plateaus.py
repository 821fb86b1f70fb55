"""On which plateau the cells of an arm end, and whether a contrast can say anything there (rules of evidence, 8).

A slice of a task has named levels of excess loss: chance, one for each shortcut, and the floor at 0. From the final
excess losses of an arm's S seeds, with mean m and standard deviation sd, its band is m +- w with

    w = max(t_{S-1, 0.975} sd sqrt(1 + 1/S),  0.05 (chance - floor))

The first is the prediction interval for another seed of the same arm, its A/A band; the second keeps an arm whose
seeds agree by luck from sitting nowhere. One seed has the second alone.

An arm *sits* on the levels inside its band, provided that all its seeds are nearest to one and the same level. Two that
its band cannot tell apart are told as one ("chance or ..."). A bimodal arm, whose seeds have parted, sits on nothing.
Nor does one with w above half of chance - floor: every loss between the two would be in the band of either, so the band
would tell nothing.

A contrast is *not informative* only if all its arms sit on one plateau. It is always from evidence that a contrast is
called so: where a plateau cannot be told, it counts as informative. What compares whole learning curves needs more:
arms that end on one plateau may differ in how soon they came to it, provided that coming to it is learning. Coming down
to chance is not: a constant prediction is there without any training (`informative_area`).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from paribus.errors import ParibusError
from paribus.stats.paired import t_critical
from paribus.stats.power import count_of
from paribus.stats.rounding import fixed

CHANCE, FLOOR = "chance", "the floor"

LEAST_BAND = 0.05
"""of chance - floor"""

_DECIMALS = 2


@dataclass(frozen=True)
class Plateau:
    """Where the cells of one arm end on one slice, in nats per target above the floor."""

    excess: tuple[float, ...]
    """final excess loss of each seed that did not diverge"""
    diverged: int
    """seeds without one; with any, the arm sits on nothing"""
    levels: Mapping[str, float]
    """every named level of the slice, from chance to the floor"""
    floor_nats: float
    """the loss at the floor, added where a level is printed"""
    mean: float | None
    """of `excess`; None where every seed diverged"""
    half_width: float | None
    """of the band; None as `mean`"""
    nearest: Mapping[tuple[str, ...], int]
    """seeds by the level that each is nearest to, or by the levels where they are too close to part"""
    sits_on: tuple[str, ...]
    """the levels that the arm sits on, empty where it sits on none"""
    threshold: float
    """excess loss below which a seed counts as having acquired the slice"""

    @property
    def seeds(self) -> int:
        """all of them, diverged ones too"""
        return len(self.excess) + self.diverged

    def never_below_chance(self, *, acquired: bool) -> bool:
        """Whether the arm is at chance or above it, so that it has learned nothing of the slice.

        Every seed is, within the least band. Where no cell acquired the slice until the end (`acquired` false) the mean
        of the seeds is enough, since no seed then hides having learned behind others that are worse than chance.
        """
        if self.mean is None or self.diverged:
            return False
        lowest = min(self.excess) if acquired else self.mean
        return lowest >= (1 - LEAST_BAND) * self.levels[CHANCE]

    @property
    def untold(self) -> bool:
        """Whether all seeds are nearest to one level, but lie so far apart that their band tells nothing."""
        return (
            self.half_width is not None
            and len(self.nearest) == 1
            and not self.diverged
            and _tells_nothing(self.half_width, self.levels)
        )

    @property
    def sentence(self) -> str:
        """Where the arm sits, as what follows its name."""
        if self.diverged:
            return f"on no plateau: {self.diverged} of {count_of(self.seeds, 'seed')} diverged"
        if self.sits_on:
            return f"sits on {self.named(self.sits_on)}" + (" (one seed)" if self.seeds == 1 else "")
        counts = ", ".join(f"{count} nearest {_listed(names)}" for names, count in self.nearest.items())
        assert self.mean is not None
        if len(self.nearest) == 1 and not self.untold and 0 < self.mean < self.levels[CHANCE]:
            # The nearest level of all seeds says little about an arm under way: half-way it is the floor already.
            counts = f"{sum(value < self.threshold for value in self.excess)} below the threshold"
        if self.untold:
            reason = f"on no plateau that can be told within {fixed(self.half_width, _DECIMALS)} nats"
        else:
            where = "above every level" if self.mean > max(self.levels.values()) else "between levels"
            reason = f"{where} at {fixed(self.floor_nats + self.mean, _DECIMALS)} nats"
        return f"{reason}: {count_of(self.seeds, 'seed')}, {counts}"

    def named(self, names: Sequence[str]) -> str:
        """`'any content of the row' (2.08 nats)`: levels told as one, with their losses."""
        losses = list(dict.fromkeys(fixed(self.floor_nats + self.levels[name], _DECIMALS) for name in names))
        return f"{_listed(names)} ({' or '.join(losses)} nats)"


@dataclass(frozen=True)
class Informative:
    """Whether the arms of a contrast can differ in anything but noise on a slice."""

    informative: bool
    reason: str
    """for a page, without the arms' verdict"""
    ratio_bounded: bool = False
    """Exactly one arm leaves the plateau that the others sit on, so that the ratio of updates has a bound."""


def plateau(
    final_excess: Sequence[float | None],
    *,
    chance: float,
    shortcuts: Mapping[str, float],
    floor_nats: float = 0.0,
    threshold: float | None = None,
) -> Plateau:
    """Where an arm ends, from the excess loss of each seed in its last window; None marks a diverged cell.

    `chance`, `shortcuts` (by what they do) and `threshold` (half of chance unless given) are in nats per target above
    the floor, which is 0; `floor_nats` is the floor's own loss, for printing. ParibusError for a loss that is not
    finite, no seed, or malformed levels.
    """
    levels = _levels(chance, shortcuts)
    threshold = chance / 2 if threshold is None else threshold
    excess = tuple(float(value) for value in final_excess if value is not None)
    if not final_excess or not all(math.isfinite(value) for value in excess):
        raise ParibusError(
            "the final losses of an arm tell no plateau",
            expected="a finite excess loss for each of at least one seed, or None where the cell diverged",
            received=str(tuple(final_excess)),
            remedy="pass None for a diverged cell; it is counted",
        )
    diverged = len(final_excess) - len(excess)
    if not excess:
        return Plateau(excess, diverged, levels, floor_nats, None, None, {}, (), threshold)
    mean, half_width = float(np.mean(excess)), LEAST_BAND * chance
    if len(excess) > 1:
        spread = float(np.std(excess, ddof=1)) * math.sqrt(1 + 1 / len(excess))
        half_width = max(half_width, t_critical(len(excess) - 1, 0.95) * spread)
    groups = _groups(levels, LEAST_BAND * chance)
    homes = [min(groups, key=lambda group: _distance(value, group, levels)) for value in excess]
    nearest = {group: homes.count(group) for group in groups if group in homes}
    sits = not diverged and len(nearest) == 1 and not _tells_nothing(half_width, levels)
    # Where all seeds are nearest to one level so is their mean: that level is in the band if any is.
    sits_on = tuple(name for name in levels if abs(mean - levels[name]) <= half_width) if sits else ()
    return Plateau(excess, diverged, levels, floor_nats, mean, half_width, nearest, sits_on, threshold)


def informative(plateaus: Mapping[str, Plateau]) -> Informative:
    """Whether a contrast of these arms, by name, is informative on the slice, and why in a few words.

    ParibusError below two arms, or where their levels differ.
    """
    arms = list(plateaus.values())
    if len(arms) < 2 or any((a.levels, a.floor_nats) != (arms[0].levels, arms[0].floor_nats) for a in arms):
        raise ParibusError(
            "plateaus make no contrast",
            expected="at least two arms on the same levels of one slice",
            received=f"arms {sorted(plateaus)}",
            remedy="give the plateaus of every arm of the contrast on one slice",
        )
    common = _common(arms)
    if common:
        return Informative(
            False, f"{'both' if len(arms) == 2 else f'all {len(arms)} arms'} sit on {arms[0].named(common)}"
        )
    for level, at in arms[0].levels.items():
        leaving = [name for name, arm in plateaus.items() if level not in arm.sits_on]
        if len(leaving) == 1 and _left(plateaus[leaving[0]], at):
            reason = (
                f"only {leaving[0]} leaves {arms[0].named((level,))}, so the ratio of updates is bounded; "
                f"{leaving[0]} {plateaus[leaving[0]].sentence}"
            )
            return Informative(True, reason, ratio_bounded=True)
    return Informative(True, "; ".join(f"{name} {arm.sentence}" for name, arm in plateaus.items()))


def informative_area(early: Mapping[str, Plateau], end: Mapping[str, Plateau], *, acquired: bool = True) -> Informative:
    """Whether the areas under the learning curves of these arms could differ in what they learned, and why.

    `early` and `end` are the arms, by name, around the first milestone and at the end of one slice; `acquired` is
    whether any cell of them acquired the slice. Arms that end on different plateaus are judged as by `informative`.
    Arms that end on one were not told apart if they all held it from the first milestone on; of a level that is as high
    as chance, above chance counts as holding it. ParibusError as for `informative`.
    """
    at_end = informative(end)
    if at_end.informative:
        return at_end
    common = _common(list(end.values()))
    if set(common).intersection(*(arm.sits_on for arm in early.values())):
        return Informative(False, f"{at_end.reason} from the first milestone to the end")
    levels = next(iter(end.values())).levels
    high = [name for name in common if levels[name] >= (1 - LEAST_BAND) * levels[CHANCE]]
    if high and all(
        set(high).intersection(arm.sits_on) or arm.never_below_chance(acquired=acquired) for arm in early.values()
    ):
        return Informative(
            False,
            f"{at_end.reason} at the end and were there or above it at the first milestone: coming down to chance is "
            "not learning the task",
        )
    when = f"{at_end.reason} at the end and not at the first milestone"
    if FLOOR in common:
        return Informative(True, f"{when}: the area compares how soon the floor is reached")
    found = [name for name in common if name not in high]
    if found:
        return Informative(True, f"{when}: the area compares how soon {_listed(found)} is found; nobody got further")
    return Informative(True, f"{when}: the area compares how the arms came back to it")


def _common(arms: Sequence[Plateau]) -> tuple[str, ...]:
    """Levels that all arms sit on."""
    return tuple(name for name in arms[0].levels if all(name in arm.sits_on for arm in arms))


def _levels(chance: float, shortcuts: Mapping[str, float]) -> dict[str, float]:
    levels = {CHANCE: chance, **shortcuts, FLOOR: 0.0}
    if len(levels) != len(shortcuts) + 2 or not all(math.isfinite(at) and at >= 0 for at in levels.values()):
        raise ParibusError(
            "the levels of a slice are malformed",
            expected=f"finite levels above the floor, and shortcuts called neither '{CHANCE}' nor '{FLOOR}'",
            received=f"chance {chance}, shortcuts {dict(shortcuts)}",
            remedy="subtract the floor from each level of the task",
        )
    return {name: float(at) for name, at in sorted(levels.items(), key=lambda item: -item[1])}


def _groups(levels: Mapping[str, float], tolerance: float) -> list[tuple[str, ...]]:
    """Levels from high to low, neighbours within `tolerance` together: no seed can be said to have parted them."""
    groups: list[tuple[str, ...]] = []
    for name, at in levels.items():
        if groups and levels[groups[-1][-1]] - at <= tolerance:
            groups[-1] = (*groups[-1], name)
        else:
            groups.append((name,))
    return groups


def _distance(value: float, group: tuple[str, ...], levels: Mapping[str, float]) -> float:
    """To the nearest level of a group. Half-way between two, `min` takes the higher, which was not left."""
    return min(abs(value - levels[name]) for name in group)


def _left(arm: Plateau, level: float) -> bool:
    """Whether an arm that does not sit on a level went below it."""
    return arm.mean is not None and arm.mean < level and not arm.diverged and not arm.untold


def _tells_nothing(half_width: float, levels: Mapping[str, float]) -> bool:
    return half_width > levels[CHANCE] / 2 > 0


def _listed(names: Sequence[str]) -> str:
    """Shortcuts in quotes, chance and the floor without."""
    return " or ".join(name if name in (CHANCE, FLOOR) else f"'{name}'" for name in names)
