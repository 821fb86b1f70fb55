"""A folder of CORE tasks: a list of them, a table of random baselines, and a file of questions for each.

    core.yaml               the list; another of the same form may be named
    eval_meta_data.csv      random baselines in percent (v1)
    eval_meta_data_v2.csv   the corrected ones, where somebody put a copy there
    eval_data/<group>/<task>.jsonl

A bundle may lack tasks: what it lacks is said, per task, and no CORE number comes of it (`core.scoring`).
"""

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from paribus.downstream.core.baselines import RESTATED, Baselines, read_baselines, restated_v2
from paribus.downstream.core.definitions import Definition, parse_list
from paribus.downstream.core.errors import CoreBundleError
from paribus.downstream.core.official import BASELINES_FILE, BASELINES_V2_FILE, CORE, DATA, LIST_FILE, Kind
from paribus.downstream.core.rows import Line, count_lines, parse_lines


@dataclass(frozen=True)
class CoreTask:
    """One task of a bundle."""

    label: str
    kind: Kind
    shots: int
    """examples before each question"""
    delimiter: str
    """between a question and its answer"""
    file: Path
    rows_expected: int | None
    """items that CORE has of this task; None for a task that is not of CORE"""
    rows_found: int | None
    """lines that are not blank; None where there is no file"""
    chance_v1: float
    """random baseline as a fraction of 1"""
    chance_v2: float | None
    """of the corrected table; None where there is no copy of it"""
    digest: str
    """blake2b-128 of the file, hexadecimal; empty where there is none"""
    altered: bool | None
    """whether the file's content is another than the one that is shipped; None where that is not known"""
    missing: str
    """why this is not the whole task of CORE, in words; else empty"""
    unusable: str
    """why no item can be asked at all, in words; else empty"""

    def lines(self) -> list[Line]:
        """The file's questions. CoreBundleError where the task is unusable, or the file is another than it was."""
        if self.unusable:
            raise CoreBundleError(f"{self.label} cannot be asked: {self.unusable}", remedy="fetch the bundle")
        content = _content(self.file)
        if _digest(content) != self.digest:
            raise CoreBundleError(f"{self.file} was changed while it was in use", remedy="start again")
        return parse_lines(content, self.kind)

    def as_json(self) -> dict[str, Any]:
        """What a record beside rows says of the task."""
        return {
            "label": self.label,
            "kind": self.kind,
            "shots": self.shots,
            "delimiter": self.delimiter,
            "digest": self.digest,
            "altered": self.altered,
            "missing": self.missing,
            "rows_found": self.rows_found,
            "rows_expected": self.rows_expected,
            "chance_v1": self.chance_v1,
            "chance_v2": self.chance_v2,
        }


@dataclass(frozen=True)
class Bundle:
    """The tasks of a list, and where they come from."""

    folder: Path
    list_file: str
    list_digest: str
    """blake2b-128 of the list, hexadecimal"""
    tasks: tuple[CoreTask, ...]
    """in the order of the list"""
    baselines_v1: Baselines
    baselines_v2: Baselines | None
    """None: no copy of the corrected table was given, so nothing can be said under it"""

    @property
    def digest(self) -> str:
        """blake2b-128 over the digests of the list, both tables and every file, hexadecimal."""
        v2 = self.baselines_v2.digest if self.baselines_v2 else ""
        parts = [
            self.list_digest,
            self.baselines_v1.digest,
            v2,
            *(f"{task.label}:{task.digest}" for task in self.tasks),
        ]
        return _digest("\n".join(parts).encode())

    def missing(self) -> dict[str, str]:
        """What keeps this bundle from being CORE, in words by label; empty for a complete one."""
        absent = [label for label in CORE if label not in {task.label for task in self.tasks}]
        found = dict.fromkeys(absent, f"is not in {self.list_file}")
        found |= {task.label: task.missing for task in self.tasks if task.missing}
        return {label: found[label] for label in (*CORE, *sorted(set(found) - set(CORE))) if label in found}

    def altered(self) -> list[str]:
        """Labels of tasks whose file is known to have another content than the one that is shipped."""
        return [task.label for task in self.tasks if task.altered]

    def as_json(self) -> dict[str, Any]:
        return {
            "list_file": self.list_file,
            "list_digest": self.list_digest,
            "digest": self.digest,
            "baselines_v1": self.baselines_v1.as_json(),
            "baselines_v2": self.baselines_v2.as_json() if self.baselines_v2 else None,
            "missing": self.missing(),
            "altered": self.altered(),
        }


def read_bundle(
    folder: Path, list_file: str = LIST_FILE, *, baselines_v2: Path | Literal["restated"] | None = None
) -> Bundle:
    """The bundle in a folder, every file digested and its lines counted.

    `baselines_v2`: a copy of the corrected table; "restated" takes its values from other projects' statements of it;
    None takes `eval_meta_data_v2.csv` in the folder, if there.

    CoreBundleError for a folder, list or table that is missing or cannot be read, and for a task without a baseline.
    Missing and incomplete files of tasks are no error: see `Bundle.missing` and `CoreTask.unusable`.
    """
    if not folder.is_dir():
        raise CoreBundleError(
            f"there is no bundle of CORE tasks at {folder}",
            expected=f"a folder with {LIST_FILE}, {BASELINES_FILE} and {DATA}/",
            remedy="fetch it (paribus data fetch core), or name the folder that holds it",
        )
    if not (folder / list_file).is_file():
        others = sorted(path.name for path in folder.glob("*.yaml"))
        raise CoreBundleError(
            f"{folder} holds no list of tasks of this name",
            expected=list_file,
            received=", ".join(others) or "no list at all",
            remedy="name one of its lists, or fetch the bundle: paribus data fetch core",
        )
    listed = _content(folder / list_file)
    definitions = parse_list(listed, list_file)
    labels = [definition.label for definition in definitions]
    v1 = read_baselines(folder / BASELINES_FILE)
    v1.require(labels)
    v2 = _v2(folder, v1, baselines_v2)
    if v2 is not None:
        v2.require(labels)
    tasks = tuple(_task(definition, folder, v1, v2) for definition in definitions)
    return Bundle(folder, list_file, _digest(listed), tasks, v1, v2)


def _v2(folder: Path, v1: Baselines, given: Path | Literal["restated"] | None) -> Baselines | None:
    if given == RESTATED:
        return restated_v2(v1)
    if given is not None:
        return read_baselines(Path(given))
    beside = folder / BASELINES_V2_FILE
    return read_baselines(beside) if beside.exists() else None


def _task(definition: Definition, folder: Path, v1: Baselines, v2: Baselines | None) -> CoreTask:
    file = folder / DATA / definition.uri
    official = CORE.get(definition.label)
    content = _content(file) if file.is_file() else None
    rows = None if content is None else count_lines(content)
    unusable = ""
    if rows is None:
        unusable = f"{DATA}/{definition.uri} is missing"
    elif rows <= definition.shots:
        unusable = f"{DATA}/{definition.uri} has {rows} items, too few for {definition.shots} examples and a question"
    return CoreTask(
        label=definition.label,
        kind=definition.kind,
        shots=definition.shots,
        delimiter=definition.delimiter,
        file=file,
        rows_expected=official.rows if official else None,
        rows_found=rows,
        chance_v1=v1.chance[definition.label],
        chance_v2=v2.chance[definition.label] if v2 else None,
        digest="" if content is None else _digest(content),
        altered=None if content is None or official is None else official.is_altered(content),
        missing=_missing(definition, rows),
        unusable=unusable,
    )


def _missing(definition: Definition, rows: int | None) -> str:
    official = CORE.get(definition.label)
    if official is None:
        return "is no task of CORE"
    if rows is None:
        return f"{DATA}/{definition.uri} is missing"
    if (definition.kind, definition.shots, definition.delimiter) != (official.kind, official.shots, official.delimiter):
        return (
            f"is asked otherwise: {definition.kind}, {definition.shots} examples, delimiter {definition.delimiter!r}; "
            f"in CORE {official.kind}, {official.shots}, {official.delimiter!r}"
        )
    return "" if rows == official.rows else f"{rows:,} of {official.rows:,} items"


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise CoreBundleError(f"{path} cannot be read", received=error.strerror or str(error)) from error


def _digest(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=16).hexdigest()
