"""Downstream tasks: paired items of one pair of checkpoints, admission to the family, and what moves a CORE score.

Two checkpoints answer the same items, so only the items on which they differ say anything: b right for the treatment
alone, c for the baseline alone. McNemar's exact test asks whether b of b + c is a fair coin's; the difference of
accuracies is (b - c)/n. Both speak of one pair of checkpoints. Items of several seeds are never thrown together: a
seed moves all items of a checkpoint at once, so a pooled test counts seed noise as evidence. Over seeds the estimate
is the paired t of per-seed differences.

At tiny scale accuracies sit at chance, and bits per byte of the right answer still move: -log2 p(answer)/bytes.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from paribus.errors import ParibusError, nearest
from paribus.stats import paired

CLEARS_CHANCE_BY = 2.0
"""standard errors that a baseline must stand above chance for its task to join the family"""
SATURATED_AT = 0.98
"""a baseline from here on leaves a treatment no room"""


@dataclass(frozen=True)
class PairedAccuracy:
    """One pair of checkpoints on the items of one task."""

    items: int
    treatment: float
    """share of items that the treatment answers rightly"""
    baseline: float
    only_treatment: int
    """b: items that the treatment alone answers rightly"""
    only_baseline: int
    """c: items that the baseline alone answers rightly"""
    difference: float
    """treatment minus baseline, (b - c)/n; above 0 is better"""
    standard_error: float
    """over items, of `difference`; NaN below two items. With a few hundred items the p value is to be preferred."""
    p_mcnemar: float
    """exact, two-sided; about this pair of checkpoints, not about the mechanism"""
    centred_difference: float
    """difference of (accuracy - chance)/(1 - chance)"""
    centred_standard_error: float


def paired_accuracy(
    treatment: Sequence[bool] | NDArray[np.bool_], baseline: Sequence[bool] | NDArray[np.bool_], *, chance: float
) -> PairedAccuracy:
    """Rightly answered or not, [item] for two checkpoints in one order; `chance` is the accuracy of guessing, [0, 1).

    ParibusError for other lengths, no items, values that are not true or false, or a chance that is no such share.
    """
    t, b = _same_items(treatment, baseline)
    for values in (t, b):
        if not np.isin(values, (0.0, 1.0)).all():
            raise ParibusError(
                "an answer is neither right nor wrong",
                expected="true or false for each item",
                received=str(values[~np.isin(values, (0.0, 1.0))][0]),
                remedy="score partial answers with paired_mean",
            )
    only_treatment, only_baseline = int((t > b).sum()), int((b > t).sum())
    mean = paired_mean(t, b)
    room = 1 - _checked_chance("this task", chance)
    return PairedAccuracy(
        items=len(t),
        treatment=float(t.mean()),
        baseline=float(b.mean()),
        only_treatment=only_treatment,
        only_baseline=only_baseline,
        difference=(only_treatment - only_baseline) / len(t),
        standard_error=mean.standard_error,
        p_mcnemar=paired.mcnemar_exact_p(only_treatment, only_baseline),
        centred_difference=(only_treatment - only_baseline) / len(t) / room,
        centred_standard_error=mean.standard_error / room,
    )


def accuracy_by_seed(
    treatment: Mapping[int, Sequence[bool] | NDArray[np.bool_]],
    baseline: Mapping[int, Sequence[bool] | NDArray[np.bool_]],
    *,
    chance: float,
) -> dict[int, PairedAccuracy]:
    """`paired_accuracy` at every seed that both arms have, and nothing pooled: seed -> one pair of checkpoints."""
    seeds = sorted(treatment.keys() & baseline.keys())
    return {seed: paired_accuracy(treatment[seed], baseline[seed], chance=chance) for seed in seeds}


@dataclass(frozen=True)
class PairedMean:
    """The mean difference over items of one pair of checkpoints."""

    items: int
    difference: float
    """treatment minus baseline, in the unit of the values"""
    standard_error: float
    """sd of the items' differences over sqrt(n); NaN below two items"""


def paired_mean(
    treatment: Sequence[float] | NDArray[np.floating], baseline: Sequence[float] | NDArray[np.floating]
) -> PairedMean:
    """The mean of treatment minus baseline over items [item], with its standard error over items."""
    t, b = _same_items(treatment, baseline)
    differences = t - b
    error = float(differences.std(ddof=1)) / math.sqrt(len(t)) if len(t) > 1 else math.nan
    return PairedMean(len(t), float(differences.mean()), error)


def items_interval(found: PairedMean, confidence: float = 0.95) -> tuple[float, float] | None:
    """t interval over items, n - 1 degrees of freedom; None below two items and where all differences are equal.

    It is about these two checkpoints and further items of the task. It holds no seed noise, so it is no verdict.
    """
    if not found.standard_error > 0:
        return None
    half = paired.t_critical(found.items - 1, confidence) * found.standard_error
    return found.difference - half, found.difference + half


def paired_gold_bits(
    treatment_nats: Sequence[float] | NDArray[np.floating],
    baseline_nats: Sequence[float] | NDArray[np.floating],
    gold_bytes: Sequence[int] | NDArray[np.integer],
) -> PairedMean:
    """Bits per byte of the right answer, treatment minus baseline; below 0 is better.

    All arguments are [item]: summed nats of the answer's tokens, and its length in UTF-8 bytes. Every item counts the
    same, as in an accuracy, whatever its answer's length.
    """
    lengths = np.asarray(gold_bytes, np.float64)
    if lengths.shape != np.shape(treatment_nats) or not (np.isfinite(lengths) & (lengths > 0)).all():
        raise ParibusError(
            "bits per byte needs the length of every answer",
            expected="one number of bytes above 0 for each item",
            received=f"{lengths.size} lengths, {int((~(lengths > 0)).sum())} of them not above 0",
            remedy="leave out items whose answer is empty",
        )
    bits = math.log(2.0) * lengths
    t, b = _same_items(treatment_nats, baseline_nats)
    return paired_mean(t / bits, b / bits)


def over_seeds(results: Mapping[int, PairedAccuracy | PairedMean]) -> paired.PairedT:
    """The seed-level estimate: the paired t of each seed's difference. Items within a seed add nothing to S.

    ParibusError below two seeds or where all differences are identical.
    """
    return paired.paired_t([result.difference for result in results.values()])


@dataclass(frozen=True)
class Admission:
    """Whether a task may join the family; decided on the baseline alone, so that no treatment chooses its tasks."""

    admitted: bool
    reason: str
    word: str
    """the reason in a word or two, for a table; empty of a task that is admitted"""
    mean: float
    """accuracy of the baseline, over its seeds"""
    standard_error: float
    """of `mean`: over seeds, or from guessing on so many items where that is larger; NaN for one seed"""
    chance: float


def admitted(baseline_seed_means: Sequence[float], chance: float, *, items: int | None = None) -> Admission:
    """Whether the baseline's accuracy clears `chance` by two standard errors and stays below 0.98.

    With the number of `items` the standard error is never below that of guessing on them, sqrt(chance (1 - chance)/n).
    A model that answers every item with one letter has equal means in all seeds, so their spread alone would let a
    lucky share of that letter pass.
    """
    values = _checked_accuracies(baseline_seed_means)
    _checked_chance("this task", chance)
    mean = float(values.mean())
    error = float(values.std(ddof=1)) / math.sqrt(len(values)) if len(values) > 1 else math.nan
    if items is not None:
        error = max(error, math.sqrt(chance * (1 - chance) / items))
    bound = chance + CLEARS_CHANCE_BY * error
    if len(values) < 2:
        word, reason = "one seed", "one seed of the baseline gives no standard error"
    elif paired.constant(values.tolist()) and items is None:
        word = "no noise known"
        reason = "all seeds of the baseline have one accuracy, so nothing is known about its noise"
    elif mean >= SATURATED_AT:
        word, reason = "saturated", f"the baseline's mean {mean:.3f} is saturated: not below {SATURATED_AT}"
    elif mean <= bound:
        word = "at chance"
        reason = (
            f"the baseline's mean {mean:.3f} does not clear chance {chance:.3f} by two standard errors, {bound:.3f}"
        )
    else:
        return Admission(True, f"the baseline's mean {mean:.3f} lies above {bound:.3f}", "", mean, error, chance)
    return Admission(False, reason, word, mean, error, chance)


@dataclass(frozen=True)
class AboveChance:
    """Whether a score is more than guessing gives."""

    clears: bool
    mean: float
    """accuracy, over seeds"""
    standard_error: float
    """of `mean`: the largest of that over seeds and those of n independent items at `mean` and at `chance`"""
    chance: float


def above_chance(seed_means: Sequence[float], chance: float, *, items: int) -> AboveChance:
    """Whether accuracies of one arm, one a seed, clear `chance` by two standard errors.

    Of a control that should sit at chance. Seeds answer the same `items`, so more seeds never make the error smaller
    than one draw of that many items. ParibusError as `admitted`.
    """
    values = _checked_accuracies(seed_means)
    _checked_chance("this task", chance)
    mean = float(values.mean())
    errors = [math.sqrt(share * (1 - share) / items) for share in (mean, chance)]
    if len(values) > 1:
        errors.append(float(values.std(ddof=1)) / math.sqrt(len(values)))
    error = max(errors)
    return AboveChance(mean > chance + CLEARS_CHANCE_BY * error, mean, error, chance)


def _checked_accuracies(seed_means: Sequence[float]) -> NDArray[np.float64]:
    values = np.asarray(seed_means, np.float64)
    if not len(values) or not ((values >= 0) & (values <= 1)).all():
        raise ParibusError(
            "the seed means are not accuracies",
            expected="at least one share between 0 and 1",
            received=str(values.tolist()),
            remedy="give one accuracy for each seed",
        )
    return values


@dataclass(frozen=True)
class TaskShare:
    """What one task adds to the difference of a CORE score under two tables of random baselines."""

    task: str
    accuracy_difference: float
    """treatment minus baseline, not centred"""
    contribution_v1: float
    """difference/(1 - chance)/tasks; the contributions add up to the difference of CORE"""
    contribution_v2: float | None
    """None where no second table is known"""
    share_v1: float | None
    """contribution over the sum; None where the sum is 0. Beyond 1, other tasks take some of it back."""
    share_v2: float | None


@dataclass(frozen=True)
class CoreShares:
    """A difference of CORE, and where it comes from."""

    difference_v1: float
    difference_v2: float | None
    tasks: tuple[TaskShare, ...]
    """the largest contribution under v1 first, whatever its sign"""


def core_mean(accuracies: Mapping[str, float], chances: Mapping[str, float]) -> float:
    """The mean over tasks of (accuracy - r)/(1 - r), r the accuracy of guessing as a share in [0, 1); may be negative.

    CORE of Li et al. (2406.11794) and ChatCORE, where `accuracies` are those of all of its tasks. ParibusError where
    an accuracy is no share, or the table lacks a task or gives no share.
    """
    _checked_accuracies([*accuracies.values()])
    above = {task: accuracy - _of_task(chances, task) for task, accuracy in accuracies.items()}
    return math.fsum(_contributions(above, chances).values())


def core_shares(
    task_differences: Mapping[str, float],
    chances_v1: Mapping[str, float],
    chances_v2: Mapping[str, float] | None = None,
) -> CoreShares:
    """Each task's part of a difference of CORE, the mean over tasks of (accuracy - r)/(1 - r).

    `task_differences` are differences of plain accuracies; the tables give each task's r as a share in [0, 1). The r
    cancel in a difference of centred accuracies, their weights 1/(1 - r) do not. Without a second table what it would
    say is None. ParibusError where a table lacks a task or gives no such share (a percentage, for instance).
    """
    if not task_differences or not all(math.isfinite(value) for value in task_differences.values()):
        raise ParibusError(
            "a difference of CORE needs a finite difference for each task",
            expected="at least one task, finite differences",
            received=str(dict(task_differences)),
            remedy="score every task for both checkpoints",
        )
    first = _contributions(task_differences, chances_v1)
    second = None if chances_v2 is None else _contributions(task_differences, chances_v2)
    total_v1, total_v2 = math.fsum(first.values()), None if second is None else math.fsum(second.values())
    tasks = [
        TaskShare(
            task=task,
            accuracy_difference=difference,
            contribution_v1=first[task],
            contribution_v2=None if second is None else second[task],
            share_v1=first[task] / total_v1 if total_v1 else None,
            share_v2=second[task] / total_v2 if second is not None and total_v2 else None,
        )
        for task, difference in task_differences.items()
    ]
    tasks.sort(key=lambda row: (-abs(row.contribution_v1), row.task))
    return CoreShares(total_v1, total_v2, tuple(tasks))


def _contributions(differences: Mapping[str, float], chances: Mapping[str, float]) -> dict[str, float]:
    return {
        task: difference / (1 - _of_task(chances, task)) / len(differences) for task, difference in differences.items()
    }


def _of_task(chances: Mapping[str, float], task: str) -> float:
    if task not in chances:
        raise ParibusError(
            f"task {task!r} has no random baseline",
            expected="the accuracy of guessing for every task",
            received=f"a table of {len(chances)} tasks without it",
            remedy=nearest(task, chances),
        )
    return _checked_chance(f"task {task!r}", chances[task])


def _checked_chance(task: str, chance: float) -> float:
    if not 0 <= chance < 1:
        raise ParibusError(
            f"the chance of {task} is not a share below 1",
            expected="0 <= chance < 1, such as 0.25 for four choices",
            received=str(chance),
            remedy="divide percentages by 100",
        )
    return chance


def _same_items(
    treatment: Sequence[float] | NDArray[np.generic], baseline: Sequence[float] | NDArray[np.generic]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    t, b = np.asarray(treatment, np.float64), np.asarray(baseline, np.float64)
    if t.ndim != 1 or t.shape != b.shape or not len(t):
        raise ParibusError(
            "the two checkpoints were not scored on the same items",
            expected="one value for each item, in one order, and at least one item",
            received=f"shapes {t.shape} and {b.shape}",
            remedy="join the rows by item before they are compared",
        )
    if not (np.isfinite(t) & np.isfinite(b)).all():
        raise ParibusError(
            "a score of an item is not finite",
            expected="finite values",
            received=f"{int((~(np.isfinite(t) & np.isfinite(b))).sum())} items with NaN or infinity",
            remedy="a diverged checkpoint has no items: count it as a divergence",
        )
    return t, b
