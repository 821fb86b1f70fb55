"""A contrast on one slice of a task, or on a difference of two, from the cells of its study: what a row is made of.

Everything is treatment minus baseline, in nats per target above the best predictor's loss. Nothing here is a verdict.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from paribus.data.tasks.contract import ALL
from paribus.experiment.metrics import AREA, parse
from paribus.experiment.spec import Contrast
from paribus.reading.evidence import contrast_differences, unit_of
from paribus.reading.informative import informative_about, margin_of
from paribus.reading.study import ReadStudy
from paribus.reading.task_arms import CONFIDENCE, PairedArms, t_interval
from paribus.report.of_tasks import AGAINST, AGREES, NOT_INFORMATIVE, OPEN, SliceDifference
from paribus.reporting.robustness import at_rates, compared, rate_sentence
from paribus.stats import paired
from paribus.stats.acquisition import AcquisitionContrast
from paribus.stats.paired import PairedDifferences

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


@dataclass(frozen=True)
class Family:
    """What a family of rows says of one contrast, in the unit of its metric, at the levels of its steps."""

    interval: Interval
    confidence: float
    """of `interval`"""
    equivalence_interval: Interval | None
    """inside +-smallest_effect exactly where the family concludes equivalence"""


def describe_contrast(
    study: ReadStudy, name: str, *, slices: str | None = None, expected: bool = True, family: Family | None = None
) -> Described:
    """The contrast of this name by the area under the learning curve.

    On `slices`, one or "a-b" or `ALL`, which are those of its metric where None is given. Where `expected`, the sign
    that was declared is said beside it with a mark, judged in the contrast's own metric whatever the row shows. A
    `family` takes the place of the unadjusted 95 % interval and of the test for no sign alike.
    """
    contrast = study.experiment.contrasts[name]
    parts = parse(contrast.metric).slices or (ALL,) if slices is None else tuple(slices.split("-"))
    return _described(
        study, name, contrast if expected else contrast.model_copy(update={"expected": None}), parts, family
    )


def _described(
    study: ReadStudy, name: str, contrast: Contrast, slices: tuple[str, ...], family: Family | None
) -> Described:
    of_area = contrast.model_copy(update={"metric": _area_metric(slices)})
    pairs, own = contrast_differences(study, of_area), contrast_differences(study, contrast)
    metric = parse(contrast.metric)
    itself = contrast.metric == of_area.metric
    confidence = CONFIDENCE if family is None else family.confidence
    own_interval = _t(own, CONFIDENCE) if family is None else family.interval
    arms = PairedArms(study, contrast, pairs.seeds)
    acquisition = arms.acquisition(slices[0], pairs) if len(slices) == 1 else None
    # Where no cell acquired the slice all stand at the budget: a difference of 0 would read like a measurement.
    updates = acquisition if acquisition is not None and arms.any_acquired(slices[0]) else None
    names = tuple(arm.name for arm in arms.every)
    about = metric.slices or (ALL,)
    # A row on the contrast's own slices says what its verdict says; any other describes areas.
    if slices == about:
        told = informative_about(
            arms, slices, own.differences, quantity=metric.quantity, smallest_effect=contrast.smallest_effect
        )
    else:
        told = informative_about(arms, slices, pairs.differences, quantity=AREA, smallest_effect=margin_of(contrast))
    difference = SliceDifference(
        contrast=name,
        compared=compared(contrast),
        scale=arms.scale,
        slice="-".join(slices),
        area_difference=_mean(pairs),
        interval=own_interval if itself else _t(pairs, confidence),
        interval_confidence=confidence,
        seeds=tuple(sorted({*pairs.seeds, *pairs.diverged})),
        differences=_by_seed(pairs),
        milestones=arms.milestones(slices),
        log2_updates_difference=None if updates is None else updates.mean_log2,
        log2_updates_interval=None if updates is None else updates.interval_log2,
        censored=(0, 0) if acquisition is None else _censored(acquisition),
        ratio_sentence="" if acquisition is None else _sentence(acquisition.sentence),
        informative=told.informative,
        informative_sentence=_sentence(told.reason, names),
        expected=contrast.expected or "",
        agreement=_agreement(contrast, own, own_interval, told.informative, family),
        rate_sentence=rate_sentence(at_rates(study, name, of_area, study.experiment.seeds.numbers)),
        metric="" if itself or contrast.expected is None else contrast.metric,
        metric_unit="" if itself or contrast.expected is None else unit_of(study.experiment, contrast),
        metric_difference=None if itself or contrast.expected is None else _mean(own),
        metric_interval=None if itself or contrast.expected is None else own_interval,
    )
    single = len(slices) == 1 and not arms.interaction
    return Described(
        difference,
        arms.treatment.acquired(slices[0]) if single else (),
        arms.baseline.acquired(slices[0]) if single else (),
        _ends(arms, slices),
    )


def _mean(pairs: PairedDifferences) -> float | None:
    """None where a cell diverged: a mean of the others would be one of selected data."""
    return None if pairs.diverged or not pairs.differences else float(np.mean(pairs.differences))


def _t(pairs: PairedDifferences, confidence: float) -> Interval | None:
    return None if pairs.diverged else t_interval(pairs.differences, confidence)


def _ends(arms: PairedArms, slices: Sequence[str]) -> str:
    parts = []
    for name in slices:
        found = arms.plateaus(name)
        if found is None:
            continue
        sentences = {arm: level.sentence for arm, level in found.items()}
        if len(set(sentences.values())) == 1:
            said = f"{'both' if len(sentences) == 2 else 'all'}: {next(iter(sentences.values()))}"
        else:
            said = "; ".join(f"{arm} {sentence}" for arm, sentence in sentences.items())
        parts.append(said if len(slices) == 1 else f"{name}: {said}")
    return ". ".join(parts)


def _agreement(
    contrast: Contrast, pairs: PairedDifferences, interval: Interval | None, told: bool, family: Family | None
) -> str:
    """The difference in the contrast's metric beside the declared sign; `interval` is of that metric.

    "0" is agreed with by two one-sided tests at the smallest effect, at the level of the family where there is one.
    """
    if contrast.expected is None:
        return ""
    if not told:
        return NOT_INFORMATIVE
    if _mean(pairs) is None or interval is None:
        return OPEN
    low, high = interval
    if contrast.expected == "0":
        inside = _equivalent(contrast, pairs, family)
        found = AGREES if inside else AGAINST if low > 0 or high < 0 else OPEN
    else:
        low, high = (low, high) if contrast.expected == "+" else (-high, -low)
        found = AGREES if low > 0 else AGAINST if high < 0 else OPEN
    return found


def _equivalent(contrast: Contrast, pairs: PairedDifferences, family: Family | None) -> bool:
    margin = contrast.smallest_effect
    if family is None:
        return paired.equivalence_p(pairs.differences, margin) <= 1 - CONFIDENCE
    bounds = family.equivalence_interval
    return bounds is not None and -margin < bounds[0] and bounds[1] < margin


def _area_metric(slices: Sequence[str]) -> str:
    return f"train.{AREA}" if slices == (ALL,) else f"train.{AREA}.{'-'.join(slices)}"


def _by_seed(pairs: PairedDifferences) -> tuple[float | None, ...]:
    known: dict[int, float | None] = dict(zip(pairs.seeds, pairs.differences, strict=True))
    return tuple(known.get(seed) for seed in sorted({*pairs.seeds, *pairs.diverged}))


def _censored(acquisition: AcquisitionContrast) -> tuple[int, int]:
    return len(acquisition.treatment_censored), len(acquisition.baseline_censored)


def _sentence(text: str, names: Sequence[str] = ()) -> str:
    """With a capital and a full stop; the name of an arm stays as its file writes it."""
    first = text if any(text.startswith(f"{name} ") for name in names) else f"{text[:1].upper()}{text[1:]}"
    return first + ("" if not text or text.endswith(".") else ".")
