"""Records of single trained models: what each cell is, how it trained, and what was read in it.

Losses are nats per token. None of these compares two arms; laid side by side some of them would, so `door.due` is
their door too.
"""

import re
from dataclasses import dataclass

EVERY_POSITION = "all"
"""the bucket that holds every counted position"""
_HEAD = re.compile(r"(?:^|\s)head:\d+$")


@dataclass(frozen=True)
class CellRow:
    """One training run as the seeds table shows it."""

    scale: str
    arm: str
    seed: int
    state: str
    """complete, missing, stale, running, diverged or failed"""
    digest: str
    test_nats_per_token: float | None
    test_bits_per_byte: float | None
    validation_nats_per_token: float | None
    final_training_loss_nats_per_token: float | None
    train_seconds: float | None
    tokens_per_second: float | None
    code_version: str


@dataclass(frozen=True)
class Curve:
    """Training loss of one cell, raw: one value per optimiser update."""

    scale: str
    arm: str
    seed: int
    tokens: tuple[int, ...]
    loss_nats_per_token: tuple[float, ...]


@dataclass(frozen=True)
class Measurement:
    """Likelihood of one split under one cell at one token budget; `mid_schedule` while the learning rate still runs."""

    scale: str
    arm: str
    seed: int
    tokens_seen: int
    split: str
    nats_per_token: float
    bits_per_byte: float | None
    """None for a task, whose targets have no bytes"""
    mid_schedule: bool


@dataclass(frozen=True)
class DiagnosticValue:
    """One number that a tap read: `group` is what it was read for (a role, a pair of roles, a depth source, a head)."""

    diagnostic: str
    unit: str
    scale: str
    arm: str
    seed: int
    layer: int
    site: str
    group: str
    value: float
    bucket: str = EVERY_POSITION
    """positions in the row that it was averaged over or, of a task, the slice of its targets"""
    standard_error: float | None = None
    """over documents, by the jackknife; None where there are too few"""
    documents: int | None = None

    @property
    def summary(self) -> bool:
        """Whether it stands for all heads and all positions, and so belongs into a figure."""
        return self.bucket == EVERY_POSITION and not self.of_head

    @property
    def of_head(self) -> bool:
        return _HEAD.search(self.group) is not None


@dataclass(frozen=True)
class DiagnosticText:
    """What a diagnostic is, for the caption: one sentence, and whether it is only a correctness check."""

    diagnostic: str
    title: str
    sentence: str
    correctness_only: bool


@dataclass(frozen=True)
class RouteChange:
    """How far one depth route of an arm moves from one seed to another: the null of a divergence between routes."""

    scale: str
    arm: str
    site: str
    layer: int
    role: str
    seeds: tuple[int, int]
    nats: float
    """Jensen-Shannon divergence per token, then averaged"""


@dataclass(frozen=True)
class InterventionValue:
    """Change in NLL that one variant of an intervention makes to one trained model on the probed documents."""

    intervention: str
    variant: str
    scale: str
    arm: str
    seed: int
    change: float
    """nats per token, changed model minus model as trained"""
    standard_error: float | None
    """over documents, by the jackknife; None below two"""
    documents: int


@dataclass(frozen=True)
class InterventionText:
    """What an intervention is, for the caption."""

    intervention: str
    title: str
    sentence: str
