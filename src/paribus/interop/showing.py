"""What `paribus import` prints."""

import shlex
from pathlib import Path
from typing import Any

from rich.console import Console

from paribus.interop.imported import RECIPE, Written
from paribus.interop.llama import Outcome as LlamaOutcome
from paribus.interop.nanochat import Outcome
from paribus.interop.ranks import CONVERSION
from paribus.model.config import ModelConfig


def show(found: Outcome, console: Console) -> None:
    """The model, what was written, the commands that go on from here, and how to convert a pickled tokenizer."""
    meta, config = found.checkpoint.meta, found.checkpoint.meta.config
    bpb = "" if meta.val_bpb is None else f", {meta.val_bpb:.4f} validation bits per byte by its own measure"
    _print(console, f"{found.checkpoint.tag}, step {meta.step}: {found.parameters:,} parameters{bpb}")
    _print(console, f"{_shape(config)}, windows {config.window_pattern}")
    _show_written(found.folder, found.written, console)
    plan = ["paribus", "plan", str(found.folder / RECIPE)]
    _print(console, f"start from its recipe: {shlex.join(plan)}")
    if found.tokenizer is not None:
        _show_next(found.folder, console)
        return
    if found.pickle is not None:
        _print(console, f"{found.pickle} is a pickle, which is not opened: it would run code.")
    _print(
        console, "To read texts, the model needs its tokenizer. Run this in nanochat's environment, and import again"
    )
    _print(console, "with --tokenizer ranks.json:\n")
    _print(console, CONVERSION.rstrip())


def as_json(found: Outcome) -> dict[str, Any]:
    meta = found.checkpoint.meta
    return {
        "folder": str(found.folder),
        "tag": found.checkpoint.tag,
        "step": meta.step,
        "parameters": found.parameters,
        "validation_bits_per_byte": meta.val_bpb,
        "configuration": meta.config.model_dump(mode="json"),
        "source_files": dict(found.checkpoint.digests),
        "written": list(found.written.new),
        "kept": list(found.written.kept),
        "tokenizer": None if found.tokenizer is None else found.tokenizer.digest,
        "pickle_not_read": None if found.pickle is None else str(found.pickle),
    }


def show_llama(found: LlamaOutcome, console: Console) -> None:
    """The model, what was written, and the commands that go on from here."""
    _print(console, f"{found.tag}: {found.parameters:,} parameters")
    _print(console, _shape(found.config))
    _show_written(found.folder, found.written, console)
    if found.tokenizer is not None:
        _show_next(found.folder, console)
        return
    _print(console, "To read texts, the model needs its tokenizer: import again with --tokenizer tokenizer.json")


def llama_as_json(found: LlamaOutcome) -> dict[str, Any]:
    return {
        "folder": str(found.folder),
        "tag": found.tag,
        "parameters": found.parameters,
        "configuration": found.config.model_dump(mode="json"),
        "written": list(found.written.new),
        "kept": list(found.written.kept),
        "tokenizer": None if found.tokenizer is None else found.tokenizer.digest,
    }


def _shape(config: ModelConfig) -> str:
    return (
        f"{config.layers} layers, width {config.width}, {config.heads} heads of {config.head_width}, "
        f"{config.kv_heads} key-value heads, vocabulary {config.vocabulary_size:,}, context {config.context_length:,}"
    )


def _show_written(folder: Path, written: Written, console: Console) -> None:
    _print(console, f"{folder}: " + (f"wrote {', '.join(written.new)}" if written.new else "nothing is new"))
    if written.kept:
        _print(console, f"kept as you changed it: {', '.join(written.kept)}")


def _show_next(folder: Path, console: Console) -> None:
    _print(console, f"look at it: {shlex.join(['paribus', 'diagnose', str(folder), '--text'])} FILE")


def _print(console: Console, text: str) -> None:
    console.print(text, highlight=False, markup=False, soft_wrap=True)
