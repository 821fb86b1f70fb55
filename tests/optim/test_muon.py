from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from paribus.optim.muon import COEFFICIENTS, Muon, orthogonalise
from paribus.optim.scale import keller, moonshot

Draw = Callable[..., Tensor]
SHAPES = [(12, 12), (8, 20), (20, 8)]


@pytest.mark.parametrize(("rows", "columns"), SHAPES)
def test_a_well_conditioned_matrix_keeps_its_singular_vectors_and_gets_values_near_one(
    matrix: Draw, rows: int, columns: int
):
    m = matrix("spread", rows, columns, torch.logspace(0, -1, min(rows, columns)))
    left, _, right = torch.linalg.svd(m.double(), full_matrices=False)
    core = left.T @ orthogonalise(m[None])[0].double() @ right.T
    values = core.diagonal()
    assert 0.68 <= float(values.min()) <= float(values.max()) <= 1.14
    # Five iterations of three products, in float32, on numbers of size 1, amplified at most by 3.4445 in each.
    assert (core - torch.diag(values)).abs().max() < 15 * 20 * 3.4445 * 2.0**-24


def test_every_singular_value_above_a_hundredth_of_the_norm_ends_in_the_stated_band(matrix: Draw):
    """One value against a dominant one: the quintic reaches the band from 0.01 of the Frobenius norm on."""
    for small in torch.logspace(-2, 0, 40).tolist():
        m = matrix("two", 2, 2, torch.tensor([1.0, small]))
        values = torch.linalg.svdvals(orthogonalise(m[None])[0])
        assert 0.68 <= float(values.min()) <= float(values.max()) <= 1.14


def test_the_scale_of_the_gradient_does_not_matter(matrix: Draw):
    m = matrix("scale", 8, 20, torch.linspace(1, 0.2, 8))
    # 2^-10 is exact; the rest is equal arithmetic.
    assert torch.equal(orthogonalise(m[None]), orthogonalise(2.0**-10 * m[None]))


@pytest.mark.parametrize(("rows", "columns"), SHAPES)
def test_matrices_of_one_shape_are_orthogonalised_one_by_one(matrix: Draw, rows: int, columns: int):
    rank = min(rows, columns)
    batch = torch.stack([matrix(f"unit {i}", rows, columns, (i + 1) * torch.linspace(1, 0.3, rank)) for i in range(3)])
    together = orthogonalise(batch)
    for found, alone in zip(together, batch, strict=True):
        # The same products, perhaps summed in another order (as above).
        assert (found - orthogonalise(alone[None])[0]).abs().max() < 15 * 20 * 3.4445 * 2.0**-24


@pytest.mark.parametrize(("rows", "columns", "factor"), [(6, 6, 1.0), (6, 24, 1.0), (24, 6, 2.0)])
def test_the_step_grows_with_the_root_of_rows_over_columns(rows: int, columns: int, factor: float):
    assert keller(rows, columns) == factor


@pytest.mark.parametrize(("rows", "columns"), [(6, 6), (6, 24), (24, 6), (1, 7)])
def test_moonshots_scale_gives_an_exact_polar_factor_the_root_mean_square_of_an_adamw_step(
    matrix: Draw, rows: int, columns: int
):
    exact = matrix("polar factor", rows, columns, torch.ones(min(rows, columns)))
    # The matrix is rounded to float32 once.
    assert float((moonshot(rows, columns) * exact).square().mean().sqrt()) == pytest.approx(0.2, rel=2.0**-22)


@pytest.mark.parametrize(("rows", "columns"), SHAPES)
def test_the_scale_multiplies_the_step_and_not_the_decay(matrix: Draw, rows: int, columns: int):
    rank = min(rows, columns)
    start, gradient = (matrix(name, rows, columns, torch.linspace(1, 0.4, rank)) for name in ("start", "gradient"))
    found = {}
    for scale in ("keller", "moonshot"):
        parameter = nn.Parameter(start.clone())
        parameter.grad = gradient.clone()
        Muon([parameter], lr=0.5, momentum=0.9, weight_decay=0.1, scale=scale).step()
        found[scale] = parameter.detach().double() - start.double() * (1 - 0.5 * 0.1)
    ratio = moonshot(rows, columns) / keller(rows, columns)
    # Weights near 1 and steps below 2 are rounded to float32 a few times.
    assert (found["moonshot"] - ratio * found["keller"]).abs().max() < 8 * 2 * 2.0**-24


def pair_of_parameters(matrix: Draw, shapes: list[tuple[int, int]]) -> tuple[list[nn.Parameter], list[nn.Parameter]]:
    values = [matrix(f"start {s}", *s, torch.linspace(1, 0.5, min(s))) for s in shapes]
    first, second = ([nn.Parameter(v.clone()) for v in values] for _ in range(2))
    return first, second


def test_two_steps_agree_with_torchs_muon(matrix: Draw):
    """torch.optim.Muon: the same momentum, Nesterov form, decay and shape factor; Newton-Schulz in bfloat16."""
    lr, ours_theirs = 0.1, pair_of_parameters(matrix, SHAPES)
    ours = Muon(ours_theirs[0], lr=lr, momentum=0.9, weight_decay=0.2)
    theirs = torch.optim.Muon(ours_theirs[1], lr=lr, momentum=0.9, weight_decay=0.2, adjust_lr_fn="original")
    for step in range(2):
        for parameters in ours_theirs:
            for parameter in parameters:
                rank = min(parameter.shape)
                parameter.grad = matrix(f"gradient {step}", *parameter.shape, torch.linspace(1, 0.2, rank))
        ours.step()
        theirs.step()
        for mine, other in zip(*ours_theirs, strict=True):
            # bfloat16 rounds by 2^-9 (relative), and each of five iterations adds up terms of sizes |a|, |b| and |c|.
            bound = (step + 1) * lr * keller(*mine.shape) * 5 * sum(map(abs, COEFFICIENTS)) * 2.0**-9
            assert torch.linalg.matrix_norm(mine - other, ord=2) < bound
            # An update has spectral size near 1: the bound would see a different momentum form or shape factor.
            assert bound < (step + 1) * lr * keller(*mine.shape) / 8


def test_one_step_by_hand(matrix: Draw):
    start, gradient = (matrix(name, 20, 8, torch.linspace(1, 0.4, 8)) for name in ("start", "gradient"))
    parameter = nn.Parameter(start.clone())
    parameter.grad = gradient.clone()
    Muon([parameter], lr=0.5, momentum=0.9, weight_decay=0.1).step()
    # Nesterov's first update is a multiple of the gradient, and a multiple has the same polar factor.
    expected = start * (1 - 0.5 * 0.1) - 0.5 * (20 / 8) ** 0.5 * orthogonalise(gradient[None])[0]
    assert (parameter - expected).abs().max() < 15 * 20 * 3.4445 * 2.0**-24


def test_the_momentum_is_an_average_of_gradients_and_the_update_looks_ahead(matrix: Draw):
    gradients = [matrix(f"g{i}", 6, 6, torch.linspace(1, 0.5, 6)) for i in range(2)]
    parameter = nn.Parameter(torch.zeros(6, 6))
    muon = Muon([parameter], lr=1.0, momentum=0.75, weight_decay=0.0)
    before = []
    for gradient in gradients:
        parameter.grad = gradient.clone()
        before.append(parameter.detach().clone())
        muon.step()
    momentum = 0.75 * 0.25 * gradients[0] + 0.25 * gradients[1]
    assert torch.allclose(muon.state[parameter]["momentum"], momentum, atol=2.0**-22)
    expected = before[1] - orthogonalise((0.25 * gradients[1] + 0.75 * momentum)[None])[0]
    assert (parameter - expected).abs().max() < 15 * 20 * 3.4445 * 2.0**-24


def test_a_zero_gradient_moves_nothing():
    parameter = nn.Parameter(torch.ones(3, 5))
    parameter.grad = torch.zeros(3, 5)
    Muon([parameter], lr=1.0, momentum=0.9, weight_decay=0.0).step()
    assert torch.equal(parameter, torch.ones(3, 5))
