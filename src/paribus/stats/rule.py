"""The types of a verdict: the rule that was fixed before the run, what it is applied to, and what comes out."""

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from paribus.errors import ParibusError
from paribus.stats.paired import PairedDifferences


class Word(Enum):
    """The verdict words of the rules of evidence. Nothing else may be said of a contrast."""

    BETTER_BY_SMALLEST_EFFECT = "better by at least the smallest effect"
    BETTER = "better"
    WORSE_BY_SMALLEST_EFFECT = "worse by at least the smallest effect"
    WORSE = "worse"
    BELOW_SMALLEST_EFFECT = "real but below the smallest effect"
    EQUIVALENT_NOT_ZERO = "equivalent and not zero"
    EQUIVALENT = "equivalent"
    INCONCLUSIVE = "inconclusive"
    SKEWED = "inconclusive, skewed"
    EXPLORATORY = "exploratory"
    EXPLORATORY_EXTENSION = "exploratory extension"
    NO_INFORMATION = "no information"
    DIVERGENCE = "withheld: divergence"
    WAITING = "waiting for the planned seeds"
    NOT_TESTED = "not tested: primary undecided"

    @property
    def better(self) -> bool:
        """A win of the treatment."""
        return self in (Word.BETTER, Word.BETTER_BY_SMALLEST_EFFECT)

    @property
    def worse(self) -> bool:
        """A win of the baseline."""
        return self in (Word.WORSE, Word.WORSE_BY_SMALLEST_EFFECT)

    @property
    def not_zero(self) -> bool:
        """The null of no difference was rejected."""
        return self.better or self.worse or self in (Word.BELOW_SMALLEST_EFFECT, Word.EQUIVALENT_NOT_ZERO)


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
    """Of the headline interval; equivalence uses 1 - 2 (1 - confidence)."""
    lower_is_better: bool = True

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

    def __post_init__(self) -> None:
        differences = self.differences.differences
        lengths = (len(self.treatment_values), len(self.baseline_values))
        if lengths != (len(differences), len(differences)):
            raise ParibusError(
                f"contrast {self.name!r}: both arms need one value for each paired difference",
                expected=f"{len(differences)} and {len(differences)} values",
                received=f"{lengths[0]} and {lengths[1]}",
                remedy="give the values at differences.seeds, without the diverged seeds",
            )
        for t, b, difference in zip(self.treatment_values, self.baseline_values, differences, strict=True):
            # Two roundings of numbers no larger than the values: anything beyond is another orientation or another row.
            if not abs((t - b) - difference) <= 1e-12 * max(abs(t), abs(b)):
                raise ParibusError(
                    f"contrast {self.name!r}: a difference is not treatment minus baseline",
                    expected=f"{t} - {b} = {t - b}",
                    received=str(difference),
                    remedy="take the differences from paired_differences(treatment, baseline)",
                )


@dataclass(frozen=True)
class Verdict:
    """One row of the verdict table. Numbers are in the unit of the metric; None where the rules show none."""

    name: str
    treatment: str
    baseline: str
    scale: str
    metric: str
    unit: str
    primary: bool
    lower_is_better: bool
    smallest_effect: float
    design_effect: float
    seeds: int
    """Pairs that are there, the diverged ones included."""
    planned_seeds: int
    word: Word
    mean: float | None = None
    """Mean of treatment minus baseline; None when a cell diverged."""
    median: float | None = None
    sd: float | None = None
    standard_error: float | None = None
    unpaired_standard_error: float | None = None
    pair_correlation: float | None = None
    interval: tuple[float, float] | None = None
    interval_confidence: float | None = None
    """Of `interval`: that of the rule, or for a secondary the level at which Holm tested it."""
    equivalence_interval: tuple[float, float] | None = None
    """Inside +-smallest_effect exactly where equivalence is concluded: 90 %, or matched to Holm for a secondary."""
    equivalence_confidence: float | None = None
    p_t: float | None = None
    p_holm: float | None = None
    """Secondaries only: Holm-adjusted `p_t`."""
    p_equivalence: float | None = None
    """Two one-sided tests against the smallest effect."""
    p_equivalence_holm: float | None = None
    """Secondaries only: Holm-adjusted `p_equivalence`."""
    p_sign_flip: float | None = None
    wins: int | None = None
    """Pairs, of `seeds`, in which the treatment is better."""
    treatment_diverged: int | None = None
    baseline_diverged: int | None = None
    p_divergence: float | None = None
    """Exact McNemar p value of the two divergence rates; None where nothing diverged."""
    worst_seed: int | None = None
    """The seed worst for the treatment."""
    worst_difference: float | None = None
    """Its difference; None when the treatment diverged there."""
    sentence: str = ""
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, object]:
        """For JSON: words as text, tuples as lists, and None for any number that is not finite."""
        return {field.name: _plain(getattr(self, field.name)) for field in dataclasses.fields(self)}


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
    for comparison in comparisons:
        pairs, planned = comparison.differences.pairs, comparison.rule.planned_seeds
        if pairs >= planned and any(seen > pairs for seen in comparison.verdict_seen_at):
            raise ParibusError(
                f"contrast {comparison.name!r} has fewer pairs than when its verdict was seen",
                expected=f"at least {max(comparison.verdict_seen_at)} pairs",
                received=str(pairs),
                remedy="set seeds.count back or restore the missing cells: no pair is dropped once a verdict was seen",
            )
    return primaries[0]


def _plain(value: object) -> object:
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
