"""What Exclusive Self-Attention claims to see, read on every arm: how much attention output resembles the own value.

cos(y, v) before projection is the paper's observation (arXiv 2603.09078). Two things raise it: attention to oneself
(`attention_mass`) and what all values have in common; hence the cosine also without the values' mean, and the mean
cosine between values. |y - z|^2 / |y|^2 says how much an output map took away: a control that takes away less than the
mechanism controls for less.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from paribus.kernels.exclude_self import cosine
from paribus.mechanisms.contract import Diagnostic
from paribus.mechanisms.exclusion.attention_mass import ATTENTION_MASS_DIAGNOSTICS, by_head
from paribus.mechanisms.exclusion.prefix import earlier_sum
from paribus.shapes import GroupValues, TokenWeights

SITE = "attention output"


def mean_value(v: GroupValues, weight: TokenWeights) -> Tensor:
    """Mean of v over each row's counted positions, in float64: [batch 1 kv_head 1 head_width]."""
    weights = weight.double()[:, :, None, None, None]
    return (v.double() * weights).sum(1, keepdim=True) / weights.sum(1, keepdim=True).clamp_min(1.0)


def pair_sums(v: GroupValues, weight: TokenWeights) -> tuple[Tensor, Tensor]:
    """For each position t over counted s < t: (sum of cos(v_t, v_s) [batch time kv_head], their number [batch time]).

    By the sum of earlier unit vectors: sum_s cos(v_t, v_s) = u_t . sum_s u_s.
    """
    v = v.double().squeeze(3)
    unit = torch.nn.functional.normalize(v, dim=-1, eps=torch.finfo(torch.float64).tiny)
    counted = unit * weight.double()[:, :, None, None]
    return (unit * earlier_sum(counted)).sum(-1), earlier_sum(weight.double())


def _alignment(tapped: Mapping[str, Tensor], weight: Tensor) -> Mapping[str, Tensor]:
    del weight
    return by_head(cosine(tapped[f"{SITE}/y"], tapped[f"{SITE}/v"]))


def _own_share(tapped: Mapping[str, Tensor], weight: Tensor) -> Mapping[str, Tensor]:
    del weight
    return by_head(cosine(tapped[f"{SITE}/y"], tapped[f"{SITE}/v"]).square())


def _centred_alignment(tapped: Mapping[str, Tensor], weight: Tensor) -> Mapping[str, Tensor]:
    y, v = tapped[f"{SITE}/y"].double(), tapped[f"{SITE}/v"].double()
    mean = mean_value(v, weight)
    return by_head(cosine(y - mean, v - mean))


def _residual_alignment(tapped: Mapping[str, Tensor], weight: Tensor) -> Mapping[str, Tensor]:
    del weight
    z, y = tapped[f"{SITE}/z"], tapped[f"{SITE}/y"]
    if z is y:  # an output map that changes nothing makes no claim about z
        return {}
    return by_head(cosine(z, tapped[f"{SITE}/v"]).abs())


def _pairwise(tapped: Mapping[str, Tensor], weight: Tensor) -> Mapping[str, Tensor]:
    sums, count = pair_sums(tapped[f"{SITE}/v"], weight)
    of_heads = {f"kv head:{n}": of_head for n, of_head in enumerate(sums.unbind(-1))}
    return {"pairs": count, "mean over heads": sums.mean(-1), **of_heads}


def _per_pair(means: Mapping[str, float]) -> Mapping[str, float]:
    pairs = means["pairs"]
    return {} if pairs == 0.0 else {group: total / pairs for group, total in means.items() if group != "pairs"}


def _share_removed(tapped: Mapping[str, Tensor], weight: Tensor) -> Mapping[str, Tensor]:
    del weight
    z, y = tapped[f"{SITE}/z"], tapped[f"{SITE}/y"]
    if z is y:
        return {}
    y, z = y.double(), z.double()
    before = y.square().sum(-1)
    removed = (y - z).square().sum(-1)
    return by_head(removed / before.clamp_min(torch.finfo(torch.float64).tiny))


def _norm_kept(tapped: Mapping[str, Tensor], weight: Tensor) -> Mapping[str, Tensor]:
    del weight
    z, y = tapped[f"{SITE}/z"], tapped[f"{SITE}/y"]
    if z is y:
        return {}
    return by_head(z.double().norm(dim=-1) / y.double().norm(dim=-1).clamp_min(torch.finfo(torch.float64).tiny))


def _own_component(tapped: Mapping[str, Tensor], weight: Tensor) -> Mapping[str, Tensor]:
    """Per head the two sums of a least-squares line through the origin: removed . u against y . u."""
    del weight
    z, y, v = (tapped[f"{SITE}/{name}"] for name in ("z", "y", "v"))
    if z is y:
        return {}
    y, z, v = y.double(), z.double(), v.double()
    unit = torch.nn.functional.normalize(v, dim=-1, eps=torch.finfo(torch.float64).tiny)
    own, removed = (y * unit).sum(-1), ((y - z) * unit).sum(-1)
    products, squares = by_head(removed * own), by_head(own.square())
    return {f"{of}{head}": sums[head] for of, sums in ((_PRODUCT, products), (_SQUARE, squares)) for head in sums}


_PRODUCT, _SQUARE = "removed times own, ", "own squared, "


def _slope(means: Mapping[str, float]) -> Mapping[str, float]:
    heads = [group.removeprefix(_SQUARE) for group in means if group.startswith(_SQUARE)]
    return {h: means[_PRODUCT + h] / means[_SQUARE + h] for h in heads if means[_SQUARE + h] > 0.0}


EXCLUSIVE_DIAGNOSTICS = (
    Diagnostic(
        name="cos_y_v",
        title="Alignment of attention output with the token's own value",
        sentence="cos(y, v) before any projection, by layer: how much of what attention gathers a token already has. "
        "The first position of every row of the evaluation is left out; the first token of a document that starts "
        "within a row is not.",
        unit="cosine",
        sites=(SITE,),
        observe=_alignment,
        by_bucket=True,
    ),
    Diagnostic(
        name="own_share",
        title="Share of attention output along the token's own value",
        sentence="cos^2(y, v): how much of the squared norm of what attention gathers lies along the own value, before "
        "any projection. It is what a full removal of that direction would take away, read on arms that remove nothing "
        "too: where the content to be fetched resembles the own one, the fetched content is part of it.",
        unit="share",
        sites=(SITE,),
        observe=_own_share,
        by_bucket=True,
    ),
    Diagnostic(
        name="cos_y_v_centred",
        title="The same alignment without what all values have in common",
        sentence="cos(y - m, v - m) with m the mean value of the row, per head. Attention weights sum to 1, so y - m "
        "is the attention mix of v - m. What the raw cosine has more than this one is common to all tokens, not their "
        "own.",
        unit="cosine",
        sites=(SITE,),
        observe=_centred_alignment,
        by_bucket=True,
    ),
    Diagnostic(
        name="cos_v_v",
        title="Alignment of values with each other",
        sentence="Mean cos(v_i, v_j) over all pairs of counted tokens of a row, per key-value head: how much of a "
        "value is common to all tokens. A pair belongs to the position of its later token.",
        unit="cosine",
        sites=(SITE,),
        observe=_pairwise,
        derive=_per_pair,
        by_bucket=True,
    ),
    *ATTENTION_MASS_DIAGNOSTICS,
    Diagnostic(
        name="share_removed",
        title="Share of the squared norm that the output map removes",
        sentence="|y - z|^2 / |y|^2 for every arm whose output map changes something: the size of the intervention, "
        "without which a control cannot be read. For a removal along one direction it is the squared cosine times the "
        "squared strength.",
        unit="share",
        sites=(SITE,),
        observe=_share_removed,
        by_bucket=True,
    ),
    Diagnostic(
        name="norm_kept",
        title="Norm after the output map",
        sentence="|z| / |y|: a removal of y's component along its value shortens y; one of the same size along "
        "another direction need not, and makes it longer where it goes past zero.",
        unit="ratio",
        sites=(SITE,),
        observe=_norm_kept,
        by_bucket=True,
    ),
    Diagnostic(
        name="own_component_removed",
        title="Share of the own component that the output map removes",
        sentence="How much of y's component along the aggregated v the output map takes away, by least squares over "
        "tokens: where that value is the one excluded, the fixed strength (no finding) or the learned one; where "
        "another value is, and for a control, how much of the mechanism acts without being asked for.",
        unit="share",
        sites=(SITE,),
        observe=_own_component,
        derive=_slope,
    ),
    Diagnostic(
        name="cos_z_v",
        title="Alignment left after the output map",
        sentence="|cos(z, v)| with the aggregated value: zero by construction where all of that value's direction is "
        "removed, so there it checks the implementation (up to rounding, which is large where hardly anything is left "
        "of y). For other output maps it is not zero and is evidence of nothing.",
        unit="cosine",
        sites=(SITE,),
        observe=_residual_alignment,
        by_bucket=True,
        correctness_only=True,
    ),
)
