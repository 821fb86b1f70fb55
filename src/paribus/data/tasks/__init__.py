"""The registry of tasks: every module of this folder, and every entry point of the group "paribus.tasks"."""

import importlib
import pkgutil
from functools import cache
from importlib.metadata import entry_points
from types import ModuleType
from typing import Any

from pydantic import ValidationError

from paribus.data.tasks.contract import Task
from paribus.errors import CorpusError, ExperimentFileError, nearest
from paribus.refusal import refusal

NOT_TASKS = ("checks", "contract", "hashing", "padding", "readers", "stream")


@cache
def modules() -> tuple[ModuleType, ...]:
    """Every module that declares tasks, in-tree first, by name."""
    names = sorted(m.name for m in pkgutil.iter_modules(__path__) if not m.ispkg and m.name not in NOT_TASKS)
    in_tree = [importlib.import_module(f"{__name__}.{name}") for name in names]
    outside = [_loaded(point) for point in sorted(entry_points(group="paribus.tasks"), key=lambda p: p.name)]
    return tuple(in_tree + outside)


def _loaded(point: Any) -> ModuleType:
    """Import an entry point; a package that is broken is named, whatever was asked for."""
    try:
        return point.load()
    except Exception as error:
        package = point.dist.name if point.dist is not None else "an installed package"
        raise CorpusError(
            f"the task '{point.name}' of {package} cannot be imported",
            expected=f"a module at '{point.value}' (entry point of the group 'paribus.tasks')",
            received=f"{type(error).__name__}: {error}",
            remedy="mend or uninstall that package",
        ) from error


@cache
def tasks() -> dict[str, type[Task]]:
    """Every task by name. Two with one name are refused."""
    found: dict[str, type[Task]] = {}
    for module in modules():
        for value in vars(module).values():
            is_task = isinstance(value, type) and issubclass(value, Task) and "name" in vars(value)
            if not is_task or value.__module__ != module.__name__:
                continue
            if value.name in found:
                raise ExperimentFileError(
                    f"two tasks are called '{value.name}'",
                    received=f"{found[value.name].__module__} and {value.__module__}",
                    remedy="rename one of them",
                )
            found[value.name] = value
    return found


def resolve(name: str, knobs: dict[str, Any], where: str) -> Task:
    """The task of this name with its validated knobs. `where` is the key path that an error names."""
    known = tasks()
    if name not in known:
        raise ExperimentFileError(
            f"{where}.task: no such task",
            expected=", ".join(f"'{n}'" for n in sorted(known)),
            received=repr(name),
            remedy=nearest(name, known),
        )
    try:
        return known[name].model_validate(knobs)
    except ValidationError as error:
        raise refusal(error, where, known[name]) from None
