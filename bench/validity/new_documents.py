"""Coverage of the interval for new documents, with seeds and documents both drawn anew in every study.

The difference at seed s on document d is  w_d (effect + a_s + b_d + c_sd), w_d its length in tokens, log-normal. Beside
the interval stands one over documents alone on a single trained pair, which is what is usually printed.
"""

import math

import numpy as np
from table import Entry, Target, percent

from paribus.seeds import generator
from paribus.stats.new_documents import new_documents
from paribus.stats.paired import t_interval

DOCUMENTS = 200
EFFECT = 0.003
SDS = {
    # of a_s, and of b_d and c_sd over sqrt(documents): nats per token
    "seeds dominate": (0.002, 0.0005, 0.0005),
    "balanced": (0.001, 0.001, 0.0005),
    "documents dominate": (0.0005, 0.002, 0.001),
}


def document_entries(pages: int, seeds: int) -> list[Entry]:
    """Coverage of both estimands' intervals for each mixture of variances."""
    found: list[Entry] = []
    for column, (of_seed, of_document, of_both) in SDS.items():
        rng = generator("validity", "documents", seeds, "coverage", column)
        root = math.sqrt(DOCUMENTS)
        covered = np.zeros((pages, 3), np.bool_)
        for page in range(pages):
            weights = np.exp(rng.normal(6.0, 0.5, DOCUMENTS))
            a, b = rng.normal(0, of_seed, (seeds, 1)), rng.normal(0, of_document * root, DOCUMENTS)
            values = weights * (EFFECT + a + b + rng.normal(0, of_both * root, (seeds, DOCUMENTS)))
            low, high = new_documents(values, weights).interval
            headline = t_interval((values.sum(1) / weights.sum()).tolist())
            one = values[0].sum() / weights.sum()
            residual = values[0] - one * weights
            half = 1.96 * math.sqrt(DOCUMENTS / (DOCUMENTS - 1) * float(residual @ residual)) / weights.sum()
            covered[page] = low <= EFFECT <= high, headline[0] <= EFFECT <= headline[1], abs(one - EFFECT) <= half
        labels = ("new-documents interval", "headline interval, taken for new documents", "one pair, documents only")
        for index, label in enumerate(labels):
            target = Target(94, 96) if index == 0 else None
            found.append(Entry(f"{label}, S = {seeds}", column, percent(covered[:, index]), target))
    return found
