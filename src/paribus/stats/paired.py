"""Per-seed paired differences: the t interval, and beside it what needs no normality.

For seeds s = 1..S the difference is D_s = m_treatment,s - m_baseline,s, in the unit of the metric. Seeds are the unit
of replication. The interval is mean +- t(1 - a/2, S - 1) sd / sqrt(S). A diverged cell has no finite difference and is
never dropped: it stays in the counts, as a loss for its arm (rules of evidence, section 1).

`sign` says which way is good: +1 where higher values of the metric are better, -1 where lower values are.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import scipy  # its submodules load at first use, so importing this file stays light
from numpy.typing import NDArray

from paribus.errors import ParibusError

EXACT_SIGN_FLIP_SEEDS = 20
"""Up to here all 2^S sign flips are enumerated (2^19 sums of 8 bytes after using the symmetry)."""

SIGN_FLIP_DRAWS = 99_999
"""Above it: p is a multiple of 1/100,000; its standard error at p = 0.05 is 0.0007."""

_ROUNDING = 4 * float(np.finfo(np.float64).eps)
"""A difference of two stored values is off by at most 1.5 eps of the larger; the range of differences by twice that."""


@dataclass(frozen=True)
class PairedDifferences:
    """One contrast's pairs, by seed."""

    seeds: tuple[int, ...]
    """Seeds whose two cells both ended finite, in the order of `differences`."""
    differences: tuple[float, ...]
    """Treatment minus baseline, in the unit of the metric."""
    treatment_diverged: tuple[int, ...] = ()
    """Seeds whose treatment cell diverged; for an interaction, see `interaction_differences`."""
    baseline_diverged: tuple[int, ...] = ()
    """Seeds whose baseline cell diverged; a seed in both lists says nothing about the contrast."""

    def __post_init__(self) -> None:
        if len(self.seeds) != len(self.differences):
            raise ParibusError(
                "every seed needs one difference",
                expected=f"{len(self.seeds)} differences",
                received=str(len(self.differences)),
                remedy="give one difference for each seed, in the same order",
            )
        lists = (self.seeds, self.treatment_diverged, self.baseline_diverged)
        diverged = {*self.treatment_diverged, *self.baseline_diverged}
        if any(len(set(seeds)) != len(seeds) for seeds in lists) or diverged & set(self.seeds):
            raise ParibusError(
                "a seed appears twice in one contrast",
                expected="each seed once: with a difference, or diverged",
                received=f"seeds {self.seeds}, diverged {self.treatment_diverged} and {self.baseline_diverged}",
                remedy="keep one pair for each seed; a repeat of a cell belongs to the A/A arm",
            )
        if not all(math.isfinite(difference) for difference in self.differences):
            raise ParibusError(
                "a paired difference is not finite",
                expected="finite differences",
                received=str(self.differences),
                remedy="list the seed under treatment_diverged or baseline_diverged",
            )

    @property
    def diverged(self) -> tuple[int, ...]:
        """Seeds at which at least one arm diverged."""
        return tuple(sorted({*self.treatment_diverged, *self.baseline_diverged}))

    @property
    def pairs(self) -> int:
        """All pairs, the diverged ones included."""
        return len(self.seeds) + len(self.diverged)

    @property
    def only_treatment_diverged(self) -> tuple[int, ...]:
        """Seeds lost by the treatment."""
        return tuple(sorted(set(self.treatment_diverged) - set(self.baseline_diverged)))

    @property
    def only_baseline_diverged(self) -> tuple[int, ...]:
        """Seeds lost by the baseline."""
        return tuple(sorted(set(self.baseline_diverged) - set(self.treatment_diverged)))


def paired_differences(
    treatment: Mapping[int, float | None], baseline: Mapping[int, float | None]
) -> PairedDifferences:
    """Pair two arms by seed. Values are in the unit of the metric; None marks a diverged cell.

    Only seeds that both arms have make pairs. A NaN or infinite value is a ParibusError: divergence is said by None.
    """
    seeds = sorted(treatment.keys() & baseline.keys())
    both = [(seed, treatment[seed], baseline[seed]) for seed in seeds]
    finite = [(seed, t - b) for seed, t, b in both if t is not None and b is not None]
    return PairedDifferences(
        seeds=tuple(seed for seed, _ in finite),
        differences=tuple(float(difference) for _, difference in finite),
        treatment_diverged=tuple(seed for seed in seeds if treatment[seed] is None),
        baseline_diverged=tuple(seed for seed in seeds if baseline[seed] is None),
    )


def interaction_differences(
    treatment: Mapping[int, float | None],
    baseline: Mapping[int, float | None],
    minus_treatment: Mapping[int, float | None],
    minus_baseline: Mapping[int, float | None],
) -> PairedDifferences:
    """(treatment - baseline) - (minus_treatment - minus_baseline) by seed, in the unit of the metric.

    Only seeds at which all four arms have a cell count. A diverged cell (None) is as bad for its arm as can be, so it
    counts against the side that its arm enters with a plus sign where that is the treatment's or minus_baseline's, and
    against the other side where it is the baseline's or minus_treatment's.
    """
    cells = (treatment, baseline, minus_treatment, minus_baseline)
    seeds = sorted(set.intersection(*(set(values) for values in cells)))

    def diverged(*arms: Mapping[int, float | None]) -> tuple[int, ...]:
        return tuple(seed for seed in seeds if any(values[seed] is None for values in arms))

    finite = {}
    for seed in seeds:
        t, b, mt, mb = (values[seed] for values in cells)
        if t is not None and b is not None and mt is not None and mb is not None:
            finite[seed] = float((t - b) - (mt - mb))
    return PairedDifferences(
        seeds=tuple(finite),
        differences=tuple(finite.values()),
        treatment_diverged=diverged(treatment, minus_baseline),
        baseline_diverged=diverged(baseline, minus_treatment),
    )


def constant(differences: Sequence[float], magnitude: float = 0.0) -> bool:
    """Whether the differences are identical up to rounding, so that they carry no information about their spread.

    `magnitude` is the largest absolute value that was subtracted, in the unit of the metric.
    """
    largest = max([magnitude, *(abs(difference) for difference in differences)])
    return max(differences) - min(differences) <= _ROUNDING * largest


@dataclass(frozen=True)
class PairedT:
    """The paired t statistic of one contrast."""

    mean: float
    """In the unit of the metric, as `sd` and `standard_error`."""
    sd: float
    """Of the paired differences, with S - 1 in the denominator."""
    standard_error: float
    t: float
    p_two_sided: float
    degrees_of_freedom: int


def paired_t(differences: Sequence[float]) -> PairedT:
    """The paired t test of a mean of 0. ParibusError below two differences or when all are identical (never p = 0)."""
    if len(differences) < 2 or constant(differences):
        raise ParibusError(
            "no information about the spread between seeds",
            expected="at least two differences that are not all identical",
            received=str(tuple(differences)),
            remedy="look for two arms that are the same program, or for a metric that cannot move",
        )
    count = len(differences)
    mean = float(np.mean(differences))
    sd = float(np.std(differences, ddof=1))
    standard_error = sd / math.sqrt(count)
    t = mean / standard_error
    p = 2 * float(scipy.special.stdtr(count - 1, -abs(t)))
    return PairedT(mean, sd, standard_error, t, p, count - 1)


def t_interval(differences: Sequence[float], confidence: float = 0.95) -> tuple[float, float]:
    """Two-sided t interval of the mean difference, in the unit of the metric; S - 1 degrees of freedom."""
    test = paired_t(differences)
    half = t_critical(test.degrees_of_freedom, confidence) * test.standard_error
    return test.mean - half, test.mean + half


def t_critical(degrees_of_freedom: float, confidence: float) -> float:
    """The two-sided critical value t(1 - a/2, dof) with a = 1 - confidence."""
    return -float(scipy.special.stdtrit(degrees_of_freedom, (1 - confidence) / 2))


def equivalence_p(differences: Sequence[float], margin: float) -> float:
    """The p value of two one-sided t tests (TOST) against |mean| >= margin; `margin` in the unit of the metric.

    It is at most a exactly when the 1 - 2a interval lies inside +-margin.
    """
    test = paired_t(differences)
    return float(scipy.special.stdtr(test.degrees_of_freedom, (abs(test.mean) - margin) / test.standard_error))


def sign_flip_p(differences: Sequence[float], generator: np.random.Generator | None = None) -> float:
    """Two-sided sign-flip p value of |mean|: how often flipped signs give a mean at least as far from 0.

    Exact up to 20 differences and then never below 2/2^S. Above, 99,999 drawn flips and p = (1 + hits)/(1 + draws),
    from `generator`, which is needed there (ParibusError without). Zeros count as ties. 1.0 for no differences.
    """
    values = np.asarray(differences, dtype=np.float64)
    # Flips that give the same |mean| in real arithmetic may differ by rounding: a tie counts against the claim.
    bound = abs(values.sum()) - len(values) * _ROUNDING * np.abs(values).sum()
    if len(values) <= EXACT_SIGN_FLIP_SEEDS:
        sums: NDArray[np.float64] = values[:1].copy()  # the first sign stays: flipping every sign keeps |mean|
        for value in values[1:]:
            sums = np.concatenate([sums + value, sums - value])
        return float(np.mean(np.abs(sums) >= bound)) if len(sums) else 1.0
    if generator is None:
        raise ParibusError(
            f"{len(values)} differences have too many sign flips to enumerate",
            expected=f"a named generator above {EXACT_SIGN_FLIP_SEEDS} differences",
            received="none",
            remedy="pass paribus.seeds.generator(...)",
        )
    hits = 0
    for start in range(0, SIGN_FLIP_DRAWS, 10_000):
        rows = min(10_000, SIGN_FLIP_DRAWS - start)
        signs = generator.integers(0, 2, size=(rows, len(values)), dtype=np.int8) * 2 - 1
        hits += int(np.sum(np.abs(signs @ values) >= bound))
    return (1 + hits) / (1 + SIGN_FLIP_DRAWS)


def scored(paired: PairedDifferences, sign: int) -> tuple[float, ...]:
    """Differences for the sign-flip test, one for each pair, in the unit of the metric.

    A seed lost by divergence of one arm is as bad for it as the largest |difference|; both diverged is a tie, 0.
    """
    largest = max((abs(difference) for difference in paired.differences), default=0.0) or 1.0
    lost = (-sign * largest,) * len(paired.only_treatment_diverged)
    won = (sign * largest,) * len(paired.only_baseline_diverged)
    ties = paired.pairs - len(paired.differences) - len(lost) - len(won)
    return (*paired.differences, *lost, *won, *(0.0,) * ties)


def wins(paired: PairedDifferences, sign: int) -> int:
    """Pairs (of `paired.pairs`) in which the treatment is better. Equal values, or both diverged, are no win."""
    return sum(value * sign > 0 for value in scored(paired, sign))


def median_difference(paired: PairedDifferences, sign: int) -> float | None:
    """Median difference, in the unit of the metric; a lost seed ranks worst, both diverged is left out.

    None where the middle is a diverged seed, or nothing is left.
    """
    lost = [-sign * math.inf] * len(paired.only_treatment_diverged)
    won = [sign * math.inf] * len(paired.only_baseline_diverged)
    ranked = sorted([*paired.differences, *lost, *won])
    if not ranked:
        return None
    low, high = ranked[(len(ranked) - 1) // 2], ranked[len(ranked) // 2]
    return (low + high) / 2 if math.isfinite(low) and math.isfinite(high) else None


def worst_seed(paired: PairedDifferences, sign: int) -> tuple[int, float | None] | None:
    """The seed worst for the treatment and its difference in the unit of the metric (None: the treatment diverged)."""
    if paired.only_treatment_diverged:
        return paired.only_treatment_diverged[0], None
    if not paired.seeds:
        return None
    difference, seed = min(zip(paired.differences, paired.seeds, strict=True), key=lambda pair: sign * pair[0])
    return seed, difference


def mcnemar_exact_p(only_first: int, only_second: int) -> float:
    """Exact two-sided McNemar p value of two discordant counts: binomial(min; sum, 1/2), doubled, at most 1."""
    fewer, total = min(only_first, only_second), only_first + only_second
    return min(1.0, 2 * float(scipy.special.bdtr(fewer, total, 0.5))) if total else 1.0


def pair_correlation(treatment: Sequence[float], baseline: Sequence[float]) -> float | None:
    """Pearson correlation of the two arms' values over seeds; None below three pairs or where an arm is constant."""
    if len(treatment) < 3 or constant(treatment) or constant(baseline):
        return None
    return float(np.clip(np.corrcoef(treatment, baseline)[0, 1], -1.0, 1.0))


def unpaired_standard_error(*arms: Sequence[float] | NDArray[np.float64]) -> float | None:
    """Standard error of the contrast of the arms' means if the pairing were ignored, unit of the metric.

    Values come with the arm's weight in the contrast, whose sign does not matter. None below 2 pairs.
    """
    if len(arms[0]) < 2:
        return None
    variance = sum(float(np.var(values, ddof=1)) for values in arms)
    return math.sqrt(variance / len(arms[0]))
