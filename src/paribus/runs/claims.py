"""One trainer per cell. A claim is a file lock: the kernel releases it when its holder dies, however it dies."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from paribus.runs.records import explaining_storage

LOCK = ".claim"
PATIENCE_SECONDS = 0.2
"""a reader that only asks who holds the folder holds it for a moment itself"""


@contextmanager
def claim(folder: Path) -> Iterator[bool]:
    """Try to hold the folder while the block runs; yields False where another process holds it."""
    with explaining_storage(folder):
        folder.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder / LOCK)
    try:
        lock.acquire(timeout=PATIENCE_SECONDS)
    except Timeout:
        yield False
        return
    try:
        yield True
    finally:
        lock.release()


def claimed(folder: Path) -> bool:
    """Whether some process holds the folder now."""
    if not (folder / LOCK).exists():
        return False
    with claim(folder) as free:
        return not free
