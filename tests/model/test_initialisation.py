from collections.abc import Callable

import pytest
import torch
from torch import nn

from paribus.errors import RoleError
from paribus.model.backbone import Backbone
from paribus.model.config import PrenormConfig
from paribus.roles import ONES, DeclaredModule, Init, Role, declarations, initialise

Build = Callable[..., Backbone]
RD = {"routing": {"name": "role-decoupled", "blocks": 3}, "output_map": {"name": "xsa"}}


def test_each_family_of_matrices_has_its_declared_standard_deviation_and_mean_zero(build: Build):
    config = PrenormConfig(layers=3, width=24, head_width=6, mlp_width=40, vocabulary_size=101, context_length=8)
    depth = 2 * config.layers
    declared = {"embedding": 0.02, "query": 24**-0.5, "key": 24**-0.5, "value": 24**-0.5}
    declared |= {"output": (24 * depth) ** -0.5, "gate": 24**-0.5, "up": 24**-0.5, "down": (40 * depth) ** -0.5}
    families: dict[str, list[torch.Tensor]] = {}
    for name, parameter in build({}, config=config).named_parameters():
        if not name.endswith("gain"):
            families.setdefault(name.rpartition(".")[2], []).append(parameter.detach().double().flatten())
    assert set(families) == set(declared)
    for family, parts in families.items():
        values = torch.cat(parts)
        n = len(values)
        # Five standard errors of n normal draws: std / sqrt(n) of the mean, std / sqrt(2 n) of the deviation.
        assert abs(float(values.mean())) < 5 * declared[family] / n**0.5
        assert abs(float(values.std()) / declared[family] - 1) < 5 / (2 * n) ** 0.5


def test_norm_gains_start_at_exactly_one(build: Build):
    gains = [p for name, p in build({}).named_parameters() if name.endswith("gain")]
    assert len(gains) == 2 * 3 + 1
    assert all(torch.equal(gain, torch.ones_like(gain)) for gain in gains)


def test_what_a_mechanism_adds_leaves_every_shared_tensor_bit_identical(build: Build):
    plain, other = dict(build({}).named_parameters()), dict(build(RD).named_parameters())
    assert set(plain) < set(other)
    assert all(torch.equal(parameter, other[name]) for name, parameter in plain.items())


@pytest.mark.parametrize("stream", [("other", "S", 0), ("study", "M", 0), ("study", "S", 1), ("study", "S", "0")])
def test_another_study_scale_or_seed_draws_other_values(build: Build, stream: tuple[str | int, ...]):
    one, two = dict(build({}).named_parameters()), dict(build({}, stream=stream).named_parameters())
    assert not any(torch.equal(p, two[name]) for name, p in one.items() if not name.endswith("gain"))


def test_parameters_of_one_shape_draw_different_values(build: Build):
    matrices = [p for name, p in build({}).named_parameters() if p.shape == (24, 24)]
    assert len(matrices) == 3 * 4
    assert len({tuple(p.flatten().tolist()) for p in matrices}) == len(matrices)


def test_a_float64_model_holds_the_float32_draws(build: Build):
    single, double = build({}), dict(build({}, torch.float64).named_parameters())
    for name, parameter in single.named_parameters():
        # The scale rounds to float32, and so does its product with the noise.
        assert ((parameter - double[name]).abs() <= 2.01 * 2.0**-24 * double[name].abs()).all()


def test_building_a_model_touches_no_global_random_state(build: Build):
    before = torch.random.get_rng_state()
    build(RD)
    assert torch.equal(before, torch.random.get_rng_state())


def module_with(parameter: str, *, std: float = 1.0) -> DeclaredModule:
    module = DeclaredModule()
    module.declare(parameter, (4,), Role.GAIN, Init(constant=2.0, std=std))
    return module


def test_values_are_the_constant_plus_scaled_noise_of_the_parameters_own_name():
    a, b = module_with("gain"), module_with("gain", std=0.5)
    for module in (a, b):
        initialise(module, "study")
    noise = (a.get_parameter("gain") - 2.0).detach()
    # 2 + noise rounds to a few units in the last place of 4.
    assert torch.allclose(b.get_parameter("gain") - 2.0, 0.5 * noise, atol=4 * 2.0**-23)
    other = module_with("other")
    initialise(other, "study")
    assert not torch.equal(other.get_parameter("other"), a.get_parameter("gain"))


def test_a_parameter_without_a_declaration_is_refused_by_name():
    model = nn.Sequential(module_with("gain"), nn.Linear(2, 2))
    with pytest.raises(RoleError, match=r"'1\.weight' has no declared role") as caught:
        declarations(model)
    assert caught.value.received == "a bare parameter of Linear"


def test_a_bare_parameter_inside_a_declared_module_is_refused():
    module = module_with("gain")
    module.register_parameter("bare", nn.Parameter(torch.zeros(1)))
    with pytest.raises(RoleError, match="'bare' has no declared role"):
        declarations(module)


def test_a_second_declaration_of_one_name_is_refused():
    with pytest.raises(RoleError, match="'gain' is declared twice"):
        module_with("gain").declare("gain", (4,), Role.GAIN, ONES)


def test_one_tensor_under_two_names_is_refused_naming_both():
    first, second = module_with("gain"), module_with("gain")
    second.register_parameter("gain", first.get_parameter("gain"))
    with pytest.raises(RoleError, match=r"under 2 names: 0\.gain, 1\.gain"):
        declarations(nn.Sequential(first, second))


def test_a_module_used_twice_is_refused_as_one_tensor_under_two_names():
    shared = module_with("gain")
    with pytest.raises(RoleError, match="under 2 names"):
        declarations(nn.Sequential(shared, shared))
