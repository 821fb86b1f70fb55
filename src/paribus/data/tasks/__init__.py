"""The registry of tasks: every module of this folder, and every entry point of the group "paribus.tasks".

Packages from outside are imported when one of their tasks is asked for, or when all tasks are listed: a package that is
broken stops nobody who does not use it.
"""

import importlib
import pkgutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from types import ModuleType
from typing import Any

from pydantic import ValidationError

from paribus.data.tasks.contract import Task
from paribus.errors import CorpusError, ExperimentFileError, ParibusError, nearest
from paribus.refusal import refusal

NOT_TASKS = ("checks", "contract", "faults", "hashing", "levels", "padding", "readers", "steps", "stream")
GROUP = "paribus.tasks"
TAKEN = ("task", "knobs", "name", "path")
"""keys of an experiment file's corpus that stand beside the knobs: no knob can be called so"""


@dataclass(frozen=True)
class Outside:
    """What one entry point yields."""

    point: str
    """the entry point's name"""
    package: str
    """that declares it"""
    tasks: dict[str, type[Task]] = field(default_factory=dict)
    """by name"""
    error: ParibusError | None = None
    """why there are none"""


@cache
def modules() -> tuple[ModuleType, ...]:
    """Every module of this folder that declares tasks, by name."""
    names = sorted(m.name for m in pkgutil.iter_modules(__path__) if not m.ispkg and m.name not in NOT_TASKS)
    return tuple(importlib.import_module(f"{__name__}.{name}") for name in names)


@cache
def in_tree() -> dict[str, type[Task]]:
    """paribus's own tasks by name; imports nothing from outside."""
    found: dict[str, type[Task]] = {}
    for module in modules():
        _add(found, _declared_in(module).items())
    return found


def outside(name: str | None = None) -> tuple[Outside, ...]:
    """Every entry point, or those called `name`, imported. What is broken is in the result, with the reason."""
    points = sorted(entry_points(group=GROUP), key=lambda point: point.name)
    return tuple(_loaded(point) for point in points if name is None or point.name == name)


def _loaded(point: EntryPoint) -> Outside:
    """Import an entry point; a package that is broken is named."""
    package = point.dist.name if point.dist is not None else "an installed package"
    try:
        module = point.load()
    except Exception as error:  # whatever a package raises
        broken = CorpusError(
            f"the task '{point.name}' of {package} cannot be imported",
            expected=f"a module at '{point.value}' (entry point of the group '{GROUP}')",
            received=f"{type(error).__name__}: {error}",
            remedy="mend or uninstall that package",
        )
        broken.__cause__ = error
        return Outside(point.name, package, error=broken)
    try:
        return Outside(point.name, package, _declared_in(module))
    except ParibusError as error:
        return Outside(point.name, package, error=error)


def _declared_in(module: ModuleType) -> dict[str, type[Task]]:
    """The tasks that a module declares itself. CorpusError where a knob has the name of a key of the corpus."""
    found: dict[str, type[Task]] = {}
    for value in vars(module).values():
        if not isinstance(value, type) or not issubclass(value, Task) or value.__module__ != module.__name__:
            continue
        for knob in sorted(value.model_fields.keys() & set(TAKEN)):
            raise CorpusError(
                f"the task {value.__name__} of {module.__name__}: no knob can be called '{knob}'",
                expected=f"names other than {', '.join(TAKEN)}",
                received=f"a field '{knob}'",
                remedy=f"rename it: in an experiment file knobs stand beside these keys of the corpus; a constant of "
                f"the class is declared {knob}: ClassVar[...]",
            )
        if "name" in vars(value):
            _add(found, [(value.name, value)])
    return found


def _add(found: dict[str, type[Task]], more: Iterable[tuple[str, type[Task]]]) -> None:
    for name, task in more:
        if name in found:
            raise ExperimentFileError(
                f"two tasks are called '{name}'",
                received=f"{found[name].__module__} and {task.__module__}",
                remedy="rename one of them",
            )
        found[name] = task


@cache
def tasks() -> dict[str, type[Task]]:
    """Every task by name, the tree's first. Two with one name are refused; packages that are broken are left out."""
    found = dict(in_tree())
    for each in outside():
        _add(found, each.tasks.items())
    return found


def find(name: str, where: str) -> type[Task]:
    """The task of this name; imports nothing from outside for one of the tree's own.

    ExperimentFileError where there is none, CorpusError where its package is broken. `where` is the key path that an
    error names.
    """
    if name in in_tree():
        return in_tree()[name]
    named = outside(name)  # an entry point is usually called like its task
    found: dict[str, type[Task]] = {}
    for each in named if any(name in each.tasks for each in named) else outside():
        _add(found, each.tasks.items())
        if each.point == name and each.error is not None:
            raise each.error
    if name not in found:
        known = {**in_tree(), **found}
        raise ExperimentFileError(
            f"{where}.task: no such task",
            expected=", ".join(f"'{n}'" for n in sorted(known)),
            received="; ".join([repr(name), *_broken()]),
            remedy=nearest(name, known),
        )
    return found[name]


def _broken() -> Iterator[str]:
    return (f"{each.error.what}, so its tasks are not known" for each in outside() if each.error is not None)


def with_knob(knob: str) -> list[str]:
    """Names of the tree's tasks that have a knob of this name."""
    return [name for name, task in in_tree().items() if knob in task.model_fields]


def resolve(name: str, knobs: dict[str, Any], where: str) -> Task:
    """The task of this name with its validated knobs. `where` is the key path that an error names."""
    kind = find(name, where)
    try:
        return kind.model_validate(knobs)
    except ValidationError as error:
        raise refusal(error, where, kind) from None
