"""Which answers of two arms may be compared: the same items, on the same prompts, asked in the same way.

Where they may not, it is said what differs. Nothing is dropped for any other reason.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from paribus.reading.answers import Answers, ReadAnswers
from paribus.runs.answers import Asked

_VALUE_LENGTH = 40
"""letters of a setting's value that a sentence shows"""


@dataclass(frozen=True)
class Moment:
    """A state that models of several cells share."""

    after: str
    """name of what the cells were fine-tuned with; empty for the cells themselves"""
    step: int | None
    """updates; None for the end of the schedule, whichever update that is"""


def at_moments(models: Sequence[ReadAnswers]) -> dict[tuple[str, Moment], Answers]:
    """What one cell answered, by name of the task (`Asked.name`) and moment."""
    return {
        (asked.name, Moment(model.after, None if asked.step == model.steps else asked.step)): found
        for model in models
        for asked, found in model.held.items()
    }


@dataclass(frozen=True, eq=False)
class Matched:
    """One task at one moment, as both arms of a contrast answered it."""

    moment: Moment
    pairs: Mapping[int, tuple[Answers, Answers]]
    """treatment and baseline, by seed; only those that may be compared"""
    refused: Mapping[int, str]
    """by seed: why the two cannot be compared"""
    asked: Asked
    """by the baseline, at one of the seeds"""

    @property
    def first(self) -> Answers:
        """The baseline's answers of the first pair. StopIteration where there is none."""
        return next(iter(self.pairs.values()))[1]


def matched(
    groups: Mapping[int, tuple[Sequence[ReadAnswers], Sequence[ReadAnswers]]],
) -> Iterator[Matched]:
    """Every task and moment that both arms have at one seed or more; the end of the schedule before earlier moments.

    `groups` are the models of treatment and baseline, by seed. All pairs of one task must be asked alike, so that
    their mean is of one thing: a pair that was asked unlike most is refused as two unlike arms are.
    """
    arms = {seed: (at_moments(treatment), at_moments(baseline)) for seed, (treatment, baseline) in groups.items()}
    both = {key: None for treatment, baseline in arms.values() for key in treatment if key in baseline}
    for name, moment in sorted(both, key=_in_order):
        key = (name, moment)
        there = {seed: (t[key], b[key]) for seed, (t, b) in arms.items() if key in t and key in b}
        refused = {seed: unequal(*pair) for seed, pair in there.items()}
        alike = {seed: pair for seed, pair in there.items() if not refused[seed]}
        common = _commonest([baseline for _, baseline in alike.values()])
        for seed, (_, baseline) in alike.items():
            if common is not None and (why := unequal(common, baseline)):
                refused[seed] = f"{why} from most seeds"
        pairs = {seed: pair for seed, pair in alike.items() if not refused[seed]}
        asked = next(iter(there.values()))[1].asked
        yield Matched(moment, pairs, {seed: why for seed, why in refused.items() if why}, asked)


def _commonest(answers: Sequence[Answers]) -> Answers | None:
    """Of answers to one task one that was asked as most were; None of none."""
    return max(answers, key=lambda one: sum(not unequal(one, other) for other in answers), default=None)


def _in_order(key: tuple[str, Moment]) -> tuple[Any, ...]:
    name, moment = key
    return moment.after, moment.step is not None, -(moment.step or 0), name


def unequal(one: Answers, other: Answers) -> str:
    """Why answers of two models to one task cannot be compared, in words; empty where they can.

    Kind, chance and every setting of their records must be equal, and the items, prompts and right answers of their
    rows; of fine-tuned models every setting of the fine-tuning.
    """
    if name := differing(one.finetune, other.finetune):
        return f"fine-tuned in another way, {name} differs"
    if name := differing(_how(one.record), _how(other.record)):
        return f"asked in another way, {name} differs"
    names = [name for name, digest in one.digests.items() if other.digests[name] != digest]
    return f"asked other {names[0]}" if names else ""


def _how(record: Mapping[str, Any]) -> dict[str, Any]:
    return {"kind": record["kind"], "chance": record["chance"], "settings": record["settings"]}


def differing(one: Mapping[str, Any], other: Mapping[str, Any], path: str = "") -> str:
    """The first field, by name, in which two nested records differ, with both values; empty where none does."""
    for name in sorted(one.keys() | other.keys()):
        values = [record.get(name) for record in (one, other)]
        if isinstance(values[0], Mapping) and isinstance(values[1], Mapping):
            if found := differing(values[0], values[1], f"{path}{name}."):
                return found
        elif (texts := [json.dumps(value, sort_keys=True) for value in values])[0] != texts[1]:
            return f"{path}{name} ({_short(texts[0])} and {_short(texts[1])})"
    return ""


def _short(text: str) -> str:
    return text if len(text) <= _VALUE_LENGTH else f"{text[: _VALUE_LENGTH - 1]}…"
