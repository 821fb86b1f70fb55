"""What a cell's learning curve on a task says, recomputed from the losses of every update.

Losses are excess losses: nats per target above the best predictor of the same targets, so that the sampling noise of
what can be known at all cancels.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from paribus.data.tasks.contract import ALL, ROUNDING
from paribus.experiment.metrics import AREA, Metric
from paribus.stats.acquisition import acquired_at, restricted_log2
from paribus.stats.learning import area


@dataclass(frozen=True)
class SliceCurve:
    """One slice over a cell's updates."""

    excess: NDArray[np.float64]
    """`[update]`: nats per target above the best predictor's; NaN where the update had no target"""
    floor: NDArray[np.float64]
    """`[update]`: of the best predictor, nats per target; NaN likewise"""
    targets: NDArray[np.int64]
    """`[update]`"""


def slice_curve(metrics: Sequence[Mapping[str, Any]], name: str) -> SliceCurve | None:
    """The curve of a slice, or of all targets together; None where no update kept one."""
    names = {part for line in metrics for part in line.get("slices", {})} if name == ALL else {name}
    targets = np.zeros(len(metrics), dtype=np.int64)
    loss, floor = np.zeros(len(metrics)), np.zeros(len(metrics))
    for place, line in enumerate(metrics):
        for part, found in line.get("slices", {}).items():
            if part in names:
                targets[place] += found["targets"]
                loss[place] += found["targets"] * found["loss_nats"]
                floor[place] += found["targets"] * found["floor_nats"]
    if not targets.any():
        return None
    weight = np.where(targets > 0, targets, np.nan)
    return SliceCurve((loss - floor) / weight, floor / weight, targets)


def excess_thresholds(corpus: Mapping[str, Any]) -> dict[str, float]:
    """Of each slice of the planned task: excess loss below which it counts as acquired; empty for text."""
    slices = corpus.get("task", {}).get("slices", {})
    return {name: found["threshold"] - found["floor"] for name, found in slices.items()}


def curve_metric(metrics: Sequence[Mapping[str, Any]], metric: Metric, thresholds: Mapping[str, float]) -> float | None:
    """The metric of one cell; of two slices, the first less the second. None where the cell kept no such curve."""
    values = [_of_slice(metrics, metric.quantity, name, thresholds) for name in metric.slices or (ALL,)]
    known = [value for value in values if value is not None]
    if len(known) < len(values):
        return None
    return known[0] if len(known) == 1 else known[0] - known[1]


def threshold_of(metrics: Sequence[Mapping[str, Any]], name: str, thresholds: Mapping[str, float]) -> float | None:
    """Excess loss below which the slice counts as acquired; for all targets the mean of their slices'.

    None where nothing is known of it, and where chance is the floor up to rounding: there is nothing to acquire then.
    """
    found = thresholds.get(name) if name != ALL else _mean_threshold(metrics, thresholds)
    return found if found is not None and found > ROUNDING else None


def _mean_threshold(metrics: Sequence[Mapping[str, Any]], thresholds: Mapping[str, float]) -> float | None:
    weights = dict.fromkeys(thresholds, 0)
    for line in metrics:
        for part, found in line.get("slices", {}).items():
            if part in weights:
                weights[part] += found["targets"]
    total = sum(weights.values())
    return math.fsum(weights[part] * thresholds[part] for part in weights) / total if total else None


def _of_slice(
    metrics: Sequence[Mapping[str, Any]], quantity: str, name: str, thresholds: Mapping[str, float]
) -> float | None:
    curve = slice_curve(metrics, name)
    if curve is None:
        return None
    if quantity == AREA:
        return area(curve.excess, curve.targets)
    threshold = threshold_of(metrics, name, thresholds)
    if threshold is None:
        return None
    return restricted_log2(acquired_at(curve.excess, curve.targets, threshold), len(metrics))


def slice_nll(rows: pa.Table, slices: Sequence[str]) -> float | None:
    """Nats per target of one slice, or of the first less the second, from the rows of a likelihood file."""
    source = np.asarray(rows["source"].to_pylist(), dtype=object)
    nats, tokens = rows["nats"].to_numpy(), rows["tokens"].to_numpy()
    found = []
    for name in slices:
        here = source == name
        if not here.any():
            return None
        found.append(math.fsum(nats[here]) / float(tokens[here].sum()))
    return found[0] if len(found) == 1 else found[0] - found[1]
