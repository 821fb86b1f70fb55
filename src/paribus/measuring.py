"""What is measured of a cell and where it is kept: likelihood of held-out documents, diagnostics, interventions.

Joins the measure branch with the corpus and the run folder. Rows are written before anything is shown.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from torch import nn

from paribus.data.frozen import DocumentTable, FrozenCorpus, TokenFile
from paribus.data.split import Split
from paribus.data.windows import windows
from paribus.errors import DivergenceError
from paribus.experiment import spec
from paribus.measure.interventions import Change, intervene
from paribus.measure.likelihood import bits_per_byte, document_nats, nats_per_token
from paribus.measure.probes import Reading, Scoring, probe
from paribus.measure.routes import Route, depth_routes
from paribus.mechanisms.contract import Diagnostic, Intervention
from paribus.runs.folder import CellFolder
from paribus.train.loop import MilestoneReached
from paribus.train.step import Consumed

EVALUATION_TOKENS = 8192
"""inputs of one forward pass when scoring; bounds the logits at EVALUATION_TOKENS * vocabulary numbers"""
HELD_OUT: tuple[Split, ...] = ("test", "validation")


def measure(
    corpus: FrozenCorpus,
    base: spec.Base,
    folder: CellFolder,
    model: nn.Module,
    event: MilestoneReached,
    diagnostics: Sequence[Diagnostic],
    interventions: Sequence[Intervention],
) -> Iterator[dict[str, Any]]:
    """Score held-out documents and, at the end of the schedule, read diagnostics and make interventions."""
    device = next(model.parameters()).device
    limits = {"test": base.evaluation.test_tokens, "validation": base.evaluation.validation_tokens}
    for split in HELD_OUT:
        held_out = limited(corpus.split(split), limits[split])
        documents = held_out.documents
        nats = document_nats(model, scoring_batches(held_out, base.context_length, device), len(documents))
        if not np.isfinite(nats).all():
            # The last update can break a model whose training loss was finite until then.
            raise DivergenceError(f"the {split} loss became {nats.sum()} after step {event.step}")
        folder.write_rows(
            f"likelihood/{split}-{event.step:08d}",
            {
                "document": documents.id,
                "source": [corpus.sources[source] for source in documents.source],
                "tokens": documents.tokens,
                "bytes": documents.bytes,
                "nats": nats,
                "tokens_seen": np.full(len(documents), event.tokens_seen),
                "mid_schedule": np.full(len(documents), not event.final),
            },
        )
        yield {
            "split": split,
            "tokens_seen": event.tokens_seen,
            "nats_per_token": nats_per_token(nats, documents.tokens),
            "bits_per_byte": bits_per_byte(nats, documents.bytes),
        }
    if event.final:
        probed = limited(corpus.split("validation"), base.evaluation.probe_tokens)
        batches = list(scoring_batches(probed, base.context_length, device))
        step = f"{event.step:08d}"
        if diagnostics:
            folder.write_rows(f"diagnostics/{step}", _diagnostic_columns(probe(model, batches, diagnostics)))
        if changes := intervene(model, batches, len(probed.documents), interventions):
            folder.write_rows(f"interventions/{step}", _intervention_columns(changes, probed.documents))
        if routes := depth_routes(model, batches) if diagnostics else []:
            folder.write_rows(f"routes/{step}", _route_columns(routes))
    model.train()


def _diagnostic_columns(readings: Sequence[Reading]) -> dict[str, Any]:
    """One row a reading; a standard error that is not there is null."""
    return {
        "diagnostic": pa.array([r.diagnostic for r in readings], pa.string()),
        "layer": np.array([r.layer for r in readings], np.int64),
        "group": pa.array([r.group for r in readings], pa.string()),
        "bucket": pa.array([r.bucket for r in readings], pa.string()),
        "value": np.array([r.value for r in readings], np.float64),
        "standard_error": pa.array([r.standard_error for r in readings], pa.float64(), from_pandas=True),
        "documents": np.array([r.documents for r in readings], np.int64),
    }


def _intervention_columns(changes: Sequence[Change], documents: DocumentTable) -> dict[str, Any]:
    """One row a variant and document; nats are sums over the document's tokens."""
    return {
        "intervention": [change.intervention for change in changes for _ in documents.id],
        "variant": [change.variant for change in changes for _ in documents.id],
        "document": np.tile(documents.id, len(changes)),
        "tokens": np.tile(documents.tokens, len(changes)),
        "nats_before": np.concatenate([change.nats_before for change in changes]),
        "nats_after": np.concatenate([change.nats_after for change in changes]),
    }


def _route_columns(routes: Sequence[Route]) -> dict[str, Any]:
    """One row a read, role, position and source."""
    counts = [route.weights.size for route in routes]
    sources = [np.tile(np.arange(route.weights.shape[1], dtype=np.int64), len(route.positions)) for route in routes]
    return {
        "site": np.repeat(np.array([route.site for route in routes], object), counts),
        "layer": np.repeat(np.array([route.layer for route in routes], np.int64), counts),
        "role": np.repeat(np.array([route.role for route in routes], object), counts),
        "position": np.concatenate([np.repeat(route.positions, route.weights.shape[1]) for route in routes]),
        "source": np.concatenate(sources),
        "weight": np.concatenate([route.weights.ravel() for route in routes]),
    }


def scoring_batches(held_out: TokenFile, context_length: int, device: torch.device) -> Iterator[Scoring]:
    """Windows over whole documents, with the number of each row's document."""
    for batch in windows(held_out, context_length).batches(EVALUATION_TOKENS):
        yield Consumed.from_batch(batch, device), batch.document_row


def limited(held_out: TokenFile, tokens: int | None) -> TokenFile:
    """The first documents of a split, whole, until they hold `tokens` tokens."""
    if tokens is None:
        return held_out
    table = held_out.documents
    count = int(np.searchsorted(np.cumsum(table.tokens), tokens)) + 1
    columns = {name: getattr(table, name)[:count] for name in ("id", "source", "offset", "tokens", "bytes")}
    return replace(held_out, documents=DocumentTable(**columns))
