"""A record of what updates take (cost/<scale>.json, `paribus.runs.layout.CostRecord`), read as ratios of columns.

`paribus bench` and the report read it here, so that both say the same.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from paribus.stats.step_ratio import StepRatio, step_ratio


def column_name(arm: str, way: str, *, again: bool = False) -> str:
    """Of an arm that computes in one way; of its second copy where it is measured twice."""
    return f"{arm}/{way}" + ("/again" if again else "")


@dataclass(frozen=True)
class TimeRatio:
    """Treatment over baseline, from blocks of one process on one host."""

    treatment: str
    """columns"""
    baseline: str
    wall: StepRatio
    cpu: StepRatio
    """of processor time, which another process beside takes no part in"""


def compared(record: Mapping[str, Any]) -> tuple[TimeRatio, ...]:
    """The comparisons that were asked for, in order."""
    return tuple(time_ratio(record, treatment, baseline) for treatment, baseline in record["comparisons"])


def against_themselves(record: Mapping[str, Any]) -> tuple[TimeRatio, ...]:
    """A/A of every baseline: its second copy over its first."""
    return tuple(
        time_ratio(record, name, column_name(column["arm"], column["way"]))
        for name, column in record["columns"].items()
        if column["again"]
    )


def time_ratio(record: Mapping[str, Any], treatment: str, baseline: str) -> TimeRatio:
    """Two columns of a record, with the A/A of the baseline where it was measured twice."""
    column = record["columns"][baseline]
    same = column_name(column["arm"], column["way"], again=True)
    names = [baseline, treatment, *([same] if same in record["columns"] else [])]
    again = names.index(same) if same in names[2:] else None
    hosts = [record["host"]] * len(record["wall_seconds"][baseline])
    wall, cpu = (
        step_ratio(_table(record[kind], names), 0, 1, again=again, hosts=hosts)
        for kind in ("wall_seconds", "cpu_seconds")
    )
    return TimeRatio(treatment, baseline, wall, cpu)


def median_seconds(record: Mapping[str, Any], column: str, kind: str = "wall_seconds") -> float:
    """Of an update, over all turns."""
    return float(np.median(record[kind][column]))


def tokens_per_second(record: Mapping[str, Any], column: str) -> float:
    return record["batch_tokens"][record["columns"][column]["arm"]] / median_seconds(record, column)


def shares_of_parts(record: Mapping[str, Any], column: str) -> dict[str, float]:
    """What each part takes of an update, in its order; they add up to 1. Empty where nothing was measured."""
    parts = record["parts"][column]
    total = sum(parts.values())
    return {name: parts[name] / total for name in record["part_order"] if name in parts} if total else {}


def _table(seconds: Mapping[str, list[float]], names: list[str]) -> np.ndarray[Any, np.dtype[np.float64]]:
    """[turn column]. A clock too coarse for an update says 0, which is no time."""
    table = np.array([seconds[name] for name in names], dtype=np.float64).T
    return np.where(table > 0, table, np.nan)
