"""A/A in three kinds that must not be confused: the same cell again, a perturbed twin, and other seeds."""

import math
from collections.abc import Iterator

import numpy as np

from paribus.experiment import spec
from paribus.reading import ReadStudy, comparisons
from paribus.report.content import NoiseRow
from paribus.stats.noise import Noise, measured_sds
from paribus.stats.rule import Verdict, Word

_KINDS = {spec.REPEAT: "repeat", spec.TWIN: "perturbed twin"}


def noise(study: ReadStudy, verdicts: tuple[Verdict, ...]) -> Iterator[NoiseRow]:
    """One row a kind that the study has, on the metric of its primary contrast."""
    aside = study.experiment.compared_with_itself
    primary = next((verdict for verdict in verdicts if verdict.primary), None)
    if aside is None or primary is None:
        return
    scale, arm = aside
    contrast = study.experiment.contrasts[primary.name]
    sd = None if primary.word is Word.WAITING else primary.sd

    def row(kind: str, differences: list[float], sd_of_difference: float | None) -> NoiseRow:
        what = (kind, scale, arm, contrast.metric, primary.unit)
        return NoiseRow(*what, tuple(differences), sd_of_difference, sd)

    for variant, kind in _KINDS.items():
        found = copy_differences(study, variant)
        if found:
            yield row(kind, found, _root_mean_square(found) if len(found) > 1 else None)
    others = [study.cells[scale, arm, seed, spec.STUDY].final(contrast.metric) for seed in study.experiment.other_seeds]
    values = [value for value in others if value is not None]
    if values:
        unpaired = math.sqrt(2) * float(np.std(values, ddof=1)) if len(values) > 1 else None
        yield row("other seed", [value - float(np.mean(values)) for value in values], unpaired)


def known_noise(study: ReadStudy, verdicts: tuple[Verdict, ...]) -> Noise:
    """Standard deviations that a finished study measured, for planning another one: of contrasts that are due, and of
    perturbed twins, which say nothing about a contrast and are known at any time."""
    spoken = {verdict.name for verdict in verdicts if verdict.word is not Word.WAITING}
    measured = measured_sds([c for c in comparisons(study) if c.name in spoken])
    twins, aside = copy_differences(study, spec.TWIN), study.experiment.compared_with_itself
    floors = {}
    if aside is not None and len(twins) > 1 and any(twins):
        metric = study.experiment.contrasts[study.experiment.primary].metric
        floors[aside[0], metric] = (_root_mean_square(twins), len(twins))
    return Noise(measured=measured, floors=floors)


def copy_differences(study: ReadStudy, variant: spec.Variant) -> list[float]:
    """The copy less its original at each seed where both are complete, on the primary's metric."""
    aside = study.experiment.compared_with_itself
    if aside is None:
        return []
    metric = study.experiment.contrasts[study.experiment.primary].metric
    found = []
    for key, cell in study.cells.items():
        if key[:2] == aside and key[3] == variant:
            copy, original = cell.final(metric), study.cells[(*key[:3], spec.STUDY)].final(metric)
            if copy is not None and original is not None:
                found.append(copy - original)
    return found


def _root_mean_square(differences: list[float]) -> float:
    """The standard deviation about 0, which is the mean of a difference between two runs of one program."""
    return math.sqrt(float(np.mean(np.square(differences))))
