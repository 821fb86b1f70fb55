"""The registry: every module of this folder, and every entry point of the group "paribus.mechanisms"."""

import importlib
import pkgutil
from functools import cache
from importlib.metadata import entry_points
from types import ModuleType
from typing import Any

from pydantic import ValidationError

from paribus.errors import ExperimentFileError, MechanismError, nearest
from paribus.mechanisms.contract import Diagnostic, Intervention, Law, MechanismConfig, Seam
from paribus.refusal import refusal

IDENTITY = {Seam.ROUTING: "serial", Seam.OUTPUT_MAP: "standard", Seam.VALUE_MAP: "own", Seam.MASK: "causal"}
NOT_MECHANISMS = ("contract", "laws")


@cache
def modules() -> tuple[ModuleType, ...]:
    """Every module that declares mechanisms, in-tree first, by name."""
    present = pkgutil.iter_modules(__path__)  # a folder holds parts of mechanisms, no mechanism
    names = sorted(m.name for m in present if not m.ispkg and m.name not in NOT_MECHANISMS)
    in_tree = [importlib.import_module(f"{__name__}.{name}") for name in names]
    outside = [_loaded(point) for point in sorted(entry_points(group="paribus.mechanisms"), key=lambda p: p.name)]
    return tuple(in_tree + outside)


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
        for value in vars(module).values():
            is_config = isinstance(value, type) and issubclass(value, MechanismConfig) and "name" in vars(value)
            if not is_config or value.__module__ != module.__name__ or value.seam is not seam:
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

    `where` is the key path that an error names.
    """
    known = mechanisms(seam)
    if table is None:
        return known[IDENTITY[seam]]()
    fields = dict(table)
    name = fields.pop("name", None)
    if not isinstance(name, str) or name not in known:
        elsewhere = [other for other in Seam if other is not seam and name in mechanisms(other)]
        raise ExperimentFileError(
            f"{where}.name: " + (f"'{name}' belongs to another seam" if elsewhere else "unknown mechanism"),
            expected=", ".join(f"'{n}'" for n in sorted(known)),
            received=repr(name),
            remedy=f"write it under '{elsewhere[0]}'" if elsewhere else nearest(str(name), known),
        )
    try:
        return known[name].model_validate(fields)
    except ValidationError as error:
        raise refusal(error, where, known[name]) from None


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
