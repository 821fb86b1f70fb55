"""An item of a downstream task as a model sees it, and what a model made of it. Knows tokens, no tensors.

An item is one to many rows of tokens. Of each row a span is scored: the tokens [start, end) given all before them.

    choices   one row an answer; the lowest mean negative log-likelihood of the span is the prediction
    exact     one row; right where every token of the span is the likeliest one (greedy decoding would write it)
    letters   one row; the likeliest of some tokens at the position behind the last one

In a row of `choices` and `exact` the span ends the row. The first token of every row is the tokenizer's beginning.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Kind = Literal["choices", "exact", "letters"]


@dataclass(frozen=True)
class Row:
    """Tokens, and which of them are scored."""

    tokens: NDArray[np.int32]
    """`[token]`"""
    start: int
    """first scored token, at least 1; of `letters` the number of tokens"""
    bytes: int
    """UTF-8 bytes of the scored tokens; 0 of `letters`"""


@dataclass(frozen=True)
class Item:
    """One question, ready for a model."""

    item: int
    """number of the line in the task's own file, from 0: the same for every model, limit and order"""
    kind: Kind
    rows: tuple[Row, ...]
    gold: int
    """index of the right row, of the right letter; 0 of `exact`"""
    labels: tuple[str, ...]
    """what each choice is called where predictions are counted: "A", "B", ..., or the letters; one text of `exact`"""
    prompt_digest: str
    """16 hexadecimal digits over the tokens of all rows before any cropping"""
    letters: tuple[int, ...] = ()
    """token ids among which a prediction of `letters` is made"""
    cropped_shots: int = 0
    """examples that were left out because the rows were longer than the context"""
    cropped_tokens: int = 0
    """tokens that were left out at the beginning after that"""
    problem: str = ""
    """why the item cannot be asked, in words; it counts as wrong, and the report counts it"""


@dataclass(frozen=True)
class Answer:
    """What a model made of an item."""

    item: int
    prediction: str
    """label of the choice, the greedy text of an `exact` span, or what was generated; empty where there is none"""
    correct: bool
    nats: tuple[float, ...] = ()
    """summed -ln p of each row's span; of `letters`, -ln p of each letter among all tokens"""
    tokens: tuple[int, ...] = ()
    """scored tokens of each row; 1 of each letter"""
    gold_nats: float | None = None
    """of the right answer; None where no likelihood was taken"""
    gold_bytes: int | None = None
    """UTF-8 bytes of the right answer's span; None of `letters`"""
    margin: float | None = None
    """nats by which the right answer leads the best other one (mean over the span's tokens; of `exact`, the smallest
    lead of a right token over the likeliest other); negative where it does not"""
    near_tie: bool = False
    """whether rounding may decide: the lead lies within the bound of the computation"""
    problem: str = ""
