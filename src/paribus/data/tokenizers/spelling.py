"""Which bytes of text each token stands for, and that no text is spelled by a special token.

Two spellings are known. Byte-level: each byte is one character of an alphabet of 256 (printable bytes are themselves,
the others take the code points from 256 on), so that a token's bytes can be read off its characters; Radford et al.,
"Language Models are Unsupervised Multitask Learners" (2019), section 2.2. Byte fallback (sentencepiece): tokens are
text in which U+2581 spells a space, and a character without a token becomes the tokens `<0x00>` to `<0xFF>` of its
bytes; Kudo and Richardson, "SentencePiece" (2018).
"""

import re
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from paribus.data.tokenizers.lossless import space_of, stages_of
from paribus.errors import CorpusError

_BYTE_TOKEN = re.compile(r"<0x([0-9A-F]{2})>")
BYTE_TOKENS = tuple(f"<0x{byte:02X}>" for byte in range(256))


def _alphabet() -> dict[str, int]:
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + place): byte for place, byte in enumerate(others)}


BYTE_OF = _alphabet()
"""The byte of each character of the byte-level alphabet."""
CHARACTER_OF = {byte: character for character, byte in BYTE_OF.items()}


@dataclass(frozen=True)
class Spelling:
    pieces: tuple[bytes, ...]
    """`[vocab]`: the bytes of text of each token; none for special tokens and for ids without a token"""
    special: dict[str, int]
    """the tokens that no text becomes, by name"""
    byte_level: bool
    space: str | None
    """the character that spells a space; a text that holds it is cut there and gives its bytes (byte fallback)"""
    joined: frozenset[Any]
    """adjacent units inside tokens, which merging may join: pairs of bytes (byte-level), else of characters"""


def spell(definition: dict[str, Any]) -> Spelling:
    """Read the bytes of all tokens of a lossless definition.

    Raises CorpusError where some byte has no token, or text would become a special token or a byte token.
    """
    vocabulary: dict[str, int] = definition["model"]["vocab"]
    merges: list[list[str]] = definition["model"]["merges"]
    special = {token["content"]: token["id"] for token in definition["added_tokens"]}
    byte_level = any(stage["type"] == "ByteLevel" for stage in stages_of(definition))
    space = None if byte_level else space_of(definition)
    learnt = {"".join(merge) for merge in merges}
    if byte_level:
        _all_there([CHARACTER_OF[byte] for byte in range(256)], vocabulary)
        _never_spelled(special.keys() & (learnt | BYTE_OF.keys()))
    else:
        if not definition["model"]["byte_fallback"]:
            raise _incomplete("no ByteLevel pre-tokenizer and no byte fallback", "a character without a token is lost")
        if definition["model"]["ignore_merges"]:
            raise _incomplete("byte fallback with ignore_merges", "the text '<0x0A>' becomes the token of a line feed")
        _all_there([*BYTE_TOKENS, *([space] if space else [])], vocabulary)
        single = {token for token in vocabulary if len(token) == 1}
        operands = {operand for merge in merges for operand in merge}
        _never_spelled(special.keys() & (learnt | single))
        _never_spelled(set(BYTE_TOKENS) & (learnt | operands))
    size = max([*vocabulary.values(), *special.values()]) + 1
    pieces = [b""] * size
    for token, index in vocabulary.items():
        pieces[index] = _bytes_of(token, byte_level=byte_level, space=space)
    for index in special.values():
        pieces[index] = b""
    ordinary = [token for token in vocabulary if token not in special]
    joined: set[Any] = (
        {pair for token in ordinary for pair in pairwise(pieces[vocabulary[token]])}
        if byte_level
        else {pair for token in ordinary if not _BYTE_TOKEN.fullmatch(token) for pair in pairwise(token)}
    )
    return Spelling(tuple(pieces), special, byte_level, space, frozenset(joined))


def _bytes_of(token: str, *, byte_level: bool, space: str | None) -> bytes:
    if byte_level:
        if all(character in BYTE_OF for character in token):
            return bytes(BYTE_OF[character] for character in token)
        return token.encode()  # spelled outside the alphabet: no text becomes it
    if found := _BYTE_TOKEN.fullmatch(token):
        return bytes([int(found[1], 16)])
    return (token.replace(space, " ") if space else token).encode()


def _all_there(needed: list[str], vocabulary: dict[str, int]) -> None:
    if absent := [token for token in needed if token not in vocabulary]:
        raise _incomplete(
            f"{len(absent)} of {len(needed)} byte tokens are not in its vocabulary",
            f"no token for {', '.join(absent[:5])}{', ...' if len(absent) > 5 else ''}",
        )


def _never_spelled(tokens: set[str]) -> None:
    if tokens:
        name = min(tokens)
        raise CorpusError(
            f"text can become the token {name!r}, which stands for no text of that spelling",
            expected="special tokens and byte tokens that no merges spell",
            received=f"the text {name!r} is encoded as that token",
            remedy="give the special token another name, or use another tokenizer",
        )


def _incomplete(what: str, how: str) -> CorpusError:
    return CorpusError(
        f"the tokenizer cannot encode every text: {what}",
        expected="a byte-level BPE with all 256 bytes, or a BPE with byte fallback and all 256 byte tokens",
        received=how,
        remedy="use another tokenizer, or let one be learnt",
    )
