"""The learning-rate multiplier as a pure function of the step. Fractions of the run, so that budgets compare."""

from paribus.optim.config import ScheduleConfig


def multiplier(step: int, steps: int, schedule: ScheduleConfig) -> float:
    """Multiplier of update `step` (counted from 0) in a run of `steps` updates.

    The middle of the update, (step + 1/2) / steps, is its place in the run: no update has multiplier zero.
    """
    place = (step + 0.5) / steps
    rising = place / schedule.warmup if place < schedule.warmup else 1.0
    left = 1.0 - place
    falling = schedule.final + (1.0 - schedule.final) * left / schedule.decay if left < schedule.decay else 1.0
    return min(rising, falling)
