"""What of a verdict may be shown: the one door between the statistics and everything a reader sees.

Before the planned seeds (or a declared look) nothing that hints at an outcome leaves here: no word but "waiting", no
p value, no interval, no mean and no per-seed difference, whatever the record behind it holds (rules of
evidence, section 2). Figures, tables, the page and its JSON take `Shown`, never the verdict itself.
"""

import dataclasses
import math
from collections.abc import Iterable
from dataclasses import dataclass

from paribus.report.content import PairRow, ReportContent
from paribus.report.numbers import MINUS
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
        held["arms"] = verdict.arms
        held["sentence"] = f"{counts}; nothing about the difference is shown before, so that nobody can stop on it."
        return Shown(**held)
    own = sorted((pair for pair in pairs if (pair.contrast, pair.scale) == (verdict.name, verdict.scale)), key=_seed)
    differences = (p.difference if p.difference is not None and math.isfinite(p.difference) else None for p in own)
    return Shown(**held, difference_seeds=tuple(p.seed for p in own), differences=tuple(differences))


def shown_rows(content: ReportContent) -> list[Shown]:
    """Every contrast of the study, the primary first."""
    rows = [shown(verdict, content.pairs) for verdict in content.verdicts]
    return sorted(rows, key=lambda row: not row.primary)


def _seed(pair: PairRow) -> int:
    return pair.seed
