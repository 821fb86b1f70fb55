"""The how-to stays true: its file is a mechanism, its laws hold and can fail, its test passes."""

import importlib.util
import re
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from paribus import mechanisms
from paribus.mechanisms.contract import Seam
from paribus.mechanisms.laws import universal
from paribus.model.lawbench import LawBench

HOWTO = Path(__file__).parents[2] / "docs" / "howto" / "add-a-mechanism.md"


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The how-to's mechanism, installed as a package of the user's own would be; and its test's source."""
    source, test = re.findall(r"```python\n(.*?)```", HOWTO.read_text(encoding="utf-8"), re.DOTALL)
    (tmp_path / "damped.py").write_text(source, encoding="utf-8")
    found = importlib.util.spec_from_file_location("damped", tmp_path / "damped.py")
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    monkeypatch.setitem(sys.modules, "damped", module)
    monkeypatch.setitem(sys.modules, "paribus.mechanisms.damped", module)
    found.loader.exec_module(module)
    point = EntryPoint("damped", "damped", "paribus.mechanisms")
    monkeypatch.setattr(mechanisms, "entry_points", lambda **_: (point,))
    for cached in (mechanisms.modules, mechanisms.mechanisms):
        cached.cache_clear()
    yield module, test
    for cached in (mechanisms.modules, mechanisms.mechanisms):
        cached.cache_clear()


def test_the_howtos_mechanism_is_found_and_its_laws_hold_and_can_fail(toy) -> None:
    module, _ = toy
    assert "damped-output" in mechanisms.mechanisms(Seam.OUTPUT_MAP)
    bench = LawBench()
    for law in (*module.LAWS, *universal({"output_map": {"name": "damped-output"}})):
        assert law.measure(bench, False) <= law.bound, law.claim
        assert law.measure(bench, True) > law.bound, law.claim


def test_the_howtos_test_passes(toy) -> None:
    _, source = toy
    names: dict[str, object] = {}
    exec(compile(source, "test_damped.py", "exec"), names)
    tests = [value for name, value in names.items() if name.startswith("test_") and callable(value)]
    assert len(tests) == 1
    tests[0]()
