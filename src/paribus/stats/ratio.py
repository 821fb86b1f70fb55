"""One trained pair on other documents: a difference per unit of weight, its residuals, and their standard error.

A figure per token or per byte is a ratio of sums over documents d, so a difference of two models on one text is one
too, and a document enters it through a residual (the delta method, Miller 2024, arXiv 2411.00640):

    delta = sum_d D_d / sum_d w_d        D_d: summed nats, treatment minus baseline; w_d: tokens, or ln 2 x bytes
    r_d = D_d - delta w_d                so that sum_d r_d = 0
    se^2 = G/(G - 1) sum_g r_g^2 / (sum_d w_d)^2        r_g: r summed over cluster g (a host, a source)

Without clusters every document is its own. Weights of ln 2 x bytes turn nats into bits per byte. The number says how
far this one pair of checkpoints might differ on other text of this kind. It says nothing about another seed, so it is
never a verdict: read as one, it finds a difference in 13 to 56 % of pairs that differ by seed noise alone.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from paribus.errors import ParibusError

Array = NDArray[np.float64]
Codes = Sequence[int] | Sequence[str] | NDArray[np.integer] | NDArray[np.str_]
"""one code for each document; equal codes are one cluster"""


@dataclass(frozen=True)
class LinearisedRatio:
    """A difference of one trained pair, in nats per token or bits per byte, by what the weights are."""

    value: float
    residuals: Array
    """r_d [document], in summed nats"""
    standard_error: float
    """over documents, in the unit of `value`"""
    documents: int
    clusters: int
    """the same as `documents` where no codes are given"""


def byte_weights(utf8_bytes: Sequence[int] | NDArray[np.integer]) -> Array:
    """ln 2 x bytes [document]: summed nats divided by summed weights are then bits per byte."""
    return math.log(2.0) * np.asarray(utf8_bytes, np.float64)


def linearised_ratio(
    differences: Sequence[float] | Array, weights: Sequence[float] | Array, clusters: Codes | None = None
) -> LinearisedRatio:
    """The difference of one pair from `differences` (summed nats) and `weights`, both [document], with its error.

    ParibusError unless there are two clusters, all differences are finite and all weights positive.
    """
    values, per_document = checked(np.asarray(differences, np.float64)[None], weights)
    groups = cluster_indices(clusters, values.shape[1])
    total = per_document.sum()
    value = values[0].sum() / total
    residuals = values[0] - value * per_document
    count = int(groups.max()) + 1
    sums = cluster_sums(residuals[None], groups)
    error = math.sqrt(count / (count - 1) * float((sums**2).sum())) / total
    return LinearisedRatio(float(value), residuals, float(error), values.shape[1], count)


def linearised_document_se(
    differences: Sequence[float] | Array, weights: Sequence[float] | Array, clusters: Codes | None = None
) -> float:
    """The standard error of `linearised_ratio` alone."""
    return linearised_ratio(differences, weights, clusters).standard_error


def checked(differences: Array, weights: Sequence[float] | Array) -> tuple[Array, Array]:
    """`differences` [seed document] and `weights` [document] as float64. ParibusError where a rule above is broken."""
    weights = np.asarray(weights, np.float64)
    if differences.ndim != 2 or weights.shape != differences.shape[1:]:
        raise ParibusError(
            "differences and weights are of other documents",
            expected="one difference and one weight for each document, in the same order",
            received=f"differences of shape {differences.shape}, weights of shape {weights.shape}",
            remedy="score every cell on the same documents",
        )
    if not np.isfinite(differences).all():
        raise ParibusError(
            "a difference of a document is not finite",
            expected="finite summed nats",
            received=f"{int((~np.isfinite(differences)).sum())} of {differences.size} are NaN or infinite",
            remedy="a diverged cell has no document differences: leave its seed out and say so beside the estimate",
        )
    if not (np.isfinite(weights) & (weights > 0)).all():
        raise ParibusError(
            "a weight is not a positive number",
            expected="tokens or bytes above 0 for every document",
            received=f"{int((~(weights > 0)).sum())} of {weights.size} documents have none",
            remedy="leave out documents of which nothing was scored",
        )
    return differences, weights


def cluster_indices(clusters: Codes | None, documents: int) -> NDArray[np.intp]:
    """The cluster of each document as 0..G-1. ParibusError for another number of codes, or below two clusters."""
    if clusters is not None and len(clusters) != documents:
        raise ParibusError(
            "cluster codes are of other documents",
            expected=f"{documents} codes, one for each document",
            received=str(len(clusters)),
            remedy="give the host or source of every document",
        )
    found = np.arange(documents) if clusters is None else np.unique(np.asarray(clusters), return_inverse=True)[1]
    if documents < 2 or found.max() == 0:
        raise ParibusError(
            "no spread over documents can be estimated",
            expected="at least two documents, from at least two clusters",
            received=f"{documents} documents" + ("" if clusters is None else " of one cluster"),
            remedy="score more held-out text, or cluster by something finer",
        )
    return found.astype(np.intp)


def cluster_sums(values: Array, groups: NDArray[np.intp]) -> Array:
    """`values` [seed document] summed by cluster: [seed cluster]."""
    if len(groups) == int(groups.max()) + 1:
        return values[:, np.argsort(groups)]  # every document is its own cluster
    count = int(groups.max()) + 1
    return np.stack([np.bincount(groups, weights=row, minlength=count).astype(np.float64) for row in values])
