from collections.abc import Callable, Sequence
from itertools import pairwise

import pytest
import torch
from torch import Tensor

from paribus.kernels import passes
from paribus.kernels.depth_read import Source, depth_read, depth_read_reference, inverse_rms, publish, weights_of

pytestmark = pytest.mark.usefixtures("way")
Noise = Callable[..., Tensor]
EPS = 1e-6
BATCH, TIME = 2, 3
U32, U64 = 2.0**-24, 2.0**-53


def read(queries: Tensor, gain: Tensor, sources: Sequence[Tensor], eps: float = EPS) -> tuple[Tensor, Tensor]:
    mixes, scores = depth_read([publish(v, eps) for v in sources], queries, gain)
    return torch.stack(mixes), weights_of(scores)


def leaves(tensors: Sequence[Tensor], dtype: torch.dtype) -> list[Tensor]:
    return [t.to(dtype, copy=True).requires_grad_() for t in tensors]


def with_gradients(
    function: Callable[[Tensor, Tensor, Sequence[Tensor]], tuple[Tensor, Tensor]],
    inputs: Sequence[Tensor],
    upstream: Tensor,
    dtype: torch.dtype,
) -> tuple[Tensor, Tensor, list[Tensor]]:
    """(mixes, weights, gradients of [queries, gain, *sources]) of `function` at `dtype`."""
    queries, gain, *sources = own = leaves(inputs, dtype)
    mixes, weights = function(queries, gain, sources)
    return mixes, weights, list(torch.autograd.grad(mixes, own, upstream.to(dtype)))


def twin(queries: Tensor, gain: Tensor, sources: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    return depth_read_reference(sources, queries, gain, EPS)


def problem(noise: Noise, k: int, m: int, width: int, scale: float = 1.0) -> tuple[list[Tensor], Tensor]:
    """([queries, gain, *sources], upstream gradient), exactly representable in float32."""
    sources = [scale * noise(f"source {i}", BATCH, TIME, width) for i in range(k)]
    inputs = [noise("queries", m, width) * width**-0.5, 1 + 0.3 * noise("gain", width), *sources]
    return [t.float().double() for t in inputs], noise("upstream", m, BATCH, TIME, width).float().double()


def error_bounds(inputs: Sequence[Tensor], upstream: Tensor, unit: float) -> tuple[Tensor, Tensor, list[Tensor]]:
    """Elementwise bounds on the error of (mixes, weights, gradients) in an arithmetic of unit roundoff `unit`.

    A sum of n rounded products errs by at most n * unit * (the sum of their absolute values) in any order. So each
    bound is (roundings on the path) * unit * (the equation with every term replaced by its absolute value); a weight
    carries twice the error of the logits on top, because p_k = exp(s_k) / sum_j exp(s_j).
    """
    queries, gain, *sources = (t.abs() for t in inputs)
    v = torch.stack(sources)  # [source batch time width]
    k, width = len(v), v.shape[-1]
    key = v * (v.square().mean(-1, keepdim=True) + EPS).rsqrt()
    keyed = queries * gain
    scores = torch.einsum("kbtd,md->mbtk", key, keyed)
    _, p = depth_read_reference(inputs[2:], inputs[0], inputs[1], EPS)
    of_weights = (2 * (2 * width + 8) * scores.amax(-1, keepdim=True) + k + 4) * unit
    roundings = (2 * width + 3 * k + 16) * unit
    mix = torch.einsum("mbtk,kbtd->mbtd", p, v)
    agreement = torch.einsum("mbtd,kbtd->mbtk", upstream.abs(), v)
    of_scores = p * (agreement + (p * agreement).sum(-1, keepdim=True))
    radial = torch.einsum("mbtk,mbtk->kbt", of_scores, scores)[..., None] / width
    inverse = key / v.clamp_min(torch.finfo(torch.float64).tiny)
    of_sources = torch.einsum("mbtk,mbtd->kbtd", p, upstream.abs())
    of_sources = of_sources + inverse * (torch.einsum("mbtk,md->kbtd", of_scores, keyed) + key * radial)
    of_keyed = torch.einsum("mbtk,kbtd->md", of_scores, key)
    worst = float(of_weights.max()) + roundings
    tokens = BATCH * TIME * k * unit
    of_queries, of_gain = of_keyed * gain * (worst + tokens), (of_keyed * queries).sum(0) * (worst + tokens)
    return mix * worst, p * of_weights, [of_queries, of_gain, *(of_sources * worst).unbind(0)]


def assert_agrees(noise: Noise, k: int, m: int, width: int, dtype: torch.dtype, scale: float = 1.0) -> None:
    unit = {torch.float32: U32, torch.float64: U64}[dtype]
    inputs, upstream = problem(noise, k, m, width, scale)
    mixes, weights, gradients = with_gradients(read, inputs, upstream, dtype)
    expected_mixes, expected_weights, expected = with_gradients(twin, inputs, upstream, torch.float64)
    # The twin rounds as well, in float64; its error is covered by doubling a float64 bound and negligible otherwise.
    bound_mixes, bound_weights, bounds = error_bounds(inputs, upstream, 2 * unit)
    assert ((mixes - expected_mixes).abs() <= bound_mixes).all()
    assert ((weights - expected_weights).abs() <= bound_weights).all()
    for found, wanted, bound in zip(gradients, expected, bounds, strict=True):
        assert ((found - wanted).abs() <= bound).all()


@pytest.mark.parametrize("k", range(1, 10))
@pytest.mark.parametrize("m", [1, 2, 3])
def test_forward_and_all_gradients_agree_with_the_loop_written_from_the_equation(noise: Noise, k: int, m: int):
    assert_agrees(noise, k, m, 13, torch.float64)
    assert_agrees(noise, k, m, 13, torch.float32)


@pytest.mark.parametrize("width", [3, 36, 52])
def test_widths_that_are_no_powers_of_two_agree(noise: Noise, width: int):
    assert_agrees(noise, 4, 2, width, torch.float32)


@pytest.mark.parametrize("scale", [1e-3, 1e3])
def test_sources_of_small_and_large_rms_agree(noise: Noise, scale: float):
    assert_agrees(noise, 5, 2, 24, torch.float32, scale)


def test_gradients_are_the_derivatives_of_the_forward_pass(noise: Noise):
    inputs, _ = problem(noise, 4, 2, 6)

    def mixes(queries: Tensor, gain: Tensor, *sources: Tensor) -> Tensor:
        return read(queries, gain, sources, eps=1e-2)[0]

    assert torch.autograd.gradcheck(mixes, leaves(inputs, torch.float64))


@pytest.mark.parametrize("query_scale", [0.0, 1.0, 1e3])
def test_a_single_source_is_returned_bit_for_bit_with_exactly_zero_query_and_gain_gradient(
    noise: Noise, query_scale: float
):
    (queries, gain, source), upstream = problem(noise, 1, 2, 24)
    mixes, weights, gradients = with_gradients(read, [query_scale * queries, gain, source], upstream, torch.float32)
    assert torch.equal(mixes, source.float().expand_as(mixes))
    assert torch.equal(weights, torch.ones_like(weights))
    assert not gradients[0].any()
    assert not gradients[1].any()
    assert torch.equal(gradients[2], upstream.float().sum(0))


def test_zero_queries_give_uniform_weights_the_mean_and_no_gain_gradient(noise: Noise):
    (queries, *rest), upstream = problem(noise, 5, 2, 24)
    mixes, weights, gradients = with_gradients(read, [0 * queries, *rest], upstream, torch.float64)
    assert torch.equal(weights, torch.full_like(weights, 1 / 5))
    # Five rounded products and four rounded sums.
    assert ((mixes - torch.stack(rest[1:]).mean(0)).abs() <= 12 * U64 * torch.stack(rest[1:]).abs().sum(0)).all()
    assert not gradients[1].any()
    assert gradients[0].any()


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_logits_of_a_thousand_stay_finite_and_pick_one_source(noise: Noise, sign: float):
    (_, gain, *sources), upstream = problem(noise, 3, 1, 24)
    queries = torch.full((1, 24), sign * 1e3 / 24)
    sources[0] = torch.ones_like(sources[0])
    mixes, weights, gradients = with_gradients(
        read, [queries, torch.ones_like(gain), *sources], upstream, torch.float32
    )
    assert torch.equal(weights[..., 0], torch.full_like(weights[..., 0], float(sign > 0)))
    assert all(t.isfinite().all() for t in (mixes, *gradients))


def test_two_runs_give_equal_bits(noise: Noise):
    inputs, upstream = problem(noise, 6, 2, 36)
    (a, p, first), (b, q, second) = (with_gradients(read, inputs, upstream, torch.float32) for _ in range(2))
    assert torch.equal(a, b)
    assert torch.equal(p, q)
    assert all(torch.equal(x, y) for x, y in zip(first, second, strict=True))


def test_views_that_are_not_contiguous_read_the_same_numbers(noise: Noise):
    (queries, gain, *sources), upstream = problem(noise, 3, 2, 24)
    strided = [
        queries.repeat_interleave(2, dim=1)[:, ::2],
        gain.repeat_interleave(3)[::3],
        *(v.transpose(0, 2).contiguous().transpose(0, 2) for v in sources),
    ]
    assert not any(t.is_contiguous() for t in strided)
    views = [t.detach().requires_grad_() for t in strided]
    mixes, _ = read(views[0], views[1], views[2:])
    backward = upstream.transpose(1, 3).contiguous().transpose(1, 3)
    gradients = torch.autograd.grad(mixes, views, backward)
    expected_mixes, _, expected = with_gradients(twin, [queries, gain, *sources], upstream, torch.float64)
    bound, _, bounds = error_bounds([queries, gain, *sources], upstream, 2 * U64)
    assert ((mixes - expected_mixes).abs() <= bound).all()
    for found, wanted, allowed in zip(gradients, expected, bounds, strict=True):
        assert ((found - wanted).abs() <= allowed).all()


def test_weights_carry_no_gradient_and_a_second_derivative_is_refused(noise: Noise):
    inputs, _ = problem(noise, 3, 1, 6)
    queries, gain, *sources = own = leaves(inputs, torch.float64)
    mixes, weights = read(queries, gain, sources)
    assert not weights.requires_grad
    first = torch.autograd.grad(mixes.square().sum(), own, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        first[0].sum().backward()


def test_more_sources_than_any_fixed_cap_are_all_read(noise: Noise):
    """A cap that truncates silently is a known fault; 40 sources is beyond the customary 32."""
    assert_agrees(noise, 40, 1, 6, torch.float64)


@pytest.mark.parametrize(("dtype", "unit"), [(torch.float32, U32), (torch.float64, U64)])
def test_each_query_may_have_a_key_gain_of_its_own(noise: Noise, dtype: torch.dtype, unit: float):
    (queries, _, *sources), upstream = problem(noise, 4, 2, 13)
    gains = (1 + 0.3 * noise("gains", 2, 13)).float().double()
    mixes, weights, gradients = with_gradients(read, [queries, gains, *sources], upstream, dtype)
    for m in range(2):
        alone = [queries[m : m + 1], gains[m], *sources]
        expected_mixes, expected_weights, expected = with_gradients(twin, alone, upstream[m : m + 1], torch.float64)
        bound_mixes, bound_weights, bounds = error_bounds(alone, upstream[m : m + 1], 2 * unit)
        assert ((mixes[m] - expected_mixes[0]).abs() <= bound_mixes[0]).all()
        assert ((weights[m] - expected_weights[0]).abs() <= bound_weights[0]).all()
        assert ((gradients[0][m] - expected[0][0]).abs() <= bounds[0][0]).all()
        assert ((gradients[1][m] - expected[1]).abs() <= bounds[1]).all()


def test_the_loop_reads_every_query_with_its_own_gain(noise: Noise):
    (queries, _, *sources), _ = problem(noise, 3, 2, 5)
    gains = 1 + noise("gains", 2, 5)
    together, _ = depth_read_reference(sources, queries, gains, EPS)
    for m in range(2):
        alone, _ = depth_read_reference(sources, queries[m : m + 1], gains[m], EPS)
        assert torch.equal(together[m], alone[0])


def test_autocast_changes_no_bit_of_a_read_or_of_its_gradients(noise: Noise):
    """Also where only the forward or only the backward pass runs under autocast."""
    inputs, upstream = problem(noise, 5, 2, 24)

    def run(*, forward: bool, backward: bool) -> list[Tensor]:
        queries, gain, *sources = own = leaves(inputs, torch.float32)
        with torch.autocast("cpu", torch.bfloat16, enabled=forward):
            mixes, weights = read(queries, gain, sources)
        with torch.autocast("cpu", torch.bfloat16, enabled=backward):
            return [mixes, weights, *torch.autograd.grad(mixes, own, upstream.float())]

    plain = run(forward=False, backward=False)
    assert all(t.dtype == torch.float32 for t in plain)
    for modes in ((True, True), (True, False), (False, True)):
        found = run(forward=modes[0], backward=modes[1])
        assert all(torch.equal(a, b) for a, b in zip(found, plain, strict=True))


def test_autocast_does_change_a_read_written_with_plain_operators(noise: Noise):
    """The proof that the comparison above can fail."""
    (queries, _, source), _ = problem(noise, 1, 2, 24)
    with torch.autocast("cpu", torch.bfloat16):
        assert (source.float() @ queries.float().T).dtype == torch.bfloat16


def test_bfloat16_sources_are_read_in_float32(noise: Noise):
    inputs, _ = problem(noise, 4, 2, 24)
    queries, gain, *half = (t.bfloat16() for t in inputs)
    mixes, weights = read(queries, gain, half)
    expected, expected_weights = read(queries.float(), gain.float(), [v.float() for v in half])
    assert mixes.dtype == torch.float32
    assert torch.equal(mixes, expected)
    assert torch.equal(weights, expected_weights)


@pytest.mark.parametrize("scales", [(1e-40, 1e-38), (1e-38, 1e18), (1e18, 1e18), (0.0, 1e18), (0.0, 0.0)])
def test_huge_tiny_and_zero_bfloat16_sources_give_finite_mixes_and_gradients(noise: Noise, scales: tuple[float, float]):
    """Up to the size whose square float32 still holds, 1e19."""
    (queries, gain, *sources), _ = problem(noise, 2, 2, 24)
    half = [(scale * v).bfloat16() for scale, v in zip(scales, sources, strict=True)]
    mixes, _, gradients = with_gradients(read, [queries, gain, *half], torch.ones(2, BATCH, TIME, 24), torch.float32)
    assert all(t.isfinite().all() for t in (mixes, *gradients))


def test_changing_tapped_scores_in_place_is_refused_by_the_backward_pass(noise: Noise):
    """They are the scores that the backward pass uses; a changed one would be a silently wrong gradient."""
    inputs, _ = problem(noise, 3, 1, 6)
    queries, gain, *sources = leaves(inputs, torch.float64)
    mixes, scores = depth_read([publish(v, EPS) for v in sources], queries, gain)
    scores.mul_(2.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        mixes[0].sum().backward()


@pytest.mark.parametrize("width", [576, 768, 832, 1024])
def test_the_widths_of_real_models_agree(noise: Noise, width: int):
    assert_agrees(noise, 9, 2, width, torch.float32)


@pytest.mark.parametrize(("k", "m"), [(64, 4), (17, 4), (16, 3), (33, 1), (300, 1), (5, 6)])
def test_many_sources_and_queries_agree(noise: Noise, k: int, m: int):
    """Up to and beyond what the compiled read takes, and around whole registers of sources."""
    assert_agrees(noise, k, m, 20, torch.float32)


def reads_in_turn(inputs: Sequence[Tensor], dtype: torch.dtype, *, sinks: bool) -> list[Tensor]:
    """Gradients of a chain like a model's: every source is a running sum, holds what the last read mixed, and is read
    by all later reads."""
    queries, gain, *deltas = own = leaves(inputs, dtype)
    sources: list[Source] = []
    loss, running = torch.zeros((), dtype=dtype), None
    for own_delta in deltas:
        delta = own_delta
        if sources:
            mixes, _ = depth_read(sources, queries, gain)
            loss = loss + sum((mix.sin().sum() for mix in mixes), torch.zeros((), dtype=dtype))
            delta = delta * (1 + mixes[0])
        if sinks:
            running = publish(delta, EPS, running)
        else:
            value = delta if running is None else running.value + delta
            running = Source(value, inverse_rms(value, EPS))
        sources.append(running)
    return list(torch.autograd.grad(loss + sources[-1].value.cos().sum(), own))


def test_gradients_that_reads_add_up_in_a_sink_are_those_that_autograd_adds_up(noise: Noise):
    """To the last digits of float64: the terms are the same and are added in another order."""
    inputs, _ = problem(noise, 6, 2, 24)
    by_sinks, by_autograd = (reads_in_turn(inputs, torch.float64, sinks=sinks) for sinks in (True, False))
    for found, wanted in zip(by_sinks, by_autograd, strict=True):
        assert ((found - wanted).abs() <= 1e3 * U64 * wanted.abs().max()).all()


def test_compiled_chains_of_reads_have_the_gradients_of_float64(noise: Noise):
    """24 numbers a product, 6 sources, 5 reads in turn: within a thousand roundings of the largest gradient."""
    inputs, _ = problem(noise, 6, 2, 24)
    wanted = reads_in_turn(inputs, torch.float64, sinks=False)
    for found, exact in zip(reads_in_turn(inputs, torch.float32, sinks=True), wanted, strict=True):
        assert ((found - exact).abs() <= 1e3 * U32 * exact.abs().max()).all()


def test_a_backward_pass_that_was_broken_off_leaves_nothing_to_the_next(noise: Noise):
    inputs, upstream = problem(noise, 3, 2, 24)
    queries, gain, *values = leaves(inputs, torch.float32)
    sources = [publish(v, EPS) for v in values]
    mixes, _ = depth_read(sources, queries, gain)
    total = (torch.stack(mixes) * upstream.float()).sum()

    # Only the queries are asked for: the read leaves gradients in the sinks, and nobody takes them.
    torch.autograd.grad(total, [queries], retain_graph=True)
    first = torch.autograd.grad(total, values, retain_graph=True)
    second = torch.autograd.grad(total, values)
    _, _, expected = with_gradients(read, inputs, upstream, torch.float32)
    for one, two, wanted in zip(first, second, expected[2:], strict=True):
        assert torch.equal(one, wanted)
        assert torch.equal(two, wanted)


def test_a_gradient_that_a_sink_was_lent_is_not_written_to(noise: Noise):
    """Two reads of the older source follow the gradient of the newer, which its delta's gradient is as well."""
    inputs, _ = problem(noise, 2, 1, 24)
    queries, gain, first, second = leaves(inputs, torch.float32)
    older = publish(first, EPS)
    read_first, _ = depth_read([older], queries, gain)
    newer = publish(second + read_first[0], EPS, older)
    of_newer, of_older, of_second = torch.autograd.grad(newer.value.sum(), [newer.value, first, second])
    assert torch.equal(of_newer, torch.ones_like(of_newer))
    assert torch.equal(of_second, torch.ones_like(of_second))
    assert torch.equal(of_older, 2 * torch.ones_like(of_older))


def test_a_sum_of_bfloat16_is_published_in_float32_and_gives_its_gradient_back_in_bfloat16(noise: Noise):
    running = publish(noise("running", BATCH, TIME, 24).float().requires_grad_(), EPS)
    delta = noise("delta", BATCH, TIME, 24).bfloat16().requires_grad_()
    found = publish(delta, EPS, running)
    assert torch.equal(found.value, running.value + delta.float())
    exact = found.value.double().square().mean(-1, keepdim=True).add(EPS).rsqrt()
    # 24 squares and their sum, a quotient, a root and a reciprocal.
    assert ((found.inverse_rms - exact).abs() <= 32 * U32 * exact).all()
    (of_delta,) = torch.autograd.grad(found.value.sum(), delta)
    assert of_delta.dtype == torch.bfloat16
    assert torch.equal(of_delta, torch.ones_like(of_delta))


def test_the_number_of_threads_changes_no_bit_of_the_compiled_read(noise: Noise, way: str):
    """More tokens than one part, a last part that is not full. PyTorch's own reductions may depend on it."""
    if way == "operators":
        return
    tokens = 3 * passes.PART + 5
    sources = [noise(f"source {k}", 1, tokens, 24).float() for k in range(4)]
    queries, gain = noise("queries", 2, 24).float() * 24**-0.5, torch.ones(24)
    upstream = noise("upstream", 2, 1, tokens, 24)

    def run(threads: int) -> list[Tensor]:
        before = torch.get_num_threads()
        torch.set_num_threads(threads)
        try:
            mixes, weights, gradients = with_gradients(read, [queries, gain, *sources], upstream, torch.float32)
        finally:
            torch.set_num_threads(before)
        return [mixes, weights, *gradients]

    assert all(torch.equal(a, b) for a, b in zip(run(1), run(3), strict=True))


def test_a_value_that_is_not_a_number_reaches_the_mix_and_the_gradients(noise: Noise):
    """Not one token more: those that it does not belong to are what they were."""
    inputs, upstream = problem(noise, 3, 2, 24)
    mixes, _, gradients = with_gradients(read, inputs, upstream, torch.float32)
    sick = [t.clone() for t in inputs]
    sick[2][0, 1, 7] = torch.nan
    found, _, of_sick = with_gradients(read, sick, upstream, torch.float32)
    assert found[:, 0, 1].isnan().all()
    assert of_sick[0].isnan().any()
    there = torch.ones(BATCH, TIME, dtype=torch.bool)
    there[0, 1] = False
    assert torch.equal(found[:, there], mixes[:, there])
    assert all(torch.equal(a[there], b[there]) for a, b in zip(of_sick[2:], gradients[2:], strict=True))


def test_large_tensors_are_placed_apart_within_a_page_and_small_ones_are_no_larger_than_they_are():
    large = [passes.placed_apart((1, 256, 64)) for _ in range(64)]
    assert all(t.shape == (1, 256, 64) and t.is_contiguous() and t.data_ptr() % 64 == 0 for t in large)
    starts = [t.data_ptr() % 4096 for t in large]
    assert {(b - a) % 4096 for a, b in pairwise(starts)} == {33 * 64}
    assert len(set(starts)) == 64
    assert passes.placed_apart((2, 3)).untyped_storage().nbytes() == 24
