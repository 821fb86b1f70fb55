"""Tiny bundles of CORE tasks, and tokenizers of several kinds to read them with."""

import csv
import io
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from paribus.data.config import TokenizerConfig
from paribus.data.tokenizer import Tokenizer
from paribus.data.tokenizers.files import from_ranks
from paribus.downstream.core.bundle import Bundle, CoreTask, read_bundle

TEXTS = [
    "Question: what is heavier, water or oil?\nAnswer: water\n\nQuestion: who sails?\nAnswer: the sailor sails.",
    "The capital of France is Paris. The cat didn't see the dog because the dog hid; 123 dogs hid, 4567 did not!",
    "Passage: it rained all day long.\nQuestion: did it rain?\nAnswer: yes\n\nA. tree\nB. house\nAnswer:",
]


@pytest.fixture(scope="session")
def tokenizers() -> dict[str, Tokenizer]:
    """A tokenizer of each way in which safe cuts are known: two known patterns, no splitting, and unknown patterns: one
    that takes a text as a whole, one of words, and one that takes the rest of a line behind # as a whole."""
    single = [bytes([byte]) for byte in range(256)]
    merged = [*single, b"th", b"the", b"in", b": ", b" a", b"er", b"e ", b"e c", b"e ca"]
    whole = from_ranks(merged, r"(?m:.+)", {"<|bos|>": len(merged)})
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
    return {
        "gpt2": Tokenizer.train(TEXTS, 330),
        "nanochat": Tokenizer.train(TEXTS, TokenizerConfig(vocabulary_size=340, pre_tokenizer="nanochat")),
        "whole": Tokenizer(whole),
        "unsplit": Tokenizer(whole | {"pre_tokenizer": byte_level}),
        "comments": Tokenizer(from_ranks(merged, r"#.*|\w+|[^\w\s]+|\s+", {"<|bos|>": len(merged)})),
        "words": Tokenizer(from_ranks(merged, r"\w+|[^\w\s]+|\s+", {"<|bos|>": len(merged)})),
    }


@pytest.fixture(scope="session")
def tokenizer(tokenizers: dict[str, Tokenizer]) -> Tokenizer:
    return tokenizers["gpt2"]


def listed(label: str, kind: str, shots: int = 0, delimiter: str = " ") -> dict[str, Any]:
    return {
        "label": label,
        "dataset_uri": f"group/{label}.jsonl",
        "num_fewshot": [shots],
        "icl_task_type": kind,
        "continuation_delimiter": delimiter,
    }


@pytest.fixture
def write_bundle(tmp_path: Path) -> Callable[..., Path]:
    """Write a bundle of tasks; `rows` are objects, or bytes that stand in the file as they are."""

    def write(
        tasks: Mapping[str, tuple[str, Sequence[Any]]] | None = None,
        *,
        shots: int = 0,
        delimiter: str = " ",
        baselines: Mapping[str, float] | None = None,
        name: str = "bundle",
    ) -> Path:
        tasks = TASKS if tasks is None else tasks
        folder = tmp_path / name
        (folder / "eval_data" / "group").mkdir(parents=True)
        entries = [listed(label, kind, shots, delimiter) for label, (kind, _) in tasks.items()]
        # JSON is YAML.
        (folder / "core.yaml").write_text(json.dumps({"icl_tasks": entries}))
        for label, (_, rows) in tasks.items():
            lines = [row if isinstance(row, bytes) else json.dumps(row).encode() for row in rows]
            (folder / "eval_data" / "group" / f"{label}.jsonl").write_bytes(b"\n".join(lines) + b"\n")
        table = io.StringIO()
        writer = csv.writer(table)
        writer.writerow(["Eval Task", "Task Category", "Random baseline", "Description"])
        for label in tasks:
            writer.writerow([label, "a, b", (baselines or {}).get(label, 25), 'says "so", twice'])
        (folder / "eval_meta_data.csv").write_text(table.getvalue())
        return folder

    return write


@pytest.fixture
def one_task(write_bundle: Callable[..., Path]) -> Callable[..., CoreTask]:
    """The only task of a bundle that holds these rows."""

    def task(kind: str, rows: Sequence[Any], **options: Any) -> CoreTask:
        bundle: Bundle = read_bundle(write_bundle({"task": (kind, rows)}, **options))
        return bundle.tasks[0]

    return task


WORDS = [
    *("water", "oil", "tree", "house", "dog", "cat", "rain", "sun"),
    *("boat", "road", "seven", "eleven", "green", "silver", "quick", "slow"),
]
CHOICES = [
    {
        "query": f"Question: which is {word}? {'so ' * (place % 4)}",
        "choices": [word, f"no {word}", "none"],
        "gold": place % 3,
    }
    for place, word in enumerate(WORDS)
]
SCHEMAS = [
    {
        "context_options": [f"The {word} saw Ann so Ann", f"The {word} saw Ann so the {word}"],
        "continuation": f"ran {place}.",
        "gold": place % 2,
    }
    for place, word in enumerate(WORDS)
]
PASSAGES = [
    {"context": f" The color of a {word} in the year {place} was ", "continuation": f"{word} {WORDS[place - 1]}"}
    for place, word in enumerate(WORDS)
]
TASKS: dict[str, tuple[str, Sequence[Any]]] = {
    "picks": ("multiple_choice", CHOICES),
    "schemas": ("schema", SCHEMAS),
    "passages": ("language_modeling", PASSAGES),
}


@pytest.fixture
def rows_of() -> dict[str, Sequence[Any]]:
    """Rows of each kind."""
    return dict(TASKS.values())
