"""Likelihood of answers in conversations that are not trained on, kept by conversation.

    bits per byte = sum of -ln p of learnt text tokens / (ln 2 * their UTF-8 bytes)
    nats per token = sum of -ln p of learnt tokens / their number

Tokens that stand for no text (calls, ends of messages) have no bytes; they count in the second alone. Each
conversation is a row of its own.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from paribus.data.order import Batch
from paribus.downstream.chat.dataset import ChatData
from paribus.measuring import EVALUATION_TOKENS
from paribus.model.backbone import Backbone
from paribus.train.step import Consumed, token_losses

GROUP = "validation"


@dataclass(frozen=True)
class HeldOutChat:
    """What is measured on."""

    data: ChatData
    numbers: NDArray[np.int64]
    """of the conversations, each text once"""

    @classmethod
    def of(cls, data: ChatData, candidates: NDArray[np.int64], limit: int | None) -> "HeldOutChat":
        """Each text once, and where there are more than `limit` as many of them, spread evenly."""
        _, first = np.unique(data.digest[candidates], return_index=True)
        numbers = candidates[np.sort(first)]
        if limit is not None and len(numbers) > limit:
            numbers = numbers[np.arange(limit) * len(numbers) // limit]
        return cls(data, numbers)

    def __len__(self) -> int:
        return len(self.numbers)


def score(model: Backbone, held_out: HeldOutChat, token_bytes: NDArray[np.int32], bos: int) -> dict[str, Any]:
    """Columns of one row a conversation: `conversation` (16 hexadecimal digits), `part`, `targets`, `nats`,
    `text_nats`, `bytes`."""
    data, numbers = held_out.data, held_out.numbers
    nats, text_nats = (np.zeros(len(numbers), dtype=np.float64) for _ in range(2))
    targets, sizes = (np.zeros(len(numbers), dtype=np.int64) for _ in range(2))
    device = next(model.parameters()).device
    model.eval()
    with torch.no_grad():
        for rows in _alike(data.lengths[numbers]):
            batch = _padded(data, numbers[rows], bos)
            losses = token_losses(model, Consumed.from_batch(batch, device)).double().cpu().numpy()
            learnt = batch.weight > 0
            spelled = np.where(learnt, token_bytes[batch.targets], 0)
            nats[rows] = (losses * learnt).sum(-1)
            text_nats[rows] = (losses * (spelled > 0)).sum(-1)
            targets[rows], sizes[rows] = learnt.sum(-1), spelled.sum(-1)
    return {
        "conversation": [f"{int(digest):016x}" for digest in data.digest[numbers]],
        "part": [data.facts[part].label for part in data.part[numbers]],
        "targets": targets,
        "nats": nats,
        "text_nats": text_nats,
        "bytes": sizes,
    }


def summary(columns: Mapping[str, Any]) -> dict[str, Any]:
    """What the rows say together. None for bits per byte where no answer has text."""
    size, count = int(np.sum(columns["bytes"])), int(np.sum(columns["targets"]))
    bits = float(np.sum(columns["text_nats"])) / (math.log(2.0) * size) if size else None
    return {
        "conversations": len(columns["nats"]),
        "bits_per_byte": bits,
        "nats_per_token": float(np.sum(columns["nats"])) / count if count else None,
    }


def _alike(lengths: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
    """Places of conversations of similar length, as many as one forward pass takes."""
    order = np.argsort(-lengths, kind="stable")
    start = 0
    while start < len(order):
        count = max(1, EVALUATION_TOKENS // int(lengths[order[start]]))
        yield order[start : start + count]
        start += count


def _padded(data: ChatData, numbers: NDArray[np.int64], bos: int) -> Batch:
    shape = (len(numbers), int(data.lengths[numbers].max()))
    tokens = np.full(shape, bos, dtype=np.int64)
    learnt = np.zeros(shape, dtype=np.float32)
    document = np.ones(shape, dtype=np.int32)
    for row, number in enumerate(numbers):
        ids, mask = data.conversation(number)
        tokens[row, : len(ids)], learnt[row, : len(ids)], document[row, : len(ids)] = ids, mask, 0
    part = np.zeros(shape, dtype=np.int16)
    return Batch(tokens[:, :-1], tokens[:, 1:], learnt[:, 1:].copy(), document[:, :-1].copy(), part[:, 1:])
