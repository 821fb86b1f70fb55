"""What can be found of a file, and how one record, one file of lines or one file of rows is judged.

Which files a study has, and what each must hold, is `paribus.runs.verifying`'s.
"""

import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from paribus.disk import sealed, unsealed
from paribus.runs.records import json_line, lines_of

PARTIAL = re.compile(r"\..*\.partial")
NOBODY = "delete it, once nobody trains here"


class Kind(StrEnum):
    """What was found of a file."""

    GOOD = "good"
    DAMAGED = "damaged"
    REFORMATTED = "reformatted"
    """the checksum of the content holds, the layout is not paribus's: nothing is lost"""
    UNCHECKED = "unchecked"
    """written by an earlier version: readable, and nothing vouches for it"""
    UNPROTECTED = "not protected"
    """made again from other files"""
    ORPHAN = "orphan"
    """of no known kind, or left half written"""


class Cure(StrEnum):
    """What is safe to do about a file once nobody writes it; see `paribus.keeping.repairing`."""

    PARTIAL = "half written"
    """delete what a writer that was killed has left aside"""
    TORN = "torn last line"
    """drop the line, of a cell that goes on from a checkpoint"""
    CHECKPOINT = "checkpoint"
    """delete one that training does not need"""
    ANSWERS = "answers without a record"
    """delete rows of a task that was not answered to the end"""
    CLAIM = "claim"
    """delete the record of a claim, or of attempts that failed, that cannot be read"""


@dataclass(frozen=True)
class Fault:
    """What was found of one file, or of a checkpoint's folder; `examine` tells of good ones too."""

    path: Path
    kind: Kind
    what: str = ""
    """in words; empty where it is good"""
    repair: str = ""
    """what a person can do about it"""
    cure: Cure | None = None
    """what a program may do about it; None where a person must decide"""


def judged_record(path: Path, fault: Callable[[Any], str], repair: str) -> Fault:
    """A JSON record, whose content `fault` looks at."""
    try:
        file = path.read_bytes()
        value, checked = unsealed(file)
        wrong = fault(value)
    except (OSError, ValueError) as error:
        wrong, checked, file, value = str(error), False, b"", {}
    if wrong:
        return Fault(path, Kind.DAMAGED, wrong, repair)
    if not checked:
        return unchecked_file(path)
    return Fault(path, Kind.GOOD) if sealed(value) == file else reformatted_file(path)


def judged_lines(
    path: Path, fault: Callable[[Any], str], repair: str, digest: str | None = None, cure: Cure | None = None
) -> Fault:
    """A .jsonl file, whose lines `fault` looks at; `digest` is that of the whole, where it is known. `cure`: of a last
    line that is torn."""
    try:
        file = path.read_bytes()
    except OSError as error:
        return Fault(path, Kind.DAMAGED, str(error), repair)
    lines = list(lines_of(file))
    for line in lines:
        if wrong := line.wrong or fault(line.content):
            return Fault(path, Kind.DAMAGED, f"line {line.number} of {len(lines)} is damaged ({wrong})", repair)
    if digest is not None and digest_of(path) != digest:
        return Fault(path, Kind.DAMAGED, "was changed after the cell had ended", repair)
    if not file.endswith(b"\n") and file:
        left = "delete that line, or leave it: it is not read"
        return Fault(path, Kind.ORPHAN, "ends with a line that is half written", left, cure)
    if unchecked := sum(not line.checked for line in lines):
        return Fault(path, Kind.UNCHECKED, f"{unchecked} of {len(lines)} lines were written without a checksum")
    same = all(json_line(line.content)[:-1] == line.text for line in lines)
    return Fault(path, Kind.GOOD) if same else reformatted_file(path)


def unreadable_rows(path: Path) -> str:
    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            file.read(use_threads=False)
    except (OSError, ValueError, pa.ArrowException) as error:
        return str(error)
    return ""


def unchecked_file(path: Path) -> Fault:
    return Fault(path, Kind.UNCHECKED, "was written without a checksum, by an earlier version")


def reformatted_file(path: Path) -> Fault:
    return Fault(path, Kind.REFORMATTED, "its content is as it was written, its layout is not", "leave it")


def stranger(path: Path) -> Fault:
    if PARTIAL.fullmatch(path.name):
        return Fault(path, Kind.ORPHAN, "was left half written", NOBODY, Cure.PARTIAL)
    return Fault(path, Kind.ORPHAN, "is no file of a study", "move it elsewhere, or delete it")


def digest_of(path: Path) -> str:
    """As DONE holds it."""
    return hashlib.blake2b(path.read_bytes(), digest_size=8).hexdigest()


def files_in(folder: Path) -> list[Path]:
    return [entry for entry in _entries(folder) if not entry.is_dir()]


def folders_in(folder: Path) -> list[Path]:
    return [entry for entry in _entries(folder) if entry.is_dir()]


def files_below(folder: Path) -> list[Path]:
    """Files of a folder and of all in it, by path; links are not followed."""
    within = [path for inner in folders_in(folder) if not inner.is_symlink() for path in files_below(inner)]
    return sorted([*files_in(folder), *within])


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except FileNotFoundError:  # who trains here has just removed it
        return []
