from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from paribus.kernels.exclude_self import (
    RELATIVE_EPS,
    cosine,
    exclude_self,
    exclude_self_reference,
    own_component,
)

pytestmark = pytest.mark.usefixtures("way")
Noise = Callable[..., Tensor]
SHAPE = (2, 3, 4, 2, 20)
"""[batch time kv_head group head_width]; two query heads share a value"""
WIDTH = SHAPE[-1]
OF_VALUE = (*SHAPE[:3], 1, WIDTH)
U32, U64 = 2.0**-24, 2.0**-53


@pytest.fixture(scope="session")
def y(noise: Noise) -> Tensor:
    return noise("y", *SHAPE).float().double()


@pytest.fixture(scope="session")
def v(noise: Noise) -> Tensor:
    return noise("v", *OF_VALUE).float().double()


@pytest.fixture(scope="session")
def g(noise: Noise) -> Tensor:
    return noise("g", *SHAPE).float().double()


Map = Callable[[Tensor, Tensor, float], Tensor]


def gradients(y: Tensor, v: Tensor, strength: float, upstream: Tensor, of: Map = exclude_self) -> tuple[Tensor, ...]:
    y, v = y.clone().requires_grad_(), v.clone().requires_grad_()
    return torch.autograd.grad(of(y, v, strength), (y, v), upstream.to(y.dtype))


def norm(t: Tensor) -> Tensor:
    return t.double().norm(dim=-1, keepdim=True)


def bound_of_value_gradient(y: Tensor, v: Tensor, g: Tensor, unit: float) -> Tensor:
    """Two dot products of head_width products, their quotients and three products, on terms up to |g| |y| / |v| each,
    of which there are four, added over the group."""
    return ((4 * (2 * WIDTH + 8) * unit) * norm(g) * norm(y) / norm(v)).sum(-2, keepdim=True)


@pytest.mark.parametrize(("dtype", "unit"), [(torch.float32, U32), (torch.float64, U64)])
@pytest.mark.parametrize("strength", [0.3, 1.0])
def test_forward_and_gradients_agree_with_the_loop_written_from_the_equation(
    y: Tensor, v: Tensor, g: Tensor, strength: float, dtype: torch.dtype, unit: float
):
    found = exclude_self(y.to(dtype), v.to(dtype), strength)
    of_y, of_v = gradients(y.to(dtype), v.to(dtype), strength, g)
    expected_y, expected_v = gradients(y, v, strength, g, of=exclude_self_reference)
    # Two sums of head_width rounded products, a quotient, a product and a subtraction, on numbers up to |y| each;
    # twice, because the twin rounds as well.
    roundings = 2 * (2 * WIDTH + 6) * unit
    assert ((found - exclude_self_reference(y, v, strength)).abs() <= roundings * norm(y)).all()
    assert ((of_y - expected_y).abs() <= roundings * norm(g)).all()
    assert ((of_v - expected_v).abs() <= 2 * bound_of_value_gradient(y, v, g, unit)).all()


@pytest.mark.parametrize("strength", [0.3, 1.0])
def test_gradients_are_the_closed_form_of_the_docstring(y: Tensor, v: Tensor, g: Tensor, strength: float):
    u = v / norm(v)
    gu, yu = (g * u).sum(-1, keepdim=True), (y * u).sum(-1, keepdim=True)
    of_y, of_v = gradients(y, v, strength, g)
    assert ((of_y - (g - strength * gu * u)).abs() <= 2 * (2 * WIDTH + 6) * U64 * norm(g)).all()
    closed = (-(strength / norm(v)) * (gu * y + yu * g - 2 * yu * gu * u)).sum(-2, keepdim=True)
    assert ((of_v - closed).abs() <= 2 * bound_of_value_gradient(y, v, g, U64)).all()


def test_gradients_are_the_derivatives_of_the_forward_pass_for_a_fixed_and_a_learned_strength(noise: Noise):
    y, v = noise("small y", 1, 2, 2, 2, 3).requires_grad_(), noise("small v", 1, 2, 2, 1, 3).requires_grad_()
    strength = noise("strength", 2, 2, 1).requires_grad_()
    assert torch.autograd.gradcheck(lambda y, v: exclude_self(y, v, 0.7), (y, v))
    assert torch.autograd.gradcheck(exclude_self, (y, v, strength))
    assert torch.autograd.gradcheck(lambda s: exclude_self(y.detach(), v.detach(), s), (strength,))


@pytest.mark.parametrize("shape", [(4, 2, 1), (1, 1, 1), (4, 1, 1)])
def test_the_gradient_of_the_strength_is_minus_the_sum_of_both_projections(
    noise: Noise, y: Tensor, v: Tensor, g: Tensor, shape: tuple[int, ...]
):
    strength = noise("strengths", *shape).requires_grad_()
    (found,) = torch.autograd.grad(exclude_self(y, v, strength), strength, g)
    u = v / norm(v)
    terms = -(y * u).sum(-1, keepdim=True) * (g * u).sum(-1, keepdim=True)
    # Sums of head_width products, then over tokens and the heads that share the strength.
    bound = (2 * (2 * WIDTH + 6) + terms.numel()) * U64 * (norm(y) * norm(g)).sum_to_size(shape)
    assert ((found - terms.sum_to_size(shape)).abs() <= bound).all()


def test_a_strength_per_head_gives_each_head_its_own_removal(noise: Noise, y: Tensor, v: Tensor):
    strength = noise("strengths", 4, 2, 1)
    found = exclude_self(y, v, strength)
    for kv_head in range(4):
        for member in range(2):
            head = (slice(None), slice(None), slice(kv_head, kv_head + 1), slice(member, member + 1))
            alone = exclude_self(y[head], v[:, :, kv_head : kv_head + 1], float(strength[kv_head, member]))
            assert torch.equal(found[head], alone)


@pytest.mark.parametrize("ratio", [0.0, RELATIVE_EPS / 4], ids=["zero", "a quarter of the relative eps"])
def test_a_value_of_no_size_passes_its_row_unchanged_forwards_and_backwards(
    y: Tensor, v: Tensor, g: Tensor, ratio: float
):
    y, v, g = (t.float() for t in (y, v, g))
    v[0, 1, 2] *= ratio / v[0, 1, 2].abs().amax() * y[0, 1, 2].abs().amin(0).amax()
    v[1, 2, 3] *= ratio
    y[1, 2, 3] *= 8.0
    rows = [(0, 1, 2), (1, 2, 3)]
    of_y, of_v = gradients(y, v, 1.0, g)
    for row in rows:
        assert torch.equal(exclude_self(y, v, 1.0)[row], y[row])
        assert torch.equal(of_y[row], g[row])
        assert not of_v[row].any()
    assert of_v.isfinite().all()
    assert torch.equal(exclude_self_reference(y, v, 1.0)[rows[0]], y[rows[0]].double())
    strength = torch.ones(4, 2, 1, requires_grad=True)
    only_that_row = torch.zeros_like(g)
    only_that_row[0, 1, 2] = g[0, 1, 2]
    (of_strength,) = torch.autograd.grad(exclude_self(y, v, strength), strength, only_that_row)
    assert not of_strength.any()


def test_the_rule_is_applied_to_each_query_head_of_a_group_by_its_own_output(y: Tensor, v: Tensor):
    y = y.clone()
    y[0, 0, 0, 1] *= 2 / RELATIVE_EPS * float(v[0, 0, 0].abs().max()) / float(y[0, 0, 0, 1].abs().max())
    z = exclude_self(y, v, 1.0)
    assert torch.equal(z[0, 0, 0, 1], y[0, 0, 0, 1])
    assert not torch.equal(z[0, 0, 0, 0], y[0, 0, 0, 0])


@pytest.mark.parametrize("ratio", [1.5, 16.0, 2.0**10, 2.0**20])
def test_a_small_value_above_the_relative_eps_loses_its_whole_component_and_its_gradient_is_bounded(
    y: Tensor, v: Tensor, g: Tensor, ratio: float
):
    """No partial removal: an absolute eps would leave cos(z, v) between 0 and cos(y, v)."""
    largest = y.abs().amax((-1, -2), keepdim=True)
    v = v / v.abs().amax(-1, keepdim=True) * largest * RELATIVE_EPS * ratio
    z = exclude_self(y, v, 1.0)
    # Roundings of z relative to |y|, in a row where |z| is some tenths of |y|.
    assert ((norm(z) * cosine(z, v)[..., None]).abs() <= 2 * (2 * WIDTH + 6) * U64 * norm(y)).all()
    _, of_v = gradients(y, v, 1.0, g)
    bound = (norm(g) * WIDTH**0.5).sum(-2, keepdim=True) / RELATIVE_EPS
    assert (norm(of_v) <= bound).all()


@pytest.mark.parametrize(("of_y", "of_v"), [(-100, -100), (100, 100), (0, 60), (0, -8), (-8, 0)])
def test_scaling_by_powers_of_two_scales_results_and_gradients_bit_for_bit(
    y: Tensor, v: Tensor, g: Tensor, of_y: int, of_v: int
):
    """z goes with y; so does the gradient of v, and against v. Every power stays within float32's normal numbers."""
    y, v, g = (t.float() for t in (y, v, g))
    scaled = 2.0**of_y * y, 2.0**of_v * v
    assert torch.equal(exclude_self(*scaled, 1.0), 2.0**of_y * exclude_self(y, v, 1.0))
    (plain_y, plain_v), (scaled_y, scaled_v) = gradients(y, v, 1.0, g), gradients(*scaled, 1.0, g)
    assert torch.equal(scaled_y, plain_y)
    assert torch.equal(scaled_v, 2.0 ** (of_y - of_v) * plain_v)


def test_strength_zero_is_exact_forwards_and_backwards(y: Tensor, v: Tensor, g: Tensor):
    y, v, g = (t.float() for t in (y, v, g))
    for strength in (0.0, torch.zeros(4, 2, 1)):
        of_y, of_v = gradients(y, v, 0.0, g, of=lambda y, v, _, s=strength: exclude_self(y, v, s))
        assert torch.equal(exclude_self(y, v, strength), y)
        assert torch.equal(of_y, g)
        assert not of_v.any()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("size", [1e-37, 1.0, 1e36])
def test_a_first_token_whose_output_is_its_value_becomes_zero(v: Tensor, dtype: torch.dtype, size: float):
    # The quotient of two equal sums is 1 up to the order of summation: twice head_width roundings of the arithmetic,
    # which is float32 for bfloat16 inputs.
    v = (size * v).to(dtype)
    unit = U64 if dtype is torch.float64 else U32
    smallest = torch.finfo(dtype).smallest_normal
    assert (exclude_self(v, v, 1.0).abs() <= 2 * WIDTH * unit * v.abs() + smallest).all()


SIZES = [1e-37, 1e-30, 1e-18, 1e-6, 1.0, 1e6, 1e18, 1e30, 1e36, 1e37]


@pytest.mark.parametrize("of_y", SIZES)
@pytest.mark.parametrize("of_v", SIZES)
def test_bfloat16_values_and_outputs_of_any_size_give_finite_results(
    y: Tensor, v: Tensor, g: Tensor, of_y: float, of_v: float
):
    y, v, g = (of_y * y).bfloat16(), (of_v * v).bfloat16(), g.bfloat16()
    z = exclude_self(y, v, 1.0)
    assert z.dtype == torch.bfloat16
    assert z.isfinite().all()
    assert all(t.isfinite().all() for t in gradients(y, v, 1.0, g))
    if of_v < RELATIVE_EPS / 100 * of_y:
        assert torch.equal(z, y)
    elif of_v > 100 * RELATIVE_EPS * of_y:
        # |cos| left after the rounding of z to bfloat16's 8 bits, or to its smallest numbers.
        left = (z.double() * v.double()).sum(-1, keepdim=True).abs() / norm(v)
        assert (left <= 2.0**-8 * norm(z) + WIDTH * 2.0**-133 + 2 * (2 * WIDTH + 6) * U32 * norm(y)).all()


@pytest.mark.parametrize("width", [1, 64, 100, 256])
def test_outputs_of_one_sign_whose_sum_leaves_float32_lose_their_component(width: int):
    y = torch.full((1, 1, 1, 2, width), 1e37, requires_grad=True)
    v = torch.full((1, 1, 1, 1, width), 2.0**110, requires_grad=True)
    z = exclude_self(y, v, 1.0)
    assert (z.abs() <= 2 * width * U32 * 1e37).all()
    assert all(t.isfinite().all() for t in torch.autograd.grad(z, (y, v), torch.ones_like(z)))


def test_the_removal_happens_in_float32_under_bfloat16_inputs(y: Tensor, v: Tensor, g: Tensor):
    y, v, g = y.bfloat16(), v.bfloat16(), g.bfloat16()
    assert torch.equal(exclude_self(y, v, 1.0), exclude_self(y.float(), v.float(), 1.0).bfloat16())
    half, full = gradients(y, v, 1.0, g), gradients(y.float(), v.float(), 1.0, g.float())
    assert all(torch.equal(a, b.bfloat16()) for a, b in zip(half, full, strict=True))


def test_the_value_is_left_alone_where_it_needs_no_gradient(y: Tensor, v: Tensor, g: Tensor):
    y = y.clone().requires_grad_()
    (alone,) = torch.autograd.grad(exclude_self(y, v, 1.0), y, g)
    assert torch.equal(alone, gradients(y.detach(), v, 1.0, g)[0])


def test_a_second_derivative_is_refused(y: Tensor, v: Tensor):
    y = y.clone().requires_grad_()
    (first,) = torch.autograd.grad(exclude_self(y, v, 1.0).square().sum(), y, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        first.sum().backward()


def test_the_component_for_maps_built_from_it_is_the_one_that_is_removed(y: Tensor, v: Tensor, g: Tensor):
    def composed(y: Tensor, v: Tensor, strength: float) -> Tensor:
        along, unit = own_component(y, v)
        return y - strength * along * unit

    assert ((composed(y, v, 0.7) - exclude_self(y, v, 0.7)).abs() <= 2 * (2 * WIDTH + 6) * U64 * norm(y)).all()
    found, expected = (gradients(y, v, 0.7, g, of=of) for of in (composed, exclude_self))
    assert ((found[0] - expected[0]).abs() <= 2 * (2 * WIDTH + 6) * U64 * norm(g)).all()
    assert ((found[1] - expected[1]).abs() <= 2 * bound_of_value_gradient(y, v, g, U64)).all()
    # The same rows pass, without a NaN on the way back.
    v = v.clone()
    v[0, 1, 2] = 0.0
    of_y, of_v = gradients(y, v, 0.7, g, of=composed)
    assert torch.equal(composed(y, v, 0.7)[0, 1, 2], y[0, 1, 2])
    assert torch.equal(of_y[0, 1, 2], g[0, 1, 2])
    assert not of_v[0, 1, 2].any()
    assert of_v.isfinite().all()


def test_cosine_is_zero_where_a_vector_is_zero_and_exact_on_parallel_vectors(v: Tensor):
    assert not cosine(torch.zeros_like(v), v).any()
    # Two norms and a dot product of head_width terms.
    assert ((cosine(v, -3 * v) + 1).abs() <= 2 * WIDTH * U64).all()
