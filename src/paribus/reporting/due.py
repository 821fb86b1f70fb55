"""Which contrasts may be spoken of, and from which seeds: the part of the study that a declared look has opened."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from paribus.experiment import spec
from paribus.reading import ReadCell, ReadStudy
from paribus.stats.rule import Verdict, Word


def due(study: ReadStudy, verdicts: tuple[Verdict, ...]) -> Iterator[tuple[spec.Contrast, Verdict]]:
    """Every contrast whose verdict does not wait, with its verdict."""
    for verdict in verdicts:
        if verdict.word is not Word.WAITING:
            yield study.experiment.contrasts[verdict.name], verdict


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
    """The split of the contrast's metric in nats per token, which budgets and costs are stated in."""
    return contrast.metric.partition(".")[0] + ".nll"


def losses_by_budget(
    study: ReadStudy, contrast: spec.Contrast, verdict: Verdict
) -> tuple[tuple[int, ...], tuple[int, ...], dict[str, NDArray[np.float64]]]:
    """Budgets in tokens, seeds, and of each arm the losses [seed budget] of cells that finished their own schedule.

    Nats per token; NaN for a cell that is not complete.
    """
    scale = study.experiment.contrast_scale(contrast)
    size = study.experiment.scales[scale]
    variants = [*map(spec.budget_variant, size.budgets_tokens), spec.STUDY]
    seeds, metric = counted_seeds(study, verdict), nll_metric(contrast)

    def loss(arm: str, seed: int, variant: spec.Variant) -> float:
        found = study.cells[scale, arm, seed, variant].final(metric)
        return np.nan if found is None else found

    tables = {arm: np.array([[loss(arm, seed, v) for v in variants] for seed in seeds]) for arm in contrast.arms}
    return (*size.budgets_tokens, size.budget_tokens), seeds, tables
