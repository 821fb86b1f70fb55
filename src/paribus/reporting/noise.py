"""A/A in three kinds that must not be confused: the same cell again, a perturbed twin, and other seeds."""

import math
from collections.abc import Iterator
from itertools import combinations

import numpy as np

from paribus.experiment import spec
from paribus.experiment.metrics import parse
from paribus.reading.cell import same_documents
from paribus.reading.evidence import comparisons
from paribus.reading.study import ReadStudy
from paribus.report.content import NoiseRow
from paribus.stats.noise import Noise, measured_sds
from paribus.stats.rule import Verdict, Word

_KINDS = {spec.REPEAT: "repeat", spec.TWIN: "perturbed twin"}


def noise(study: ReadStudy, verdicts: tuple[Verdict, ...]) -> Iterator[NoiseRow]:
    """One row for each kind that the study has and each metric of its contrasts."""
    aside = study.experiment.compared_with_itself
    if aside is None:
        return
    first = {}
    for verdict in sorted(verdicts, key=lambda verdict: not verdict.primary):
        if verdict.scale == aside[0]:
            first.setdefault(study.experiment.contrasts[verdict.name].metric, verdict)
    for metric, verdict in first.items():
        yield from _on_metric(study, aside, metric, verdict)


def _on_metric(study: ReadStudy, aside: tuple[str, str], metric: str, verdict: Verdict) -> Iterator[NoiseRow]:
    """The kinds on one metric, beside sd_D of the first contrast that has it, once that is due."""
    scale, arm = aside
    sd = None if verdict.word is Word.WAITING else verdict.sd

    def row(kind: str, differences: list[float], sd_of_difference: float | None) -> NoiseRow:
        what = (kind, scale, arm, metric, verdict.unit)
        return NoiseRow(*what, tuple(differences), sd_of_difference, sd)

    for variant, kind in _KINDS.items():
        found = copy_differences(study, variant, metric)
        if found:
            yield row(kind, found, _root_mean_square(found) if len(found) > 1 else None)
    others = [study.cells[scale, arm, seed, spec.STUDY].final(metric) for seed in study.experiment.other_seeds]
    values = [value for value in others if value is not None]
    if len(values) > 1:
        unpaired = math.sqrt(2) * float(np.std(values, ddof=1))
        yield row("other seed", [later - earlier for earlier, later in combinations(values, 2)], unpaired)


def known_noise(study: ReadStudy, verdicts: tuple[Verdict, ...]) -> Noise:
    """Standard deviations that a finished study measured, for planning another one: of contrasts that are due, and of
    perturbed twins, which say nothing about a contrast and are known at any time."""
    spoken = {verdict.name for verdict in verdicts if verdict.word is not Word.WAITING}
    measured = measured_sds([c for c in comparisons(study) if c.name in spoken])
    aside = study.experiment.compared_with_itself
    floors = {}
    for metric in {contrast.metric for contrast in study.experiment.contrasts.values()}:
        twins = copy_differences(study, spec.TWIN, metric)
        if aside is not None and len(twins) > 1 and any(twins):
            floors[aside[0], metric] = (_root_mean_square(twins), len(twins))
    return Noise(measured=measured, floors=floors, of_study=True)


def copy_differences(study: ReadStudy, variant: spec.Variant, metric: str) -> list[float]:
    """The copy less its original at each seed where both are complete, in the metric's unit."""
    aside = study.experiment.compared_with_itself
    if aside is None:
        return []
    found = []
    for key, cell in study.cells.items():
        if key[:2] == aside and key[3] == variant:
            of = study.cells[(*key[:3], spec.STUDY)]
            copy, original = cell.final(metric), of.final(metric)
            same = same_documents((cell, of), parse(metric).held_out_split)
            if copy is not None and original is not None and same:
                found.append(copy - original)
    return found


def _root_mean_square(differences: list[float]) -> float:
    """The standard deviation about 0, which is the mean of a difference between two runs of one program."""
    return math.sqrt(float(np.mean(np.square(differences))))
