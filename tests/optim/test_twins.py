"""Every update against a slow twin in float64, written from the equations: weights and state, along a recorded sequence
of full-rank gradients under a moving schedule."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch.optim import Optimizer

from paribus.optim import muon, polar_express
from paribus.optim.config import OptimiserConfig
from paribus.optim.groups import build_optimisers, set_schedule, state_tensors
from paribus.optim.schedule import Moment
from paribus.roles import DeclaredModule, Init, Role, initialise
from paribus.seeds import generator

Array = NDArray[np.float64]
U32 = 2.0**-24
SHAPES = [(12, 12), (8, 20), (20, 8), (4, 12), (16, 4)]
MOMENTS = [
    Moment(0.3, 1.0, 0.0, 0.85),
    Moment(0.7, 0.9, 0.3, 0.6),
    Moment(1.0, 0.5, 1.0, 0.0),
    Moment(1.0, 0.2, 1.0, 0.0),
    Moment(0.4, 0.1, 0.5, 0.45),
]
RATE, DECAY, MOMENTUM, BETA2 = 0.05, 0.6, 0.95, 0.9


def gradients(shape: tuple[int, ...], step: int) -> NDArray[np.float32]:
    """Of full rank, of another size in each row and each step, with a part that stays the same."""
    lasting = generator("tests", "twins", str(shape), "lasting").standard_normal(shape, dtype=np.float32)
    own = generator("tests", "twins", str(shape), step).standard_normal(shape, dtype=np.float32)
    rows = np.linspace(0.5, 2.0, shape[0], dtype=np.float32).reshape(-1, *[1] * (len(shape) - 1))
    return (rows * (lasting + own) * 10.0 ** (step % 3 - 2)).astype(np.float32)


def through_singular_values(matrix: Array, polynomials: list[tuple[float, ...]]) -> Array:
    """Odd polynomials of the singular values, by a decomposition instead of products."""
    left, values, right = np.linalg.svd(matrix, full_matrices=False)
    for a, b, c in polynomials:
        values = a * values + b * values**3 + c * values**5
    return left @ np.diag(values) @ right


class Twin(NamedTuple):
    """Weight and state of one matrix, and its update."""

    weight: Array
    state: dict[str, Array]
    update: Callable[[Array, Array, Array, dict[str, Array], Moment], Array]


def ahead(gradient: Array, state: dict[str, Array], mu: float) -> Array:
    state["momentum"] = mu * state["momentum"] + (1 - mu) * gradient
    return (1 - mu) * gradient + mu * state["momentum"]


def scale_of(shape: tuple[int, ...], rule: str) -> float:
    rows, columns = shape
    return (rows / columns if rows > columns else 1.0) ** 0.5 if rule == "keller" else 0.2 * max(rows, columns) ** 0.5


def plain(rule: str) -> Callable[..., Array]:
    def update(weight: Array, gradient: Array, state: dict[str, Array], now: Moment) -> Array:
        g = ahead(gradient, state, now.momentum(MOMENTUM))
        x = through_singular_values(g / np.linalg.norm(g), [muon.COEFFICIENTS] * 5)
        rate = RATE * now.learning_rate
        return weight - rate * DECAY * now.weight_decay * weight - rate * scale_of(weight.shape, rule) * x

    return update


def of_nanochat(rule: str, *, equal_rows: bool, unit: bool) -> Callable[..., Array]:
    def update(weight: Array, gradient: Array, state: dict[str, Array], now: Moment) -> Array:
        g = ahead(gradient, state, now.momentum(MOMENTUM))
        if equal_rows:
            lengths = np.array([np.linalg.norm(row) for row in g])
            g = np.array([row / length * np.sqrt(np.mean(lengths**2)) for row, length in zip(g, lengths, strict=True)])
        x = through_singular_values(g / (1.01 * np.linalg.norm(g) + 1e-6), list(polar_express.COEFFICIENTS))
        if unit:
            x = x * np.sqrt(min(x.shape)) / np.linalg.norm(x)
        by_row = x.shape[0] >= x.shape[1]
        square = np.array([[np.mean(row**2)] for row in x]) if by_row else np.array([[np.mean(c**2) for c in x.T]])
        state["variance"] = BETA2 * state["variance"] + (1 - BETA2) * square
        u = x / np.sqrt(state["variance"])
        u = u * np.linalg.norm(x) / np.linalg.norm(u)
        rate = RATE * now.learning_rate * scale_of(weight.shape, rule)
        agreeing = np.where(u * weight >= 0, 1.0, 0.0)
        return weight - rate * u - rate * DECAY * now.weight_decay * weight * agreeing

    return update


def adamw(weight: Array, gradient: Array, state: dict[str, Array], now: Moment) -> Array:
    rate, (beta1, beta2) = RATE * now.learning_rate, (0.9, 0.95)
    state["step"] = state["step"] + 1
    state["exp_avg"] = beta1 * state["exp_avg"] + (1 - beta1) * gradient
    state["exp_avg_sq"] = beta2 * state["exp_avg_sq"] + (1 - beta2) * gradient**2
    first = state["exp_avg"] / (1 - beta1 ** state["step"])
    second = state["exp_avg_sq"] / (1 - beta2 ** state["step"])
    decayed = weight * (1 - rate * DECAY * now.weight_decay)
    return decayed - rate * first / (np.sqrt(second) + 1e-10)


class Case(NamedTuple):
    fields: dict[str, Any]
    update: Callable[..., Array]
    amplified: float
    """times a gradient's rounding, in the update"""


CASES = {
    "muon": Case({}, plain("keller"), 3.4445**5),
    "muon, moonshot": Case({"matrix_scale": "moonshot"}, plain("moonshot"), 3.4445**5),
    "nanochat, April": Case({"matrix_update": "nanochat"}, of_nanochat("keller", equal_rows=False, unit=False), 990),
    "nanochat, July": Case(
        {"matrix_update": "nanochat", "matrix_row_equilibration": True, "matrix_unit_norm": True},
        of_nanochat("keller", equal_rows=True, unit=True),
        990,
    ),
    "nanochat, moonshot": Case(
        {"matrix_update": "nanochat", "matrix_scale": "moonshot"},
        of_nanochat("moonshot", equal_rows=False, unit=False),
        990,
    ),
    "adamw": Case({"matrix_update": "adamw"}, adamw, 100),
}


class Matrices(DeclaredModule):
    """Two matrices of each shape, one beside the other in a batched product, the other away from it by name."""

    def __init__(self) -> None:
        super().__init__()
        for rows, columns in SHAPES:
            for name in ("a", "z"):
                self.declare(f"{name}_{rows}_{columns}", (rows, columns), Role.MATRIX, Init(std=0.5))
        initialise(self, "tests", "twins")


def apply(module: DeclaredModule, optimisers: list[Optimizer], step: int, now: Moment) -> None:
    for name, parameter in module.named_parameters():
        parameter.grad = torch.from_numpy(gradients(tuple(parameter.shape), step + 10 * name.startswith("z")))
    set_schedule(optimisers, now)
    for optimiser in optimisers:
        optimiser.step()


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_weights_and_state_of_hidden_matrices_are_the_float64_twins(case: Case):
    momentum = {} if case.update is adamw else {"matrix_momentum": MOMENTUM}
    config = OptimiserConfig(matrix_learning_rate=RATE, matrix_weight_decay=DECAY, **momentum, **case.fields)
    module = Matrices()
    optimisers = build_optimisers(module, config)
    weights = {name: p.detach().double().numpy() for name, p in module.named_parameters()}
    states: dict[str, dict[str, Array]] = {
        name: dict.fromkeys(("momentum", "variance", "exp_avg", "exp_avg_sq", "step"), np.zeros(())) for name in weights
    }
    for step, now in enumerate(MOMENTS):
        apply(module, optimisers, step, now)
        kept = state_tensors(module, optimisers)
        for name, weight in weights.items():
            shape = weight.shape
            gradient = gradients(shape, step + 10 * name.startswith("z")).astype(np.float64)
            weights[name] = case.update(weight, gradient, states[name], now)
            rule = case.fields.get("matrix_scale", "keller")
            size = RATE * (1.0 if case.update is adamw else scale_of(shape, rule))
            # A gradient that is rounded a few times (8 U32 of its norm), grown by the update, in each step so far;
            # the weights themselves, below 4 in each entry, are rounded two or three times a step.
            tolerance = (step + 1) * (size * case.amplified * 8 * U32 + 3 * 4 * U32)
            error = np.abs(module.get_parameter(name).detach().double().numpy() - weights[name]).max()
            assert error < tolerance, f"{name} in step {step}"
            assert tolerance < size / 50, "an update of another form would be seen"
            for key in {key.rpartition("/")[2] for key in kept if key.startswith(f"{name}/")}:
                found, expected = kept[f"{name}/{key}"].double().numpy(), states[name][key]
                assert np.broadcast_shapes(found.shape, expected.shape) == found.shape
                relative = case.amplified if key == "variance" else 1
                assert np.abs(found - expected).max() <= relative * 16 * U32 * np.abs(expected).max(), f"{name}/{key}"


RATES = {"embedding": 0.3, "head": 0.01, "stream scale": 0.005, "shortcut": 0.2, "scalar": 0.05}
BETAS = {"embedding": (0.8, 0.995), "head": (0.8, 0.96), "shortcut": (0.96, 0.95)}
DECAYS = {"embedding": 0.001, "stream scale": 0.05, "head": 0.4}


class Others(DeclaredModule):
    """A parameter of each of five roles."""

    def __init__(self) -> None:
        super().__init__()
        for role, shape in zip(RATES, [(9, 4), (9, 4), (5,), (1,), (2, 3)], strict=True):
            self.declare(role.replace(" ", "_"), shape, Role(role), Init(std=1.0))
        initialise(self, "tests", "others")


def test_adamw_keeps_rate_decay_and_betas_of_each_role_apart_and_takes_no_notice_of_the_matrices_schedule():
    fields: dict[str, Any] = {f"{role.replace(' ', '_')}_learning_rate": rate for role, rate in RATES.items()}
    fields |= {f"{role.replace(' ', '_')}_weight_decay": decay for role, decay in DECAYS.items()}
    fields |= {f"{role.replace(' ', '_')}_betas": betas for role, betas in BETAS.items()}
    module = Others()
    (optimiser,) = build_optimisers(module, OptimiserConfig(**fields))
    weights = {name: p.detach().double().numpy() for name, p in module.named_parameters()}
    first, second = ({name: np.zeros(w.shape) for name, w in weights.items()} for _ in range(2))
    for step, now in enumerate(MOMENTS):
        apply(module, [optimiser], step, now)
        kept = state_tensors(module, [optimiser])
        for name, weight in weights.items():
            role = name.replace("_", " ")
            rate, (beta1, beta2) = RATES[role] * now.learning_rate, BETAS.get(role, (0.9, 0.95))
            gradient = gradients(weight.shape, step).astype(np.float64)
            first[name] = beta1 * first[name] + (1 - beta1) * gradient
            second[name] = beta2 * second[name] + (1 - beta2) * gradient**2
            ratio = first[name] / (1 - beta1 ** (step + 1)) / np.sqrt(second[name] / (1 - beta2 ** (step + 1)))
            weights[name] = weight * (1 - rate * DECAYS.get(role, 0.0)) - rate * ratio
            # Both moments carry a few roundings of their largest terms; a step is at most a few rates.
            tolerance = (step + 1) * (RATES[role] * 100 * U32 + 3 * 4 * U32)
            assert np.abs(module.get_parameter(name).detach().double().numpy() - weights[name]).max() < tolerance
            for key, expected in (("exp_avg", first[name]), ("exp_avg_sq", second[name])):
                found = kept[f"{name}/{key}"].double().numpy()
                assert np.abs(found - expected).max() <= 16 * U32 * np.abs(expected).max()


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_zero_gradient_moves_nothing_but_what_decays(case: Case):
    config = OptimiserConfig(**case.fields)
    module = Matrices()
    before = {name: p.detach().clone() for name, p in module.named_parameters()}
    optimisers = build_optimisers(module, config)
    for parameter in module.parameters():
        parameter.grad = torch.zeros_like(parameter)
    for optimiser in optimisers:
        optimiser.step()
    assert all(torch.equal(p, before[name]) for name, p in module.named_parameters())


def test_a_row_without_gradient_stays_without_an_update_in_nanochats_muon():
    config = OptimiserConfig(matrix_update="nanochat", matrix_row_equilibration=True, matrix_unit_norm=True)
    module = Matrices()
    before = {name: p.detach().clone() for name, p in module.named_parameters()}
    (optimiser,) = build_optimisers(module, config)
    for parameter in module.parameters():
        gradient = gradients(tuple(parameter.shape), 0)
        gradient[1] = 0.0
        parameter.grad = torch.from_numpy(gradient)
    optimiser.step()
    for name, parameter in module.named_parameters():
        assert torch.isfinite(parameter).all()
        assert torch.equal(parameter[1], before[name][1])
        assert not torch.equal(parameter[0], before[name][0])


def test_nanochats_muon_decays_only_where_the_update_has_the_sign_of_the_weight():
    start = Matrices()
    moved = {}
    for decay in (0.0, DECAY):
        module = Matrices()
        config = OptimiserConfig(matrix_update="nanochat", matrix_learning_rate=RATE, matrix_weight_decay=decay)
        apply(module, build_optimisers(module, config), 0, Moment())
        moved[decay] = module
    for name, weight in start.named_parameters():
        update = (weight - moved[0.0].get_parameter(name)).detach()
        decayed = (moved[0.0].get_parameter(name) - moved[DECAY].get_parameter(name)).detach()
        size = RATE * scale_of(tuple(weight.shape), "keller") * DECAY
        expected = torch.where(update * weight >= 0, size * weight, 0.0).detach()
        assert (decayed - expected).abs().max() < 4 * 4 * U32  # weights below 4, rounded twice each
        assert 0 < int((expected != 0).sum()) < expected.numel()


@pytest.mark.parametrize("update", ["muon", "nanochat"])
def test_in_bfloat16_only_the_orthogonalisation_is_rounded(update: str):
    exact, rounded = (one_step(update, compute) for compute in ("float32", "bfloat16"))
    assert torch.equal(exact.before, rounded.before)
    assert torch.equal(exact.state["momentum"], rounded.state["momentum"])
    assert {tensor.dtype for step in (exact, rounded) for tensor in step.state.values()} == {torch.float32}
    moved, other = (step.after - step.before for step in (exact, rounded))
    # Fifteen products in a row, each rounded at 2^-9, which add up like noise; the first quintic enlarges what is small
    # by up to 8.2.
    assert 0.0 < float((moved - other).norm() / moved.norm()) < 8.2 * 15**0.5 * 2.0**-9


class Step(NamedTuple):
    """Weight before and after one update, and the optimiser's state."""

    before: torch.Tensor
    after: torch.Tensor
    state: dict[str, torch.Tensor]


def one_step(update: str, compute: str) -> Step:
    """Of a wide matrix."""
    model = DeclaredModule()
    model.declare("matrix", (8, 20), Role.MATRIX, Init(std=0.3))
    initialise(model, "tests", "twins")
    weight = model.get_parameter("matrix")
    before = weight.detach().clone()
    config = OptimiserConfig.model_validate({"matrix_update": update, "matrix_compute": compute})
    [optimiser] = build_optimisers(model, config)
    weight.grad = torch.from_numpy(gradients((8, 20), 0))
    optimiser.step()
    return Step(before, weight.detach(), dict(optimiser.state[weight]))
