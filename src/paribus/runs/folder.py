"""The run folder is the truth: what lies where, and how it gets there. Knows bytes and rows, no model and no tensors.

runs/<study>/study.json  plan.json  corpus.json  micro-batch.json  looks.jsonl  cost/<scale>.json
runs/<study>/report.html  report.md  report.json  verdict.svg  verdict.md  tables/  figures/
runs/<study>/<scale>/<arm>/<seed>-<digest>/
    cell.json           resolved fields, environment, code version, digests of the initial tensors
    metrics.jsonl       one raw line a step
    likelihood/         one Parquet a split and step: one row a document
    diagnostics/        one Parquet a step: one row a reading, with its standard error over documents
    interventions/      one Parquet a step: one row a change of the trained model and document
    routes/             one Parquet a step: depth routes of some tokens, one row a source
    tasks/              one Parquet and one record a downstream task and step: see `paribus.runs.answers`
    finetuned/<name>/   what the cell was fine-tuned to: a folder like this one, with finetune.json for cell.json
    checkpoints/        step-N/ with its files and, last, a marker
    DONE or DIVERGED    what the cell ended with
"""

import datetime
import hashlib
import io
import json
import shutil
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from paribus.disk import flush
from paribus.errors import StudyFolderError
from paribus.runs import layout
from paribus.runs.answers import GROUP as ANSWERS
from paribus.runs.claims import claimed
from paribus.runs.records import (
    append_line,
    explaining_storage,
    json_line,
    read_json,
    read_lines,
    write_durably,
    write_flushed,
    write_json,
)

FORMAT = 1
CORPUS = "corpus.json"
MICRO_BATCHES = "micro-batch.json"
MARKER = "COMPLETE"
CHECKPOINTS_KEPT = 2


@dataclass(frozen=True)
class CellFolder:
    """The folder of one training run."""

    path: Path

    @property
    def state(self) -> str:
        """complete, diverged, running, started or missing."""
        if (self.path / "DONE").exists():
            return "complete"
        if (self.path / "DIVERGED").exists():
            return "diverged"
        if not self.path.exists():
            return "missing"
        return "running" if claimed(self.path) else "started"

    @property
    def finished(self) -> bool:
        return (self.path / "DONE").exists() or (self.path / "DIVERGED").exists()

    def write_record(self, record: Mapping[str, Any]) -> None:
        write_json(self.path / "cell.json", record)

    def record(self) -> dict[str, Any]:
        return read_json(self.path / "cell.json")

    def append_metrics(self, line: Mapping[str, Any]) -> None:
        append_line(self.path / "metrics.jsonl", line)

    def metrics(self) -> list[dict[str, Any]]:
        return read_lines(self.path / "metrics.jsonl")

    def keep_metrics_until(self, step: int) -> None:
        """Drop lines of steps that a checkpoint does not cover; they will be trained again."""
        kept = [json_line(line) for line in self.metrics() if line["step"] <= step]
        write_durably(self.path / "metrics.jsonl", b"".join(kept))

    def write_rows(self, name: str, columns: Mapping[str, Any]) -> None:
        """One Parquet file of equally long columns, such as "likelihood/test-00000112"."""
        content = io.BytesIO()
        pq.write_table(pa.table(dict(columns)), content, compression="zstd")
        write_durably(self.path / f"{name}.parquet", content.getvalue())

    def rows(self, name: str, columns: Sequence[str] | None = None) -> pa.Table:
        """A row file, or some of its columns. StudyFolderError where it cannot be read, or lacks one of them."""
        try:
            with pq.ParquetFile(self.path / f"{name}.parquet") as file:
                lacking = [column for column in columns or () if column not in file.schema_arrow.names]
                if lacking:
                    raise StudyFolderError(
                        f"{self.path / name}.parquet has no column '{lacking[0]}'",
                        received=", ".join(file.schema_arrow.names),
                        remedy="delete the cell's folder and run again; other cells are kept",
                    )
                # Small files: handing them to a pool of threads costs more than it saves.
                return file.read(columns=None if columns is None else list(columns), use_threads=False)
        except (OSError, pa.ArrowException) as error:
            raise StudyFolderError(
                f"{self.path / name}.parquet is not readable",
                received=str(error),
                remedy="delete the cell's folder and run again; other cells are kept",
            ) from error

    def row_files(self, group: str) -> list[str]:
        """Names of the row files of a group ("likelihood"), sorted."""
        return sorted(f"{group}/{file.stem}" for file in (self.path / group).glob("*.parquet"))

    def write_checkpoint(self, step: int, files: Mapping[str, bytes], kept: Collection[int] = ()) -> None:
        """All files written aside and fsynced, the folder renamed into place, the marker last; old ones removed but
        those of the steps `kept`."""
        folder = self.path / "checkpoints"
        final, aside = folder / f"step-{step:08d}", folder / f".step-{step:08d}.partial"
        with explaining_storage(final):
            shutil.rmtree(aside, ignore_errors=True)
            shutil.rmtree(final, ignore_errors=True)
            aside.mkdir(parents=True)
            for name, content in files.items():
                write_flushed(aside / name, content)
            flush(aside)
            aside.rename(final)
            flush(folder)
            write_flushed(final / MARKER, b"")
            flush(final)
            removable = [c for c in self._checkpoints() if _step_of(c) not in kept]
            for old in removable[:-CHECKPOINTS_KEPT]:
                (old / MARKER).unlink()
                shutil.rmtree(old)

    def _checkpoints(self) -> list[Path]:
        return sorted(marker.parent for marker in (self.path / "checkpoints").glob(f"step-*/{MARKER}"))

    def checkpoint_steps(self) -> list[int]:
        """Steps whose checkpoints are kept, in order."""
        return [_step_of(checkpoint) for checkpoint in self._checkpoints()]

    def latest_checkpoint(self) -> tuple[int, dict[str, bytes]] | None:
        """(step, files) of the newest checkpoint whose marker was written; None where there is none."""
        complete = self._checkpoints()
        return (_step_of(complete[-1]), _files_of(complete[-1])) if complete else None

    def checkpoint_at(self, step: int) -> dict[str, bytes] | None:
        """Files of the checkpoint after `step` updates; None where it is not kept."""
        found = next((c for c in self._checkpoints() if _step_of(c) == step), None)
        return None if found is None else _files_of(found)

    def finish(self, summary: Mapping[str, Any], *, diverged: bool = False) -> None:
        """Mark the end. Digests of every row file go with it, so that a later change is noticed."""
        content = {**summary, "row_digests": self._row_digests()}
        write_json(self.path / ("DIVERGED" if diverged else "DONE"), content)

    def _row_digests(self) -> dict[str, str]:
        files = sorted([*self.path.glob("*/*.parquet"), *self.path.glob("metrics.jsonl")])
        files = [file for file in files if file.parent.name != ANSWERS]  # added later, each with a digest of its own
        return {str(file.relative_to(self.path)): _digest(file) for file in files if file.is_file()}

    def alterations(self) -> list[str]:
        """What of a finished cell's rows is no longer as it was written, in words; empty where all of it is.

        A cell that ended before digests were kept says nothing: see `keeps_digests`.
        """
        written = self._written_digests()
        if not written:
            return []
        present = self._row_digests()
        missing = [f"{name} is missing" for name in sorted(written.keys() - present.keys())]
        changed = [
            f"{name} was changed" for name in sorted(written) if present.get(name, written[name]) != written[name]
        ]
        return missing + changed + [f"{name} was added" for name in sorted(present.keys() - written.keys())]

    def _written_digests(self) -> dict[str, str]:
        try:
            summary = self.summary()
        except StudyFolderError:
            return {}
        return (
            summary["row_digests"] or {} if not layout.fault(layout.Ended, summary) and "row_digests" in summary else {}
        )

    @property
    def keeps_digests(self) -> bool:
        """Whether a change of the cell's rows would be noticed."""
        return bool(self._written_digests())

    def faults(self, scale: str, arm: str, seed: int, variant: str) -> list[str]:
        """Which records of a finished cell cannot be used, in words, whatever their digests say; empty where all can.

        Rows and metrics are not looked into. `scale` and the others say which cell it must be.
        """
        if (self.path / "DONE").exists() and (self.path / "DIVERGED").exists():
            return ["it is marked DONE and DIVERGED at once"]
        complete = self.state == "complete"
        found = [_fault_of(self.path / "DONE", layout.Done)] if complete else []
        found += [_fault_of(self.path / "DIVERGED", layout.Ended)] if not complete else []
        found.append(
            _fault_of(self.path / "cell.json", layout.CellRecord) or self._fault_of_identity(scale, arm, seed, variant)
        )
        return [what for what in found if what]

    def _fault_of_identity(self, scale: str, arm: str, seed: int, variant: str) -> str:
        record = self.record()
        own = (record["scale"], record["arm"], record["seed"], record.get("variant", ""))
        same = own == (scale, arm, seed, variant) and self.path.name.split("-")[1:2] == [record["digest"]]
        return "" if same else f"cell.json is that of {'/'.join(map(str, own[:3]))}, digest {record['digest']}"

    def summary(self) -> dict[str, Any]:
        """What the cell ended with. StudyFolderError where it has not."""
        return read_json(self.path / ("DIVERGED" if (self.path / "DIVERGED").exists() else "DONE"))


def _step_of(checkpoint: Path) -> int:
    return int(checkpoint.name.removeprefix("step-"))


def _files_of(checkpoint: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in checkpoint.iterdir() if file.name != MARKER}


def _fault_of(file: Path, kind: type[layout.CellRecord | layout.Ended]) -> str:
    try:
        wrong = layout.fault(kind, read_json(file))
    except StudyFolderError as error:
        wrong = error.received
    return f"{file.name} is not as it was written ({wrong})" if wrong else ""


def _digest(file: Path) -> str:
    return hashlib.blake2b(file.read_bytes(), digest_size=8).hexdigest()


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
        if not isinstance(found, dict) or {type(found.get(name)) for name in ("corpus", "key", "digest")} != {str}:
            raise StudyFolderError(
                f"{path} is damaged",
                expected="the texts corpus, key and digest",
                received=repr(found)[:200],
                remedy="restore the file from a copy, or give the study a new name",
            )
        return found

    def write_corpus(self, link: dict[str, str]) -> None:
        """Put on record which prepared corpus the study is planned with."""
        write_json(self.path / CORPUS, link)

    def cell(self, scale: str, arm: str, seed: int, digest: str, variant: str = "") -> CellFolder:
        """`variant` tells apart the cells that an arm has at one seed; empty for the one that contrasts are made of."""
        name = f"{seed}-{digest}" + (f"-{variant}" if variant else "")
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
        write_json(self.path / "cost" / f"{scale}.json", cost)

    def cost(self, scale: str) -> dict[str, Any] | None:
        """What updates of the arms were measured to cost at a scale; None where nobody measured.

        StudyFolderError where the record cannot be read.
        """
        path = self.path / "cost" / f"{scale}.json"
        return _read_table(path, "delete this file alone: `paribus cost` measures anew")

    def append_look(self, command: str, pairs: Mapping[str, int], words: Mapping[str, str], rule_digest: str) -> None:
        """One more line of the append-only ledger: who looked, how many pairs were there, which words were shown."""
        time = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        line = {"time": time, "command": command, "pairs": dict(pairs), "words": dict(words)}
        path = self.path / "looks.jsonl"
        with explaining_storage(path):
            if path.is_file() and not path.read_bytes().endswith(b"\n") and not _ledger_line(_last_line(path))[1]:
                # A whole look that lost its newline in an editor must not be taken for one that a kill has torn.
                write_durably(path, path.read_bytes() + b"\n")
        append_line(path, {**line, "rule_digest": rule_digest})

    def looks(self) -> list[dict[str, Any]]:
        """Every line of the ledger that can be read; `unreadable_looks` says which cannot."""
        return [line for line, _ in self._ledger() if line is not None]

    def unreadable_looks(self) -> list[str]:
        """Lines of the ledger that are no look, in words. What was seen then is not known."""
        return [f"line {number} ({wrong})" for number, (_, wrong) in enumerate(self._ledger(), 1) if wrong]

    def _ledger(self) -> list[tuple[dict[str, Any] | None, str]]:
        path = self.path / "looks.jsonl"
        if not path.exists():
            return []
        try:
            lines = path.read_bytes().split(b"\n")
        except OSError as error:
            return [(None, error.strerror or str(error))]
        found = [_ledger_line(line) for line in lines[:-1]]
        last = _ledger_line(lines[-1])
        return [*found, last] if not last[1] else found  # a torn last line, left by a kill, was never shown


def _ledger_line(line: bytes) -> tuple[dict[str, Any] | None, str]:
    """(the look, "") or (None, what is wrong)."""
    try:
        look = json.loads(line)
    except ValueError as error:
        return None, str(error)
    wrong = layout.look_fault(look)
    return (None, wrong) if wrong else (look, "")


def _last_line(path: Path) -> bytes:
    return path.read_bytes().rpartition(b"\n")[2]


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
