"""What is to be asked: a task of a suite with everything that decides how, before any model is opened."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paribus.data.tokenizer import Tokenizer
from paribus.downstream.items import Item
from paribus.runs.answers import Asked

ItemsOf = Callable[[Tokenizer, int], Iterable[Item]]
"""(tokenizer, context length) -> items"""


@dataclass(frozen=True)
class Judged:
    """What a written text is worth."""

    prediction: str
    correct: bool
    problem: str = ""


@dataclass(frozen=True)
class Written:
    """A question that is answered in a text."""

    item: int
    prompt: NDArray[np.int32]
    """`[token]`, up to where the answer begins"""
    prompt_digest: str
    gold: str
    judge: Callable[[NDArray[np.integer]], Judged]
    """of the tokens that were written"""
    cropped_tokens: int = 0
    problem: str = ""
    """why it cannot be asked; it counts as wrong"""


@dataclass(frozen=True)
class Job:
    """One task of one suite, asked in one way."""

    suite: str
    task: str
    variant: str
    kind: str
    """choices, exact, letters or generated"""
    chance: float
    total: int
    """items that will be asked"""
    settings: Mapping[str, Any]
    """what decides the prompts and the scores, beside tokenizer and context: equal for two arms that are compared"""
    about: Mapping[str, Any] = field(default_factory=dict)
    """what else goes on record: completeness, other baselines"""
    items: ItemsOf | None = None
    """of choices, exact and letters"""
    written: Callable[[Tokenizer, int], Iterable[Written]] | None = None
    """of generated"""
    new_tokens: int = 0
    """of generated: the longest text; it ends earlier where the model ends it, and its calls of the calculator are
    answered"""

    def asked(self, step: int) -> Asked:
        return Asked(self.suite, self.task, step, self.variant)
