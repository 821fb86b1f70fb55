"""The run folder is the truth: what lies where, and how it gets there. Knows bytes and rows, no model and no tensors.

runs/<study>/study.json  plan.json  looks.jsonl  corpus/  report.html  report.json
runs/<study>/<scale>/<arm>/<seed>-<digest>/
    cell.json           resolved fields, environment, code version, digests of the initial tensors
    metrics.jsonl       one raw line a step
    likelihood/         one Parquet a split and step: one row a document
    diagnostics/        one Parquet a step: one row a reading, with its standard error over documents
    interventions/      one Parquet a step: one row a change of the trained model and document
    routes/             one Parquet a step: depth routes of some tokens, one row a source
    checkpoints/        step-N/ with its files and, last, a marker
    DONE or DIVERGED    what the cell ended with
"""

import datetime
import io
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from paribus.errors import StudyFolderError
from paribus.runs.claims import claimed
from paribus.runs.records import (
    append_line,
    explaining_storage,
    flush_folder,
    json_line,
    read_json,
    read_lines,
    write_durably,
    write_flushed,
    write_json,
)

FORMAT = 1
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

    def rows(self, name: str) -> pa.Table:
        try:
            return pq.read_table(self.path / f"{name}.parquet")
        except (OSError, pa.ArrowException) as error:
            raise StudyFolderError(
                f"{self.path / name}.parquet is not readable",
                received=str(error),
                remedy="delete the cell's folder and run again; other cells are kept",
            ) from error

    def row_files(self, group: str) -> list[str]:
        """Names of the row files of a group ("likelihood"), sorted."""
        return sorted(f"{group}/{file.stem}" for file in (self.path / group).glob("*.parquet"))

    def write_checkpoint(self, step: int, files: Mapping[str, bytes]) -> None:
        """All files written aside and fsynced, the folder renamed into place, the marker last; old ones removed."""
        folder = self.path / "checkpoints"
        final, aside = folder / f"step-{step:08d}", folder / f".step-{step:08d}.partial"
        with explaining_storage(final):
            shutil.rmtree(aside, ignore_errors=True)
            shutil.rmtree(final, ignore_errors=True)
            aside.mkdir(parents=True)
            for name, content in files.items():
                write_flushed(aside / name, content)
            flush_folder(aside)
            aside.rename(final)
            flush_folder(folder)
            write_flushed(final / MARKER, b"")
            flush_folder(final)
            for old in self._checkpoints()[:-CHECKPOINTS_KEPT]:
                (old / MARKER).unlink()
                shutil.rmtree(old)

    def _checkpoints(self) -> list[Path]:
        return sorted(marker.parent for marker in (self.path / "checkpoints").glob(f"step-*/{MARKER}"))

    def latest_checkpoint(self) -> tuple[int, dict[str, bytes]] | None:
        """(step, files) of the newest checkpoint whose marker was written; None where there is none."""
        complete = self._checkpoints()
        if not complete:
            return None
        newest = complete[-1]
        files = {file.name: file.read_bytes() for file in newest.iterdir() if file.name != MARKER}
        return int(newest.name.removeprefix("step-")), files

    def finish(self, summary: Mapping[str, Any], *, diverged: bool = False) -> None:
        write_json(self.path / ("DIVERGED" if diverged else "DONE"), summary)

    def summary(self) -> dict[str, Any]:
        """What the cell ended with. StudyFolderError where it has not."""
        return read_json(self.path / ("DIVERGED" if (self.path / "DIVERGED").exists() else "DONE"))


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
            found = read_json(identity)
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

    @property
    def corpus(self) -> Path:
        return self.path / "corpus"

    def cell(self, scale: str, arm: str, seed: int, digest: str, repeat: int = 0) -> CellFolder:
        name = f"{seed}-{digest}" + (f"-repeat{repeat}" if repeat else "")
        return CellFolder(self.path / scale / arm / name)

    def other_cells(self, scale: str, arm: str, seed: int, digest: str) -> list[CellFolder]:
        """Cells of the same place in the plan under another digest: stale, kept, never used."""
        folders = sorted((self.path / scale / arm).glob(f"{seed}-*"))
        return [
            CellFolder(f) for f in folders if not f.name.startswith(f"{seed}-{digest}") and (f / "cell.json").exists()
        ]

    def write_plan(self, plan: Mapping[str, Any]) -> None:
        write_json(self.path / "plan.json", plan)

    def plan(self) -> dict[str, Any] | None:
        """The plan of the newest run; None before the first."""
        return read_json(self.path / "plan.json") if (self.path / "plan.json").exists() else None

    def append_look(self, command: str, pairs: Mapping[str, int], words: Mapping[str, str], rule_digest: str) -> None:
        """One more line of the append-only ledger: who looked, how many pairs were there, which words were shown."""
        time = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        line = {"time": time, "command": command, "pairs": dict(pairs), "words": dict(words)}
        append_line(self.path / "looks.jsonl", {**line, "rule_digest": rule_digest})

    def looks(self) -> list[dict[str, Any]]:
        return read_lines(self.path / "looks.jsonl")
