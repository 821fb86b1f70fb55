"""What a contrast costs: its gain at equal steps, at equal FLOPs and at equal time, side by side.

A mechanism that wins per step and loses per second is told as both. The break-even ratio stands beside them because it
depends on no kernel and no machine (rules of evidence, section 6). Losses are in `unit`, nats per token of a text and
per target of a task; lower is better.
"""

from collections.abc import Sequence

from paribus.report.budgets import open_interval
from paribus.report.canvas import Picture
from paribus.report.content import CostRow, UpdateRow
from paribus.report.forest import Estimate, forest
from paribus.report.numbers import count, interval, significant
from paribus.report.tables import Column, Table
from paribus.stats.rounding import MISSING, decimals_for, fixed

KINDS = ("equal steps", "equal FLOPs", "equal time")


def gains_table(costs: Sequence[CostRow], unit: str = "nats per token") -> Table:
    """Iso-step, iso-FLOP and iso-time with intervals, and where the gain vanishes."""
    told = any(value is not None for cost in costs for value, _ in _gains(cost))
    columns = (
        Column("contrast"),
        *(Column(f"at {kind}", unit, numeric=True) for kind in KINDS),
        Column("step time", "times the baseline's", numeric=True),
        Column("FLOPs", "times the baseline's", numeric=True),
        Column("break-even", "times the baseline's step time", numeric=True),
        Column("what follows"),
    )
    rows = tuple(
        (
            f"{_name(cost)}\nscale\u00a0{cost.scale}",
            *(_gain(value, bounds) for value, bounds in _gains(cost)),
            _with(significant(cost.step_time_ratio), cost.step_time_ratio_interval),
            significant(cost.flop_ratio),
            _with(significant(cost.break_even_ratio), cost.break_even_interval),
            cost.sentence or MISSING,
        )
        for cost in costs
    )
    if not told:
        note = "Facts about the machine and the model; they say nothing about a difference in loss."
        return Table("Step time and FLOPs", columns, rows, note)
    note = (
        "Treatment minus baseline: lower is better; below it the interval at the level of the contrast's verdict. A "
        "step slower than break-even loses."
    )
    return Table("Gain at equal steps, FLOPs and time", columns, rows, note)


def machines_table(costs: Sequence[CostRow]) -> Table:
    """How update times compare, and what the machine that they were measured on cannot resolve."""
    hosts = {cost.host or MISSING for cost in costs}
    several = (Column("host"),) if len(hosts) > 1 else ()
    columns = (
        Column("contrast"),
        Column("baseline against itself", "wall time, A/A", numeric=True),
        Column("wall time", "times the baseline's", numeric=True),
        Column("which is"),
        Column("baseline against itself", "CPU time, A/A", numeric=True),
        Column("CPU time", "times the baseline's", numeric=True),
        Column("kept for backward", "times the baseline's", numeric=True),
        Column("peak memory", "times the baseline's", numeric=True),
        Column("rounds", numeric=True),
        *several,
    )
    rows = tuple(
        (
            f"{_name(cost)}\nscale\u00a0{cost.scale}",
            _bounds(cost.same_arm_interval),
            _timed(cost.step_time_ratio, cost.step_time_ratio_interval),
            cost.step_time_reading or MISSING,
            _bounds(cost.cpu_same_arm_interval),
            _timed(cost.cpu_time_ratio, cost.cpu_time_ratio_interval),
            significant(cost.backward_memory_ratio),
            significant(cost.peak_memory_ratio),
            str(cost.rounds),
            *([cost.host or MISSING] if several else []),
        )
        for cost in costs
    )
    on = "" if several else f" Measured on {', '.join(hosts)}."
    note = (
        "Medians over mirrored blocks of turns, with 95 % bootstrap intervals over blocks. Nothing within the interval "
        "of the baseline against itself is claimed. Times are compared on one host only."
    )
    return Table("Time and memory of an update", columns, rows, note + on)


def updates_table(updates: Sequence[UpdateRow]) -> Table:
    """What an update of each arm takes by itself."""
    columns = (
        Column("arm"),
        Column("throughput", "tokens per second", numeric=True),
        Column("wall time", "ms", numeric=True),
        Column("CPU time", "ms", numeric=True),
        Column("kept for backward", "MiB", numeric=True),
        Column("peak memory", "MiB", numeric=True),
    )
    rows = tuple(
        (
            f"{row.arm}, {row.way}\nscale\u00a0{row.scale}",
            count(round(row.tokens_per_second)),
            significant(1e3 * row.wall_seconds, 4),
            significant(1e3 * row.cpu_seconds, 4),
            significant(row.bytes_for_backward / 2**20, 4),
            significant(row.peak_bytes / 2**20, 4),
        )
        for row in updates
    )
    note = "Medians of the same turns as above. They say nothing about another machine, and little about another hour."
    return Table("An update of each arm", columns, rows, note)


def parts_tables(updates: Sequence[UpdateRow]) -> tuple[Table, ...]:
    """Where the time of an update goes, one table a scale: a row a part, a column an arm."""
    return tuple(
        _parts_table(scale, [row for row in updates if row.scale == scale and row.shares])
        for scale in dict.fromkeys(row.scale for row in updates if row.shares)
    )


def _parts_table(scale: str, updates: Sequence[UpdateRow]) -> Table:
    shares = [dict(zip(row.parts, row.shares, strict=True)) for row in updates]
    columns = (Column("part"), *(Column(f"{row.arm}, {row.way}", "%", numeric=True) for row in updates))
    rows = tuple(
        (part, *(fixed(100 * of[part], 1) if part in of else MISSING for of in shares))
        for part in dict.fromkeys(part for of in shares for part in of)
    )
    clocks = " and ".join(dict.fromkeys(row.parts_in for row in updates))
    note = f"Of the {clocks} of further updates, which were watched; the backward pass is not divided."
    return Table(f"Share of the step by part, scale {scale}", columns, rows, note)


def gains_picture(costs: Sequence[CostRow], name: str, unit: str = "nats per token") -> Picture | None:
    """The three gains of each contrast as a forest; None where none is due."""
    due = [cost for cost in costs if any(value is not None for value, _ in _gains(cost))]
    if not due:
        return None
    estimates, words = [], []
    for cost in due:
        several = len({other.scale for other in due}) > 1
        where = f" ({cost.scale})" if several else ""
        for look, (kind, (value, bounds)) in enumerate(zip(KINDS, _gains(cost), strict=True)):
            low, high = bounds or (None, None)
            estimates.append(Estimate(f"{cost.contrast}{where}, {kind}", value, low, high, look))
            digits = _digits(bounds)
            words.append(
                f"{cost.contrast}{where} at {kind}: {fixed(value, digits, signed=True)} {interval(bounds, digits)}"
            )
    axis = f"treatment minus baseline, {unit} (lower is better)"
    told = f"{unit[:1].upper()}{unit[1:]}. {'; '.join(words)}."
    return forest(estimates, axis, name, "Gain at equal steps, FLOPs and time", told)


def _gains(cost: CostRow) -> tuple[tuple[float | None, tuple[float, float] | None], ...]:
    return (
        (cost.iso_step, cost.iso_step_interval),
        (cost.iso_flop, cost.iso_flop_interval),
        (cost.iso_time, cost.iso_time_interval),
    )


def _digits(bounds: tuple[float, float] | None) -> int:
    return decimals_for((bounds[1] - bounds[0]) / 4 if bounds else None)


def _gain(value: float | None, bounds: tuple[float, float] | None) -> str:
    digits = _digits(bounds)
    return fixed(value, digits, signed=True) + (f"\n{interval(bounds, digits)}" if bounds else "")


def _with(text: str, bounds: tuple[float | None, float | None] | None) -> str:
    return text if bounds is None else f"{text}\n{open_interval(bounds)}"


def _name(cost: CostRow) -> str:
    return f"{cost.contrast}, {cost.way}" if cost.way else cost.contrast


def _bounds(bounds: tuple[float, float] | None) -> str:
    """Of a ratio of times, where a tenth of a percent counts."""
    return MISSING if bounds is None else f"{fixed(bounds[0], 4)} to {fixed(bounds[1], 4)}"


def _timed(ratio: float | None, bounds: tuple[float, float] | None) -> str:
    return fixed(ratio, 4) + (f"\n{_bounds(bounds)}" if bounds else "")
