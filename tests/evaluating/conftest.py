"""A tiny CORE bundle, a tiny model with a tokenizer, and a tiny study whose file asks the bundle."""

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from paribus.data.config import NANOCHAT_SPECIAL_TOKENS, TokenizerConfig
from paribus.data.tokenizer import Tokenizer
from paribus.mechanisms import resolve
from paribus.mechanisms.contract import Seam
from paribus.model.build import build_model
from paribus.model.config import PrenormConfig
from paribus.seeds import generator
from paribus.trained import Trained

WORDS = ("red", "blue", "green", "black", "white", "brown", "pink", "grey")
TASKS = {
    "arc_easy": ("multiple_choice", 1, "\nAnswer: "),
    "lambada_openai": ("language_modeling", 0, " "),
    "winograd": ("schema", 0, " "),
}


def _row(kind: str, item: int) -> dict[str, Any]:
    pick = generator("evaluating", "rows", kind, item)
    a, b, c = (WORDS[index] for index in pick.permutation(len(WORDS))[:3])
    if kind == "multiple_choice":
        return {"query": f"The {a} thing is next to the {b} one; which is it", "choices": [a, b, c], "gold": item % 3}
    if kind == "language_modeling":
        return {"context": f"First {a}, then {b}, then {c}, then {a}, then", "continuation": b}
    return {"context_options": [f"The {a} hat", f"The {b} hat"], "continuation": f"fits {c}", "gold": item % 2}


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    """Three tasks of twelve items."""
    folder = tmp_path / "bundle"
    (folder / "eval_data").mkdir(parents=True)
    listed = [
        {
            "label": label,
            "dataset_uri": f"{label}.jsonl",
            "num_fewshot": [shots],
            "icl_task_type": kind,
            "continuation_delimiter": delimiter,
        }
        for label, (kind, shots, delimiter) in TASKS.items()
    ]
    (folder / "core.yaml").write_text(json.dumps({"icl_tasks": listed}))  # JSON is YAML
    for label, (kind, _, _) in TASKS.items():
        rows = [json.dumps(_row(kind, item)) for item in range(12)]
        (folder / "eval_data" / f"{label}.jsonl").write_text("\n".join(rows) + "\n")
    with (folder / "eval_meta_data.csv").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["Eval Task", "Random baseline"])
        table.writerows([["arc_easy", 25], ["lambada_openai", 0], ["winograd", 50]])
    return folder


@pytest.fixture(scope="session")
def tokenizer() -> Tokenizer:
    texts = [" ".join(WORDS), "First red, then blue. The green hat fits; which is it\nAnswer: 12 + 34 = 46"]
    config = TokenizerConfig(300, pre_tokenizer="nanochat", special_tokens=NANOCHAT_SPECIAL_TOKENS)
    return Tokenizer.train(texts, config)


@pytest.fixture
def opened(tmp_path: Path, tokenizer: Tokenizer) -> Callable[[], Trained]:
    """A model with random values, as `open_model` would give it."""
    config = PrenormConfig(
        layers=2, width=32, mlp_width=48, head_width=16, vocabulary_size=300, context_length=128, qk_norm=True
    )
    mechanisms = {seam: resolve(seam, None, str(seam)) for seam in Seam}
    model = build_model(config, mechanisms, ("evaluating", "model"))
    return lambda: Trained("tiny", tmp_path / "model", 7, model, tokenizer)
