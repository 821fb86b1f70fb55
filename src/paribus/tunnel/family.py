"""The verdict words of a set of tasks: one family over all its rows (rules of evidence, sections 2 and 8).

A study's own report tests its primary alone, because its page makes one claim. The page of a set shows the contrasts of
all tasks side by side, so its rows are one family: Holm's procedure at 5 % over the p values of the rows, each that of
the row's own verdict procedure (a paired t, allowing for looks where they are declared). Equivalence is a family of its
own, as among the secondaries of a study. The interval of a row is at the level at which Holm tested it. A row without a
test (it waits, tells nothing, a cell diverged) keeps its place with p = 1.

Milestones, ratios of updates and other slices are outside of the family: the rules give them no word, so their
intervals are pointwise, at 95 %, and the page says beside them how many would miss 0 by chance. The level of a row's
step would be no honest level for them: it comes from the rank of another quantity's p.

An exact sign flip could reject under the first step only with S >= 1 + log2(20 m) pairs: 24 rows need 10 seeds.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from paribus.stats.description import described
from paribus.stats.holm import holm
from paribus.stats.procedure import procedure
from paribus.stats.rule import Comparison, Verdict, Word
from paribus.stats.verdict import at_levels

ALPHA = 0.05
TESTED = frozenset(word for word in Word if word.settled) | {Word.INCONCLUSIVE, Word.SKEWED, Word.NOT_TESTED}
"""words of a study's own page that say that the row can be tested: the others come before any test"""


@dataclass(frozen=True)
class FamilyVerdict:
    """What the page of a set says of one row."""

    word: Word
    p_holm: float | None
    """adjusted over the rows; None where the row was not tested"""
    interval: tuple[float, float] | None
    """of the mean difference at the level of the row's step; None where the row was not tested"""
    confidence: float
    """of `interval`"""
    equivalence_interval: tuple[float, float] | None = None
    """inside +-smallest_effect exactly where the family concludes equivalence; None where the row was not tested"""


def decide_family(rows: Mapping[str, tuple[Comparison, Verdict]]) -> dict[str, FamilyVerdict]:
    """Words over all rows. Each is a comparison at its stop (`procedure.at_look`) with its own study's verdict."""
    tests = {name: procedure(comparison) for name, (comparison, own) in rows.items() if own.word in TESTED}
    by_difference = holm([tests[name].p if name in tests else 1.0 for name in rows], ALPHA)
    by_equivalence = holm([tests[name].p_equivalence if name in tests else 1.0 for name in rows], ALPHA)
    found: dict[str, FamilyVerdict] = {}
    for place, (name, (comparison, own)) in enumerate(rows.items()):
        if name not in tests:
            found[name] = FamilyVerdict(own.word, None, None, 1 - ALPHA)
            continue
        levels = by_difference.levels[place], by_equivalence.levels[place]
        verdict = at_levels(comparison.rule, described(comparison, None), tests[name], *levels)
        assert verdict.interval_confidence is not None
        found[name] = FamilyVerdict(
            verdict.word,
            by_difference.adjusted[place],
            verdict.interval,
            verdict.interval_confidence,
            verdict.equivalence_interval,
        )
    return found
