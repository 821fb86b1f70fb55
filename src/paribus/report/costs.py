"""What a contrast costs: its gain at equal steps, at equal FLOPs and at equal time, side by side.

A mechanism that wins per step and loses per second is told as both. The break-even ratio stands beside them because it
depends on no kernel and no machine (rules of evidence, section 6). Losses are in `unit`, nats per token of a text and
per target of a task; lower is better.
"""

from collections.abc import Sequence

from paribus.report.budgets import open_interval
from paribus.report.canvas import Picture
from paribus.report.content import CostRow
from paribus.report.forest import Estimate, forest
from paribus.report.numbers import interval, significant
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
            f"{cost.contrast}\nscale\u00a0{cost.scale}",
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
    """Where step times were measured, and what that machine cannot resolve."""
    columns = (
        Column("contrast"),
        Column("host"),
        Column("interleaved rounds", numeric=True),
        Column("baseline against itself", "ratio of step times", numeric=True),
        Column("memory kept for backward", "times the baseline's", numeric=True),
    )
    rows = tuple(
        (
            f"{cost.contrast}\nscale\u00a0{cost.scale}",
            cost.host or MISSING,
            str(cost.rounds),
            significant(cost.same_arm_ratio, 4),
            significant(cost.backward_memory_ratio),
        )
        for cost in costs
    )
    note = "A ratio nearer to 1 than the baseline's to itself is not resolved by this machine."
    return Table("How step times were measured", columns, rows, note)


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
