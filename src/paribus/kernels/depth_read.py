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
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from paribus.kernels.precision import wide
from paribus.shapes import DepthWeights, InverseRms, Mixes, Queries, Stream, Vector


def inverse_rms(source: Stream, eps: float) -> InverseRms:
    """1 / sqrt(mean over width of source^2 + eps): [batch time 1]. A statistic; `depth_read` differentiates it."""
    with torch.no_grad():
        return wide(source).square().mean(-1, keepdim=True).add_(eps).rsqrt_()


def depth_read(
    sources: Sequence[Stream],
    inverse_rms_of_sources: Sequence[InverseRms],
    queries: Queries,
    key_gain: Vector | Queries,
) -> tuple[Mixes, DepthWeights]:
    """M mixes of K sources: ([query batch time width], weights [query batch time source]).

    `inverse_rms_of_sources` holds `inverse_rms(source, eps)` of each source, computed once when the source was
    published and shared by all later reads. The key gain is one for all queries, or one for each. Weights carry no
    gradient: they are what the taps see.
    """
    tensors = (wide(t) for t in (queries, key_gain, *inverse_rms_of_sources, *sources))
    full_queries, full_gain, *rest = tensors
    with torch.autocast(queries.device.type, enabled=False):
        return _DepthRead.apply(full_queries, full_gain, len(sources), *rest)


class _DepthRead(Function):
    """Saves sources (which others hold too) and weights; recomputes nothing larger than one source."""

    @staticmethod
    def forward(ctx: Any, queries: Tensor, key_gain: Tensor, count: int, *tensors: Tensor) -> tuple[Tensor, Tensor]:
        scales, sources = tensors[:count], tensors[count:]
        keyed = queries * key_gain
        scores = torch.stack([(v @ keyed.T) * r for r, v in zip(scales, sources, strict=True)], dim=-1)
        weights = torch.softmax(scores, dim=-1)  # [batch time query source]
        mixes = []
        for m in range(queries.shape[0]):
            mix = weights[..., m, 0, None] * sources[0]
            for k in range(1, count):
                mix.addcmul_(weights[..., m, k, None], sources[k])
            mixes.append(mix)
        ctx.count = count
        ctx.save_for_backward(queries, key_gain, scores, weights, *tensors)
        seen = weights.movedim(-2, 0)
        ctx.mark_non_differentiable(seen)
        return torch.stack(mixes), seen

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]  (the decorator's stub drops parameter names)
        ctx: Any, grad_mixes: Tensor, _: Tensor
    ) -> tuple[Tensor | None, ...]:
        # The backward pass may run under the caller's autocast, whatever the forward pass ran under.
        with torch.autocast(grad_mixes.device.type, enabled=False):
            return _DepthRead._gradients(ctx, grad_mixes)

    @staticmethod
    def _gradients(ctx: Any, grad_mixes: Tensor) -> tuple[Tensor | None, ...]:
        queries, key_gain, scores, weights, *tensors = ctx.saved_tensors
        scales, sources = tensors[: ctx.count], tensors[ctx.count :]
        width = queries.shape[-1]
        keyed = queries * key_gain
        agreement = torch.stack(
            [torch.stack([(g * v).sum(-1) for v in sources], dim=-1) for g in grad_mixes.unbind(0)], dim=-2
        )
        mean_agreement = (weights * agreement).sum(-1, keepdim=True)
        grad_scores = weights * (agreement - mean_agreement)
        radial = (grad_scores * scores).sum(-2) / width  # [batch time source]
        grad_keyed = torch.zeros_like(keyed)
        grad_sources = []
        for k, (r, v) in enumerate(zip(scales, sources, strict=True)):
            scaled = grad_scores[..., k] * r  # [batch time query]
            grad = scaled @ keyed
            grad.addcmul_(r.square() * radial[..., k, None], v, value=-1.0)
            for m, g in enumerate(grad_mixes.unbind(0)):
                grad.addcmul_(weights[..., m, k, None], g)
            grad_sources.append(grad)
            grad_keyed += scaled.flatten(0, -2).T @ v.flatten(0, -2)
        grad_queries = grad_keyed * key_gain
        grad_gain = grad_keyed * queries
        if key_gain.ndim == 1:
            grad_gain = grad_gain.sum(0)
        return (grad_queries, grad_gain, None, *([None] * ctx.count), *grad_sources)


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
