"""Every file of a study's folder looked at: is it known, and is it as it was written?

What vouches for a file is in `paribus.runs.records` (records and lines), `paribus.runs.checkpoints` (markers), DONE
and rows.jsonl (row files), the records of answers and, for the report, report.json. How one file is judged is in
`paribus.runs.faults`. Whole lines that were cut off the end of looks.jsonl leave no trace, nor does a
file that was deleted where nothing counts it: a checkpoint, a cost, an answer with its record.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from paribus.disk import unsealed
from paribus.errors import StudyFolderError
from paribus.runs import layout
from paribus.runs.answers import GROUP as ANSWERS
from paribus.runs.answers import AnswersFolder, Asked
from paribus.runs.checkpoints import GROUP as CHECKPOINTS
from paribus.runs.checkpoints import MARKER, NAME, Checkpoint
from paribus.runs.faults import (
    NOBODY,
    PARTIAL,
    Cure,
    Fault,
    Kind,
    digest_of,
    files_below,
    files_in,
    folders_in,
    judged_lines,
    judged_record,
    reformatted_file,
    stranger,
    unchecked_file,
    unreadable_rows,
)
from paribus.runs.folder import CORPUS, FINETUNED, LOOKS, METRICS, MICRO_BATCHES, ROWS, CellFolder, step_of_rows

REPORT = {"report.html", "report.json", "report.md", "verdict.svg", "verdict.md"}
REPORT_FOLDERS = ("tables", "figures")
TROUBLE = "trouble"
_CELL = re.compile(r"\d+-[0-9a-f]+(-.+)?")
_ANEW = "delete the cell's folder to train it anew; other cells are kept"


def owner_of(study: Path, path: Path) -> Path | None:
    """Which folder a worker claims to write a file of a study: that of a cell, or of what one was fine-tuned to. None
    of files beside cells."""
    parts = path.relative_to(study).parts
    if len(parts) < 4 or not _CELL.fullmatch(parts[2]):
        return None
    cell = study.joinpath(*parts[:3])
    return cell / parts[3] / parts[4] if parts[3] == FINETUNED and len(parts) > 5 else cell


def trained_folders(study: Path) -> list[Path]:
    """Every folder of a study that a worker claims: cells, and below them what they were fine-tuned to."""
    cells = [cell for scale in folders_in(study) for arm in folders_in(scale) for cell in folders_in(arm)]
    cells = [cell for cell in cells if _CELL.fullmatch(cell.name)]
    return [folder for cell in cells for folder in (cell, *folders_in(cell / FINETUNED))]


def verify(study: Path) -> Iterator[Fault]:
    """What of a study's folder is not as it was written, or is not known; see `Kind`. Nothing is changed."""
    return (found for found in examine(study) if found.kind not in (Kind.GOOD, Kind.UNPROTECTED))


def examine(study: Path) -> Iterator[Fault]:
    """Every file of a study's folder with what was found of it, and every file that is missing."""
    checks: dict[str, Callable[[Any], str]] = {
        "study.json": _identity,
        "plan.json": lambda value: "; ".join(layout.usable_plan(value)[1]),
        CORPUS: lambda value: layout.fault(layout.CorpusLink, value),
        MICRO_BATCHES: lambda value: layout.fault(dict[str, Any], value),
    }
    repairs = {
        "plan.json": "delete this file alone: `paribus run` writes it anew, and cells are kept",
        MICRO_BATCHES: "put it back, or delete the study: its cells were trained so",
    }
    if not (study / "study.json").exists():
        yield Fault(study / "study.json", Kind.DAMAGED, "is missing", "restore it from a copy; cells are untouched")
    for path in files_in(study):
        if path.name in checks:
            yield judged_record(path, checks[path.name], repairs.get(path.name, "restore it from a copy"))
        elif path.name == LOOKS:
            yield judged_lines(path, layout.look_fault, "correct or delete the line; what was seen then is not known")
        elif path.name not in REPORT:
            yield stranger(path)
    yield from _report(study)
    for folder in folders_in(study):
        if folder.name == "cost":
            yield from _costs(folder)
        elif folder.name not in REPORT_FOLDERS:
            yield from _scale(folder)


def _report(study: Path) -> Iterator[Fault]:
    """The last report's files, by the digests that report.json has of them."""
    repair = "`paribus report` makes it again"
    present = [path for path in files_in(study) if path.name in REPORT]
    present += [path for name in REPORT_FOLDERS for path in files_below(study / name)]
    data, digests, complete = study / "report.json", dict[str, str](), True
    if data.exists():
        try:
            found, checked = unsealed(text := data.read_bytes())
            digests = found.get("digests", {}) if checked else {}
            complete = text.endswith(b"}\n")
        except (OSError, ValueError) as error:
            yield Fault(data, Kind.DAMAGED, str(error), repair)
            present.remove(data)
    for path in present:
        stated = digests.get(path.relative_to(study).as_posix())
        if path == data:
            yield (Fault(path, Kind.GOOD) if complete else reformatted_file(path)) if digests else unchecked_file(path)
        elif PARTIAL.fullmatch(path.name):
            yield stranger(path)
        elif stated is None:
            yield Fault(path, Kind.UNPROTECTED, "the report", repair)
        elif stated == digest_of(path):
            yield Fault(path, Kind.GOOD)
        else:
            yield Fault(path, Kind.DAMAGED, "is not as the report wrote it", repair)
    for name in sorted(digests):
        if not (study / name).exists():
            yield Fault(study / name, Kind.DAMAGED, "is missing", repair)


def examine_cell(path: Path) -> Iterator[Fault]:
    """The same of one cell, or of what it was fine-tuned to."""
    cell = CellFolder(path)
    record = "finetune.json" if path.parent.name == FINETUNED else "cell.json"
    if not (path / record).exists() and (cell.finished or (path / CHECKPOINTS).exists()):
        yield Fault(path / record, Kind.DAMAGED, "is missing", f"restore it from a copy, or {_ANEW}")
    yield from _cell_files(cell, record)
    yield from _rows(cell)
    for folder in folders_in(path):
        if folder.name == CHECKPOINTS:
            yield from _checkpoints(folder)
        elif folder.name == ANSWERS:
            yield from _answers(AnswersFolder(path))
        elif folder.name == FINETUNED:
            yield from (stranger(other) for other in files_in(folder))
            for tuned in folders_in(folder):
                yield from examine_cell(tuned)
        elif folder.name == TROUBLE:
            yield from _trouble(folder)
        elif folder.name == ".claims":
            yield from _claims(folder)
        else:
            yield from (stranger(other) for other in files_below(folder) if not _is_rows(path, other))


def _cell_files(cell: CellFolder, record: str) -> Iterator[Fault]:
    for path in files_in(cell.path):
        if path.name == "cell.json" == record:
            yield judged_record(path, lambda value: _cell_fault(cell.path, value), _ANEW)
        elif path.name == record:
            yield judged_record(path, lambda value: layout.fault(dict[str, Any], value), _ANEW)
        elif path.name == "PARKED":
            retry = "`paribus run --retry-parked` tries the cell again"
            yield judged_record(path, lambda value: layout.fault(dict[str, Any], value), retry)
        elif path.name in ("DONE", "DIVERGED"):
            both = "there are DONE and DIVERGED at once" * ((cell.path / "DONE").exists() and path.name == "DIVERGED")
            kind = layout.Done if path.name == "DONE" and record == "cell.json" else layout.Ended
            yield judged_record(path, lambda value, kind=kind, both=both: both or layout.fault(kind, value), _ANEW)
        elif path.name == METRICS:
            digest = cell.written_digests().get(METRICS) if cell.finished else None
            step = lambda value: layout.fault(layout.MetricsStep, value)  # noqa: E731
            repair = _ANEW if cell.finished else "`paribus run` goes on from before it"
            yield judged_lines(path, step, repair, digest, None if cell.finished else Cure.TORN)
        elif path.name == ROWS:
            row = lambda value: layout.fault(layout.RowLine, value)  # noqa: E731
            yield judged_lines(
                path, row, "`paribus run` goes on from before it", cure=None if cell.finished else Cure.TORN
            )
        elif path.name == ".claim":
            yield Fault(path, Kind.GOOD)  # the lock file of an earlier version, always empty
        else:
            yield stranger(path)


def _rows(cell: CellFolder) -> Iterator[Fault]:
    """Row files, by the digests that DONE or, before the end, rows.jsonl holds."""
    repair = _ANEW if cell.finished else "`paribus run` goes on from a checkpoint before it, or trains the cell anew"
    stated = cell.written_digests() if cell.finished else {}
    wrong = {} if cell.finished else cell.damaged_rows()
    counted = set(stated or ({} if cell.finished or ROWS in wrong else cell.journaled_rows()))
    for path in sorted(cell.path.glob("*/*.parquet")):
        if not (_is_rows(cell.path, path) and path.is_file()):
            continue
        name = path.relative_to(cell.path).as_posix()
        if stated and name not in stated:
            yield Fault(path, Kind.ORPHAN, "was added after the cell had ended", "delete it")
        elif stated and digest_of(path) != stated[name]:
            yield Fault(path, Kind.DAMAGED, "was changed after the cell had ended", repair)
        elif name in wrong:
            yield Fault(path, Kind.DAMAGED, wrong[name], repair)
        elif unreadable := unreadable_rows(path):
            yield Fault(path, Kind.DAMAGED, unreadable, repair)
        else:
            yield Fault(path, Kind.GOOD) if name in counted else unchecked_file(path)
    # A kill between the line of rows.jsonl and the row file leaves the line alone: training will write both again.
    reach = max(cell.checkpoint_steps(), default=0)
    for name in sorted(counted):
        if not (cell.path / name).is_file() and (cell.finished or step_of_rows(name) < reach):
            yield Fault(cell.path / name, Kind.DAMAGED, "is missing", repair)


def _is_rows(cell: Path, path: Path) -> bool:
    special = (ANSWERS, FINETUNED, CHECKPOINTS, TROUBLE)
    group = path.parent
    return path.suffix == ".parquet" and group.parent == cell and group.name not in special and path.name[0] != "."


def _checkpoints(folder: Path) -> Iterator[Fault]:
    yield from (stranger(path) for path in files_in(folder))
    cell = CellFolder(folder.parent)
    newest = max(cell.checkpoint_steps(), default=-1)
    for path in folders_in(folder):
        if PARTIAL.fullmatch(path.name):
            yield Fault(path, Kind.ORPHAN, "was left half written", NOBODY, Cure.PARTIAL)
        elif not NAME.fullmatch(path.name):
            yield Fault(path, Kind.ORPHAN, f"is no checkpoint: it has no {MARKER}", NOBODY)
        elif not (path / MARKER).exists():
            # A kill while old ones are removed leaves one such, older than the newest. Of a cell that has ended, the
            # last one can also have lost its marker otherwise.
            going = not cell.finished or Checkpoint(path).step < newest
            cure = Cure.CHECKPOINT if going else None
            yield Fault(path, Kind.ORPHAN, f"is no checkpoint: it has no {MARKER}", NOBODY, cure)
        elif cell.finished:
            what = "nothing that is in the report needs it; to have it again, " + _ANEW
            yield from _checkpoint(Checkpoint(path), what)
        else:
            what = "delete this folder: an earlier checkpoint is used, or the cell is trained anew"
            yield from _checkpoint(Checkpoint(path), what, Cure.CHECKPOINT)


def _checkpoint(checkpoint: Checkpoint, repair: str, cure: Cure | None = None) -> Iterator[Fault]:
    marker = checkpoint.path / MARKER
    wrong = checkpoint.damage()
    try:
        checked = checkpoint.checked
    except FileNotFoundError:  # who trains here has just removed it
        return
    if wrong:
        yield Fault(checkpoint.path, Kind.DAMAGED, wrong, repair, cure)
        return
    yield judged_record(marker, lambda _: "", repair) if checked else unchecked_file(marker)
    foreign = checkpoint.foreign_files()
    for path in files_below(checkpoint.path):
        if path.relative_to(checkpoint.path).parts[0] in foreign:
            yield stranger(path)
        elif path != marker:
            yield Fault(path, Kind.GOOD) if checked else unchecked_file(path)


def _trouble(folder: Path) -> Iterator[Fault]:
    """What an update that went wrong left: states as checkpoints, and records."""
    for path in files_in(folder):
        if path.suffix == ".json" and not PARTIAL.fullmatch(path.name):
            yield judged_record(path, lambda _: "", "delete it: it only explains")
        else:
            yield stranger(path)
    for path in folders_in(folder):
        if (path / MARKER).exists() and NAME.fullmatch(path.name):
            yield from _checkpoint(Checkpoint(path), "delete it: it only explains")
        else:
            yield from (stranger(other) for other in files_below(path))


def _answers(folder: AnswersFolder) -> Iterator[Fault]:
    group, vouched = folder.path / ANSWERS, set[str]()
    for path in sorted(group.glob("[!.]*.json")):
        asked = Asked.of_stem(path.stem)
        if asked is None:
            yield stranger(path)
            continue
        remedy = "delete both files of this task and ask again: paribus evaluate"
        vouched.add(asked.stem)

        def fault(value: Any, asked: Asked = asked) -> str:
            wrong = layout.fault(layout.AnswersRecord, value)
            if wrong:
                return wrong
            own = Asked(value["suite"], value["task"], value["step"], value["variant"])
            return "" if own == asked else f"it is the record of {own.name}, step {own.step}"

        found = judged_record(path, fault, remedy)
        yield found
        rows = path.with_suffix(".parquet")
        if not rows.exists():
            yield Fault(rows, Kind.DAMAGED, "is missing", remedy)
        elif found.kind is not Kind.DAMAGED:
            try:
                folder.rows(asked)
                yield Fault(rows, Kind.GOOD)
            except StudyFolderError as error:
                yield Fault(rows, Kind.DAMAGED, error.received or "was changed after it was written", remedy)
        else:
            yield Fault(rows, Kind.UNCHECKED, "its record is damaged", remedy)
    for path in files_below(group):
        if path.suffix == ".parquet" and path.name[0] != "." and path.stem not in vouched:
            yield Fault(path, Kind.ORPHAN, "has no record: the task was not answered to the end", NOBODY, Cure.ANSWERS)
        elif path.parent != group or path.suffix not in (".parquet", ".json") or path.name[0] == ".":
            yield stranger(path)


def _claims(folder: Path) -> Iterator[Fault]:
    """Who trained the cell, in turn: see `paribus.runs.claims`."""
    for path in files_below(folder):
        if path.suffix == ".json" and path.name[0] != ".":
            found = judged_record(path, lambda _: "", "delete it, once nobody trains here")
            yield replace(found, cure=Cure.CLAIM) if found.kind is Kind.DAMAGED else found
        elif re.fullmatch(r"\d+\.released", path.name):
            yield Fault(path, Kind.GOOD)  # its name is all that it says
        else:
            yield stranger(path)


def _costs(folder: Path) -> Iterator[Fault]:
    for path in files_below(folder):
        if path.parent == folder and path.suffix == ".json" and path.name[0] != ".":

            def fault(value: Any, scale: str = path.stem) -> str:
                other = value.get("scale", scale) if isinstance(value, dict) else scale
                return layout.cost_fault(value) or ("" if other == scale else f"it is that of scale {other}")

            yield judged_record(path, fault, "delete this file alone: `paribus bench` measures anew")
        else:
            yield stranger(path)


def _scale(folder: Path) -> Iterator[Fault]:
    yield from (stranger(path) for path in files_in(folder))
    for arm in folders_in(folder):
        yield from (stranger(path) for path in files_in(arm))
        for cell in folders_in(arm):
            if _CELL.fullmatch(cell.name):
                yield from examine_cell(cell)
            elif PARTIAL.fullmatch(cell.name):
                yield Fault(cell, Kind.ORPHAN, "was left half deleted", NOBODY, Cure.PARTIAL)
            else:
                yield from (stranger(path) for path in files_below(cell))


def _identity(value: Any) -> str:
    return layout.fault(layout.StudyIdentity, value)


def _cell_fault(cell: Path, value: Any) -> str:
    if wrong := layout.fault(layout.CellRecord, value):
        return wrong
    variant = value.get("variant", "")
    name = f"{value['seed']}-{value['digest']}" + (f"-{variant}" if variant else "")
    own = (value["scale"], value["arm"], name)
    # By the resolved folder, for whoever names it by a link.
    place = cell.resolve()
    return "" if own == (place.parents[1].name, place.parent.name, place.name) else f"it is that of {'/'.join(own)}"
