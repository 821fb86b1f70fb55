"""The second estimand: the mean difference on *new* documents, with seeds and documents both random.

The headline speaks of these held-out documents. What another sample of the text would have shown varies more, and by
how much follows from seeds s = 1..S crossed with documents, or clusters of them, g = 1..G:

    theta_s = sum_d D_sd / W,  theta = mean_s theta_s          W = sum_d w_d: tokens, or ln 2 x bytes
    r_g  = sum_{d in g} (mean_s D_sd - theta w_d)              a document's part, linearised (`paribus.stats.ratio`)
    c_sg = sum_{d in g} (D_sd - mean_s D_sd - (theta_s - theta) w_d)          what neither seed nor document explains

    V_seed     = 1/(S (S - 1)) sum_s (theta_s - theta)^2
    V_doc      = G/(G - 1) sum_g r_g^2 / W^2
    V_seed:doc = S/(S - 1) G/(G - 1) sum_sg c_sg^2 / (S W)^2
    V          = max(V_seed + V_doc - V_seed:doc, V_seed)

The sum is the two-way variance of Cameron, Gelbach & Miller (2011): the part that a seed and a document share is in
both one-way terms and counted twice, so it is taken off once. They take it from residuals around the grand mean, which
hold the documents' own effects and with few seeds take off 1/S of V_doc too much (it covers 93 % at S = 5 where
documents dominate, simulated); residuals around both margins are free of that, as in a two-way analysis of variance.
Degrees of freedom by Satterthwaite (1946), f of each term as if it stood alone, and those of V_seed where V is V_seed:

    f = V^2 / (V_seed^2/(S - 1) + V_doc^2/(G - 1) + V_seed:doc^2/((S - 1)(G - 1))),  at least min(S, G) - 1

The interval covers as it says while no cluster holds much of the weight: with a third of the text from one host it
covers about 90 % where hosts dominate, with two thirds 80 % (simulated), so the largest share is part of the result.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from paribus.errors import ParibusError
from paribus.stats.paired import constant, t_critical
from paribus.stats.ratio import Array, Codes, checked, cluster_indices, cluster_sums


@dataclass(frozen=True)
class NewDocuments:
    """Treatment minus baseline per unit of weight (nats per token, bits per byte), as on documents not yet seen."""

    mean: float
    """the headline's mean: the same seeds, the same documents"""
    standard_error: float
    """sqrt of V, never below the headline's"""
    degrees_of_freedom: float
    interval: tuple[float, float]
    confidence: float
    variance_seed: float
    """V_seed, the square of the headline's standard error; all variances in the square of the mean's unit"""
    variance_document: float
    """V_doc"""
    variance_seed_document: float
    """V_seed:doc"""
    documents: int
    clusters: int
    """hosts or sources; the same as `documents` where none are known"""
    seeds: int
    largest_share: float
    """of the weight, in one cluster"""

    @property
    def document_share(self) -> float:
        """The part of the variance that more seeds would not take away, 0 to 1."""
        return 1 - self.variance_seed / self.standard_error**2


def new_documents(
    differences: Sequence[Sequence[float]] | NDArray[np.floating],
    weights: Sequence[float] | Array,
    clusters: Codes | None = None,
    *,
    confidence: float = 0.95,
) -> NewDocuments:
    """The interval for new documents from `differences` [seed document] in summed nats, treatment minus baseline.

    `weights` [document] are tokens for nats per token or `byte_weights` for bits per byte; `clusters` is each
    document's host or source. Of an interaction every difference is the signed sum of its four arms.
    ParibusError for fewer than two seeds or clusters, for seeds that do not differ, and for what `checked` refuses.
    """
    values, weights = checked(np.atleast_2d(np.asarray(differences, np.float64)), weights)
    groups = cluster_indices(clusters, values.shape[1])
    seeds, total = len(values), float(weights.sum())
    by_seed = values.sum(1) / total
    if seeds < 2 or constant(by_seed.tolist()):
        raise ParibusError(
            "no information about the spread between seeds",
            expected="at least two seeds whose differences are not all identical",
            received=str(tuple(by_seed.tolist())),
            remedy="look for two arms that are the same program, or run more seeds",
        )
    mean = float(by_seed.mean())
    of_document = values.mean(0)
    shift = by_seed - mean
    r = cluster_sums((of_document - mean * weights)[None], groups)
    c = cluster_sums(values - of_document - shift[:, None] * weights, groups)
    count = r.shape[1]
    variance_seed = float((shift**2).sum()) / (seeds * (seeds - 1))
    variance_document = count / (count - 1) * float((r**2).sum()) / total**2
    variance_both = seeds / (seeds - 1) * count / (count - 1) * float((c**2).sum()) / (seeds * total) ** 2
    variance = max(variance_seed + variance_document - variance_both, variance_seed)
    freedom = float(seeds - 1)
    if variance > variance_seed:
        terms = variance_seed**2 / (seeds - 1) + variance_document**2 / (count - 1)
        terms += variance_both**2 / ((seeds - 1) * (count - 1))
        freedom = max(variance**2 / terms, float(min(seeds, count) - 1))
    error = math.sqrt(variance)
    half = t_critical(freedom, confidence) * error
    return NewDocuments(
        mean=mean,
        standard_error=error,
        degrees_of_freedom=freedom,
        interval=(mean - half, mean + half),
        confidence=confidence,
        variance_seed=variance_seed,
        variance_document=variance_document,
        variance_seed_document=variance_both,
        documents=values.shape[1],
        clusters=count,
        seeds=seeds,
        largest_share=float(cluster_sums(weights[None], groups).max()) / total,
    )
