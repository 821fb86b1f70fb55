"""Depth derives the rest, as in nanochat: width, batch, tokens, rates, weight decay and schedule of a run.

    width    depth * aspect_ratio, up to a multiple of head_width
    N        parameters of the hidden matrices and of the output head ("scaling parameters")
    D        tokens_per_parameter * N;  D12, N12: the same of the reference model, of depth 12
    batch B  2^round(log2(2^19 * (D / D12)^0.383))                          (Bergsma et al. 2505.13738)
    budget   floor(D / B) * B
    rates    AdamW's of tables and head by (width / 768)^-0.5, and every rate but the shortcuts' by sqrt(B / 2^19)
    decay    0.28 * sqrt(B / 2^19) * D12 / D                                (Wang and Aitchison 2405.13698)
    warm-up  40 updates of the learning rate, 400 of the momentum, as shares of the run

Pure; a value that is given takes the place of the rule's own, also in the rules that depend on it.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from paribus.recipes.config import Derive
from paribus.recipes.presets import Preset

BATCH = "base.batch_tokens"
BUDGET = "budget_tokens"
WARMUP = "base.schedule.warmup"
WHOLE = ("layers", "width", "mlp_width", BUDGET, BATCH)
"""keys whose numbers count something"""
_BY_WIDTH_AND_BATCH = ("embedding", "value_embedding", "head")
_BY_BATCH = ("matrix", "stream_scale", "embedding_scale")


@dataclass(frozen=True)
class Derivation:
    """One number of a scale."""

    key: str
    """its key path below [scales.NAME]; empty for a number that only other rules use"""
    name: str
    """as a table shows it"""
    value: float
    """in force"""
    by_rule: float
    """what the rule alone would give, from the other values in force"""
    rule: str

    @property
    def given(self) -> bool:
        """Whether the file says something else than the rule."""
        return self.value != self.by_rule


def width_of(depth: int, aspect_ratio: int, head_width: int) -> int:
    """Features of the stream: whole heads, the fewest that reach depth * aspect_ratio."""
    return -(-depth * aspect_ratio // head_width) * head_width


def scaling_parameters(layers: int, width: int, mlp_width: int, vocabulary_size: int, model: Mapping[str, Any]) -> int:
    """Parameters of the matrices inside the layers, gates of value embeddings among them, and of the output head.

    `model` holds the backbone's constants. Tables that are looked up, scalars and the smear gate do not count.
    """
    kv_heads = width // model["head_width"] // model["query_heads_per_kv_head"]
    attention = 2 * width * width + 2 * width * kv_heads * model["head_width"]  # query and output, key and value
    matrices = layers * (attention + 2 * width * mlp_width)
    gated_layers = -(-layers // 2) if model["value_embeddings"] == "alternating" else 0
    gates = gated_layers * kv_heads * model["value_gate_channels"]
    rows = -(-vocabulary_size // model["vocabulary_multiple"]) * model["vocabulary_multiple"]
    return matrices + gates + rows * width


def batch_rule(tokens: float, reference_tokens: float, preset: Preset) -> int:
    """Tokens of one update for a run of so many tokens: a power of two."""
    reference = preset.reference
    wanted = reference.batch_tokens * (tokens / reference_tokens) ** reference.batch_exponent
    return 2 ** round(math.log2(wanted))


def updates_of(budget_tokens: int, batch_tokens: int) -> int:
    """Updates of a run, the last of which may reach beyond the budget."""
    return -(-budget_tokens // batch_tokens)


def derive(
    preset: Preset, wish: Derive, model: Mapping[str, Any], vocabulary_size: int, given: Mapping[str, float]
) -> tuple[Derivation, ...]:
    """Every number of a scale, in the order in which they depend on each other.

    `model` holds the backbone's constants in force; `given` what the file says, by key path below [scales.NAME].
    """
    found: list[Derivation] = []

    def settle(key: str, by_rule: float, rule: str, name: str = "") -> float:
        value = given.get(key, by_rule)
        found.append(Derivation(key, name or key.removeprefix("base."), value, by_rule, rule))
        return value

    reference, head_width = preset.reference, model["head_width"]
    layers = int(settle("layers", wish.depth, "depth"))
    width = int(
        settle(
            "width",
            width_of(wish.depth, wish.aspect_ratio, head_width),
            f"{wish.depth} x aspect ratio {wish.aspect_ratio}, up to a multiple of head width {head_width}",
        )
    )
    mlp_width = int(settle("mlp_width", 4 * width, "4 x width"))
    own = scaling_parameters(layers, width, mlp_width, vocabulary_size, model)
    narrow = width_of(reference.depth, wish.reference_aspect_ratio, head_width)
    of_reference = scaling_parameters(reference.depth, narrow, 4 * narrow, vocabulary_size, model)
    settle("", own, "parameters of hidden matrices and head", "scaling parameters")

    ratio = wish.tokens_per_parameter
    wanted, reference_tokens = max(1, int(ratio * own)), ratio * of_reference
    tokens = _tokens_of_the_rules(wanted, given, batch_rule(wanted, reference_tokens, preset))
    batch = int(
        settle(
            BATCH,
            batch_rule(tokens, reference_tokens, preset),
            f"2^19 x (tokens / {reference_tokens:,.0f} of depth {reference.depth})^{reference.batch_exponent}, "
            "to a power of two",
        )
    )
    whole = wanted // batch * batch
    budget = int(settle(BUDGET, whole, f"{ratio:g} tokens per scaling parameter, in whole updates"))

    by_batch = math.sqrt(batch / reference.batch_tokens)
    by_width = (width / reference.width) ** -0.5
    optimiser = preset.base["optimiser"]
    for role in (*_BY_WIDTH_AND_BATCH, *_BY_BATCH):
        rate = optimiser[f"{role}_learning_rate"]
        factor, told = by_batch, f"{rate:g}"
        if role in _BY_WIDTH_AND_BATCH:
            factor, told = by_width * by_batch, f"{told} x (width / {reference.width})^-0.5"
        settle(f"base.optimiser.{role}_learning_rate", rate * factor, f"{told} x sqrt(batch / 2^19)")
    decay = optimiser["matrix_weight_decay"]
    settle(
        "base.optimiser.matrix_weight_decay",
        decay * by_batch * reference_tokens / tokens,
        f"{decay:g} x sqrt(batch / 2^19) x tokens of depth {reference.depth} / tokens",
    )

    updates = max(1, updates_of(budget, batch))
    for key, count in (
        (WARMUP, reference.warmup_updates),
        ("base.schedule.momentum_warmup", reference.momentum_warmup_updates),
    ):
        settle(key, min(1.0, count / updates), f"{count} of {updates:,} updates")
    return tuple(found)


def _tokens_of_the_rules(wanted: int, given: Mapping[str, float], batch: int) -> int:
    """D: the budget that is given, or what the model asks for where the budget is that in whole updates."""
    batch = int(given.get(BATCH, batch))
    budget = int(given.get(BUDGET, 0))
    return budget if budget and budget != wanted // batch * batch else wanted
