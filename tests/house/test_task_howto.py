"""The how-to of tasks stays true: its file is a task that passes every check, and a leak in it is found."""

import importlib.util
import io
import re
import sys
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from rich.console import Console

from paribus.data import tasks
from paribus.data.tasks.checks import check_task
from paribus.data.tasks.contract import Levels, Task, sample
from paribus.draining import train_missing
from paribus.errors import CorpusError
from paribus.experiment import loading
from paribus.planning.showing import describe
from paribus.reading.study import read_study
from paribus.stats.rounding import MINUS
from paribus.study import open_study, write_plan

HOWTO = Path(__file__).parents[2] / "docs" / "howto" / "add-a-task.md"
BLOCKS = {
    kind: re.findall(rf"```{kind}\n(.*?)```", HOWTO.read_text(encoding="utf-8"), re.DOTALL)
    for kind in ("python", "toml")
}


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The how-to's task, installed as a package of the user's own would be."""
    source, _ = BLOCKS["python"]
    (tmp_path / "echo.py").write_text(source, encoding="utf-8")
    found = importlib.util.spec_from_file_location("echo", tmp_path / "echo.py")
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    monkeypatch.setitem(sys.modules, "echo", module)
    found.loader.exec_module(module)
    monkeypatch.setattr(tasks, "entry_points", lambda **_: (EntryPoint("echo", "echo", "paribus.tasks"),))
    for cached in (tasks.modules, tasks.tasks):
        cached.cache_clear()
    yield module
    for cached in (tasks.modules, tasks.tasks):
        cached.cache_clear()


@pytest.mark.usefixtures("toy")
def test_the_howtos_task_is_found_and_passes_every_check() -> None:
    task = tasks.resolve("echo", {"distance": 5}, "base.corpus")
    check_task(task, 32)
    rows = sample(task, 0, 0, 4, 32)
    oracle = task.oracle(rows.tokens, 0)
    chosen = np.take_along_axis(oracle, rows.targets[..., None], -1)[..., 0]
    assert (chosen[rows.asked] == 1).all()


def test_the_howtos_test_passes(toy: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    _, source = BLOCKS["python"]
    monkeypatch.setitem(sys.modules, "mypackage", ModuleType("mypackage"))
    monkeypatch.setitem(sys.modules, "mypackage.echo", toy)
    names: dict[str, object] = {}
    exec(compile(source, "test_echo.py", "exec"), names)
    (test,) = [value for name, value in names.items() if name.startswith("test_") and callable(value)]
    test()


@pytest.mark.usefixtures("toy")
def test_the_howtos_experiment_file_is_planned_and_trains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """To the letter, but for a budget of two updates, and one seed."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "echo.toml").write_text(BLOCKS["toml"][-1], encoding="utf-8")
    said = io.StringIO()
    whole = loading.load(tmp_path / "echo.toml")
    describe(whole, tmp_path, tmp_path / "runs", Console(file=said, width=200))
    assert "echo" in said.getvalue()
    assert whole.base.task == tasks.resolve("echo", {"distance": 5}, "base.corpus")
    assert whole.contrasts["idea"].expected == "0"

    short = (
        BLOCKS["toml"][-1].replace("budget_tokens = 204_800", "budget_tokens = 2_048").replace("count = 5", "count = 1")
    )
    (tmp_path / "echo.toml").write_text(short, encoding="utf-8")
    study = open_study(loading.load(tmp_path / "echo.toml"), tmp_path, tmp_path / "runs")
    write_plan(study, [])
    train_missing(study, lambda _: None, lambda: False)
    found = read_study(study.experiment, tmp_path / "runs")
    assert [cell.state for cell in found.cells.values()] == ["complete", "complete"]
    assert all(len(cell.metrics) == 2 and "every" in cell.metrics[-1]["slices"] for cell in found.cells.values())


@pytest.mark.parametrize("knob", tasks.TAKEN)
def test_the_names_of_knobs_that_the_howto_calls_taken_are_refused(knob: str, toy: ModuleType) -> None:
    assert f"`{knob}`" in HOWTO.read_text(encoding="utf-8").partition("**Names of knobs**")[2].partition("are taken")[0]
    clash = type("Clash", (Task,), {"__annotations__": {knob: int}, knob: 1, "__module__": "echo"})
    toy.__dict__["Clash"] = clash
    with pytest.raises(CorpusError, match=f"no knob can be called '{knob}'"):
        tasks.resolve("echo", {}, "base.corpus")


def row_of(page: Path, task: str) -> list[str]:
    """The cells of the one row of a table that begins with the task's name."""
    (row,) = re.findall(rf"^\| `{task}` \|(.*)\|$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return row.split(" | ")


def names_in(cell: str) -> set[str]:
    """Names in backticks, with those between `k1` and `k8` where the cell says "to"."""
    found = set(re.findall(r"`(\w+)`", cell))
    for stem, first, last in re.findall(r"`([a-z]+)(\d)` to `[a-z]+(\d)`", cell):
        found |= {f"{stem}{number}" for number in range(int(first), int(last) + 1)}
    return found


@pytest.mark.parametrize("name", sorted(tasks.in_tree()))
def test_the_pages_name_every_slice_and_knob_of_every_task(name: str) -> None:
    task, docs = tasks.in_tree()[name], HOWTO.parents[1]
    slices, primary, knobs = row_of(docs / "howto" / "tunnel.md", name)
    assert set(task.slices) <= names_in(slices)
    assert primary.replace("`", "").replace(f" {MINUS} ", "-").strip() == task.primary
    inherited = re.search(r"as `(\w+)`", knobs)
    told = names_in(knobs) | (names_in(row_of(docs / "howto" / "tunnel.md", inherited[1])[2]) if inherited else set())
    assert set(task.model_fields) <= told
    assert set(task.slices) <= names_in(row_of(docs.parent / "README.md", name)[1])


def test_the_howtos_task_with_its_shortcut_undeclared_is_a_leak(toy: ModuleType) -> None:
    class Undeclared(toy.Echo):
        def levels(self, row_length: int) -> dict[str, Levels]:
            return {"every": Levels(super().levels(row_length)["every"].chance, 0.0, {})}

    with pytest.raises(CorpusError, match="places back"):
        check_task(Undeclared(), 32)
