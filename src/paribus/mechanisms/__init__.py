"""The registry: every module of this folder, and every entry point of the group "paribus.mechanisms".

A module that is neither joins it when a table names it: { name = "mypackage.idea:mine" }. So a mechanism can be tried
from a file that nobody installed, and every process that reads such a table registers the module by itself.
"""

import importlib
import importlib.util
import pkgutil
from collections.abc import Mapping
from functools import cache
from importlib.metadata import entry_points
from types import ModuleType
from typing import Any

from pydantic import ValidationError

from paribus.errors import ExperimentFileError, MechanismError, ParibusError, nearest
from paribus.mechanisms.contract import Diagnostic, Intervention, Law, MechanismConfig, Seam
from paribus.refusal import refusal

IDENTITY = {Seam.ROUTING: "serial", Seam.OUTPUT_MAP: "standard", Seam.VALUE_MAP: "own", Seam.MASK: "causal"}
NOT_MECHANISMS = ("contract", "laws")
OF_MODULE = ":"
"""between a module that is not installed as a mechanism and the name of a mechanism in it"""
_named: dict[str, ModuleType] = {}
"""modules that tables of this process named"""


@cache
def modules() -> tuple[ModuleType, ...]:
    """Every module that declares mechanisms, in-tree first, by name."""
    present = pkgutil.iter_modules(__path__)  # a folder holds parts of mechanisms, no mechanism
    names = sorted(m.name for m in present if not m.ispkg and m.name not in NOT_MECHANISMS)
    in_tree = [importlib.import_module(f"{__name__}.{name}") for name in names]
    outside = [_loaded(point) for point in sorted(entry_points(group="paribus.mechanisms"), key=lambda p: p.name)]
    known = {module.__name__ for module in (*in_tree, *outside)}
    return (*in_tree, *outside, *(module for name, module in _named.items() if name not in known))


def register(name: str) -> ModuleType:
    """Import the module of this dotted name and add its mechanisms to the registry of this process.

    ExperimentFileError where there is no such module or no mechanism in it, MechanismError where it is broken.
    """
    if name in _named:
        return _named[name]
    importlib.invalidate_caches()  # it may have been written a moment ago
    package = name.partition(".")[0]
    place = importlib.util.find_spec(package)
    if place is not None and place.origin is None:
        # A cell's identity holds the code of its mechanisms, which is found through their package.
        raise ExperimentFileError(
            f"the folder '{package}' is no package, so the source of '{name}' is not found",
            expected="an __init__.py in it",
            remedy=f"add an empty {package}/__init__.py",
        )
    try:
        module = importlib.import_module(name)
    except Exception as error:
        # A module that is not there is a typing error; one that lacks something of its own is broken.
        missing = isinstance(error, ModuleNotFoundError) and f"{name}.".startswith(f"{error.name}.")
        raise (ExperimentFileError if missing else MechanismError)(
            f"the module '{name}' " + ("is not found" if missing else "cannot be imported"),
            expected="a Python module that declares a mechanism, on the import path",
            received=f"{type(error).__name__}: {error}",
            remedy="put its folder on PYTHONPATH, or correct the name" if missing else "mend that module",
        ) from error
    if not _declared_in(module):
        raise ExperimentFileError(
            f"the module '{name}' declares no mechanism",
            expected="a subclass of paribus.mechanisms.contract.MechanismConfig with a name and a seam",
            received=f"{module.__file__}",
            remedy="name the module that holds the configuration itself",
        )
    _named[name] = module
    modules.cache_clear()
    mechanisms.cache_clear()
    return module


def _declared_in(module: ModuleType) -> list[type[MechanismConfig]]:
    """The mechanisms that a module declares itself."""
    return [
        value
        for value in vars(module).values()
        if isinstance(value, type)
        and issubclass(value, MechanismConfig)
        and "name" in vars(value)
        and value.__module__ == module.__name__
    ]


def declared_in(name: str) -> dict[str, type[MechanismConfig]]:
    """The mechanisms of a module by the name that a table gives them, "module:mechanism"; it is registered for that."""
    return {f"{name}{OF_MODULE}{config.name}": config for config in _declared_in(register(name))}


def _loaded(point: Any) -> ModuleType:
    """Import an entry point; a package that is broken is named, whatever was asked for."""
    try:
        return point.load()
    except Exception as error:
        package = point.dist.name if point.dist is not None else "an installed package"
        raise MechanismError(
            f"the mechanism '{point.name}' of {package} cannot be imported",
            expected=f"a module at '{point.value}' (entry point of the group 'paribus.mechanisms')",
            received=f"{type(error).__name__}: {error}",
            remedy="mend or uninstall that package",
        ) from error


@cache
def mechanisms(seam: Seam) -> dict[str, type[MechanismConfig]]:
    """Mechanisms of one seam by name. Two with one name are refused."""
    found: dict[str, type[MechanismConfig]] = {}
    for module in modules():
        for value in _declared_in(module):
            if value.seam is not seam:
                continue
            if value.name in found:
                raise ExperimentFileError(
                    f"two mechanisms are called '{value.name}' at the seam '{seam}'",
                    received=f"{found[value.name].__module__} and {value.__module__}",
                    remedy="rename one of them",
                )
            found[value.name] = value
    return found


def resolve(seam: Seam, table: dict[str, Any] | None, where: str) -> MechanismConfig:
    """The validated configuration of `table` ({"name": ..., key = value}); None is the seam's identity.

    A name "module:mechanism" registers the module first. `where` is the key path that an error names.
    """
    if table is None:
        return mechanisms(seam)[IDENTITY[seam]]()
    fields = dict(table)
    name = fields.pop("name", None)
    if isinstance(name, str) and OF_MODULE in name:
        module, _, name = name.rpartition(OF_MODULE)
        register(module)
    known = mechanisms(seam)
    if not isinstance(name, str) or name not in known:
        elsewhere = [other for other in Seam if other is not seam and name in mechanisms(other)]
        raise ExperimentFileError(
            f"{where}.name: " + (f"'{name}' belongs to another seam" if elsewhere else "unknown mechanism"),
            expected=", ".join(f"'{n}'" for n in sorted(known)) + ", or one of a module, such as 'mypackage.idea:mine'",
            received=repr(name),
            remedy=f"write it under '{elsewhere[0]}'" if elsewhere else nearest(str(name), known),
        )
    try:
        return known[name].model_validate(fields)
    except ValidationError as error:
        raise refusal(error, where, known[name]) from None


def of_record(seam: Seam, table: Mapping[str, Any], cell: str) -> MechanismConfig:
    """The mechanism that a trained cell has on record, with the module of one that no entry point names.

    MechanismError where its code is not here.
    """
    fields = {key: value for key, value in table.items() if key != "module"}
    if fields["name"] not in mechanisms(seam):
        try:
            register(table.get("module", ""))
        except (ImportError, ValueError, ParibusError) as error:
            raise MechanismError(
                f"the mechanism '{fields['name']}' of {cell} is not here, and without its code there is no model",
                expected=f"the module {table.get('module', 'that declares it')}",
                received=str(error).partition("\n")[0],
                remedy="install its package, or start the command in the folder where its module lies",
            ) from error
    return resolve(seam, fields, str(seam))


def module_of(config: MechanismConfig) -> ModuleType:
    """The module that declares this mechanism."""
    return importlib.import_module(type(config).__module__)


def lineage_of(config: MechanismConfig) -> tuple[ModuleType, ...]:
    """Its module, then those of the mechanisms that it extends: what they read of a model, it has too."""
    names = [c.__module__ for c in type(config).__mro__ if issubclass(c, MechanismConfig) and "name" in vars(c)]
    return tuple(importlib.import_module(name) for name in dict.fromkeys(names))


def laws_of(module: ModuleType) -> tuple[Law, ...]:
    return tuple(getattr(module, "LAWS", ()))


def interventions_of(module: ModuleType) -> tuple[Intervention, ...]:
    return tuple(getattr(module, "INTERVENTIONS", ()))


def all_diagnostics() -> tuple[Diagnostic, ...]:
    """Every diagnostic of the registry, once: each is read on every arm that has its sites, whoever declares it."""
    found = {d.name: d for module in modules() for d in diagnostics_of(module)}
    return tuple(found.values())


def diagnostics_of(module: ModuleType) -> tuple[Diagnostic, ...]:
    return tuple(getattr(module, "DIAGNOSTICS", ()))
