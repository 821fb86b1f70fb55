"""Diagnostics as tables: what stands beside each figure, arm by arm, and what is too fine for a figure.

A mean over layers hides where a quantity lies, so the lowest and highest layer stand beside it. Maps of depth sources
are figures only; their numbers are in `report.json`.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from paribus.report.content import EVERY_POSITION, DiagnosticText, DiagnosticValue, RouteChange
from paribus.report.depth import source_of
from paribus.report.numbers import significant
from paribus.report.positions import by_slice, grouping
from paribus.report.spread import by_layer, mean_error, mean_over_layers, over_seeds, written
from paribus.report.tables import Column, Table
from paribus.stats.divergence import NATS_PER_BIT
from paribus.stats.rounding import MISSING


@dataclass(frozen=True)
class Divergence:
    """Two depth routes of one arm, compared layer by layer."""

    arm: str
    compared: str
    layers: dict[int, float]
    """nats by layer, mean over what was compared"""
    count: str
    """how many seeds, or pairs of seeds, the mean is over"""
    null: bool = False
    """one route in two seeds: nothing but initial values and batches differ"""


_DIVERGENCE = "js_"
_PER_TOKEN, _AVERAGED_ROUTES = "per token, then averaged", "of averaged routes"
_ONLY = "all"


def is_divergence(value: DiagnosticValue) -> bool:
    """Whether it is a divergence of two depth routes; such diagnostics are called js_ and read in nats."""
    return value.diagnostic.startswith(_DIVERGENCE) and value.unit == "nats"


def by_arm_table(
    values: Sequence[DiagnosticValue], arms: Sequence[str], caption: str, *, intervals: bool = True
) -> Table | None:
    """One diagnostic at one scale, a row an arm and place; None where all of it is a map of depth sources."""
    shown = [v for v in values if v.summary and source_of(v) is None and math.isfinite(v.value)]
    if not shown:
        return None
    places = list(dict.fromkeys((v.site, v.group) for v in shown))
    unit = shown[0].unit
    columns = (
        Column("arm"),
        *([Column("read")] if len(places) > 1 else []),
        Column("mean over layers", unit, numeric=True),
        *([Column("mean over layers", "bits", numeric=True)] if unit == "nats" else []),
        *([Column("t interval over seeds", "95 %", numeric=True)] if intervals else []),
        Column("lowest layer", unit, numeric=True),
        Column("highest layer", unit, numeric=True),
        Column("standard error over documents", "of a layer", numeric=True),
        Column("seeds", numeric=True),
    )
    rows = []
    for arm in _ordered(shown, arms):
        for site, group in places:
            own = [v for v in shown if (v.arm, v.site, v.group) == (arm, site, group)]
            if not own:
                continue
            spread, layers = over_seeds(list(mean_over_layers(own).values())), by_layer(own)
            mean, interval = written(spread)
            rows.append(
                (
                    arm,
                    *([_where(site, group)] if len(places) > 1 else []),
                    mean,
                    *([significant(spread.mean / NATS_PER_BIT)] if unit == "nats" else []),
                    *([interval] if intervals else []),
                    _at(layers, min(layers, key=layers.__getitem__)),
                    _at(layers, max(layers, key=layers.__getitem__)),
                    mean_error(v.standard_error for v in own),
                    str(spread.seeds),
                )
            )
    return Table(caption, columns, tuple(rows))


def glance_table(
    values: Sequence[DiagnosticValue], texts: Sequence[DiagnosticText], arms: Sequence[str]
) -> Table | None:
    """Every reading at one scale in one row, an arm a column: means over layers and seeds. Checks are left out."""
    titles = {text.diagnostic: text.title for text in texts if not text.correctness_only}
    read = [v for v in values if v.summary and v.diagnostic in titles and math.isfinite(v.value)]
    shown = [v for v in read if source_of(v) is None]
    columns = _ordered(shown, arms)
    rows = []
    for name, title in titles.items():
        own = [v for v in shown if v.diagnostic == name]
        places = list(dict.fromkeys((v.site, v.group) for v in own))
        for site, group in places:
            means = {arm: [v.value for v in own if (v.arm, v.site, v.group) == (arm, site, group)] for arm in columns}
            place = f"\n{_where(site, group)}" if len(places) > 1 else ""
            numbers = (significant(float(np.mean(means[arm]))) if means[arm] else MISSING for arm in columns)
            rows.append((f"{title}{place}", *numbers, own[0].unit or MISSING))
    if not rows:
        return None
    heads = (Column("diagnostic"), *(Column(arm, numeric=True) for arm in columns), Column("unit"))
    return Table("At a glance: means over layers and seeds", heads, tuple(rows), "Descriptive only.")


def divergence_table(values: Sequence[DiagnosticValue], changes: Sequence[RouteChange], arms: Sequence[str]) -> Table:
    """Divergences of routes beside their nulls, in both units, a row an arm and comparison."""
    columns = (
        Column("arm"),
        Column("routes compared"),
        Column("mean over layers", "nats", numeric=True),
        Column("mean over layers", "bits", numeric=True),
        Column("lowest layer", "nats", numeric=True),
        Column("highest layer", "nats", numeric=True),
        Column("read in", numeric=True),
    )
    rows = []
    for found in divergences(values, changes, arms):
        layers = found.layers
        mean = float(np.mean(list(layers.values())))
        nats, bits = significant(mean), significant(mean / NATS_PER_BIT)
        rows.append(
            (
                found.arm,
                found.compared,
                nats,
                bits,
                _at(layers, min(layers, key=layers.__getitem__)),
                _at(layers, max(layers, key=layers.__getitem__)),
                found.count,
            )
        )
    return Table("Divergence of depth routes, and its nulls", columns, tuple(rows))


def divergences(
    values: Sequence[DiagnosticValue], changes: Sequence[RouteChange], arms: Sequence[str]
) -> list[Divergence]:
    """What can be compared at one scale, by arm: divergences that were read, then one route in two seeds."""
    shown = [v for v in values if v.summary and is_divergence(v) and math.isfinite(v.value)]
    shown = [v for v in shown if not v.group.endswith(_AVERAGED_ROUTES)]
    held = [*_ordered(shown, arms), *(change.arm for change in changes)]
    found = []
    for arm in dict.fromkeys(held):
        for name, site, group in dict.fromkeys((v.diagnostic, v.site, v.group) for v in shown if v.arm == arm):
            own = [v for v in shown if (v.arm, v.diagnostic, v.site, v.group) == (arm, name, site, group)]
            pair = _where(site, group.removesuffix(_PER_TOKEN).removesuffix(": "))
            compared = name if pair == _ONLY else f"{name}, {pair}"
            found.append(Divergence(arm, compared, by_layer(own), f"{len({v.seed for v in own})} seeds"))
        for site, role in dict.fromkeys((c.site, c.role) for c in changes if c.arm == arm):
            moves = [c for c in changes if (c.arm, c.site, c.role) == (arm, site, role)]
            numbers = sorted({c.layer for c in moves})
            layers = {n: float(np.mean([c.nats for c in moves if c.layer == n])) for n in numbers}
            count = f"{len({c.seeds for c in moves})} pairs of seeds"
            found.append(Divergence(arm, f"{role} of {site}, seed against seed", layers, count, null=True))
    return found


def fine_table(values: Sequence[DiagnosticValue], texts: Sequence[DiagnosticText], limit: int = 400) -> Table | None:
    """By head and by bucket of positions, or slice of a task: means over layers and seeds; None where nothing was read
    that finely."""
    checks = {text.diagnostic for text in texts if text.correctness_only}
    fine = [v for v in values if not v.summary and v.diagnostic not in checks and source_of(v) is None]
    keys = list(dict.fromkeys((v.diagnostic, v.scale, v.arm, v.site, v.group, v.bucket, v.unit) for v in fine))
    read: dict[tuple, list[float]] = {key: [] for key in keys}
    for v in fine:
        read[v.diagnostic, v.scale, v.arm, v.site, v.group, v.bucket, v.unit].append(v.value)
    rows = tuple(
        (name, scale, arm, _where(site, group), bucket, significant(float(np.mean(read[key]))), unit or MISSING)
        for key in keys[:limit]
        for name, scale, arm, site, group, bucket, unit in [key]
    )
    buckets, every = ("slice", "target") if by_slice(fine) else ("positions", "position")
    columns = tuple(map(Column, ("diagnostic", "scale", "arm", "read", buckets)))
    columns += (Column("mean over layers and seeds", numeric=True), Column("unit"))
    rest = len(keys) - len(rows)
    note = f"{rest} more are in report.json." if rest else ""
    whole = f"every {every} is written as {EVERY_POSITION}"
    return Table(f"By head and by {grouping(fine)} ({whole})", columns, rows, note) if rows else None


def _where(site: str, group: str) -> str:
    return " · ".join(part for part in dict.fromkeys((site, group)) if part) or _ONLY


def _ordered(values: Sequence[DiagnosticValue], arms: Sequence[str]) -> list[str]:
    present = {v.arm for v in values}
    return [arm for arm in arms if arm in present] + sorted(present - set(arms))


def _at(layers: dict[int, float], layer: int) -> str:
    return f"{significant(layers[layer])}\nlayer {layer}"
