"""What a verdict is made from: the rule that was fixed before the run, and the pairs it is applied to.

The words are in `paribus.stats.words`, the row that comes out in `paribus.stats.outcome`.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from paribus.errors import ParibusError
from paribus.stats.extension import check_extension
from paribus.stats.looks import check_looks, serves_futility_only
from paribus.stats.outcome import Verdict
from paribus.stats.paired import PairedDifferences
from paribus.stats.rounding import MINUS
from paribus.stats.words import Word

__all__ = ["Comparison", "Rule", "Verdict", "Word", "check_page"]


@dataclass(frozen=True)
class Rule:
    """What is fixed before the run."""

    smallest_effect: float
    """The margin d: what matters. Unit of the metric, above 0."""
    design_effect: float
    """What power is computed for. Unit of the metric, above `smallest_effect`."""
    planned_seeds: int
    """Pairs before which nothing is said; at most 2 makes the contrast exploratory."""
    confidence: float = 0.95
    """Of the headline interval; equivalence uses 1 - 2 (1 - confidence). 1 - confidence is alpha of the whole page."""
    lower_is_better: bool = True
    looks: tuple[int, ...] = ()
    """Pairs at which words may be shown, the last at `planned_seeds`; an earlier one below 5 serves futility only."""
    stage_1_seeds: int | None = None
    """Of a declared extension: pairs of stage 1. All further ones, up to `planned_seeds`, are stage 2."""
    stage_1_alpha: float | None = None
    """Of a declared extension: the two-sided level of stage 1, below 1 - confidence."""

    def __post_init__(self) -> None:
        if not (math.isfinite(self.smallest_effect) and self.smallest_effect > 0):
            raise ParibusError(
                "smallest_effect must be a positive number",
                expected="smallest_effect > 0, in the unit of the metric",
                received=str(self.smallest_effect),
                remedy="name the smallest difference that would matter to you",
            )
        if not (math.isfinite(self.design_effect) and self.design_effect > self.smallest_effect):
            raise ParibusError(
                "design_effect must be larger than smallest_effect",
                expected=f"design_effect > {self.smallest_effect:g}",
                received=str(self.design_effect),
                remedy="plan for 1.5 smallest effects or more: at exactly one, power is at most 50 % at any size",
            )
        if not 0.5 < self.confidence < 1:
            raise ParibusError(
                "confidence must lie between 0.5 and 1",
                expected="0.5 < confidence < 1",
                received=str(self.confidence),
                remedy="use 0.95",
            )
        if self.planned_seeds < 1:
            raise ParibusError(
                "planned_seeds must be at least 1",
                expected="planned_seeds >= 1",
                received=str(self.planned_seeds),
                remedy="plan 5 seeds, 6 to 8 for a claim; 1 or 2 are exploratory",
            )
        check_looks(self.looks, self.planned_seeds)
        check_extension(self.stage_1_seeds, self.stage_1_alpha, self.planned_seeds, self.alpha, self.looks)

    @property
    def alpha(self) -> float:
        """1 - confidence, without the rounding that 1 - 0.95 leaves behind."""
        return round(1 - self.confidence, 12)

    @property
    def stops(self) -> tuple[int, ...]:
        """Pairs at which words may be shown, the last at `planned_seeds`: looks, or the stages of an extension."""
        if self.stage_1_seeds is not None and self.stage_1_seeds < self.planned_seeds:
            return (self.stage_1_seeds, self.planned_seeds)
        return self.looks or (self.planned_seeds,)

    def stop_reached(self, pairs: int) -> int | None:
        """Index in `stops` of the last one that `pairs` reach; None before the first."""
        return max((index for index, stop in enumerate(self.stops) if stop <= pairs), default=None)

    def futility_only(self, pairs: int) -> bool:
        """Whether `pairs` is a look that may only say that going on is futile."""
        return pairs in self.looks and serves_futility_only(self.looks, self.looks.index(pairs))

    @property
    def sign(self) -> int:
        """+1 where a positive difference is good, -1 where a negative one is."""
        return -1 if self.lower_is_better else 1


@dataclass(frozen=True)
class Comparison:
    """One contrast at one scale on one metric, with its pairs."""

    name: str
    treatment: str
    baseline: str
    scale: str
    metric: str
    unit: str
    primary: bool
    rule: Rule
    differences: PairedDifferences
    treatment_values: tuple[float, ...]
    """Values of the treatment at `differences.seeds`, unit of the metric."""
    baseline_values: tuple[float, ...]
    """Values of the baseline at `differences.seeds`, unit of the metric."""
    verdict_seen_at: tuple[int, ...] = ()
    """Numbers of pairs at which an earlier look already showed words."""
    rule_changed_after_words: bool = False
    """Whether contrasts, margins or planned seeds were other ones when a look showed words."""
    uncounted_seeds: tuple[int, ...] = ()
    """Seeds of pairs that are there and wait for the next look; none of them is in `differences`."""
    minus_treatment: str | None = None
    """An interaction's third arm: each difference is (treatment - baseline) - (minus_treatment - minus_baseline)."""
    minus_baseline: str | None = None
    """An interaction's fourth arm; both or neither."""
    minus_treatment_values: tuple[float, ...] = ()
    """As `treatment_values`, of the third arm."""
    minus_baseline_values: tuple[float, ...] = ()
    """As `treatment_values`, of the fourth arm."""
    not_informative: str = ""
    """Why a synthetic task could not tell the arms apart: the plateau that all of them sit on. Empty otherwise."""

    def __post_init__(self) -> None:
        differences = self.differences.differences
        if (self.minus_treatment is None) != (self.minus_baseline is None):
            raise ParibusError(
                f"contrast {self.name!r}: an interaction has four arms",
                expected="minus_treatment and minus_baseline, or neither",
                received=f"{self.minus_treatment} and {self.minus_baseline}",
            )
        lengths = [len(values) for values in self.values]
        if set(lengths) != {len(differences)}:
            raise ParibusError(
                f"contrast {self.name!r}: every arm needs one value for each paired difference",
                expected=" and ".join(f"{len(differences)}" for _ in lengths) + " values",
                received=" and ".join(map(str, lengths)),
                remedy="give the values at differences.seeds, without the diverged seeds",
            )
        for arms, difference in zip(zip(*self.values, strict=True), differences, strict=True):
            t, b, mt, mb = arms if len(arms) == 4 else (*arms, 0.0, 0.0)
            # Six roundings of numbers no larger than the values: anything beyond is another orientation or another row.
            if not abs(((t - b) - (mt - mb)) - difference) <= 1e-12 * max(map(abs, arms)):
                raise ParibusError(
                    f"contrast {self.name!r}: a difference is not {self.formula}",
                    expected=f"{(t - b) - (mt - mb)} from {', '.join(map(str, arms))}",
                    received=str(difference),
                    remedy="take the differences from paired_differences or interaction_differences",
                )

    @property
    def values(self) -> tuple[tuple[float, ...], ...]:
        """The values of the two arms, or of the four of an interaction."""
        pair = (self.treatment_values, self.baseline_values)
        return (
            pair if self.minus_treatment is None else (*pair, self.minus_treatment_values, self.minus_baseline_values)
        )

    @property
    def arms(self) -> tuple[str, ...]:
        """Names of the two arms, or of the four of an interaction."""
        found = (self.treatment, self.baseline, self.minus_treatment, self.minus_baseline)
        return tuple(arm for arm in found if arm is not None)

    @property
    def words_seen_with_more_pairs(self) -> int | None:
        """The most pairs at which words were seen, if more than there are now: fewer planned since, or cells lost."""
        return max((seen for seen in self.verdict_seen_at if seen > self.differences.pairs), default=None)

    @property
    def formula(self) -> str:
        """What a difference is, in the roles' names."""
        simple = "treatment minus baseline"
        return simple if self.minus_treatment is None else f"({simple}) minus (minus_treatment minus minus_baseline)"

    @property
    def sides(self) -> tuple[str, str]:
        """What is compared with what: two arms, or two differences such as "(a - b)", with `MINUS` for the sign."""
        if self.minus_treatment is None:
            return self.treatment, self.baseline
        return (
            f"({self.treatment} {MINUS} {self.baseline})",
            f"({self.minus_treatment} {MINUS} {self.minus_baseline})",
        )


def check_page(comparisons: Sequence[Comparison]) -> Comparison:
    """The primary of a page. ParibusError unless there is exactly one, names differ and the confidence is common."""
    primaries = [comparison for comparison in comparisons if comparison.primary]
    if len(primaries) != 1:
        raise ParibusError(
            "a page of verdicts needs exactly one primary contrast",
            expected="one comparison with primary = true",
            received=", ".join(comparison.name for comparison in primaries) or "none",
            remedy="choose the one contrast, scale, metric and budget that answers the question",
        )
    names = [comparison.name for comparison in comparisons]
    if len(set(names)) != len(names):
        raise ParibusError(
            "two comparisons have one name",
            expected="different names",
            received=", ".join(sorted(names)),
            remedy="name each contrast x scale x metric differently",
        )
    confidences = {comparison.rule.confidence for comparison in comparisons}
    if len(confidences) != 1:
        raise ParibusError(
            "the comparisons of a page differ in confidence",
            expected="one confidence, since it is the error rate of the whole page",
            received=", ".join(map(str, sorted(confidences))),
            remedy="give every comparison the same confidence",
        )
    return primaries[0]
