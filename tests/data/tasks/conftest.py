"""What the tests of every task share: a digest of rows, and the mean of a loss with its standard error."""

import hashlib
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from paribus.data.tasks.contract import Rows

Digest = Callable[[Rows], str]
MeanOnSlice = Callable[[NDArray[np.float64], NDArray[np.bool_]], tuple[float, float]]


@pytest.fixture(scope="session")
def digest() -> Digest:
    """Of the integers of some rows. `floor_nats` is left out: its last bit belongs to the machine's logarithm."""

    def of(rows: Rows) -> str:
        found = hashlib.sha256()
        for field in ("tokens", "targets", "asked", "slice", "answer", "document"):
            found.update(np.ascontiguousarray(getattr(rows, field)).astype("<i8").tobytes())
        return found.hexdigest()[:16]

    return of


@pytest.fixture(scope="session")
def mean_on_slice() -> MeanOnSlice:
    """Mean of a loss over the places `here`, both `[row time]`, and its standard error with rows as the independent
    units (a ratio of sums: targets of one row depend on each other)."""

    def of(loss: NDArray[np.float64], here: NDArray[np.bool_]) -> tuple[float, float]:
        count = here.sum(axis=1)
        sums = np.where(here, loss, 0.0).sum(axis=1)
        mean = sums.sum() / count.sum()
        return float(mean), float(np.sqrt(np.sum((sums - mean * count) ** 2)) / count.sum())

    return of
