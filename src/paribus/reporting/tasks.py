"""Downstream tasks of a contrast, from the rows of their items: paired by item, never pooled over seeds.

Of each task at each moment that both arms have: bits per byte of the right answer, accuracy and margin, as differences
over seeds with t intervals, and beside them each pair of checkpoints with McNemar's exact test. Whether a task may join
a family is decided on the baseline alone (rules of evidence, section 9).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paribus.experiment import spec
from paribus.reading.answer_pairs import Matched, Moment, at_moments, matched, unequal
from paribus.reading.answers import COUNTERFACTUAL, Answers
from paribus.reading.cell import ReadCell
from paribus.reading.study import ReadStudy
from paribus.report.of_answers import TaskPairRow, TaskRow
from paribus.reporting.due import confidence_of, counted_seeds, due, groups
from paribus.stats.items import PairedMean, accuracy_by_seed, admitted, items_interval, paired_gold_bits, paired_mean
from paribus.stats.paired import constant, t_interval
from paribus.stats.rule import Verdict, Word

Pair = tuple[Answers, Answers]
"""what treatment and baseline answered"""


@dataclass(frozen=True)
class Compared:
    """One contrast of two arms, and everything that both of them answered at one seed or more."""

    verdict: Verdict
    seeds: tuple[int, ...]
    """at which both arms have a complete cell"""
    matched: tuple[Matched, ...]
    baseline: Mapping[int, ReadCell]
    """complete cells of the baseline at every seed that counts"""


def compared(study: ReadStudy, verdicts: tuple[Verdict, ...]) -> list[Compared]:
    """The contrasts of two arms that are due. Of contrasts that differ in their metric alone the first."""
    found: dict[tuple[str, tuple[str, ...]], Compared] = {}
    for contrast, verdict in due(study, verdicts):
        key = (verdict.scale, contrast.arms)
        if len(contrast.arms) > 2 or verdict.word is Word.DIVERGENCE or key in found:
            continue
        cells = groups(study, contrast, verdict)
        models = {seed: (treatment.answers, baseline.answers) for seed, (treatment, baseline) in cells.items()}
        own = {s: study.cells[verdict.scale, contrast.baseline, s, spec.STUDY] for s in counted_seeds(study, verdict)}
        own = {seed: cell for seed, cell in own.items() if cell.state == "complete"}
        found[key] = Compared(verdict, tuple(cells), tuple(matched(models)), own)
    return list(found.values())


def tasks(contrasts: Sequence[Compared]) -> Iterator[TaskRow]:
    """Every task at every moment; of one that cannot be compared why. Controls are not among them."""
    for contrast, task in _plain(contrasts):
        yield _of_task(contrast, task)


def task_pairs(contrasts: Sequence[Compared]) -> Iterator[TaskPairRow]:
    """Every pair of checkpoints of every task and moment."""
    for contrast, task in _plain(contrasts):
        for seed, pair in task.pairs.items():
            yield _of_pair(contrast.verdict, task, seed, pair)


def _plain(contrasts: Sequence[Compared]) -> Iterator[tuple[Compared, Matched]]:
    for contrast in contrasts:
        for task in contrast.matched:
            if COUNTERFACTUAL not in task.asked.variant.split("+"):
                yield contrast, task


def _identity(verdict: Verdict, task: Matched) -> dict[str, Any]:
    asked = task.asked
    return {
        "contrast": verdict.name,
        "scale": verdict.scale,
        "suite": asked.suite,
        "task": asked.task,
        "variant": asked.variant,
        "after": task.moment.after,
        "step": asked.step,
        "mid_schedule": task.moment.step is not None,
    }


def _of_task(contrast: Compared, task: Matched) -> TaskRow:
    verdict, said = contrast.verdict, _refusals(task, contrast.seeds)
    who = _identity(verdict, task)
    if not task.pairs:
        return TaskRow(**who, kind="", items=0, chance=None, note=said)
    first = task.first
    chance = first.chance
    accuracy = _over_seeds(verdict, task.pairs, lambda of: of.correct.astype(np.float64))
    gold = _over_seeds(verdict, task.pairs, lambda of: of.gold_bits)
    margin = _over_seeds(verdict, task.pairs, lambda of: of.margin)
    admission = admitted(_baseline_accuracies(contrast, task.moment, first), chance, items=len(first.item))
    return TaskRow(
        **who,
        kind=str(first.record["kind"]),
        items=len(first.item),
        chance=chance,
        **_fields("gold_bits", gold),
        **_fields("accuracy", accuracy),
        **_fields("centred", accuracy.centred(chance)),
        **_fields("margin", margin),
        confidence=confidence_of(verdict),
        seeds=tuple(task.pairs),
        admitted=admission.admitted,
        admission=admission.reason,
        not_admitted=admission.word,
        note=said,
    )


@dataclass(frozen=True)
class _OverSeeds:
    """Means over items, then over seeds; None where no item has a value in both arms."""

    baseline: float | None = None
    treatment: float | None = None
    difference: float | None = None
    interval: tuple[float, float] | None = None

    def centred(self, chance: float) -> "_OverSeeds":
        """The same on the scale where guessing is 0 and every answer right is 1."""
        room = 1 - chance
        values = (self.baseline, self.treatment)
        b, t = (None if value is None else (value - chance) / room for value in values)
        low_high = None if self.interval is None else (self.interval[0] / room, self.interval[1] / room)
        return _OverSeeds(b, t, None if self.difference is None else self.difference / room, low_high)


def _fields(name: str, found: _OverSeeds) -> dict[str, Any]:
    return {f"{name}_{field}": getattr(found, field) for field in _OverSeeds.__dataclass_fields__}


def _over_seeds(
    verdict: Verdict, pairs: Mapping[int, Pair], values_of: Callable[[Answers], NDArray[np.float64]]
) -> _OverSeeds:
    """Means over the items that have a value in both arms, and the paired t over seeds; none below three seeds."""
    found = [values for t, b in pairs.values() if (values := _both(values_of(t), values_of(b))) is not None]
    if not found:
        return _OverSeeds()
    differences = [float(np.mean(t - b)) for t, b in found]
    spread = len(differences) > 2 and not constant(differences)
    return _OverSeeds(
        baseline=float(np.mean([b.mean() for _, b in found])),
        treatment=float(np.mean([t.mean() for t, _ in found])),
        difference=float(np.mean(differences)),
        interval=t_interval(differences, confidence_of(verdict)) if spread else None,
    )


def _both(t: NDArray[np.float64], b: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
    """The items that have a value in both arms; None where none has."""
    there = np.isfinite(t) & np.isfinite(b)
    return (t[there], b[there]) if there.any() else None


def _baseline_accuracies(contrast: Compared, moment: Moment, first: Answers) -> list[float]:
    """Of the baseline at every seed that counts, asked as the compared pairs were: no treatment chooses among them."""
    name = first.asked.name
    found = [at_moments(cell.answers).get((name, moment)) for cell in contrast.baseline.values()]
    return [answers.accuracy for answers in found if answers is not None and not unequal(answers, first)]


def _refusals(task: Matched, seeds: Sequence[int]) -> str:
    """Which pairs are not compared and why, and at which seeds an arm has no answers."""
    by_reason: dict[str, list[int]] = {}
    for seed, why in task.refused.items():
        by_reason.setdefault(why, []).append(seed)
    absent = [seed for seed in seeds if seed not in task.pairs and seed not in task.refused]
    if absent:
        by_reason["not answered by both arms"] = absent
    return "; ".join(f"{_seeds(of)} {why}" for why, of in by_reason.items())


def _seeds(numbers: Sequence[int]) -> str:
    return f"{'seeds' if len(numbers) > 1 else 'seed'} {', '.join(map(str, numbers))}:"


def _of_pair(verdict: Verdict, task: Matched, seed: int, pair: Pair) -> TaskPairRow:
    t, b = pair
    accuracy = accuracy_by_seed({seed: t.correct}, {seed: b.correct}, chance=t.chance)[seed]
    gold, margin = _gold(t, b), _both(t.margin, b.margin)
    return TaskPairRow(
        **_identity(verdict, task),
        seed=seed,
        items=len(t.item),
        only_treatment=accuracy.only_treatment,
        only_baseline=accuracy.only_baseline,
        mcnemar_p=accuracy.p_mcnemar,
        accuracy_difference=accuracy.difference,
        gold_items=0 if gold is None else gold.items,
        gold_bits_difference=None if gold is None else gold.difference,
        gold_bits_interval=None if gold is None else items_interval(gold),
        margin_difference=None if margin is None else paired_mean(*margin).difference,
        near_ties_treatment=int(t.near_tie.sum()),
        near_ties_baseline=int(b.near_tie.sum()),
        problems_treatment=t.problems.total(),
        problems_baseline=b.problems.total(),
        cropped=int(((b.cropped_shots > 0) | (b.cropped_tokens > 0)).sum()),
    )


def _gold(t: Answers, b: Answers) -> PairedMean | None:
    """Bits per byte of the right answer over the items that have them in both arms; None where none has."""
    there = np.isfinite(t.gold_bits) & np.isfinite(b.gold_bits)
    lengths = b.gold_bytes[there].astype(np.int64)
    return paired_gold_bits(t.gold_nats[there], b.gold_nats[there], lengths) if there.any() else None
