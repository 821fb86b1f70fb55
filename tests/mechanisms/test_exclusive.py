from dataclasses import replace
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from paribus.errors import ExperimentFileError
from paribus.kernels.compiler import operators
from paribus.kernels.exclude_self import exclude_self_reference
from paribus.mechanisms import mechanisms, resolve
from paribus.mechanisms.contract import Geometry, Law, MechanismConfig, Seam, Values
from paribus.mechanisms.exclusion.laws import map_calls, norm
from paribus.mechanisms.exclusion.maps import ExcludeSelf, ExcludeSelfByLearnedStrength, excluded
from paribus.mechanisms.exclusive import LAWS, ExclusiveSelfAttention
from paribus.mechanisms.exclusive_controls import LAWS as CONTROL_LAWS
from paribus.mechanisms.laws import universal
from paribus.mechanisms.standard import UnchangedOutput
from paribus.model.backbone import geometry_of
from paribus.model.config import NanochatConfig, PrenormConfig
from paribus.model.lawbench import LawBench
from paribus.roles import Declaration, Init, Role, declarations
from paribus.seeds import unit_noise

ON_CHOSEN_LAYERS = ("xsa", "xsa-random-direction", "xsa-wrong-token", "xsa-common-mode", "xsa-shrink")


def resolved(**fields: Any) -> MechanismConfig:
    return resolve(Seam.OUTPUT_MAP, fields, "here")


def xsa(**fields: Any) -> ExclusiveSelfAttention:
    config = resolved(name="xsa", **fields)
    assert isinstance(config, ExclusiveSelfAttention)
    return config


def noise(name: str, *shape: int) -> Tensor:
    return torch.from_numpy(unit_noise(shape, "tests", "exclusive", name))


@pytest.fixture(scope="session")
def grouped_bench() -> LawBench:
    """Four query heads on two values."""
    bench = LawBench()
    fields = {**bench.config.model_dump(), "width": 32, "query_heads_per_kv_head": 2}
    bench.config = PrenormConfig.model_validate(fields)
    return bench


@pytest.mark.parametrize("strength", [-0.1, 1.1, float("nan"), float("inf"), "1", "learnt", True, [1.0]])
def test_a_strength_that_is_neither_a_share_nor_learned_is_refused(strength: object):
    with pytest.raises(ExperimentFileError, match=r"here\.strength: not a valid value") as caught:
        xsa(strength=strength)
    assert 'less than or equal to 1, or "learned"' in caught.value.expected
    assert caught.value.remedy.startswith("strength: share of the projection")


def test_a_fixed_negative_strength_is_refused_with_what_it_would_do():
    with pytest.raises(ExperimentFileError) as caught:
        xsa(strength=-0.5)
    assert "would add to every token more of the value that it already has" in caught.value.expected
    assert "a learned strength may become negative" in caught.value.expected


@pytest.mark.parametrize("start", [-0.1, 1.0, float("nan")])
def test_a_learned_strength_starts_between_0_and_just_below_1(start: float):
    with pytest.raises(ExperimentFileError, match=r"here\.initial_strength"):
        xsa(strength="learned", initial_strength=start)


def test_where_a_strength_starts_is_refused_for_one_that_stays():
    with pytest.raises(ExperimentFileError, match=r'initial_strength = 0\.5 is .* write strength = "learned"'):
        xsa(strength=0.5, initial_strength=0.5)


@pytest.mark.parametrize("table", [{}, {"strength": "learned", "initial_strength": 0.3}, {"layers": [0, 2]}])
def test_a_configuration_survives_being_written_out_in_full(table: dict[str, Any]):
    config = xsa(**table)
    assert xsa(**config.model_dump()) == config


@pytest.mark.parametrize("name", ON_CHOSEN_LAYERS)
@pytest.mark.parametrize("layers", ["some", "last:0", "last:-1", "last:", [], [0.5], ["0"], [True]])
def test_a_layer_choice_of_another_form_is_refused(name: str, layers: object):
    with pytest.raises(ExperimentFileError, match=r"here\.layers: not a valid value") as caught:
        resolved(name=name, layers=layers)
    assert '"all", "without-value-embedding", "last:N", or a list' in caught.value.expected


@pytest.mark.parametrize("name", ON_CHOSEN_LAYERS)
@pytest.mark.parametrize("layers", [[0, 0, 1], [2, 1, 2, 0, 0]])
def test_a_layer_that_is_listed_twice_is_refused_by_its_index(name: str, layers: list[int]):
    repeated = ", ".join(str(index) for index in sorted({index for index in layers if layers.count(index) > 1}))
    with pytest.raises(ExperimentFileError) as caught:
        resolved(name=name, layers=layers)
    assert f"every layer index once (repeated: {repeated})" in caught.value.expected


def test_one_choice_of_layers_is_one_configuration_however_it_is_listed():
    assert xsa(layers=[2, 0]) == xsa(layers=[0, 2])


@pytest.mark.parametrize(("layers", "received"), [("last:5", 5), ("last:20", 20)])
def test_more_last_layers_than_there_are_is_answered_with_the_words_that_are_valid(
    layers: str, received: int, geometry: Geometry
):
    problem = xsa(layers=layers).validate_for(geometry)
    assert str(problem).startswith(
        f'layers = "{layers}" asks for {received} of 4 layers: valid are "last:1" to "last:4"'
    )
    assert "-" not in str(problem)


@pytest.mark.parametrize("name", ON_CHOSEN_LAYERS)
@pytest.mark.parametrize("layers", [[-1], [0, 4]])
def test_layers_outside_the_model_are_refused_with_the_valid_range(name: str, layers: object, geometry: Geometry):
    message = resolved(name=name, layers=layers).validate_for(geometry)
    assert message is not None
    assert message.endswith("valid layer indices are 0 to 3")


@pytest.mark.parametrize("name", ON_CHOSEN_LAYERS)
@pytest.mark.parametrize(
    ("layers", "chosen"),
    [
        ("all", {0, 1, 2, 3}),
        ("last:1", {3}),
        ("last:4", {0, 1, 2, 3}),
        ([2, 0], {0, 2}),
        ("without-value-embedding", {0, 2}),
    ],
)
def test_the_chosen_layers_and_no_others_get_the_map(name: str, layers: object, chosen: set[int], geometry: Geometry):
    geometry = replace(geometry, value_embedding_layers=frozenset({1, 3}))
    config = resolved(name=name, layers=layers)
    assert config.validate_for(geometry) is None
    standard = {n for n in range(geometry.layers) if isinstance(config.build(geometry, n), UnchangedOutput)}
    assert standard == set(range(geometry.layers)) - chosen


def test_layers_without_value_embeddings_are_refused_where_no_layer_or_every_layer_has_one(geometry: Geometry):
    config = xsa(layers="without-value-embedding")
    none, every = config.validate_for(geometry), config.validate_for(with_embeddings(geometry, 0, 1, 2, 3))
    assert none is not None
    assert "this backbone has no value embeddings" in none
    assert every is not None
    assert "every layer of this backbone has value embeddings" in every


def with_embeddings(geometry: Geometry, *layers: int) -> Geometry:
    return replace(geometry, value_embedding_layers=frozenset(layers))


@pytest.mark.parametrize("value", ["projected", "embedding"])
def test_another_value_than_the_aggregated_one_needs_value_embeddings_in_every_chosen_layer(
    value: str, geometry: Geometry
):
    some = with_embeddings(geometry, 1, 3)
    assert xsa(value=value, layers=[1, 3]).validate_for(some) is None
    assert xsa(value="aggregated").validate_for(some) is None
    message = xsa(value=value, layers=[0, 1]).validate_for(some)
    assert message is not None
    assert message.endswith("layers 0 have none (layers with value embeddings: 1, 3)")
    nowhere = xsa(value=value).validate_for(geometry)
    assert nowhere is not None
    assert nowhere.endswith("layers 0, 1, 2, 3 have none (layers with value embeddings: none)")


@pytest.mark.parametrize("name", ON_CHOSEN_LAYERS)
def test_strength_zero_is_built_as_the_standard_map_and_promises_to_train_like_it(name: str, geometry: Geometry):
    assert isinstance(resolved(name=name, strength=0.0).build(geometry, 0), UnchangedOutput)
    (equivalence,) = resolved(name=name).equivalences()
    assert equivalence.twin == {}
    assert equivalence.arm == {"output_map": {"name": name, "strength": 0.0}}
    assert equivalence.perturbed == {"output_map": {"name": name, "strength": 0.001}}


@pytest.mark.parametrize("start", [0.0, 0.5])
def test_a_learned_strength_is_a_scalar_per_layer_and_head_whose_tanh_is_the_start(start: float, bench: LawBench):
    model = bench.model({"output_map": {"name": "xsa", "strength": "learned", "initial_strength": start}})
    own = {n: d for n, d in declarations(model).items() if "output_map" in n}
    assert list(own) == [f"layers.{n}.attention.output_map.strength_before_tanh" for n in range(4)]
    for name, declaration in own.items():
        assert declaration.role is Role.SCALAR
        parameter = model.get_parameter(name)
        assert parameter.shape == (2, 1)
        # atanh in double precision, its float32 rounding and that of tanh.
        assert (parameter.tanh() - start).abs().max() <= 4 * 2.0**-24
    assert set(own.values()) == {Declaration(Role.SCALAR, Init(constant=torch.tensor(start).double().atanh().item()))}


def test_a_learned_strength_may_become_negative_and_then_adds_the_projection(geometry: Geometry):
    built = xsa(strength="learned").build(geometry, 0)
    assert isinstance(built, ExcludeSelfByLearnedStrength)
    strengths = torch.tensor([-0.9, 0.0, 0.5])
    with torch.no_grad():
        built.get_parameter("strength_before_tanh").copy_(strengths.atanh()[:, None])
    y, v = noise("y", 2, 5, 3, 1, 8), noise("v", 2, 5, 3, 1, 8)
    expected = exclude_self_reference(y, v, strengths[:, None, None])
    # Two float32 sums of 8 products, and the strength through atanh and tanh.
    found = built(y, Values(v, v), torch.zeros(2, 5, dtype=torch.long))
    assert ((found - expected).abs() <= 2 * (2 * 8 + 16) * 2.0**-24 * norm(y)).all()


def test_the_strengths_gradient_is_the_finite_difference_of_the_loss(bench: LawBench):
    model = bench.model({"output_map": {"name": "xsa", "strength": "learned", "initial_strength": 0.2}}, double=True)
    name = "layers.1.attention.output_map.strength_before_tanh"
    gradient = bench.loss_and_gradients(model)[name]
    parameter = model.get_parameter(name)
    for head in range(2):
        losses = []
        for step in (1e-5, -2e-5):
            with torch.no_grad():
                parameter[head, 0] += step
            losses.append(float(bench.loss_and_gradients(model)["loss"]))
        with torch.no_grad():
            parameter[head, 0] += 1e-5
        # Central differences: curvature of order one times 1e-10, and 1e-16 / 1e-5 of rounding.
        assert abs((losses[0] - losses[1]) / 2e-5 - float(gradient[head, 0])) < 1e-9
        assert abs(float(gradient[head, 0])) > 1e-5


def test_the_excluded_value_is_the_one_that_was_chosen():
    aggregated, projected = noise("v", 1, 2, 3, 1, 4).bfloat16(), noise("p", 1, 2, 3, 1, 4).bfloat16()
    values = Values(aggregated, projected)
    assert excluded(values, "aggregated") is aggregated
    assert excluded(values, "projected") is projected
    assert torch.equal(excluded(values, "embedding"), aggregated.float() - projected.float())


@pytest.mark.parametrize("value", ["projected", "embedding"])
def test_the_choice_of_the_value_changes_the_mathematics_once_tables_have_left_zero(value: str, bench: LawBench):
    arms = [
        {"value_map": {"name": "value-embedding"}, "output_map": {"name": "xsa", "value": v}}
        for v in ("aggregated", value)
    ]
    models = [bench.model(arm) for arm in arms]
    for model in models:
        bench.disturb(model, "table")
    logits = [bench.logits(model).detach() for model in models]
    assert float((logits[0] - logits[1]).abs().max()) > 1e-3


def test_excluding_an_embedding_of_zero_is_standard_attention_bit_for_bit(bench: LawBench):
    arm = {"value_map": {"name": "value-embedding"}}
    model = bench.model({**arm, "output_map": {"name": "xsa", "value": "embedding"}})
    assert torch.equal(bench.logits(model), bench.logits(bench.model(arm)))
    assert all(bool(t.isfinite().all()) for t in bench.loss_and_gradients(model).values())


class _Operations(TorchDispatchMode):
    """Floating-point operations on whole heads, counted by what each call does to an element of its first argument that
    is as large as its result (or as what it sums)."""

    PER_ELEMENT: ClassVar = {
        "mul": 1,
        "mul_": 1,
        "add": 1,
        "sub": 1,
        "div": 1,
        "sum": 1,
        "linalg_vector_norm": 2,
        "addcmul": 2,
    }

    def __init__(self, head_width: int) -> None:
        super().__init__()
        self.head_width = head_width
        self.flops = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        del types
        result = func(*args, **(kwargs or {}))
        operations = self.PER_ELEMENT.get(func.overloadpacket.__name__, 0)
        whole = [t.numel() for t in (*args, result) if isinstance(t, Tensor) and t.shape[-1:] == (self.head_width,)]
        self.flops += operations * max(whole, default=0)
        return result


@pytest.mark.parametrize(
    ("fields", "active"),
    [
        ({"name": "xsa"}, 4),
        ({"name": "xsa", "layers": "last:3"}, 3),
        ({"name": "xsa", "strength": 0.0}, 0),
        ({"name": "xsa", "strength": "learned"}, 4),
        ({"name": "xsa", "value": "embedding"}, 4),
        ({"name": "xsa-random-direction"}, 4),
        ({"name": "xsa-wrong-token", "layers": [1]}, 1),
        ({"name": "xsa-common-mode"}, 4),
        ({"name": "xsa-shrink"}, 4),
    ],
    ids=str,
)
@pytest.mark.parametrize("kv_heads", [6, 2])
def test_declared_flops_are_those_of_the_operations_on_whole_heads(
    fields: dict[str, Any], active: int, kv_heads: int, geometry: Geometry
):
    """Work on one number a head (quotients, factors) and comparisons are left out of both."""
    geometry = replace(geometry, heads=6, kv_heads=kv_heads)
    counted = operations_per_token(resolved(**fields), geometry, active)
    assert resolved(**fields).flops_per_token(geometry) == counted
    assert (counted > 0) == (active > 0)


def operations_per_token(config: MechanismConfig, geometry: Geometry, active: int) -> float:
    """On whole heads, of the maps of all layers, of which `active` are no identity."""
    kv_heads, tokens = geometry.kv_heads, (2, geometry.context_length)
    y = torch.ones(*tokens, kv_heads, geometry.group, geometry.head_width)
    v = torch.ones(*tokens, kv_heads, 1, geometry.head_width)
    document = torch.zeros(tokens, dtype=torch.long)
    built = [config.build(geometry, layer) for layer in range(geometry.layers)]
    directions = kv_heads * geometry.group * geometry.head_width
    with torch.no_grad(), operators(), _Operations(geometry.head_width) as counted:
        for output_map in built:
            output_map(y, Values(v, 0.5 * v), document)
    # What the test itself did, and the normalisation of a head's direction (3 an element), which no token repeats.
    once = geometry.layers * v.numel() + active * 3 * directions * (config.name == "xsa-random-direction")
    return (counted.flops - once) / (tokens[0] * tokens[1])


@pytest.mark.parametrize(
    ("fields", "active"),
    [
        ({"name": "xsa"}, 6),
        ({"name": "xsa", "layers": "without-value-embedding"}, 3),
        ({"name": "xsa", "value": "projected", "layers": [1, 5]}, 2),
        ({"name": "xsa", "value": "embedding", "layers": [1, 3, 5]}, 3),
        ({"name": "xsa-common-mode", "layers": "last:2"}, 2),
    ],
    ids=str,
)
def test_declared_flops_hold_beside_a_backbones_own_value_embeddings(fields: dict[str, Any], active: int):
    """nanochat adds an embedding to the values of its last layer and of every second before it."""
    size: dict[str, Any] = {"layers": 6, "width": 48, "head_width": 8, "query_heads_per_kv_head": 2, "mlp_width": 64}
    backbone = NanochatConfig(**size, vocabulary_size=31, context_length=16)
    of = geometry_of(backbone, {s: resolve(s, None, s) for s in Seam})
    assert of.value_embedding_layers == {1, 3, 5}
    config = resolved(**fields)
    assert config.validate_for(of) is None
    assert config.flops_per_token(of) == operations_per_token(config, of, active) > 0


@pytest.mark.parametrize("layers", [[1, 3]])
def test_the_map_sees_each_heads_own_aggregated_value(layers: list[int], bench: LawBench, grouped_bench: LawBench):
    """With strength 1, z is orthogonal to v in every head of every layer, and is not where the map is absent."""
    for of in (bench, grouped_bench):
        calls = map_calls(of, of.model({"output_map": {"name": "xsa", "layers": layers}}))
        seen = [
            float(torch.nn.functional.cosine_similarity(c.z, c.values.aggregated, dim=-1)[:, 1:].abs().amax())
            for c in calls
        ]
        # cos of a float32 remainder: some head_width roundings of 6e-8, over |z| that may be a tenth of |y|.
        assert all(seen[layer] < 1e-4 for layer in (1, 3))
        assert all(seen[layer] > 0.1 for layer in (0, 2))


@pytest.mark.parametrize("name", ON_CHOSEN_LAYERS)
def test_grouped_queries_equal_a_loop_over_heads_that_each_have_a_copy_of_their_value(
    name: str, grouped_bench: LawBench
):
    model = grouped_bench.model({"output_map": {"name": name, "strength": 0.7}})
    for call in map_calls(grouped_bench, model):
        own = call.values.aggregated.expand_as(call.y).flatten(2, 3).unsqueeze(3)  # the value of head h // 2, repeated
        alone = call.output_map
        if name == "xsa-random-direction":
            direction = alone.get_parameter("direction")
            direction.data = direction.data.flatten(0, 1).unsqueeze(1)
        z = alone(call.y.flatten(2, 3).unsqueeze(3), Values(own, own), call.document)
        assert own.shape[2:4] == (4, 1)
        # The same arithmetic on other shapes may add in another order.
        assert (
            (z.squeeze(3) - call.z.flatten(2, 3)).abs() <= 2 * (2 * 8 + 8) * 2.0**-24 * norm(call.y).flatten(2, 3)
        ).all()


HELD = [law for law in (*LAWS, *CONTROL_LAWS) if "share a value" not in law.claim]


@pytest.mark.parametrize("law", HELD, ids=lambda law: law.claim)
def test_laws_hold_and_can_fail_under_grouped_queries(law: Law, grouped_bench: LawBench):
    assert law.measure(grouped_bench, False) <= law.bound < law.measure(grouped_bench, True)


@pytest.mark.parametrize("name", ON_CHOSEN_LAYERS)
def test_universal_laws_hold_under_grouped_queries_and_a_document_mask(name: str, grouped_bench: LawBench):
    for law in universal({"output_map": {"name": name}}):
        assert law.measure(grouped_bench, False) <= law.bound


def test_the_registry_has_xsa_and_its_controls_at_the_output_map_and_the_mask():
    assert set(ON_CHOSEN_LAYERS) <= set(mechanisms(Seam.OUTPUT_MAP))
    assert "diagonal-mask" in mechanisms(Seam.MASK)
    assert isinstance(xsa().build(Geometry(1, 8, 1, 8, 4, 1e-6, 1, 9), 0), ExcludeSelf)
