import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.strategies import DataObject
from torch import nn

from paribus.errors import MechanismError
from paribus.mechanisms import mechanisms
from paribus.mechanisms.contract import Geometry, MechanismConfig, Seam, Tensors
from paribus.mechanisms.standard import StandardOutput
from paribus.model.accounting.parameters import (
    checked_parameters,
    counted_parameters,
    parameters_by_role,
    scaling_parameters,
    tensors,
)
from paribus.model.backbone import Backbone
from paribus.model.build import abstract_model
from paribus.model.config import ModelConfig, NanochatConfig, PrenormConfig
from paribus.roles import ONES, DeclaredModule, Role, declarations

Build = Callable[..., Backbone]
MechanismsOf = Callable[..., dict[Seam, MechanismConfig]]
Drawn = tuple[ModelConfig, dict[Seam, MechanismConfig]]
DrawArm = Callable[[DataObject], Drawn]
PARENT, CHILD = ({"routing": {"name": name, "blocks": 3}} for name in ("block-attnres", "role-decoupled"))


def test_the_drawn_arms_have_every_mechanism_of_the_registry(variants: Mapping[Seam, Any]):
    assert {s: {t["name"] for t in variants[s]} for s in Seam} == {s: set(mechanisms(s)) for s in Seam}


def agree(config: ModelConfig, arm: dict[Seam, MechanismConfig]) -> None:
    """The closed form and the model, by role and by shape."""
    model = abstract_model(config, arm)
    assert parameters_by_role(config, arm) == counted_parameters(model) == checked_parameters(model, arm)
    assert sum(parameters_by_role(config, arm).values()) == sum(p.numel() for p in model.parameters())
    by_shape = sorted((kind.role, kind.shape) for kind in tensors(config, arm) for _ in range(kind.copies))
    shapes = {name: tuple(parameter.shape) for name, parameter in model.named_parameters()}
    assert by_shape == sorted((d.role, shapes[name]) for name, d in declarations(model).items())


def test_the_closed_form_is_the_count_of_the_model_for_every_mechanism_on_every_backbone(
    mechanism_on_a_backbone: Drawn,
):
    agree(*mechanism_on_a_backbone)


@settings(deadline=None, max_examples=40)
@given(data=st.data())
def test_the_closed_form_is_the_count_of_the_model_for_mechanisms_together_at_any_size(
    data: DataObject, arm_at_a_size: DrawArm
):
    agree(*arm_at_a_size(data))


@pytest.mark.parametrize(("arm", "reads"), [({}, 0), (PARENT, 2 * 7), (CHILD, 2 * 7 + 3)])
def test_parameters_by_role_follow_the_equations(
    build: Build, config: ModelConfig, mechanisms_of: MechanismsOf, arm: dict, reads: int
):
    """Hidden matrices: 4 d^2 + 3 d m a layer. Depth reads: a query and a gain at each of 2 L + 1 sites, and one query
    more a layer where the value has its own."""
    d, m, layers, vocabulary = config.width, config.mlp_width, config.layers, config.vocabulary_size
    expected = {Role.EMBEDDING: vocabulary * d, Role.MATRIX: layers * (4 * d * d + 3 * d * m)}
    expected |= {Role.GAIN: (2 * layers + 1) * d} | ({Role.DEPTH_READ: reads * d} if reads else {})
    assert parameters_by_role(config, mechanisms_of(arm)) == expected
    assert sum(expected.values()) == sum(p.numel() for p in build(arm).parameters())


SHARED = Path(__file__).parents[4] / "shared" / "published.toml"
PUBLISHED = {
    "d12_768_6x128": ((12, 768, 128), {"total": 286_261_730, "scaling_params": 110_100_912}),
    "d24_1536_12x128": ((24, 1536, 128), {"total": 1_384_122_122, "scaling_params": 729_810_624}),
    "d24_1024_16x64": ((24, 1024, 64), {"total": 771_754_314, "scaling_params": 335_546_624}),
}
"""(layers, width, head width) and what nanochat prints for a model of that shape"""


def stock(layers: int, width: int, head_width: int) -> NanochatConfig:
    """nanochat's own size: rows of 2048 of 32,768 tokens, an MLP four times as wide."""
    return NanochatConfig(
        layers=layers,
        width=width,
        head_width=head_width,
        mlp_width=4 * width,
        vocabulary_size=32_768,
        context_length=2048,
    )


@pytest.mark.parametrize("name", PUBLISHED)
def test_nanochats_published_totals_are_reproduced_to_the_last_parameter(name: str, mechanisms_of: MechanismsOf):
    shape, printed = PUBLISHED[name]
    config = stock(*shape)
    counts = parameters_by_role(config, mechanisms_of({}))
    assert {"total": sum(counts.values()), "scaling_params": scaling_parameters(config)} == printed
    assert scaling_parameters(config) == counts[Role.MATRIX] + counts[Role.HEAD]


@pytest.mark.shared_data
def test_these_totals_are_the_ones_on_record():
    if not SHARED.exists():
        pytest.skip(f"the published figures are not at {SHARED}")
    record = tomllib.loads(SHARED.read_text(encoding="utf-8"))["nanochat_totals"]
    found = {name: {key: row[key] for key in ("total", "scaling_params")} for name, row in record.items()}
    assert found == {name: printed for name, (_, printed) in PUBLISHED.items()}


def test_nanochats_d12_has_the_parameters_by_role_that_its_authors_print(mechanisms_of: MechanismsOf):
    scalars = {Role.STREAM_SCALE: 12, Role.EMBEDDING_SCALE: 12, Role.SHORTCUT: 24 + 1 + 1}
    assert sum(scalars.values()) == 50
    assert parameters_by_role(stock(12, 768, 128), mechanisms_of({})) == {
        Role.EMBEDDING: 25_165_824,
        Role.VALUE_EMBEDDING: 150_994_944,
        Role.HEAD: 25_165_824,
        Role.MATRIX: 84_935_088,
        **scalars,
    }


def test_a_routing_takes_the_place_of_nanochats_scales_and_backout(mechanisms_of: MechanismsOf):
    config = stock(12, 768, 128)
    plain, routed = (parameters_by_role(config, mechanisms_of(arm)) for arm in ({}, PARENT))
    assert {role: plain[role] - routed.get(role, 0) for role in plain if plain[role] != routed.get(role, 0)} == {
        Role.STREAM_SCALE: 12,
        Role.EMBEDDING_SCALE: 12,
        Role.SHORTCUT: 1,
    }
    assert {role: routed[role] for role in routed if role not in plain} == {Role.DEPTH_READ: 25 * 2 * 768}


def test_a_tied_embedding_is_the_head_that_scaling_counts(config: PrenormConfig, mechanisms_of: MechanismsOf):
    counts = parameters_by_role(config, mechanisms_of({}))
    assert scaling_parameters(config) == counts[Role.MATRIX] + counts[Role.EMBEDDING]


class _Scaled(DeclaredModule):
    def __init__(self, geometry: Geometry) -> None:
        super().__init__()
        self.declare("scale", (geometry.heads,), Role.SCALAR, ONES)


class _Quiet(StandardOutput):
    """A mechanism of somebody else that says nothing of its parameters; its name is nobody's."""

    parameters = MechanismConfig.parameters

    def build(self, geometry: Geometry, layer: int) -> nn.Module:
        return _Scaled(geometry) if layer > 0 else super().build(geometry, layer)


class _Wrong(_Quiet):
    def parameters(self, geometry: Geometry) -> tuple[Tensors, ...]:
        return (Tensors(Role.SCALAR, (geometry.heads,), geometry.layers),)


def test_parameters_of_a_mechanism_without_a_closed_form_are_counted(
    config: PrenormConfig, mechanisms_of: MechanismsOf
):
    arm = {**mechanisms_of({}), Seam.OUTPUT_MAP: _Quiet()}
    assert parameters_by_role(config, arm)[Role.SCALAR] == (config.layers - 1) * config.heads
    assert checked_parameters(abstract_model(config, arm), arm) == parameters_by_role(config, arm)


def test_a_closed_form_that_is_wrong_is_refused_with_both_numbers(config: PrenormConfig, mechanisms_of: MechanismsOf):
    arm = {**mechanisms_of({}), Seam.OUTPUT_MAP: _Wrong()}
    with pytest.raises(MechanismError, match="counted wrongly") as caught:
        checked_parameters(abstract_model(config, arm), arm)
    assert (caught.value.expected, caught.value.received) == ("6 of role 'scalar'", "9 of role 'scalar'")


def test_an_abstract_model_has_the_names_and_shapes_of_the_real_one_and_no_memory(
    build: Build, config: ModelConfig, mechanisms_of: MechanismsOf
):
    abstract = dict(abstract_model(config, mechanisms_of(CHILD)).named_parameters())
    assert {name: p.shape for name, p in abstract.items()} == {n: p.shape for n, p in build(CHILD).named_parameters()}
    assert all(p.is_meta for p in abstract.values())
