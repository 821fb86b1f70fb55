"""The verdict rule on many pages at once; tests hold it equal to `paribus.stats.verdict.decide`.

Gains are (pages, contrasts, seeds) with the primary as contrast 0, positive where the treatment is better, all in one
unit. Words are indices into `WORDS`. Of the words that come before any test only "no information" occurs here.
"""

import functools
import math
from collections.abc import Callable

import numpy as np
import scipy
from draws import Floats
from numpy.typing import NDArray

from paribus.stats.extension import combination_bound, combined_z
from paribus.stats.looks import nominal_levels, serves_futility_only
from paribus.stats.rule import Word

WORDS = tuple(Word)
CODE = {word: code for code, word in enumerate(WORDS)}
WINS = [CODE[word] for word in WORDS if word.better or word.worse]
BETTER = [CODE[word] for word in WORDS if word.better]
NOT_ZERO = [CODE[word] for word in WORDS if word.not_zero]
EQUIVALENT = [CODE[Word.EQUIVALENT], CODE[Word.EQUIVALENT_NOT_ZERO]]
SETTLED = [*NOT_ZERO, CODE[Word.EQUIVALENT]]
ALPHA = 0.05

Codes = NDArray[np.int64]
Flags = NDArray[np.bool_]


def page_words(gains: Floats, margin: float, level_of: Callable[[float], float] = float) -> Codes:
    """Words of pages that are tested by the paired t test of all their seeds.

    `level_of` gives the nominal level of this look to an error rate of the whole study: the same where there is one.
    """
    p_t, p_equivalence = _p_values(gains, margin)
    steps = np.array([level_of(alpha) for alpha in _steps(gains)])
    level = _levels(p_t, level_of(ALPHA), steps)
    return _gated(_t_words(gains, margin, level, _levels(p_equivalence, level_of(ALPHA), steps)))


def words_at_looks(gains: Floats, margin: float, looks: tuple[int, ...]) -> list[Codes]:
    """Words at each planned look, from its first pairs; a look that serves futility only has none and is left out."""
    return [
        page_words(gains[..., :pairs], margin, lambda alpha, look=look: nominal_levels(looks, alpha)[look])
        for look, pairs in enumerate(looks)
        if not serves_futility_only(looks, look)
    ]


def stage_1_words(gains: Floats, margin: float, stage_1_alpha: float) -> Codes:
    """Words at the first stage of a declared extension."""
    return page_words(gains, margin, lambda alpha: alpha * stage_1_alpha / ALPHA)


def extended_words(gains: Floats, margin: float, stage_1_seeds: int, stage_1_alpha: float) -> Codes:
    """Words at the end of a declared extension; what the first stage settled stands."""
    share = stage_1_alpha / ALPHA
    stages = gains[..., :stage_1_seeds], gains[..., stage_1_seeds:]
    constant = identical(stages[0]) | identical(stages[1])
    with np.errstate(divide="ignore", invalid="ignore"):  # a stage without spread, which gives no word
        z, z_low, z_high = (np.where(constant, np.nan, combined_z(*stages, theta)) for theta in (0.0, -margin, margin))
    p_t, p_equivalence = (np.where(constant, 1.0, p) for p in _p_values(stages[0], margin))
    within = np.minimum(z_low, -z_high)
    two_sided = -scipy.special.ndtri(scipy.special.ndtr(-within) / 2)
    level = _levels(_whole_p(p_t, np.abs(z), stage_1_alpha), ALPHA, np.array(_steps(gains)))
    level_equivalence = _levels(_whole_p(p_equivalence, two_sided, stage_1_alpha), ALPHA, np.array(_steps(gains)))
    bound, bound_equivalence = (_bounds(levels, stage_1_alpha) for levels in (level, level_equivalence))
    one_sided = -scipy.special.ndtri(2 * scipy.special.ndtr(-bound_equivalence))
    mean = gains.mean(axis=2)
    final = _words(
        gains,
        margin,
        # Two stages may outweigh the mean of all pairs: it must lie on the same side.
        rejected=(np.abs(z) > bound) & (z * mean > 0),
        beyond=np.where(mean > 0, z_high >= bound, -z_low >= bound),
        equivalent=(within > one_sided) & (np.abs(mean) < margin),
    )
    first = _t_words(stages[0], margin, share * level, share * level_equivalence)
    words = np.where(np.isin(first, SETTLED), first, final)
    words[constant] = CODE[Word.NO_INFORMATION]
    return _gated(words)


def _p_values(gains: Floats, margin: float) -> tuple[Floats, Floats]:
    """p of no mean difference, and of the two one-sided tests; 1 where differences are identical."""
    seeds, mean, error, constant = gains.shape[2], gains.mean(axis=2), _error(gains), identical(gains)
    p_t = 2 * scipy.special.stdtr(seeds - 1, -np.abs(mean / error))
    p_equivalence = scipy.special.stdtr(seeds - 1, (np.abs(mean) - margin) / error)
    return np.where(constant, 1.0, p_t), np.where(constant, 1.0, p_equivalence)


def _error(gains: Floats) -> Floats:
    return np.where(identical(gains), np.nan, gains.std(axis=2, ddof=1) / math.sqrt(gains.shape[2]))


def _t_words(gains: Floats, margin: float, level: Floats, level_equivalence: Floats) -> Codes:
    """Words from t intervals at nominal levels, before the gate."""
    seeds, mean, error = gains.shape[2], np.abs(gains.mean(axis=2)), _error(gains)
    half = -scipy.special.stdtrit(seeds - 1, level / 2) * error
    return _words(
        gains,
        margin,
        rejected=mean > half,
        beyond=mean - half >= margin,
        equivalent=mean - scipy.special.stdtrit(seeds - 1, level_equivalence) * error < margin,
    )


def _whole_p(p_stage_1: Floats, z: Floats, stage_1_alpha: float) -> Floats:
    """p of both stages: the smallest alpha at which either rejects. Interpolated, exact at each level of Holm's."""
    alphas, bounds = _bound_by_alpha(stage_1_alpha)
    final = np.exp(np.interp(-z, -bounds, np.log(alphas)))
    return np.minimum(np.minimum(1.0, p_stage_1 * ALPHA / stage_1_alpha), np.nan_to_num(final, nan=1.0))


@functools.cache
def _bound_by_alpha(stage_1_alpha: float) -> tuple[Floats, Floats]:
    alphas = np.unique([*np.geomspace(1e-9, 0.999, 300), *(ALPHA / np.arange(1, 6))])
    return alphas, np.array([combination_bound(alpha * stage_1_alpha / ALPHA, alpha) for alpha in alphas])


def _bounds(levels: Floats, stage_1_alpha: float) -> Floats:
    """The bound on |Z| for the alpha of each contrast."""
    bounds = np.empty_like(levels)
    for alpha in np.unique(levels):
        bounds[levels == alpha] = combination_bound(float(alpha) * stage_1_alpha / ALPHA, float(alpha))
    return bounds


def _steps(gains: Floats) -> list[float]:
    """Holm's alpha for the smallest p value of the secondaries, the second smallest, ..."""
    secondaries = gains.shape[1] - 1
    return [ALPHA / (secondaries - rank) for rank in range(secondaries)]


def identical(gains: Floats) -> Flags:
    """Contrasts whose differences are identical up to rounding."""
    return np.ptp(gains, axis=2) <= 4 * np.finfo(np.float64).eps * np.abs(gains).max(axis=2)


def _levels(p_values: Floats, of_primary: float, steps: Floats) -> Floats:
    return np.concatenate([np.full_like(p_values[:, :1], of_primary), holm_levels(p_values[:, 1:], steps)], axis=1)


def holm_levels(p_values: Floats, steps: Floats) -> Floats:
    """The level at which Holm tests each p value of a row; behind the stop, the level of the stop.

    `steps` are the levels of the smallest p value, the second smallest, ...: alpha/m, alpha/(m - 1), ... at one look.
    """
    count = p_values.shape[1]
    if not count:
        return p_values
    order = np.argsort(p_values, axis=1, kind="stable")
    failed = np.take_along_axis(p_values, order, axis=1) > steps
    rank = np.arange(count)
    stop = np.where(failed.any(axis=1), failed.argmax(axis=1), count - 1)
    ranked = steps[np.minimum(rank[None, :], stop[:, None])]
    levels = np.empty_like(p_values)
    np.put_along_axis(levels, order, ranked, axis=1)
    return levels


def _words(gains: Floats, margin: float, *, rejected: Flags, beyond: Flags, equivalent: Flags) -> Codes:
    """The rule's lines from three tests: of 0, of the margin from outside, and of the margin from inside; no gate."""
    mean = gains.mean(axis=2)
    skewed = mean * np.median(gains, axis=2) < 0
    not_zero = rejected & ~skewed
    large = not_zero & (np.abs(mean) >= margin)
    better = np.where(beyond, CODE[Word.BETTER_BY_SMALLEST_EFFECT], CODE[Word.BETTER])
    worse = np.where(beyond, CODE[Word.WORSE_BY_SMALLEST_EFFECT], CODE[Word.WORSE])
    words = np.select(
        [large & (mean > 0), large, equivalent & not_zero, equivalent, not_zero, skewed],
        [
            better,
            worse,
            np.full_like(better, CODE[Word.EQUIVALENT_NOT_ZERO]),
            np.full_like(better, CODE[Word.EQUIVALENT]),
            np.full_like(better, CODE[Word.BELOW_SMALLEST_EFFECT]),
            np.full_like(better, CODE[Word.SKEWED]),
        ],
        CODE[Word.INCONCLUSIVE],
    )
    words[identical(gains)] = CODE[Word.NO_INFORMATION]
    return words


def _gated(words: Codes) -> Codes:
    """Secondaries have words of a test only behind a primary whose null of no difference was rejected."""
    open_gate = np.isin(words[:, :1], NOT_ZERO) | (words[:, 1:] == CODE[Word.NO_INFORMATION])
    words[:, 1:] = np.where(open_gate, words[:, 1:], CODE[Word.NOT_TESTED])
    return words
