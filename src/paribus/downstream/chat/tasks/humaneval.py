"""HumanEval (Chen et al. 2021, arXiv 2107.03374): programs to be written, run against tests. Asked as they stand.

Columns of the hub's openai/openai_humaneval: prompt, canonical_solution, test, entry_point. Programs run in the sandbox
or not at all (`paribus.downstream.sandbox`).
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from paribus.downstream.chat.definitions import ROWS
from paribus.downstream.chat.tasks.questions import MalformedRow, ProgramQuestion, Questions
from paribus.downstream.chat.tasks.reading import read_questions, text_in

_COLUMNS = ("prompt", "canonical_solution", "test", "entry_point")


def read_humaneval(folder: Path) -> Questions:
    """The one split below a folder of evaluation sets. ChatTaskError where it is not there."""
    path = folder / "openai--openai_humaneval" / "openai_humaneval" / "test"
    return read_questions("humaneval", path, _COLUMNS, ROWS["humaneval"], _question)


def _question(item: int, row: Mapping[str, Any]) -> ProgramQuestion:
    prompt, solution, tests, entry_point = (text_in(row, column) for column in _COLUMNS)
    if not entry_point.isidentifier():
        raise MalformedRow(f"entry_point {entry_point!r} is no name")
    return ProgramQuestion(item, prompt, solution, tests, entry_point)
