"""Which tasks are found, and that a package from outside concerns only those who ask for one of its tasks."""

import importlib
import sys
from collections.abc import Callable, Iterator
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from paribus.data import tasks
from paribus.data.tasks.contract import Task
from paribus.data.tasks.stream import TaskCorpus
from paribus.errors import CorpusError, ExperimentFileError

TASK = '''
from typing import ClassVar

from paribus.data.tasks.static import Static


class Theirs(Static):
    name: ClassVar[str] = "theirs"

    {knob}: int = 3
    """a knob"""
'''
Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Install a module as a task: (entry point's name, module's name, source)."""
    points: list[EntryPoint] = []
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(tasks, "entry_points", lambda **_: points)
    tasks.tasks.cache_clear()

    def add(point: str, module: str, source: str) -> None:
        (tmp_path / f"{module}.py").write_text(source, encoding="utf-8")
        importlib.invalidate_caches()
        points.append(EntryPoint(point, module, tasks.GROUP))

    yield add
    tasks.tasks.cache_clear()
    for point in points:
        sys.modules.pop(point.value, None)


def test_a_task_of_the_tree_imports_no_package_from_outside(install: Install) -> None:
    install("theirs", "outside_theirs", TASK.format(knob="extra"))
    assert tasks.resolve("cross", {"m": 2}, "base.corpus").name == "cross"
    assert "outside_theirs" not in sys.modules


def test_a_broken_package_stops_only_who_asks_for_its_task(install: Install) -> None:
    install("broken", "outside_broken", "raise RuntimeError('half an installation')")
    install("theirs", "outside_theirs", TASK.format(knob="extra"))
    assert tasks.resolve("twin", {}, "base.corpus").name == "twin"
    assert tasks.resolve("theirs", {"extra": 4}, "base.corpus").model_dump()["extra"] == 4
    assert "theirs" in tasks.tasks()
    with pytest.raises(CorpusError) as caught:
        tasks.resolve("broken", {}, "base.corpus")
    assert caught.value.what == "the task 'broken' of an installed package cannot be imported"
    assert "half an installation" in caught.value.received


def test_an_unknown_task_is_refused_with_the_packages_that_might_have_held_it(install: Install) -> None:
    install("broken", "outside_broken", "import nothing_of_this_name")
    install("point", "outside_theirs", TASK.format(knob="extra"))
    assert tasks.find("theirs", "base.corpus").name == "theirs", "also under an entry point of another name"
    with pytest.raises(ExperimentFileError) as caught:
        tasks.resolve("thiers", {}, "base.corpus")
    assert caught.value.what == "base.corpus.task: no such task"
    assert caught.value.remedy == "did you mean 'theirs'?"
    assert "the task 'broken' of an installed package cannot be imported" in caught.value.received


@pytest.mark.parametrize("taken", tasks.TAKEN)
def test_a_knob_that_a_corpus_key_would_swallow_is_refused_with_the_reason(install: Install, taken: str) -> None:
    source = TASK.format(knob=taken)
    if taken == "name":  # instead of the class's own
        source = source.replace('name: ClassVar[str] = "theirs"', "").replace("Static", "Task")
        source = source.replace("tasks.static", "tasks.contract")
    install("theirs", "outside_theirs", source)
    with pytest.raises(CorpusError) as caught:
        tasks.resolve("theirs", {}, "base.corpus")
    assert caught.value.what == f"the task Theirs of outside_theirs: no knob can be called '{taken}'"
    assert "rename it" in caught.value.remedy


def test_two_packages_with_one_tasks_name_are_refused(install: Install) -> None:
    for module in ("outside_a", "outside_b"):
        install("theirs", module, TASK.format(knob="extra"))
    with pytest.raises(ExperimentFileError, match="two tasks are called 'theirs'"):
        tasks.resolve("theirs", {}, "base.corpus")


@pytest.mark.parametrize("name", sorted(tasks.in_tree()))
def test_no_knob_overwrites_what_a_corpus_says_of_itself(name: str) -> None:
    task: Task = tasks.resolve(name, {}, "base.corpus")
    config = TaskCorpus(task, max(task.least_row_length, 8)).config
    assert (config["kind"], config["task"], config["knobs"]) == ("task", name, task.model_dump(mode="json"))
