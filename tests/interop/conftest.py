"""A checkpoint folder as nanochat writes it: weights by its names, the meta file beside them."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from paribus.data.config import NANOCHAT_SPECIAL_TOKENS, TokenizerConfig
from paribus.data.tokenizer import Tokenizer
from paribus.data.tokenizers.patterns import NANOCHAT
from paribus.seeds import generator

SHAPE: Mapping[str, Any] = {
    "sequence_len": 32,
    "vocab_size": 280,
    "n_layer": 2,
    "n_head": 2,
    "n_kv_head": 1,
    "n_embd": 32,
    "window_pattern": "SL",
}
ARGUMENTS: Mapping[str, Any] = {
    "run": "dummy",
    "depth": 2,
    "aspect_ratio": 16,
    "head_dim": 16,
    "target_param_data_ratio": 12.0,
    "device_batch_size": 4,
    "total_batch_size": -1,
    "num_iterations": -1,
    "target_flops": -1.0,
}
Write = Callable[..., Path]


def state_of(shape: Mapping[str, Any] = SHAPE) -> dict[str, Tensor]:
    """Every tensor of a model of this shape, written down from nanochat's module tree, with noise for values."""
    width, layers, rows = shape["n_embd"], shape["n_layer"], -(-shape["vocab_size"] // 64) * 64
    values = shape["n_kv_head"] * width // shape["n_head"]
    shapes: dict[str, tuple[int, ...]] = {
        "transformer.wte.weight": (rows, width),
        "lm_head.weight": (rows, width),
        "resid_lambdas": (layers,),
        "x0_lambdas": (layers,),
        "smear_gate.weight": (1, 24),
        "smear_lambda": (1,),
        "backout_lambda": (1,),
    }
    for n in range(layers):
        block = f"transformer.h.{n}"
        shapes |= {f"{block}.attn.c_q.weight": (width, width), f"{block}.attn.c_proj.weight": (width, width)}
        shapes |= {f"{block}.attn.{name}.weight": (values, width) for name in ("c_k", "c_v")}
        shapes |= {f"{block}.mlp.c_fc.weight": (4 * width, width), f"{block}.mlp.c_proj.weight": (width, 4 * width)}
        if n % 2 == (layers - 1) % 2:
            shapes[f"value_embeds.{n}.weight"] = (rows, values)
            shapes[f"{block}.attn.ve_gate.weight"] = (shape["n_kv_head"], 12)
    draw = generator("tests", "interop", "state")
    return {
        name: torch.from_numpy(draw.standard_normal(sizes, dtype="float32") * 0.2) for name, sizes in shapes.items()
    }


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write a checkpoint into base_checkpoints/d2 and name the folder; `state` None leaves the weights out."""

    def checkpoint(
        state: Any = ...,
        *,
        step: int = 7,
        model_config: Any = SHAPE,
        meta: Mapping[str, Any] | None = None,
        tag: str = "d2",
    ) -> Path:
        folder = tmp_path / "base_checkpoints" / tag
        folder.mkdir(parents=True, exist_ok=True)
        torch.save(state_of() if state is ... else state, folder / f"model_{step:06d}.pt")
        table = {
            "step": step,
            "val_bpb": 1.25,
            "model_config": model_config,
            "user_config": dict(ARGUMENTS),
            "total_batch_size": 1024,
            "loop_state": {"min_val_bpb": float("inf")},
        }
        (folder / f"meta_{step:06d}.json").write_text(json.dumps(table | dict(meta or {})))
        return folder

    return checkpoint


@pytest.fixture(scope="session")
def tokenizer() -> Tokenizer:
    """280 tokens in nanochat's layout."""
    draw = generator("tests", "interop", "texts")
    words = ["".join(draw.choice(list("abcdefgh"), size=draw.integers(2, 7))) for _ in range(2000)]
    config = TokenizerConfig(280, pre_tokenizer="nanochat", special_tokens=NANOCHAT_SPECIAL_TOKENS)
    found = Tokenizer.train([" ".join(words)], config)
    assert found.vocabulary_size == 280
    return found


def ranks_of(tokenizer: Tokenizer) -> dict[str, Any]:
    """What the conversion writes in nanochat's environment."""
    plain = tokenizer.vocabulary_size - len(tokenizer.special_tokens)
    return {
        "pattern": NANOCHAT,
        "mergeable_ranks_hex": {tokenizer.decode_bytes([index]).hex(): index for index in range(plain)},
        "special_tokens": dict(tokenizer.special_tokens),
    }


@pytest.fixture
def ranks(tokenizer: Tokenizer, tmp_path: Path) -> Path:
    path = tmp_path / "ranks.json"
    path.write_text(json.dumps(ranks_of(tokenizer)))
    return path
