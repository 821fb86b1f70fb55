"""What every update runs defines no function inside a function: the tests check the shapes in each signature, and would
write that check anew at each call, two milliseconds every time."""

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "paribus"
EVERY_UPDATE = ["roles.py", "kernels/*.py", "model/*.py", "optim/*.py", "train/state.py", "train/step.py"]
FILES = sorted({path for pattern in EVERY_UPDATE for path in SOURCE.glob(pattern)})


def inner_functions(source: str) -> list[str]:
    """The functions that are defined inside another one, by name."""
    tree = ast.parse(source)
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    return [inner.name for outer in functions for inner in functions if inner is not outer and inner in ast.walk(outer)]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(SOURCE).as_posix())
def test_no_function_is_defined_anew_at_every_update(path: Path) -> None:
    assert inner_functions(path.read_text(encoding="utf-8")) == []


def test_the_check_sees_an_inner_function_and_no_method() -> None:
    assert inner_functions("def f():\n    def g(): ...\nclass C:\n    def h(self): ...\n") == ["g"]


def test_every_pattern_finds_a_file() -> None:
    assert all(list(SOURCE.glob(pattern)) for pattern in EVERY_UPDATE)
