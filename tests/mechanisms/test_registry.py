from collections.abc import Callable
from importlib.metadata import EntryPoint
from types import ModuleType
from typing import Any

import pytest
from pydantic import ValidationError
from torch import nn

from paribus import mechanisms as mechanisms_package
from paribus.errors import ExperimentFileError, MechanismError
from paribus.experiment.donors import require_tensors
from paribus.mechanisms import (
    IDENTITY,
    all_diagnostics,
    diagnostics_of,
    interventions_of,
    lineage_of,
    mechanisms,
    modules,
    resolve,
)
from paribus.mechanisms.contract import Geometry, MechanismConfig, Seam
from paribus.mechanisms.exclusive import ExclusiveSelfAttention

Install = Callable[..., None]


def module_with(module_name: str, mechanism_name: str, *, at: Seam = Seam.OUTPUT_MAP) -> ModuleType:
    """A module, as an installed package would bring it, that declares one mechanism."""

    class Outside(MechanismConfig):
        name = mechanism_name
        seam = at

        def build(self, geometry: Geometry, layer: int) -> nn.Module:
            del geometry, layer
            return nn.Identity()

    Outside.__module__ = module_name
    module = ModuleType(module_name)
    vars(module)["Outside"] = Outside
    return module


def refusal(seam: Seam, table: dict[str, Any]) -> ExperimentFileError:
    with pytest.raises(ExperimentFileError) as caught:
        resolve(seam, table, f"arms.a.{seam}")
    return caught.value


def test_every_seam_has_its_identity_and_no_table_means_the_identity():
    for seam in Seam:
        assert resolve(seam, None, "here") == mechanisms(seam)[IDENTITY[seam]]()


def test_a_mechanism_belongs_to_one_seam_only():
    names = [name for seam in Seam for name in mechanisms(seam)]
    assert len(names) == len(set(names))
    assert all(config.seam is seam for seam in Seam for config in mechanisms(seam).values())


@pytest.mark.parametrize("of", [diagnostics_of, interventions_of])
def test_one_name_is_one_diagnostic_over_the_whole_registry(of: Callable[[ModuleType], tuple[Any, ...]]):
    """Modules may share one (a mechanism and its controls), but two never go by one name."""
    found = [item for module in modules() for item in of(module)]
    assert len({item.name for item in found}) == len({id(item) for item in found}) > 0


def test_an_unknown_name_is_refused_with_the_valid_ones_and_the_nearest():
    error = refusal(Seam.ROUTING, {"name": "block-atnres", "blocks": 3})
    assert error.what == "arms.a.routing.name: unknown mechanism"
    assert error.expected == (
        "'block-attnres', 'mlp-decoupled', 'role-decoupled', 'serial', "
        "or one of a module, such as 'mypackage.idea:mine'"
    )
    assert error.received == "'block-atnres'"
    assert error.remedy == "did you mean 'block-attnres'?"


def test_a_mechanism_of_another_seam_is_told_where_it_belongs():
    assert "belongs to another seam" in refusal(Seam.MASK, {"name": "xsa"}).what


@pytest.mark.parametrize("table", [{}, {"name": 3}, {"strength": 1.0}])
def test_a_table_without_a_name_is_refused(table: dict[str, Any]):
    assert "unknown mechanism" in refusal(Seam.OUTPUT_MAP, table).what


def test_an_unknown_key_is_refused_with_the_nearest():
    error = refusal(Seam.OUTPUT_MAP, {"name": "xsa", "strenght": 0.5})
    assert error.what == "arms.a.output_map.strenght: unknown key"
    assert error.remedy == "did you mean 'strength'?"


@pytest.mark.parametrize("key", ["strength", "example", "seam"])
def test_an_identity_has_no_keys(key: str):
    assert refusal(Seam.OUTPUT_MAP, {"name": "standard", key: 1.0}).what.endswith("unknown key")


def test_a_mechanism_of_an_installed_package_is_found(install: Install):
    install(module_with("somewhere.else", "outside"))
    assert resolve(Seam.OUTPUT_MAP, {"name": "outside"}, "here").name == "outside"
    assert modules()[-1].__name__ == "somewhere.else"
    assert "xsa" in mechanisms(Seam.OUTPUT_MAP)


def test_two_mechanisms_of_one_name_at_one_seam_are_refused_naming_both_modules(install: Install):
    install(module_with("somewhere.else", "xsa"))
    with pytest.raises(ExperimentFileError) as caught:
        mechanisms(Seam.OUTPUT_MAP)
    assert caught.value.what == "two mechanisms are called 'xsa' at the seam 'output_map'"
    assert caught.value.received == "paribus.mechanisms.exclusive and somewhere.else"


def test_a_mechanism_that_a_module_merely_imports_is_counted_once(install: Install):
    module = module_with("somewhere.else", "outside")
    vars(module)["ExclusiveSelfAttention"] = ExclusiveSelfAttention
    install(module)
    assert mechanisms(Seam.OUTPUT_MAP)["xsa"] is ExclusiveSelfAttention


def test_a_configuration_cannot_change_after_validation():
    config = resolve(Seam.OUTPUT_MAP, {"name": "xsa"}, "here")
    with pytest.raises(ValidationError, match="frozen"):
        config.strength = 0.5  # pyright: ignore[reportAttributeAccessIssue]  (the point of the test)


def test_what_a_mechanism_extends_reads_its_models_too():
    """A study of the child alone has the parent's diagnostics: the child has the parent's reads."""
    child = resolve(Seam.ROUTING, {"name": "role-decoupled", "blocks": 2}, "here")
    names = [module.__name__.rpartition(".")[2] for module in lineage_of(child)]
    assert names == ["role_decoupled", "attention_residuals"]
    assert [m.__name__ for m in lineage_of(resolve(Seam.MASK, None, "here"))] == ["paribus.mechanisms.standard"]


def test_an_entry_point_that_cannot_be_imported_is_named_with_its_package(monkeypatch: pytest.MonkeyPatch):
    point = EntryPoint("mine", "no_such_module_of_mine", "paribus.mechanisms")
    monkeypatch.setattr(mechanisms_package, "entry_points", lambda **_: (point,))
    mechanisms_package.modules.cache_clear()
    with pytest.raises(MechanismError) as caught:
        modules()
    mechanisms_package.modules.cache_clear()
    assert caught.value.what == "the mechanism 'mine' of an installed package cannot be imported"
    assert "no_such_module_of_mine" in caught.value.received


def test_every_diagnostic_is_read_once_whoever_declares_it():
    names = [diagnostic.name for diagnostic in all_diagnostics()]
    assert len(names) == len(set(names))
    assert {"cos_y_v", "share_removed", "depth_weights_attention", "js_roles_attention"} <= set(names)


def test_a_mechanism_that_names_a_donor_and_takes_nothing_is_refused_when_it_is_planned(geometry: Geometry):
    class Taker(MechanismConfig):
        name = "taker"
        seam = Seam.OUTPUT_MAP

        def build(self, geometry: Geometry, layer: int) -> nn.Module:
            del geometry, layer
            return nn.Identity()

        def donor(self) -> str | None:
            return "parent"

    with pytest.raises(MechanismError, match="'taker' names a donor but does not say what it takes"):
        require_tensors("arms.a.output_map", "parent", Taker(), geometry, {})
