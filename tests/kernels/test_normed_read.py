"""A read with the norm behind it: the same numbers as one after the other, and nothing kept in between."""

from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from paribus.kernels import passes
from paribus.kernels.depth_read import depth_read, depth_read_reference, publish
from paribus.kernels.norm import Norm

pytestmark = pytest.mark.usefixtures("way")
Noise = Callable[..., Tensor]
Found = tuple[list[Tensor], list[Tensor]]
EPS = 1e-6
BATCH, TIME = 2, 3
U32 = 2.0**-24
ROUNDINGS = 1000
"""of float32, of a tensor's largest number: some hundred products a sum, a softmax, a root, and sums over tokens"""


def inputs_of(noise: Noise, k: int, m: int, width: int, tokens: int = TIME) -> tuple[list[Tensor], Tensor]:
    """([queries, key gain, norm gain, *sources], upstream), exactly representable in float32."""
    sources = [10.0 ** (i % 3 - 1) * noise(f"source {i}", BATCH, tokens, width) for i in range(k)]
    gains = (1 + 0.3 * noise("gain", width), 1 + 0.3 * noise("norm gain", width))
    own = [noise("queries", m, width) * width**-0.5, *gains, *sources]
    return [t.float().double() for t in own], noise("upstream", m, BATCH, tokens, width).float().double()


def normed(inputs: Sequence[Tensor], upstream: Tensor, dtype: torch.dtype, *, gain: bool = True) -> Found:
    """(what the norm makes of each mix, gradients of the inputs)."""
    queries, key_gain, norm_gain, *sources = own = [t.to(dtype, copy=True).requires_grad_() for t in inputs]
    published = [publish(v, EPS) for v in sources]
    found, _ = depth_read(published, queries, key_gain, Norm(norm_gain if gain else None, EPS))
    wanted = own if gain else [t for t in own if t is not norm_gain]
    gradients = torch.autograd.grad(found, wanted, [g.to(dtype) for g in upstream])
    return [t.detach() for t in found], list(gradients)


def twin(inputs: Sequence[Tensor], upstream: Tensor, *, gain: bool = True) -> Found:
    """The loop written from the equation and the norm written from its own, in float64."""
    queries, key_gain, norm_gain, *sources = own = [t.clone().requires_grad_() for t in inputs]
    mixes, _ = depth_read_reference(sources, queries, key_gain, EPS)
    found = mixes / torch.sqrt(mixes.square().mean(-1, keepdim=True) + EPS) * (norm_gain if gain else 1.0)
    wanted = own if gain else [t for t in own if t is not norm_gain]
    return list(found.detach()), list(torch.autograd.grad(found, wanted, upstream))


def within_rounding(found: Found, exact: Found) -> bool:
    pairs = [pair for one, other in zip(found, exact, strict=True) for pair in zip(one, other, strict=True)]
    return all(bool(((a - b).abs() <= ROUNDINGS * U32 * b.abs().max().clamp_min(1e-3)).all()) for a, b in pairs)


@pytest.mark.parametrize("gain", [True, False], ids=["gain", "no gain"])
@pytest.mark.parametrize("width", [24, 52])
@pytest.mark.parametrize(("k", "m"), [(1, 1), (2, 1), (5, 2), (9, 2), (18, 2), (4, 3), (3, 4)])
def test_it_agrees_with_the_equations_of_both(noise: Noise, k: int, m: int, width: int, gain: bool):
    inputs, upstream = inputs_of(noise, k, m, width)
    assert within_rounding(normed(inputs, upstream, torch.float32, gain=gain), twin(inputs, upstream, gain=gain))


def test_the_bound_sees_a_norm_of_another_eps(noise: Noise):
    inputs, upstream = inputs_of(noise, 4, 2, 24)
    (queries, key_gain, norm_gain, *sources) = (t.float() for t in inputs)
    found, _ = depth_read([publish(v, EPS) for v in sources], queries, key_gain, Norm(norm_gain, EPS + 1e-3))
    wanted, _ = twin(inputs, upstream)
    assert any(((a - b).abs() > ROUNDINGS * U32 * b.abs().max()).any() for a, b in zip(found, wanted, strict=True))


def test_gradients_are_the_derivatives_of_the_forward_pass(noise: Noise):
    inputs, _ = inputs_of(noise, 3, 2, 6)

    def found(queries: Tensor, key_gain: Tensor, norm_gain: Tensor, *sources: Tensor) -> Tensor:
        published = [publish(v, 1e-2) for v in sources]
        return torch.stack(depth_read(published, queries, key_gain, Norm(norm_gain, 1e-2))[0])

    assert torch.autograd.gradcheck(found, [t.requires_grad_() for t in inputs])


def test_scores_are_those_of_the_read_alone(noise: Noise):
    inputs, _ = inputs_of(noise, 4, 2, 24)
    queries, key_gain, norm_gain, *sources = (t.float() for t in inputs)
    published = [publish(v, EPS) for v in sources]
    mixes, scores = depth_read(published, queries, key_gain)
    found, same = depth_read(published, queries, key_gain, Norm(norm_gain, EPS))
    assert torch.equal(scores, same)
    for mix, one in zip(mixes, found, strict=True):
        # A sum of 24 squares in another order, a root, a reciprocal and two products.
        assert torch.allclose(one, functional.rms_norm(mix, (24,), norm_gain, EPS), rtol=32 * U32, atol=0)


def test_a_single_source_has_exactly_zero_query_and_key_gain_gradient(noise: Noise):
    inputs, upstream = inputs_of(noise, 1, 2, 24)
    _, gradients = normed(inputs, upstream, torch.float32)
    assert not gradients[0].any()
    assert not gradients[1].any()


def test_sources_of_zero_stay_zero_and_their_gradients_finite(noise: Noise):
    inputs, upstream = inputs_of(noise, 3, 2, 24)
    found, gradients = normed([*inputs[:3], *(0 * v for v in inputs[3:])], upstream, torch.float32)
    assert not any(one.any() for one in found)
    assert all(bool(gradient.isfinite().all()) for gradient in gradients)


def test_nothing_of_the_streams_size_is_kept_between_read_and_norm(noise: Noise, way: str):
    inputs, _ = inputs_of(noise, 4, 2, 24)
    queries, key_gain, norm_gain, *sources = (t.float().requires_grad_() for t in inputs)
    published = [publish(v, EPS) for v in sources]
    own = {t.data_ptr() for t in (queries, key_gain, norm_gain, *(s.value for s in published))}

    def kept(norm: Norm | None) -> int:
        sizes: dict[int, int] = {}

        def keep(t: Tensor) -> Tensor:
            sizes[t.data_ptr()] = t.numel()
            return t

        with torch.autograd.graph.saved_tensors_hooks(keep, lambda t: t):
            found, _ = depth_read(published, queries, key_gain, norm)
            if norm is None:
                found = tuple(map(Norm(norm_gain, EPS), found))
        assert len(found) == 2
        return max(size for address, size in sizes.items() if address not in own)

    stream = BATCH * TIME * 24
    assert kept(None) >= stream
    if way != "operators":
        assert kept(Norm(norm_gain, EPS)) < stream / 2


def test_the_number_of_threads_changes_no_bit(noise: Noise, way: str):
    if way == "operators":
        return
    inputs, upstream = inputs_of(noise, 4, 2, 24, tokens=passes.PART + 5)

    def run(threads: int) -> list[Tensor]:
        before = torch.get_num_threads()
        torch.set_num_threads(threads)
        try:
            return [t for of in normed(inputs, upstream, torch.float32) for t in of]
        finally:
            torch.set_num_threads(before)

    assert all(torch.equal(a, b) for a, b in zip(run(1), run(3), strict=True))


def test_a_value_that_is_not_a_number_reaches_its_token_and_no_other(noise: Noise):
    inputs, upstream = inputs_of(noise, 3, 2, 24)
    well, of_well = normed(inputs, upstream, torch.float32)
    sick = [t.clone() for t in inputs]
    sick[3][0, 1, 7] = torch.nan
    found, of_sick = normed(sick, upstream, torch.float32)
    there = torch.ones(BATCH, TIME, dtype=torch.bool)
    there[0, 1] = False
    for one, other in zip(found, well, strict=True):
        assert one[0, 1].isnan().all()
        assert torch.equal(one[there], other[there])
    assert all(torch.equal(a[there], b[there]) for a, b in zip(of_sick[3:], of_well[3:], strict=True))
