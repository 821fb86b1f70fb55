"""Claims about the kernels in Triton that are not among those of all implementations. `test_triton.py` runs them."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from paribus.kernels import compiler, depth_read, depth_read_triton, exclude_self, exclude_self_triton, gpu
from paribus.kernels.norm import Norm
from tests.kernels import test_depth_read as reads
from tests.kernels import test_exclude_self as exclusion
from tests.kernels import test_normed_read as normed_reads
from tests.kernels.test_exclude_self import OF_VALUE, SHAPE, WIDTH

pytestmark = pytest.mark.usefixtures("way")
Noise = Callable[..., Tensor]
U32 = reads.U32


@pytest.fixture
def y(noise: Noise) -> Tensor:
    return noise("y", *SHAPE).float().double()


@pytest.fixture
def v(noise: Noise) -> Tensor:
    return noise("v", *OF_VALUE).float().double()


@pytest.fixture
def g(noise: Noise) -> Tensor:
    return noise("g", *SHAPE).float().double()


class Counted:
    """A kernel whose launches are noted."""

    def __init__(self, kernel: Any, name: str, called: list[str]) -> None:
        self.kernel, self.name, self.called = kernel, name, called

    def __getitem__(self, grid: object) -> Any:
        self.called.append(self.name)
        return self.kernel[grid]


class TestReads:
    def test_every_pass_is_computed_by_a_kernel(self, noise: Noise, monkeypatch: pytest.MonkeyPatch):
        called: list[str] = []
        for name in ("_sum_forward", "_read_forward", "_read_backward"):
            kernel = getattr(depth_read_triton, name)
            monkeypatch.setattr(depth_read_triton, name, Counted(kernel, name, called))
        reads.assert_agrees(noise, 2, 1, 8, torch.float32)
        assert called[-4:] == ["_sum_forward", "_sum_forward", "_read_forward", "_read_backward"]  # behind the trial

    def test_a_kernel_that_errs_by_a_thousandth_is_seen(self, noise: Noise, monkeypatch: pytest.MonkeyPatch):
        right = depth_read_triton.read

        def wrong(*arguments: Any) -> tuple[list[Tensor], Tensor, Tensor | None]:
            mixes, scores, inverse_mix = right(*arguments)
            mixes[0][1, 2, 3] *= 1.001
            return mixes, scores, inverse_mix

        monkeypatch.setattr(depth_read_triton, "read", wrong)
        with pytest.raises(AssertionError):
            reads.assert_agrees(noise, 3, 2, 24, torch.float32)

    def test_zero_queries_give_uniform_weights_the_mean_and_no_gain_gradient(self, noise: Noise):
        (queries, *rest), upstream = reads.problem(noise, 5, 2, 24)
        inputs = [0 * queries, *rest]
        mixes, weights, gradients = reads.with_gradients(reads.read, inputs, upstream, torch.float32)
        _, _, wanted = reads.with_gradients(reads.twin, inputs, upstream, torch.float64)
        of_mixes, _, bounds = reads.error_bounds(inputs, upstream, 2 * U32)
        assert torch.equal(weights, torch.full_like(weights, 1 / 5))
        assert ((mixes - torch.stack(rest[1:]).mean(0)).abs() <= of_mixes).all()
        assert ((gradients[0] - wanted[0]).abs() <= bounds[0]).all()
        assert gradients[0].any()
        assert not gradients[1].any()

    @pytest.mark.parametrize("k", [7, 18])
    def test_sources_of_very_different_rms_agree_whether_they_are_held_or_read_twice(self, noise: Noise, k: int):
        (queries, gain, *sources), upstream = reads.problem(noise, k, 2, 24)
        spread = [(10.0 ** (3 * i % 7 - 3) * t).float().double() for i, t in enumerate(sources)]
        inputs = [queries, gain, *spread]
        mixes, _, gradients = reads.with_gradients(reads.read, inputs, upstream, torch.float32)
        wanted_mixes, _, wanted = reads.with_gradients(reads.twin, inputs, upstream, torch.float64)
        of_mixes, _, bounds = reads.error_bounds(inputs, upstream, 2 * U32)
        assert ((mixes - wanted_mixes).abs() <= of_mixes).all()
        for found, exact, bound in zip(gradients, wanted, bounds, strict=True):
            assert ((found - exact).abs() <= bound).all()
        assert (depth_read_triton.backward_shape(k, 2, 24)["HELD"] > 0) == (k == 7)

    @pytest.mark.parametrize("k", [5, 18])
    def test_gradients_are_added_in_place_to_those_that_are_there_and_to_no_others(self, noise: Noise, k: int):
        (queries, gain, *values), upstream = reads.problem(noise, k, 2, 24)
        sources = [value.float() for value in values]
        scales = [depth_read.inverse_rms(value, reads.EPS) for value in sources]
        keyed = (queries * gain).float()
        _, scores, _ = depth_read_triton.read(keyed, scales, sources)
        given = [noise(f"given {i}", *value.shape).float() if i % 2 else None for i, value in enumerate(sources)]

        def backward(before: Sequence[Tensor | None], after: Sequence[Tensor]) -> Tensor:
            return depth_read_triton.read_backward(
                keyed, scales, sources, scores, list(upstream.float()), before, after
            )[0]

        alone = [torch.empty_like(value) for value in sources]
        in_place = [torch.empty_like(a) if b is None else b.clone() for a, b in zip(sources, given, strict=True)]
        there = [None if old is None else new for old, new in zip(given, in_place, strict=True)]
        of_queries = backward([None] * k, alone), backward(there, in_place)
        assert torch.equal(*of_queries)
        for old, new, without in zip(given, in_place, alone, strict=True):
            if old is None:
                assert torch.equal(new, without)
            else:
                # Six additions in another order, of terms no larger than a few times the sum of what they give.
                most = old.abs() + without.abs() + upstream.abs().sum(0)
                assert ((new - (old + without)).abs() <= 64 * U32 * most).all()
                assert not torch.equal(new, without)

    def test_tensors_that_are_not_aligned_are_left_to_operators(self, noise: Noise, monkeypatch: pytest.MonkeyPatch):
        called: list[str] = []
        monkeypatch.setattr(
            depth_read_triton, "_read_forward", Counted(depth_read_triton._read_forward, "read", called)
        )
        flat = noise("flat", 2 * 3 * 8 + 1).float()
        for start, launches in ((0, 1), (1, 0)):
            value = flat[start : start + 48].view(2, 3, 8)
            source = depth_read.Source(value, depth_read.inverse_rms(value, reads.EPS))
            depth_read.depth_read([source], torch.zeros(1, 8), torch.ones(8))
            assert len(called) == launches
            called.clear()

    def test_up_to_64_sources_take_few_compiled_kernels_of_powers_of_two(self):
        forward, backward = (
            {tuple(shape(k, 2, width).items()) for k in range(1, 65)}
            for width in (1024,)
            for shape in (depth_read_triton.forward_shape, depth_read_triton.backward_shape)
        )
        assert len(forward) == 3
        assert len(backward) == 6
        assert depth_read_triton.backward_shape(9, 2, 1024)["HELD"] == 3
        for width in (3, 576, 768, 832, 1024, 2048):
            shape = depth_read_triton.forward_shape(9, 2, width)
            assert shape["COLUMNS"] // 2 < width <= shape["COLUMNS"]
            assert shape["AT_ONCE"] * shape["COLUMNS"] <= depth_read_triton.TILE

    def test_wider_rows_than_registers_hold_and_more_queries_are_left_to_operators(self, noise: Noise):
        narrow, wide = torch.ones(1, 1, 16), torch.ones(1, 1, depth_read_triton.MOST_WIDTH + 1)
        assert depth_read._triton(4, narrow) is depth_read_triton
        assert depth_read._triton(5, narrow) is None
        assert depth_read._triton(4, wide) is None
        reads.assert_agrees(noise, 2, 5, 8, torch.float32)


class TestNormedReads:
    @pytest.mark.parametrize("k", [9, 18])
    def test_a_norm_is_done_by_the_same_passes(self, noise: Noise, k: int, monkeypatch: pytest.MonkeyPatch):
        called: list[str] = []
        for name in ("_read_forward", "_read_backward"):
            kernel = getattr(depth_read_triton, name)
            monkeypatch.setattr(depth_read_triton, name, Counted(kernel, name, called))
        monkeypatch.setattr(Norm, "__call__", None)
        inputs, upstream = normed_reads.inputs_of(noise, k, 2, 24)
        found = normed_reads.normed(inputs, upstream, torch.float32)
        assert called == ["_read_forward", "_read_backward"]
        exact = normed_reads.twin(inputs, upstream)
        assert normed_reads.within_rounding(found, exact)
        found[1][2].mul_(1.001)  # of the norm's gain
        assert not normed_reads.within_rounding(found, exact)
        assert (depth_read_triton.backward_shape(k, 2, 24, normed=True)["HELD"] > 0) == (k == 9)


class TestExclusion:
    def test_both_passes_are_computed_by_a_kernel(
        self, y: Tensor, v: Tensor, g: Tensor, monkeypatch: pytest.MonkeyPatch
    ):
        called: list[str] = []
        for name in ("_forward", "_backward"):
            kernel = getattr(exclude_self_triton, name)
            monkeypatch.setattr(exclude_self_triton, name, Counted(kernel, name, called))
        exclusion.gradients(y.float(), v.float(), 1.0, g)
        assert called[-2:] == ["_forward", "_backward"]  # behind the trial

    def test_outputs_of_attention_as_transposed_views_give_the_same_bits(self, y: Tensor, v: Tensor, g: Tensor):
        """[batch head time width] behind [batch time kv_head group width], and values that are a slice."""
        y, v, g = (t.float() for t in (y, v, g))
        strided_y, strided_g = (t.permute(0, 2, 3, 1, 4).contiguous().permute(0, 3, 1, 2, 4) for t in (y, g))
        strided_v = torch.cat((v, v), dim=-1)[..., :WIDTH]
        assert not any(t.is_contiguous() for t in (strided_y, strided_v, strided_g))
        found = exclude_self.exclude_self(strided_y, strided_v, 0.7)
        assert torch.equal(found, exclude_self.exclude_self(y, v, 0.7))
        of_y, of_v, _ = exclude_self_triton.gradients(
            strided_y, strided_v, 0.7, strided_g, exclude_self.RELATIVE_EPS, of_v=True, of_strength=False
        )
        assert of_y.stride() == strided_y.stride()
        expected_y, expected_v = exclusion.gradients(y, v, 0.7, g)
        assert torch.equal(of_y, expected_y)
        assert of_v is not None
        assert torch.equal(of_v, expected_v)

    def test_strengths_of_heads_get_their_gradient_from_all_programs(
        self, noise: Noise, y: Tensor, v: Tensor, g: Tensor, monkeypatch: pytest.MonkeyPatch
    ):
        monkeypatch.setattr(exclude_self_triton, "TILE", 4 * 32)  # of six tokens, four and two
        unit = v / exclusion.norm(v)
        terms = -(y * unit).sum(-1, keepdim=True) * (g * unit).sum(-1, keepdim=True)
        sizes = exclusion.norm(y) * exclusion.norm(g)
        for shape in ((4, 2, 1), (4, 1, 1), (1,)):
            strength = noise("strengths", *shape).float().requires_grad_()
            first, again = (
                torch.autograd.grad(exclude_self.exclude_self(y.float(), v.float(), strength), strength, g.float())[0]
                for _ in range(2)
            )
            # As of all implementations, in float32.
            bound = (2 * (2 * WIDTH + 6) + terms.numel()) * U32 * sizes.sum_to_size(shape)
            assert ((first - terms.sum_to_size(shape)).abs() <= bound).all()
            assert torch.equal(first, again)

    def test_bfloat16_is_computed_in_float32_and_narrowed_once(self, y: Tensor, v: Tensor, g: Tensor):
        """Narrowed by cutting off, which is how the interpreter stores; a GPU rounds (`compiled_for_gpu.py`)."""
        y, v, g = (t.bfloat16() for t in (y, v, g))
        half = (exclude_self.exclude_self(y, v, 1.0), *exclusion.gradients(y, v, 1.0, g))
        y, v, g = (t.float() for t in (y, v, g))
        full = (exclude_self.exclude_self(y, v, 1.0), *exclusion.gradients(y, v, 1.0, g))
        for narrow, wide in zip(half, full, strict=True):
            assert narrow.dtype == torch.bfloat16
            cut = (wide.view(torch.int32) >> 16 << 16).view(torch.float32)
            assert torch.equal(narrow.float(), cut)

    def test_a_value_that_is_not_a_number_reaches_its_rows_and_no_others(self, y: Tensor, v: Tensor):
        y, v = y.float(), v.float()
        well = exclude_self.exclude_self(y, v, 1.0)
        y[0, 1, 2, 1, 5] = torch.nan
        v[1, 2, 0, 0, 3] = torch.nan
        found = exclude_self.exclude_self(y, v, 1.0)
        sick = torch.zeros(y.shape[:-1], dtype=torch.bool)
        sick[0, 1, 2, 1] = True
        sick[1, 2, 0] = True
        assert found[sick].isnan().all()
        assert torch.equal(found[~sick], well[~sick])

    def test_switched_off_kernels_are_not_used(self, y: Tensor):
        assert gpu.takes(y)
        with compiler.operators():
            assert not gpu.takes(y)
