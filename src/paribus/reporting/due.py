"""Which contrasts may be spoken of, and from which seeds: the part of the study that a declared look has opened."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from paribus.data.updates import updates_of
from paribus.experiment import spec
from paribus.experiment.metrics import parse
from paribus.reading.cell import ReadCell, same_documents
from paribus.reading.study import ReadStudy
from paribus.stats.rule import Verdict, Word

SILENT = (Word.WAITING, Word.FUTILE)
"""words beside which no interval is shown, so none may stand below them either"""
DIVERGED = "a cell diverged: nothing is estimated from the cells that are left, which favour the arm that lost one"


def due(study: ReadStudy, verdicts: tuple[Verdict, ...]) -> Iterator[tuple[spec.Contrast, Verdict]]:
    """Every contrast that has come to an interval, or to the reason why it has none, with its verdict."""
    for verdict in verdicts:
        if verdict.word not in SILENT:
            yield study.experiment.contrasts[verdict.name], verdict


def once(study: ReadStudy, found: Iterator[tuple[spec.Contrast, Verdict]]) -> Iterator[tuple[spec.Contrast, Verdict]]:
    """Of contrasts that differ in their metric alone the first: budgets and costs are in nats for all of them."""
    seen = set()
    for contrast, verdict in found:
        key = (study.experiment.contrast_scale(contrast), contrast.arms, nll_metric(contrast))
        if key not in seen:
            seen.add(key)
            yield contrast, verdict


def confidence_of(verdict: Verdict) -> float:
    """Of every interval beside the headline: no wider claim than the headline's own."""
    return 0.95 if verdict.interval_confidence is None else verdict.interval_confidence


def counted_seeds(study: ReadStudy, verdict: Verdict) -> tuple[int, ...]:
    """Planned seeds less those that wait for the next look."""
    return tuple(seed for seed in study.experiment.seeds.numbers if seed not in verdict.uncounted_seeds)


def signs(contrast: spec.Contrast) -> tuple[int, ...]:
    """With which sign each arm enters the contrast, in the order of its formula."""
    return (1, -1, -1, 1)[: len(contrast.arms)]


def groups(
    study: ReadStudy, contrast: spec.Contrast, verdict: Verdict, variant: spec.Variant = spec.STUDY
) -> dict[int, list[ReadCell]]:
    """The contrast's complete cells of a variant by seed, in the order of its formula; only whole groups."""
    scale = study.experiment.contrast_scale(contrast)
    found = {
        seed: [study.cells[scale, arm, seed, variant] for arm in contrast.arms]
        for seed in counted_seeds(study, verdict)
    }
    return {seed: cells for seed, cells in found.items() if all(cell.state == "complete" for cell in cells)}


def nll_metric(contrast: spec.Contrast) -> str:
    """The split of the contrast's metric as a loss in nats, which budgets and costs are stated in."""
    return parse(contrast.metric).held_out_split + ".nll"


def losses_by_budget(
    study: ReadStudy, contrast: spec.Contrast, verdict: Verdict
) -> tuple[tuple[int, ...], tuple[int, ...], dict[str, NDArray[np.float64]]]:
    """Trained tokens (whole updates), seeds, and of each arm the losses [seed budget] of finished schedules.

    Nats per token, of a task per target; NaN for a cell that is not complete, and for a pair whose cells scored
    different documents.
    """
    scale = study.experiment.contrast_scale(contrast)
    size = study.experiment.scales[scale]
    variants = [*map(spec.budget_variant, size.budgets_tokens), spec.STUDY]
    seeds, metric = counted_seeds(study, verdict), nll_metric(contrast)

    def loss(arm: str, seed: int, variant: spec.Variant) -> float:
        found = study.cells[scale, arm, seed, variant].final(metric)
        return np.nan if found is None else found

    tables = {arm: np.array([[loss(arm, seed, v) for v in variants] for seed in seeds]) for arm in contrast.arms}
    for row, seed in enumerate(seeds):
        for column, variant in enumerate(variants):
            # Losses on different documents make no pair.
            if not same_documents([study.cells[scale, a, seed, variant] for a in contrast.arms], metric.split(".")[0]):
                for table in tables.values():
                    table[row, column] = np.nan
    batch = study.experiment.arm(contrast.arms[-1]).batch_tokens
    trained = tuple(updates_of(budget, batch) * batch for budget in (*size.budgets_tokens, size.budget_tokens))
    return trained, seeds, tables
