"""The types of a verdict: the rule that was fixed before the run, what it is applied to, and what comes out."""

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from paribus.errors import ParibusError
from paribus.stats.extension import check_extension
from paribus.stats.looks import check_looks, serves_futility_only
from paribus.stats.paired import PairedDifferences
from paribus.stats.rounding import MINUS


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
    RULE_CHANGED = "exploratory: rule changed"
    NO_INFORMATION = "no information"
    DIVERGENCE = "withheld: divergence"
    WAITING = "waiting for the planned seeds"
    FUTILE = "stop for futility"
    NOT_TESTED = "not tested: primary not rejected"

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

    @property
    def settled(self) -> bool:
        """A test rejected something: a difference, or a difference that matters."""
        return self.not_zero or self is Word.EQUIVALENT


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


@dataclass(frozen=True)
class Verdict:
    """One row of the verdict table. Numbers are in the unit of the metric; None where the rules show none."""

    name: str
    treatment: str
    """Of an interaction: the first difference, "(a - b)", with the minus sign of `MINUS`."""
    baseline: str
    """Of an interaction: the second difference, "(c - d)", likewise."""
    scale: str
    metric: str
    unit: str
    primary: bool
    lower_is_better: bool
    smallest_effect: float
    design_effect: float
    seeds: int
    """Pairs that count, the diverged ones included."""
    planned_seeds: int
    word: Word
    looks: tuple[int, ...] = ()
    """Pairs of the planned looks, or of stage 1 and the whole of an extension; empty where there is one test."""
    look: int | None = None
    """Number of the look, or of the stage of an extension, from 1, at which the word is said; None without."""
    extension: bool = False
    """Whether `looks` are the two stages of a declared extension."""
    uncounted_seeds: tuple[int, ...] = ()
    """Seeds of pairs that are there and do not count at this look or stage."""
    futile: bool = False
    """Whether, were the estimate at this early look the truth, the planned seeds would hardly ever bring a word."""
    primary_word: Word | None = None
    """Of a secondary that was not tested: the word of the primary, which kept the gate closed."""
    mean: float | None = None
    """Mean of treatment minus baseline; None when a cell diverged."""
    median: float | None = None
    sd: float | None = None
    standard_error: float | None = None
    unpaired_standard_error: float | None = None
    pair_correlation: float | None = None
    """Over seeds, of the two arms' values, or of the two differences of an interaction."""
    interval: tuple[float, float] | None = None
    interval_confidence: float | None = None
    """Of `interval`: 1 minus the nominal level of this look or stage, for a secondary at its step of Holm's test."""
    equivalence_interval: tuple[float, float] | None = None
    """Inside +-smallest_effect exactly where equivalence is concluded: 90 %, or matched to Holm for a secondary."""
    equivalence_confidence: float | None = None
    p_t: float | None = None
    """Of no mean difference; with looks or an extension the p value that allows for all of them."""
    p_holm: float | None = None
    """Secondaries only: Holm-adjusted `p_t`."""
    p_equivalence: float | None = None
    """Two one-sided tests against the smallest effect, allowing for looks as `p_t` does."""
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
    arms: tuple[str, ...] = ()
    """Names of the arms: treatment and baseline, and of an interaction minus_treatment and minus_baseline."""

    @property
    def interaction(self) -> bool:
        """Whether the difference is one of two differences."""
        return len(self.arms) > 2

    @property
    def early(self) -> bool:
        """Whether the word is said at a look or stage before the last that was declared."""
        return self.look is not None and self.look < len(self.looks)

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
