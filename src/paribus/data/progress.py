"""How far a preparation is, for whoever draws a bar."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Advance:
    phase: str
    """what is being done, in words"""
    done: int
    total: int
    """0 where it is not known beforehand"""
    documents: int = 0
    """of the phase so far, as the next two"""
    bytes: int = 0
    """UTF-8 bytes of text"""
    tokens: int = 0


Progress = Callable[[Advance], None]


def silent(advance: Advance) -> None:
    """Draws nothing."""
    del advance
