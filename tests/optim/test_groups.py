import pytest
import torch
from torch.optim import AdamW, Optimizer

from paribus.errors import RoleError
from paribus.model.lawbench import LawBench
from paribus.model.prenorm import Prenorm
from paribus.optim import groups as groups_module
from paribus.optim.config import OptimiserConfig
from paribus.optim.groups import (
    build_optimisers,
    groups,
    load_state_tensors,
    route,
    set_multiplier,
    state_tensors,
    used_fields,
)
from paribus.optim.muon import Muon
from paribus.roles import ZEROS, DeclaredModule, Init, Role, declarations, initialise

CONFIG = OptimiserConfig(matrix_weight_decay=0.1)


def test_every_role_has_a_group():
    assert set(groups(CONFIG)) == set(Role)


def test_every_parameter_is_routed_by_its_role_and_taken_by_one_optimiser(role_decoupled: Prenorm):
    routed = route(role_decoupled, CONFIG)
    assert set(routed) == {name for name, _ in role_decoupled.named_parameters()}
    assert all(routed[name] == groups(CONFIG)[d.role] for name, d in declarations(role_decoupled).items())
    taken = [p for o in build_optimisers(role_decoupled, CONFIG) for g in o.param_groups for p in g["params"]]
    assert len(taken) == len(set(taken)) == len(routed)


def test_muon_takes_the_hidden_matrices_and_nothing_else(role_decoupled: Prenorm):
    muon, adamw = build_optimisers(role_decoupled, CONFIG)
    assert isinstance(muon, Muon)
    assert isinstance(adamw, AdamW)
    names = {parameter: name for name, parameter in role_decoupled.named_parameters()}
    matrices = {names[p] for group in muon.param_groups for p in group["params"]}
    families = [f"attention.{name}" for name in ("query", "key", "value", "output")]
    families += [f"mlp.{name}" for name in ("gate", "up", "down")]
    expected = {f"layers.{layer}.{family}" for layer in range(4) for family in families}
    assert matrices == expected


def test_depth_reads_and_gains_and_the_embedding_have_no_decay_and_rates_of_their_own(role_decoupled: Prenorm):
    config = OptimiserConfig(
        matrix_weight_decay=0.1,
        matrix_learning_rate=1.0,
        embedding_learning_rate=2.0,
        gain_learning_rate=3.0,
        depth_read_learning_rate=4.0,
    )
    names: dict[torch.Tensor, str] = {parameter: name for name, parameter in role_decoupled.named_parameters()}
    found = {
        names[p]: (g["lr"], g["weight_decay"])
        for o in build_optimisers(role_decoupled, config)
        for g in o.param_groups
        for p in g["params"]
    }
    assert found["embedding"] == (2.0, 0.0)
    assert found["layers.0.attention.query"] == (1.0, 0.1)
    assert found["layers.2.mlp_norm.gain"] == found["output_norm.gain"] == (3.0, 0.0)
    depth_reads = {name for name in found if name.startswith("routing.")}
    assert len(depth_reads) == 2 * 9 + 4
    assert {found[name] for name in depth_reads} == {(4.0, 0.0)}


def test_a_role_without_a_group_is_refused_by_parameter_name(role_decoupled: Prenorm, monkeypatch: pytest.MonkeyPatch):
    without = {role: group for role, group in groups(CONFIG).items() if role is not Role.DEPTH_READ}
    monkeypatch.setattr(groups_module, "groups", lambda _: without)
    with pytest.raises(RoleError, match=r"'routing\.attention\.0\.query' has role 'depth read', which no optimiser"):
        route(role_decoupled, CONFIG)


@pytest.mark.parametrize("shape", [(4,), (2, 3, 4)])
def test_a_matrix_without_two_axes_is_refused(shape: tuple[int, ...]):
    module = DeclaredModule()
    module.declare("stack", shape, Role.MATRIX, ZEROS)
    with pytest.raises(RoleError, match="'stack' is declared a hidden matrix but has shape"):
        route(module, CONFIG)


def test_the_multiplier_scales_every_group_from_its_own_base(role_decoupled: Prenorm):
    optimisers = build_optimisers(role_decoupled, CONFIG)
    every = [group for optimiser in optimisers for group in optimiser.param_groups]
    base = [group["lr"] for group in every]
    for value in (0.25, 0.5):
        set_multiplier(optimisers, value)
    assert [group["lr"] for group in every] == [value * 0.5 for value in base]


def test_fields_of_absent_roles_are_no_part_of_an_arms_recipe():
    present = set(Role) - {Role.DEPTH_READ, Role.SCALAR}
    absent = {"depth_read_learning_rate", "scalar_learning_rate"}
    assert set(OptimiserConfig.model_fields) - set(used_fields(CONFIG, present)) == absent
    assert used_fields(CONFIG, set(Role)) == CONFIG.model_dump()


def step(bench: LawBench, model: Prenorm, optimisers: list[Optimizer]) -> None:
    bench.loss_and_gradients(model)
    for optimiser in optimisers:
        optimiser.step()


@pytest.mark.parametrize("arm", [{}, {"routing": {"name": "role-decoupled", "blocks": 3}}], ids=["std", "rd"])
def test_a_saved_and_loaded_state_takes_a_bit_identical_next_step(bench: LawBench, arm: dict):
    def fresh() -> tuple[Prenorm, list[Optimizer]]:
        model = bench.model(arm)
        return model, build_optimisers(model, CONFIG)

    model, optimisers = fresh()
    for _ in range(2):
        step(bench, model, optimisers)
    saved = {name: tensor.clone() for name, tensor in state_tensors(model, optimisers).items()}
    other, others = fresh()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            other.get_parameter(name).copy_(parameter)
    load_state_tensors(other, others, saved)
    step(bench, model, optimisers)
    step(bench, other, others)
    assert all(torch.equal(p, other.get_parameter(name)) for name, p in model.named_parameters())
    # The loaded state is a copy: the second step did not write through it.
    assert all(not torch.equal(saved[n], t) for n, t in state_tensors(other, others).items() if n.endswith("momentum"))


def test_state_is_kept_for_every_parameter_under_its_name(bench: LawBench, role_decoupled: Prenorm):
    optimisers = build_optimisers(role_decoupled, CONFIG)
    step(bench, role_decoupled, optimisers)
    state = state_tensors(role_decoupled, optimisers)
    assert {name.rpartition("/")[0] for name in state} == {name for name, _ in role_decoupled.named_parameters()}
    assert {n.rpartition("/")[2] for n in state} == {"momentum", "step", "exp_avg", "exp_avg_sq"}


class _WithEveryKind(DeclaredModule):
    """A matrix, a learned scalar and a fixed direction."""

    def __init__(self) -> None:
        super().__init__()
        self.declare("matrix", (3, 4), Role.MATRIX, Init(std=1.0))
        self.declare("strength", (2, 1), Role.SCALAR, ZEROS)
        self.declare("direction", (4,), Role.FIXED, Init(std=1.0))
        initialise(self, "tests", "every kind")


def test_scalars_are_on_adamw_without_decay_at_their_own_rate():
    config = OptimiserConfig(matrix_weight_decay=0.1, scalar_learning_rate=7.0)
    module = _WithEveryKind()
    groups_of_scalar = [
        (type(o), g["lr"], g["weight_decay"])
        for o in build_optimisers(module, config)
        for g in o.param_groups
        if any(p is module.get_parameter("strength") for p in g["params"])
    ]
    assert groups_of_scalar == [(AdamW, 7.0, 0.0)]


def test_fixed_values_are_drawn_by_name_require_no_gradient_and_no_optimiser_takes_them():
    module = _WithEveryKind()
    fixed = module.get_parameter("direction")
    assert fixed.any()
    assert not fixed.requires_grad
    taken = {id(p) for o in build_optimisers(module, CONFIG) for g in o.param_groups for p in g["params"]}
    assert taken == {id(module.get_parameter(name)) for name in ("matrix", "strength")}
    assert route(module, CONFIG)["direction"].optimiser == "none"
