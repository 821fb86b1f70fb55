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

A contrast is *not informative* only if all its arms are on one plateau. It is always from evidence that a contrast is
called so: where a plateau cannot be told, it counts as informative. Three things keep a difference from being called
nothing:

- What compares whole learning curves asks more than the end: the area of every arm, the mean excess of its whole curve,
  must be on that plateau too. An arm that came to it a little sooner has another area (`informative_area`).
- The band is then no wider than what the contrast is about: its second part is at most half of the smallest effect, its
  first at most a tenth of chance - floor (`plateau(smallest_effect=...)`; where chance is the floor there is no scale
  to cap it by).
- A paired interval that excludes 0 is a difference that was measured, wherever the arms sit (`measured`).

An arm whose seeds are all at chance or above it has learned nothing of the slice: it is *at* chance like one that sits
there, since a constant prediction is better (an untrained model is uniform over the vocabulary).
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from paribus.errors import ParibusError
from paribus.stats.paired import t_critical
from paribus.stats.power import count_of
from paribus.stats.rounding import fixed

CHANCE, FLOOR = "chance", "the floor"

LEAST_BAND = 0.05
"""of chance - floor"""
WIDEST_NOISE = 0.1
"""of chance - floor: the widest band of seeds within which a contrast may be called not informative"""

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

    @property
    def at(self) -> tuple[str, ...]:
        """The levels that the arm sits on or, where all its seeds are at chance or above it, those as high as chance.

        Above chance an arm has learned as little of the slice as one that sits there.
        """
        if self.sits_on or self.diverged or self.half_width is None or _tells_nothing(self.half_width, self.levels):
            return self.sits_on
        lowest = self.levels[CHANCE] - self.half_width
        if min(self.excess) < lowest:
            return ()
        return tuple(name for name, at in self.levels.items() if lowest <= at <= self.levels[CHANCE])

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
    smallest_effect: float | None = None,
) -> Plateau:
    """Where an arm ends, from the excess loss of each seed in its last window; None marks a diverged cell.

    `chance`, `shortcuts` (by what they do) and `threshold` (half of chance unless given) are in nats per target above
    the floor, which is 0; `floor_nats` is the floor's own loss, for printing. With `smallest_effect`, in the same
    unit, the band is the narrow one in which a contrast about it may be called not informative. ParibusError for a loss
    that is not finite, no seed, or malformed levels.
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
    mean, least, noise = float(np.mean(excess)), LEAST_BAND * chance, 0.0
    if len(excess) > 1:
        spread = float(np.std(excess, ddof=1)) * math.sqrt(1 + 1 / len(excess))
        noise = t_critical(len(excess) - 1, 0.95) * spread
    if smallest_effect is not None and chance > 0:
        least, noise = min(least, smallest_effect / 2), min(noise, WIDEST_NOISE * chance)
    elif smallest_effect is not None:
        least = smallest_effect / 2
    half_width = max(least, noise)
    # Levels that the narrow band holds together no seed of the arm can be said to have parted, as for the wide one.
    groups = _groups(levels, LEAST_BAND * chance if smallest_effect is None else half_width)
    homes = [min(groups, key=lambda group: _distance(value, group, levels)) for value in excess]
    nearest = {group: homes.count(group) for group in groups if group in homes}
    sits = not diverged and len(nearest) == 1 and not _tells_nothing(half_width, levels)
    # Where all seeds are nearest to one level so is their mean: that level is in the band if any is.
    sits_on = tuple(name for name in levels if abs(mean - levels[name]) <= half_width) if sits else ()
    return Plateau(excess, diverged, levels, floor_nats, mean, half_width, nearest, sits_on, threshold)


def informative(plateaus: Mapping[str, Plateau], *, acquired: Collection[str] = ()) -> Informative:
    """Whether a contrast of these arms, by name, is informative on the slice, and why in a few words.

    `acquired` are the arms of which a cell acquired the slice within the budget: only they bound a ratio of updates.
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
        who = "both" if len(arms) == 2 else f"all {len(arms)} arms"
        above = any(name not in arm.sits_on for arm in arms for name in common)
        where = f"are at {arms[0].named(common)} or above it" if above else f"sit on {arms[0].named(common)}"
        return Informative(False, f"{who} {where}")
    for level, at in arms[0].levels.items():
        leaving = [name for name, arm in plateaus.items() if level not in arm.at]
        if len(leaving) == 1 and leaving[0] in acquired and _left(plateaus[leaving[0]], at):
            reason = (
                f"only {leaving[0]} leaves {arms[0].named((level,))}, so the ratio of updates is bounded; "
                f"{leaving[0]} {plateaus[leaving[0]].sentence}"
            )
            return Informative(True, reason, ratio_bounded=True)
    return Informative(True, "; ".join(f"{name} {arm.sentence}" for name, arm in plateaus.items()))


def informative_area(
    area: Mapping[str, Plateau], end: Mapping[str, Plateau], *, acquired: Collection[str] = ()
) -> Informative:
    """Whether the areas under the learning curves of these arms could differ in more than noise, and why.

    `area` are the arms, by name, at the mean excess of their whole curves, `end` the arms at the end of one slice, and
    `acquired` as for `informative`. Arms that end on different plateaus are judged as by `informative`. Arms that end
    on one were not told apart if their areas are on it too: they held it throughout. ParibusError as for `informative`.
    """
    at_end = informative(end, acquired=acquired)
    if at_end.informative:
        return at_end
    common = _common(list(end.values()))
    if set(common) & set(_common(list(area.values()))):
        return Informative(False, f"{at_end.reason}, at the end and by the areas under their whole curves")
    when = f"{at_end.reason} at the end, and the areas under their whole curves are not there"
    if FLOOR in common:
        return Informative(True, f"{when}: the area compares how soon the floor is reached")
    levels = next(iter(end.values())).levels
    found = [name for name in common if levels[name] < levels[CHANCE]]
    if found:
        return Informative(True, f"{when}: the area compares how soon {_listed(found)} is found; nobody got further")
    return Informative(True, f"{when}: the area compares how the arms came back to it")


def measured(told: Informative, interval: tuple[float, float] | None) -> Informative:
    """The same, except that a paired interval of the difference that excludes 0 is informative wherever the arms sit.

    None is no interval, which excludes nothing.
    """
    if told.informative or interval is None or interval[0] <= 0 <= interval[1]:
        return told
    return Informative(
        True,
        f"{told.reason}; the paired interval excludes 0 all the same: a difference in how the arms came there, not in "
        "where they are",
    )


def _common(arms: Sequence[Plateau]) -> tuple[str, ...]:
    """Levels that all arms are at."""
    return tuple(name for name in arms[0].levels if all(name in arm.at for arm in arms))


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
