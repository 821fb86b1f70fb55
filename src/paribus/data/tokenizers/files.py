"""Reading tokenizers that others wrote: tokenizer.json, GPT-2's two files, and lists of byte strings by rank."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer as Backend
from tokenizers import models

from paribus.data.tokenizers.learning import split_by_pattern
from paribus.data.tokenizers.spelling import CHARACTER_OF
from paribus.errors import CorpusError

GPT2_FILES = (
    ("encoder.json", "vocab.bpe"),
    ("vocab.json", "merges.txt"),
    # The names under which tiktoken keeps the first two: SHA-1 of their addresses.
    ("6c7ea1a7e38e3a7f062df639a5b80947f075ffe6", "6d1cbeee0f20b3d9449abfede4726ed8212e3aee"),
)
GPT2_BEGINNING = "<|endoftext|>"


def read(path: Path) -> dict[str, Any]:
    """The JSON object of a tokenizer.json, or of a folder that holds one or GPT-2's vocabulary and merges.

    Raises CorpusError for what is missing or damaged.
    """
    if not path.is_dir():
        return _object(path)
    if (path / "tokenizer.json").exists():
        return _object(path / "tokenizer.json")
    for vocabulary, merges in GPT2_FILES:
        if (path / vocabulary).exists() and (path / merges).exists():
            return _gpt2(path / vocabulary, path / merges)
    raise CorpusError(
        f"{path} holds no tokenizer",
        expected="tokenizer.json, or " + ", or ".join(" and ".join(names) for names in GPT2_FILES),
        received=", ".join(sorted(file.name for file in path.iterdir())[:10]) or "an empty folder",
    )


def from_ranks(ranks: Sequence[bytes], pattern: str, special: Mapping[str, int]) -> dict[str, Any]:
    """The JSON object of a byte-level BPE given as the byte string of each id, in the order in which they were learnt.

    The two halves of a token are what the tokens before it make of its bytes, which restores the merges exactly where
    the list was learnt as BPE. Raises CorpusError for a list that was not.
    """
    rank_of = {piece: rank for rank, piece in enumerate(ranks)}
    if len(rank_of) != len(ranks):
        raise CorpusError("a byte string has two ranks", received=f"{len(ranks)} ranks of {len(rank_of)} strings")
    merges = [_halves(piece, rank, rank_of) for rank, piece in enumerate(ranks) if len(piece) > 1]
    spelled = {_spelled(piece): rank for piece, rank in rank_of.items()}
    backend = Backend(models.BPE(spelled, [(_spelled(left), _spelled(right)) for left, right in merges]))
    backend.pre_tokenizer = split_by_pattern(pattern)
    return json.loads(backend.to_str()) | {"added_tokens": [_added(name, index) for name, index in special.items()]}


def _halves(piece: bytes, rank: int, rank_of: Mapping[bytes, int]) -> tuple[bytes, bytes]:
    parts = [piece[place : place + 1] for place in range(len(piece))]
    while len(parts) > 2:
        found = [rank_of.get(parts[place] + parts[place + 1], rank) for place in range(len(parts) - 1)]
        lowest = min(found)
        if lowest >= rank:
            raise CorpusError(
                f"the token {piece!r} is no merge of two earlier ones",
                expected="byte strings in the order in which byte-pair encoding learnt them",
                received=f"rank {rank}, of {len(parts)} parts",
            )
        place = found.index(lowest)
        parts[place : place + 2] = [parts[place] + parts[place + 1]]
    return parts[0], parts[1]


def _spelled(piece: bytes) -> str:
    return "".join(CHARACTER_OF[byte] for byte in piece)


def _gpt2(vocabulary: Path, merges: Path) -> dict[str, Any]:
    lines = _text(merges).splitlines()
    tokens = _object(vocabulary, needed=())
    if GPT2_BEGINNING not in tokens:
        raise _unreadable(vocabulary, f"no {GPT2_BEGINNING}")
    return {
        "version": "1.0",
        "added_tokens": [_added(GPT2_BEGINNING, tokens[GPT2_BEGINNING])],
        "pre_tokenizer": {"type": "ByteLevel", "use_regex": True},
        "model": {
            "type": "BPE",
            "vocab": tokens,
            "merges": [line.split(" ") for line in lines if line and not line.startswith("#version")],
        },
    }


def _added(name: str, index: int) -> dict[str, Any]:
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    return {"id": index, "content": name} | flags


def _object(path: Path, needed: Sequence[str] = ("model",)) -> dict[str, Any]:
    try:
        found = json.loads(_text(path))
    except ValueError as error:
        raise _unreadable(path, f"{type(error).__name__}: {error}") from error
    if not isinstance(found, dict) or any(not isinstance(found.get(name), dict) for name in needed):
        raise _unreadable(path, f"no JSON object with {' and '.join(needed) or 'tokens'}")
    return found


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise _unreadable(path, f"{type(error).__name__}: {error}") from error


def _unreadable(path: Path, received: str) -> CorpusError:
    return CorpusError(
        f"{path.name} cannot be read as a tokenizer",
        expected="a tokenizer.json, as the tokenizers library and paribus write it",
        received=received,
        remedy=f"restore {path}, or prepare the corpus again",
    )
