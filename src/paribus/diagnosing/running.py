"""`paribus diagnose`: what a trained model makes of texts, measured as every cell of a study is measured."""

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from paribus import mechanisms
from paribus.diagnosing.texts import read_texts
from paribus.errors import ParibusError
from paribus.measure.likelihood import document_nats
from paribus.measure.probes import Reading, probe
from paribus.measuring import probing_batches, scoring_batches
from paribus.mechanisms.contract import Diagnostic
from paribus.stats import documents
from paribus.trained import open_model


@dataclass(frozen=True)
class Estimate:
    """A mean over tokens or bytes, with its standard error over documents."""

    value: float
    standard_error: float
    """NaN for a single document"""


@dataclass(frozen=True)
class Findings:
    """What was measured of one model."""

    model: str
    text: str
    documents: int
    tokens: int
    bytes: int
    context_length: int
    nats_per_token: Estimate
    bits_per_byte: Estimate
    readings: tuple[Reading, ...]
    diagnostics: tuple[Diagnostic, ...]
    """those of the registry, whether this model has their sites or not"""


def diagnose(folder: Path, text: str, tokenizer: Path | None, tokens: int, runs: Path) -> Findings:
    """Score the first documents of a text, and read every diagnostic on them.

    ParibusError for a folder, a tokenizer or a text that cannot be used.
    """
    trained = open_model(folder, tokenizer)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = trained.model.to(device)
    context_length = model.config.context_length
    held_out = read_texts(text, runs, trained.tokenizer, tokens, context_length)
    nats = document_nats(model, scoring_batches(held_out, device), len(held_out.unit))
    if not np.isfinite(nats).all():
        raise ParibusError(
            "the model's loss on this text is not a finite number",
            expected="a model whose training did not diverge",
            received=f"{nats.sum()} nats in {trained.name}",
        )
    diagnostics = mechanisms.all_diagnostics()
    readings = probe(model, probing_batches(held_out, device), diagnostics)
    assert held_out.bytes is not None
    return Findings(
        model=trained.name,
        text=text,
        documents=len(held_out.unit),
        tokens=int(held_out.tokens.sum()),
        bytes=int(held_out.bytes.sum()),
        context_length=context_length,
        nats_per_token=_ratio(nats, held_out.tokens),
        bits_per_byte=_ratio(nats / math.log(2.0), held_out.bytes),
        readings=tuple(readings),
        diagnostics=diagnostics,
    )


def _ratio(sums: NDArray[np.float64], weights: NDArray[np.int64]) -> Estimate:
    found = documents.ratio(sums, weights.astype(np.float64))
    return Estimate(float(found.value), float(found.standard_error))
