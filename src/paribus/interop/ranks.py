"""Tokenizers of nanochat without its pickle: a JSON file of byte strings by rank becomes a tokenizer.json.

    {"pattern": "...", "mergeable_ranks_hex": {"00": 0, ...}, "special_tokens": {"<|bos|>": 32759, ...}}

nanochat keeps its tokenizer as a pickled object, and a pickle runs code when it is opened. It is never opened here;
`CONVERSION` is what writes the JSON file in nanochat's own environment, where the object comes from.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from paribus.data.tokenizer import BOS, Tokenizer
from paribus.data.tokenizers.files import from_ranks
from paribus.errors import CorpusError
from paribus.interop.errors import ForeignModelError

PICKLES = (".pkl", ".pickle")
KEYS = ("pattern", "mergeable_ranks_hex", "special_tokens")
CONVERSION = """\
import json
from nanochat.tokenizer import get_tokenizer

encoding = get_tokenizer().enc
table = {
    "pattern": encoding._pat_str,
    "mergeable_ranks_hex": {piece.hex(): rank for piece, rank in encoding._mergeable_ranks.items()},
    "special_tokens": encoding._special_tokens,
}
with open("ranks.json", "w", encoding="utf-8") as file:
    json.dump(table, file)
"""
"""Python for nanochat's environment; it writes ranks.json into the working folder"""


def read_tokenizer(path: Path) -> Tokenizer:
    """The tokenizer of a ranks file, a tokenizer.json, or a folder that holds one.

    ForeignModelError for a pickle and for a ranks file that is damaged; CorpusError for a tokenizer that loses text.
    """
    if path.suffix in PICKLES:
        raise ForeignModelError(
            f"{path.name} is a pickle, and a pickle runs code when it is opened: it is not read",
            expected="the tokenizer's ranks as JSON, or a tokenizer.json",
            received=str(path),
            remedy=f"run this in nanochat's environment, then give --tokenizer ranks.json\n\n{CONVERSION}",
        )
    if path.is_dir() or not _is_ranks(path):
        return Tokenizer.load(path)
    return _of_ranks(path)


def _is_ranks(path: Path) -> bool:
    try:
        table = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False  # whoever reads it as a tokenizer.json says what is wrong
    return isinstance(table, dict) and "model" not in table and any(key in table for key in KEYS)


def _of_ranks(path: Path) -> Tokenizer:
    table: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    pattern, by_piece, special = table.get("pattern"), _numbered(table, KEYS[1]), _numbered(table, KEYS[2])
    if not isinstance(pattern, str) or by_piece is None or special is None:
        raise _damaged(path, "the keys " + ", ".join(KEYS), "others, or of another kind: " + ", ".join(table)[:100])
    try:
        ranks = {bytes.fromhex(piece): rank for piece, rank in by_piece.items()}
    except ValueError as error:
        raise _damaged(path, "byte strings in hexadecimal", str(error)) from error
    pieces = sorted(ranks, key=ranks.__getitem__)
    if [ranks[piece] for piece in pieces] != list(range(len(pieces))):
        raise _damaged(path, "ranks from 0 without a gap, each once", f"{len(ranks)} byte strings")
    taken = set(special.values())
    if len(taken) != len(special) or taken & set(range(len(pieces))):
        raise _damaged(path, "ids of special tokens behind the ranks, each once", json.dumps(special)[:120])
    try:
        return Tokenizer(from_ranks(pieces, pattern, special), BOS if BOS in special else None)
    except CorpusError as error:
        raise ForeignModelError(
            f"{path.name}: {error.what}", expected=error.expected, received=error.received, remedy=error.remedy
        ) from error


def _numbered(table: Mapping[str, Any], key: str) -> dict[str, int] | None:
    found = table.get(key)
    if not isinstance(found, dict) or not all(type(index) is int for index in found.values()):
        return None
    return found


def _damaged(path: Path, expected: str, received: str) -> ForeignModelError:
    return ForeignModelError(
        f"{path.name} cannot be read as a tokenizer's ranks",
        expected=expected,
        received=received,
        remedy="write it again in nanochat's environment (docs/howto/import-a-nanochat-model.md)",
    )
