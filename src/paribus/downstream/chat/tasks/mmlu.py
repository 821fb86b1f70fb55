"""MMLU (Hendrycks et al. 2021, arXiv 2009.03300): questions of examinations in 57 subjects, four choices each.

Columns of the hub's cais/mmlu: question, subject, choices[], answer (index from 0).
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from paribus.downstream.chat.definitions import ROWS
from paribus.downstream.chat.questions import LETTERS
from paribus.downstream.chat.tasks.questions import LetterQuestion, MalformedRow, Questions
from paribus.downstream.chat.tasks.reading import read_questions, text_in, texts_in

_COLUMNS = ("question", "subject", "choices", "answer")


def read_mmlu(folder: Path) -> Questions:
    """The test split below a folder of evaluation sets. ChatTaskError where it is not there."""
    return read_questions("mmlu", folder / "cais--mmlu" / "all" / "test", _COLUMNS, ROWS["mmlu"], _question)


def _question(item: int, row: Mapping[str, Any]) -> LetterQuestion:
    choices, gold = texts_in(row, "choices"), row["answer"]
    if len(choices) != len(LETTERS):
        raise MalformedRow(f"{len(choices)} choices, not {len(LETTERS)}")
    if type(gold) is not int or not 0 <= gold < len(LETTERS):
        raise MalformedRow(f"the right answer {gold!r} is no index from 0 to {len(LETTERS) - 1}")
    return LetterQuestion(item, text_in(row, "question"), choices, LETTERS, gold, text_in(row, "subject"))
