"""Spikes of a training loss: updates far above what the updates before them spread around. Descriptive, never a test.

    z = (loss - median) / (1.4826 MAD)      of the WINDOW updates before, at least FEWEST of them

A spike begins where z >= THRESHOLD and the loss is SMALLEST_HEIGHT nats or more above the median. It ends where the
loss is back within RECOVERED of these units, by the median and the spread of before it; until then nothing else begins.
Median and MAD (the median absolute deviation; 1.4826 makes it a standard deviation of normal noise) are moved far by
no minority of the window, so that a spike does not hide the next one. A fall is never a spike: the window's median lies
above the loss then. The steep fall at the beginning of a run counts as spread: a spike there must be as high.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

WINDOW = 100
"""updates: long enough for the spread to be known within some 8 %, short against the course of a run"""
FEWEST = 50
"""updates that must lie before: with fewer the spread itself is too uncertain, and a run that short has no spikes"""
THRESHOLD = 8.0
"""units of the spread. Of 4 million updates of normal noise none lies so high above a window of 100 (one in 4 million
does at 6), of t noise with 10 degrees of freedom 5 in a million, with 5 degrees 200, and those only where the height
below lets them (simulated)"""
SMALLEST_HEIGHT = 0.1
"""nats: a loss this far off is a tenth less likely by the model a token; without it every breath of a task that is
solved, whose losses hardly spread, would be a spike"""
RECOVERED = 3.0
"""units of the spread above the median of before"""
_CHUNK = 4096
_NORMAL = 1.4826


@dataclass(frozen=True)
class Spike:
    """A loss far above what the updates before it spread around."""

    begins: int
    """index of its first update"""
    z: float
    """of its first update, in units of the spread; infinite where the window did not spread"""
    height: float
    """its highest loss above the median before it, nats"""
    lasts: int | None
    """updates until the loss was back; None where it was not to the end of the run"""


def spikes(losses: Sequence[float] | NDArray[np.float64]) -> list[Spike]:
    """Every spike of one run, in order; `losses` are finite, one an update."""
    loss = np.asarray(losses, dtype=np.float64)
    found: list[Spike] = []
    free_from = 0
    for begin in _candidates(loss):
        if begin < free_from:
            continue
        middle, spread = _window(loss, begin)
        back = np.flatnonzero(loss[begin:] <= middle + RECOVERED * spread)
        lasts = int(back[0]) if back.size else None
        free_from = len(loss) if lasts is None else begin + lasts
        height = float(loss[begin:free_from].max() - middle)
        z = float((loss[begin] - middle) / spread) if spread else np.inf
        found.append(Spike(begin, z, height, lasts))
    return found


def _window(loss: NDArray[np.float64], at: int) -> tuple[float, float]:
    """(median, spread) of the updates before one."""
    before = loss[max(at - WINDOW, 0) : at]
    middle = float(np.median(before))
    return middle, _NORMAL * float(np.median(np.abs(before - middle)))


def _candidates(loss: NDArray[np.float64]) -> list[int]:
    """Updates that lie far enough above the window before them."""
    found = [at for at in range(FEWEST, min(WINDOW, len(loss))) if _is_far(loss[at], *_window(loss, at))]
    if len(loss) > WINDOW:
        windows = np.lib.stride_tricks.sliding_window_view(loss, WINDOW)[:-1]
        for first in range(0, len(windows), _CHUNK):
            part, then = windows[first : first + _CHUNK], loss[first + WINDOW : first + WINDOW + _CHUNK]
            middle = np.median(part, axis=1)
            # A deviation is only asked for where the height alone would do.
            high = np.flatnonzero(then - middle >= SMALLEST_HEIGHT)
            spread = _NORMAL * np.median(np.abs(part[high] - middle[high, None]), axis=1)
            far = then[high] - middle[high] >= THRESHOLD * spread
            found += [first + WINDOW + int(at) for at in high[far]]
    return found


def _is_far(loss: float, middle: float, spread: float) -> bool:
    return loss - middle >= max(SMALLEST_HEIGHT, THRESHOLD * spread)
