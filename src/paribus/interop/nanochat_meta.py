"""The JSON file beside a nanochat checkpoint: the model's shape, how it was trained, and what it scored."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from paribus.interop.errors import ForeignModelError
from paribus.model.config import NanochatConfig
from paribus.refusal import refusal

SHAPE = ("sequence_len", "vocab_size", "n_layer", "n_head", "n_kv_head", "n_embd", "window_pattern")
"""keys of `model_config`; another one would change what the weights mean"""
MLP_FACTOR = 4
"""hidden features of an MLP are this times the width"""
ERA = "a checkpoint of nanochat as of April to July 2026"


@dataclass(frozen=True)
class Meta:
    """What is read of `meta_<step>.json`."""

    config: NanochatConfig
    shape: Mapping[str, int | str]
    """`model_config`, as it stands in the file"""
    step: int
    val_bpb: float | None
    """bits per byte of nanochat's own validation, after this step; None where it was not measured"""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    """`user_config`: what the training program was called with"""
    total_batch_tokens: int | None = None
    """tokens of one update; None where the file does not say"""


def read_meta(path: Path, step: int) -> Meta:
    """The meta file of a checkpoint. ForeignModelError where it is missing, damaged, or of a model that is not ours."""
    table = _table(path)
    shape = table.get("model_config")
    if not isinstance(shape, dict):
        raise _damaged(path, "a table model_config with " + ", ".join(SHAPE), repr(shape)[:80])
    missing, extra = [key for key in SHAPE if key not in shape], sorted(shape.keys() - set(SHAPE))
    if missing:
        raise ForeignModelError(
            f"{path.name}: model_config lacks {', '.join(missing)}: this is not the model that can be imported",
            expected=ERA,
            received="model_config with " + ", ".join(shape),
            remedy="import a newer checkpoint; what an older model computes cannot be told from its weights",
        )
    if extra:
        raise ForeignModelError(
            f"{path.name}: model_config has {', '.join(extra)}, which nanochat's own model does not know",
            expected=ERA + ": model_config with " + ", ".join(SHAPE),
            received=", ".join(f"{key} = {json.dumps(shape[key])}" for key in extra),
            remedy="this is a fork's checkpoint; train the idea here as an arm instead (see docs/howto)",
        )
    arguments = table.get("user_config")
    batch = table.get("total_batch_size")
    return Meta(
        config=_config(path, shape),
        shape=dict(shape),
        step=_step(path, table, step),
        val_bpb=_number(table.get("val_bpb")),
        arguments=dict(arguments) if isinstance(arguments, dict) else {},
        total_batch_tokens=batch if isinstance(batch, int) and not isinstance(batch, bool) and batch > 0 else None,
    )


def _config(path: Path, shape: Mapping[str, Any]) -> NanochatConfig:
    whole = [key for key in SHAPE if key != "window_pattern"]
    for key in whole:
        if not isinstance(shape[key], int) or isinstance(shape[key], bool) or shape[key] < 1:
            raise _damaged(path, f"model_config.{key}: a whole number, at least 1", json.dumps(shape[key]))
    width, heads, kv_heads = shape["n_embd"], shape["n_head"], shape["n_kv_head"]
    if width % heads or heads % kv_heads:
        raise _damaged(
            path,
            "model_config: n_head divides n_embd, n_kv_head divides n_head",
            f"n_embd {width}, n_head {heads}, n_kv_head {kv_heads}",
        )
    fields = {
        "layers": shape["n_layer"],
        "width": width,
        "head_width": width // heads,
        "query_heads_per_kv_head": heads // kv_heads,
        "mlp_width": MLP_FACTOR * width,
        "vocabulary_size": shape["vocab_size"],
        "context_length": shape["sequence_len"],
        "window_pattern": shape["window_pattern"].upper()
        if isinstance(shape["window_pattern"], str)
        else shape["window_pattern"],
    }
    try:
        return NanochatConfig.model_validate(fields)
    except ValidationError as error:
        found = refusal(error, f"{path.name}: model_config", NanochatConfig)
        raise ForeignModelError(
            found.what, expected=found.expected, received=found.received, remedy=found.remedy
        ) from error


def _step(path: Path, table: Mapping[str, Any], step: int) -> int:
    if table.get("step", step) != step:
        raise _damaged(path, f"step {step}, as its name says", json.dumps(table["step"]))
    return step


def _table(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ForeignModelError(
            f"{path.name} is missing: without it the model's shape is not known",
            expected=f"{path}, which nanochat writes beside the weights",
            received="no such file",
            remedy="copy it from where the checkpoint comes from",
        ) from error
    except (OSError, ValueError) as error:
        raise _damaged(path, "a JSON file, as nanochat writes it", f"{type(error).__name__}: {error}") from error
    if not isinstance(found, dict):
        raise _damaged(path, "a JSON table", type(found).__name__)
    return found


def _number(value: object) -> float | None:
    """None for what is no finite number: JSON files of Python may hold NaN and infinity."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)


def _damaged(path: Path, expected: str, received: str) -> ForeignModelError:
    return ForeignModelError(
        f"{path.name} cannot be used",
        expected=expected,
        received=received,
        remedy="copy it again from where the checkpoint comes from",
    )
