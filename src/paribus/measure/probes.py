"""Diagnostics: run a trained model on held-out documents with a tap on, and average what it shows by layer.

A reading is the mean over counted positions, of all buckets of positions or of one, with its standard error over
documents (`paribus.stats.documents`). Of a task the positions that count are those where something is asked, and its
slices stand in the place of the buckets. What a diagnostic derives from its means (a ratio, a divergence of averages)
is derived again without each document in turn.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from paribus.mechanisms.contract import Diagnostic
from paribus.shapes import TokenWeights
from paribus.stats import documents
from paribus.train.step import Consumed

Scoring = tuple[Consumed, NDArray[np.int64]]
"""a batch of windows, and the number of each row's document"""
ANSWER_SITE = "answer"
"""where `place`, the place of each answer in its row, [batch time], is shown at every layer while a task is probed"""
ALL = "all"
BUCKETS = {ALL: (1, None), "1-15": (1, 16), "16-63": (16, 64), "64-255": (64, 256), "256-1023": (256, 1024)}
BUCKETS["1024+"] = (1024, None)
"""positions in the row, from 0: first, and the one after the last"""


@dataclass(frozen=True)
class Asked(Consumed):
    """A batch of a task that says where its answers stand."""

    answer: Tensor | None = None
    """`[row time]`: place of the token from which the target can be read; -1 where there is no single one"""

    @classmethod
    def of(cls, batch: Consumed, answer: Tensor) -> "Asked":
        return cls(batch.tokens, batch.targets, batch.weight, batch.document, batch.slice, answer)


@dataclass(frozen=True)
class Reading:
    """The mean of one diagnostic at one layer, over the positions of one bucket that count."""

    diagnostic: str
    layer: int
    group: str
    bucket: str
    value: float
    standard_error: float
    """over documents; NaN below two, or where a part of the value rests on one document"""
    documents: int


@dataclass
class _Sums:
    """What one diagnostic showed at one layer, by row of each batch."""

    groups: dict[str, None] = field(default_factory=dict)
    """names in the order of their first appearance"""
    pieces: list[tuple[tuple[str, ...], NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]] = field(
        default_factory=list
    )
    """groups, document of each row, sums [row group bucket], weights [row bucket]"""

    def by_document(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Sums and weights, each [document group bucket]; a group that a batch lacked has no weight from it."""
        place = {group: index for index, group in enumerate(self.groups)}
        numbers, rows = np.unique(np.concatenate([piece[1] for piece in self.pieces]), return_inverse=True)
        shape = (len(numbers), len(place), self.pieces[0][2].shape[-1])
        sums, weights = np.zeros(shape), np.zeros(shape)
        begin = 0
        for groups, document, summed, weight in self.pieces:
            row = rows[begin : begin + len(document)]
            begin += len(document)
            column = np.array([place[group] for group in groups])
            np.add.at(sums, (row[:, None], column), summed)
            np.add.at(weights, (row[:, None], column), np.broadcast_to(weight[:, None], summed.shape))
        return sums, weights


class _Collector:
    """A tap that keeps one batch's tensors by layer."""

    def __init__(self) -> None:
        self.by_layer: dict[int, dict[str, Tensor]] = {}

    def __call__(self, site: str, layer: int, **tensors: Tensor) -> None:
        kept = self.by_layer.setdefault(layer, {})
        kept.update({f"{site}/{name}": tensor for name, tensor in tensors.items()})


def counted(weight: TokenWeights) -> TokenWeights:
    """The weights without the first position of every row: it attends to itself alone, its output is its own value."""
    without_first = weight.clone()
    without_first[:, 0] = 0.0
    return without_first


def probe(
    model: nn.Module, batches: Iterable[Scoring], diagnostics: Sequence[Diagnostic], slices: Sequence[str] = ()
) -> list[Reading]:
    """Every diagnostic whose sites the model has, weighted by counted positions over all batches.

    Its buckets are ranges of positions or, where the batches have named slices, the slices; then every diagnostic is
    read in each, at the places where something is asked. Without diagnostics the model is not run.
    """
    found: dict[tuple[str, int], _Sums] = {}
    if not diagnostics:
        return []
    model.eval()
    with torch.no_grad():
        for batch, document in batches:
            weight = counted(batch.weight)
            if not bool(weight.any()):
                continue
            ranges = _ranges(weight)
            everywhere, of_slice = ranges[..., :1], _slices(batch, ranges[..., :1], len(slices))
            collector = _Collector()
            model(batch.tokens, batch.document, collector)
            for layer, tapped in collector.by_layer.items():
                if isinstance(batch, Asked) and batch.answer is not None:
                    tapped[f"{ANSWER_SITE}/place"] = batch.answer
                for diagnostic in diagnostics:
                    if not all(any(key.startswith(f"{site}/") for key in tapped) for site in diagnostic.sites):
                        continue
                    own = {k: t for k, t in tapped.items() if k.rpartition("/")[0] in diagnostic.sites}
                    values = diagnostic.observe(own, weight)
                    member = of_slice if slices else ranges if diagnostic.by_bucket else everywhere
                    if values:
                        sums = found.setdefault((diagnostic.name, layer), _Sums())
                        sums.groups.update(dict.fromkeys(values))
                        sums.pieces.append((tuple(values), document, *_by_row(values, weight, member)))
    by_name = {diagnostic.name: diagnostic for diagnostic in diagnostics}
    return [
        reading
        for (name, layer), sums in sorted(found.items())
        for reading in _readings(by_name[name], layer, sums, [ALL, *slices] if slices else list(BUCKETS))
    ]


def _ranges(weight: TokenWeights) -> Tensor:
    """Which bucket of positions holds each place, float64 [1 time bucket]."""
    position = torch.arange(weight.shape[1], device=weight.device)
    ranges = BUCKETS.values()
    found = [(position >= first) & (position < (stop or len(position))) for first, stop in ranges]
    return torch.stack(found, -1).double()[None]


def _slices(batch: Consumed, everywhere: Tensor, count: int) -> Tensor:
    """All places, then the members of each slice, float64 [row time bucket]."""
    if not count or batch.slice is None:
        return everywhere
    one_hot = nn.functional.one_hot(batch.slice, count).double()
    return torch.cat([everywhere.expand(len(one_hot), -1, -1), one_hot], -1)


def _by_row(
    values: Mapping[str, Tensor], weight: TokenWeights, member: Tensor
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Weighted sums [row group bucket] and weights [row bucket] in float64, with `member` [row or 1, time, bucket].

    What does not count is never read.
    """
    weight = weight.double()
    stacked = torch.stack([value.double() for value in values.values()], 1)
    weighted = torch.where((weight > 0)[:, None], stacked * weight[:, None], 0.0)
    return (weighted @ member).cpu().numpy(), (weight[:, None] @ member)[:, 0].cpu().numpy()


def _readings(diagnostic: Diagnostic, layer: int, found: _Sums, buckets: Sequence[str]) -> Iterable[Reading]:
    sums, weights = found.by_document()
    groups = list(found.groups)
    names = buckets if sums.shape[-1] > 1 else [ALL]
    ratio = documents.ratio(sums, weights)
    for b, bucket in enumerate(names):
        here = [g for g in range(len(groups)) if ratio.documents[g, b]]
        if not here:
            continue
        if diagnostic.derive is dict:
            for g in here:
                triple = (float(ratio.value[g, b]), float(ratio.standard_error[g, b]), int(ratio.documents[g, b]))
                yield Reading(diagnostic.name, layer, groups[g], bucket, *triple)
            continue
        kept = (weights[:, here, b] > 0).any(1)
        own_sums, own_weights = sums[kept][:, here, b], weights[kept][:, here, b]
        own = [groups[g] for g in here]
        derived = diagnostic.derive(dict(zip(own, map(float, ratio.value[here, b]), strict=True)))
        errors = _derived_errors(diagnostic, own, documents.means_without_one(own_sums, own_weights))
        for group, value in derived.items():
            number = int(kept.sum())
            yield Reading(diagnostic.name, layer, group, bucket, float(value), errors.get(group, float("nan")), number)


def _derived_errors(diagnostic: Diagnostic, groups: list[str], without_one: NDArray[np.float64]) -> dict[str, float]:
    """Standard error of each derived group: what is derived from the means [document group] without one document."""
    if not np.isfinite(without_one).all():  # a group would vanish with a document: there is nothing to derive from
        return {}
    derived = [diagnostic.derive(dict(zip(groups, map(float, means), strict=True))) for means in without_one]
    return {
        group: float(documents.standard_error(np.array([one[group] for one in derived])))
        for group in derived[0]
        if all(group in one for one in derived)
    }
