"""What lies in a study's folder beside its cells: whose it is, its plan, its corpus, its costs and who looked.

The layout is in `paribus.runs.folder`. Knows bytes and rows, no model and no tensors.
"""

import datetime
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paribus.disk import is_plain_name
from paribus.errors import StudyFolderError
from paribus.runs import layout
from paribus.runs.folder import CORPUS, FORMAT, LOOKS, MICRO_BATCHES, CellFolder
from paribus.runs.records import (
    Line,
    append_line,
    explaining_storage,
    line_of,
    lines_of,
    read_json,
    write_durably,
    write_json,
)


@dataclass(frozen=True)
class StudyFolder:
    """The folder of one study."""

    path: Path

    def claim_for(self, study: str) -> None:
        """Create the folder for `study`, or make sure that it already is the study's. StudyFolderError where not."""
        identity = self.path / "study.json"
        # Listed before the identity is looked for: another process may be creating the same study just now, and it
        # writes the identity (aside first) before anything else.
        aside = f".{identity.name}."
        present = [e.name for e in self.path.iterdir() if not e.name.startswith(aside)] if self.path.exists() else []
        if identity.exists():
            found = _read_table(identity, "restore it from a copy; the cells beside it are untouched") or {}
            if found.get("study") != study or found.get("format") != FORMAT:
                raise StudyFolderError(
                    f"{self.path} is the run folder of another study",
                    expected=f"study '{study}', format {FORMAT}",
                    received=f"study '{found.get('study')}', format {found.get('format')}",
                    remedy="choose another folder with --runs, or give this study another name",
                )
            return
        if present:
            raise StudyFolderError(
                f"{self.path} holds files that are not a study's",
                expected="an empty or new folder, or one with study.json",
                received=", ".join(sorted(present)[:5]),
                remedy="choose another folder with --runs",
            )
        write_json(identity, {"study": study, "format": FORMAT})

    def read_corpus(self) -> dict[str, str] | None:
        """Which prepared corpus the study was planned with: `corpus`, its folder's name, `key`, `digest`; or None.

        Raises StudyFolderError where the file is damaged.
        """
        path = self.path / CORPUS
        if not path.exists():
            return None
        found = read_json(path)
        named = isinstance(found, dict) and {type(found.get(name)) for name in ("corpus", "key", "digest")} == {str}
        if not named or not is_plain_name(found["corpus"]):
            raise StudyFolderError(
                f"{path} is damaged",
                expected="the texts corpus, key and digest; corpus is the name of a folder in the store",
                received=repr(found)[:200],
                remedy="restore the file from a copy, or give the study a new name",
            )
        return found

    def write_corpus(self, link: dict[str, str]) -> None:
        """Put on record which prepared corpus the study is planned with."""
        write_json(self.path / CORPUS, link)

    def cell(self, scale: str, arm: str, seed: int, digest: str, variant: str = "") -> CellFolder:
        """`variant` tells apart the cells that an arm has at one seed; empty for the one that contrasts are made of.

        StudyFolderError for names that lead out of the study's folder: they come from a file that somebody changed.
        """
        name = f"{seed}-{digest}" + (f"-{variant}" if variant else "")
        for part in (scale, arm, name):
            if not is_plain_name(part):
                raise StudyFolderError(
                    f"{self.path} has no such cell: a name leads out of it",
                    expected="names of folders",
                    received=repr(part),
                    remedy="restore plan.json, or the record that names the cell, from a copy; `paribus run` writes "
                    "plan.json anew where it is not there",
                )
        return CellFolder(self.path / scale / arm / name)

    def other_cells(self, scale: str, arm: str, seed: int, digest: str, variant: str = "") -> list[CellFolder]:
        """Cells of the same place in the plan under another digest: stale, kept, never used."""
        found = []
        for folder in sorted((self.path / scale / arm).glob(f"{seed}-*")):
            _, other, *rest = folder.name.split("-", 2)
            if other != digest and "".join(rest) == variant and (folder / "cell.json").exists():
                found.append(CellFolder(folder))
        return found

    def write_plan(self, plan: Mapping[str, Any]) -> None:
        write_json(self.path / "plan.json", plan)

    def plan(self) -> dict[str, Any] | None:
        """The plan of the newest run; None before the first. StudyFolderError where it cannot be read."""
        path = self.path / "plan.json"
        return _read_table(path, "delete this file alone: `paribus run` writes it anew, and cells are kept")

    def write_micro_batches(self, rows: Mapping[str, Any]) -> None:
        write_json(self.path / MICRO_BATCHES, rows)

    def micro_batches(self) -> dict[str, Any]:
        """Rows of a forward pass as they were measured, by kind of device; empty before. StudyFolderError where the
        record cannot be read."""
        found = _read_table(self.path / MICRO_BATCHES, "put it back, or delete the study: its cells were trained so")
        return found or {}

    def write_cost(self, scale: str, cost: Mapping[str, Any]) -> None:
        write_json(self.path / "cost" / f"{scale}.json", {**cost, "scale": scale})

    def cost(self, scale: str) -> dict[str, Any] | None:
        """What updates of the arms were measured to cost at a scale; None where nobody measured.

        StudyFolderError where the record cannot be read.
        """
        path, remedy = self.path / "cost" / f"{scale}.json", "delete this file alone: `paribus bench` measures anew"
        found = _read_table(path, remedy)
        if found is not None and found.get("scale", scale) != scale:
            raise StudyFolderError(
                f"{path} is that of another scale", expected=scale, received=f"{found['scale']}", remedy=remedy
            )
        return found

    def append_look(self, command: str, pairs: Mapping[str, int], words: Mapping[str, str], rule_digest: str) -> None:
        """One more line of the append-only ledger: who looked, how many pairs were there, which words were shown."""
        time = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        line = {"time": time, "command": command, "pairs": dict(pairs), "words": dict(words)}
        path = self.path / LOOKS
        with explaining_storage(path):
            if path.is_file() and (whole := _whole_tail(path.read_bytes())) is not None:
                write_durably(path, whole)
        append_line(path, {**line, "rule_digest": rule_digest}, durable=True)

    def looks(self) -> list[dict[str, Any]]:
        """Every line of the ledger that can be read; `unreadable_looks` says which cannot."""
        return [line for line, _ in self._ledger() if line is not None]

    def unreadable_looks(self) -> list[str]:
        """Lines of the ledger that are no look, in words. What was seen then is not known."""
        return [f"line {number} ({wrong})" for number, (_, wrong) in enumerate(self._ledger(), 1) if wrong]

    def _ledger(self) -> list[tuple[dict[str, Any] | None, str]]:
        path = self.path / LOOKS
        if not path.exists():
            return []
        try:
            content = path.read_bytes()
        except OSError as error:
            return [(None, error.strerror or str(error))]
        whole = _whole_tail(content)
        return [_look(line) for line in lines_of(content if whole is None else whole)]


def _look(line: Line) -> tuple[dict[str, Any] | None, str]:
    """(the look, "") or (None, what is wrong)."""
    wrong = line.wrong or layout.look_fault(line.content)
    return (None, wrong) if wrong else (line.content, "")


def _whole_tail(ledger: bytes) -> bytes | None:
    """The ledger with the end of its last line, where that is a whole look which only lost it, in an editor or on the
    disk; it must not be taken for one that a kill has torn, which was never shown. None where nothing is to be done."""
    before, end, tail = ledger.rpartition(b"\n")
    if not tail:
        return None
    if not _look(line_of(0, tail))[1]:
        return ledger + b"\n"
    last = line_of(0, tail[:-1])
    return before + end + tail[:-1] + b"\n" if last.checked and not _look(last)[1] else None


def _read_table(path: Path, remedy: str) -> dict[str, Any] | None:
    """A JSON table that lies beside the cells; None where there is none."""
    if not path.exists():
        return None
    try:
        found = read_json(path)
    except StudyFolderError as error:
        raise StudyFolderError(error.what, expected=error.expected, received=error.received, remedy=remedy) from error
    if not isinstance(found, dict):
        raise StudyFolderError(
            f"{path} is not readable", expected="a JSON table", received=type(found).__name__, remedy=remedy
        )
    return found
