from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from paribus.optim.clipping import clip_gradient, gradient_norm
from paribus.seeds import generator

SIZE = 997


def gradient(dtype: torch.dtype = torch.float32) -> Tensor:
    """Numbers of very different sizes."""
    draw = generator("tests", "clipping")
    return torch.from_numpy(draw.standard_normal(SIZE) * 10.0 ** draw.uniform(-6, 2, SIZE)).to(dtype)


def parameters(parts: list[Tensor]) -> list[nn.Parameter]:
    found = [nn.Parameter(torch.zeros_like(part)) for part in parts]
    for parameter, part in zip(found, parts, strict=True):
        parameter.grad = part.clone()
    return found


def exact_norm(whole: Tensor) -> float:
    return float(whole.double().square().sum().sqrt())


@given(cuts=st.lists(st.integers(0, SIZE), max_size=12))
def test_norm_and_clipped_gradient_do_not_depend_on_how_the_parameters_are_cut(cuts: list[int]):
    whole = gradient()
    bounds = [0, *sorted(cuts), SIZE]
    parts = [whole[a:b] for a, b in pairwise(bounds)]
    cut, one = parameters(parts), parameters([whole])
    assert clip_gradient(cut, 2.0) == clip_gradient(one, 2.0)
    together = torch.cat([p.grad for p in cut if p.grad is not None])
    assert one[0].grad is not None
    assert torch.equal(together, one[0].grad)


def test_the_norm_is_that_of_float64_rounded_to_float32():
    norm = gradient_norm(parameters(list(gradient().split(100))))
    assert norm.dtype == torch.float32
    assert float(norm) == pytest.approx(exact_norm(gradient()), rel=2.0**-24)


def test_squares_beyond_float32_do_not_overflow():
    assert float(gradient_norm(parameters([torch.full((4,), 1e30)]))) == pytest.approx(2e30, rel=2.0**-23)


def test_a_longer_gradient_is_shortened_to_the_norm_and_keeps_its_direction():
    found = parameters(list(gradient().split(100)))
    norm = clip_gradient(found, 0.5)
    clipped = torch.cat([p.grad for p in found if p.grad is not None])
    assert float(norm) == pytest.approx(exact_norm(gradient()), rel=2.0**-24)
    # A factor and each product are rounded once.
    assert exact_norm(clipped) == pytest.approx(0.5, rel=3 * 2.0**-24)
    expected = gradient().double() * 0.5 / exact_norm(gradient())
    assert ((clipped - expected).abs() <= 4 * 2.0**-24 * expected.abs()).all()


def test_a_gradient_of_any_size_is_shortened_exactly():
    tiny = 1e-8 * gradient()
    found = parameters([tiny])
    clip_gradient(found, 1e-9)
    assert found[0].grad is not None
    assert exact_norm(found[0].grad) == pytest.approx(1e-9, rel=3 * 2.0**-24)


def test_a_shorter_gradient_keeps_its_bits():
    found = parameters([gradient()])
    longest = 1.001 * exact_norm(gradient())
    clip_gradient(found, longest)
    assert found[0].grad is not None
    assert torch.equal(found[0].grad, gradient())


def test_parameters_without_a_gradient_are_left_out_and_zeros_change_nothing():
    absent, fixed = nn.Parameter(torch.ones(3)), nn.Parameter(torch.ones(3), requires_grad=False)
    zeros = parameters([torch.zeros(5)])
    found = parameters([gradient()])
    assert clip_gradient([absent, fixed, *zeros, *found], 1.0) == clip_gradient(parameters([gradient()]), 1.0)
    assert absent.grad is None
    assert fixed.grad is None
    assert float(clip_gradient([absent], 1.0)) == 0.0
    assert float(clip_gradient(zeros, 1.0)) == 0.0
    assert zeros[0].grad is not None
    assert torch.equal(zeros[0].grad, torch.zeros(5))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_the_norm_is_float32_whatever_the_gradients_are_and_they_stay_what_they_are(dtype: torch.dtype):
    found = parameters([gradient(dtype)])
    norm = clip_gradient(found, 1.0)
    assert (norm.dtype, float(norm)) == (torch.float32, pytest.approx(exact_norm(gradient(dtype)), rel=2.0**-24))
    assert found[0].grad is not None
    assert found[0].grad.dtype == dtype


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_gradient_that_is_not_finite_is_not_made_to_look_finite(bad: float):
    found = parameters([torch.tensor([1.0, bad])])
    assert not bool(clip_gradient(found, 1.0).isfinite())
    assert found[0].grad is not None
    assert not bool(found[0].grad.isfinite().all())
