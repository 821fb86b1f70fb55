"""`paribus import llama`: a Llama decoder in the Hugging Face layout becomes a folder with our names.

RMS norms with gains, rotary positions without scaling, SwiGLU, grouped queries, a tied head, no biases: the PreNorm
backbone with neither the norm of queries and keys nor that of the embedding (Touvron et al. 2302.13971).
"""

import tempfile
from dataclasses import dataclass
from pathlib import Path

from paribus.data.sources.folder import file_digest
from paribus.data.tokenizer import Tokenizer
from paribus.interop import imported
from paribus.interop.errors import ForeignModelError
from paribus.interop.imported import Written
from paribus.interop.llama_config import CONFIG, LlamaConfig, read_config
from paribus.interop.llama_weights import read_weights, weight_files
from paribus.interop.ranks import read_tokenizer
from paribus.model.config import ModelConfig

FOLDER = Path("imported")


@dataclass(frozen=True)
class Outcome:
    """What an import did."""

    folder: Path
    tag: str
    """name of the folder that it came from"""
    config: ModelConfig
    written: Written
    parameters: int
    tokenizer: Tokenizer | None


def import_llama(source: Path, to: Path | None = None, tokenizer: Path | None = None) -> Outcome:
    """Write the model of a folder into another one, by default imported/<name of the folder>. `tokenizer` stands in
    the place of the folder's own tokenizer.json.

    The same import again changes nothing; with a tokenizer that was missing, it is added. ForeignModelError for a model
    that the backbone cannot be, for files that are missing or damaged, and for a folder that holds something else;
    CorpusError for a tokenizer that loses text. Nothing is written then.
    """
    found = read_config(source)
    tag = source.resolve().name
    folder = to or FOLDER / tag
    read = _tokenizer(found, source, folder, tokenizer)
    tensors = read_weights(source, found.config, tied=found.tied)
    digests = {path.name: file_digest(path) for path in (source / CONFIG, *weight_files(source))}
    origin = {"program": "llama", "tag": tag, "step": None, "files": digests, "config": dict(found.table)}
    texts = {} if read is None else {imported.TOKENIZER: _json_of(read)}
    written = imported.write(folder, found.config, tensors, origin, texts)
    parameters = sum(tensor.numel() for tensor in tensors.values())
    return Outcome(folder, tag, found.config, written, parameters, read)


def _tokenizer(found: LlamaConfig, source: Path, folder: Path, given: Path | None) -> Tokenizer | None:
    """The one that is given, the model's own, or the one that an earlier import was given."""
    own = (source / imported.TOKENIZER, folder / imported.TOKENIZER)
    path = given or next((place for place in own if place.exists()), None)
    if path is None:
        return None
    read = read_tokenizer(path)
    if read.vocabulary_size != found.config.vocabulary_size:
        raise ForeignModelError(
            f"{path} is not the tokenizer of this model",
            expected=f"{found.config.vocabulary_size} tokens, by {CONFIG}",
            received=f"{read.vocabulary_size} tokens",
            remedy="give the one that the model was trained with",
        )
    if found.bos_id not in (None, read.bos_id):
        raise ForeignModelError(
            f"{path} begins a document with another token than this model",
            expected=f"token {found.bos_id}, which {CONFIG} names as bos_token_id",
            received=f"token {read.bos_id}",
            remedy="give the tokenizer that the model was trained with",
        )
    return read


def _json_of(tokenizer: Tokenizer) -> bytes:
    with tempfile.TemporaryDirectory() as place:
        tokenizer.save(Path(place) / imported.TOKENIZER)
        return (Path(place) / imported.TOKENIZER).read_bytes()
