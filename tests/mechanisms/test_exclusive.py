from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from paribus.errors import ExperimentFileError
from paribus.mechanisms import resolve
from paribus.mechanisms.contract import Geometry, Seam
from paribus.mechanisms.exclusive import DIAGNOSTICS, ExcludeSelf, ExclusiveSelfAttention
from paribus.mechanisms.standard import UnchangedOutput
from paribus.model.lawbench import LawBench

BY_NAME = {diagnostic.name: diagnostic for diagnostic in DIAGNOSTICS}


def xsa(**fields: Any) -> ExclusiveSelfAttention:
    config = resolve(Seam.OUTPUT_MAP, {"name": "xsa", **fields}, "here")
    assert isinstance(config, ExclusiveSelfAttention)
    return config


@pytest.mark.parametrize("strength", [-0.1, 1.1, float("nan"), float("inf"), "1", True])
def test_a_strength_that_is_no_share_is_refused(strength: object):
    with pytest.raises(ExperimentFileError, match=r"here\.strength"):
        xsa(strength=strength)


@pytest.mark.parametrize("layers", ["some", "last:0", "last:-1", "last:", [], [0.5], ["0"]])
def test_a_layer_choice_of_another_form_is_refused(layers: object):
    with pytest.raises(ExperimentFileError, match=r"here\.layers"):
        xsa(layers=layers)


@pytest.mark.parametrize("layers", [[-1], [0, 4], "last:5"])
def test_layers_outside_the_model_are_refused_with_the_valid_range(layers: object, geometry: Geometry):
    message = xsa(layers=layers).validate_for(geometry)
    assert message is not None
    assert message.endswith("valid layer indices are 0 to 3")


@pytest.mark.parametrize(
    ("layers", "chosen"), [("all", {0, 1, 2, 3}), ("last:1", {3}), ("last:4", {0, 1, 2, 3}), ([2, 0], {0, 2})]
)
def test_the_chosen_layers_and_no_others_get_the_map(layers: object, chosen: set[int], geometry: Geometry):
    config = xsa(layers=layers)
    assert config.validate_for(geometry) is None
    built = [type(config.build(geometry, layer)) for layer in range(geometry.layers)]
    assert built == [ExcludeSelf if layer in chosen else UnchangedOutput for layer in range(geometry.layers)]


def test_strength_zero_is_built_as_the_standard_map(geometry: Geometry):
    assert isinstance(xsa(strength=0.0).build(geometry, 0), UnchangedOutput)


PER_ELEMENT = {"pow": 1, "mul": 1, "sum": 1, "addcmul": 2}


class _Operations(TorchDispatchMode):
    """Floating-point operations of the calls made, counted by what each call does to an element."""

    def __init__(self) -> None:
        super().__init__()
        self.flops = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        del types
        operations = PER_ELEMENT.get(func.overloadpacket.__name__, 0)
        self.flops += operations * (args[0].numel() if operations else 0)
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize(("fields", "active"), [({}, 4), ({"layers": "last:3"}, 3), ({"strength": 0.0}, 0)])
def test_declared_flops_are_those_of_the_operations_on_whole_heads(
    fields: dict[str, Any], active: int, geometry: Geometry
):
    """Work on one number a head (clamp, quotient) is left out of both."""
    config = xsa(**fields)
    tokens = (2, 5)
    y, v = torch.ones(2, *tokens, geometry.heads, geometry.head_width).unbind(0)
    with _Operations() as counted:
        for layer in range(geometry.layers):
            config.build(geometry, layer)(y, v)
    assert config.flops_per_token(geometry) == counted.flops / (tokens[0] * tokens[1])
    assert (counted.flops > 0) == (active > 0)


def test_the_map_sees_each_heads_own_aggregated_value(bench: LawBench):
    """With strength 1, z is orthogonal to v in every head of every layer, and is not where the map is absent."""
    seen: dict[int, Tensor] = {}

    def tap(site: str, layer: int, **tensors: Tensor) -> None:
        if site == "attention output":
            seen[layer] = torch.nn.functional.cosine_similarity(tensors["z"], tensors["v"], dim=-1)[:, 1:].abs().amax()

    with torch.no_grad():
        bench.logits(bench.model({"output_map": {"name": "xsa", "layers": [1, 3]}}), tap=tap)
    # cos of a float32 remainder: some head_width roundings of 6e-8, over |z| that may be a tenth of |y|.
    assert all(float(seen[layer]) < 1e-4 for layer in (1, 3))
    assert all(float(seen[layer]) > 0.1 for layer in (0, 2))


def test_alignment_diagnostics_average_cosines_over_heads_and_weighted_positions():
    # One row, two positions, two heads of two features.
    v = torch.tensor([[[[1.0, 0.0], [1.0, 0.0]], [[0.0, 2.0], [3.0, 0.0]]]])
    y = torch.tensor([[[[5.0, 0.0], [0.0, 1.0]], [[0.0, -1.0], [-2.0, 0.0]]]])
    tapped = {"attention output/y": y, "attention output/v": v, "attention output/z": y.clone()}
    aligned, residual = BY_NAME["cos_y_v"], BY_NAME["cos_z_v"]
    first, second, both = (torch.tensor([weight]) for weight in ([1.0, 0.0], [0.0, 1.0], [1.0, 3.0]))
    assert aligned.observe(tapped, first) == {"mean over heads": 0.5}
    assert aligned.observe(tapped, second) == {"mean over heads": -1.0}
    assert aligned.observe(tapped, both) == {"mean over heads": 0.25 * 0.5 - 0.75}
    assert residual.observe(tapped, both) == {"mean over heads": 0.25 * 0.5 + 0.75}
    unchanged = {**tapped, "attention output/z": y}
    assert residual.observe(unchanged, both) == {}  # the arm claims nothing about z


def test_only_the_residual_alignment_is_marked_a_tautology():
    assert {d.name for d in DIAGNOSTICS if d.correctness_only} == {"cos_z_v"}
