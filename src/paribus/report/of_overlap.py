"""The record of a contrast on the test documents without overlap: what of an effect may be recall of shared text."""

from dataclasses import dataclass


@dataclass(frozen=True)
class OverlapRow:
    """A contrast on the test documents that share no 13-gram with any training text; it decides nothing."""

    contrast: str
    """the verdict's name"""
    scale: str
    metric: str
    unit: str
    mean: float | None
    """treatment minus baseline in `unit`, over the free documents alone; None where nothing pairs, as `note` says"""
    standard_error: float | None
    """None as the mean, below two pairs, and where all differences are identical"""
    degrees_of_freedom: int | None
    interval: tuple[float, float] | None
    """paired t over seeds"""
    confidence: float
    """that of the verdict's interval"""
    mean_of_all: float | None
    """the verdict's, over all test documents that were scored"""
    pairs: int
    free_documents: int
    shared_documents: int
    """they have a 13-gram that stands in a training text"""
    unchecked_documents: int
    free_tokens: int
    shared_tokens: int
    unchecked_tokens: int
    note: str = ""

    @property
    def documents(self) -> int:
        return self.free_documents + self.shared_documents + self.unchecked_documents

    @property
    def tokens(self) -> int:
        return self.free_tokens + self.shared_tokens + self.unchecked_tokens
