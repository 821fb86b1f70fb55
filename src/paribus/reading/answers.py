"""Answers to downstream tasks as the disk has them. Needs no tensors.

Beside a complete cell, and beside each model that it was fine-tuned to, lie answers with a record each
(`paribus.runs.answers`). What is damaged, or not as its record vouches for, costs those answers and is said.
"""

import hashlib
import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from paribus.errors import StudyFolderError
from paribus.runs.answers import GROUP, SCHEMA, AnswersFolder, Asked
from paribus.runs.folder import CellFolder
from paribus.runs.records import read_json

CORE = "core"
_FIVE = ("arc_easy", "arc_challenge", "mmlu", "gsm8k", "humaneval")
CHATS: Mapping[str, tuple[str, ...]] = {"chatcore-5": _FIVE, "chatcore-6": (*_FIVE, "spelling_bee")}
"""tasks of each definition of ChatCORE; a score of one is never set beside one of the other"""
COUNTERFACTUAL = "counterfactual"
"""the part of a variant that says that each question was swapped for another item's"""
FINETUNED = "finetuned"
FINETUNE_RECORD = "finetune.json"
_NAMED = 3


@dataclass(frozen=True, eq=False)
class Answers:
    """What one model answered to one task: of each item what comparisons need, [item] in the order of `item`."""

    asked: Asked
    record: Mapping[str, Any]
    item: NDArray[np.int64]
    correct: NDArray[np.bool_]
    gold_nats: NDArray[np.float64]
    """NaN where no likelihood was taken"""
    gold_bytes: NDArray[np.float64]
    """NaN where no likelihood was taken, 0 where the answer is no text"""
    margin: NDArray[np.float64]
    """NaN where no likelihood was taken"""
    near_tie: NDArray[np.bool_]
    cropped_shots: NDArray[np.int64]
    cropped_tokens: NDArray[np.int64]
    predictions: Counter[str]
    """items by what was predicted; empty text where nothing was"""
    golds: Counter[str]
    """items by the right answer"""
    problems: Counter[str]
    """items by why they could not be asked or judged"""
    digests: Mapping[str, str]
    """of what must be equal between arms: the item numbers, the prompts and the right answers"""
    finetune: Mapping[str, Any] = field(default_factory=dict)
    """how the model was fine-tuned, whatever cell it was; empty for the cell itself"""

    @property
    def accuracy(self) -> float:
        return float(self.correct.mean())

    @property
    def chance(self) -> float:
        """Of guessing, by the table that the suite goes by."""
        return float(self.record["chance"])

    @property
    def chance_v2(self) -> float | None:
        """Of guessing by the corrected table, where one was given."""
        found = self.record.get("chance_v2")
        return float(found) if isinstance(found, float | int) and 0 <= found < 1 else None

    @property
    def incomplete(self) -> str:
        """What of the task is missing, in words; empty where every item of it was asked."""
        if self.record.get("complete") is True:
            return ""
        return str(self.record.get("missing") or "its record does not say that every item was asked")

    @property
    def core_tasks(self) -> tuple[str, ...]:
        """Every task that the suite's score is made of; empty where neither suite nor record says."""
        if self.asked.suite in CHATS:
            return CHATS[self.asked.suite]
        found = self.record.get("core_tasks")
        return tuple(map(str, found)) if isinstance(found, list) else ()

    @property
    def gold_bits(self) -> NDArray[np.float64]:
        """Bits per byte of the right answer, NaN where there are none."""
        with np.errstate(divide="ignore", invalid="ignore"):
            bits = self.gold_nats / (math.log(2.0) * self.gold_bytes)
        return np.where(self.gold_bytes > 0, bits, np.nan)


@dataclass(frozen=True, eq=False)
class ReadAnswers:
    """All answers of one trained model."""

    where: str
    """which model, as a sentence names it: "tiny/parent/3", "tiny/parent/3 after chat" """
    after: str
    """name of what the cell was fine-tuned with; empty for the cell itself"""
    steps: int
    """updates of the whole run; answers at fewer were given in the middle of the schedule"""
    held: Mapping[Asked, Answers] = field(default_factory=dict)
    faults: tuple[str, ...] = ()
    """what cannot be used and why, a sentence each"""


def read_answers(cell: CellFolder, where: str, summary: Mapping[str, Any]) -> tuple[ReadAnswers, ...]:
    """The cell's own answers first, then those after each fine-tuning of it, by name.

    `summary` is what the complete cell ended with. Nothing is raised: what is damaged is in `faults`. A fine-tuning
    that has not ended has no answers that count, and is left out.
    """
    own = _read(cell.path, where, "", summary["steps"], {})
    folders = sorted(folder for folder in (cell.path / FINETUNED).glob("*") if folder.is_dir())
    ended = [folder for folder in folders if CellFolder(folder).finished]
    return own, *(_read_finetuned(folder, where, summary) for folder in ended)


def _read_finetuned(folder: Path, where: str, summary: Mapping[str, Any]) -> ReadAnswers:
    name = folder.name
    told = f"{where} after {name}"
    try:
        record = read_json(folder / FINETUNE_RECORD, "fine-tune again under this name")
        end = CellFolder(folder).summary()
        if not (why := _finetune_fault(CellFolder(folder), record, end, summary)):
            return _read(folder, told, name, end["steps"], _how_finetuned(record))
    except StudyFolderError as error:
        why = error.what.replace(f"{folder}/", "")
    return ReadAnswers(told, name, 0, faults=(f"Answers of {told} are not used: {why}.",))


def _finetune_fault(folder: CellFolder, record: Any, end: Any, summary: Mapping[str, Any]) -> str:
    """Why answers of a fine-tuned model say nothing about this cell; empty where they do."""
    if folder.state == "diverged":
        return "the fine-tuning diverged, and what is left favours the arm that lost one"
    if not isinstance(record, dict) or not _how_finetuned(record):
        return f"{FINETUNE_RECORD} is not as it was written (it names no settings)"
    if not isinstance(end, dict) or not isinstance(end.get("steps"), int):
        return "DONE is not as it was written (no number of steps)"
    settings = record.get("settings")
    base = settings.get("base") if isinstance(settings, dict) else record.get("base")
    if not isinstance(base, dict) or base.get("final_tensors_digest") != summary.get("final_tensors_digest"):
        return "it was fine-tuned from other values than the cell ended with"
    return "; ".join(folder.alterations()[:_NAMED])


def _how_finetuned(record: Mapping[str, Any]) -> dict[str, Any]:
    """What must be equal between arms: every setting but the cell, or their digest where no setting is on record."""
    settings = record.get("settings")
    if isinstance(settings, dict):
        return {name: value for name, value in settings.items() if name != "base"}
    return {"digest": record["digest"]} if isinstance(record.get("digest"), str) else {}


def _read(folder: Path, where: str, after: str, steps: int, finetune: Mapping[str, Any]) -> ReadAnswers:
    answers, held, faults = AnswersFolder(folder), {}, []
    for asked in answers.all():
        try:
            held[asked] = _answers(answers, asked, finetune)
        except StudyFolderError as error:
            why = f"{error.what} ({error.received})" if error.received else error.what
            said = why.replace(f"{folder}/", "")
            faults.append(f"Answers of {where} to {asked.name} at step {asked.step} are not used: {said}.")
    return ReadAnswers(where, after, steps, held, (*faults, *_without_record(folder, where)))


def _without_record(folder: Path, where: str) -> Iterator[str]:
    lone = sorted(f.stem for f in (folder / GROUP).glob("*.parquet") if not f.with_suffix(".json").exists())
    if lone:
        named = ", ".join(lone[:_NAMED]) + (f" and {len(lone) - _NAMED} more" if len(lone) > _NAMED else "")
        yield (
            f"Answers of {where} without a record are not used ({named}): an evaluation that was interrupted, or of an "
            "earlier version; `paribus evaluate` asks again."
        )


def _answers(folder: AnswersFolder, asked: Asked, finetune: Mapping[str, Any]) -> Answers:
    """StudyFolderError where the record or the rows cannot be used."""
    record, table = folder.record(asked), folder.rows(asked)
    assert record is not None  # `asked` came from its file
    own = (record["suite"], record["task"], record["step"], record["variant"])
    if own != (asked.suite, asked.task, asked.step, asked.variant):
        raise _unusable("its record is that of another task or step", "/".join(map(str, own)))
    lacking = [name for name in SCHEMA.names if name not in table.column_names]
    if lacking or [table.schema.field(name).type for name in SCHEMA.names] != list(SCHEMA.types):
        raise _unusable("its rows have other columns than answers have", ", ".join(lacking))
    may_be_null = ("gold_nats", "gold_bytes", "margin", "nats", "tokens")
    if any(table[name].null_count for name in SCHEMA.names if name not in may_be_null):
        raise _unusable("a row lacks a value that every answer has", "")
    item = table["item"].to_numpy()
    if not len(item) or len(item) != record["items"] or (np.diff(item) <= 0).any():
        raise _unusable(
            "its rows are not one an item in the items' order", f"{len(item)} rows, {record['items']} items"
        )
    columns = {name: table[name].cast(pa.float64()).to_numpy() for name in ("gold_nats", "gold_bytes", "margin")}
    if any((~np.isfinite(values)).sum() != table[name].null_count for name, values in columns.items()):
        raise _unusable("a likelihood is not finite, as no trained model gives it", "")
    problems = Counter(table["problem"].to_pylist())
    del problems[""]
    return Answers(
        asked=asked,
        record=record,
        item=item,
        correct=table["correct"].to_numpy(),
        near_tie=table["near_tie"].to_numpy(),
        cropped_shots=table["cropped_shots"].to_numpy(),
        cropped_tokens=table["cropped_tokens"].to_numpy(),
        predictions=Counter(table["prediction"].to_pylist()),
        golds=Counter(table["gold"].to_pylist()),
        problems=problems,
        digests={
            "items": _digest(item.astype("<i8").tobytes()),
            "prompts": _digest("\n".join(table["prompt_digest"].to_pylist()).encode()),
            "right answers": _digest("\x1f".join(table["gold"].to_pylist()).encode()),
            "lengths of the right answers": _digest(columns["gold_bytes"].tobytes()),
            "prompts, as they were cropped": _digest(
                table["cropped_shots"].to_numpy().tobytes() + table["cropped_tokens"].to_numpy().tobytes()
            ),
        },
        finetune=finetune,
        **columns,
    )


def _digest(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=16).hexdigest()


def _unusable(what: str, received: str) -> StudyFolderError:
    return StudyFolderError(what, received=received, remedy="ask again: paribus evaluate")
