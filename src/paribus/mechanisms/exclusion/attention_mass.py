"""Where attention's weight goes: on the token itself, and on the first token that it may attend to.

a_ij = softmax_j(q_i . k_j / sqrt(head_width)) over allowed j <= i, recomputed in float32 from what the tap shows (q and
k after norm and rotary). The kernel that ran never forms the weights; these are the same up to its rounding.
"""

import weakref
from collections.abc import Callable, Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from paribus.mechanisms.contract import Diagnostic
from paribus.shapes import AllowedPairs, Heads, KvHeads, PerHead

SITE = "attention"
BLOCK = 128
"""queries whose weights are formed at once"""


class Masses(NamedTuple):
    """Weights of each query on two keys."""

    itself: PerHead
    first: PerHead
    """on the first token that it may attend to"""


def attention_masses(q: Heads, k: KvHeads, allowed: AllowedPairs | None) -> Masses:
    """Weight of each query on itself and on its first key.

    One row and BLOCK queries at a time, against the keys up to the last of them: [head BLOCK time] numbers are held at
    once and half of all pairs are never formed. A group shares its keys by broadcasting.
    """
    kv_heads, time = k.shape[2], q.shape[1]
    found = []
    for row in range(len(q)):
        queries = q[row].float().unflatten(1, (kv_heads, -1)).permute(1, 2, 0, 3)
        keys = k[row].float().permute(1, 2, 0).unsqueeze(1)  # [kv_head 1 head_width time]
        blocks = [
            _masses_of_block(queries, keys, None if allowed is None else allowed[row], start, start + BLOCK)
            for start in range(0, time, BLOCK)
        ]
        found.append(torch.cat(blocks, dim=2).permute(3, 2, 0, 1))
    return Masses(*torch.stack(found, dim=1).unbind(0))


def _masses_of_block(queries: Tensor, keys: Tensor, allowed: Tensor | None, start: int, stop: int) -> Tensor:
    """[kv_head group query 2] for the queries from `start` to before `stop`, of one row: on itself, on the first."""
    queries, keys = queries[:, :, start:stop], keys[..., :stop]
    scores = (queries @ keys).mul_(queries.shape[-1] ** -0.5)
    count, seen = scores.shape[-2:]
    if allowed is None:
        later = torch.ones(count, seen - start, dtype=torch.bool, device=scores.device).triu(1)
        scores[..., start:].masked_fill_(later, -torch.inf)
        first = torch.zeros(count, dtype=torch.long, device=scores.device)
    else:
        pairs = allowed[start:stop, :stop]
        scores.masked_fill_(~pairs, -torch.inf)
        first = pairs.int().argmax(-1)  # the first True of each query
    asked = torch.stack([torch.arange(start, start + count, device=scores.device), first], dim=-1)
    exponentials = scores.sub_(scores.amax(-1, keepdim=True)).exp_()
    of_asked = exponentials.gather(-1, asked.expand(*scores.shape[:2], -1, -1))
    return of_asked / exponentials.sum(-1, keepdim=True)


class _Latest:
    """The masses of the tensors asked about last: two diagnostics of one layer form its weights once.

    Known by the tensors themselves, which it does not keep alive; what a tap has shown is never written to.
    """

    def __init__(self) -> None:
        self._seen: tuple[Callable[[], Tensor | None], ...] = ()
        self._masses: Masses | None = None

    def __call__(self, *given: Tensor) -> Masses:
        known = len(self._seen) == len(given) and all(ref() is t for ref, t in zip(self._seen, given, strict=True))
        if self._masses is None or not known:
            q, k, *allowed = given
            self._masses = attention_masses(q, k, allowed[0] if allowed else None)
            self._seen = tuple(weakref.ref(t) for t in given)
        return self._masses


_latest = _Latest()


def by_head(per_head: PerHead) -> dict[str, Tensor]:
    """{"mean over heads": [batch time], "head:<query head>": [batch time]} of a number per token and head."""
    heads = per_head.flatten(-2)
    return {
        "mean over heads": heads.mean(-1),
        **{f"head:{n}": of_head for n, of_head in enumerate(heads.unbind(-1))},
    }


def _masses(tapped: Mapping[str, Tensor]) -> Masses:
    return _latest(*(tapped[key] for key in (f"{SITE}/q", f"{SITE}/k", f"{SITE}/allowed") if key in tapped))


def _on_itself(tapped: Mapping[str, Tensor], weight: Tensor) -> Mapping[str, Tensor]:
    del weight
    return by_head(_masses(tapped).itself)


def _on_the_first(tapped: Mapping[str, Tensor], weight: Tensor) -> Mapping[str, Tensor]:
    del weight
    return by_head(_masses(tapped).first)


ATTENTION_MASS_DIAGNOSTICS = (
    Diagnostic(
        name="diagonal_mass",
        title="Attention of a token to itself",
        sentence="Attention weight a_ii of a token on itself: one of the two ways in which attention output comes to "
        "resemble the token's own value (the other is what values have in common). First positions of a row, where it "
        "is 1 by construction, are left out.",
        unit="weight",
        sites=(SITE,),
        observe=_on_itself,
        by_bucket=True,
    ),
    Diagnostic(
        name="first_token_share",
        title="Attention to the first token",
        sentence="Attention weight on the first token that a query may attend to (of the row, or of the document under "
        "a document mask): the sink into which attention drains when it has nothing to add.",
        unit="weight",
        sites=(SITE,),
        observe=_on_the_first,
        by_bucket=True,
    ),
)
