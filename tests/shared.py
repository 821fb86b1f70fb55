"""What fixtures of several folders build: once for the whole test run, and so that it leaves the process as it was."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from filelock import FileLock

from paribus.train.determinism import set_deterministic


def built_once(factory: pytest.TempPathFactory, name: str, build: Callable[[Path], object]) -> Path:
    """A folder that is built once for the whole test run, also where several processes run tests.

    Every process asks under the same `name`. Who uses the folder reads it or copies it.
    """
    base = factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        base = base.parent
    folder = base / f"shared-{name}"
    with FileLock(base / f"shared-{name}.lock"):
        if not folder.exists():
            partial = base / f"shared-{name}.partial"
            partial.mkdir()
            build(partial)
            partial.rename(folder)
    return folder


@contextmanager
def process_as_it_was() -> Iterator[None]:
    """Training inside the tests' own process leaves nothing behind."""
    threads, deterministic = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        set_deterministic(deterministic)
