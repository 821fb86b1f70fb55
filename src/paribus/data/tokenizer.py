"""Byte-pair encoding without loss: every text is a sequence of tokens, and every token is a known number of bytes.

Every tokenizer, learnt or loaded, passes the same constructor, which leaves out or refuses what loses text
(`tokenizers.lossless`), reads the bytes of each token (`tokenizers.spelling`) and encodes with a vocabulary that has
no special tokens at all: no text, whatever it spells, becomes one, and the bytes of a text's tokens are its bytes.
Two consequences for tokenizers of others: tokens that were added to the vocabulary beside the merges are never
produced, flagged as special or not; and no space is put before a text, as sentencepiece does, because a token would
then stand for a byte more than the text has (encode " " + text for those ids).

Threads: the library reads the variable TOKENIZERS_PARALLELISM itself and guards its thread pool against forks. We
leave the variable alone (setting it from Python would undo that guard in a forked child) and use no threads for a
few short texts, so a process that only encodes prompts can fork freely. Results never depend on the number of threads.
"""

import hashlib
import itertools
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import tokenizers
from numpy.typing import NDArray

from paribus.data.chunks import PIECE_BYTES, decoded, pieces, safe_cuts
from paribus.data.config import TokenizerConfig
from paribus.data.tokenizers import files
from paribus.data.tokenizers.learning import learn
from paribus.data.tokenizers.lossless import lossless
from paribus.data.tokenizers.spelling import BYTE_TOKENS, spell
from paribus.errors import CorpusError

BOS = "<|bos|>"
BOS_ID = 0
"""of a tokenizer that is learnt with the default layout; `Tokenizer.bos_id` is any tokenizer's"""
USUAL_BEGINNINGS = (BOS, "<|endoftext|>", "<s>", "<|begin_of_text|>", "<bos>")

BATCH_BYTES = 1_000_000
"""of text in one call of the library, which takes about 110 times as much memory until its result is read"""
_FEW_TEXTS = 8
_SHORT_BYTES = 65_536
_PROBES = (
    "",
    "\x00\r\r\n\t  \n a",
    "e\u0301\ufb01\u00e9 \u4e2d\ufffe\ufeff\U0001f642",
    " \u2581\u2581 <s><0x0A>",
    "It's 12345!\n\n",
)


class Tokenizer:
    """Text to token ids and back. Made by `train` or `load`."""

    def __init__(self, definition: dict[str, Any], beginning: str | None = None) -> None:
        """From the object of a tokenizer.json; `beginning` names the special token with which a document begins.

        Raises CorpusError for a tokenizer that loses text, one whose merges spell a special token, and where no
        special token of that name (or of `USUAL_BEGINNINGS`) is there.
        """
        definition = lossless(definition)
        spelling = spell(definition)
        self._json = json.dumps(definition, ensure_ascii=False, separators=(",", ":")).encode()
        self._spelling = spelling
        self._sizes = np.array([len(piece) for piece in spelling.pieces], dtype=np.int32)
        self.special_tokens: dict[str, int] = dict(spelling.special)
        """id of each token that no text becomes, by name"""
        self.bos_id = _beginning(spelling.special, beginning)
        """the token that marks where a document begins"""
        self.token_type: np.dtype[Any] = np.dtype("<u2") if len(spelling.pieces) <= 65536 else np.dtype("<u4")
        """the smallest unsigned type that holds every token id, little endian"""
        vocabulary = {
            token: index for token, index in definition["model"]["vocab"].items() if token not in spelling.special
        }
        ordinary = definition["model"] | {"vocab": vocabulary, "unk_token": None}
        self._backend = tokenizers.Tokenizer.from_str(
            json.dumps(definition | {"added_tokens": [], "decoder": None, "model": ordinary})
        )
        self.safe_cut = safe_cuts(definition, spelling, self._backend.pre_tokenizer)
        """whether a text may be cut before the character of an index, so that the parts have the ids of the whole"""
        space = None if spelling.space is None else spelling.space.encode()
        self._space = space
        """bytes that tokens would read as a space; a text is cut there and gives them byte by byte"""
        self._space_ids = np.array([vocabulary[BYTE_TOKENS[byte]] for byte in space or b""], dtype=self.token_type)
        for text in _PROBES:
            if (found := self.decode_bytes(self.encode_batch_utf8([text.encode()])[0])) != text.encode():
                raise CorpusError(
                    "the tokenizer does not keep every byte of a text",
                    expected=f"the bytes of {text!r} from its tokens",
                    received=repr(found),
                    remedy="use another tokenizer, or let one be learnt",
                )

    @classmethod
    def train(cls, texts: Iterable[str], config: TokenizerConfig | int) -> Self:
        """Learn merges from the texts (of the training split only); a number is the vocabulary size.

        The vocabulary is smaller than asked where the texts offer fewer merges.
        Raises CorpusError for a vocabulary that cannot hold the 256 bytes and the special tokens.
        """
        if isinstance(config, int):
            config = TokenizerConfig(vocabulary_size=config)
        return cls(learn(texts, config), config.special_tokens[0])

    @classmethod
    def load(cls, path: Path, beginning: str | None = None) -> Self:
        """Read a tokenizer.json, or a folder that holds one or GPT-2's vocabulary and merges.

        Raises CorpusError for a file that is missing or damaged, and as the constructor does, naming the file.
        """
        definition = files.read(path)
        try:
            return cls(definition, beginning)
        except CorpusError as error:
            raise CorpusError(
                f"{path.name}: {error.what}", expected=error.expected, received=error.received, remedy=error.remedy
            ) from error
        except Exception as error:  # the library raises bare Exception for what it cannot build
            raise CorpusError(
                f"{path.name} cannot be read as a tokenizer",
                expected="a tokenizer.json, as the tokenizers library and paribus write it",
                received=f"{type(error).__name__}: {error}",
                remedy=f"restore {path}, or prepare the corpus again",
            ) from error

    def save(self, path: Path) -> None:
        """Write the tokenizer's JSON, byte for byte what `digest` covers."""
        path.write_bytes(self._json)

    @property
    def digest(self) -> str:
        """blake2b-256 of the saved JSON, hexadecimal."""
        return hashlib.blake2b(self._json, digest_size=32).hexdigest()

    @property
    def vocabulary_size(self) -> int:
        """One more than the highest id."""
        return len(self._spelling.pieces)

    def encode_batch(self, texts: Sequence[str]) -> list[NDArray[np.int32]]:
        """Token ids `[token]` of each text, no special token among them."""
        ids, lengths = self.encode_batch_utf8([text.encode() for text in texts])
        return np.split(ids.astype(np.int32), np.cumsum(lengths)[:-1]) if len(texts) else []

    def encode_batch_utf8(
        self, texts: Sequence[bytes], *, piece_bytes: int = PIECE_BYTES
    ) -> tuple[NDArray[np.unsignedinteger], NDArray[np.int64]]:
        """Token ids of all texts end to end, of `token_type`, and how many each text has, `[text]`.

        Texts longer than `piece_bytes` are cut where that changes no id. Memory: the result and some 200 MB. Raises
        LongRunError for a long text that cannot be cut, CorpusError for one that is not UTF-8.
        """
        lengths = np.zeros(len(texts), dtype=np.int64)
        parts = [np.zeros(0, dtype=self.token_type)]
        units = ((place, unit) for place, utf8 in enumerate(texts) for unit in self._units(utf8, piece_bytes))
        for owners, ids, counts in self._encoded(units):
            np.add.at(lengths, owners, counts)
            parts.append(ids)
        return np.concatenate(parts), lengths

    def encode_utf8(self, utf8: bytes, *, piece_bytes: int = PIECE_BYTES) -> Iterator[NDArray[np.unsignedinteger]]:
        """Token ids of one text, some at a time, in memory that does not grow with the text; errors as above."""
        for _, ids, _ in self._encoded((0, unit) for unit in self._units(utf8, piece_bytes)):
            yield ids

    def decode(self, ids: Sequence[int] | NDArray[np.integer]) -> str:
        """The text of the ids; special tokens stand for no text, incomplete UTF-8 becomes U+FFFD."""
        return self.decode_bytes(ids).decode(errors="replace")

    def decode_bytes(self, ids: Sequence[int] | NDArray[np.integer]) -> bytes:
        """The bytes that the ids stand for: those of the text where the ids are its tokens."""
        spelled = self._spelling.pieces
        return b"".join([spelled[token] for token in np.asarray(ids, dtype=np.int64).tolist()])

    def token_bytes(self) -> NDArray[np.int32]:
        """`[vocab]`: how many UTF-8 bytes of text each token id stands for; 0 for special tokens."""
        return self._sizes.copy()

    def _units(self, utf8: bytes, piece_bytes: int) -> Iterator[str | None]:
        """The text in pieces that are encoded by themselves; None stands for the character that spells a space."""
        segments = utf8.split(self._space) if self._space else [utf8]
        for place, segment in enumerate(segments):
            if place:
                yield None
            if len(segment) <= piece_bytes:
                yield decoded(segment)
            else:
                yield from pieces(segment, self.safe_cut, piece_bytes)

    def _encoded(
        self, units: Iterator[tuple[int, str | None]]
    ) -> Iterator[tuple[list[int], NDArray[np.unsignedinteger], list[int]]]:
        """Batches of units in order: the owner `[unit]`, ids of all end to end, number of ids `[unit]`."""
        batch: list[tuple[int, str | None]] = []
        size = 0
        for owner, unit in units:
            batch.append((owner, unit))
            size += 0 if unit is None else len(unit) if unit.isascii() else len(unit.encode())
            if size >= BATCH_BYTES:
                yield self._batch(batch, size)
                batch, size = [], 0
        if batch:
            yield self._batch(batch, size)

    def _batch(
        self, batch: list[tuple[int, str | None]], size: int
    ) -> tuple[list[int], NDArray[np.unsignedinteger], list[int]]:
        texts = [unit for _, unit in batch if unit is not None]
        if len(texts) <= _FEW_TEXTS and size <= _SHORT_BYTES:
            encodings = [self._backend.encode(text, add_special_tokens=False) for text in texts]
        else:
            encodings = self._backend.encode_batch_fast(texts, add_special_tokens=False)
        counts = [len(encoding) for encoding in encodings]
        ids = np.fromiter(
            itertools.chain.from_iterable(encoding.ids for encoding in encodings), self.token_type, count=sum(counts)
        )
        if len(texts) < len(batch):
            found = iter(np.split(ids, np.cumsum(counts)[:-1]))
            parts = [self._space_ids if unit is None else next(found) for _, unit in batch]
            ids, counts = np.concatenate(parts), [len(part) for part in parts]
        return [owner for owner, _ in batch], ids, counts


def _beginning(special: dict[str, int], declared: str | None) -> int:
    names = USUAL_BEGINNINGS if declared is None else (declared,)
    for name in names:
        if name in special:
            return special[name]
    raise CorpusError(
        "the tokenizer has no special token that marks where a document begins",
        expected=" or ".join(names),
        received=", ".join(sorted(special, key=special.__getitem__)) or "no special tokens",
        remedy="name one of its special tokens as the beginning" if special else "use another tokenizer",
    )
