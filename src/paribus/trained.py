"""Which trained model is meant: one that was imported, a finished cell of a study, or what a cell was fine-tuned to.

A folder says by its record which it is. A cell, and a fine-tuned one, keep checkpoints of several steps.
"""

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
from paribus.mechanisms import of_record
from paribus.mechanisms.contract import Seam
from paribus.model.backbone import Backbone
from paribus.model.config import CONFIGS
from paribus.runs.folder import CellFolder
from paribus.runs.study_folder import StudyFolder
from paribus.train.state import TENSORS

CELL, FINETUNED = "cell.json", "finetune.json"


@dataclass(frozen=True)
class Trained:
    """A trained model and its tokenizer."""

    name: str
    """what it is, in words"""
    folder: Path
    step: int
    """updates; of a fine-tuned model, of the fine-tuning"""
    model: Backbone
    tokenizer: Tokenizer
    cell: Mapping[str, Any] | None = None
    """cell.json of the cell that was trained, or fine-tuned; None of an import"""


def open_model(folder: Path, tokenizer: Path | None = None, step: int | None = None) -> Trained:
    """The model of a folder, at its last update or at another one whose checkpoint is kept, on the CPU. `tokenizer`
    stands in the place of the folder's own.

    ParibusError for a folder that holds no trained model, a step that is not kept, and for a tokenizer that is missing
    or another model's.
    """
    if (folder / imported.MODEL).exists():
        return _imported(folder, tokenizer, step)
    if (folder / CELL).exists() or (folder / FINETUNED).exists():
        return _cell(folder, tokenizer, step)
    raise ParibusError(
        f"{folder} holds no trained model",
        expected=f"a folder with {imported.MODEL} (imported), {CELL} (a finished cell of a study) or {FINETUNED}",
        received="a folder without either" if folder.is_dir() else "no such folder",
        remedy="import one (paribus import nanochat DIR), or name runs/<study>/<scale>/<arm>/<seed>-<digest>",
    )


def _imported(folder: Path, tokenizer: Path | None, step: int | None) -> Trained:
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
    own_step = int(found.origin.get("step") or 0)
    if step not in (None, own_step):
        raise _not_kept(folder, step, [own_step])
    name = f"{found.origin.get('tag')}, step {own_step}, imported"
    return Trained(name, folder, own_step, imported.load(found), read)


def _cell(folder: Path, tokenizer: Path | None, step: int | None) -> Trained:
    own = CellFolder(folder)
    kept = own.checkpoint_steps()
    if own.state != "complete" or not kept:
        raise StudyFolderError(
            f"{folder} holds no finished model",
            expected="a cell that is complete, with the state at its last update",
            received=own.state if kept else f"{own.state}, without a checkpoint",
            remedy="let `paribus run` finish it",
        )
    chosen = kept[-1] if step is None else step
    files = own.checkpoint_at(chosen)
    if files is None:
        raise _not_kept(folder, step, kept)
    finetuned = (folder / FINETUNED).exists()
    base = folder.resolve().parents[1] if finetuned else folder
    record = CellFolder(base).record()
    resolved: Mapping[str, Any] = record["resolved"]
    config = CONFIGS[resolved["model"].get("backbone", "prenorm")].model_validate(resolved["model"])
    arm = {seam: of_record(seam, resolved["mechanisms"][str(seam)], str(folder)) for seam in Seam}
    tensors = load_tensors(files[TENSORS])
    values = {name.removeprefix("model/"): t for name, t in tensors.items() if name.startswith("model/")}
    model = imported.with_values(config, arm, values, folder)
    read = _cell_tokenizer(base) if tokenizer is None else read_tokenizer(tokenizer)
    _require_size(read, config.vocabulary_size, exact=False)
    name = f"{record['scale']}/{record['arm']}/{record['seed']}"
    name += f", fine-tuned as {folder.name}" if finetuned else ""
    return Trained(f"{name}, step {chosen}", folder, chosen, model, read, record)


def _not_kept(folder: Path, step: int | None, kept: list[int]) -> ParibusError:
    return ParibusError(
        f"{folder} does not hold the model at step {step}",
        expected="one of the steps whose checkpoints are kept: " + ", ".join(map(str, kept)),
        received=str(step),
        remedy="name one of them, or none for the last",
    )


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
