"""Which trained model is looked at: one that was imported, or a finished cell of a study."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors.torch import load as load_tensors

from paribus.data.frozen import open_frozen
from paribus.data.store import store_of
from paribus.data.tokenizer import Tokenizer
from paribus.errors import ParibusError, StudyFolderError
from paribus.interop import imported
from paribus.interop.ranks import CONVERSION, read_tokenizer
from paribus.mechanisms import mechanisms, register, resolve
from paribus.mechanisms.contract import MechanismConfig, Seam
from paribus.model.backbone import Backbone
from paribus.model.config import CONFIGS
from paribus.runs.folder import CellFolder, StudyFolder
from paribus.train.state import TENSORS

CELL = "cell.json"


@dataclass(frozen=True)
class Looked:
    """A trained model and its tokenizer."""

    name: str
    """what it is, in words"""
    model: Backbone
    tokenizer: Tokenizer


def open_model(folder: Path, tokenizer: Path | None) -> Looked:
    """The model of a folder. `tokenizer` stands in the place of the folder's own.

    ParibusError for a folder that holds no trained model, and for a tokenizer that is missing or another model's.
    """
    if (folder / imported.MODEL).exists():
        return _imported(folder, tokenizer)
    if (folder / CELL).exists():
        return _cell(folder, tokenizer)
    raise ParibusError(
        f"{folder} holds no trained model",
        expected=f"a folder with {imported.MODEL} (imported) or {CELL} (a finished cell of a study)",
        received="a folder without either" if folder.is_dir() else "no such folder",
        remedy="import one (paribus import nanochat DIR), or name runs/<study>/<scale>/<arm>/<seed>-<digest>",
    )


def _imported(folder: Path, tokenizer: Path | None) -> Looked:
    found = imported.read(folder)
    own = found.tokenizer_file
    if tokenizer is None and own is None:
        raise ParibusError(
            f"{folder} has no tokenizer, and without it no text can be read",
            expected="the one that the model was trained with",
            received="neither tokenizer.json in the folder nor --tokenizer",
            remedy="import again with --tokenizer, or name it here. Of nanochat's pickle, run in its environment:\n\n"
            + CONVERSION,
        )
    if tokenizer is None:
        imported.require_unchanged(found, imported.TOKENIZER)
    read = read_tokenizer(tokenizer or folder / imported.TOKENIZER)
    _require_size(read, found.config.vocabulary_size, exact=True)
    step = found.origin.get("step")
    return Looked(f"{found.origin.get('tag')}, step {step}, imported", imported.load(found), read)


def _cell(folder: Path, tokenizer: Path | None) -> Looked:
    cell = CellFolder(folder)
    checkpoint = cell.latest_checkpoint()
    if cell.state != "complete" or checkpoint is None:
        raise StudyFolderError(
            f"{folder} holds no finished model",
            expected="a cell that is complete, with the state at its last update",
            received=cell.state if checkpoint is not None else f"{cell.state}, without a checkpoint",
            remedy="let `paribus run` finish it",
        )
    record = cell.record()
    resolved: Mapping[str, Any] = record["resolved"]
    config = CONFIGS[resolved["model"].get("backbone", "prenorm")].model_validate(resolved["model"])
    arm = {seam: _mechanism(seam, resolved["mechanisms"][str(seam)]) for seam in Seam}
    tensors = load_tensors(checkpoint[1][TENSORS])
    own = {name.removeprefix("model/"): t for name, t in tensors.items() if name.startswith("model/")}
    model = imported.with_values(config, arm, own, folder)
    read = _cell_tokenizer(folder) if tokenizer is None else read_tokenizer(tokenizer)
    _require_size(read, config.vocabulary_size, exact=False)
    name = f"{record['scale']}/{record['arm']}/{record['seed']}, step {checkpoint[0]}"
    return Looked(name, model, read)


def _mechanism(seam: Seam, table: Mapping[str, Any]) -> MechanismConfig:
    fields = {key: value for key, value in table.items() if key != "module"}
    if fields["name"] not in mechanisms(seam) and "module" in table:
        register(table["module"])  # of a package of the user's own that no entry point names
    return resolve(seam, fields, str(seam))


def _cell_tokenizer(folder: Path) -> Tokenizer:
    """The tokenizer of the corpus that the cell's study was planned with."""
    study = folder.resolve().parents[2]
    link = StudyFolder(study).read_corpus()
    if link is None:
        raise ParibusError(
            "the study of this cell has no text to take a tokenizer from",
            expected=f"corpus.json in {study}",
            received="none: it read a synthetic task, or the folder was moved alone",
            remedy="name a tokenizer with --tokenizer, where the cell read a text",
        )
    return open_frozen(store_of(study.parent) / link["corpus"]).tokenizer()


def _require_size(tokenizer: Tokenizer, vocabulary_size: int, *, exact: bool) -> None:
    # A tokenizer that is learnt has fewer tokens than declared where the texts offered fewer merges.
    found = tokenizer.vocabulary_size
    if found > vocabulary_size or (exact and found != vocabulary_size):
        raise ParibusError(
            "this tokenizer is not the model's",
            expected=f"{vocabulary_size} tokens" if exact else f"at most {vocabulary_size} tokens",
            received=f"{found} tokens",
            remedy="name the tokenizer that the model was trained with",
        )
