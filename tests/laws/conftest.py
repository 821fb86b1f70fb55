from collections.abc import Callable, Iterator
from functools import cache
from types import ModuleType, SimpleNamespace

import pytest

from paribus import mechanisms
from paribus.model.lawbench import LawBench

Install = Callable[[ModuleType], None]


@pytest.fixture(scope="session")
def bench_of() -> Callable[[str, int, int], LawBench]:
    """The bench of a backbone, of a number of query heads that share a value and of a length of rows, built once."""
    return cache(lambda backbone, group, time: LawBench(backbone, query_heads_per_kv_head=group, time=time))


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Make a module an entry point of the registry for the length of a test."""

    def forget() -> None:
        mechanisms.modules.cache_clear()
        mechanisms.mechanisms.cache_clear()

    def into_registry(module: ModuleType) -> None:
        point = SimpleNamespace(name=module.__name__, load=lambda: module)
        monkeypatch.setattr(mechanisms, "entry_points", lambda group: [point] if group == "paribus.mechanisms" else [])
        forget()

    yield into_registry
    monkeypatch.undo()
    forget()
