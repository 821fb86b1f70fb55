"""Contrasts at other learning rates, from the cells that `[robustness]` adds: every rate is shown."""

from collections.abc import Iterator, Sequence

import numpy as np

from paribus.experiment.metrics import parse
from paribus.experiment.spec import STUDY, Contrast, rate_variant
from paribus.reading.cell import same_documents
from paribus.reading.evidence import unit_of
from paribus.reading.study import ReadStudy
from paribus.reading.task_arms import CONFIDENCE, t_interval
from paribus.report.of_robustness import RateRow
from paribus.report.robustness import rate_sentence
from paribus.reporting.due import counted_seeds, due, signs
from paribus.stats.rounding import MINUS
from paribus.stats.rule import Verdict

__all__ = ["at_rates", "compared", "rate_sentence", "robustness"]


def compared(contrast: Contrast) -> str:
    """What is subtracted from what, with the minus sign of a page."""
    if contrast.minus_treatment is None:
        return f"{contrast.treatment} {MINUS} {contrast.baseline}"
    return (
        f"({contrast.treatment} {MINUS} {contrast.baseline}) {MINUS} "
        f"({contrast.minus_treatment} {MINUS} {contrast.minus_baseline})"
    )


def robustness(study: ReadStudy, verdicts: tuple[Verdict, ...]) -> Iterator[RateRow]:
    """Every contrast that is due at every rate, its own first; nothing where the file declares no other rate."""
    for contrast, verdict in due(study, verdicts):
        yield from at_rates(study, verdict.name, contrast, counted_seeds(study, verdict))


def at_rates(study: ReadStudy, name: str, contrast: Contrast, seeds: Sequence[int]) -> list[RateRow]:
    """The contrast in its metric at 1 times its learning rates and at every other declared factor."""
    declared = study.experiment.robustness
    if not declared.rate_factors:
        return []
    beside = [seed for seed in study.experiment.seeds.numbers[: declared.seeds] if seed in seeds]
    found = [_at(study, name, contrast, 1.0, STUDY, seeds)]
    return found + [_at(study, name, contrast, f, rate_variant(f), beside) for f in declared.rate_factors]


def _at(study: ReadStudy, name: str, contrast: Contrast, factor: float, variant: str, seeds: Sequence[int]) -> RateRow:
    scale = study.experiment.contrast_scale(contrast)
    groups = [[study.cells[scale, arm, seed, variant] for arm in contrast.arms] for seed in seeds]
    # An arm may enter an interaction twice: its cell diverged once.
    diverged = {cell.key for group in groups for cell in group if cell.state == "diverged"}
    split = parse(contrast.metric).held_out_split
    values = []
    for group in groups:
        if not same_documents(group, split):
            continue  # losses on different documents make no pair
        known = [value for cell in group if (value := cell.final(contrast.metric)) is not None]
        if len(known) == len(group):
            values.append(sum(sign * value for sign, value in zip(signs(contrast), known, strict=True)))
    whole = bool(values) and not diverged
    return RateRow(
        contrast=name,
        compared=compared(contrast),
        scale=scale,
        metric=contrast.metric,
        unit=unit_of(study.experiment, contrast),
        factor=factor,
        mean=float(np.mean(values)) if whole else None,
        interval=t_interval(values, CONFIDENCE) if whole else None,
        pairs=len(values),
        diverged=len(diverged),
    )
