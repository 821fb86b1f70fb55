"""Attention on the answer: how much of a head's weight lies on the one token from which the target can be read.

    answer mass of head h at place t = a_{t s},  s the place of the answer (`Rows.answer` of a task)

averaged over the places that are asked and have a single answer, slice by slice. The layer with the largest mass of one
head is the retrieving layer: where a task says what must be fetched and from where, routes and values are worth looking
at there. It belongs to the task and not to a mechanism, so it is read on every arm of a task's study. A model that
copies the answer to another place first, and reads it there, shows no mass here.

a_ts = softmax_s(q_t . k_s / sqrt(head_width)) over allowed s <= t is recomputed from what the tap shows (q and k after
norm and rotary), in float32, as in the diagnostics of attention mass.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from paribus.measure.probes import ANSWER_SITE
from paribus.mechanisms.contract import Diagnostic
from paribus.shapes import AllowedPairs, Heads, KvHeads, PerHead, Tokens

SITE = "attention"
SCORES_AT_ONCE = 2**24
"""numbers that are formed together; bounds memory at a few times 64 MiB, but for one row that has more"""
LARGEST_HEAD = "largest head"
_ANSWERED = "has an answer"


def answer_masses(q: Heads, k: KvHeads, allowed: AllowedPairs | None, answer: Tokens) -> PerHead:
    """Weight of each query on the token at `answer` [batch time]: [batch time kv_head group] in float32.

    0 where `answer` is -1, and where the query may not attend to that token.
    """
    batch, time, heads = q.shape[:3]
    rows = max(SCORES_AT_ONCE // (heads * time * time), 1)
    parts = [slice(begin, begin + rows) for begin in range(0, batch, rows)]
    return torch.cat([_of_rows(q[p], k[p], None if allowed is None else allowed[p], answer[p]) for p in parts])


def _of_rows(q: Tensor, k: Tensor, allowed: Tensor | None, answer: Tensor) -> Tensor:
    time, kv_heads = q.shape[1], k.shape[2]
    queries = q.float().unflatten(2, (kv_heads, -1)).permute(0, 2, 3, 1, 4)  # [row kv_head group time head_width]
    keys = k.float().permute(0, 2, 3, 1).unsqueeze(2)  # [row kv_head 1 head_width time]
    scores = (queries @ keys).mul_(queries.shape[-1] ** -0.5)
    causal = torch.ones(time, time, dtype=torch.bool, device=q.device).tril()
    pairs = causal if allowed is None else allowed[:, None, None]
    scores.masked_fill_(~pairs, -torch.inf)
    place = answer.clamp_min(0)[:, None, None, :, None].expand(*scores.shape[:-1], 1)
    mass = (scores.gather(-1, place)[..., 0] - scores.logsumexp(-1)).exp()
    return torch.where((answer >= 0)[:, None, None], mass, 0.0).permute(0, 3, 1, 2)


def _on_the_answer(tapped: Mapping[str, Tensor], weight: Tensor) -> Mapping[str, Tensor]:
    """Sums until `_per_answer` divides by how many of the places have a single answer."""
    del weight
    answer = tapped[f"{ANSWER_SITE}/place"]
    q, k, allowed = tapped[f"{SITE}/q"], tapped[f"{SITE}/k"], tapped.get(f"{SITE}/allowed")
    heads = answer_masses(q, k, allowed, answer).flatten(-2)
    by_head = {f"head:{n}": of_head for n, of_head in enumerate(heads.unbind(-1))}
    return {_ANSWERED: (answer >= 0).double(), "mean over heads": heads.mean(-1), **by_head}


def _per_answer(means: Mapping[str, float]) -> Mapping[str, float]:
    share = means[_ANSWERED]
    if share == 0.0:
        return {}
    found = {group: total / share for group, total in means.items() if group != _ANSWERED}
    return {LARGEST_HEAD: max(mass for group, mass in found.items() if group.startswith("head:")), **found}


ANSWER_MASS = Diagnostic(
    name="answer_mass",
    title="Attention to the answer",
    sentence="Attention weight of an answering place on the token from which the target can be read, over the places "
    "that have a single one. The layer with the largest mass of one head is the retrieving layer. An arm that reads a "
    "copy of the answer elsewhere has none, and may answer all the same.",
    unit="weight",
    sites=(SITE, ANSWER_SITE),
    observe=_on_the_answer,
    derive=_per_answer,
)
