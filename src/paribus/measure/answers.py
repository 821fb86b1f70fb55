"""A model's answers to items: each row's log-likelihood, and what follows from it, item by item.

    -ln p(span) = sum over its tokens of -ln p(token | all tokens before it in the row)

`choices` predicts the row with the lowest mean over its span, `exact` is right where every token of the span is the
likeliest one, `letters` predicts the likeliest of its tokens at the end of the row; of equals the first. What the rows
of an item begin with is computed once, and the head only where logits are asked for (`answers_plan`, `answers_scores`).
The numbers depend on batching by rounding alone, and items in which that may decide are marked (`answers_rounding`).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain

import numpy as np
import torch

from paribus.downstream.items import Answer, Item, Row
from paribus.errors import DivergenceError, ParibusError
from paribus.measure.answers_judging import Decode, judged, unanswered
from paribus.measure.answers_plan import Unit, batches_of, units_of
from paribus.measure.answers_rounding import measured_rounding
from paribus.measure.answers_scores import RowScores, score
from paribus.model.backbone import Backbone

BATCH_TOKENS = 8_192
LOGITS_AT_ONCE = 2**26
"""numbers that are formed together; bounds memory at a few times 256 MiB, but for one row that has more"""
WINDOW_BATCHES = 512
"""items of so many batches are sorted by length together"""


def _ignored(items: int) -> None:
    del items


def answer(
    model: Backbone,
    items: Iterable[Item],
    decode: Decode,
    *,
    batch_tokens: int = BATCH_TOKENS,
    progress: Callable[[int], None] = _ignored,
) -> Iterator[Answer]:
    """An answer to each item, in their order. `decode` is the tokenizer's; `progress` is told how many items a batch
    has finished.

    Two caches of at most `batch_tokens` tokens are kept, or of one row where that is longer; a few million tokens are
    read ahead. The model is in evaluation mode while it is asked, and in its own whenever the caller has control.
    DivergenceError for a model whose logits are not finite, ParibusError for tokens that it does not know. An item that
    cannot be asked is answered with its problem.
    """
    rounding: float | None = None
    for window in _windows(items, WINDOW_BATCHES * batch_tokens):
        problems = [_problem(item) for item in window]
        asked = {place: item for place, item in enumerate(window) if not problems[place]}
        found = {place: unanswered(window[place], problem) for place, problem in enumerate(problems) if problem}
        progress(len(found))
        _require_known(asked.values(), model.config.vocabulary_size)
        with _evaluated(model):
            if asked and rounding is None:
                rounding = measured_rounding(model, [row.tokens for item in asked.values() for row in item.rows])
            for place, rows in _scored(model, asked, batch_tokens, progress):
                found[place] = judged(window[place], rows, rounding or 0.0, decode)
        yield from (found[place] for place in range(len(window)))


def _scored(
    model: Backbone, asked: Mapping[int, Item], batch_tokens: int, progress: Callable[[int], None]
) -> Iterator[tuple[int, list[RowScores]]]:
    """Each item's place and the scores of its rows in their order, whenever the last of them is there."""
    units = chain.from_iterable(units_of(place, item) for place, item in asked.items())
    waiting: dict[int, dict[int, RowScores]] = {place: {} for place in asked}
    most = max(LOGITS_AT_ONCE // model.config.vocabulary_size, 1)
    for batch in batches_of(list(units), batch_tokens, most):
        before = len(waiting)
        for unit, rows in zip(batch, score(model, asked, batch, LOGITS_AT_ONCE), strict=True):
            _require_finite(asked[unit.item], unit, rows)
            own = waiting[unit.item]
            own.update(zip(unit.rows, rows, strict=True))
            if len(own) == len(asked[unit.item].rows):
                yield unit.item, [own[row] for row in range(len(own))]
                del waiting[unit.item]
        progress(before - len(waiting))


def _windows(items: Iterable[Item], tokens: int) -> Iterator[list[Item]]:
    """Items in their order, until they have so many tokens."""
    window: list[Item] = []
    held = 0
    for item in items:
        window.append(item)
        held += 1 + sum(len(row.tokens) for row in item.rows)
        if held >= tokens:
            yield window
            window, held = [], 0
    if window:
        yield window


@contextmanager
def _evaluated(model: Backbone) -> Iterator[None]:
    """Evaluation mode, without gradients; every module is in its own mode again afterwards."""
    before = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for module, training in before:
            module.training = training


def _problem(item: Item) -> str:
    """Why an item cannot be asked; empty where it can."""
    if item.problem:
        return item.problem
    choices = len(item.letters) if item.kind == "letters" else len(item.rows)
    if not 0 <= item.gold < choices or len(item.labels) != choices:
        return f"the right answer is number {item.gold} of {choices} with {len(item.labels)} labels"
    if item.kind != "choices" and len(item.rows) != 1:
        return f"{len(item.rows)} rows, where one is asked"
    return next((found for row in item.rows if (found := _fault(row, letters=item.kind == "letters"))), "")


def _fault(row: Row, *, letters: bool) -> str:
    tokens = len(row.tokens)
    if letters:
        return "" if row.start == tokens >= 1 else f"letters are asked at token {row.start} of {tokens}"
    return "" if 1 <= row.start < tokens else f"tokens {row.start} to {tokens} are none that can be scored"


def _require_known(asked: Iterable[Item], vocabulary_size: int) -> None:
    for item in asked:
        ids = np.concatenate([*(row.tokens for row in item.rows), np.asarray(item.letters, dtype=np.int32)])
        if ids.min() < 0 or ids.max() >= vocabulary_size:
            raise ParibusError(
                f"item {item.item} has tokens that this model does not know",
                expected=f"token ids from 0 to {vocabulary_size - 1}",
                received=f"{ids.min()} to {ids.max()}",
                remedy="ask with the tokenizer that the model was trained with",
            )


def _require_finite(item: Item, unit: Unit, rows: Sequence[RowScores]) -> None:
    for row, found in zip(unit.rows, rows, strict=True):
        if not np.isfinite([found.largest, found.nats, *found.letters]).all():
            raise DivergenceError(
                f"the model's logits of item {item.item}, row {row}, are not finite",
                expected="a trained model's finite logits",
                received=f"largest logit {found.largest}, -ln p {found.nats}",
                remedy="the weights hold NaN or infinity, or overflow: ask an earlier checkpoint",
            )
