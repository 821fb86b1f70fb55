"""ChatCORE: the mean of centred accuracies of a fine-tuned model, of six tasks or of five, which are never mixed.

    centred  = (accuracy - r) / (1 - r)        r: 0.25 of the tasks with letters, 0 of the generated ones
    ChatCORE = mean over the definition's tasks

nanochat (karpathy/nanochat, scripts/chat_eval.py) had six tasks until 2026-07-03 and five since: spelling_bee, whose
score is near 1, adds about 0.165 to the mean, so numbers of the two definitions say nothing about each other.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from paribus.downstream.core.scoring import Incomplete, centre
from paribus.errors import ParibusError, nearest

_FIVE = ("arc_easy", "arc_challenge", "mmlu", "gsm8k", "humaneval")
CHATCORE: Mapping[str, tuple[str, ...]] = {"chatcore-6": (*_FIVE, "spelling_bee"), "chatcore-5": _FIVE}
"""Tasks by definition"""
CHANCE: Mapping[str, float] = {
    "arc_easy": 0.25,
    "arc_challenge": 0.25,
    "mmlu": 0.25,
    "gsm8k": 0.0,
    "humaneval": 0.0,
    "spelling_bee": 0.0,
}
"""Random baseline of each task. Some questions of ARC have three or five choices; the definition leaves that aside."""
ROWS: Mapping[str, int] = {
    "arc_easy": 2376,
    "arc_challenge": 1172,
    "mmlu": 14_042,
    "gsm8k": 1319,
    "humaneval": 164,
    "spelling_bee": 256,
}
"""Items of each whole task"""
NEEDS_CODE = "humaneval"


@dataclass(frozen=True)
class ChatScore:
    """ChatCORE of all items of all tasks of a definition."""

    definition: str
    chatcore: float
    centred: Mapping[str, float]
    """by task"""


def tasks_of(definition: str) -> tuple[str, ...]:
    """Names of its tasks. ParibusError for a definition that is none."""
    if definition not in CHATCORE:
        raise ParibusError(
            "no definition of ChatCORE has this name",
            expected=" or ".join(CHATCORE),
            received=definition,
            remedy=nearest(definition, CHATCORE),
        )
    return CHATCORE[definition]


def chat_score(
    definition: str,
    accuracies: Mapping[str, float],
    *,
    items: Mapping[str, int],
    code_ran: bool,
    missing: Mapping[str, str] | None = None,
) -> ChatScore | Incomplete:
    """ChatCORE where every task was asked in full, else what keeps it from being ChatCORE.

    `items`: how many were answered, by task. `code_ran`: whether HumanEval's programs were allowed to run; without
    that its zero is no score. `missing`: further reasons by task (`Questions.missing`). ParibusError for a task that
    the definition does not have.
    """
    tasks = tasks_of(definition)
    if foreign := sorted(set(accuracies) - set(tasks)):
        raise ParibusError(
            f"{definition} has no task {', '.join(foreign)}",
            expected=", ".join(tasks),
            received=", ".join(accuracies),
            remedy="score the definition's own tasks; numbers of six and of five tasks are never mixed",
        )
    centred = {task: centre(accuracies[task], CHANCE[task]) for task in tasks if task in accuracies}
    reasons = {task: reason for task, reason in (missing or {}).items() if task in tasks and reason}
    for task in tasks:
        if task not in accuracies:
            reasons.setdefault(task, "was not asked")
        elif task == NEEDS_CODE and not code_ran:
            reasons[task] = "its programs were not allowed to run"
        elif items.get(task, 0) != ROWS[task]:
            reasons.setdefault(task, f"{items.get(task, 0):,} of {ROWS[task]:,} items")
    if reasons:
        return Incomplete({task: reasons[task] for task in tasks if task in reasons}, centred)
    return ChatScore(definition, sum(centred.values()) / len(tasks), centred)


def chat_shares(treatment: ChatScore, baseline: ChatScore) -> dict[str, float]:
    """What each task adds to the treatment's ChatCORE minus the baseline's, by task; they sum to the difference.

    ParibusError where the two are of different definitions.
    """
    if treatment.definition != baseline.definition:
        raise ParibusError(
            "ChatCOREs of two definitions cannot be compared",
            expected=f"both of {baseline.definition}",
            received=f"{treatment.definition} and {baseline.definition}",
            remedy="evaluate both models under one definition",
        )
    tasks = tasks_of(baseline.definition)
    return {task: (treatment.centred[task] - baseline.centred[task]) / len(tasks) for task in tasks}
