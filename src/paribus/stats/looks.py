"""Planned looks: the level of each, so that all of them together err in at most alpha of null studies.

At look k, with n_k of N planned pairs, the t test of those pairs is made at the nominal two-sided level

    a_k = 2 Phi(-C sqrt(N / n_k)),

the shape of O'Brien and Fleming (1979), which spends little early, read on the t(n_k - 1) scale. C is not theirs: it is
solved for, so that the chance of any rejection is exactly alpha under normal noise. (Their bounds, made for z and put
on t with few degrees of freedom, err far more often.) A look below 5 pairs serves futility only, and its level is 0.

**The chance of any rejection**, without simulation. With S_n and Q_n the sum and the sum of squares of n differences
and W_n = S_n / sqrt(n Q_n), |t_n| is an increasing function of |W_n|. Under normal noise with mean 0 the direction of
the first n differences is independent of Q_n, so W is a Markov chain:

    W_{n+m} = (sqrt(n R) W_n + sqrt(m (1 - R)) W') / sqrt(n + m),    R ~ Beta(n/2, m/2),

with W' an independent copy of W_m. The chance is summed backwards over the looks: cells in W, Gauss-Jacobi in R.
"""

import functools
import itertools
import math
from collections.abc import Sequence

import numpy as np
import scipy
from numpy.typing import NDArray

from paribus.errors import ParibusError
from paribus.stats.power import below_margin_power, equivalence_power, rule_power

FEWEST_PAIRS_FOR_A_WIN = 5
"""An earlier look below this serves futility only; at the planned number of pairs the rule needs 3."""
FEWEST_PAIRS = 3
MOST_LOOKS = 5
DEFAULT_LOOKS = (5, 8)
FUTILE = 0.1
"""A look is futile where, were its estimate the truth, a study of the planned size would find a word this rarely."""

_CALIBRATED: dict[tuple[tuple[int, ...], float], float] = {(DEFAULT_LOOKS, 0.05): 2.018098}
"""C of the default, so that no command waits for it; a test solves for it again."""

_CELLS = 48
"""Of |W| between 0 and the bound of a look: halving their width moves no probability by more than 2e-5."""
_RATIO_NODES = 128


def check_looks(looks: tuple[int, ...], planned_seeds: int) -> None:
    """ParibusError unless the looks increase from at least 3 pairs to the planned number; none at all is fine."""
    if not looks:
        return
    what, expected = "", ""
    if any(later <= earlier for earlier, later in itertools.pairwise(looks)):
        what, expected = "looks must increase", "each look at more pairs than the one before"
    elif looks[0] < FEWEST_PAIRS:
        what, expected = "a look needs at least 3 pairs", f"looks of {FEWEST_PAIRS} pairs or more"
    elif looks[-1] != planned_seeds:
        what, expected = "the last look must be at the planned seeds", f"a last look at {planned_seeds} pairs"
    elif len(looks) > MOST_LOOKS:
        what, expected = "too many looks", f"at most {MOST_LOOKS}"
    if what:
        raise ParibusError(
            what,
            expected=expected,
            received=", ".join(map(str, looks)),
            remedy=f"for {planned_seeds} planned seeds declare, say, looks = [5, {max(planned_seeds, 8)}], or none",
        )


def serves_futility_only(looks: Sequence[int], look: int) -> bool:
    """Whether look number `look` (from 0) may only say that going on is futile."""
    return look < len(looks) - 1 and looks[look] < FEWEST_PAIRS_FOR_A_WIN


def nominal_levels(looks: Sequence[int], alpha: float) -> tuple[float, ...]:
    """The two-sided level of the t test at each look; 0 where a look serves futility only.

    A t test of the first n pairs at each look, at these levels, rejects somewhere in exactly `alpha` of null studies
    under normal noise. Levels rise with `alpha`, so Holm's steps over m hypotheses use nominal_levels(looks, alpha/m)
    and so on: by Bonferroni's inequality over hypotheses, each with all its looks, the family errs in at most alpha.
    """
    return _levels(tuple(looks), _constant(tuple(looks), round(alpha, 12)))


def rejection_probability(looks: Sequence[int], levels: Sequence[float]) -> float:
    """The chance that a null study of normal differences rejects at any look; two-sided `levels` of the t tests."""
    used = [(pairs, level) for pairs, level in zip(looks, levels, strict=True) if level > 0]
    if not used:
        return 0.0
    bounds = [_bound(pairs, level) for pairs, level in used]
    # later[c]: the chance of a rejection after the present look from cell c, whose edges are those of its bound.
    later = np.zeros(_CELLS)
    for look in reversed(range(len(used) - 1)):
        pairs, more = used[look][0], used[look + 1][0] - used[look][0]
        here, edges = _edges(bounds[look]), _edges(bounds[look + 1])
        middles = (here[1:] + here[:-1]) / 2
        low, high = _cdf_after(middles, edges[-1] * np.array([-1.0, 1.0]), pairs, more).T
        outside = low + 1 - high
        if look + 2 < len(used):
            below = _cdf_after(middles, np.concatenate([-edges[:0:-1], edges]), pairs, more)
            cells = np.diff(below, axis=1)
            outside += (cells[:, _CELLS:] + cells[:, _CELLS - 1 :: -1]) @ later
        later = outside
    first = 2 * np.diff(_cdf(used[0][0], _edges(bounds[0])))
    return float(used[0][1] + first @ later)


def repeated_p(looks: Sequence[int], look: int, p: float) -> float:
    """The p value at look number `look` (from 0) that allows for all looks: Jennison & Turnbull's repeated p value.

    It is the alpha whose nominal level at this look is `p`, so it is at most alpha exactly where the look rejects.
    """
    return _repeated_p(tuple(looks), look, p)


@functools.lru_cache(maxsize=4096)
def _repeated_p(looks: tuple[int, ...], look: int, p: float) -> float:
    if serves_futility_only(looks, look):
        return 1.0
    constant = -float(scipy.special.ndtri(p / 2)) * math.sqrt(looks[look] / looks[-1])
    if not math.isfinite(constant):
        return p
    return min(1.0, max(p, rejection_probability(looks, _levels(looks, constant))))


def chance_of_a_word(seeds: int, effect_sd: float, margin_sd: float, level: float) -> float:
    """Were `effect_sd` the truth: how often a study of `seeds` pairs tested at `level` says more than inconclusive."""
    confidence, effect = 1 - level, abs(effect_sd)
    found = (
        rule_power(seeds, effect, margin_sd, confidence)
        + below_margin_power(seeds, effect, margin_sd, confidence)
        + equivalence_power(seeds, margin_sd, effect, confidence)
    )
    return min(1.0, found)


def futile(looks: Sequence[int], mean_sd: float, margin_sd: float, alpha: float) -> bool:
    """Whether, were the mean at a look the truth, the planned seeds would bring a word in fewer than 10 % of studies.

    `mean_sd` and `margin_sd` are in units of the sd of the paired difference. Not binding: no level relies on it.
    """
    return chance_of_a_word(looks[-1], mean_sd, margin_sd, nominal_levels(looks, alpha)[-1]) < FUTILE


@functools.lru_cache(maxsize=256)
def _constant(looks: tuple[int, ...], alpha: float) -> float:
    if (looks, alpha) in _CALIBRATED:
        return _CALIBRATED[looks, alpha]
    return solve_constant(looks, alpha)


def solve_constant(looks: tuple[int, ...], alpha: float) -> float:
    """C of the module's equation for which the chance of any rejection is `alpha`."""
    count = sum(not serves_futility_only(looks, look) for look in range(len(looks)))
    low, high = (-float(scipy.special.ndtri(level / 2)) for level in (alpha, alpha / count))
    if count == 1:
        return low
    # At `low` the last look alone spends alpha, at `high` Bonferroni's inequality keeps all looks below it.
    return float(
        scipy.optimize.brentq(lambda c: rejection_probability(looks, _levels(looks, c)) - alpha, low, high, xtol=1e-7)
    )


def _levels(looks: tuple[int, ...], constant: float) -> tuple[float, ...]:
    return tuple(
        0.0
        if serves_futility_only(looks, look)
        else 2 * float(scipy.special.ndtr(-constant * math.sqrt(looks[-1] / pairs)))
        for look, pairs in enumerate(looks)
    )


def _bound(pairs: int, level: float) -> float:
    """|W| beyond which the t test of `pairs` differences rejects at the two-sided `level`."""
    t = float(scipy.special.stdtrit(pairs - 1, level / 2))
    return abs(t) / math.sqrt(t * t + pairs - 1) if math.isfinite(t) else 1.0


def _edges(bound: float) -> NDArray[np.float64]:
    return np.linspace(0.0, bound, _CELLS + 1)


def _cdf(count: int, w: NDArray[np.float64]) -> NDArray[np.float64]:
    """P(W_count <= w): W is +-1 for one difference, and from two on W sqrt(count - 1)/sqrt(1 - W^2) is Student's t."""
    if count == 1:
        return np.where(w >= 1, 1.0, np.where(w < -1, 0.0, 0.5))
    inside = np.clip(w, -1.0, 1.0)
    if count == 2:
        return 0.5 + np.arcsin(inside) / np.pi
    tail = scipy.special.betainc((count - 1) / 2, 0.5, 1 - inside**2) / 2
    return np.where(inside < 0, tail, 1 - tail)


def _cdf_after(w: NDArray[np.float64], y: NDArray[np.float64], pairs: int, more: int) -> NDArray[np.float64]:
    """P(W_{pairs + more} <= y | W_pairs = w), [w y]."""
    ratio, weights = _ratio_nodes(pairs, more)
    known = np.sqrt(pairs * ratio) * w[:, None, None]
    new = (y[None, :, None] * math.sqrt(pairs + more) - known) / np.sqrt(more * (1 - ratio))
    return _cdf(more, new) @ weights


@functools.lru_cache(maxsize=64)
def _ratio_nodes(pairs: int, more: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Nodes and weights (of sum 1) of R ~ Beta(pairs/2, more/2)."""
    nodes, weights = scipy.special.roots_jacobi(_RATIO_NODES, more / 2 - 1, pairs / 2 - 1)
    return (1 + nodes) / 2, weights / weights.sum()
