"""What a model says of a batch of units: one pass over their prefixes, then their rows behind, those of like lengths in
one pass.

A part takes copies of its rows' prefixes from the cache, at most as many as the batch has units, so that two caches of
a batch's size are there at once.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from paribus.downstream.items import Item, Row
from paribus.measure.answers_plan import Unit, inputs, parts_of
from paribus.model.backbone import Backbone
from paribus.model.cache import Cache


@dataclass
class RowScores:
    """Of one row; added to pass by pass."""

    nats: float = 0.0
    """summed -ln p of the span"""
    likeliest: tuple[int, ...] = ()
    """of every token of the span, the likeliest one in its place; of `exact` rows"""
    lead: float = float("inf")
    """smallest lead of a right token over the likeliest other, in nats; of `exact` rows"""
    letters: tuple[float, ...] = ()
    """-ln p of each letter among all tokens"""
    largest: float = 0.0
    """largest magnitude among the logits"""


@dataclass(frozen=True)
class _Asked:
    """A row on its way to its scores."""

    place: int
    """of its unit in the batch"""
    item: Item
    row: Row
    prefix: int
    scores: RowScores = field(default_factory=RowScores)

    @property
    def behind(self) -> NDArray[np.int32]:
        """Inputs behind the prefix."""
        return self.row.tokens[self.prefix : inputs(self.row)]


def score(
    model: Backbone, items: Mapping[int, Item], units: Sequence[Unit], logits_at_once: int
) -> list[list[RowScores]]:
    """Scores of every row of every unit, [unit][row], in the order of `Unit.rows`; `Unit.item` is a key of `items`.

    Of continuations, so many logits are formed together, but for one row that has more.
    What is not finite stays so: `RowScores.largest` is NaN or infinite then.
    """
    asked = [
        [_Asked(place, items[unit.item], items[unit.item].rows[row], unit.prefix) for row in unit.rows]
        for place, unit in enumerate(units)
    ]
    device = next(model.parameters()).device
    cache = Cache.empty(model, len(units), max(unit.longest for unit in units))
    tokens, lengths = _padded([rows[0].row.tokens[: rows[0].prefix] for rows in asked])
    _score_first(model.extend(tokens.to(device), cache, lengths, last_only=True), [row for of in asked for row in of])
    further = sorted((row for of in asked for row in of if len(row.behind)), key=lambda row: -len(row.behind))
    most_tokens = logits_at_once // model.config.vocabulary_size
    for part in parts_of([len(row.behind) for row in further], most_tokens, len(units)):
        _continue(model, cache, further[part])
    return [[row.scores for row in rows] for rows in asked]


def _score_first(logits: Tensor, asked: Sequence[_Asked]) -> None:
    """From logits [unit vocab] at the last position of each prefix: the first token of a span that begins there, and
    letters."""
    begun = [row for row in asked if row.row.start == row.prefix < len(row.row.tokens)]
    if begun:
        places = torch.tensor([row.place for row in begun], device=logits.device)
        targets = torch.tensor([[int(row.row.tokens[row.prefix])] for row in begun], device=logits.device)
        _add(logits[places].unsqueeze(1), targets, [(0, 1)] * len(begun), begun)
    for row in asked:
        if row.item.kind == "letters":
            at_end = logits[row.place].double()
            chosen = at_end[torch.tensor(row.item.letters, device=logits.device)]
            row.scores.letters = tuple((at_end.logsumexp(-1) - chosen).tolist())
            row.scores.largest = float(at_end.abs().max())


def _continue(model: Backbone, cache: Cache, asked: Sequence[_Asked]) -> None:
    """Score one row of each of some units behind their prefixes in the cache, which is as it was afterwards."""
    asked = sorted(asked, key=lambda row: row.place)
    device = cache.lengths.device
    tokens, lengths = _padded([row.behind for row in asked])
    targets, _ = _padded([row.row.tokens[row.prefix + 1 : row.prefix + 1 + len(row.behind)] for row in asked])
    own = cache.selected(torch.tensor([row.place for row in asked]))
    logits = model.extend(tokens.to(device), own, lengths)
    spans = [(max(row.row.start - row.prefix - 1, 0), len(row.behind)) for row in asked]
    _add(logits, targets.to(device), spans, asked)


def _add(logits: Tensor, targets: Tensor, spans: Sequence[tuple[int, int]], asked: Sequence[_Asked]) -> None:
    """Add what logits [row time vocab] say of targets [row time] within each row's places [begin, end)."""
    begin, end = (torch.tensor(column, device=logits.device)[:, None] for column in zip(*spans, strict=True))
    place = torch.arange(targets.shape[1], device=logits.device)
    scored = (place >= begin) & (place < end)
    target = logits.gather(-1, targets[..., None])[..., 0]
    nats = torch.where(scored, logits.logsumexp(-1) - target, 0.0)
    largest = torch.where(scored, logits.abs().amax(-1), 0.0)
    for row, total, most in zip(asked, nats.double().sum(-1).tolist(), largest.amax(-1).tolist(), strict=True):
        row.scores.nats += total
        row.scores.largest = float(np.maximum(row.scores.largest, most))  # keeps what is no number
    if not any(row.item.kind == "exact" for row in asked):
        return
    likeliest, two = logits.argmax(-1), logits.topk(2, dim=-1).values
    lead = target - torch.where(likeliest == targets, two[..., 1], two[..., 0])
    smallest = torch.where(scored, lead, torch.inf).amin(-1).tolist()
    for row, own, (first, last), least in zip(asked, likeliest.tolist(), spans, smallest, strict=True):
        row.scores.likeliest += tuple(own[first:last])
        row.scores.lead = min(row.scores.lead, least)


def _padded(rows: Sequence[NDArray[np.int32]]) -> tuple[Tensor, Tensor | None]:
    """Rows padded at the right with token 0, int64 [row time], and their lengths; None where all are equal."""
    lengths = [len(row) for row in rows]
    table = np.zeros((len(rows), max(lengths)), dtype=np.int64)
    for place, row in enumerate(rows):
        table[place, : len(row)] = row
    return torch.from_numpy(table), None if len(set(lengths)) == 1 else torch.tensor(lengths)
