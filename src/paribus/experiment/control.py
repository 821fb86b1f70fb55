"""The control of the schedule: what a longer decay would move, on the baseline and with nothing else changed."""

from paribus.errors import ExperimentFileError
from paribus.experiment.arm import Base

SCHEDULE_ARM = "schedule-sensitivity"
"""the arm that `schedule = true` in [robustness] stands for: the primary's baseline with a longer decay"""
DECAY = "schedule.decay"
LONGER = 1.5
"""times the decay"""
LEAST_CHANGE = 1e-3
"""of the run: what the warm-up must leave for a longer decay, so that there is something to see"""


def with_longer_decay(base: Base) -> Base:
    """The arm with its decay half as long again, or as long as its warm-up leaves. ExperimentFileError where that is
    no longer than it was."""
    schedule = base.schedule
    # Rounded, so that half as long again as 0.4 is 0.6 on every page.
    longer = round(min(LONGER * schedule.decay, 1.0 - schedule.warmup), 12)
    if longer < schedule.decay + LEAST_CHANGE:
        raise ExperimentFileError(
            "robustness.schedule: the decay of the primary's baseline cannot be longer",
            expected="a decay above 0 that ends below what the warm-up leaves of the run",
            received=f"warmup = {schedule.warmup:g}, decay = {schedule.decay:g}",
            remedy="leave robustness.schedule out, or shorten one of them",
        )
    return base.model_copy(update={"schedule": schedule.model_copy(update={"decay": longer})})
