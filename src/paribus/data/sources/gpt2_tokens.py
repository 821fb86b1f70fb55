"""Texts that are stored as GPT-2 token ids (nvidia/Nemotron-ClimbMix: a column `tokens`, a document a row).

GPT-2's byte-level BPE (Radford et al. 2019) makes every token a fixed string of bytes, so decoding is concatenation
and exact. The vocabulary is the published one or none: its tokens are compared with a digest, whichever of the files
in use holds them.
"""

import base64
import binascii
import functools
import hashlib
import json
from collections.abc import Iterable
from io import BytesIO
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from paribus.data.sources.contract import Skip
from paribus.data.sources.judging import BadValueError
from paribus.errors import CorpusError

END_OF_TEXT = "<|endoftext|>"
"""the last id; it marks a border between documents and stands for no text"""
GPT2_DIGEST = "d5afa56cae83db7f9a2922c60df7370968a41c05b888e19dadbcf86e7f3017e1"
"""of GPT-2's 50,256 tokens, as `digest_of_tokens` computes it"""

# tiktoken's cache names a file by the SHA-1 of its address: gpt2's ranks, gpt2's encoder.json.
_USUAL_NAMES = (
    "tokenizer.json",
    "encoder.json",
    "vocab.json",
    "r50k_base.tiktoken",
    "gpt2.tiktoken",
    "0ea1e91bbb3a60f729a8dc8f777fd2fc07cd8df4",
    "6c7ea1a7e38e3a7f062df639a5b80947f075ffe6",
)
_BLOCK_IDS = 1 << 16


def text_of_ids(blocks: Iterable[NDArray[np.integer]], vocabulary: Path) -> bytes:
    """The bytes that the ids `[token]` of one document spell, given in blocks in order.

    End-of-text ids before and after the text are its borders. Raises BadValueError for an id outside the vocabulary and
    for a border within.
    """
    tokens = token_strings(vocabulary)
    end_of_text = len(tokens)
    text = BytesIO()
    ended = False
    for block in blocks:
        for start in range(0, len(block), _BLOCK_IDS):
            ids = block[start : start + _BLOCK_IDS]
            outside = ids[(ids < 0) | (ids > end_of_text)]
            if len(outside):
                raise BadValueError(
                    Skip.MALFORMED, expected=f"GPT-2 token ids, 0 to {end_of_text}", received=f"id {outside[0]}"
                )
            inside = np.flatnonzero(ids != end_of_text)
            if len(inside) == 0:
                ended = ended or text.tell() > 0
                continue
            within = slice(int(inside[0]), int(inside[-1]) + 1)
            leading_border = within.start > 0 and text.tell() > 0
            if ended or leading_border or len(inside) != within.stop - within.start:
                raise BadValueError(
                    Skip.MALFORMED,
                    expected="one document in a row",
                    received=f"{END_OF_TEXT} (id {end_of_text}) between tokens",
                )
            text.write(b"".join(map(tokens.__getitem__, ids[within].tolist())))
            ended = within.stop < len(ids)
    return text.getvalue()


def gpt2_vocabulary(candidates: Iterable[Path]) -> Path:
    """The first of the files, or of the usual names in the folders, that holds GPT-2's tokens.

    Raises CorpusError naming what was tried.
    """
    tried = []
    for candidate in candidates:
        paths = [candidate / name for name in _USUAL_NAMES] if candidate.is_dir() else [candidate]
        for path in filter(Path.is_file, paths):
            if digest_of_tokens(token_strings(path)) == GPT2_DIGEST:
                return path
            tried.append(f"{path} (another vocabulary)")
        tried += [] if candidate.exists() else [f"{candidate} (absent)"]
    raise CorpusError(
        "GPT-2's vocabulary is needed to decode a corpus of GPT-2 tokens",
        expected="GPT-2's tokenizer.json, encoder.json (vocab.json) or r50k_base.tiktoken",
        received=", ".join(tried) or "none of these",
        remedy="put one of them into the corpus folder, or name tiktoken's cache in TIKTOKEN_CACHE_DIR",
    )


@functools.lru_cache(maxsize=2)
def token_strings(path: Path) -> tuple[bytes, ...]:
    """The bytes of every token by id, without the end-of-text token, whose id is their number.

    Reads a tokenizer.json, an encoder.json or vocab.json, and tiktoken's ranks; which one it is, its content says.
    Raises CorpusError for a file that is none of them or has gaps between its ids.
    """
    try:
        content = path.read_bytes()
        if content.lstrip().startswith(b"{"):
            held = json.loads(content)
            letters = {letter: byte for byte, letter in enumerate(byte_letters())}
            # "model" is a token of GPT-2 too.
            model = held.get("model")
            spelled: dict[str, int] = model["vocab"] if isinstance(model, dict) else held
            by_id = {
                index: bytes(letters[letter] for letter in token)
                for token, index in spelled.items()
                if token != END_OF_TEXT
            }
        else:
            by_id = {
                int(rank): base64.b64decode(token, validate=True)
                for token, rank in (line.split() for line in content.splitlines() if line)
            }
        return tuple(by_id[index] for index in range(len(by_id)))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, binascii.Error) as error:
        raise CorpusError(
            f"{path.name} cannot be read as a vocabulary of byte-level tokens",
            expected="a tokenizer.json, an encoder.json, or tiktoken's ranks, with ids from 0 without gaps",
            received=f"{type(error).__name__}: {error}",
            remedy=f"fetch {path} again",
        ) from error


def byte_letters() -> list[str]:
    """The letter with which GPT-2's files spell each byte: itself where it prints, else the next one from U+0100."""
    prints = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(0x100, 0x200))
    return [chr(byte if byte in prints else next(others)) for byte in range(256)]


def digest_of_tokens(tokens: Iterable[bytes]) -> str:
    """blake2b-256 over the tokens in the order of their ids, each after its length as 4 little-endian bytes."""
    digest = hashlib.blake2b(digest_size=32)
    for token in tokens:
        digest.update(len(token).to_bytes(4, "little") + token)
    return digest.hexdigest()
