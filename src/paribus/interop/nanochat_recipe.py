"""From a checkpoint's meta file to an experiment file: the model's shape, and the recipe that it was trained with.

The file starts from our preset of nanochat and says what this checkpoint's training program was called with, carried
to its width, batch and budget by nanochat's own rules (`paribus.recipes.rules`). What was given explicitly wins; an
argument that the meta file does not hold is nanochat's default. Unlike where a scale is derived from its depth, the
decay of matrices follows from the tokens that the ratio asks for, also where the number of updates was given: so does
nanochat.
"""

import json
import math
import re
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from paribus.interop.nanochat_meta import MLP_FACTOR, Meta
from paribus.mechanisms import IDENTITY, mechanisms
from paribus.mechanisms.contract import Seam
from paribus.model.config import NanochatConfig
from paribus.recipes.config import Derive
from paribus.recipes.presets import PRESETS
from paribus.recipes.rules import batch_rule, scaling_parameters, width_of

PRESET = PRESETS["nanochat-2026-07"]
_RATES, _SCHEDULE = PRESET.base["optimiser"], PRESET.base["schedule"]
DEFAULTS: Mapping[str, float] = {
    "aspect_ratio": Derive.model_fields["aspect_ratio"].default,
    "head_dim": PRESET.base["model"]["head_width"],
    "num_iterations": -1,
    "target_flops": -1,
    "target_param_data_ratio": Derive.model_fields["tokens_per_parameter"].default,
    "device_batch_size": 32,
    "total_batch_size": -1,
    "embedding_lr": _RATES["embedding_learning_rate"],
    "unembedding_lr": _RATES["head_learning_rate"],
    "matrix_lr": _RATES["matrix_learning_rate"],
    "scalar_lr": _RATES["embedding_scale_learning_rate"],
    "weight_decay": _RATES["matrix_weight_decay"],
    "warmup_steps": PRESET.reference.warmup_updates,
    "warmdown_ratio": _SCHEDULE["decay"],
    "final_lr_frac": _SCHEDULE["final"],
}
"""the training program's arguments that a recipe needs, and its defaults; -1 leaves a choice to its rules"""
VALUE_EMBEDDING_SHARE = _RATES["value_embedding_learning_rate"] / _RATES["embedding_learning_rate"]
STREAM_SCALE_SHARE = _RATES["stream_scale_learning_rate"] / _RATES["embedding_scale_learning_rate"]
NO_DECAY = 1e-9
"""share of a run in which no update stands: of a schedule without a decay, whose momentum still needs one"""
_NAME = re.compile(r"[^A-Za-z0-9_.-]+")


@dataclass(frozen=True)
class Derived:
    """The recipe in numbers."""

    batch_tokens: int
    updates: int
    budget: str
    """where the number of updates comes from, in words"""
    device_rows: int
    width_factor: float
    """of the rates of tables and head"""
    batch_factor: float
    """of every rate but the shortcuts'"""
    decay_factor: float
    """of the decay of matrices"""
    arguments: Mapping[str, float]
    assumed: tuple[str, ...]
    """arguments that the meta file did not hold"""


def derive(meta: Meta) -> Derived:
    """The recipe of a checkpoint."""
    given = {key: value for key in DEFAULTS if _is_number(value := meta.arguments.get(key))}
    arguments, config = {**DEFAULTS, **given}, meta.config
    own = scaling_parameters(config.layers, config.width, config.mlp_width, config.vocabulary_size, config.model_dump())
    reference = _reference_parameters(config, arguments)
    batch = meta.total_batch_tokens or int(arguments["total_batch_size"])
    if batch <= 0:
        batch = batch_rule(own, reference, PRESET)
    batch = max(1, round(batch / config.context_length)) * config.context_length
    updates, budget = _updates(meta, arguments, own, batch)
    batch_factor = (batch / PRESET.reference.batch_tokens) ** 0.5
    return Derived(
        batch_tokens=batch,
        updates=updates,
        budget=budget,
        device_rows=min(max(1, int(arguments["device_batch_size"])), batch // config.context_length),
        width_factor=(config.width / PRESET.reference.width) ** -0.5,
        batch_factor=batch_factor,
        decay_factor=batch_factor * reference / own,
        arguments=arguments,
        assumed=tuple(key for key in DEFAULTS if key not in given),
    )


def recipe_text(meta: Meta, tag: str, *, has_tokenizer: bool) -> str:
    """The experiment file: the model's own recipe as the arm `standard`, and one change beside it."""
    found, config = derive(meta), meta.config
    name, scale = _NAME.sub("-", tag).strip("-.") or "nanochat", f"d{config.layers}"
    lines = [
        *_comment(
            f"The recipe of the nanochat checkpoint {name}, step {meta.step}, as a study that starts from its shape: "
            "the preset's constants, and what this checkpoint's meta file says. Question, corpus, margins and seeds "
            "are yours: decide them before the first run; `paribus plan` says what it costs and what it can conclude."
            + (f" The meta file does not hold {', '.join(found.assumed)}: defaults." if found.assumed else "")
        ),
        f"study = {_toml(name + '-recipe')}",
        f'question = "Does a mask that keeps attention within documents change what {name} learns?"',
        "",
        "[base]",
        "# nanochat-2026-04 lacks row equilibration and unit norm; a checkpoint does not tell which it had.",
        f"preset = {_toml(PRESET.name)}",
        f"context_length = {config.context_length}",
        f"batch_tokens = {found.batch_tokens}",
        '# nanochat\'s own corpus is climbmix; it needs a revision, and held_out = "last-file".',
        'corpus = { name = "local-docs" }',
        *(["# The model's own tokenizer is tokenizer.json, beside this file."] if has_tokenizer else []),
        f"tokenizer = {{ vocabulary_size = {max(config.vocabulary_size, 257)} }}",
        "",
        "[base.model]",
        f"head_width = {config.head_width}",
        f"query_heads_per_kv_head = {config.query_heads_per_kv_head}",
        f"window_pattern = {_toml(config.window_pattern)}",
        "",
        *_table("base.optimiser", _optimiser(found)),
        *_table("base.schedule", _schedule(found)),
        f"[scales.{scale}]",
        f"layers = {config.layers}",
        f"width = {config.width}",
        f"mlp_width = {config.mlp_width}",
        f"budget_tokens = {found.updates * found.batch_tokens}    # {found.updates} updates: {found.budget}",
        "",
        "[arms.standard]",
        "",
        "[arms.documents]",
        "# nanochat lets tokens attend across the documents of a row. Other changes, at the seam that names them:",
        *_others(),
        'mask = { name = "document" }',
        "",
        "[contrasts.documents]",
        "primary = true",
        'treatment = "documents"',
        'baseline = "standard"',
        "smallest_effect = 0.003    # nats per token: what would matter to you",
        "design_effect = 0.010      # larger: what the number of seeds is chosen for",
        "",
        "[seeds]",
        "count = 3",
        "",
        "[execution]",
        f"micro_batch_rows = {found.device_rows}",
    ]
    return "\n".join(lines) + "\n"


def _optimiser(found: Derived) -> dict[str, float]:
    a, batch = found.arguments, found.batch_factor
    embedding, scalar = a["embedding_lr"] * found.width_factor * batch, a["scalar_lr"] * batch
    return {
        "matrix_learning_rate": a["matrix_lr"] * batch,
        "matrix_weight_decay": a["weight_decay"] * found.decay_factor,
        "embedding_learning_rate": embedding,
        "value_embedding_learning_rate": VALUE_EMBEDDING_SHARE * embedding,
        "head_learning_rate": a["unembedding_lr"] * found.width_factor * batch,
        "stream_scale_learning_rate": STREAM_SCALE_SHARE * scalar,
        "embedding_scale_learning_rate": scalar,
    }


def _schedule(found: Derived) -> dict[str, float]:
    a = found.arguments
    return {
        "warmup": _share(a["warmup_steps"] / found.updates),
        "decay": _share(a["warmdown_ratio"]) or NO_DECAY,
        "final": _share(a["final_lr_frac"]),
        "momentum_warmup": _share(PRESET.reference.momentum_warmup_updates / found.updates),
    }


def _comment(text: str) -> list[str]:
    return textwrap.wrap(text, 118, initial_indent="# ", subsequent_indent="# ", break_on_hyphens=False)


def _others() -> list[str]:
    """The registry's mechanisms as comments, a line a seam."""
    found = []
    for seam in Seam:
        names = [name for name in mechanisms(seam) if name not in (IDENTITY[seam], "document")]
        if names:
            found.append(f"#   {seam} = {{ name = ... }}: {', '.join(sorted(names))}")
    return found


def _updates(meta: Meta, arguments: Mapping[str, float], parameters: int, batch: int) -> tuple[int, str]:
    if arguments["num_iterations"] > 0:
        return int(arguments["num_iterations"]), "num_iterations"
    ratio = arguments["target_param_data_ratio"]
    if arguments["target_flops"] > 0 or ratio <= 0:
        return max(1, meta.step), "those that this checkpoint had"
    return max(1, int(ratio * parameters) // batch), f"{ratio:g} tokens for each number in matrices and head"


def _reference_parameters(config: NanochatConfig, arguments: Mapping[str, float]) -> int:
    """Of the model of depth 12 that the training program builds beside its own, from the same arguments."""
    head_width, depth = max(2, int(arguments["head_dim"])), PRESET.reference.depth
    width = width_of(depth, max(1, int(arguments["aspect_ratio"])), head_width)
    constants = config.model_dump() | {"head_width": head_width, "query_heads_per_kv_head": 1}
    return scaling_parameters(depth, width, MLP_FACTOR * width, config.vocabulary_size, constants)


def _table(name: str, fields: Mapping[str, float]) -> list[str]:
    return [f"[{name}]", *(f"{key} = {_toml(value)}" for key, value in fields.items()), ""]


def _share(value: float) -> float:
    return min(1.0, max(0.0, value))


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _toml(value: Any) -> str:
    return f"{value:.10g}" if isinstance(value, float) else json.dumps(value)
