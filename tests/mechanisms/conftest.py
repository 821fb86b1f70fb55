from collections.abc import Callable, Iterator
from types import ModuleType, SimpleNamespace

import pytest

from paribus import mechanisms
from paribus.mechanisms.contract import Geometry
from paribus.model.lawbench import LawBench


@pytest.fixture(scope="session")
def bench() -> LawBench:
    return LawBench()


@pytest.fixture(scope="session")
def geometry() -> Geometry:
    return Geometry(
        layers=4,
        width=24,
        heads=3,
        head_width=8,
        context_length=16,
        norm_eps=1e-6,
        kv_heads=3,
        vocabulary_size=31,
    )


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Make modules the entry points of the registry for the length of a test."""

    def forget() -> None:
        mechanisms.modules.cache_clear()
        mechanisms.mechanisms.cache_clear()

    def into_registry(*modules: ModuleType) -> None:
        points = [SimpleNamespace(name=module.__name__, load=lambda module=module: module) for module in modules]
        monkeypatch.setattr(mechanisms, "entry_points", lambda group: points if group == "paribus.mechanisms" else [])
        forget()

    yield into_registry
    monkeypatch.undo()
    forget()
