"""Answers to downstream tasks beside a trained model: rows of items, and a record that says what was asked.

tasks/<suite>.<task>[+<variant>]-<step>.parquet   one row an item
tasks/<suite>.<task>[+<variant>]-<step>.json      written last: what was asked, and the digest of the rows

They are added to cells that have ended, so that each record vouches for its own rows. A score is recomputed from rows.
"""

import hashlib
import io
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from paribus.disk import is_plain_name
from paribus.errors import StudyFolderError
from paribus.runs import layout
from paribus.runs.records import read_json, write_durably, write_json

GROUP = "tasks"
FORMAT = 1
SCHEMA = pa.schema(
    [
        ("item", pa.int64()),
        ("prompt_digest", pa.string()),
        ("prediction", pa.string()),
        ("gold", pa.string()),
        ("correct", pa.bool_()),
        ("chance", pa.float64()),
        ("gold_nats", pa.float64()),
        ("gold_bytes", pa.int64()),
        ("nats", pa.list_(pa.float64())),
        ("tokens", pa.list_(pa.int64())),
        ("margin", pa.float64()),
        ("near_tie", pa.bool_()),
        ("cropped_shots", pa.int64()),
        ("cropped_tokens", pa.int64()),
        ("problem", pa.string()),
    ]
)
"""Sorted by `item`. `gold_nats`, `gold_bytes` and `margin` are null where no likelihood was taken; `nats` and `tokens`
are then empty. `problem` is empty where there is none. See `paribus.downstream.items`."""


@dataclass(frozen=True)
class Asked:
    """Which task was asked of which state of a model."""

    suite: str
    """"core", "chatcore-5", "chatcore-6" """
    task: str
    """"arc_easy" """
    step: int
    """updates of the model"""
    variant: str = ""
    """what differs from the plain way of asking: "first-500", "counterfactual", "nanochat"; joined by + """

    @property
    def name(self) -> str:
        return f"{self.suite}.{self.task}" + (f"+{self.variant}" if self.variant else "")

    @property
    def stem(self) -> str:
        return f"{self.name}-{self.step:08d}"

    @classmethod
    def of_stem(cls, stem: str) -> "Asked | None":
        """Inverse of `stem`; None for a name that is not one."""
        name, _, step = stem.rpartition("-")
        what, _, variant = name.partition("+")
        suite, _, task = what.partition(".")
        if not (suite and task and step.isdigit()):
            return None
        return cls(suite, task, int(step), variant)


@dataclass(frozen=True)
class AnswersFolder:
    """The answers beside one trained model: `path` is the folder of a cell, of a fine-tuned cell or of an import."""

    path: Path

    def write(self, asked: Asked, columns: Mapping[str, Any], record: Mapping[str, Any]) -> None:
        """Rows, then the record, to which names, number of items and digest of the rows are added.

        StudyFolderError for a task whose name leads out of the folder.
        """
        if not is_plain_name(asked.stem):
            raise StudyFolderError(
                "this name of a task cannot be one of a file",
                received=repr(asked.name),
                remedy="give the task another label in the list of its bundle",
            )
        table = pa.table({name: columns[name] for name in SCHEMA.names}, schema=SCHEMA)
        stream = io.BytesIO()
        pq.write_table(table, stream, compression="zstd", write_page_checksum=True)
        content = stream.getvalue()
        write_durably(self.path / GROUP / f"{asked.stem}.parquet", content)
        said = {
            **record,
            "format": FORMAT,
            "suite": asked.suite,
            "task": asked.task,
            "variant": asked.variant,
            "step": asked.step,
            "items": len(table),
            "row_digest": _digest(content),
        }
        write_json(self.path / GROUP / f"{asked.stem}.json", said)

    def all(self) -> list[Asked]:
        """Everything that was answered to the end, by name and step. Nothing is read."""
        found = [Asked.of_stem(file.stem) for file in (self.path / GROUP).glob("*.json")]
        return sorted((asked for asked in found if asked is not None), key=lambda asked: asked.stem)

    def record(self, asked: Asked) -> dict[str, Any] | None:
        """What was asked; None where it was not, or not to the end. StudyFolderError where the record is damaged."""
        path = self.path / GROUP / f"{asked.stem}.json"
        if not path.exists():
            return None
        remedy = "delete this file and ask again: paribus evaluate"
        found = read_json(path, remedy)
        if wrong := layout.fault(layout.AnswersRecord, found):
            raise StudyFolderError(f"{path} is not as it was written", received=wrong, remedy=remedy)
        return found

    def rows(self, asked: Asked) -> pa.Table:
        """The items. StudyFolderError where rows are missing, or not those that the record vouches for."""
        record = self.record(asked)
        path = self.path / GROUP / f"{asked.stem}.parquet"
        remedy = "delete both files of this task and ask again: paribus evaluate"
        try:
            content = path.read_bytes()
            if record is None or _digest(content) != record["row_digest"]:
                raise StudyFolderError(f"{path} was changed after it was written", remedy=remedy)
            return pq.read_table(pa.BufferReader(content), use_threads=False)
        except (OSError, pa.ArrowException, UnicodeDecodeError) as error:
            raise StudyFolderError(f"{path} is not readable", received=str(error), remedy=remedy) from error


def _digest(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=16).hexdigest()
