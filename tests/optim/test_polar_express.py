"""The five triples follow from the paper's construction, and bring singular values to where it says."""

from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch
from torch import Tensor

from paribus.optim.polar_express import COEFFICIENTS, NORM_FACTOR, polar_express

Draw = Callable[..., Tensor]
LOWEST, CUSHION, SAFETY = 1e-3, 0.02, 1.02
LOW, HIGH = 0.858, 1.142
"""the stated band"""
SHAPES = [(12, 12), (8, 20), (20, 8), (4, 12), (1, 9)]
U32 = 2.0**-24


def closest_quintic(low: float, high: float) -> np.ndarray:
    """(a, b, c) of the odd quintic whose largest distance from 1 on [low, high] is smallest: its error takes the
    extreme value at four points with alternating signs (Chebyshev), found by exchanging the inner two."""
    inner = np.array([(3 * low + high) / 4, (low + 3 * high) / 4])
    while True:
        points = np.array([low, *inner, high])
        system = np.stack([points, points**3, points**5, [1, -1, 1, -1]], axis=1)
        a, b, c, _ = np.linalg.solve(system, np.ones(4))
        squares = np.roots([5 * c, 3 * b, a])  # where the derivative is zero
        moved = np.sort(np.sqrt(squares.real))
        if np.abs(moved - inner).max() < 1e-15 * high:
            return np.array([a, b, c])
        inner = moved


def constructed() -> Iterator[np.ndarray]:
    """Amsel et al., section 3: each quintic is the closest on what the last one leaves of [LOWEST, 1]."""
    low, high = LOWEST, 1.0
    for step in range(5):
        triple = closest_quintic(max(low, CUSHION * high), high)
        powers = np.array([1, 3, 5])
        if CUSHION * high > low:  # centred, so that the values at both ends are equally far from 1
            triple = triple * 2 / sum(triple @ end**powers for end in (low, high))
        triple = triple / SAFETY**powers if step < 4 else triple
        yield triple
        low = float(triple @ low**powers)
        high = 2 - low


def test_the_triples_are_those_of_the_construction():
    # Systems of condition about 1e3 in float64, five in a row.
    assert np.array(list(constructed())) == pytest.approx(np.array(COEFFICIENTS), abs=1e-11)


def composed(values: Tensor) -> Tensor:
    """What five iterations make of singular values, in float64."""
    for a, b, c in COEFFICIENTS:
        values = a * values + b * values**3 + c * values**5
    return values


def test_singular_values_from_a_thousandth_on_end_in_the_stated_band():
    found = composed(torch.logspace(-3, 0, 300_001, dtype=torch.float64))
    assert LOW < float(found.min()) < LOW + 1e-3
    assert HIGH - 1e-3 < float(found.max()) < HIGH
    below = composed(torch.logspace(-6, -3, 1001, dtype=torch.float64)[:-1])
    assert float(below.max()) < LOW + 1e-3, "below a thousandth they are on their way"


def test_no_singular_value_grows_by_more_than_the_product_of_the_leading_coefficients():
    values = torch.logspace(-6, 0, 100_001, dtype=torch.float64)
    assert float((composed(values) / values).max()) < 990


@pytest.mark.parametrize(("rows", "columns"), SHAPES)
def test_a_matrix_keeps_its_singular_vectors_and_its_values_become_the_composed_polynomials(
    matrix: Draw, rows: int, columns: int
):
    m = matrix("polar", rows, columns, torch.logspace(0, -2, min(rows, columns)))
    left, values, right = torch.linalg.svd(m.double(), full_matrices=False)
    expected = composed(values / (NORM_FACTOR * values.norm() + 1e-6))
    core = left.T @ polar_express(m[None])[0].double() @ right.T
    # float32: the input's rounding and up to 20 terms a product, grown at most 989 times on the way.
    assert (core - torch.diag(expected)).abs().max() < 989 * 4 * U32
    if min(rows, columns) > 1:
        reached = torch.linalg.svdvals(polar_express(m[None])[0])
        assert LOW < float(reached.min()) <= float(reached.max()) < HIGH


@pytest.mark.parametrize(("rows", "columns"), SHAPES)
def test_matrices_of_one_shape_are_orthogonalised_one_by_one(matrix: Draw, rows: int, columns: int):
    rank = min(rows, columns)
    batch = torch.stack([matrix(f"one {i}", rows, columns, (i + 1) * torch.linspace(1, 0.3, rank)) for i in range(3)])
    for found, alone in zip(polar_express(batch), batch, strict=True):
        # The same products, perhaps summed in another order.
        assert (found - polar_express(alone[None])[0]).abs().max() < 989 * 4 * U32


def test_a_zero_matrix_stays_zero():
    assert torch.equal(polar_express(torch.zeros(2, 3, 5)), torch.zeros(2, 3, 5))
