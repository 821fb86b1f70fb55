"""Questions of a ChatCORE task as they stand in its file, before any tokenizer."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, TypeVar

import numpy as np

from paribus.downstream.chat.format import Conversation

Kind = Literal["letters", "generated"]
ORDER_SEED = 42
"""of nanochat's order, NumPy's default generator, which decides which questions a limit takes"""


class MalformedRow(ValueError):  # noqa: N818  a row that is marked and counted, not an error for the user
    """A row that is no question of its task, with the reason."""


@dataclass(frozen=True)
class Question:
    """One row; of a malformed one there is nothing but its number and the problem."""

    item: int
    """number of the row, from 0 over all files in order"""
    problem: str = field(default="", kw_only=True)
    """why it cannot be asked, in words; it counts as wrong"""


@dataclass(frozen=True)
class LetterQuestion(Question):
    """A question whose answer is one of some letters."""

    stem: str
    choices: tuple[str, ...]
    letters: tuple[str, ...]
    """one a choice"""
    gold: int
    """index of the right one"""
    subject: str = ""
    """of MMLU"""


@dataclass(frozen=True)
class NumberQuestion(Question):
    """A question whose answer ends in a number behind "#### "."""

    asked: str
    """the user's message"""
    gold: str
    """the number as `judging.number_after_marks` reads it"""


@dataclass(frozen=True)
class ProgramQuestion(Question):
    """The beginning of a program that is to be written."""

    asked: str
    """the user's message: imports, signature, description"""
    solution: str
    """what follows it in a right program"""
    tests: str
    """defines check(candidate)"""
    entry_point: str
    """name of what is checked"""


Asked = NumberQuestion | ProgramQuestion
_Q = TypeVar("_Q", bound=Question)


@dataclass(frozen=True)
class Questions:
    """The questions of a task, in the order of its file."""

    task: str
    all: tuple[Question, ...]
    rows_expected: int
    digest: str
    """blake2b-128 of the files' contents, hexadecimal"""

    @property
    def malformed(self) -> tuple[Question, ...]:
        return tuple(question for question in self.all if question.problem)

    @property
    def missing(self) -> str:
        """What keeps these from being the whole task, in words; empty where nothing does."""
        found = [] if len(self.all) == self.rows_expected else [f"{len(self.all):,} of {self.rows_expected:,} items"]
        if bad := self.malformed:
            found.append(f"{len(bad):,} malformed, the first in row {bad[0].item}: {bad[0].problem}")
        return "; ".join(found)

    def selected(self, max_items: int | None) -> tuple[Question, ...]:
        """All, or those that nanochat's seeded shuffle puts first; in the order of the file either way."""
        if max_items is None or max_items >= len(self.all):
            return self.all
        order = np.random.default_rng(ORDER_SEED).permutation(len(self.all))
        return tuple(self.all[place] for place in sorted(order[:max_items].tolist()))

    def with_all(self, questions: Sequence[Question]) -> "Questions":
        return replace(self, all=tuple(questions))


def conversation(question: Asked) -> Conversation:
    """The user's message alone: what is rendered up to where the assistant is to write."""
    return [{"role": "user", "content": question.asked}]
