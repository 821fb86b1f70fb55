"""Likelihood of held-out documents: nats per token and bits per byte, kept by document.

Each document is scored on its own: BOS, then its tokens in consecutive windows of the context length; every token is
a target exactly once, BOS never is and has no bytes. Sums are taken in float64.

    nats per token = sum of -ln p / tokens            bits per byte = sum of -ln p / (ln 2 * UTF-8 bytes)
"""

import math
from collections.abc import Iterable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from paribus.train.step import Consumed, token_losses


def document_nats(
    model: nn.Module, batches: Iterable[tuple[Consumed, NDArray[np.int64]]], documents: int
) -> NDArray[np.float64]:
    """Sum of -ln p over each document's tokens, in nats: [document].

    Batches carry the document number of each row, or of each target where a row holds several: [row] or [row time].
    """
    totals = np.zeros(documents, dtype=np.float64)
    model.eval()
    with torch.no_grad():
        for batch, document in batches:
            losses = token_losses(model, batch).double() * batch.weight
            summed = losses.sum(-1) if document.ndim == 1 else losses
            np.add.at(totals, document, summed.cpu().numpy())
    return totals


def nats_per_token(nats: NDArray[np.float64], tokens: NDArray[np.integer]) -> float:
    return float(nats.sum() / tokens.sum())


def bits_per_byte(nats: NDArray[np.float64], utf8_bytes: NDArray[np.integer]) -> float:
    return float(nats.sum() / (math.log(2.0) * utf8_bytes.sum()))
