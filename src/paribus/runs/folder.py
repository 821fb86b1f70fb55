"""The run folder is the truth: what lies where, and how it gets there. Knows bytes and rows, no model and no tensors.

runs/<study>/study.json  plan.json  corpus.json  micro-batch.json  looks.jsonl  cost/<scale>.json
runs/<study>/report.html  report.md  report.json  verdict.svg  verdict.md  tables/  figures/
runs/<study>/<scale>/<arm>/<seed>-<digest>/
    cell.json           resolved fields, environment, code version, digests of the initial tensors
    metrics.jsonl       one raw line a step
    rows.jsonl          digest of each row file as it was written; gone once DONE or DIVERGED holds them
    likelihood/         one Parquet a split and step: one row a document
    diagnostics/        one Parquet a step: one row a reading, with its standard error over documents
    interventions/      one Parquet a step: one row a change of the trained model and document
    routes/             one Parquet a step: depth routes of some tokens, one row a source
    tasks/              one Parquet and one record a downstream task and step: see `paribus.runs.answers`
    finetuned/<name>/   what the cell was fine-tuned to: a folder like this one, with finetune.json for cell.json
    checkpoints/        step-N/ with its files and a marker that vouches for them: see `paribus.runs.checkpoints`
    DONE or DIVERGED    what the cell ended with, with the digests of all row files

Every record says whether it is whole (`paribus.runs.records`), every Parquet page has its checksum, and
`paribus.runs.verifying` looks at all of it. What an earlier version wrote has fewer of them and is read as it is.
"""

import hashlib
import io
import re
import shutil
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from paribus.disk import flush
from paribus.errors import StudyFolderError
from paribus.runs import checkpoints, layout, metrics
from paribus.runs.answers import GROUP as ANSWERS
from paribus.runs.holders import claimed
from paribus.runs.records import (
    Fence,
    Line,
    append_line,
    explaining_storage,
    lines_of,
    read_json,
    read_lines,
    write_durably,
    write_json,
)

FORMAT = 1
CORPUS = "corpus.json"
MICRO_BATCHES = "micro-batch.json"
FINETUNED = "finetuned"
METRICS, ROWS, LOOKS = "metrics.jsonl", "rows.jsonl", "looks.jsonl"


@dataclass(frozen=True)
class CellFolder:
    """The folder of one training run."""

    path: Path
    fence: Fence | None = field(default=None, kw_only=True, compare=False, repr=False)
    """raises where another worker took the cell over; called just before each rename and each append of a write.
    Readers never call it"""

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
        write_json(self.path / "cell.json", record, self.fence)

    def record(self) -> dict[str, Any]:
        return read_json(self.path / "cell.json")

    def append_metrics(self, line: Mapping[str, Any]) -> None:
        append_line(self.path / METRICS, line, self.fence)

    def metrics(self) -> list[dict[str, Any]]:
        """Every line but those of workers that had lost the cell. StudyFolderError where one is damaged."""
        return metrics.of_holders(read_lines(self.path / METRICS))

    def highest_token(self) -> int:
        """Of the lines of metrics, 0 without one: what is written next must not carry a lower one."""
        path = self.path / METRICS
        return metrics.highest_token(path.read_bytes()) if path.exists() else 0

    def keep_metrics_until(self, step: int) -> None:
        """Drop lines of steps that a checkpoint does not cover, and the digests of their rows: they are trained again.

        The file is written anew in any case, so that nothing can be appended any more by who opened it before; and
        what killed writers left half written goes. StudyFolderError where lines up to `step` are damaged or missing.
        """
        kept, reach = self._sound_metrics()
        if kept and reach < step:
            raise StudyFolderError(
                f"{self.path / METRICS} does not reach the checkpoint that training would go on from",
                expected=f"every update up to {step}, one after another",
                received=f"updates up to {reach}",
                remedy="delete the cell's folder to train it anew; other cells are kept",
            )
        text = b"".join(line.text + b"\n" for line in kept if line.content["step"] <= step)
        write_durably(self.path / METRICS, text, self.fence)
        if (self.path / ROWS).exists():
            # A damaged one of them has already brought training back to its begin.
            rows = [line for line in lines_of((self.path / ROWS).read_bytes()) if not _row_line_fault(line)]
            text = b"".join(line.text + b"\n" for line in rows if step_of_rows(line.content["file"]) <= step)
            write_durably(self.path / ROWS, text, self.fence)
        self._sweep()

    def _sound_metrics(self) -> tuple[list[Line], int]:
        path = self.path / METRICS
        return metrics.sound(path.read_bytes()) if path.exists() else ([], 0)

    def _sweep(self) -> None:
        """Remove what writers that were killed left half written. Only for who holds the claim.

        Other writers may be at work in folders with a dot (claims), in `tasks` and in `finetuned`.
        """
        elsewhere = (ANSWERS, FINETUNED)
        own = [p for p in self.path.glob("[!.]*/.*.partial") if p.parent.name not in elsewhere]
        for partial in [*self.path.glob(".*.partial"), *own]:
            if partial.is_dir():
                shutil.rmtree(partial, ignore_errors=True)
            else:
                partial.unlink(missing_ok=True)

    def write_rows(self, name: str, columns: Mapping[str, Any]) -> None:
        """One Parquet file of equally long columns, such as "likelihood/test-00000112"."""
        stream = io.BytesIO()
        pq.write_table(pa.table(dict(columns)), stream, compression="zstd", write_page_checksum=True)
        content = stream.getvalue()
        if not self.finished:
            line = {"file": f"{name}.parquet", "digest": _digest_of(content)}
            append_line(self.path / ROWS, line, self.fence, durable=True)
        write_durably(self.path / f"{name}.parquet", content, self.fence)

    def rows(self, name: str, columns: Sequence[str] | None = None) -> pa.Table:
        """A row file, or some of its columns. StudyFolderError where it is not as it was written, cannot be read, or
        lacks one of them."""
        try:
            # The checksums of pages do not cover the file's footer, which names columns and types: the digest does.
            content = (self.path / f"{name}.parquet").read_bytes()
            stated = self._stated_digests(f"{name}.parquet")
            if stated and _digest_of(content) not in stated:
                raise StudyFolderError(
                    f"{self.path / name}.parquet was changed after it was written",
                    remedy="restore it, or delete the cell's folder and run again; other cells are kept",
                )
            with pq.ParquetFile(pa.BufferReader(content), page_checksum_verification=True) as file:
                lacking = [column for column in columns or () if column not in file.schema_arrow.names]
                if lacking:
                    raise StudyFolderError(
                        f"{self.path / name}.parquet has no column '{lacking[0]}'",
                        received=", ".join(file.schema_arrow.names),
                        remedy="delete the cell's folder and run again; other cells are kept",
                    )
                # Small files: handing them to a pool of threads costs more than it saves.
                return file.read(columns=None if columns is None else list(columns), use_threads=False)
        except (OSError, ValueError, pa.ArrowException) as error:  # a name that is no text any more is a ValueError
            raise StudyFolderError(
                f"{self.path / name}.parquet is not readable",
                received=str(error),
                remedy="delete the cell's folder and run again; other cells are kept",
            ) from error

    def _stated_digests(self, name: str) -> set[str]:
        """What a row file's digest must be one of; empty where nothing says it."""
        if self.finished:
            return {found} if (found := self.written_digests().get(name)) is not None else set()
        try:
            return self.journaled_rows().get(name, set())
        except StudyFolderError:  # the record of digests is damaged, which is told where training goes on
            return set()

    def row_files(self, group: str) -> list[str]:
        """Names of the row files of a group ("likelihood"), sorted."""
        return sorted(f"{group}/{file.stem}" for file in (self.path / group).glob("*.parquet"))

    def write_checkpoint(self, step: int, files: Mapping[str, bytes], kept: Collection[int] = ()) -> None:
        """A checkpoint that is whole or not there, and the lines of metrics up to it on the disk before it; old ones
        removed but the newest two and those of the steps `kept`."""
        with explaining_storage(self.path / METRICS):
            if (self.path / METRICS).exists():
                flush(self.path / METRICS)
                flush(self.path)
        checkpoints.write(self.path, step, files, kept, self.fence)

    def checkpoint_steps(self) -> list[int]:
        """Steps whose checkpoints are kept, in order, whether or not they are damaged."""
        return [checkpoint.step for checkpoint in checkpoints.present(self.path)]

    def latest_checkpoint(
        self, on_damage: Callable[[int, str], None] | None = None
    ) -> tuple[int, dict[str, bytes]] | None:
        """(step, files) of the newest checkpoint that can be used; None where there is none.

        A checkpoint of a cell that has not ended can be used only where metrics and rows up to it are whole: they
        would be missing at the end. `on_damage` gets the step of each newer one that cannot, and why, in words.
        """
        lost = self._losses()
        for checkpoint in reversed(checkpoints.present(self.path)):
            try:
                if wrong := lost.until(checkpoint.step):
                    raise StudyFolderError("", received=wrong)
                return checkpoint.step, checkpoint.read()
            except StudyFolderError as error:
                if on_damage is not None:
                    on_damage(checkpoint.step, error.received)
        return None

    def damaged_checkpoints(self) -> dict[int, str]:
        """What is wrong with each checkpoint that cannot be used, in words, by step."""
        lost = self._losses()
        found = {c.step: c.damage() or lost.until(c.step) for c in checkpoints.present(self.path)}
        return {step: wrong for step, wrong in found.items() if wrong}

    def checkpoint_at(self, step: int) -> dict[str, bytes] | None:
        """Files of the checkpoint after `step` updates; None where it is not kept. StudyFolderError where it is
        damaged."""
        found = next((c for c in checkpoints.present(self.path) if c.step == step), None)
        return None if found is None else found.read()

    def _losses(self) -> "_Losses":
        """Of a cell that has not ended; of one that has, nothing is missing that training would have to go back for."""
        if self.finished:
            return _Losses(None, {})
        known = (self.path / METRICS).exists() or (self.path / "cell.json").exists()
        return _Losses(self._sound_metrics()[1] if known else None, self.damaged_rows())

    def damaged_rows(self) -> dict[str, str]:
        """What is wrong with each row file of a cell that has not ended, in words, by its name in the folder.

        A file that was written before its digest was kept says nothing.
        """
        try:
            written = self.journaled_rows()
        except StudyFolderError as error:
            return {ROWS: error.received}
        present = self._row_digests()
        missing = dict.fromkeys(written.keys() - present.keys(), "is missing")
        changed = {name: "was changed" for name, digests in written.items() if present.get(name) not in digests}
        return changed | missing

    def journaled_rows(self) -> dict[str, set[str]]:
        """Digests that a row file had, by its name in the folder, of a cell that has not ended.

        More than one where it was written again. StudyFolderError where the record of them is damaged.
        """
        written: dict[str, set[str]] = {}
        path = self.path / ROWS
        for line in lines_of(path.read_bytes()) if path.exists() else ():
            if wrong := _row_line_fault(line):
                raise StudyFolderError(
                    f"{path}: line {line.number} is damaged",
                    received=f"line {line.number}: {wrong}",
                    remedy="delete the cell's folder to train it anew; other cells are kept",
                )
            written.setdefault(line.content["file"], set()).add(line.content["digest"])
        return written

    def finish(self, summary: Mapping[str, Any], *, diverged: bool = False) -> None:
        """Mark the end. Digests of every row file go with it, so that a later change is noticed.

        StudyFolderError where a row file of a cell that is complete is already not as it was written.
        """
        if not diverged and not self.finished and (damaged := self.damaged_rows()):
            name, wrong = next(iter(sorted(damaged.items())))
            raise StudyFolderError(
                f"{self.path / name} {wrong}",
                expected="the rows of a cell as they were written, since it ends with them",
                remedy="run again: training goes on from a checkpoint before them, or anew; other cells are kept",
            )
        with explaining_storage(self.path):
            if (self.path / METRICS).exists():
                flush(self.path / METRICS)
        content = {**summary, "row_digests": self._row_digests()}
        write_json(self.path / ("DIVERGED" if diverged else "DONE"), content, self.fence)
        (self.path / ROWS).unlink(missing_ok=True)
        self._sweep()

    def _row_digests(self) -> dict[str, str]:
        files = sorted([*self.path.glob("*/*.parquet"), *self.path.glob(METRICS)])
        files = [file for file in files if file.parent.name != ANSWERS]  # added later, each with a digest of its own
        return {str(file.relative_to(self.path)): _digest(file) for file in files if file.is_file()}

    def alterations(self) -> list[str]:
        """What of a finished cell's rows is no longer as it was written, in words; empty where all of it is.

        A cell that ended before digests were kept says nothing: see `keeps_digests`.
        """
        written = self.written_digests()
        if not written:
            return []
        present = self._row_digests()
        missing = [f"{name} is missing" for name in sorted(written.keys() - present.keys())]
        changed = [
            f"{name} was changed" for name in sorted(written) if present.get(name, written[name]) != written[name]
        ]
        return missing + changed + [f"{name} was added" for name in sorted(present.keys() - written.keys())]

    def written_digests(self) -> dict[str, str]:
        """Of each row file when the cell ended, by its name in the folder; empty of an earlier version's."""
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
        return bool(self.written_digests())

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


@dataclass(frozen=True)
class _Losses:
    """What of a cell's metrics and rows is no longer as it was written."""

    reach: int | None
    """update up to which metrics are whole; None where nothing says that there were any"""
    rows: Mapping[str, str]
    """what is wrong, by name of the row file"""

    def until(self, step: int) -> str:
        """The first loss for which training must go back to before an update, in words; empty without one.

        Rows of that very update are measured anew by whoever goes on from there.
        """
        if self.reach is not None and self.reach < step:
            return f"{METRICS} is whole up to update {self.reach} only"
        lost = (f"{name} {wrong}" for name, wrong in sorted(self.rows.items()) if step_of_rows(name) < step)
        return next(lost, "")


def _row_line_fault(line: Line) -> str:
    return line.wrong or layout.fault(layout.RowLine, line.content)


def step_of_rows(name: str) -> int:
    """ "likelihood/test-00000112.parquet" was measured after 112 updates; 0 for a name without a number."""
    found = re.search(r"(\d+)\.parquet$", name)
    return int(found[1]) if found else 0


def _fault_of(file: Path, kind: type[layout.CellRecord | layout.Ended]) -> str:
    try:
        wrong = layout.fault(kind, read_json(file))
    except StudyFolderError as error:
        wrong = error.received
    return f"{file.name} is not as it was written ({wrong})" if wrong else ""


def _digest(file: Path) -> str:
    return _digest_of(file.read_bytes())


def _digest_of(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=8).hexdigest()
