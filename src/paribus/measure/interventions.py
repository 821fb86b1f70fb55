"""Interventions: what a change of a trained model at evaluation does to the likelihood of held-out documents.

    change in NLL = sum_d (after_d - before_d) / sum_d tokens_d        in nats per token, over documents d

Kept by document, so that the change and its standard error over documents are recomputed from rows. The model is what
it was after every variant: its parameters are compared bit for bit, and an intervention that forgets is named.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from paribus.errors import ParibusError
from paribus.measure.likelihood import document_nats
from paribus.measure.probes import Scoring
from paribus.mechanisms.contract import Intervention


@dataclass(frozen=True)
class Change:
    """One variant of one intervention."""

    intervention: str
    variant: str
    nats_before: NDArray[np.float64]
    """`[document]`: sum of -ln p over the document's tokens in the model as it was trained"""
    nats_after: NDArray[np.float64]
    """`[document]`: the same under the change"""


def intervene(
    model: nn.Module, batches: Sequence[Scoring], documents: int, interventions: Sequence[Intervention]
) -> list[Change]:
    """Score every document under every variant that applies to the model; one that has none is passed over."""
    applicable = [(each, variants) for each in interventions if (variants := each.variants(model))]
    if not applicable:
        return []
    before = document_nats(model, batches, documents)
    digest, first_batch = digest_of(model), document_nats(model, batches[:1], documents)
    changes = []
    for intervention, variants in applicable:
        for label, context in variants.items():
            with torch.no_grad(), context():
                after = document_nats(model, batches, documents)
            changes.append(Change(intervention.name, label, before, after))
            if digest_of(model) != digest:
                raise _left_changed(intervention, f"'{label}'")
        # A module's plain attribute is no parameter, but it shows in the likelihood.
        if not np.array_equal(document_nats(model, batches[:1], documents), first_batch):
            raise _left_changed(intervention, "one of " + ", ".join(f"'{label}'" for label in variants))
    return changes


def digest_of(model: nn.Module) -> str:
    """A digest of every parameter and buffer, by name."""
    found = hashlib.blake2b(digest_size=16)
    for name, tensor in model.state_dict().items():
        found.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode())
        found.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return found.hexdigest()


def _left_changed(intervention: Intervention, variants: str) -> ParibusError:
    return ParibusError(
        f"the intervention '{intervention.name}' did not leave the model as it was",
        expected="parameters and likelihood bit for bit as before, after each variant's context",
        received=f"a changed model after {variants}",
        remedy="restore in the context manager's `finally` what it changed",
    )
