"""One byte of one file is changed, and somebody must notice: `verify`, `data verify`, or whoever loads the file.

Every kind of file of a finished study, of an unfinished one and of a prepared corpus is equally likely, then every file
of the kind, every byte, and every other value of it. Each change is undone before the next. A change is

detected   `verify` calls this file damaged or torn, or the corpus cannot be opened or does not verify;
harmless   the checksum of its content holds, only the layout differs, and a reader gets the same as before;
missed     none of these.

What is detected is also loaded as a reader does. A reader that returns other content than before is a miss as well.
"""

import itertools
import json
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from paribus.data.frozen import open_frozen
from paribus.errors import ParibusError
from paribus.runs.answers import AnswersFolder
from paribus.runs.failures import Failure, failures, parked, record_failure
from paribus.runs.faults import Kind
from paribus.runs.folder import CellFolder
from paribus.runs.holders import history
from paribus.runs.records import read_json
from paribus.runs.study_folder import StudyFolder
from paribus.runs.verifying import REPORT, REPORT_FOLDERS, examine_cell, verify
from paribus.seeds import generator
from tests.faults.scene import STUDY, Advance, LostError, Row, Scene, cells, hooked, require_ended, timed

DETECTED, HARMLESS, MISSED = "detected", "harmless", "missed"
NOTHING_REMEMBERED = Path(os.devnull) / "digests.json"
"""so that every byte is read"""
Flip = tuple[Path, int, int]
"""file, place, new value"""


def flip_bytes(scene: Scene, flips: int, seed: int, advance: Advance) -> list[Row]:
    """A line of the table for the finished study, the unfinished one and the corpus."""
    draw = generator("faults", "flips", seed)
    finished, unfinished = _finished(scene), _unfinished(scene)
    corpus = next(path.parent for path in (finished / "runs" / "corpora").glob("*/manifest.json"))
    places = {
        "finished study": finished / "runs" / STUDY,
        "unfinished study": unfinished / "runs" / STUDY,
        "prepared corpus": corpus,
    }
    rows = []
    for number, (where, folder) in enumerate(places.items()):
        row = Row("one byte changed", where, "bytes")
        kinds = _kinds(folder)
        readers = {path: _reading(folder, path) for files in kinds.values() for path in files}
        with timed(row):
            for _ in range(len(range(number, flips, len(places)))):
                files = kinds[sorted(kinds)[draw.integers(len(kinds))]]
                path = files[draw.integers(len(files))]
                content = path.read_bytes()
                place = int(draw.integers(len(content)))
                flip = path, place, content[place] ^ int(draw.integers(1, 256))
                found, what = try_flip(flip, folder, readers[path])
                row.tried += 1
                row.survived += found != MISSED
                row.note(found)
                if found == MISSED:
                    row.lost.append(f"{path.relative_to(folder)} byte {place}, {content[place]} to {flip[2]}: {what}")
                advance(row)
        row.notes["kinds of files"] = len(kinds)
        rows.append(row)
    return rows


def try_flip(flip: Flip, folder: Path, reading: Callable[[], str]) -> tuple[str, str]:
    """(which of the three, why) for one change, which is undone."""
    path, place, value = flip
    before, content = reading(), path.read_bytes()
    path.write_bytes(content[:place] + bytes([value]) + content[place + 1 :])
    try:
        found = _found(path, folder)
        try:
            after = reading()
        except ParibusError as error:
            after = None
            found = found or (DETECTED, error.what)
    finally:
        path.write_bytes(content)
    if found is None:
        return MISSED, "unnoticed" + (", and read as before" if after == before else "")
    if found[0] == HARMLESS and after != before:
        return MISSED, "its layout only, and yet it reads otherwise"
    if found[0] == DETECTED and after not in (None, before) and not _reads_what_is_left(path):
        return MISSED, f"noticed by who looks ({found[1]}), and read as something else by who loads"
    return found


def _found(path: Path, folder: Path) -> tuple[str, str] | None:
    """What those say who look; None where they say nothing."""
    if (folder / "manifest.json").exists():
        return _found_of_corpus(path, folder)
    cell = next((above for above in path.parents if above.parent.parent.parent == folder), None)
    for fault in verify(folder) if cell is None else examine_cell(cell):
        if fault.path == path or fault.path in path.parents:
            if fault.kind in (Kind.DAMAGED, Kind.ORPHAN):
                return DETECTED, fault.what
            if fault.kind is Kind.REFORMATTED:
                return HARMLESS, fault.what
    if path == folder / "report.json":  # which is not laid out as records are
        return HARMLESS, "white space between its words"
    return None


def _found_of_corpus(path: Path, folder: Path) -> tuple[str, str] | None:
    try:
        frozen = open_frozen(folder)
        frozen.verify(NOTHING_REMEMBERED)
    except ParibusError as error:
        return DETECTED, error.what
    if path.name == "manifest.json" and path.read_bytes() != frozen.to_json().encode():
        return HARMLESS, "white space between its words"
    return None


def _reads_what_is_left(path: Path) -> bool:
    """Files of which a reader takes what is whole and says what is not, or for whom a damaged one counts as none."""
    return path.name in ("looks.jsonl", "plan.json", "metrics.jsonl", "rows.jsonl", "PARKED") or ".claims" in path.parts


def _reading(folder: Path, path: Path) -> Callable[[], str]:
    """What a reader makes of a file, as text to be compared. It raises ParibusError where it refuses."""
    if (folder / "manifest.json").exists():
        return lambda: _corpus_text(folder)
    study, name = StudyFolder(folder), path.name
    cell = next((CellFolder(above) for above in path.parents if above.parent.parent.parent == folder), None)
    if cell is None:
        readers: dict[str, Callable[[], Any]] = {
            "plan.json": study.plan,
            "corpus.json": study.read_corpus,
            "looks.jsonl": study.looks,
            "study.json": lambda: study.claim_for(STUDY),
            "tiny.json": lambda: study.cost("tiny"),
            "report.json": lambda: read_json(path),
        }
        reader = readers.get(name, lambda: None)
    elif "checkpoints" in path.parts:
        step = int(path.parent.name.removeprefix("step-"))
        reader = lambda: {n: c.hex() for n, c in (cell.checkpoint_at(step) or {}).items()}  # noqa: E731
    elif ".claims" in path.parts:
        reader = lambda: [str(failures(cell.path)), str(history(cell.path))]  # noqa: E731
    elif "tasks" in path.parts:
        answers = AnswersFolder(cell.path)
        reader = lambda: [[answers.record(a), answers.rows(a).to_pylist()] for a in answers.all()]  # noqa: E731
    elif path.suffix == ".parquet":
        reader = lambda: cell.rows(path.relative_to(cell.path).with_suffix("").as_posix()).to_pylist()  # noqa: E731
    else:
        by_name: dict[str, Callable[[], Any]] = {
            "cell.json": cell.record,
            "DONE": cell.summary,
            "metrics.jsonl": cell.metrics,
            "rows.jsonl": lambda: {key: sorted(value) for key, value in cell.journaled_rows().items()},
            "PARKED": lambda: str(parked(cell.path)),
        }
        reader = by_name[name]
    return lambda: json.dumps(reader(), sort_keys=True, default=str)


def _corpus_text(folder: Path) -> str:
    frozen = open_frozen(folder)
    frozen.verify(NOTHING_REMEMBERED)
    values = {key: value for key, value in vars(frozen).items() if key != "folder"}
    tokens = {split: frozen.split(split).tokens.tobytes().hex() for split in ("train", "validation", "test")}
    return str(values) + str(tokens)


def _kinds(folder: Path) -> dict[str, list[Path]]:
    """Files with content, by kind."""
    found: dict[str, list[Path]] = {}
    for path in sorted(folder.rglob("*")):
        if (
            not path.is_file()
            or not path.stat().st_size
            or path.suffix == ".partial"
            or path.parent.suffix == ".partial"
        ):
            continue
        inside = path.relative_to(folder)
        special = [
            part for part in inside.parts[:-1] if part in ("likelihood", "diagnostics", "interventions", "tasks")
        ]
        name = "claim" if path.parent.name == ".claims" and path.stem.isdigit() else path.name
        group = inside.parts[0] if inside.parts[0] in REPORT_FOLDERS or path.name in REPORT else ""
        kind = "report" if group else f"{special[0]} {path.suffix}" if special else name
        found.setdefault(kind, []).append(path)
    return found


def _finished(scene: Scene) -> Path:
    """With answers, costs, a report and its ledger."""
    folder = scene.trained()
    require_ended(scene.server.run(folder, "evaluate", "study.toml", "--core", "bundle"), folder)
    require_ended(scene.server.run(folder, "run", "study.toml"), folder)
    return folder


def _unfinished(scene: Scene) -> Path:
    """A worker was killed while it wrote the last checkpoint of the first cell, and another one as it resumed there; a
    second cell is parked."""
    folder = scene.fresh()
    last = f"step-{_updates(scene):08d}"
    scene.server.run(folder, "work", "study.toml", hook=hooked(folder, 2, last))
    scene.server.run(folder, "work", "study.toml", hook=hooked(folder, 2, last))
    (cell,) = cells(folder).values()
    other = Path(str(cell.path).replace("standard", "xsa"))
    shutil.copytree(cell.path, other)
    record_failure(other, Failure.now(1, 0, "on purpose"), 1)
    damaged = [fault for fault in verify(folder / "runs" / STUDY) if fault.kind is Kind.DAMAGED]
    if [fault.path.name for fault in damaged] != ["cell.json"]:
        raise LostError(f"an unfinished study is damaged: {damaged}")
    return folder


def _updates(scene: Scene) -> int:
    return next(iter(cells(scene.finished).values())).summary()["steps"]


def resume_damaged(scene: Scene, damages: int, seed: int, advance: Advance) -> Row:
    """A byte of an unfinished cell is changed and stays so; the next worker goes on from before it, or anew."""
    draw = generator("faults", "resume damaged", seed)
    row = Row("one byte changed, then trained on", "unfinished study", "bytes")
    unfinished = scene.fresh()
    hook = hooked(unfinished, 2, f"step-{_updates(scene):08d}")
    scene.server.run(unfinished, "work", "study.toml", hook=hook)
    with timed(row):
        for number in range(damages):
            folder = replace(scene, template=unfinished).fresh()
            (cell,) = cells(folder).values()
            path = _victim(cell, number, draw)
            content = bytearray(path.read_bytes())
            content[int(draw.integers(len(content)))] ^= int(draw.integers(1, 256))
            path.write_bytes(bytes(content))
            row.tried += 1
            try:
                require_ended(scene.server.run(folder, "work", "study.toml"), folder)
                scene.require_same(folder)
                row.note("named in cell.json", "damaged_checkpoints" in cell.record())
                row.survived += 1
                shutil.rmtree(folder)
            except LostError as error:
                row.lost.append(f"{path.relative_to(cell.path)}: {error}")
            advance(row)
    return row


def _victim(cell: CellFolder, number: int, draw: Any) -> Path:
    """Every other time a file of the newest checkpoint, else any file of the cell."""
    newest = cell.path / "checkpoints" / f"step-{cell.checkpoint_steps()[-1]:08d}"
    files = sorted(newest.iterdir()) if number % 2 == 0 else sorted(_whole_files(cell.path))
    return files[draw.integers(len(files))]


def _whole_files(folder: Path) -> Iterator[Path]:
    for path in itertools.chain(folder.glob("*"), folder.glob("[!.]*/**/*")):
        if path.is_file() and path.stat().st_size and ".partial" not in str(path):
            yield path
