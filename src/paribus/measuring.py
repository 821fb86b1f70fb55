"""What is measured of a cell and where it is kept: likelihood of what is held out, diagnostics, interventions.

Joins the measure branch with the data and the run folder. Rows are written before anything is shown.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from torch import nn

from paribus.data.held_out import HeldOut
from paribus.data.marks import OVERLAP_FREE
from paribus.data.split import Split
from paribus.errors import DivergenceError
from paribus.experiment import spec
from paribus.measure.interventions import Change, intervene
from paribus.measure.likelihood import bits_per_byte, document_nats, nats_per_token
from paribus.measure.probes import Asked, Reading, Scoring, probe
from paribus.measure.retrieval import ANSWER_MASS
from paribus.measure.routes import Route, depth_routes
from paribus.mechanisms.contract import Diagnostic, Intervention
from paribus.runs.folder import CellFolder
from paribus.train.loop import MilestoneReached
from paribus.train.step import Consumed

EVALUATION_TOKENS = 8192
"""inputs of one forward pass when scoring; bounds the logits at EVALUATION_TOKENS * vocabulary numbers"""
HELD_OUT: tuple[Split, ...] = ("test", "validation")


HeldOutOf = Callable[[Split, int | None], HeldOut]
"""what of a split a cell is measured on, up to a number of tokens"""


def measure(
    held_out_of: HeldOutOf,
    evaluation: spec.Evaluation,
    folder: CellFolder,
    model: nn.Module,
    event: MilestoneReached,
    diagnostics: Sequence[Diagnostic],
    interventions: Sequence[Intervention],
) -> Iterator[dict[str, Any]]:
    """Score what is held out and, at the end of the schedule, read diagnostics and make interventions."""
    device = next(model.parameters()).device
    limits = {"test": evaluation.test_tokens, "validation": evaluation.validation_tokens}
    for split in HELD_OUT:
        held_out = held_out_of(split, limits[split])
        nats = document_nats(model, scoring_batches(held_out, device), len(held_out.unit))
        if not np.isfinite(nats).all():
            # The last update can break a model whose training loss was finite until then.
            raise DivergenceError(f"the {split} loss became {nats.sum()} after step {event.step}")
        folder.write_rows(
            f"likelihood/{split}-{event.step:08d}",
            {
                "document": held_out.unit,
                "source": held_out.source,
                "tokens": held_out.tokens,
                "bytes": pa.nulls(len(nats), pa.int64()) if held_out.bytes is None else held_out.bytes,
                "nats": nats,
                "tokens_seen": np.full(len(nats), event.tokens_seen),
                "mid_schedule": np.full(len(nats), not event.final),
            }
            | ({} if held_out.floor_nats is None else {"floor_nats": held_out.floor_nats})
            | ({} if held_out.overlap_free is None else {OVERLAP_FREE: pa.array(held_out.overlap_free, pa.bool_())}),
        )
        measured: dict[str, Any] = {
            "split": split,
            "tokens_seen": event.tokens_seen,
            "nats_per_token": nats_per_token(nats, held_out.tokens),
        }
        if held_out.bytes is not None:
            measured["bits_per_byte"] = bits_per_byte(nats, held_out.bytes)
        yield measured
    if event.final:
        probed = held_out_of("validation", evaluation.probe_tokens)
        batches = list(probing_batches(probed, device))
        step = f"{event.step:08d}"
        if diagnostics:
            # Only the batches of a task say where answers stand; of a text that diagnostic has no site.
            readings = probe(model, batches, (*diagnostics, ANSWER_MASS), probed.slices)
            folder.write_rows(f"diagnostics/{step}", _diagnostic_columns(readings))
        scored = list(scoring_batches(probed, device))
        if changes := intervene(model, scored, len(probed.unit), interventions):
            folder.write_rows(f"interventions/{step}", _intervention_columns(changes, probed))
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


def _intervention_columns(changes: Sequence[Change], probed: HeldOut) -> dict[str, Any]:
    """One row a variant and unit; nats are sums over the unit's targets."""
    return {
        "intervention": [change.intervention for change in changes for _ in probed.unit],
        "variant": [change.variant for change in changes for _ in probed.unit],
        "document": [*probed.unit] * len(changes),
        "source": [*probed.source] * len(changes),
        "tokens": np.tile(probed.tokens, len(changes)),
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


def scoring_batches(held_out: HeldOut, device: torch.device) -> Iterator[Scoring]:
    """What is held out, with the number of the unit that each row, or each target, belongs to."""
    for batch in held_out.batches(EVALUATION_TOKENS):
        yield Consumed.from_batch(batch, device), batch.document_row if batch.unit is None else batch.unit


def probing_batches(held_out: HeldOut, device: torch.device) -> Iterator[Scoring]:
    """The same batches with the number of each row's document: what errors of readings are taken over.

    Those of a task say where their answers stand.
    """
    for batch in held_out.batches(EVALUATION_TOKENS):
        read = Consumed.from_batch(batch, device)
        if batch.answer is not None:
            read = Asked.of(read, torch.from_numpy(batch.answer).to(device))
        yield read, batch.document_row
