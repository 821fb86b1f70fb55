"""Where each constant of the presets comes from, and the page that says so.

nanochat writes most of its constants into its code and some as options of its training script; both are given as a
reader finds them there. docs/recipes.md holds the table between MARKS; its test writes the command that renews it.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from paribus.recipes.presets import PRESETS

MARKS = ("<!-- constants: begin -->", "<!-- constants: end -->")
_MODEL, _TRAIN, _OPTIM = "nanochat/gpt.py", "scripts/base_train.py", "nanochat/optim.py"
_TOKENIZER, _LOADER, _SETUP = "scripts/tok_train.py", "nanochat/dataloader.py", "nanochat/gpt.py, optimiser set-up"
_INIT, _FORWARD = "nanochat/gpt.py, initialisation", "nanochat/gpt.py, forward pass"

ORIGINS: Mapping[str, tuple[str, str, str]] = {
    "base.context_length": ("--max-seq-len", "2048", _TRAIN),
    "base.batch_tokens": ("tokens of an update at depth 12, from which the batch rule starts", "2**19", _TRAIN),
    "base.corpus.packing": ("rows that begin with a document, best fit", "best fit", _LOADER),
    "base.tokenizer.vocabulary_size": ("--vocab-size, nine special tokens among them", "32,768", _TOKENIZER),
    "base.tokenizer.pre_tokenizer": (
        "split pattern: digits in groups of one and two",
        "its own",
        "nanochat/tokenizer.py",
    ),
    "base.tokenizer.train_characters": ("--max-chars", "2,000,000,000", _TOKENIZER),
    "base.tokenizer.train_document_characters": ("--doc-cap", "10,000", _TOKENIZER),
    "base.model.backbone": ("the model", "GPT", _MODEL),
    "base.model.head_width": ("--head-dim", "128", _TRAIN),
    "base.model.query_heads_per_kv_head": ("as many key-value heads as query heads", "1", _TRAIN),
    "base.model.rotary_base": ("base of the rotary frequencies", "100,000", _FORWARD),
    "base.model.norm_eps": ("RMS norm without an eps: torch's own for a float32 input", "2**-23", _FORWARD),
    "base.model.qk_gain": ("factor of normalised queries and keys", "1.2", _FORWARD),
    "base.model.window_pattern": ("--window-pattern, tiled; the last layer is L", "SSSL", _TRAIN),
    "base.model.short_window_divisor": ("a short window is a quarter of the row", "4", _MODEL),
    "base.model.short_window_multiple": ("rounded up to a multiple of this", "128", _MODEL),
    "base.model.value_embeddings": ("layers whose index has the parity of the last one's", "every second", _MODEL),
    "base.model.value_gate_channels": ("input channels of the value gate", "12", _MODEL),
    "base.model.value_gate_scale": ("factor of the gate's sigmoid", "3", _FORWARD),
    "base.model.smear_channels": ("input channels of the smear gate", "24", _MODEL),
    "base.model.logit_softcap": ("softcap of the logits", "15", _FORWARD),
    "base.model.compute": ("compute type where the GPU has it; float32 on a CPU", "bfloat16", "nanochat/common.py"),
    "base.model.table_storage": ("type of wte, of value embeddings and of their moments", "bfloat16", _INIT),
    "base.model.vocabulary_multiple": ("padding of the vocabulary", "64", _MODEL),
    "base.model.embedding_std": ("wte: normal", "0.8", _INIT),
    "base.model.head_std": ("lm_head: normal", "0.001", _INIT),
    "base.model.projection_gain": ("c_q, c_k, c_v and value embeddings: uniform, std 1 / sqrt(width)", "1", _INIT),
    "base.model.mlp_up_gain": ("c_fc: uniform, this times the same; both c_proj are zero", "0.4", _INIT),
    "base.model.gate_initial_max": ("gates of value embeddings and of smear: uniform from 0", "0.02", _INIT),
    "base.model.stream_scale_first": ("resid_lambdas, first layer", "1.15", _INIT),
    "base.model.stream_scale_last": ("resid_lambdas, last layer", "1.05", _INIT),
    "base.model.embedding_scale_first": ("x0_lambdas, first layer", "0.20", _INIT),
    "base.model.embedding_scale_last": ("x0_lambdas, last layer", "0.05", _INIT),
    "base.model.backout_initial": ("backout_lambda", "0.2", _INIT),
    "base.optimiser.matrix_update": ("Muon of every tensor inside the layers, gates too", "its own", _OPTIM),
    "base.optimiser.matrix_learning_rate": ("--matrix-lr", "0.02", _TRAIN),
    "base.optimiser.matrix_momentum": ("momentum between warm-up and warm-down", "0.97", _TRAIN),
    "base.optimiser.matrix_weight_decay": ("--weight-decay, cautious", "0.28", _TRAIN),
    "base.optimiser.matrix_scale": ("sqrt(max(1, rows / columns))", "by shape", _OPTIM),
    "base.optimiser.matrix_compute": ("g is cast to the type of the activations first", "bfloat16", _OPTIM),
    "base.optimiser.matrix_variance_beta2": ("beta2 of the factored second moment", "0.9", _SETUP),
    "base.optimiser.matrix_row_equilibration": ("MuonEq, since commit 4e014d3 (2026-07-03)", "since July", _OPTIM),
    "base.optimiser.matrix_unit_norm": ("Muon+, since 2026-07-03", "since July", _OPTIM),
    "base.optimiser.embedding_learning_rate": ("--embedding-lr", "0.3", _TRAIN),
    "base.optimiser.embedding_weight_decay": ("decay of wte", "0.001", _SETUP),
    "base.optimiser.embedding_betas": ("betas of wte", "0.8, 0.995", _SETUP),
    "base.optimiser.value_embedding_learning_rate": ("half of --embedding-lr", "0.3 * 0.5", _SETUP),
    "base.optimiser.value_embedding_weight_decay": ("decay of the value embeddings", "0.01", _SETUP),
    "base.optimiser.value_embedding_betas": ("betas of the value embeddings", "0.8, 0.995", _SETUP),
    "base.optimiser.head_learning_rate": ("--unembedding-lr", "0.008", _TRAIN),
    "base.optimiser.head_weight_decay": ("decay of lm_head", "0.01", _SETUP),
    "base.optimiser.head_betas": ("betas of lm_head", "0.8, 0.96", _SETUP),
    "base.optimiser.stream_scale_learning_rate": ("--scalar-lr x 0.01", "0.5 * 0.01", _SETUP),
    "base.optimiser.stream_scale_weight_decay": ("decay of resid_lambdas", "0.05", _SETUP),
    "base.optimiser.stream_scale_betas": ("betas of resid_lambdas", "0.8, 0.95", _SETUP),
    "base.optimiser.embedding_scale_learning_rate": ("--scalar-lr", "0.5", _TRAIN),
    "base.optimiser.embedding_scale_weight_decay": ("decay of x0_lambdas", "0", _SETUP),
    "base.optimiser.embedding_scale_betas": ("betas of x0_lambdas", "0.96, 0.95", _SETUP),
    "base.optimiser.shortcut_learning_rate": ("smear gate, smear_lambda, backout_lambda", "0.2", _SETUP),
    "base.optimiser.shortcut_weight_decay": ("decay of these three", "0", _SETUP),
    "base.optimiser.shortcut_betas": ("betas of these three", "0.8, 0.95", _SETUP),
    "base.optimiser.adam_eps": ("eps of every AdamW group", "1e-10", _SETUP),
    "base.schedule.place": ("(step + 1) / warm-up, and steps left / warm-down", "by update", _TRAIN),
    "base.schedule.warmup": ("40 updates of 2,520 at depth 12", "40 / 2520", _TRAIN),
    "base.schedule.decay": ("--warmdown-ratio", "0.65", _TRAIN),
    "base.schedule.final": ("--final-lr-frac", "0.05", _TRAIN),
    "base.schedule.momentum_initial": ("momentum at the first update", "0.85", _TRAIN),
    "base.schedule.momentum_warmup": ("400 updates of 2,520 at depth 12", "400 / 2520", _TRAIN),
    "base.schedule.momentum_final": ("momentum at the last update, linear over the warm-down", "0.90", _TRAIN),
    "base.schedule.weight_decay": ("half a cosine to 0", "half a cosine", _TRAIN),
}
"""by key path of the file: the constant's name or meaning in nanochat, its value there as it was read (a product or
quotient where it is computed, words where it is no number), and where it stands"""


def constants(name: str) -> dict[str, Any]:
    """Every constant of a preset by its key path in the file."""
    preset = PRESETS[name]
    return dict(_flat(preset.base, "base.")) | {"base.corpus.packing": preset.packing}


def as_markdown() -> str:
    """The table of constants, with a column for each preset."""
    columns = [constants(name) for name in PRESETS]
    heads = ("key of the file", *PRESETS, "nanochat", "what it is there", "where")
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    for key, (meaning, value, where) in ORIGINS.items():
        ours = [f"`{_written(column[key])}`" for column in columns]
        lines.append("| " + " | ".join((f"`{key.removeprefix('base.')}`", *ours, value, meaning, where)) + " |")
    return "\n".join(lines) + "\n"


def renewed(page: str) -> str:
    """The page with the table between MARKS as it should be."""
    before, _, rest = page.partition(MARKS[0])
    _, _, after = rest.partition(MARKS[1])
    return f"{before}{MARKS[0]}\n\n{as_markdown()}\n{MARKS[1]}{after}"


def _flat(table: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _written(value: Any) -> str:
    """As a TOML file would hold it; shares of the run and the eps to six digits."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return f"[{', '.join(map(_written, value))}]"
    if isinstance(value, str):
        return f'"{value}"'
    return f"{value:_}" if isinstance(value, int) else f"{value:.6g}"
