"""What of a verdict may be shown: the one door between the statistics and everything a reader sees.

Before the planned seeds (or a declared look) nothing that hints at an outcome leaves here: no word but "waiting", no
p value, no interval, no mean and no per-seed difference, whatever the record behind it holds (rules of
evidence, section 2). Figures, tables, the page and its JSON take `Shown`, never the verdict itself.

The questions that `door.due` asks of every other record, such as whether two arms may stand side by side, are here too.
"""

import dataclasses
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from paribus.report.content import PairRow, ReportContent
from paribus.stats.rounding import MINUS
from paribus.stats.verdict import Verdict, Word


@dataclass(frozen=True)
class Shown(Verdict):
    """A verdict, what is not due set to None, with its per-seed differences beside it."""

    difference_seeds: tuple[int, ...] = ()
    differences: tuple[float | None, ...] = ()
    """Treatment minus baseline in the unit of the metric, one a seed; None where a cell of the pair diverged."""

    @property
    def waiting(self) -> bool:
        """Nothing about the difference may be shown."""
        return self.word is Word.WAITING

    @property
    def settled(self) -> bool:
        """Whether all pairs that are there may be shown: it waits for none, and none lies beyond the look it is at."""
        return not self.waiting and not self.uncounted_seeds

    @property
    def compared(self) -> str:
        """What is subtracted from what: two arms, or the two differences of an interaction."""
        return f"{self.treatment} {MINUS} {self.baseline}"

    @property
    def reference_arm(self) -> str:
        """The arm that the others of the contrast are measured from: the last of its formula."""
        return self.arms[-1] if self.interaction else self.baseline

    @property
    def finite_differences(self) -> list[float]:
        """The differences of the pairs whose two cells ended finite."""
        return [difference for difference in self.differences if difference is not None]

    @property
    def lost_pairs(self) -> int:
        """Pairs without a difference: a cell of theirs diverged."""
        return len(self.differences) - len(self.finite_differences)


def shown(verdict: Verdict, pairs: Iterable[PairRow] = ()) -> Shown:
    """`verdict` as a reader may see it, joined with its rows among `pairs`."""
    held = {field.name: getattr(verdict, field.name) for field in dataclasses.fields(Verdict)}
    if verdict.word is Word.WAITING:
        # What was declared before the run has no default; every number about the outcome has one.
        held = {
            field.name: held[field.name] if field.default is dataclasses.MISSING else field.default
            for field in dataclasses.fields(Verdict)
        }
        counts = f"{verdict.seeds} of {verdict.planned_seeds} planned pairs are complete"
        held |= {"arms": verdict.arms, "looks": verdict.looks, "extension": verdict.extension}
        if verdict.looks:
            counts += f", stops are declared at {' and '.join(map(str, verdict.looks))}"
        held["sentence"] = f"{counts}; nothing about the difference is shown before, so that nobody can stop on it."
        return Shown(**held)
    there = (pair for pair in pairs if (pair.contrast, pair.scale) == (verdict.name, verdict.scale))
    own = sorted((pair for pair in there if pair.seed not in verdict.uncounted_seeds), key=_seed)
    differences = (p.difference if p.difference is not None and math.isfinite(p.difference) else None for p in own)
    return Shown(**held, difference_seeds=tuple(p.seed for p in own), differences=tuple(differences))


def shown_rows(content: ReportContent) -> list[Shown]:
    """Every contrast of the study, the primary first."""
    rows = [shown(verdict, content.pairs) for verdict in content.verdicts]
    return sorted(rows, key=lambda row: not row.primary)


def _seed(pair: PairRow) -> int:
    return pair.seed


def may_compare(rows: Sequence[Shown], scale: str) -> bool:
    """Whether differences at a scale may be drawn: its contrasts (or the study's, if it has none) are settled."""
    return all(row.settled for row in _at(rows, scale))


def reference_arm(rows: Sequence[Shown], scale: str) -> str | None:
    """The one arm whose losses may be told at a scale where a contrast waits: what the primary, or the first, is from.

    None where no contrast is declared.
    """
    here = sorted(_at(rows, scale), key=lambda row: not row.primary)
    return here[0].reference_arm if here else None


def may_tell(rows: Sequence[Shown], scale: str, arm: str, seed: int) -> bool:
    """Whether the losses of one training run may be told: nothing that is not due can then be made of them.

    Once no contrast of the scale waits, those of every arm at the seeds that count; before, those of one arm.
    """
    if seed in uncounted_seeds(rows, scale):
        return False
    return arm == reference_arm(rows, scale) or not waits(rows, scale)


def may_span(rows: Sequence[Shown], scale: str) -> bool:
    """Whether an interval over seeds may stand at a scale, of whatever: a stop for futility shows none either."""
    return may_compare(rows, scale) and all(row.word is not Word.FUTILE for row in _at(rows, scale))


def waits(rows: Sequence[Shown], scale: str) -> bool:
    """Whether a contrast of the scale waits, so that nothing about its difference may be shown."""
    return any(row.waiting for row in _at(rows, scale))


def uncounted_seeds(rows: Sequence[Shown], scale: str) -> frozenset[int]:
    """Seeds of a scale that are there and wait for the next look of one of its contrasts."""
    return frozenset(seed for row in _at(rows, scale) for seed in row.uncounted_seeds)


def _at(rows: Sequence[Shown], scale: str) -> list[Shown]:
    """The contrasts that answer for a scale: its own, or all of the study where it has none."""
    return [row for row in rows if row.scale == scale] or list(rows)


def is_due(rows: Sequence[Shown], contrast: str, scale: str) -> bool:
    """Whether a number about a contrast at a scale may be shown.

    A record that no verdict answers for is not due before everything at its scale is, and never on a page without
    verdicts: nobody knows then what was planned.
    """
    own = [row for row in rows if (row.name, row.scale) == (contrast, scale)]
    return bool(rows) and all(row.settled for row in own) and (bool(own) or may_compare(rows, scale))
