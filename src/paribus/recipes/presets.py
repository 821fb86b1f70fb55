"""The recipes that a file can start from, as the tables it would otherwise hold.

Every constant of the original stands here once and explicitly, so that no later default of ours can change a preset.
Facts: nanochat (github.com/karpathy/nanochat), as it was trained from April to July 2026. Its optimiser changed on
2026-07-03 (rows equilibrated before the orthogonalisation, its result rescaled); nothing else that trains did.
Rates and weight decay are those of the model of depth 12, width 768, at a batch of 2^19 tokens; `paribus.recipes.rules`
carries them to other sizes, and `paribus.recipes.origins` says what each constant is called there.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Table = Mapping[str, Any]


@dataclass(frozen=True)
class Reference:
    """The model at which the original's constants were measured, and the rules' own numbers."""

    depth: int = 12
    width: int = 768
    batch_tokens: int = 2**19
    batch_exponent: float = 0.383
    """of the batch in the tokens of a run (Bergsma et al. 2505.13738)"""
    updates: int = 2520
    """of the model of depth 12 at 12 tokens per parameter: what shares of the run are taken of where nothing is
    derived"""
    warmup_updates: int = 40
    momentum_warmup_updates: int = 400


@dataclass(frozen=True)
class Preset:
    """A recipe by its name."""

    name: str
    standing: str
    """how far its constants have been checked"""
    base: Table
    """of [base]: tables are completed key by key, and what the file says stays"""
    packing: str
    """of a corpus of texts, which the file chooses"""
    reference: Reference = Reference()

    @property
    def backbone(self) -> str:
        return self.base["model"]["backbone"]


_MODEL: Table = {
    "backbone": "nanochat",
    "head_width": 128,
    "query_heads_per_kv_head": 1,
    "rotary_base": 100_000.0,
    "norm_eps": 2.0**-23,
    "qk_gain": 1.2,
    "window_pattern": "SSSL",
    "short_window_divisor": 4,
    "short_window_multiple": 128,
    "value_embeddings": "alternating",
    "value_gate_channels": 12,
    "value_gate_scale": 3.0,
    "smear_channels": 24,
    "logit_softcap": 15.0,
    "compute": "bfloat16",
    "table_storage": "bfloat16",
    "vocabulary_multiple": 64,
    "embedding_std": 0.8,
    "head_std": 0.001,
    "projection_gain": 1.0,
    "mlp_up_gain": 0.4,
    "gate_initial_max": 0.02,
    "stream_scale_first": 1.15,
    "stream_scale_last": 1.05,
    "embedding_scale_first": 0.20,
    "embedding_scale_last": 0.05,
    "backout_initial": 0.2,
}
_OPTIMISER: Table = {
    "matrix_update": "nanochat",
    "matrix_learning_rate": 0.02,
    "matrix_momentum": 0.97,
    "matrix_weight_decay": 0.28,
    "matrix_scale": "keller",
    "matrix_compute": "bfloat16",
    "matrix_variance_beta2": 0.9,
    "matrix_row_equilibration": False,
    "matrix_unit_norm": False,
    "embedding_learning_rate": 0.3,
    "embedding_weight_decay": 0.001,
    "embedding_betas": [0.8, 0.995],
    "value_embedding_learning_rate": 0.15,
    "value_embedding_weight_decay": 0.01,
    "value_embedding_betas": [0.8, 0.995],
    "head_learning_rate": 0.008,
    "head_weight_decay": 0.01,
    "head_betas": [0.8, 0.96],
    "stream_scale_learning_rate": 0.005,
    "stream_scale_weight_decay": 0.05,
    "stream_scale_betas": [0.8, 0.95],
    "embedding_scale_learning_rate": 0.5,
    "embedding_scale_weight_decay": 0.0,
    "embedding_scale_betas": [0.96, 0.95],
    "shortcut_learning_rate": 0.2,
    "shortcut_weight_decay": 0.0,
    "shortcut_betas": [0.8, 0.95],
    "adam_eps": 1e-10,
}
_SCHEDULE: Table = {
    "place": "ends",
    "warmup": Reference.warmup_updates / Reference.updates,
    "decay": 0.65,
    "final": 0.05,
    "momentum_initial": 0.85,
    "momentum_warmup": Reference.momentum_warmup_updates / Reference.updates,
    "momentum_final": 0.90,
    "weight_decay": "cosine",
}
_TOKENIZER: Table = {
    "vocabulary_size": 32_768,
    "pre_tokenizer": "nanochat",
    "train_characters": 2_000_000_000,
    "train_document_characters": 10_000,
}
_BASE: Table = {
    "context_length": 2048,
    "batch_tokens": Reference.batch_tokens,
    "tokenizer": _TOKENIZER,
    "model": _MODEL,
    "optimiser": _OPTIMISER,
    "schedule": _SCHEDULE,
}
_SINCE_JULY: Table = {"matrix_row_equilibration": True, "matrix_unit_norm": True}

PRESETS: Mapping[str, Preset] = {
    preset.name: preset
    for preset in (
        Preset(
            "nanochat-2026-04",
            "from reading nanochat as it stood in April 2026, which no golden values exist of",
            _BASE,
            "best-fit",
        ),
        Preset(
            "nanochat-2026-07",
            "checked against golden values of nanochat at commit 92d63d4 (2026-07-03)",
            {**_BASE, "optimiser": {**_OPTIMISER, **_SINCE_JULY}},
            "best-fit",
        ),
    )
}
