"""Records of how the study was conducted: what was held equal, sizes and tuning of the arms, looks, and A/A."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class HeldEqual:
    """One thing that the arms of the study share, and how that was proven."""

    what: str
    proof: str
    holds: bool
    gate: bool = False
    """checked before training started, on a small model or on the plan; shown folded"""


@dataclass(frozen=True)
class ArmParameters:
    """Trainable parameters of an arm at a scale, by role."""

    scale: str
    arm: str
    by_role: Mapping[str, int]
    total: int
    flops_per_token: float


@dataclass(frozen=True)
class Look:
    """One time that somebody saw the study's state of evidence (a line of the append-only ledger)."""

    time: str
    command: str
    pairs: Mapping[str, int]
    """complete pairs per contrast"""
    words: Mapping[str, str]
    """verdict word shown per contrast; empty where none was due"""
    rule_digest: str


@dataclass(frozen=True)
class NoiseRow:
    """One kind of A/A: the same architecture against itself."""

    kind: str
    """"repeat" (kernel noise), "perturbed twin" (the floor of sd_D) or "other seed" (unpaired noise)"""
    scale: str
    arm: str
    metric: str
    unit: str
    differences: tuple[float, ...]
    """one a pair; of other seeds one for each two cells, which are not independent"""
    sd_of_difference: float | None
    """of a paired difference of this kind, unit of the metric; None where one pair says nothing"""
    contrast_sd: float | None
    """sd_D of the primary contrast, to stand beside it; None where it is not due"""


@dataclass(frozen=True)
class TrialRow:
    """One value of a tuned field, tried on the tuning seeds and scored on what no verdict uses."""

    scale: str
    arm: str
    knob: str
    value: float
    scores: tuple[float | None, ...]
    """one a tuning seed, lower is better; None where it diverged or is missing"""
    chosen: bool
    scored_on: str = "validation split"
    """what a score is of"""
    unit: str = "nats per token"
    """of a score"""

    @property
    def mean_score(self) -> float | None:
        """The mean over tuning seeds; None where a seed of it is missing or diverged."""
        finite = [score for score in self.scores if score is not None and math.isfinite(score)]
        return sum(finite) / len(finite) if finite and len(finite) == len(self.scores) else None


def best_score(trials: Sequence[TrialRow], scale: str, arm: str) -> float | None:
    """The lowest mean score of an arm; None where no trial of it has all of its scores."""
    means = (trial.mean_score for trial in trials if (trial.scale, trial.arm) == (scale, arm))
    return min((mean for mean in means if mean is not None), default=None)


@dataclass(frozen=True)
class TuningSummary:
    """How an arm was tuned."""

    scale: str
    arm: str
    knob: str
    trials: int
    chosen: float | None
    interior: bool
    """whether both neighbours of the chosen value were tried and are no better"""
    sentence: str
