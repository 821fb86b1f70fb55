"""A contrast on one slice of a task, or on a difference of two, from the cells of its study: what a row is made of.

Everything is treatment minus baseline, in nats per target above the best predictor's loss. Nothing here is a verdict.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from paribus.data.tasks.contract import ALL
from paribus.experiment.metrics import AREA, parse
from paribus.experiment.spec import Contrast, rate_variant
from paribus.reading.evidence import contrast_differences
from paribus.reading.informative import informative_about
from paribus.reading.study import ReadStudy
from paribus.reading.task_arms import CONFIDENCE, END, PairedArms, t_interval
from paribus.report.of_tasks import AGAINST, AGREES, NOT_INFORMATIVE, OPEN, SliceDifference
from paribus.stats import paired
from paribus.stats.acquisition import AcquisitionContrast
from paribus.stats.learning import RateDifference, depends_on_rate
from paribus.stats.paired import PairedDifferences
from paribus.stats.rounding import MINUS, fixed

Interval = tuple[float, float]


@dataclass(frozen=True)
class Described:
    """A row's difference with what stands beside it."""

    difference: SliceDifference
    acquired_treatment: tuple[int | None, ...]
    """updates, one a seed that ended; None: not within the budget; empty for a difference of slices"""
    acquired_baseline: tuple[int | None, ...]
    plateau: str
    """where the two arms end"""


def describe_contrast(
    study: ReadStudy,
    name: str,
    *,
    slices: str | None = None,
    expected: bool = True,
    interval: Interval | None = None,
    confidence: float = CONFIDENCE,
) -> Described:
    """The contrast of this name by the area under the learning curve.

    On `slices`, one or "a-b" or `ALL`, which are those of its metric where None is given; its declared sign is said
    beside it where `expected`. An `interval` with its `confidence`, where a family has one, takes the place of the 95 %
    one.
    """
    contrast = study.experiment.contrasts[name]
    parts = parse(contrast.metric).slices or (ALL,) if slices is None else tuple(slices.split("-"))
    return _described(
        study,
        name,
        contrast if expected else contrast.model_copy(update={"expected": None}),
        parts,
        interval,
        confidence,
    )


def _described(
    study: ReadStudy,
    name: str,
    contrast: Contrast,
    slices: tuple[str, ...],
    interval: Interval | None,
    confidence: float,
) -> Described:
    of_area = contrast.model_copy(update={"metric": _area_metric(slices)})
    pairs = contrast_differences(study, of_area)
    mean = None if pairs.diverged or not pairs.differences else float(np.mean(pairs.differences))
    if interval is None and not pairs.diverged:
        interval = t_interval(pairs.differences, confidence)
    arms = PairedArms(study, contrast, pairs.seeds)
    acquisition = arms.acquisition(slices[0], pairs) if len(slices) == 1 else None
    # Where no cell acquired the slice all stand at the budget: a difference of 0 would read like a measurement.
    updates = acquisition if acquisition is not None and arms.any_acquired(slices[0]) else None
    told = informative_about(arms, slices)
    difference = SliceDifference(
        contrast=name,
        compared=f"{contrast.treatment} {MINUS} {contrast.baseline}",
        scale=arms.scale,
        slice="-".join(slices),
        area_difference=mean,
        interval=interval,
        interval_confidence=confidence,
        seeds=tuple(sorted({*pairs.seeds, *pairs.diverged})),
        differences=_by_seed(pairs),
        milestones=arms.milestones(slices),
        log2_updates_difference=None if updates is None else updates.mean_log2,
        log2_updates_interval=None if updates is None else updates.interval_log2,
        censored=(0, 0) if acquisition is None else _censored(acquisition),
        ratio_sentence="" if acquisition is None else _sentence(acquisition.sentence),
        informative=told.informative,
        informative_sentence=_sentence(told.reason),
        expected=contrast.expected or "",
        agreement=_agreement(contrast, pairs, mean, interval, told.informative),
        rate_sentence=_rate_sentence(study, of_area, pairs),
    )
    single = len(slices) == 1
    return Described(
        difference,
        arms.treatment.acquired(slices[0]) if single else (),
        arms.baseline.acquired(slices[0]) if single else (),
        _ends(arms, slices),
    )


def _ends(arms: PairedArms, slices: Sequence[str]) -> str:
    parts = []
    for name in slices:
        found = arms.plateaus(name, END)
        if found is None:
            continue
        treatment, baseline = (found[arm.name].sentence for arm in arms.both)
        same = treatment == baseline
        said = f"both: {treatment}" if same else f"{arms.treatment.name} {treatment}; {arms.baseline.name} {baseline}"
        parts.append(said if len(slices) == 1 else f"{name}: {said}")
    return ". ".join(parts)


def _agreement(
    contrast: Contrast, pairs: PairedDifferences, mean: float | None, interval: Interval | None, told: bool
) -> str:
    """The difference beside the declared sign; "0" is agreed with by two one-sided tests at the smallest effect."""
    if contrast.expected is None:
        return ""
    if not told:
        return NOT_INFORMATIVE
    if mean is None or interval is None:
        return OPEN
    low, high = interval
    if contrast.expected == "0":
        inside = paired.equivalence_p(pairs.differences, contrast.smallest_effect) <= 1 - CONFIDENCE
        found = AGREES if inside else AGAINST if low > 0 or high < 0 else OPEN
    else:
        low, high = (low, high) if contrast.expected == "+" else (-high, -low)
        found = AGREES if low > 0 else AGAINST if high < 0 else OPEN
    return found


def _rate_sentence(study: ReadStudy, contrast: Contrast, pairs: PairedDifferences) -> str:
    """That the sign depends on the learning rate, with the difference at each; empty where nothing says so."""
    factors = study.experiment.robustness.rate_factors
    if not factors or pairs.diverged or not pairs.differences:
        return ""
    found = [RateDifference(1.0, float(np.mean(pairs.differences)), t_interval(pairs.differences, CONFIDENCE))]
    for factor in factors:
        values = _differences_at_rate(study, contrast, factor)
        if values:
            found.append(RateDifference(factor, float(np.mean(values)), t_interval(values, CONFIDENCE)))
    word = depends_on_rate(found) if len(found) > 1 else ""
    if not word:
        return ""
    listed = ", ".join(f"{fixed(at.mean, 3, signed=True)} at {at.factor:g} times" for at in found)
    return f"The sign {word}: {listed}."


def _differences_at_rate(study: ReadStudy, contrast: Contrast, factor: float) -> list[float]:
    scale = study.experiment.contrast_scale(contrast)
    values = []
    for seed in study.experiment.seeds.numbers[: study.experiment.robustness.seeds]:
        cells = [study.cells[scale, arm, seed, rate_variant(factor)] for arm in contrast.arms]
        treatment, baseline = (cell.final(contrast.metric) for cell in cells)
        if treatment is not None and baseline is not None:
            values.append(treatment - baseline)
    return values


def _area_metric(slices: Sequence[str]) -> str:
    return f"train.{AREA}" if slices == (ALL,) else f"train.{AREA}.{'-'.join(slices)}"


def _by_seed(pairs: PairedDifferences) -> tuple[float | None, ...]:
    known: dict[int, float | None] = dict(zip(pairs.seeds, pairs.differences, strict=True))
    return tuple(known.get(seed) for seed in sorted({*pairs.seeds, *pairs.diverged}))


def _censored(acquisition: AcquisitionContrast) -> tuple[int, int]:
    return len(acquisition.treatment_censored), len(acquisition.baseline_censored)


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}" + ("" if not text or text.endswith(".") else ".")
