"""GSM8K (Cobbe et al. 2021, arXiv 2110.14168): word problems whose answer is a number; asked as they stand.

Columns of the hub's openai/gsm8k: question, answer; the answer's last line is "#### NUMBER".
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from paribus.downstream.chat.definitions import ROWS
from paribus.downstream.chat.judging import number_after_marks
from paribus.downstream.chat.tasks.questions import MalformedRow, NumberQuestion, Questions
from paribus.downstream.chat.tasks.reading import read_questions, text_in


def read_gsm8k(folder: Path) -> Questions:
    """The test split below a folder of evaluation sets. ChatTaskError where it is not there."""
    path = folder / "openai--gsm8k" / "main" / "test"
    return read_questions("gsm8k", path, ("question", "answer"), ROWS["gsm8k"], _question)


def _question(item: int, row: Mapping[str, Any]) -> NumberQuestion:
    # Behind the last <<expression=result>>, which is the part of the answer that nanochat reads it from.
    gold = number_after_marks(text_in(row, "answer").rpartition(">>")[2])
    if gold is None:
        raise MalformedRow('answer ends in no number behind "#### "')
    return NumberQuestion(item, text_in(row, "question"), gold)
