"""nanochat's mixtures of April and July 2026, as the tables that a mixture file would otherwise hold.

Facts: github.com/karpathy/nanochat, its fine-tuning script at both dates. On 2026-07-03 the spelling tasks and the
identity conversations were removed. Data sets lie below --data as the hub's automatic Parquet does:
<owner>--<name>/<subset>/<split>. The spelling conversations are our own (`paribus.downstream.chat.spelling`).
"""

from collections.abc import Mapping
from typing import Any

_SMOLTALK = {"source": "conversations", "path": "HuggingFaceTB--smol-smoltalk/default"}
_MMLU = {"source": "mmlu", "path": "cais--mmlu/all"}
_GSM8K = {"source": "gsm8k", "path": "openai--gsm8k/main"}
_WORDS = {
    "path": "words_alpha.txt",
    "fetch": "a list of English words, one a line (words_alpha.txt of dwyl/english-words)",
}


def _of_the_hub(repository: str, subset: str, split: str) -> str:
    return f"the Parquet files of {repository} on the Hugging Face hub, subset {subset}, split {split}"


_TALK = _SMOLTALK | {"split": "train", "fetch": _of_the_hub("HuggingFaceTB/smol-smoltalk", "default", "train")}
_IDENTITY = {
    "source": "conversations",
    "path": "identity_conversations.jsonl",
    "epochs": 2,
    "fetch": "conversations about who the assistant is, one JSON list of messages a line",
}
_QUESTIONS = {
    "source": "mmlu",
    "path": "cais--mmlu/auxiliary_train",
    "split": "train",
    "epochs": 3,
    "rows_expected": 99_842,
    "fetch": _of_the_hub("cais/mmlu", "auxiliary_train", "train"),
}
_SUMS = _GSM8K | {
    "split": "train",
    "epochs": 4,
    "rows_expected": 7473,
    "fetch": _of_the_hub("openai/gsm8k", "main", "train"),
}
_SPELLING = [
    _WORDS | {"source": "simple-spelling", "rows": 200_000},
    _WORDS | {"source": "spelling-bee", "rows": 80_000},
]
_BOTH = {
    "validation": [
        _SMOLTALK | {"split": "test", "fetch": _of_the_hub("HuggingFaceTB/smol-smoltalk", "default", "test")},
        _MMLU
        | {
            "split": "test",
            "rows": 5200,
            "rows_expected": 14_042,
            "fetch": _of_the_hub("cais/mmlu", "all", "test"),
        },
        _GSM8K
        | {
            "split": "test",
            "rows": 420,
            "rows_expected": 1319,
            "fetch": _of_the_hub("openai/gsm8k", "main", "test"),
        },
    ],
    "validation_updates": 200,
    "order": "nanochat",
    "buffer": 100,
    "training": {
        "too_long": "truncate",
        "warm_start": True,
        "rate_factor": 0.8,
        "rates_at_batch_tokens": 2**19,
        "warmup": 0.0,
        "decay": 0.5,
        "final": 0.0,
        "matrix_weight_decay": 0.0,
        "momentum_initial": 0.85,
        "momentum": 0.95,
        "momentum_warmup_updates": 300,
    },
}
# The order of the parts is the original's: its shuffle by seed 42 depends on it.
PRESETS: Mapping[str, Mapping[str, Any]] = {
    "nanochat-2026-04": _BOTH | {"parts": [_TALK, _IDENTITY, _QUESTIONS, _SUMS, *_SPELLING]},
    "nanochat-2026-07": _BOTH | {"parts": [_TALK, _QUESTIONS, _SUMS]},
}
