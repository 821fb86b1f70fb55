"""Standard errors over documents: the delete-one-document jackknife (Tukey 1958; Efron and Stein 1981).

A quantity per token is a ratio of sums over documents d, since documents differ in length:

    theta = sum_d s_d / sum_d w_d                           s: summed values, w: summed weights (tokens)
    theta_(j) - theta = (theta w_j - s_j) / (W - w_j)       W = sum_d w_d; exact, and free of cancellation
    se^2 = (n - 1)/n sum_j (theta_(j) - mean of theta_(.))^2

For a quantity that is not such a ratio (a divergence of averages) theta_(j) is computed from the means without j and
the last line holds unchanged. Documents are the unit because tokens of one document are not independent. The number
describes one trained model on other documents of this kind; it says nothing about other seeds.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True)
class DocumentRatio:
    """A ratio of sums over documents; every array has the axes of the columns that were given."""

    value: Array
    """NaN where no document counts"""
    standard_error: Array
    """NaN below two documents"""
    documents: NDArray[np.int64]
    """documents with a positive weight"""


def ratio(sums: Array, weights: Array) -> DocumentRatio:
    """Sum of `sums` over sum of `weights`, both [document ...], with the jackknife's standard error."""
    counted = weights > 0
    number = counted.sum(0)
    total = weights.sum(0)
    with np.errstate(divide="ignore", invalid="ignore"):
        value = sums.sum(0) / total
        shifts = np.where(counted, (value * weights - sums) / (total - weights), 0.0)
        from_mean = np.where(counted, shifts - shifts.sum(0) / number, 0.0)
        error = np.sqrt((number - 1) / number * (from_mean**2).sum(0))
    return DocumentRatio(value, np.where(number > 1, error, np.nan), number)


def means_without_one(sums: Array, weights: Array) -> Array:
    """theta_(j) of every column: [document ...]. NaN where document j holds all of a column's weight."""
    rest = weights.sum(0) - weights
    # What is left after subtracting all of it may be a rounding error instead of 0.
    alone = np.where(weights > 0, 1, 0).sum(0) - (weights > 0) == 0
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(alone, np.nan, (sums.sum(0) - sums) / rest)


def standard_error(without_one: Array) -> Array:
    """The jackknife's standard error from the n leave-one-out values [document ...]; NaN below two documents."""
    number = len(without_one)
    if number < 2:
        return np.full(without_one.shape[1:], np.nan)
    return np.sqrt((number - 1) / number * ((without_one - without_one.mean(0)) ** 2).sum(0))
