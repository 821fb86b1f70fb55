"""How long the rest of a set will take. An update of one task costs several of another: they are not counted alike.

What a task still needs is counted in floating-point operations, and what one of them takes is measured on the tasks
that were trained before it, evaluation and the start of workers included. In a run of the smoke set on two cores an
update took 21 to 100 ms, a factor of 4.7 between tasks, and 10^9 operations 33 to 58 ms, a factor of 1.8: an estimate.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import fsum

from paribus.stats.power import count_of


@dataclass(frozen=True)
class Trained:
    """A task whose missing cells were trained."""

    flops: float
    """of the updates that were made"""
    seconds: float
    """wall time"""


def seconds_left(trained: Sequence[Trained], flops_to_go: Sequence[float]) -> float | None:
    """Wall time of the tasks to go, `flops_to_go` of each; None where nothing was measured."""
    flops, seconds = fsum(task.flops for task in trained), fsum(task.seconds for task in trained)
    return seconds / flops * fsum(flops_to_go) if flops > 0 and seconds > 0 else None


def left_in_words(trained: Sequence[Trained], flops_to_go: Sequence[float]) -> str:
    """Such as "3 tasks to go, about 4.2 min by their floating-point operations"."""
    told = f"{count_of(len(flops_to_go), 'task')} to go"
    left = seconds_left(trained, flops_to_go)
    return told if left is None else f"{told}, about {left / 60:.1f} min by their floating-point operations"
