"""The folder of a model that came from elsewhere: what lies in it, how it gets there, and how it is read.

model.safetensors   parameters in float32 by our names
model.json          format, backbone configuration, mechanisms by seam, digests of all files, where they come from; last
recipe.toml         where its recipe is known: an experiment file that starts from it; its reader's to change
tokenizer.json      where a tokenizer was given

A new folder is written aside and renamed. One that is there already is compared and completed file by file, and
`model.json` is written last, so that it never speaks of a file that is not there.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from pydantic import ValidationError
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from paribus.data.sources.folder import file_digest
from paribus.disk import flush
from paribus.interop.errors import ForeignModelError
from paribus.mechanisms import resolve
from paribus.mechanisms.contract import MechanismConfig, Seam
from paribus.model.backbone import Backbone
from paribus.model.build import abstract_model, store_tables
from paribus.model.config import CONFIGS, ModelConfig
from paribus.runs.records import explaining_storage, write_durably, write_flushed

FORMAT = 1
MODEL, WEIGHTS, RECIPE, TOKENIZER = "model.json", "model.safetensors", "recipe.toml", "tokenizer.json"
DIGESTED = (WEIGHTS, TOKENIZER)
"""files that must be what was written; the recipe may be changed"""


@dataclass(frozen=True)
class Imported:
    """What model.json says."""

    folder: Path
    config: ModelConfig
    mechanisms: Mapping[Seam, MechanismConfig]
    origin: Mapping[str, Any]
    """where the model comes from: program, tag, step, digests of the files, what they say of their training"""
    files: Mapping[str, str]
    """blake2b-256 of each file as it was written, hexadecimal"""

    @property
    def tokenizer_file(self) -> Path | None:
        return self.folder / TOKENIZER if TOKENIZER in self.files else None


@dataclass(frozen=True)
class Written:
    """What a writing did."""

    new: tuple[str, ...]
    """files that were not there, or not so"""
    kept: tuple[str, ...]
    """files that their reader has changed, which were left alone"""


def write(
    folder: Path,
    config: ModelConfig,
    tensors: Mapping[str, Tensor],
    origin: Mapping[str, Any],
    texts: Mapping[str, bytes],
) -> Written:
    """Write a model with the standard mechanisms, or complete the same one. `texts` are the small files by name.

    ForeignModelError where the folder holds something else, StorageError where the disk refuses.
    """
    if not folder.exists():
        _write_new(folder, config, tensors, origin, texts)
        return Written((WEIGHTS, *texts, MODEL), ())
    found = read(folder) if (folder / MODEL).exists() else None
    if found is None or dict(found.origin) != json.loads(json.dumps(origin)) or found.config != config:
        raise ForeignModelError(
            f"{folder} holds something else",
            expected="a new folder, or one into which this very checkpoint was imported",
            received=_account(found),
            remedy="choose another folder with --to",
        )
    return _complete(found, tensors, texts)


def read(folder: Path) -> Imported:
    """model.json of a folder. ForeignModelError where there is none, or one that cannot be used."""
    path = folder / MODEL
    try:
        table = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ForeignModelError(
            f"{folder} holds no imported model",
            expected=f"a folder with {MODEL}, as `paribus import` writes it",
            received="a folder without it" if folder.is_dir() else "no such folder",
            remedy="import the model first: paribus import nanochat DIR, or paribus import llama DIR",
        ) from error
    except (OSError, ValueError) as error:
        raise _damaged(path, "a JSON file", f"{type(error).__name__}: {error}") from error
    if not isinstance(table, dict) or table.get("format") != FORMAT:
        raise _damaged(path, f"format {FORMAT}", str(table.get("format") if isinstance(table, dict) else table)[:80])
    try:
        config = CONFIGS[table["configuration"]["backbone"]].model_validate(table["configuration"])
        mechanisms = {seam: resolve(seam, table["mechanisms"][str(seam)], str(seam)) for seam in Seam}
        return Imported(folder, config, mechanisms, dict(table["origin"]), dict(table["files"]))
    except (KeyError, TypeError, ValueError, ValidationError) as error:
        raise _damaged(path, "configuration, mechanisms, origin and files", repr(error)[:200]) from error


def load(imported: Imported) -> Backbone:
    """The model with its values, on the CPU. ForeignModelError where the weights are not those that were written."""
    require_unchanged(imported, WEIGHTS)
    path = imported.folder / WEIGHTS
    try:
        tensors = load_file(path)
    except (OSError, SafetensorError) as error:
        raise _damaged(path, "a safetensors file", f"{type(error).__name__}: {error}") from error
    return with_values(imported.config, dict(imported.mechanisms), tensors, path)


def with_values(
    config: ModelConfig, mechanisms: dict[Seam, MechanismConfig], tensors: Mapping[str, Tensor], where: Path
) -> Backbone:
    """A model of this arm whose parameters are the tensors, by name. ForeignModelError where they are not its own."""
    model = abstract_model(config, mechanisms)
    own = {name: tuple(parameter.shape) for name, parameter in model.named_parameters()}
    found = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    if own != found:
        first = min(set(own.items()) ^ set(found.items()))[0]
        raise ForeignModelError(
            f"{where} does not hold the parameters of the model beside it",
            expected=f"{len(own)} parameters; {first}: {own.get(first)}",
            received=f"{len(found)} tensors; {first}: {found.get(first)}",
            remedy="restore the folder from a copy, or import the model again",
        )
    model = model.to_empty(device="cpu")
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(tensors[name])
    if config.stored_tables == "bfloat16":
        store_tables(model, torch.bfloat16)
    return model


def require_unchanged(imported: Imported, name: str) -> None:
    """ForeignModelError where a file is not what was written."""
    path = imported.folder / name
    try:
        digest = file_digest(path)
    except OSError as error:
        raise _damaged(path, "a readable file", f"{type(error).__name__}: {error}") from error
    if digest != imported.files[name]:
        raise _damaged(path, f"digest {imported.files[name]}", f"digest {digest}")


def _write_new(
    folder: Path,
    config: ModelConfig,
    tensors: Mapping[str, Tensor],
    origin: Mapping[str, Any],
    texts: Mapping[str, bytes],
) -> None:
    aside = folder.with_name(f".{folder.name}.{os.getpid()}.partial")
    with explaining_storage(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(aside, ignore_errors=True)
        try:
            aside.mkdir()
            _save(tensors, aside / WEIGHTS)
            for name, content in texts.items():
                write_flushed(aside / name, content)
            write_flushed(aside / MODEL, _model_json(config, origin, file_digest(aside / WEIGHTS), texts))
            flush(aside)
            aside.rename(folder)
            flush(folder.parent)
        finally:
            shutil.rmtree(aside, ignore_errors=True)


def _complete(found: Imported, tensors: Mapping[str, Tensor], texts: Mapping[str, bytes]) -> Written:
    new, kept = [], []
    weights = found.folder / WEIGHTS
    with explaining_storage(weights):
        if not weights.exists() or file_digest(weights) != found.files[WEIGHTS]:
            aside = weights.with_name(f".{weights.name}.{os.getpid()}.partial")
            _save(tensors, aside)
            aside.replace(weights)
            new.append(WEIGHTS)
        for name, content in texts.items():
            path = found.folder / name
            present = file_digest(path) if path.exists() else None
            if present == _digest(content):
                continue
            if name not in DIGESTED and present not in (None, found.files.get(name)):
                kept.append(name)
                continue
            write_durably(path, content)
            new.append(name)
        files = dict(texts)
        if TOKENIZER not in files and found.tokenizer_file is not None and found.tokenizer_file.exists():
            files[TOKENIZER] = found.tokenizer_file.read_bytes()
        content = _model_json(found.config, found.origin, file_digest(weights), files)
        if content != (found.folder / MODEL).read_bytes():
            write_durably(found.folder / MODEL, content)
            new.append(MODEL)
    return Written(tuple(new), tuple(kept))


def _save(tensors: Mapping[str, Tensor], path: Path) -> None:
    save_file({name: tensors[name] for name in sorted(tensors)}, path)
    with path.open("rb") as file:
        os.fsync(file.fileno())


def _model_json(config: ModelConfig, origin: Mapping[str, Any], weights: str, texts: Mapping[str, bytes]) -> bytes:
    standard = {seam: resolve(seam, None, str(seam)) for seam in Seam}
    table = {
        "format": FORMAT,
        "configuration": config.model_dump(mode="json"),
        "mechanisms": {str(seam): {"name": found.name} for seam, found in standard.items()},
        "origin": dict(origin),
        "files": {WEIGHTS: weights, **{name: _digest(content) for name, content in texts.items()}},
    }
    return (json.dumps(table, indent=1, sort_keys=True, allow_nan=False) + "\n").encode()


def _digest(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=32).hexdigest()


def _account(found: Imported | None) -> str:
    if found is None:
        return f"files, and no {MODEL}"
    step = found.origin.get("step")
    return f"the model of {found.origin.get('tag')}" + ("" if step is None else f", step {step}")


def _damaged(path: Path, expected: str, received: str) -> ForeignModelError:
    return ForeignModelError(
        f"{path} is not what was written",
        expected=expected,
        received=received,
        remedy="delete the folder and import the model again",
    )
