"""What a reader hands over: texts with their sources, before anything is compared or dropped."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class RawTexts:
    texts: Iterable[tuple[str, str]]
    """(text, source), in an order that does not depend on the file system."""
    empty: int
    """Texts that were null or blank."""
    skipped_files: int
    """Files that could not be decoded or parsed."""
    versions: Mapping[str, str] = field(default_factory=dict)
    """Version per package read."""
