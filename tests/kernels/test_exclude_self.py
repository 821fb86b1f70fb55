from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from paribus.kernels.exclude_self import cosine, exclude_self, exclude_self_reference

Noise = Callable[..., Tensor]
SHAPE = (2, 3, 4, 20)
U32, U64 = 2.0**-24, 2.0**-53


@pytest.fixture(scope="session")
def y(noise: Noise) -> Tensor:
    return noise("y", *SHAPE).float().double()


@pytest.fixture(scope="session")
def v(noise: Noise) -> Tensor:
    return noise("v", *SHAPE).float().double()


def gradients(y: Tensor, v: Tensor, strength: float, upstream: Tensor) -> tuple[Tensor, ...]:
    y, v = y.clone().requires_grad_(), v.clone().requires_grad_()
    return torch.autograd.grad(exclude_self(y, v, strength), (y, v), upstream)


@pytest.mark.parametrize(("dtype", "unit"), [(torch.float32, U32), (torch.float64, U64)])
@pytest.mark.parametrize("strength", [0.3, 1.0])
def test_agrees_with_the_loop_written_from_the_equation(
    y: Tensor, v: Tensor, strength: float, dtype: torch.dtype, unit: float
):
    found = exclude_self(y.to(dtype), v.to(dtype), strength)
    # Two sums of head_width rounded products, a quotient, a product and a subtraction, on numbers up to |y| each;
    # twice, because the twin rounds as well.
    bound = 2 * (2 * SHAPE[-1] + 4) * unit * y.norm(dim=-1, keepdim=True)
    assert ((found - exclude_self_reference(y, v, strength)).abs() <= bound).all()


@pytest.mark.parametrize("strength", [0.3, 1.0])
def test_gradients_are_the_closed_form_of_the_docstring(noise: Noise, y: Tensor, v: Tensor, strength: float):
    g = noise("g", *SHAPE)
    norm = v.norm(dim=-1, keepdim=True)
    u = v / norm
    gu, yu = (g * u).sum(-1, keepdim=True), (y * u).sum(-1, keepdim=True)
    of_y, of_v = gradients(y, v, strength, g)
    # Some three sums of head_width products, each on numbers up to |g| (for y) or |g| |y| / |v| (for v).
    bound = 8 * SHAPE[-1] * U64 * g.norm(dim=-1, keepdim=True)
    assert ((of_y - (g - strength * gu * u)).abs() <= bound).all()
    closed = -(strength / norm) * (gu * y + yu * g - 2 * yu * gu * u)
    assert ((of_v - closed).abs() <= bound * y.norm(dim=-1, keepdim=True) / norm).all()


def test_gradients_are_the_derivatives_of_the_forward_pass(noise: Noise):
    y, v = (noise(name, 1, 2, 2, 3).requires_grad_() for name in ("small y", "small v"))
    assert torch.autograd.gradcheck(lambda y, v: exclude_self(y, v, 0.7), (y, v))


def test_a_zero_value_passes_its_row_unchanged_forward_and_backward(noise: Noise, y: Tensor, v: Tensor):
    y, v = y.float(), v.float()
    v[0, 1, 2] = 0.0
    g = noise("g", *SHAPE).float()
    assert torch.equal(exclude_self(y, v, 1.0)[0, 1, 2], y[0, 1, 2])
    of_y, of_v = gradients(y, v, 1.0, g)
    assert torch.equal(of_y[0, 1, 2], g[0, 1, 2])
    assert of_v.isfinite().all()


def test_strength_zero_is_exact_forward_and_backward(noise: Noise, y: Tensor, v: Tensor):
    g = noise("g", *SHAPE).float()
    of_y, of_v = gradients(y.float(), v.float(), 0.0, g)
    assert torch.equal(exclude_self(y.float(), v.float(), 0.0), y.float())
    assert torch.equal(of_y, g)
    assert not of_v.any()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
def test_a_first_token_whose_output_is_its_value_becomes_zero(v: Tensor, dtype: torch.dtype):
    # The quotient of two equal sums is 1 up to the order of summation: twice head_width roundings of the arithmetic,
    # which is float32 for bfloat16 inputs.
    v = v.to(dtype)
    unit = U64 if dtype is torch.float64 else U32
    assert (exclude_self(v, v, 1.0).abs() <= 2 * SHAPE[-1] * unit * v.abs()).all()


@pytest.mark.parametrize("scale", [1e-30, 1e-18, 1e-6, 1e6, 1e18])
def test_bfloat16_values_whose_squares_leave_its_range_give_finite_results(y: Tensor, v: Tensor, scale: float):
    """Up to the size whose square float32 still holds, 1e19."""
    y, v = y.bfloat16(), (scale * v).bfloat16()
    z = exclude_self(y, v, 1.0)
    assert z.dtype == torch.bfloat16
    assert z.isfinite().all()
    assert all(t.isfinite().all() for t in gradients(y, v, 1.0, torch.ones_like(y)))
    if scale > 1e-12:
        # |cos| left after the rounding of z to bfloat16's 8 bits.
        assert (cosine(z, v).abs() <= 2.0**-8).all()


def test_the_removal_happens_in_float32_under_bfloat16_inputs(y: Tensor, v: Tensor):
    y, v = y.bfloat16(), v.bfloat16()
    assert torch.equal(exclude_self(y, v, 1.0), exclude_self(y.float(), v.float(), 1.0).bfloat16())


def test_cosine_is_zero_where_a_vector_is_zero_and_exact_on_parallel_vectors(v: Tensor):
    assert not cosine(torch.zeros_like(v), v).any()
    # Two norms and a dot product of head_width terms.
    assert ((cosine(v, -3 * v) + 1).abs() <= 2 * SHAPE[-1] * U64).all()
