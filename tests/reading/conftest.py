"""Answers of models that never ran, with a known truth: what a question is, and what a model made of it."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from paribus.reading.answers import ReadAnswers, read_answers
from paribus.runs.answers import AnswersFolder, Asked
from paribus.runs.folder import CellFolder
from paribus.runs.records import write_json
from paribus.seeds import generator

END = 20
"""updates of every cell here"""


@dataclass(frozen=True)
class Given:
    """Answers that are drawn: what of them is known before."""

    suite: str = "core"
    task: str = "arc_easy"
    variant: str = ""
    kind: str = "choices"
    items: int = 400
    accuracy: float = 0.4
    chance: float = 0.25
    letters: str = "ABCD"
    gold_bits: float = 1.5
    """mean over items, before each item's own"""
    says: str = ""
    """one letter for every item; empty for what `accuracy` gives"""
    problems: int = 0
    """items at the beginning that could not be asked"""
    settings: Mapping[str, object] = field(default_factory=lambda: {"shots": 10, "tokenizer": "abc"})
    record: Mapping[str, object] = field(default_factory=dict)
    prompts: str = ""
    """what else than task and item the prompts depend on"""


def answers_of(given: Given, *key: str | int) -> dict[str, list]:
    """Columns of the rows; draws are by task and item for what a question is, by `key` for what a model makes of it."""
    number = given.items
    question, own = generator("tests", "question", given.task), generator("tests", "answers", given.task, *key)
    right = [given.letters[i] for i in question.integers(0, len(given.letters), number)]
    lengths, hard = question.integers(2, 20, number), question.normal(0.0, 0.3, number)
    hit = own.random(number) < given.accuracy
    other = [given.letters[(given.letters.index(gold) + 1) % len(given.letters)] for gold in right]
    said = [gold if yes else wrong for gold, wrong, yes in zip(right, other, hit, strict=True)]
    said = [given.says] * number if given.says else said
    nats = math.log(2.0) * lengths * (given.gold_bits + hard + own.normal(0.0, 0.1, number))
    lost = [place < given.problems for place in range(number)]
    likely = given.kind in ("choices", "exact")
    return {
        "item": list(range(number)),
        "prompt_digest": [f"{given.task}-{given.prompts}-{place}"[:16] for place in range(number)],
        "prediction": ["" if gone else letter for letter, gone in zip(said, lost, strict=True)],
        "gold": right,
        "correct": [one == gold and not gone for one, gold, gone in zip(said, right, lost, strict=True)],
        "chance": [given.chance] * number,
        "gold_nats": [None if gone or not likely else float(value) for value, gone in zip(nats, lost, strict=True)],
        "gold_bytes": [None if gone or not likely else int(size) for size, gone in zip(lengths, lost, strict=True)],
        "nats": [[] for _ in range(number)],
        "tokens": [[] for _ in range(number)],
        "margin": [None if gone else float(yes) - 0.5 for yes, gone in zip(hit, lost, strict=True)],
        "near_tie": [place % 100 == 7 for place in range(number)],
        "cropped_shots": [int(place % 200 == 3) for place in range(number)],
        "cropped_tokens": [0] * number,
        "problem": ["longer than the context" if gone else "" for gone in lost],
    }


def give(folder: Path, given: Given, step: int, *key: str | int) -> dict[str, list]:
    """Write answers into the folder of a trained model; return their columns."""
    columns = answers_of(given, *key)
    record = {"kind": given.kind, "chance": given.chance, "settings": dict(given.settings), **given.record}
    AnswersFolder(folder).write(Asked(given.suite, given.task, step, given.variant), columns, record)
    return columns


def finetune(cell: CellFolder, name: str, digest: str = "ab12", steps: int = 6) -> Path:
    """What a fine-tuning leaves in a cell, as far as a reader needs it."""
    folder = cell.path / "finetuned" / name
    base = {"digest": "0", "final_tensors_digest": cell.summary()["final_tensors_digest"]}
    write_json(folder / "finetune.json", {"name": name, "digest": digest, "base": base})
    CellFolder(folder).append_metrics({"step": steps})
    CellFolder(folder).finish({"steps": steps})
    return folder


@dataclass(frozen=True)
class Asking:
    """Cells that are nothing but what was asked of them."""

    folder: Path

    def cell(self, arm: str, seed: int) -> CellFolder:
        """A finished cell without a row of its own."""
        found = CellFolder(self.folder / arm / str(seed))
        if not found.finished:
            found.finish({"steps": END, "final_tensors_digest": f"{arm}{seed}"})
        return found

    def give(self, arm: str, seed: int, given: Given, step: int = END) -> None:
        give(self.cell(arm, seed).path, given, step, arm, seed)

    def read(self, arm: str, seed: int) -> tuple[ReadAnswers, ...]:
        cell = self.cell(arm, seed)
        return read_answers(cell, f"tiny/{arm}/{seed}", cell.summary())


@pytest.fixture
def asking(tmp_path: Path) -> Asking:
    return Asking(tmp_path)


@pytest.fixture
def given() -> type[Given]:
    return Given


@pytest.fixture
def tune() -> Callable[..., Path]:
    return finetune


@pytest.fixture
def put() -> Callable[..., dict[str, list]]:
    return give
