"""The record of how far a difference moves with what nobody asked about: another schedule, another value of a field."""

from dataclasses import dataclass
from typing import Literal

Value = bool | int | float | str
Kind = Literal["effect", "schedule", "value"]


@dataclass(frozen=True)
class SensitivityRow:
    """A difference of two arms that stands beside a contrast and decides nothing."""

    kind: Kind
    """"effect": the primary itself; "schedule": the baseline with a longer decay minus the baseline; "value": an arm at
    one value of a field minus what it is compared with"""
    contrast: str
    """the verdict's name that it stands beside"""
    compared: str
    """what is subtracted from what"""
    scale: str
    metric: str
    unit: str
    of: str
    """the arm whose field is changed; empty for an effect"""
    knob: str
    """path of the field; empty for an effect"""
    value: Value | None
    own: Value | None
    """the field's value in the arm itself"""
    mean: float | None
    """in `unit`; None without a pair, and where a cell diverged: the rest is a selection"""
    interval: tuple[float, float] | None
    """95 % paired t; None as the mean, below two pairs, and where all are equal"""
    pairs: int
    """seeds at which every arm has a value"""
    planned: int
    """seeds at which it is to have one"""
    diverged: int
    """cells"""

    @property
    def is_own(self) -> bool:
        """Whether the arm is at the value that the file gives it, so that its cells are the study's own."""
        return (
            self.kind == "value"
            and self.value == self.own
            and isinstance(self.value, bool) == isinstance(self.own, bool)
        )
