import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.optim import AdamW, Optimizer

from paribus.errors import RoleError
from paribus.model.backbone import Backbone
from paribus.model.lawbench import LawBench
from paribus.optim import groups as groups_module
from paribus.optim.config import OptimiserConfig
from paribus.optim.groups import (
    build_optimisers,
    groups,
    load_state_tensors,
    role_of,
    route,
    set_schedule,
    state_tensors,
    used_fields,
)
from paribus.optim.muon import Muon
from paribus.optim.nanochat import NanochatMuon
from paribus.optim.schedule import Moment
from paribus.roles import ZEROS, DeclaredModule, Init, Role, declarations, initialise

CONFIG = OptimiserConfig(matrix_weight_decay=0.1)


def test_every_role_has_a_group():
    assert set(groups(CONFIG)) == set(Role)


def test_every_parameter_is_routed_by_its_role_and_taken_by_one_optimiser(role_decoupled: Backbone):
    routed = route(role_decoupled, CONFIG)
    assert set(routed) == {name for name, _ in role_decoupled.named_parameters()}
    assert all(routed[name] == groups(CONFIG)[d.role] for name, d in declarations(role_decoupled).items())
    taken = [p for o in build_optimisers(role_decoupled, CONFIG) for g in o.param_groups for p in g["params"]]
    assert len(taken) == len(set(taken)) == len(routed)


def test_muon_takes_the_hidden_matrices_and_nothing_else(role_decoupled: Backbone):
    muon, adamw = build_optimisers(role_decoupled, CONFIG)
    assert isinstance(muon, Muon)
    assert isinstance(adamw, AdamW)
    names = {parameter: name for name, parameter in role_decoupled.named_parameters()}
    matrices = {names[p] for group in muon.param_groups for p in group["params"]}
    families = [f"attention.{name}" for name in ("query", "key", "value", "output")]
    families += [f"mlp.{name}" for name in ("gate", "up", "down")]
    expected = {f"layers.{layer}.{family}" for layer in range(4) for family in families}
    assert matrices == expected


def test_depth_reads_and_gains_and_the_embedding_have_no_decay_and_rates_of_their_own(role_decoupled: Backbone):
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


def test_a_role_without_a_group_is_refused_by_parameter_name(role_decoupled: Backbone, monkeypatch: pytest.MonkeyPatch):
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


def test_a_moment_sets_every_rate_and_the_decay_and_momentum_of_matrices_from_their_own_base(role_decoupled: Backbone):
    config = OptimiserConfig(matrix_weight_decay=0.1, matrix_momentum=0.9, embedding_weight_decay=0.3)
    optimisers = build_optimisers(role_decoupled, config)
    every = [group for optimiser in optimisers for group in optimiser.param_groups]
    base = [group["lr"] for group in every]
    for moment in (Moment(0.25, 0.8, 0.5, 0.2), Moment(0.5, 0.4, 0.75, 0.1)):
        set_schedule(optimisers, moment)
    assert [group["lr"] for group in every] == [rate * 0.5 for rate in base]
    (matrices,) = optimisers[0].param_groups
    assert (matrices["weight_decay"], matrices["momentum"]) == (0.1 * 0.4, 0.1 + 0.75 * 0.9)
    assert sorted(group["weight_decay"] for group in optimisers[1].param_groups) == [0.0, 0.0, 0.3]
    set_schedule(optimisers, Moment())
    assert [group["lr"] for group in every] == base
    assert (matrices["weight_decay"], matrices["momentum"]) == (0.1, 0.9)


def test_matrices_on_adamw_keep_their_own_decay_even_beside_a_role_with_the_same_numbers(role_decoupled: Backbone):
    config = OptimiserConfig(
        matrix_update="adamw",
        matrix_learning_rate=0.04,
        matrix_weight_decay=0.3,
        embedding_learning_rate=0.04,
        embedding_weight_decay=0.3,
    )
    (adamw,) = build_optimisers(role_decoupled, config)
    assert isinstance(adamw, AdamW)
    set_schedule([adamw], Moment(weight_decay=0.5))
    names: dict[torch.Tensor, str] = {parameter: name for name, parameter in role_decoupled.named_parameters()}
    decays = {names[p]: group["weight_decay"] for group in adamw.param_groups for p in group["params"]}
    assert set(decays) == set(names.values())
    assert (decays["layers.1.mlp.down"], decays["embedding"]) == (0.15, 0.3)


def test_each_matrix_update_has_its_own_optimiser_and_name(role_decoupled: Backbone):
    kinds = {"muon": (Muon, "Muon"), "nanochat": (NanochatMuon, "nanochat's Muon"), "adamw": (AdamW, "AdamW")}
    for update, (kind, name) in kinds.items():
        config = OptimiserConfig.model_validate({"matrix_update": update})
        assert isinstance(build_optimisers(role_decoupled, config)[0], kind)
        assert groups(config)[Role.MATRIX].optimiser == name
        assert groups(config)[Role.EMBEDDING].optimiser == "AdamW"


def test_what_a_recipe_says_about_matrices_reaches_their_optimiser(role_decoupled: Backbone):
    config = OptimiserConfig(
        matrix_update="nanochat",
        matrix_scale="moonshot",
        matrix_compute="bfloat16",
        matrix_momentum=0.8,
        matrix_variance_beta2=0.7,
        matrix_row_equilibration=True,
    )
    (group,) = build_optimisers(role_decoupled, config)[0].param_groups
    assert {name: value for name, value in group.items() if name != "params"} == {
        "lr": 0.02,
        "base_lr": 0.02,
        "weight_decay": 0.0,
        "base_weight_decay": 0.0,
        "momentum": 0.8,
        "base_momentum": 0.8,
        "scale": "moonshot",
        "compute": "bfloat16",
        "beta2": 0.7,
        "row_equilibration": True,
        "unit_norm": False,
    }


def test_a_model_without_matrices_or_without_anything_else_has_one_optimiser():
    for role, kind in ((Role.GAIN, AdamW), (Role.MATRIX, Muon)):
        module = DeclaredModule()
        module.declare("only", (3, 4), role, ZEROS)
        (optimiser,) = build_optimisers(module, CONFIG)
        assert isinstance(optimiser, kind)


@pytest.mark.parametrize(
    ("field", "role"),
    [
        ("embedding_learning_rate", Role.EMBEDDING),
        ("embedding_scale_learning_rate", Role.EMBEDDING_SCALE),
        ("embedding_scale_betas", Role.EMBEDDING_SCALE),
        ("value_embedding_weight_decay", Role.VALUE_EMBEDDING),
        ("stream_scale_betas", Role.STREAM_SCALE),
        ("matrix_scale", Role.MATRIX),
        ("adam_beta1", None),
        ("gradient_clip_norm", None),
    ],
)
def test_a_field_is_about_the_role_whose_whole_name_it_begins_with(field: str, role: Role | None):
    assert role_of(field) is role


def test_every_trained_role_has_a_rate_and_a_decay_and_of_adamws_betas():
    for role in set(Role) - {Role.FIXED}:
        own = {name for name in OptimiserConfig.model_fields if role_of(name) is role}
        prefix = role.replace(" ", "_")
        assert {f"{prefix}_learning_rate", f"{prefix}_weight_decay"} <= own
        assert (f"{prefix}_betas" in own) == (role is not Role.MATRIX)


def test_fields_of_absent_roles_are_no_part_of_an_arms_recipe():
    config = OptimiserConfig(matrix_update="nanochat")
    assert used_fields(config, set(Role)) == config.model_dump()
    for absent in (Role.EMBEDDING, Role.EMBEDDING_SCALE, Role.DEPTH_READ, Role.MATRIX):
        left_out = set(OptimiserConfig.model_fields) - set(used_fields(config, set(Role) - {absent}))
        assert left_out == {name for name in OptimiserConfig.model_fields if role_of(name) is absent}
        assert left_out


def test_fields_that_the_update_of_matrices_does_not_read_are_no_part_of_a_recipe():
    left_out = {
        update: set(OptimiserConfig.model_fields)
        - set(used_fields(OptimiserConfig.model_validate({"matrix_update": update}), set(Role)))
        for update in ("muon", "nanochat", "adamw")
    }
    of_nanochat = {"matrix_variance_beta2", "matrix_row_equilibration", "matrix_unit_norm"}
    assert left_out == {
        "muon": of_nanochat,
        "nanochat": set(),
        "adamw": of_nanochat | {"matrix_momentum", "matrix_scale", "matrix_compute"},
    }


ROLES = st.sets(st.sampled_from(list(Role))).map(lambda some: some | {Role.MATRIX})


@given(
    roles=ROLES,
    recipes=st.tuples(
        *[
            st.fixed_dictionaries(
                {"matrix_update": st.sampled_from(["muon", "nanochat", "adamw"])},
                optional={
                    "gradient_clip_norm": st.just(1.0),
                    "head_betas": st.just((0.8, 0.9)),
                    "embedding_scale_betas": st.just((0.9, 0.9)),
                    "embedding_weight_decay": st.just(0.1),
                    "matrix_learning_rate": st.just(0.1),
                    "adam_eps": st.just(1e-8),
                },
            )
        ]
        * 2
    ),
)
def test_two_recipes_that_differ_for_a_model_differ_in_a_field_that_both_state(roles, recipes):
    """The pair check of a contrast excuses a field that only one arm has."""
    one, other = (used_fields(OptimiserConfig(**recipe), roles) for recipe in recipes)
    if one != other:
        assert any(one[name] != other[name] for name in one.keys() & other.keys())


def step(bench: LawBench, model: Backbone, optimisers: list[Optimizer]) -> None:
    bench.loss_and_gradients(model)
    for optimiser in optimisers:
        optimiser.step()


UPDATES = {
    "muon": CONFIG,
    "nanochat": OptimiserConfig(matrix_update="nanochat", matrix_weight_decay=0.1, matrix_unit_norm=True),
    "adamw": OptimiserConfig(matrix_update="adamw", matrix_learning_rate=0.001, embedding_betas=(0.8, 0.9)),
}


@pytest.mark.parametrize("config", UPDATES.values(), ids=UPDATES)
@pytest.mark.parametrize("arm", [{}, {"routing": {"name": "role-decoupled", "blocks": 3}}], ids=["std", "rd"])
def test_a_saved_and_loaded_state_takes_a_bit_identical_next_step(bench: LawBench, arm: dict, config: OptimiserConfig):
    def fresh() -> tuple[Backbone, list[Optimizer]]:
        model = bench.model(arm)
        return model, build_optimisers(model, config)

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
    moving = ("momentum", "variance", "exp_avg")
    own = {n: t for n, t in state_tensors(other, others).items() if n.startswith("layers.") and n.endswith(moving)}
    assert own
    assert all(not torch.equal(saved[name], tensor) for name, tensor in own.items())


@pytest.mark.parametrize(
    ("update", "of_matrices"),
    [("muon", {"momentum"}), ("nanochat", {"momentum", "variance"}), ("adamw", {"step", "exp_avg", "exp_avg_sq"})],
)
def test_state_is_kept_for_every_parameter_under_its_name(
    bench: LawBench, role_decoupled: Backbone, update: str, of_matrices: set[str]
):
    optimisers = build_optimisers(role_decoupled, UPDATES[update])
    step(bench, role_decoupled, optimisers)
    state = state_tensors(role_decoupled, optimisers)
    kept: dict[str, set[str]] = {}
    for name in state:
        parameter, _, key = name.rpartition("/")
        kept.setdefault(parameter, set()).add(key)
    declared = declarations(role_decoupled)
    assert kept == {
        name: of_matrices if declared[name].role is Role.MATRIX else {"step", "exp_avg", "exp_avg_sq"}
        for name, _ in role_decoupled.named_parameters()
    }
    for name in [name for name in state if name.endswith("/variance")]:
        rows, columns = role_decoupled.get_parameter(name.rpartition("/")[0]).shape
        assert state[name].shape == ((rows, 1) if rows >= columns else (1, columns))


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
