"""Two unpaired groups of right-censored values: a normal fit (Tobit 1958) and the log-rank test (Mantel 1966).

Both describe; neither carries a verdict. They ignore that cells are paired by seed, and the fit rests on normality
beyond the limit, where nothing was seen. A value that is censored is known only to lie above the common limit c.

**Tobit.** Values of group g are normal with mean mu_g and a common sd. With h = 1/sd and theta_g = (mu_g - c) h the log
likelihood

    sum over seen of  ln h - (h (y - c) - theta_g)^2 / 2    +    sum over censored of  ln Phi(theta_g)

is concave (Olsen 1978), so Newton's method with halved steps finds the one maximum.

**Log-rank.** At each time with an event, d of n at risk, the events of the first group are hypergeometric with mean
n_1 d / n and variance n_1 n_2 d (n - d) / (n^2 (n - 1)); z = sum(seen - mean) / sqrt(sum variance).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import NDArray

from paribus.errors import ParibusError
from paribus.stats.paired import constant

Array = NDArray[np.float64]

_Z_95 = 1.959963984540054
_STEPS = 1000
_NEAR, _CONVERGED = 1e-6, 1e-18
"""Of the squared Newton decrement, about twice what the log likelihood may still gain: 1e-18 is 1e-9 sd of theta."""


@dataclass(frozen=True)
class Tobit:
    """Maximum likelihood of two normal groups with a common sd, censored above one limit; unit of the values."""

    difference: float
    """mean of the first group minus mean of the second"""
    standard_error: float
    """from the observed information; asymptotic, so too small for a handful of seeds"""
    interval: tuple[float, float]
    """difference +- 1.96 standard errors"""
    sd: float


def tobit(first: Sequence[float | None], second: Sequence[float | None], limit: float) -> Tobit | None:
    """The fit of two groups; None is a censored value, above `limit`.

    None where there is no maximum: a group without a value that was seen, or values that leave the sd nothing to
    explain. ParibusError for a value that is not finite or lies above the limit.
    """
    groups = [_seen(first, limit), _seen(second, limit)]
    if any(not len(seen) for seen, _ in groups):
        return None
    if all(constant(seen.tolist(), abs(limit)) and (not count or seen[0] == 0) for seen, count in groups):
        return None
    theta = _maximum(groups)
    first_theta, second_theta, h = theta
    difference = (first_theta - second_theta) / h
    slope = np.array([1 / h, -1 / h, -difference / h])
    error = math.sqrt(float(slope @ np.linalg.solve(-_derivatives(theta, groups)[1], slope)))
    return Tobit(difference, error, (difference - _Z_95 * error, difference + _Z_95 * error), float(1 / h))


def logrank_p(first: Sequence[float | None], second: Sequence[float | None], limit: float) -> float | None:
    """Two-sided log-rank p value of two groups; None is a censored value, above `limit`.

    From the normal approximation, without continuity correction. None where no event tells the groups apart.
    ParibusError as for `tobit`.
    """
    (one, one_censored), (other, other_censored) = _seen(first, limit), _seen(second, limit)
    surprise, variance = 0.0, 0.0
    for time in np.unique(np.concatenate([one, other])):
        at_risk, others = int((one >= time).sum()) + one_censored, int((other >= time).sum()) + other_censored
        total, events = at_risk + others, int((one == time).sum() + (other == time).sum())
        surprise += int((one == time).sum()) - at_risk * events / total
        if total > 1:
            variance += at_risk * others * events * (total - events) / (total**2 * (total - 1))
    if variance <= 0:
        return None
    return 2 * float(scipy.special.ndtr(-abs(surprise) / math.sqrt(variance)))


def _seen(values: Sequence[float | None], limit: float) -> tuple[Array, int]:
    """Values that were seen, relative to the limit, and how many were not."""
    seen = np.array([value for value in values if value is not None], np.float64)
    if not math.isfinite(limit) or not np.isfinite(seen).all() or (seen > limit).any():
        raise ParibusError(
            "a value does not fit its censoring limit",
            expected="finite values at or below a finite limit, and None for what lies above it",
            received=f"{seen[~(seen <= limit)].tolist()} with the limit {limit}",
            remedy="pass None for what was not seen within the limit",
        )
    return seen - limit, len(values) - len(seen)


def _log_likelihood(theta: Array, groups: list[tuple[Array, int]]) -> float:
    """Without its constant; theta is (theta_1, theta_2, h)."""
    h = float(theta[2])
    if h <= 0:
        return -math.inf
    total = 0.0
    for at, (seen, count) in zip(theta[:2], groups, strict=True):
        total += len(seen) * math.log(h) - float(((h * seen - at) ** 2).sum()) / 2
        total += count * float(scipy.special.log_ndtr(at))
    return total


def _derivatives(theta: Array, groups: list[tuple[Array, int]]) -> tuple[Array, Array]:
    """Gradient [3] and Hessian [3 3] of the log likelihood."""
    h = theta[2]
    gradient, hessian = np.zeros(3), np.zeros((3, 3))
    for index, (seen, count) in enumerate(groups):
        at, residual = theta[index], h * seen - theta[index]
        # The inverse Mills ratio phi(at) / Phi(at); the scaled erfc holds far in either tail.
        mills = math.sqrt(2 / math.pi) / float(scipy.special.erfcx(-at / math.sqrt(2)))
        gradient[index] = residual.sum() + count * mills
        gradient[2] += len(seen) / h - residual @ seen
        hessian[index, index] = -len(seen) - count * mills * (at + mills)
        hessian[index, 2] = hessian[2, index] = seen.sum()
        hessian[2, 2] -= len(seen) / h**2 + seen @ seen
    return gradient, hessian


def _maximum(groups: list[tuple[Array, int]]) -> Array:
    """(theta_1, theta_2, h) at the maximum."""
    # A wide start: from one far too narrow a step of Newton's gains nothing that rounding leaves.
    h = 1 / float(np.sqrt(np.mean(np.concatenate([values for values, _ in groups]) ** 2)))
    theta: Array = np.array([*(values.mean() * h for values, _ in groups), h], np.float64)
    last = math.inf
    for _ in range(_STEPS):
        gradient, hessian = _derivatives(theta, groups)
        step: Array = np.linalg.solve(-hessian, gradient).astype(np.float64)
        gain, share = float(gradient @ step), 1.0
        if gain < _CONVERGED or last <= gain <= _NEAR:  # the second: nothing is left but rounding
            return theta + step
        here = _log_likelihood(theta, groups)
        # Near the maximum whole steps converge, and rounding of the log likelihood would refuse them.
        while gain > _NEAR and _log_likelihood(theta + share * step, groups) < here + share * gain / 4:
            share /= 2
        theta, last = theta + share * step, gain
    raise AssertionError("Newton's method on a concave function did not converge")
