"""`paribus import nanochat`: a checkpoint folder becomes a folder with our names, a configuration and a recipe."""

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paribus.data.tokenizer import Tokenizer
from paribus.interop import imported
from paribus.interop.errors import ForeignModelError
from paribus.interop.imported import Written
from paribus.interop.nanochat_checkpoint import Checkpoint, open_checkpoint, read_tensors
from paribus.interop.nanochat_recipe import recipe_text
from paribus.interop.ranks import read_tokenizer

FOLDER = Path("imported")
PICKLE = "tokenizer.pkl"


@dataclass(frozen=True)
class Outcome:
    """What an import did."""

    folder: Path
    checkpoint: Checkpoint
    written: Written
    parameters: int
    tokenizer: Tokenizer | None
    pickle: Path | None
    """a pickled tokenizer that was found and not read; None where there is none, or another one was given"""


def import_checkpoint(
    source: Path, step: int | None = None, to: Path | None = None, tokenizer: Path | None = None
) -> Outcome:
    """Write the model of a checkpoint into a folder, by default imported/<tag>-<step>.

    The same import again changes nothing; with a tokenizer that was missing, it is added. ForeignModelError for a
    checkpoint, a tokenizer or a folder that cannot be used; nothing is written then.
    """
    checkpoint = open_checkpoint(source, step)
    meta = checkpoint.meta
    folder = to or FOLDER / f"{checkpoint.tag}-{meta.step:06d}"
    own = folder / imported.TOKENIZER
    given = tokenizer or (own if (folder / imported.MODEL).exists() and own.exists() else None)
    found = None if given is None else read_tokenizer(given)
    if found is not None and found.vocabulary_size != meta.config.vocabulary_size:
        raise ForeignModelError(
            f"{given} is not the tokenizer of this model",
            expected=f"{meta.config.vocabulary_size} tokens, by model_config",
            received=f"{found.vocabulary_size} tokens",
            remedy="give the one that the model was trained with",
        )
    tensors = read_tensors(checkpoint)
    texts = {imported.RECIPE: recipe_text(meta, checkpoint.tag, has_tokenizer=found is not None).encode()}
    if found is not None:
        texts[imported.TOKENIZER] = _json_of(found)
    written = imported.write(folder, meta.config, tensors, _origin(checkpoint), texts)
    parameters = sum(tensor.numel() for tensor in tensors.values())
    return Outcome(folder, checkpoint, written, parameters, found, None if found else _pickle(source))


def _json_of(tokenizer: Tokenizer) -> bytes:
    with tempfile.TemporaryDirectory() as place:
        tokenizer.save(Path(place) / imported.TOKENIZER)
        return (Path(place) / imported.TOKENIZER).read_bytes()


def _origin(checkpoint: Checkpoint) -> Mapping[str, Any]:
    meta = checkpoint.meta
    return {
        "program": "nanochat",
        "tag": checkpoint.tag,
        "step": meta.step,
        "files": dict(checkpoint.digests),
        "model_config": dict(meta.shape),
        "validation_bits_per_byte": meta.val_bpb,
        "training_arguments": {key: value for key, value in meta.arguments.items() if _is_plain(value)},
    }


def _is_plain(value: object) -> bool:
    """Whether strict JSON holds the value: numbers that are no number, and tables, are left out."""
    return value is None or isinstance(value, str | bool | int) or (isinstance(value, float) and abs(value) < 1e308)


def _pickle(source: Path) -> Path | None:
    """Where nanochat keeps its tokenizer: beside the folders of checkpoints."""
    base = source.resolve()
    places = (base / PICKLE, base.parent.parent / "tokenizer" / PICKLE)
    return next((place for place in places if place.exists()), None)
