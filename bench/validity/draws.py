"""Simulated studies: cells around each arm's mean, and the paired differences that they give.

A cell of arm a at seed s is  sqrt(r) u_s + sqrt(1 - r) e_as  with u and e independent draws of one law of mean 0 and
variance 1, so two arms correlate by r over seeds and their difference has the sd sqrt(2 (1 - r)). Laws: normal; Student
t with 3 degrees of freedom; and the 20 public nanochat seeds, resampled with replacement around their mean (bits per
byte, and CORE). Spikes are another matter: in one of ten seeds the treatment jumps and the mean is still 0, which the t
interval cannot handle.
"""

import functools
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

NOISES = ("normal", "t3", "bits per byte", "CORE", "spikes")
"""What a cell varies by; the third and the fourth are the public seeds."""

PUBLIC = {"bits per byte": 1, "CORE": 2}
"""Columns of nanochat_seeds.csv."""


@functools.cache
def public_seeds(noise: str) -> Floats:
    """The public values of one metric [20], shifted and scaled to a mean of 0 and, as a population, an sd of 1."""
    values = np.loadtxt(Path(__file__).with_name("nanochat_seeds.csv"), delimiter=",")[:, PUBLIC[noise]]
    return (values - values.mean()) / values.std()


def draw_cells(rng: np.random.Generator, size: tuple[int, ...], noise: str) -> Floats:
    """Independent draws of mean 0 and variance 1."""
    if noise in PUBLIC:
        return rng.choice(public_seeds(noise), size)
    return rng.standard_t(3, size) / math.sqrt(3) if noise == "t3" else rng.standard_normal(size)


def draw_gains(
    rng: np.random.Generator,
    shape: tuple[int, int],
    noise: str,
    effects_sd: Sequence[float],
    correlation: float = 0.0,
) -> Floats:
    """Gains (pages, contrasts, seeds) in sd of the paired difference, for `shape` (pages, seeds).

    Each contrast compares a treatment of the given effect with one shared baseline, so contrasts are correlated.
    """
    pages, seeds = shape
    cells = draw_cells(rng, (pages, len(effects_sd) + 1, seeds), noise)
    if correlation:
        shared = draw_cells(rng, (pages, 1, seeds), noise)
        cells = math.sqrt(correlation) * shared + math.sqrt(1 - correlation) * cells
    gains = (cells[:, 1:] - cells[:, :1]) / math.sqrt(2 * (1 - correlation))
    if noise == "spikes":
        rate, part = 0.1, 0.9  # nine tenths of the variance comes from one treatment cell in ten
        spikes = (rng.random(gains.shape) < rate) - rate
        gains = math.sqrt(1 - part) * gains + math.sqrt(part / (rate * (1 - rate))) * spikes
    return gains + np.asarray(effects_sd)[None, :, None]
