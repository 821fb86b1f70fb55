"""From what a model says of an item's rows to an answer: predicted, right or not, by how much, and how surely."""

from collections.abc import Callable, Sequence

from paribus.downstream.items import Answer, Item
from paribus.measure.answers_scores import RowScores

Decode = Callable[[Sequence[int]], str]
"""text of token ids: `Tokenizer.decode`"""


def judged(item: Item, rows: Sequence[RowScores], rounding: float, decode: Decode) -> Answer:
    """The answer to an item. `rows` stand in the item's order; `rounding` is how far a token's -ln p may be off, in
    nats (`answers_rounding`)."""
    if item.kind == "exact":
        return _exact(item, rows[0], rounding, decode)
    if item.kind == "letters":
        return _chosen(item, rows[0].letters, [1] * len(item.letters), rounding)
    return _chosen(item, [row.nats for row in rows], [_scored(item, n) for n in range(len(rows))], rounding)


def unanswered(item: Item, problem: str) -> Answer:
    """Of an item that cannot be asked."""
    return Answer(item.item, "", correct=False, problem=problem)


def _chosen(item: Item, nats: Sequence[float], tokens: Sequence[int], rounding: float) -> Answer:
    """The least surprising of several, the first of equals."""
    means = [total / count for total, count in zip(nats, tokens, strict=True)]
    best = min(range(len(means)), key=means.__getitem__)
    leads = [mean - means[best] for choice, mean in enumerate(means) if choice != best]
    others = [mean for choice, mean in enumerate(means) if choice != item.gold]
    return Answer(
        item.item,
        prediction=item.labels[best],
        correct=best == item.gold,
        nats=tuple(nats),
        tokens=tuple(tokens),
        gold_nats=nats[item.gold],
        gold_bytes=item.rows[item.gold].bytes if item.kind == "choices" else None,
        margin=min(others) - means[item.gold] if others else None,
        near_tie=bool(leads) and min(leads) <= 2.0 * rounding,
    )


def _exact(item: Item, row: RowScores, rounding: float, decode: Decode) -> Answer:
    """Right where each token is the likeliest one, given the right ones before it."""
    [own] = item.rows
    return Answer(
        item.item,
        prediction=decode(row.likeliest),
        correct=list(row.likeliest) == own.tokens[own.start :].tolist(),
        nats=(row.nats,),
        tokens=(_scored(item, 0),),
        gold_nats=row.nats,
        gold_bytes=own.bytes,
        margin=row.lead,
        near_tie=abs(row.lead) <= 2.0 * rounding,
    )


def _scored(item: Item, row: int) -> int:
    return len(item.rows[row].tokens) - item.rows[row].start
