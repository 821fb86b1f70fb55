"""How one contrast is tested under its rule: once, at a planned look, or in the stages of a declared extension.

All three answer alike. `p` is the smallest alpha of the whole procedure at which the contrast is rejected, so Holm's
test and the gate work on it as they do on a plain p value. `interval(alpha)` excludes 0 exactly where `p` <= alpha.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import scipy

from paribus.stats import extension, looks, paired
from paribus.stats.rule import Comparison, Rule

Interval = tuple[float, float]


@dataclass(frozen=True)
class OneTest:
    """A t test of the pairs there are, at a nominal level that depends on the look or stage."""

    differences: tuple[float, ...]
    margin: float
    """Unit of the metric, as `differences`."""
    nominal: Callable[[float], float]
    """The nominal two-sided level for an alpha of the whole procedure."""
    whole: Callable[[float], float]
    """Its inverse: the alpha of the whole procedure for a nominal p value."""

    @property
    def p(self) -> float:
        """Of no mean difference."""
        return self.whole(paired.paired_t(self.differences).p_two_sided)

    @property
    def p_equivalence(self) -> float:
        """Of two one-sided tests, each at the nominal level of the two-sided one.

        That is conservative: over all looks or stages a one-sided test at these levels errs in at most alpha.
        """
        return self.whole(paired.equivalence_p(self.differences, self.margin))

    def interval(self, alpha: float) -> Interval:
        """At 1 - the nominal level."""
        return paired.t_interval(self.differences, complement(self.nominal(alpha)))

    def equivalence_interval(self, alpha: float) -> Interval:
        """At 1 - twice the nominal level: inside the margin exactly where `p_equivalence` <= alpha."""
        return paired.t_interval(self.differences, complement(2 * self.nominal(alpha)))


@dataclass(frozen=True)
class TwoStages:
    """The end of a declared extension; a rejection at stage 1 is one of the whole procedure too."""

    first: OneTest
    stage_1: tuple[float, ...]
    stage_2: tuple[float, ...]
    margin: float
    stage_1_alpha: float
    alpha: float

    def nominal(self, alpha: float) -> float:
        """The two-sided level of the final test alone."""
        return extension.final_level(self.stage_1_alpha * alpha / self.alpha, alpha)

    @property
    def p(self) -> float:
        """Of no mean difference, by either stage."""
        z = float(extension.combined_z(self.stage_1, self.stage_2))
        return min(self.first.p, extension.whole_p(z, self.stage_1_alpha, self.alpha))

    @property
    def p_equivalence(self) -> float:
        """Of two one-sided tests by either stage, each at the level of the two-sided one."""
        z = extension.one_sided_equivalence_score(self.stage_1, self.stage_2, self.margin)
        two_sided = -float(scipy.special.ndtri(scipy.special.ndtr(-z) / 2))
        return min(self.first.p_equivalence, extension.whole_p(two_sided, self.stage_1_alpha, self.alpha))

    def interval(self, alpha: float) -> Interval:
        """Inverts the final test: excludes 0 exactly where the final test alone rejects at `alpha`."""
        return extension.combination_interval(self.stage_1, self.stage_2, self.nominal(alpha))

    def equivalence_interval(self, alpha: float) -> Interval:
        """The same for two one-sided tests."""
        return extension.combination_interval(self.stage_1, self.stage_2, 2 * self.nominal(alpha))


def procedure(comparison: Comparison) -> OneTest | TwoStages:
    """The test of a comparison whose pairs stand at a stop of its rule. No pair may have diverged."""
    rule, differences = comparison.rule, comparison.differences.differences
    if rule.stage_1_seeds is not None:
        first = _stage_1_test(rule, stage_1_of(comparison).differences.differences)
        if comparison.differences.pairs == rule.stage_1_seeds:
            return first
        assert rule.stage_1_alpha is not None
        stages = stage_differences(comparison)
        return TwoStages(first, *stages, rule.smallest_effect, rule.stage_1_alpha, rule.alpha)
    if rule.looks:
        look = rule.stop_reached(comparison.differences.pairs)
        assert look is not None
        return OneTest(
            differences,
            rule.smallest_effect,
            nominal=lambda alpha: looks.nominal_levels(rule.looks, alpha)[look],
            whole=lambda p: looks.repeated_p(rule.looks, look, p),
        )
    return OneTest(differences, rule.smallest_effect, nominal=lambda alpha: alpha, whole=lambda p: p)


def at_look(comparison: Comparison, seed_numbers: Sequence[int]) -> Comparison:
    """The comparison as it stood at the last look, or stage of an extension, whose pairs are all there.

    `seed_numbers` are the planned seeds in their order. Look n is made of the first n of them and of no others,
    whichever cells happened to finish first; a diverged pair is there. Pairs beyond are left out and named in
    `uncounted_seeds`. Before the first look only the leading pairs are kept, too few for any word. Where the rule
    declares neither looks nor an extension the comparison comes back unchanged.
    """
    pairs = comparison.differences
    rule = comparison.rule
    if not rule.looks and rule.stage_1_seeds is None:
        return comparison
    there = {*pairs.seeds, *pairs.diverged}
    leading = next((i for i, seed in enumerate(seed_numbers) if seed not in there), len(seed_numbers))
    stop = rule.stop_reached(leading)
    counted = leading if stop is None else rule.stops[stop]
    return restricted(comparison, seed_numbers[:counted])


def restricted(comparison: Comparison, seeds: Sequence[int]) -> Comparison:
    """The comparison with the pairs of these seeds only; the others become `uncounted_seeds`."""
    pairs, kept = comparison.differences, frozenset(seeds)
    keep = [seed in kept for seed in pairs.seeds]

    def of(values: tuple[float, ...]) -> tuple[float, ...]:
        return tuple(value for value, flag in zip(values, keep, strict=True) if flag)

    fourfold = comparison.minus_treatment is not None
    return replace(
        comparison,
        differences=replace(
            pairs,
            seeds=tuple(seed for seed in pairs.seeds if seed in kept),
            differences=of(pairs.differences),
            treatment_diverged=tuple(seed for seed in pairs.treatment_diverged if seed in kept),
            baseline_diverged=tuple(seed for seed in pairs.baseline_diverged if seed in kept),
        ),
        treatment_values=of(comparison.treatment_values),
        baseline_values=of(comparison.baseline_values),
        minus_treatment_values=of(comparison.minus_treatment_values) if fourfold else (),
        minus_baseline_values=of(comparison.minus_baseline_values) if fourfold else (),
        uncounted_seeds=tuple(sorted({*comparison.uncounted_seeds, *({*pairs.seeds, *pairs.diverged} - kept)})),
    )


def stage_1_of(comparison: Comparison) -> Comparison:
    """The comparison with the pairs of stage 1 only: the lowest seeds, since later ones are added behind them."""
    assert comparison.rule.stage_1_seeds is not None
    there = sorted({*comparison.differences.seeds, *comparison.differences.diverged})
    return restricted(comparison, there[: comparison.rule.stage_1_seeds])


def stage_differences(comparison: Comparison) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Differences of stage 1 and of stage 2, unit of the metric."""
    first = stage_1_of(comparison)
    second = restricted(comparison, first.uncounted_seeds)
    return first.differences.differences, second.differences.differences


def complement(level: float) -> float:
    """1 - level without the rounding that 1 - 0.95 leaves behind: 0.975, not 0.97499999999999998."""
    return round(1 - level, 12)


def _stage_1_test(rule: Rule, differences: tuple[float, ...]) -> OneTest:
    assert rule.stage_1_alpha is not None
    share = rule.stage_1_alpha / rule.alpha
    return OneTest(
        differences,
        rule.smallest_effect,
        nominal=lambda alpha: share * alpha,
        whole=lambda p: min(1.0, p / share),
    )
