"""Rows of an evaluation set as the hub's automatic Parquet holds them: <owner>--<name>/<subset>/<split>/, where a
manifest.json lists the files. A missing file or column is an error; a row that is no question of its task is marked.
"""

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from paribus.disk import is_plain_name
from paribus.downstream.chat.tasks.questions import MalformedRow, Question, Questions
from paribus.errors import ParibusError

MANIFEST = "manifest.json"


class ChatTaskError(ParibusError):
    """The files of a ChatCORE task are missing or not readable."""


def read_questions(
    task: str,
    folder: Path,
    columns: tuple[str, ...],
    rows_expected: int,
    question_of: Callable[[int, Mapping[str, Any]], Question],
) -> Questions:
    """All rows of the files in `folder`. `question_of` raises MalformedRow for a row that is none.

    ChatTaskError for a folder, manifest, file or column that is missing or cannot be read.
    """
    digest = hashlib.blake2b(digest_size=16)
    questions: list[Question] = []
    for path in _files(task, folder):
        content = _content(path)
        digest.update(content)
        for row in _rows(path, content, columns):
            item = len(questions)
            try:
                questions.append(question_of(item, row))
            except MalformedRow as problem:
                questions.append(Question(item, problem=str(problem)))
    return Questions(task, tuple(questions), rows_expected, digest.hexdigest())


def text_in(row: Mapping[str, Any], name: str) -> str:
    """A text that is not empty."""
    value = row[name]
    if not isinstance(value, str) or not value.strip():
        raise MalformedRow(f"{name} is {_short(value)}, not a text")
    return value


def texts_in(row: Mapping[str, Any], name: str) -> tuple[str, ...]:
    """A list of texts, at least one."""
    value = row[name]
    if not isinstance(value, list) or not value or not all(isinstance(each, str) for each in value):
        raise MalformedRow(f"{name} is {_short(value)}, not a list of texts")
    return tuple(value)


def _short(value: object) -> str:
    said = repr(value)
    return said if len(said) <= 60 else said[:60] + "..."


def _files(task: str, folder: Path) -> list[Path]:
    manifest = folder / MANIFEST
    remedy = f"put the Parquet files of {task} and their {MANIFEST} into this folder"
    try:
        names = json.loads(manifest.read_bytes())
    except OSError as error:
        raise ChatTaskError(
            f"the questions of {task} are not there",
            expected=f"{manifest}, a JSON list of the Parquet files beside it",
            received=error.strerror or str(error),
            remedy=remedy,
        ) from error
    except ValueError as error:
        raise ChatTaskError(f"{manifest} is not readable", expected="a JSON list of file names", received=str(error),
                            remedy=remedy) from error  # fmt: skip
    if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
        raise ChatTaskError(
            f"{manifest} names no files", expected="a JSON list of file names", received=_short(names), remedy=remedy
        )
    if foreign := [name for name in names if not is_plain_name(name)]:
        raise ChatTaskError(
            f"{manifest} names what is not beside it", expected="names of files", received=_short(foreign[0])
        )
    return [folder / name for name in names]


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ChatTaskError(
            f"{path} is not readable", received=error.strerror or str(error), remedy="fetch it again"
        ) from error


def _rows(path: Path, content: bytes, columns: tuple[str, ...]) -> list[Mapping[str, Any]]:
    try:
        file = pq.ParquetFile(pa.BufferReader(content))
        names = file.schema_arrow.names
        if absent := [column for column in columns if column not in names]:
            raise ChatTaskError(
                f"{path} is another data set's",
                expected="the columns " + ", ".join(columns),
                received="without " + ", ".join(absent),
                remedy="fetch it again",
            )
        return file.read(columns=list(columns), use_threads=False).to_pylist()
    except (pa.ArrowException, OSError) as error:
        raise ChatTaskError(
            f"{path} is not readable", expected="a Parquet file", received=str(error), remedy="fetch it again"
        ) from error
