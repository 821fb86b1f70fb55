"""The record of a contrast at other learning rates: whether its sign depends on the recipe."""

from dataclasses import dataclass


@dataclass(frozen=True)
class RateRow:
    """A contrast at one multiple of every learning rate of its arms."""

    contrast: str
    compared: str
    """what is subtracted from what"""
    scale: str
    metric: str
    unit: str
    factor: float
    """of every learning rate; 1 are the study's own cells"""
    mean: float | None
    """treatment minus baseline, in `unit`; None without a pair, and where a cell diverged: the rest is a selection"""
    interval: tuple[float, float] | None
    """95 % paired t; None as the mean, below two pairs, and where all are equal"""
    pairs: int
    """seeds at which every arm has a value"""
    diverged: int
    """cells that diverged at this rate"""
