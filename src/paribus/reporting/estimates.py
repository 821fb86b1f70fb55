"""Estimates beside the headline: other documents, other units. They never get a word."""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from paribus.errors import ParibusError
from paribus.experiment import spec
from paribus.experiment.metrics import parse
from paribus.reading.cell import ReadCell
from paribus.reading.evidence import contrast_differences
from paribus.reading.study import ReadStudy
from paribus.report.content import EstimateRow
from paribus.reporting.due import DIVERGED, confidence_of, counted_seeds, due, groups, signs
from paribus.seeds import generator
from paribus.stats.clusters import pooled_scales
from paribus.stats.new_documents import NewDocuments, new_documents
from paribus.stats.paired import constant, paired_t, t_critical
from paribus.stats.ratio import byte_weights
from paribus.stats.rule import Verdict, Word

_OF_DOCUMENT = ["document", "source", "tokens", "bytes"]
_OTHER_UNIT = {"nll": ("bits_per_byte", "bits per byte"), "bits_per_byte": ("nll", "nats per token")}


def estimates(study: ReadStudy, verdicts: tuple[Verdict, ...]) -> Iterator[EstimateRow]:
    """For each contrast that is due: new documents in its own unit, and both estimands in the other unit."""
    every = study.experiment.contrasts.values()
    declared = {(study.experiment.contrast_scale(contrast), contrast.arms, contrast.metric) for contrast in every}
    for contrast, verdict in due(study, verdicts):
        if verdict.word is Word.DIVERGENCE:
            yield _without(verdict, "new documents", verdict.unit, DIVERGED)
            continue
        cells = groups(study, contrast, verdict)
        if len(cells) < 2:
            continue
        metric = parse(contrast.metric)
        if study.experiment.base.task is not None:
            continue  # rows are drawn anew for every seed: the headline already holds for new ones
        split, quantity = metric.split, metric.quantity
        other, unit = _OTHER_UNIT[quantity]
        try:
            rows = _Documents.of(contrast, cells, split)
        except ParibusError as error:
            yield _without(verdict, "new documents", verdict.unit, str(error))
            continue
        yield _new(verdict, rows, quantity, verdict.unit)
        own = (verdict.scale, contrast.arms, f"{split}.{other}")
        if own not in declared:  # where the file asks for that unit itself, it has a contrast with the same rows
            yield from (_these(verdict, rows, other, unit), _new(verdict, rows, other, unit))


def across_scales(study: ReadStudy, verdicts: tuple[Verdict, ...]) -> Iterator[EstimateRow]:
    """A contrast that the file makes at several scales, pooled: seeds that scales share are one cluster."""
    found: dict[tuple[tuple[str, ...], str], list[tuple[spec.Contrast, Verdict]]] = {}
    for contrast, verdict in due(study, verdicts):
        found.setdefault((contrast.arms, contrast.metric), []).append((contrast, verdict))
    for same in found.values():
        if len(same) > 1 and any(verdict.word is Word.DIVERGENCE for _, verdict in same):
            yield _without(same[0][1], "scales together", same[0][1].unit, DIVERGED)
            continue
        by_scale: dict[str, dict[int, float]] = {}
        for contrast, verdict in same:
            pairs = contrast_differences(study, contrast)
            counted = counted_seeds(study, verdict)
            differences = zip(pairs.seeds, pairs.differences, strict=True)
            by_scale[verdict.scale] = {seed: difference for seed, difference in differences if seed in counted}
        if len(by_scale) < 2:
            continue
        first = same[0][1]
        estimand = f"scales {', '.join(by_scale)} together"
        sign = -1 if first.lower_is_better else 1
        try:
            flips = generator(study.experiment.study, "across scales")
            confidence = max(confidence_of(verdict) for _, verdict in same)
            pooled = pooled_scales(by_scale, sign=sign, confidence=confidence, generator=flips)
        except ParibusError as error:
            yield _without(first, estimand, first.unit, str(error))
            continue
        note = (
            f"{pooled.wins} of {pooled.pairs} pairs; sign-flip p {pooled.p_sign_flip:.3g}, whole seeds flipped: "
            "scales that share seeds are not independent"
        )
        what = (" and ".join(verdict.name for _, verdict in same), ", ".join(by_scale), estimand, first.unit)
        numbers = (pooled.mean, pooled.standard_error, float(pooled.degrees_of_freedom), pooled.interval)
        yield EstimateRow(*what, *numbers, pooled.confidence, note)


class _Documents:
    """Differences of summed nats [seed document] of one contrast, with what the documents weigh."""

    def __init__(self, differences: NDArray[np.float64], documents: pa.Table) -> None:
        self.differences = differences
        self._documents = documents

    @property
    def sources(self) -> list[str] | None:
        """The source of each document where several documents share one; None where that says nothing."""
        found = self._documents["source"].to_pylist()
        return found if 1 < len(set(found)) < len(found) else None

    @classmethod
    def of(cls, contrast: spec.Contrast, cells: dict[int, list[ReadCell]], split: str) -> "_Documents":
        """ParibusError where the cells did not score the same documents."""
        first: pa.Table | None = None
        sums = []
        for seed, group in cells.items():
            total = 0.0
            for sign, cell in zip(signs(contrast), group, strict=True):
                table = cell.document_rows(split, (*_OF_DOCUMENT, "nats"))
                if table is None:
                    raise ParibusError(f"no document of the {split} split was scored at seed {seed}")
                own = table.select(_OF_DOCUMENT)
                first = own if first is None else first
                if not own.equals(first):
                    raise ParibusError(f"the cells of seed {seed} did not score the same documents")
                total = total + sign * table["nats"].to_numpy()
            sums.append(total)
        assert first is not None
        return cls(np.array(sums), first)

    def weights(self, quantity: str) -> NDArray[np.float64]:
        if quantity == "nll":
            return self._documents["tokens"].to_numpy().astype(np.float64)
        return byte_weights(self._documents["bytes"].to_numpy())


def _these(verdict: Verdict, rows: _Documents, quantity: str, unit: str) -> EstimateRow:
    """The headline's estimand in another unit."""
    by_seed = (rows.differences.sum(1) / rows.weights(quantity).sum()).tolist()
    if constant(by_seed):
        return _without(verdict, "these documents", unit, "all differences are identical")
    test = paired_t(by_seed)
    confidence = confidence_of(verdict)
    half = t_critical(test.degrees_of_freedom, confidence) * test.standard_error
    bounds = (test.mean - half, test.mean + half)
    what = (verdict.name, verdict.scale, "these documents", unit)
    return EstimateRow(*what, test.mean, test.standard_error, test.degrees_of_freedom, bounds, confidence)


def _new(verdict: Verdict, rows: _Documents, quantity: str, unit: str) -> EstimateRow:
    confidence, sources = confidence_of(verdict), rows.sources
    try:
        found = new_documents(rows.differences, rows.weights(quantity), sources, confidence=confidence)
    except ParibusError as error:
        return _without(verdict, "new documents", unit, str(error))
    what = (verdict.name, verdict.scale, "new documents", unit)
    numbers = (found.mean, found.standard_error, found.degrees_of_freedom, found.interval)
    return EstimateRow(*what, *numbers, confidence, _said(found))


def _said(found: NewDocuments) -> str:
    share = max(found.document_share, 0.0)  # a rounding below 0 where documents add nothing
    of = f" of {found.clusters} sources" if found.clusters < found.documents else ""
    said = f"{found.documents} documents{of}; {100 * share:.0f} % of the variance is the documents'"
    if found.largest_share > 1 / 3:
        said += (
            f"; one {'source' if of else 'document'} is {100 * found.largest_share:.0f} % of the text, so the interval "
            "is too short"
        )
    return said


def _without(verdict: Verdict, estimand: str, unit: str, why: str) -> EstimateRow:
    return EstimateRow(verdict.name, verdict.scale, estimand, unit, None, None, None, None, confidence_of(verdict), why)
