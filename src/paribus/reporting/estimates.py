"""Estimates beside the headline: other documents, other units. They never get a word."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from paribus.errors import ParibusError
from paribus.experiment import spec
from paribus.reading import ReadCell, ReadStudy, contrast_differences
from paribus.report.content import EstimateRow
from paribus.reporting.due import counted_seeds, due, groups, signs
from paribus.seeds import generator
from paribus.stats.clusters import pooled_scales
from paribus.stats.new_documents import NewDocuments, new_documents
from paribus.stats.paired import constant, paired_t, t_critical
from paribus.stats.ratio import byte_weights
from paribus.stats.rule import Verdict

CONFIDENCE = 0.95
_OTHER_UNIT = {"nll": ("bits_per_byte", "bits per byte"), "bits_per_byte": ("nll", "nats per token")}


def estimates(study: ReadStudy, verdicts: tuple[Verdict, ...]) -> Iterator[EstimateRow]:
    """For each contrast that is due: new documents in its own unit, and both estimands in the other unit."""
    for contrast, verdict in due(study, verdicts):
        cells = groups(study, contrast, verdict)
        if len(cells) < 2:
            continue
        split, _, quantity = contrast.metric.partition(".")
        other, unit = _OTHER_UNIT[quantity]
        try:
            rows = _Documents.of(contrast, cells, split)
        except ParibusError as error:
            yield _without(verdict, "new documents", verdict.unit, str(error))
            continue
        yield from (
            _new(verdict, rows, quantity, verdict.unit),
            _these(verdict, rows, other, unit),
            _new(verdict, rows, other, unit),
        )


def across_scales(study: ReadStudy, verdicts: tuple[Verdict, ...]) -> Iterator[EstimateRow]:
    """A contrast that the file makes at several scales, pooled: seeds that scales share are one cluster."""
    found: dict[tuple[tuple[str, ...], str], list[tuple[spec.Contrast, Verdict]]] = {}
    for contrast, verdict in due(study, verdicts):
        found.setdefault((contrast.arms, contrast.metric), []).append((contrast, verdict))
    for same in found.values():
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
            pooled = pooled_scales(by_scale, sign=sign, generator=generator(study.experiment.study, "across scales"))
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

    def __init__(self, differences: NDArray[np.float64], tokens: NDArray[np.int64], size: NDArray[np.int64]) -> None:
        self.differences = differences
        self._tokens, self._bytes = tokens, size

    @classmethod
    def of(cls, contrast: spec.Contrast, cells: dict[int, list[ReadCell]], split: str) -> "_Documents":
        """ParibusError where the cells did not score the same documents."""
        first: tuple[list[str], NDArray[np.int64], NDArray[np.int64]] | None = None
        sums = []
        for seed, group in cells.items():
            total = 0.0
            for sign, cell in zip(signs(contrast), group, strict=True):
                table = cell.document_rows(split, ("document", "tokens", "bytes", "nats"))
                if table is None:
                    raise ParibusError(f"no document of the {split} split was scored at seed {seed}")
                own = (table["document"].to_pylist(), table["tokens"].to_numpy(), table["bytes"].to_numpy())
                if first is None:
                    first = own
                elif own[0] != first[0] or not np.array_equal(own[1], first[1]):
                    raise ParibusError(f"the cells of seed {seed} did not score the same documents")
                total = total + sign * table["nats"].to_numpy()
            sums.append(total)
        assert first is not None
        return cls(np.array(sums), first[1], first[2])

    def weights(self, quantity: str) -> NDArray[np.float64]:
        return self._tokens.astype(np.float64) if quantity == "nll" else byte_weights(self._bytes)


def _these(verdict: Verdict, rows: _Documents, quantity: str, unit: str) -> EstimateRow:
    """The headline's estimand in another unit."""
    by_seed = (rows.differences.sum(1) / rows.weights(quantity).sum()).tolist()
    if constant(by_seed):
        return _without(verdict, "these documents", unit, "all differences are identical")
    test = paired_t(by_seed)
    half = t_critical(test.degrees_of_freedom, CONFIDENCE) * test.standard_error
    bounds = (test.mean - half, test.mean + half)
    what = (verdict.name, verdict.scale, "these documents", unit)
    return EstimateRow(*what, test.mean, test.standard_error, test.degrees_of_freedom, bounds, CONFIDENCE)


def _new(verdict: Verdict, rows: _Documents, quantity: str, unit: str) -> EstimateRow:
    try:
        found = new_documents(rows.differences, rows.weights(quantity), confidence=CONFIDENCE)
    except ParibusError as error:
        return _without(verdict, "new documents", unit, str(error))
    what = (verdict.name, verdict.scale, "new documents", unit)
    numbers = (found.mean, found.standard_error, found.degrees_of_freedom, found.interval)
    return EstimateRow(*what, *numbers, CONFIDENCE, _said(found))


def _said(found: NewDocuments) -> str:
    share = max(found.document_share, 0.0)  # a rounding below 0 where documents add nothing
    said = f"{found.documents} documents; {100 * share:.0f} % of the variance is the documents'"
    if found.largest_share > 1 / 3:
        said += f"; one document is {100 * found.largest_share:.0f} % of the text, so the interval is too short"
    return said


def _without(verdict: Verdict, estimand: str, unit: str, why: str) -> EstimateRow:
    return EstimateRow(verdict.name, verdict.scale, estimand, unit, None, None, None, None, CONFIDENCE, why)
