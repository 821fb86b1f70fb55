"""From accuracies to centred accuracies to CORE, and what each task adds to a difference of two COREs.

    centred = (accuracy - r) / (1 - r)        r: the task's random baseline
    CORE    = mean of the 22 centred accuracies

The baselines cancel in a difference and their weights 1/(1 - r) do not, so each task's share depends on the table.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from paribus.downstream.core.official import CORE


@dataclass(frozen=True)
class CoreScore:
    """CORE of all items of all 22 tasks."""

    core: float
    centred: Mapping[str, float]
    """by label"""


@dataclass(frozen=True)
class Incomplete:
    """No CORE: some of it was not asked."""

    reasons: Mapping[str, str]
    """why, in words, by label"""
    centred: Mapping[str, float]
    """of the tasks that were asked and have a baseline, by label"""


def centre(accuracy: float, chance: float) -> float:
    """0 at the random baseline, 1 at perfection; below 0 for less than chance. Both are fractions of 1."""
    return (accuracy - chance) / (1 - chance)


def core_score(
    accuracies: Mapping[str, float],
    chances: Mapping[str, float],
    *,
    items: Mapping[str, int],
    missing: Mapping[str, str] | None = None,
) -> CoreScore | Incomplete:
    """CORE where every task was asked in full, else what keeps it from being CORE.

    `items`: how many were answered, by label; a task counts as asked in full only with as many as CORE has.
    `missing`: further reasons by label, as `Bundle.missing` states them. Labels outside CORE are left alone.
    """
    centred = {label: centre(value, chances[label]) for label, value in accuracies.items() if label in chances}
    reasons = {label: reason for label, reason in (missing or {}).items() if label in CORE}
    for label, official in CORE.items():
        if label not in accuracies:
            reasons.setdefault(label, "was not asked")
        elif label not in chances:
            reasons[label] = "has no random baseline"
        elif items.get(label, 0) != official.rows:
            reasons.setdefault(label, f"{items.get(label, 0):,} of {official.rows:,} items")
    if reasons:
        return Incomplete({label: reasons[label] for label in CORE if label in reasons}, centred)
    of_core = {label: centred[label] for label in CORE}
    return CoreScore(sum(of_core.values()) / len(CORE), of_core)


def shares(
    treatment: Mapping[str, float], baseline: Mapping[str, float], chances: Mapping[str, float]
) -> dict[str, float]:
    """What each task adds to CORE of the treatment minus CORE of the baseline: (a - b) / (1 - r) / 22, by label.

    Over all 22 tasks they sum to the difference. Of fewer tasks they are those tasks' shares all the same.
    """
    both = [label for label in CORE if label in treatment and label in baseline and label in chances]
    return {label: (treatment[label] - baseline[label]) / (1 - chances[label]) / len(CORE) for label in both}
