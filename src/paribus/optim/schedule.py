"""What an update runs at, as pure functions of its number and the length of the run. Shares of the run, so that budgets
compare.

Every schedule is continuous and stays in its range whatever the shares: a run shorter than its warm-up, or one whose
decay begins before the warm-up ends, has no jump.
"""

import math
from dataclasses import dataclass

from paribus.optim.config import ScheduleConfig


@dataclass(frozen=True)
class Moment:
    """What the schedule makes of an optimiser's own numbers at one update; by default it leaves them as they are."""

    learning_rate: float = 1.0
    """factor in [0, 1] of every group's rate"""
    weight_decay: float = 1.0
    """factor in [0, 1] of the decay of hidden matrices"""
    momentum_share: float = 1.0
    """of Muon's momentum, this much is the optimiser's own..."""
    momentum_rest: float = 0.0
    """...and this is added to it"""

    def momentum(self, peak: float) -> float:
        """Muon's momentum at this update, where `peak` is the optimiser's own."""
        return self.momentum_rest + self.momentum_share * peak


PEAK = Moment()
"""between warm-up and decay"""


def moment(step: int, steps: int, schedule: ScheduleConfig) -> Moment:
    """Of update `step` (counted from 0) in a run of `steps` updates."""
    start, _ = _places(step, steps, schedule)
    risen = 1.0 if schedule.momentum_initial is None else min(1.0, start / schedule.momentum_warmup)
    fallen = 0.0 if schedule.momentum_final is None else 1.0 - min(1.0, max(0.0, 1.0 - start) / schedule.decay)
    initial, final = schedule.momentum_initial or 0.0, schedule.momentum_final or 0.0
    return Moment(
        learning_rate=multiplier(step, steps, schedule),
        weight_decay=1.0 if schedule.weight_decay == "constant" else (1.0 + math.cos(math.pi * min(1.0, start))) / 2,
        momentum_share=risen * (1.0 - fallen),
        momentum_rest=initial * (1.0 - risen) * (1.0 - fallen) + final * fallen,
    )


def multiplier(step: int, steps: int, schedule: ScheduleConfig) -> float:
    """Factor of the learning rates at update `step` (counted from 0) in a run of `steps` updates.

    The lower of the ramp that rises over the warm-up and the ramp that falls over the decay. No update of the warm-up
    has the factor zero, whichever place is counted.
    """
    start, end = _places(step, steps, schedule)
    rising = end / schedule.warmup if end < schedule.warmup else 1.0
    left = max(0.0, 1.0 - start)
    falling = schedule.final + (1.0 - schedule.final) * left / schedule.decay if left < schedule.decay else 1.0
    return min(rising, falling)


def settled_after(schedule: ScheduleConfig) -> float:
    """Share of the run from which on nothing changes until the decay begins; 1.0 where something always changes."""
    return 1.0 if schedule.weight_decay == "cosine" else max(schedule.warmup, schedule.momentum_warmup)


def _places(step: int, steps: int, schedule: ScheduleConfig) -> tuple[float, float]:
    """Shares of the run that are done when the update starts and ends, or twice its middle."""
    if schedule.place == "middle":
        return (step + 0.5) / steps, (step + 0.5) / steps
    return step / steps, (step + 1) / steps
