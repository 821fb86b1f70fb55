"""Records of how single runs went: loss spikes, and runs that ended in NaN or infinity. None is ever left out."""

from dataclasses import dataclass


@dataclass(frozen=True)
class SpikeRow:
    """A spike of one run's training loss, by the rule of `paribus.stats.spikes`."""

    scale: str
    arm: str
    seed: int
    variant: str
    """which of the arm's cells at this seed, in words; empty for the study's own"""
    step: int
    """its first update"""
    tokens_seen: int
    height: float
    """its highest loss above the median of the updates before it; nats per token, of a task per target"""
    z: float
    """of its first update, in units of the spread of those before; infinite where they did not spread"""
    recovered_after_updates: int | None
    """None where the loss was not back at the end of the run"""


@dataclass(frozen=True)
class DivergedRow:
    """A run that ended in NaN or infinity, and what is on record of why."""

    scale: str
    arm: str
    seed: int
    variant: str
    step: int | None
    """update after which it ended; None where that is not on record"""
    reason: str
    first_tensor: str
    """the first that was not finite, in words; empty where it is not known"""
    batch_digest: str
    """of the update's batch, 16 hexadecimal digits; empty where it is not on record"""
    folder: str
    """of the cell below the study's folder, for `paribus replay`"""
    last_loss_nats_per_token: float | None
    """the last that was finite; None where none is on record"""
