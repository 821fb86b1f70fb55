from collections.abc import Mapping
from dataclasses import replace

import pytest
import torch

from paribus.errors import ExperimentFileError
from paribus.mechanisms import resolve
from paribus.mechanisms.contract import Geometry, MechanismConfig, Seam
from paribus.mechanisms.standard import OwnValue
from paribus.mechanisms.token_value import TokenValue
from paribus.model.accounting.parameters import counted_parameters
from paribus.model.backbone import geometry_of
from paribus.model.lawbench import LawBench
from paribus.roles import ZEROS, Declaration, Role, declarations


def embedding(layers: object = "all") -> MechanismConfig:
    return resolve(Seam.VALUE_MAP, {"name": "value-embedding", "layers": layers}, "here")


@pytest.mark.parametrize(
    ("layers", "depth", "chosen"),
    [
        ("all", 4, {0, 1, 2, 3}),
        ("alternating", 4, {1, 3}),
        ("alternating", 5, {0, 2, 4}),
        ("alternating", 12, {1, 3, 5, 7, 9, 11}),
        ([2, 0], 4, {0, 2}),
    ],
)
def test_the_chosen_layers_have_a_table_and_are_known_to_every_mechanism(
    layers: object, depth: int, chosen: set[int], geometry: Geometry
):
    geometry = replace(geometry, layers=depth)
    config = embedding(layers)
    assert config.validate_for(geometry) is None
    assert config.value_embedding_layers(geometry) == chosen
    built = [type(config.build(geometry, layer)) for layer in range(depth)]
    assert built == [TokenValue if layer in chosen else OwnValue for layer in range(depth)]


@pytest.mark.parametrize("layers", ["some", "last:1", [], ["0"], 1])
def test_a_layer_choice_of_another_form_is_refused(layers: object):
    with pytest.raises(ExperimentFileError, match=r"here\.layers: not a valid value"):
        embedding(layers)


@pytest.mark.parametrize("layers", [[-1], [1, 4]])
def test_layers_outside_the_model_are_refused_with_the_valid_range(layers: list[int], geometry: Geometry):
    message = embedding(layers).validate_for(geometry)
    assert message is not None
    assert message.endswith("valid layer indices are 0 to 3")


def test_the_model_tells_its_mechanisms_which_layers_have_value_embeddings(bench: LawBench):
    configs: Mapping[Seam, MechanismConfig] = {s: resolve(s, None, "here") for s in Seam}
    configs = {**configs, Seam.VALUE_MAP: embedding("alternating")}
    assert geometry_of(bench.config, configs).value_embedding_layers == {1, 3}
    assert geometry_of(bench.config, configs).vocabulary_size == bench.config.vocabulary_size


def test_a_table_holds_one_row_a_token_for_all_heads_and_starts_at_zero(bench: LawBench):
    model = bench.model({"value_map": {"name": "value-embedding", "layers": "alternating"}})
    tables = {name: d for name, d in declarations(model).items() if "value_map" in name}
    assert tables == {f"layers.{n}.attention.value_map.table": Declaration(Role.EMBEDDING, ZEROS) for n in (1, 3)}
    assert {tuple(model.get_parameter(name).shape) for name in tables} == {(31, 16)}
    assert not any(bool(model.get_parameter(name).any()) for name in tables)
    plain = counted_parameters(bench.model({}))
    assert counted_parameters(model) == {**plain, Role.EMBEDDING: plain[Role.EMBEDDING] + 2 * 31 * 16}


def test_a_row_collects_the_gradients_of_its_tokens_values_and_absent_tokens_rows_get_none(bench: LawBench):
    model = bench.model({"value_map": {"name": "value-embedding"}}, double=True)
    layer = model.get_submodule("layers.2.attention.value_map")
    values: list[torch.Tensor] = []

    def keep(_: object, __: object, result: torch.Tensor) -> None:
        result.retain_grad()
        values.append(result)

    layer.register_forward_hook(keep)
    gradient = bench.loss_and_gradients(model)["layers.2.attention.value_map.table"]
    upstream = values[0].grad
    assert upstream is not None
    for token in range(31):
        expected = upstream.flatten(-2)[bench.tokens == token].sum(0)
        # A float64 sum over a token's positions, 24 at most.
        assert ((gradient[token] - expected).abs() <= 24 * 2.0**-53 * upstream.abs().sum()).all()
    absent = [token for token in range(31) if token not in bench.tokens]
    assert absent
    assert not gradient[absent].any()
    assert gradient.any()


def test_flops_are_one_addition_an_element_in_chosen_layers(geometry: Geometry):
    grouped = replace(geometry, kv_heads=1)
    assert embedding("alternating").flops_per_token(grouped) == 2 * 1 * 8
    assert embedding().flops_per_token(geometry) == 4 * 3 * 8
