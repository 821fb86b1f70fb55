"""Byte-level byte-pair encoding: every text is a sequence of tokens, and every token is a known number of bytes.

The alphabet is all 256 bytes, so no text is unknown and bits per byte is exact. The one special token marks where a
document begins; no text, whatever it spells, becomes that token.

Threads: the library reads the variable TOKENIZERS_PARALLELISM itself and guards its thread pool against forks. We
leave the variable alone (setting it from Python would undo that guard in a forked child) and use no threads for a
few texts, so a process that only encodes prompts can fork freely. Results never depend on the number of threads.
"""

import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Self

import numpy as np
import tokenizers
from numpy.typing import NDArray
from tokenizers import decoders, models, pre_tokenizers, trainers

from paribus.errors import CorpusError

BOS = "<|bos|>"
BOS_ID = 0
SMALLEST_VOCABULARY = 257
"""256 bytes and the beginning of a document."""

_FEW_TEXTS = 8


class Tokenizer:
    """Text to token ids and back. Made by `train` or `load`."""

    def __init__(self, backend: tokenizers.Tokenizer) -> None:
        # Not part of the saved file, hence set here, where every tokenizer passes: a special token's name in a
        # text is encoded as the characters it consists of.
        backend.encode_special_tokens = True
        self._backend = backend

    @classmethod
    def train(cls, texts: Iterable[str], vocabulary_size: int) -> Self:
        """Learn merges from the texts (of the training split only).

        The vocabulary is smaller than asked where the texts offer fewer merges.
        Raises CorpusError for a vocabulary that cannot hold the 256 bytes and the special token.
        """
        if vocabulary_size < SMALLEST_VOCABULARY:
            raise CorpusError(
                "the vocabulary is too small for a byte-level tokenizer",
                expected=f"at least {SMALLEST_VOCABULARY} (256 bytes and {BOS})",
                received=str(vocabulary_size),
            )
        backend = tokenizers.Tokenizer(models.BPE())
        # GPT-2's split: letters, digits, other marks and white space never share a token. It also keeps the merges
        # from ever spelling the special token's name.
        backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
        backend.decoder = decoders.ByteLevel()
        trainer = trainers.BpeTrainer(
            vocab_size=vocabulary_size,
            special_tokens=[BOS],
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        )
        backend.train_from_iterator(texts, trainer)
        return cls(backend)

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read a saved tokenizer. Raises CorpusError for a file that is missing, damaged or another tokenizer's."""
        try:
            backend = tokenizers.Tokenizer.from_str(path.read_text(encoding="utf-8"))
        except Exception as error:  # the library raises bare Exception for a damaged file
            raise CorpusError(
                f"{path.name} cannot be read as a tokenizer",
                expected="a tokenizer file written by paribus",
                received=f"{type(error).__name__}: {error}",
                remedy=f"restore {path}, or prepare the corpus again",
            ) from error
        if backend.token_to_id(BOS) != BOS_ID:
            raise CorpusError(
                f"{path.name} is another tokenizer's file",
                expected=f"the special token {BOS} with id {BOS_ID}",
                received=f"id {backend.token_to_id(BOS)}",
                remedy="use the tokenizer that was prepared with the corpus",
            )
        return cls(backend)

    def save(self, path: Path) -> None:
        """Write the tokenizer's JSON, byte for byte what `digest` covers."""
        path.write_bytes(self._json())

    @property
    def digest(self) -> str:
        """blake2b-256 of the saved JSON, hexadecimal."""
        return hashlib.blake2b(self._json(), digest_size=32).hexdigest()

    @property
    def vocabulary_size(self) -> int:
        return self._backend.get_vocab_size()

    def encode_batch(self, texts: Sequence[str]) -> list[NDArray[np.int32]]:
        """Token ids `[token]` of each text, no special token among them."""
        if len(texts) <= _FEW_TEXTS:
            encodings = [self._backend.encode(text, add_special_tokens=False) for text in texts]
        else:
            encodings = self._backend.encode_batch_fast(list(texts), add_special_tokens=False)
        return [np.array(encoding.ids, dtype=np.int32) for encoding in encodings]

    def decode(self, ids: Sequence[int] | NDArray[np.integer]) -> str:
        """The text of the ids; the special token stands for no text, incomplete UTF-8 becomes U+FFFD."""
        return self._backend.decode([int(token) for token in ids], skip_special_tokens=True)

    def token_bytes(self) -> NDArray[np.int32]:
        """`[vocab]`: how many UTF-8 bytes of text each token id stands for; 0 for the special token."""
        sizes = np.zeros(self.vocabulary_size, dtype=np.int32)
        for token, index in self._backend.get_vocab(with_added_tokens=True).items():
            # The byte-level alphabet spells each byte as exactly one character.
            sizes[index] = len(token)
        sizes[list(self._backend.get_added_tokens_decoder())] = 0
        return sizes

    def _json(self) -> bytes:
        return self._backend.to_str().encode()
