"""ARC (Clark et al. 2018, arXiv 1803.05457): science questions of school tests. Two tasks, easy and challenging.

Columns of the hub's allenai/ai2_arc: question, choices {text[], label[]}, answerKey. Labels are mostly A to D; some
questions have three or five choices, or the labels 1 to 4.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from paribus.downstream.chat.definitions import ROWS
from paribus.downstream.chat.tasks.questions import LetterQuestion, MalformedRow, Questions
from paribus.downstream.chat.tasks.reading import read_questions, text_in, texts_in

_COLUMNS = ("question", "choices", "answerKey")


def read_arc_easy(folder: Path) -> Questions:
    """The test split below a folder of evaluation sets. ChatTaskError where it is not there."""
    return read_questions("arc_easy", _path(folder, "ARC-Easy"), _COLUMNS, ROWS["arc_easy"], _question)


def read_arc_challenge(folder: Path) -> Questions:
    """The test split below a folder of evaluation sets. ChatTaskError where it is not there."""
    return read_questions("arc_challenge", _path(folder, "ARC-Challenge"), _COLUMNS, ROWS["arc_challenge"], _question)


def _path(folder: Path, subset: str) -> Path:
    return folder / "allenai--ai2_arc" / subset / "test"


def _question(item: int, row: Mapping[str, Any]) -> LetterQuestion:
    options = row["choices"]
    if not isinstance(options, Mapping) or not {"text", "label"} <= options.keys():
        raise MalformedRow("choices are no texts with labels")
    choices, letters = texts_in(options, "text"), texts_in(options, "label")
    if len(choices) != len(letters) or len(choices) < 2:
        raise MalformedRow(f"{len(choices)} choices with {len(letters)} labels")
    if len(set(letters)) != len(letters):
        raise MalformedRow(f"two choices have one label: {', '.join(letters)}")
    answer = row["answerKey"]
    if answer not in letters:
        raise MalformedRow(f"the right answer {answer!r} is none of {', '.join(letters)}")
    return LetterQuestion(item, text_in(row, "question"), choices, letters, letters.index(answer))
