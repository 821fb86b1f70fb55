"""Softmax mixes over shared depth sources in one pass (Attention Residuals, arXiv 2603.15031, its read equation).

For a token with sources v_1..v_K, key gain g and pseudo-queries w_1..w_M:

    r_k = (mean(v_k^2) + eps)^(-1/2)      s_mk = r_k v_k . (g * w_m)      p_m = softmax_k(s_m)      h_m = sum_k p_mk v_k

Keys are normalised, values are not; no 1/sqrt(width), no bias. Gradient for upstream G_m, with a_mk = G_m . v_k:

    ds_mk = p_mk (a_mk - sum_j p_mj a_mj)
    dv_k  = sum_m p_mk G_m + r_k [ sum_m ds_mk (g * w_m) - r_k v_k (sum_m ds_mk s_mk) / width ]
    d(g * w_m) = sum over tokens and k of ds_mk r_k v_k

A single source gives p = 1 and ds = 0 exactly: the general path returns the source and a zero query gradient.
Everything is computed in float32 or above, under autocast too: ds sums to zero over k, so a rounded score path leaves
noise of the size of the query gradient itself. Finite while the squares are (root mean squares below about 1e19).

What is read more than once is moved once. `publish` sums a source and takes its statistic in one pass; a read takes
every query over it in one pass and keeps its scores alone; and the gradients that the reads of one source give it are
added up in place, in the source's `Sink`, by the pass that forms them (`depth_read_cpu.py`; on CUDA
`depth_read_triton.py`; PyTorch operators for float64 and where there is no compiler).
"""

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from paribus.kernels import depth_read_cpu, gpu, passes
from paribus.kernels.norm import Norm
from paribus.kernels.precision import wide
from paribus.shapes import DepthScores, DepthWeights, InverseRms, Queries, Stream, Vector

MOST_QUERIES = 4
"""of a read by a compiled kernel; operators take any number"""


class Sink:
    """The gradient of one source, added up by the backward passes of its reads in the order in which they run.

    Autograd would add it up as well, with a tensor for every read and a pass over two of them for every addition. It
    belongs to one backward pass: one that was broken off leaves nothing to the next.
    """

    def __init__(self) -> None:
        self._total: Tensor | None = None
        self._lent = False
        self._backward_pass = -1

    @property
    def total(self) -> Tensor | None:
        """What this backward pass has brought so far."""
        return self._total if self._backward_pass == _current_backward_pass() else None

    def room(self, like: Tensor) -> tuple[Tensor | None, Tensor]:
        """(what is there to be added to, where the sum is to be written): the same tensor where that may change."""
        before = self.total
        if before is not None and not self._lent:
            after = before
        elif like.dtype == torch.float32 and like.device.type == "cpu":
            after = passes.placed_apart(like.shape)
        else:
            after = torch.empty_like(like)
        self._keep(after, lent=False)
        return before, after

    def add(self, gradient: Tensor) -> None:
        """A gradient that others hold too and that therefore stays as it is."""
        before, gradient = self.total, gradient.contiguous()
        if before is None:
            self._keep(gradient, lent=True)
        elif self._lent:
            self._keep(before + gradient, lent=False)
        else:
            before.add_(gradient)

    def take(self) -> Tensor | None:
        total, self._total = self.total, None
        return total

    def _keep(self, total: Tensor, *, lent: bool) -> None:
        self._total, self._lent, self._backward_pass = total, lent, _current_backward_pass()


def _current_backward_pass() -> int:
    return torch._C._current_graph_task_id()


@dataclass(frozen=True)
class Source:
    """A depth source with the statistic that all its reads share, and where they leave its gradient.

    Without a sink the gradient goes by autograd's way; `publish` gives one with a sink.
    """

    value: Stream
    inverse_rms: InverseRms
    sink: Sink | None = field(default=None, compare=False)


def inverse_rms(source: Stream, eps: float) -> InverseRms:
    """1 / sqrt(mean over width of source^2 + eps): [batch time 1]. A statistic; `depth_read` differentiates it."""
    with torch.no_grad():
        return wide(source).square().mean(-1, keepdim=True).add_(eps).rsqrt_()


def publish(delta: Stream, eps: float, running: Source | None = None) -> Source:
    """running + delta as a source of later reads, in float32 or wider; delta alone where nothing is running."""
    if torch.compiler.is_compiling():
        value = wide(delta) if running is None else running.value + delta
        return Source(value, (value.square().mean(-1, keepdim=True) + eps).rsqrt())
    sink = Sink() if torch.is_grad_enabled() else None
    before = None if running is None else running.value
    value, scale = _Publish.apply(delta, before, eps, sink, None if running is None else running.sink)
    return Source(value, scale, sink)


def depth_read(
    sources: Sequence[Source], queries: Queries, key_gain: Vector | Queries, norm: Norm | None = None
) -> tuple[tuple[Stream, ...], DepthScores]:
    """A mix of all sources for each query, and the scores [batch time query source] before the softmax.

    The key gain is one for all queries, or one for each. With a norm, what it makes of each mix is returned in the
    mix's place, by the same pass where the kernel takes both. Scores carry no gradient: they are what taps see, by way
    of `weights_of`.
    """
    full_queries, full_gain = wide(queries), wide(key_gain)
    if torch.compiler.is_compiling():
        mixes, scores = _traced(sources, full_queries * full_gain)
        return mixes if norm is None else tuple(map(norm, mixes)), scores
    with torch.autocast(queries.device.type, enabled=False):
        scales = [wide(source.inverse_rms).contiguous() for source in sources]
        values = [wide(source.value).contiguous() for source in sources]
        fused = norm if norm is not None and _takes_norm(norm, full_queries, scales, values) else None
        gain, eps = (None, None) if fused is None else (fused.gain, fused.eps)
        *mixes, scores = _DepthRead.apply(
            full_queries, full_gain, gain, eps, [source.sink for source in sources], *scales, *values
        )
    if norm is None or fused is not None:
        return tuple(mixes), scores
    return tuple(norm(mix) for mix in mixes), scores


def _takes_norm(norm: Norm, queries: Tensor, scales: Sequence[Tensor], sources: Sequence[Tensor]) -> bool:
    """Whether the pass that reads these sources can do what the norm does."""
    gain = () if norm.gain is None else (norm.gain,)
    if _triton(len(queries), queries, *scales, *sources, *gain) is not None:
        return gpu.dense(*scales, *sources, *gain)
    return _on_cpu(queries, *scales, *sources) is not None and depth_read_cpu.library(1, *gain) is not None


def _traced(sources: Sequence[Source], keyed: Tensor) -> tuple[tuple[Tensor, ...], Tensor]:
    """The read in operators that a compiler fuses with what surrounds them, backwards as well. Autocast, which a graph
    that is kept on disk must not switch, leaves every one of them in float32."""
    by_query = [
        torch.cat([(wide(s.value) * query).sum(-1, keepdim=True) * s.inverse_rms for s in sources], dim=-1)
        for query in keyed.unbind(0)
    ]
    mixes = []
    for scores in by_query:
        weights = torch.softmax(scores, dim=-1)
        mix = weights[..., 0:1] * sources[0].value
        for k in range(1, len(sources)):
            mix = mix + weights[..., k : k + 1] * sources[k].value
        mixes.append(mix)
    return tuple(mixes), torch.stack(by_query, dim=-2).detach()


def weights_of(scores: DepthScores) -> DepthWeights:
    """softmax over sources: [query batch time source]."""
    return torch.softmax(scores, dim=-1).movedim(-2, 0)


class _Publish(Function):
    @staticmethod
    def forward(
        ctx: Any, delta: Tensor, running: Tensor | None, eps: float, sink: Sink | None, sink_of_running: Sink | None
    ) -> tuple[Tensor, Tensor]:
        ctx.sink, ctx.sink_of_running, ctx.dtype = sink, sink_of_running, delta.dtype
        ctx.set_materialize_grads(False)
        value, scale = _summed(delta, running, eps)
        ctx.mark_non_differentiable(scale)
        return value, scale

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]  (the decorator's stub drops parameter names)
        ctx: Any, gradient: Tensor | None, _: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        if gradient is not None:
            ctx.sink.add(gradient)
        total: Tensor | None = ctx.sink.take()
        of_running = total
        if total is not None and ctx.needs_input_grad[1] and ctx.sink_of_running is not None:
            # Reads of `running` that are yet to come in this pass add to this gradient while they write theirs.
            ctx.sink_of_running.add(total)
            of_running = None
        of_delta = None if total is None else total.to(ctx.dtype)
        return of_delta, of_running if ctx.needs_input_grad[1] else None, None, None, None


class _DepthRead(Function):
    """Saves sources (which others hold too) and scores; recomputes nothing larger than one source."""

    @staticmethod
    def forward(
        ctx: Any,
        queries: Tensor,
        key_gain: Tensor,
        norm_gain: Tensor | None,
        norm_eps: float | None,
        sinks: Sequence[Sink | None],
        *tensors: Tensor,
    ) -> tuple[Tensor, ...]:
        scales, sources = tensors[: len(sinks)], tensors[len(sinks) :]
        keyed = (queries * key_gain).contiguous()
        if norm_gain is not None:
            norm_gain = norm_gain.contiguous()
        mixes, scores, inverse_mix = _read(keyed, scales, sources, norm_gain, norm_eps)
        ctx.sinks = sinks
        ctx.save_for_backward(queries, key_gain, norm_gain, inverse_mix, scores, *tensors)
        ctx.mark_non_differentiable(scores)
        return (*mixes, scores)

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]  (the decorator's stub drops parameter names)
        ctx: Any, *gradients: Tensor
    ) -> tuple[Tensor | None, ...]:
        queries, key_gain, norm_gain, inverse_mix, scores, *tensors = ctx.saved_tensors
        sinks = ctx.sinks
        scales, sources = tensors[: len(sinks)], tensors[len(sinks) :]
        wanted = ctx.needs_input_grad[-len(sinks) :]
        rooms = [
            (None, torch.empty_like(v)) if sink is None or not want else sink.room(v)
            for sink, want, v in zip(sinks, wanted, sources, strict=True)
        ]
        # The backward pass may run under the caller's autocast, whatever the forward pass ran under.
        with torch.autocast(queries.device.type, enabled=False):
            keyed = (queries * key_gain).contiguous()
            upstream = [g.contiguous() for g in gradients[:-1]]
            grad_keyed, grad_norm_gain = _read_backward(
                keyed, scales, sources, scores, upstream, rooms, norm_gain, inverse_mix
            )
        grad_queries, grad_gain = grad_keyed * key_gain, grad_keyed * queries
        if key_gain.ndim == 1:
            grad_gain = grad_gain.sum(0)
        of_sources = [
            after if sink is None and want else None
            for sink, want, (_, after) in zip(sinks, wanted, rooms, strict=True)
        ]
        of_norm = None if norm_gain is None else grad_norm_gain
        return (grad_queries, grad_gain, of_norm, None, None, *([None] * len(sinks)), *of_sources)


Room = tuple[Tensor | None, Tensor]


def _summed(delta: Tensor, running: Tensor | None, eps: float) -> tuple[Tensor, Tensor]:
    """(value, inverse root mean square [batch time 1])."""
    on_gpu = _triton(1, delta, running)
    if on_gpu is not None and gpu.dense(delta, types=gpu.NARROW) and gpu.dense(running):
        return on_gpu.summed(delta, running, eps)
    dtype = torch.promote_types(delta.dtype, torch.float32)
    delta = delta.contiguous()
    on_cpu = depth_read_cpu.library(1, running) if delta.device.type == "cpu" and dtype == torch.float32 else None
    if on_cpu is not None and delta.dtype in depth_read_cpu.NARROW:
        return depth_read_cpu.summed(on_cpu, delta, running, eps)
    value = delta.to(dtype) if running is None else running + delta.to(running.dtype)
    return value.view_as(value), inverse_rms(value, eps)


def _read(
    keyed: Tensor,
    scales: Sequence[Tensor],
    sources: Sequence[Tensor],
    norm_gain: Tensor | None,
    norm_eps: float | None,
) -> tuple[list[Tensor], Tensor, Tensor | None]:
    """(mixes, scores [batch time query source], None); with a norm (`_takes_norm`) what it makes of the mixes, and
    their inverse root mean squares."""
    on_gpu = _triton(len(keyed), keyed, *scales, *sources)
    if on_gpu is not None and gpu.dense(keyed, *scales, *sources):
        return on_gpu.read(keyed, scales, sources, norm_gain, norm_eps)
    on_cpu = _on_cpu(keyed, *scales, *sources)
    if on_cpu is not None:
        return depth_read_cpu.read(on_cpu, keyed, scales, sources, norm_gain, norm_eps)
    assert norm_eps is None, "`_takes_norm` says who does it"
    scores = torch.stack([(v @ keyed.T) * r for r, v in zip(scales, sources, strict=True)], dim=-1)
    weights = torch.softmax(scores, dim=-1)
    mixes = []
    for m in range(len(keyed)):
        mix = weights[..., m, 0, None] * sources[0]
        for k in range(1, len(sources)):
            mix.addcmul_(weights[..., m, k, None], sources[k])
        mixes.append(mix)
    return mixes, scores, None


def _read_backward(
    keyed: Tensor,
    scales: Sequence[Tensor],
    sources: Sequence[Tensor],
    scores: Tensor,
    gradients: Sequence[Tensor],
    rooms: Sequence[Room],
    norm_gain: Tensor | None,
    inverse_mix: Tensor | None,
) -> tuple[Tensor, Tensor | None]:
    """Writes each source's gradient into its room, on top of what is there, and returns those of `keyed` and of the
    norm's gain."""
    before, after = [old for old, _ in rooms], [new for _, new in rooms]
    on_gpu = _triton(len(keyed), keyed, *scales, *sources)
    if on_gpu is not None and gpu.dense(keyed, *scales, *sources, *after):
        upstream, there = ([None if t is None else gpu.made_dense(t) for t in ts] for ts in (gradients, before))
        return on_gpu.read_backward(keyed, scales, sources, scores, upstream, there, after, norm_gain, inverse_mix)
    on_cpu = _on_cpu(keyed, *scales, *sources)
    if on_cpu is not None:
        return depth_read_cpu.read_backward(
            on_cpu, keyed, scales, sources, scores, gradients, before, after, norm_gain, inverse_mix
        )
    assert inverse_mix is None, "what does the norm forwards does it backwards"
    return _read_backward_by_operators(keyed, scales, sources, scores, gradients, rooms), None


def _read_backward_by_operators(
    keyed: Tensor,
    scales: Sequence[Tensor],
    sources: Sequence[Tensor],
    scores: Tensor,
    gradients: Sequence[Tensor],
    rooms: Sequence[Room],
) -> Tensor:
    width = keyed.shape[-1]
    weights = torch.softmax(scores, dim=-1)  # [batch time query source]
    agreement = torch.stack([torch.stack([(g * v).sum(-1) for v in sources], dim=-1) for g in gradients], dim=-2)
    mean_agreement = (weights * agreement).sum(-1, keepdim=True)
    grad_scores = weights * (agreement - mean_agreement)
    radial = (grad_scores * scores).sum(-2) / width  # [batch time source]
    grad_keyed = torch.zeros_like(keyed)
    for k, (r, v, (before, after)) in enumerate(zip(scales, sources, rooms, strict=True)):
        scaled = grad_scores[..., k] * r  # [batch time query]
        grad = scaled @ keyed
        grad.addcmul_(r.square() * radial[..., k, None], v, value=-1.0)
        for m, g in enumerate(gradients):
            grad.addcmul_(weights[..., m, k, None], g)
        if before is None:
            after.copy_(grad)
        else:
            torch.add(before, grad, out=after)
        grad_keyed += scaled.flatten(0, -2).T @ v.flatten(0, -2)
    return grad_keyed


def _on_cpu(keyed: Tensor, *tensors: Tensor) -> ctypes.CDLL | None:
    """The compiled read, where it takes so many queries and these tensors (a scale and a value for each source)."""
    return depth_read_cpu.library(len(tensors) // 2, keyed, *tensors) if len(keyed) <= MOST_QUERIES else None


def _triton(queries: int, first: Tensor, *further: Tensor | None) -> ModuleType | None:
    """The passes in Triton, where they take so many queries, rows as wide as those of `first`, and the device."""
    if queries > MOST_QUERIES or not gpu.takes(first, *further):
        return None
    from paribus.kernels import depth_read_triton

    fits = first.shape[-1] <= depth_read_triton.MOST_WIDTH and gpu.runs(depth_read_triton.trial, first.device)
    return depth_read_triton if fits else None


def depth_read_reference(
    sources: Sequence[Tensor], queries: Tensor, key_gain: Tensor, eps: float
) -> tuple[Tensor, Tensor]:
    """The slow float64 twin: one token, one query, one source at a time; differentiable by autograd."""
    values = [v.double() for v in sources]
    batch, time, _ = values[0].shape
    mixes, weights = [], []
    for query, gain in zip(queries.double(), key_gain.double().expand_as(queries), strict=True):
        for b in range(batch):
            for t in range(time):
                keys = [v[b, t] / torch.sqrt(torch.mean(v[b, t] ** 2) + eps) * gain for v in values]
                scores = torch.stack([torch.dot(query, key) for key in keys])
                exponentials = torch.exp(scores - scores.max())
                p = exponentials / exponentials.sum()
                weights.append(p)
                mixes.append(
                    sum((p[k] * values[k][b, t] for k in range(len(values))), torch.zeros_like(values[0][b, t]))
                )
    shape = (len(queries), batch, time, -1)
    return torch.stack(mixes).reshape(shape), torch.stack(weights).reshape(shape)
