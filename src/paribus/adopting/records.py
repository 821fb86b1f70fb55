"""From files of another harness to flat records. What cannot be read is named with its reason; the rest is kept."""

import csv
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paribus.adopting.mapping import FILE
from paribus.errors import ParibusError

REPORT_FOLDER = "paribus-report"
"""where `adopt` writes its page inside the folder; never read back"""
Value = str | int | float | bool | None
_NUMBER = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?|[+-]?(nan|inf|infinity)", re.IGNORECASE)


@dataclass(frozen=True)
class Record:
    """One record: nested keys are joined by dots, lists are kept as JSON text, "@file" is the file's name."""

    source: str
    """file, and the number of the record where the file holds several"""
    fields: Mapping[str, Value]


@dataclass(frozen=True)
class Left:
    """A file or a record that is not used, and why."""

    source: str
    reason: str


def read_folder(directory: Path, globs: Sequence[str]) -> tuple[list[Record], list[Left]]:
    """Records of every file that a glob matches, by file name, and what could not be read.

    ParibusError where the folder is missing or no file matches.
    """
    if not directory.is_dir():
        raise ParibusError(f"{directory}: no such folder", expected="a folder of result files (JSON or CSV)")
    try:
        matched = {file for glob in globs for file in directory.glob(glob)}
    except (ValueError, NotImplementedError) as error:  # pathlib: an empty pattern; an absolute one
        raise ParibusError(
            f"files: not a usable glob among {', '.join(globs)}",
            expected='a pattern relative to the folder, such as "*.json" or "**/result.json"',
            received=str(error),
        ) from None
    files = sorted(f for f in matched if f.is_file() and REPORT_FOLDER not in f.relative_to(directory).parts)
    if not files:
        suffixes = sorted({file.suffix for file in directory.rglob("*") if file.is_file()})
        raise ParibusError(
            f"{directory}: no file matches {', '.join(globs)}",
            expected="at least one result file",
            received=f"files that end in {', '.join(suffixes)}" if suffixes else "an empty folder",
            remedy='correct `files` in the mapping; "**/" in front of a name looks into folders below',
        )
    records: list[Record] = []
    left: list[Left] = []
    for file in files:
        name = file.relative_to(directory).as_posix()
        try:
            for found in _read_file(file, name):
                if isinstance(found, Record):
                    records.append(found)
                else:
                    left.append(found)
        except (OSError, ValueError, csv.Error, RecursionError) as error:
            left.append(Left(name, f"could not be read: {error or type(error).__name__}"))
    return records, left


def _read_file(file: Path, name: str) -> Iterator[Record | Left]:
    if file.suffix == ".csv":
        yield from _csv_records(file, name)
        return
    text = file.read_text(encoding="utf-8-sig")
    if file.suffix == ".jsonl":
        for number, line in enumerate(text.splitlines(), start=1):
            if line.strip():
                yield _json_record(line, f"{name}, line {number}", name)
    elif file.suffix == ".json":
        content = json.loads(text)
        if isinstance(content, list):
            for number, entry in enumerate(content, start=1):
                yield _record(entry, f"{name}, record {number}", name)
        else:
            yield _record(content, name, name)
    else:
        yield Left(name, f"'{file.suffix}' is not read; .json, .jsonl and .csv are")


def _json_record(line: str, source: str, file: str) -> Record | Left:
    try:
        return _record(json.loads(line), source, file)
    except ValueError as error:
        return Left(source, f"could not be read: {error}")


def _csv_records(file: Path, name: str) -> Iterator[Record | Left]:
    with file.open(encoding="utf-8-sig", newline="") as lines:
        rows = csv.reader(lines, strict=True)
        header = [heading.strip() for heading in next(rows, [])]
        if len(set(header)) != len(header):
            twice = sorted({heading for heading in header if header.count(heading) > 1})
            raise ValueError(f"two columns have one heading: {', '.join(twice)}")
        for row in rows:
            if not row:
                continue
            source = f"{name}, line {rows.line_num}"
            if len(row) != len(header):
                yield Left(source, f"{len(row)} cells where the heading has {len(header)}")
            else:
                yield Record(source, {**dict(zip(header, map(typed, row), strict=True)), FILE: name})


def _record(content: Any, source: str, file: str) -> Record | Left:
    if not isinstance(content, dict):
        return Left(source, f"a {type(content).__name__} where a record with named fields was expected")
    fields: dict[str, Value] = {}
    for path, value in _flat(content, ""):
        if path in fields:
            return Left(source, f"two fields are both called '{path}' once nested keys are joined by dots")
        fields[path] = value
    return Record(source, {**fields, FILE: file})


def _flat(content: Mapping[str, Any], above: str) -> Iterator[tuple[str, Value]]:
    for key, value in content.items():
        path = f"{above}{key}"
        if isinstance(value, dict):
            yield from _flat(value, f"{path}.")
        elif isinstance(value, list):
            yield path, json.dumps(value)
        else:
            yield path, value


def typed(text: str) -> Value:
    """What a cell of text holds: a number where it is written as one, None where it is empty."""
    stripped = text.strip()
    if not stripped:
        return None
    if _NUMBER.fullmatch(stripped) is None:
        return stripped
    return int(stripped) if re.fullmatch(r"[+-]?[0-9]+", stripped) else float(stripped)


def number(value: Value) -> float | None:
    """The number that a value is or spells, NaN and infinity included; None where it is neither."""
    if isinstance(value, str):
        value = typed(value)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
