"""Documents as parts of a ratio of sums: what each weighs, and which of them belong together.

A figure per token or per byte is a ratio of sums over documents d, so a difference of two models on one text is one
too, and a document enters it through a residual (the delta method, Miller 2024, arXiv 2411.00640):

    delta = sum_d D_d / sum_d w_d        D_d: summed nats, treatment minus baseline; w_d: tokens, or ln 2 x bytes
    r_d = D_d - delta w_d                so that sum_d r_d = 0

Weights of ln 2 x bytes turn nats into bits per byte. Residuals are summed over clusters (a host, a source) before they
are squared; without clusters every document is its own. `paribus.stats.new_documents` puts them together with seeds: an
error over documents alone says nothing about another seed, and read as a verdict on one trained pair it finds a
difference in 13 to 56 % of pairs that differ by seed noise alone.
"""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from paribus.errors import ParibusError

Array = NDArray[np.float64]
Codes = Sequence[int] | Sequence[str] | NDArray[np.integer] | NDArray[np.str_]
"""one code for each document; equal codes are one cluster"""


def byte_weights(utf8_bytes: Sequence[int] | NDArray[np.integer]) -> Array:
    """ln 2 x bytes [document]: summed nats divided by summed weights are then bits per byte."""
    return math.log(2.0) * np.asarray(utf8_bytes, np.float64)


def checked(differences: Array, weights: Sequence[float] | Array) -> tuple[Array, Array]:
    """`differences` [seed document] and `weights` [document] as float64.

    ParibusError unless both are of the same documents, every difference is finite and every weight positive.
    """
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
