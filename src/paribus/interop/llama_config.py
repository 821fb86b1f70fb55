"""The config.json of a Llama decoder in the Hugging Face layout, as our PreNorm backbone: its shape, or a refusal.

What `LlamaForCausalLM` computes depends on the keys that are read here, and on no others; those that our backbone has
no place for are refused unless they say what it does anyway. A folder whose own code computes the model (`auto_map`)
may do anything, and is refused.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from paribus.interop.errors import ForeignModelError
from paribus.model.config import PrenormConfig
from paribus.refusal import refusal

CONFIG = "config.json"
ARCHITECTURE = "LlamaForCausalLM"
_SIZES: Mapping[str, str] = {
    "num_hidden_layers": "layers",
    "hidden_size": "width",
    "intermediate_size": "mlp_width",
    "vocab_size": "vocabulary_size",
}
_DEFAULTS: dict[str, Any] = {"max_position_embeddings": 2048, "rms_norm_eps": 1e-6, "rope_theta": 10_000.0}
"""of `LlamaConfig`, where a file does not say"""
_ONLY: Mapping[str, tuple[Any, ...]] = {
    "hidden_act": ("silu",),
    "attention_bias": (False,),
    "mlp_bias": (False,),
    "sliding_window": (None,),
    "quantization_config": (None,),
    "auto_map": (None,),
    "partial_rotary_factor": (None, 1, 1.0),
}
"""keys with the values that mean what the backbone does; a key that is absent means the first"""
_ROPE = ("rope_scaling", "rope_parameters")
_WITHOUT_SCALING = (None, "default")


@dataclass(frozen=True)
class LlamaConfig:
    """What config.json says."""

    config: PrenormConfig
    tied: bool
    """whether the head is the embedding, so that no file need hold it"""
    bos_id: int | None
    """the token with which a document begins; None where the file does not say"""
    table: Mapping[str, Any]
    """the file as it is"""


def read_config(folder: Path) -> LlamaConfig:
    """config.json of a folder. ForeignModelError where it is missing or damaged, and for what the backbone is not."""
    path = folder / CONFIG
    table = _table(path)
    architectures = table.get("architectures") or [ARCHITECTURE]
    if table.get("model_type") != "llama" or architectures != [ARCHITECTURE]:
        raise ForeignModelError(
            f"{path} describes another model",
            expected=f'"model_type": "llama", and "architectures": ["{ARCHITECTURE}"]',
            received=f"{json.dumps(table.get('model_type'))}, {json.dumps(architectures)}"[:160],
            remedy="only plain Llama decoders can be imported; other architectures compute something else",
        )
    for key, allowed in _ONLY.items():
        if (found := table.get(key, allowed[0])) not in allowed:
            raise _unlike(path, key, found, json.dumps(allowed[0]))
    if any(kind != "full_attention" for kind in table.get("layer_types") or ()):
        raise _unlike(path, "layer_types", table["layer_types"], '"full_attention" in every layer')
    fields = {ours: _whole(path, table, key) for key, ours in _SIZES.items()}
    heads = _whole(path, table, "num_attention_heads")
    kv_heads = heads if table.get("num_key_value_heads") is None else _whole(path, table, "num_key_value_heads")
    width = fields["width"]
    if width % heads or heads % kv_heads:
        sizes = f"hidden_size {width}, num_attention_heads {heads}, num_key_value_heads {kv_heads}"
        raise _damaged(path, "num_attention_heads divides hidden_size, num_key_value_heads divides it", sizes)
    if table.get("head_dim") not in (None, width // heads):
        raise _unlike(path, "head_dim", table["head_dim"], f"hidden_size / num_attention_heads = {width // heads}")
    return LlamaConfig(
        config=_validated(
            path,
            {
                **fields,
                "context_length": _whole(path, _DEFAULTS | dict(table), "max_position_embeddings"),
                "head_width": width // heads,
                "query_heads_per_kv_head": heads // kv_heads,
                "rotary_base": _rotary_base(path, table),
                "norm_eps": _number(path, _DEFAULTS | dict(table), "rms_norm_eps"),
                "qk_norm": False,
                "normalise_embedding": False,
            },
        ),
        tied=table.get("tie_word_embeddings") is True,
        bos_id=table["bos_token_id"] if type(table.get("bos_token_id")) is int else None,
        table=table,
    )


def _rotary_base(path: Path, table: Mapping[str, Any]) -> float:
    """In the file's own key, or since transformers 5 in the table of rotary parameters."""
    base = _number(path, _DEFAULTS | dict(table), "rope_theta")
    for key in _ROPE:
        rope = table.get(key)
        if rope is None:
            continue
        if not isinstance(rope, dict) or rope.get("rope_type", rope.get("type")) not in _WITHOUT_SCALING:
            raise _unlike(path, key, rope, "no scaling of rotary frequencies")
        if rope.get("partial_rotary_factor") not in _ONLY["partial_rotary_factor"]:
            raise _unlike(path, f"{key}.partial_rotary_factor", rope["partial_rotary_factor"], "1")
        if "rope_theta" in rope:
            base = _number(path, rope, "rope_theta")
    return base


def _validated(path: Path, fields: Mapping[str, Any]) -> PrenormConfig:
    try:
        return PrenormConfig.model_validate(fields)
    except ValidationError as error:
        found = refusal(error, str(path), PrenormConfig)
        raise ForeignModelError(
            found.what, expected=found.expected, received=found.received, remedy=found.remedy
        ) from error


def _table(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"), parse_constant=_no_number)
    except FileNotFoundError as error:
        raise ForeignModelError(
            "no Llama model in the Hugging Face layout is there",
            expected=f"a folder with {CONFIG}, model.safetensors (or its shards and their index) and tokenizer.json",
            received=f"{path.parent}, without {CONFIG}" if path.parent.is_dir() else f"no folder {path.parent}",
            remedy="name the folder that holds the model's files",
        ) from error
    except (OSError, ValueError) as error:
        raise _damaged(path, "a JSON file", f"{type(error).__name__}: {error}") from error
    if not isinstance(found, dict):
        raise _damaged(path, "a JSON table", type(found).__name__)
    return found


def _no_number(word: str) -> float:
    raise ValueError(f"{word} is no number of JSON")


def _whole(path: Path, table: Mapping[str, Any], key: str) -> int:
    value = table.get(key)
    if type(value) is not int or value < 1:
        raise _damaged(path, f"{key}: a whole number, at least 1", json.dumps(value)[:80])
    return value


def _number(path: Path, table: Mapping[str, Any], key: str) -> float:
    value = table.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise _damaged(path, f"{key}: a number", json.dumps(value)[:80])
    return float(value)


def _unlike(path: Path, key: str, found: object, expected: str) -> ForeignModelError:
    return ForeignModelError(
        f"{path}: {key} makes this another model than our backbone can be",
        expected=f"{key}: {expected}",
        received=json.dumps(found)[:160],
        remedy="import a model without it; changing the key would change what the weights mean",
    )


def _damaged(path: Path, expected: str, received: str) -> ForeignModelError:
    return ForeignModelError(
        f"{path} cannot be used",
        expected=expected,
        received=received,
        remedy="copy it again from where the model comes from",
    )
