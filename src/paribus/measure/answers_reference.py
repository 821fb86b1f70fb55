"""The plain twin of `answers`: one row after the other through the whole model, nothing shared, nothing batched.

It is what `answer` is compared with, in float64 where the model is.
"""

import torch
from torch import Tensor

from paribus.downstream.items import Answer, Item, Row
from paribus.measure.answers_judging import Decode
from paribus.model.backbone import Backbone


@torch.no_grad()
def naive_answer(model: Backbone, item: Item, decode: Decode) -> Answer:
    """The answer to one item that can be asked, by the model as it is; near ties are not looked for."""
    if item.kind == "letters":
        spread = _log_probabilities(model, item.rows[0])[-1]
        nats = [-float(spread[letter]) for letter in item.letters]
        best = int(torch.argmin(torch.tensor(nats, dtype=torch.float64)))
        others = nats[: item.gold] + nats[item.gold + 1 :]
        return Answer(
            item.item,
            item.labels[best],
            correct=best == item.gold,
            nats=tuple(nats),
            tokens=(1,) * len(nats),
            gold_nats=nats[item.gold],
            margin=min(others) - nats[item.gold] if others else None,
        )
    by_row = [_span(model, row) for row in item.rows]
    sums = [float(nats.sum()) for nats, _, _ in by_row]
    sizes = [len(nats) for nats, _, _ in by_row]
    own = item.rows[item.gold]
    if item.kind == "exact":
        _, likeliest, leads = by_row[0]
        prediction, margin = decode(likeliest.tolist()), float(leads.min())
        correct = bool((likeliest == torch.from_numpy(own.tokens[own.start :]).to(likeliest)).all())
    else:
        means = torch.tensor([nats.double().mean() for nats, _, _ in by_row])
        best = int(torch.argmin(means))
        prediction, correct = item.labels[best], best == item.gold
        others = torch.cat([means[: item.gold], means[item.gold + 1 :]])
        margin = float(others.min() - means[item.gold]) if len(others) else None
    return Answer(
        item.item,
        prediction,
        correct=correct,
        nats=tuple(sums),
        tokens=tuple(sizes),
        gold_nats=sums[item.gold],
        gold_bytes=own.bytes,
        margin=margin,
    )


def _span(model: Backbone, row: Row) -> tuple[Tensor, Tensor, Tensor]:
    """Of each token of the span: -ln p, the likeliest token in its place, and its lead over the likeliest other."""
    spread = _log_probabilities(model, row)[row.start - 1 : -1]
    tokens = torch.from_numpy(row.tokens[row.start :].astype("int64")).to(spread.device)
    own = spread.gather(-1, tokens[:, None])[:, 0]
    others = spread.scatter(-1, tokens[:, None], -torch.inf)
    return -own.double(), spread.argmax(-1), (own - others.amax(-1)).double()


def _log_probabilities(model: Backbone, row: Row) -> Tensor:
    """[token vocab] of what follows each token."""
    device = next(model.parameters()).device
    tokens = torch.from_numpy(row.tokens.astype("int64")).to(device)[None]
    return model(tokens, torch.zeros_like(tokens))[0].log_softmax(-1)
