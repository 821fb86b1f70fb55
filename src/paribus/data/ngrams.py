"""13-grams of words as 64-bit hashes, and sets of them that whole corpora are looked up in.

A word is a maximal run of letters and digits (`str.isalnum`) after every character is lower-cased on its own: case,
punctuation and spacing do not count. This follows the contamination filter of Brown et al. (2020, appendix C, whose
grams are lower-case words without punctuation), except that punctuation inside a word separates here, so that
`well-known` and `well known` are the same two words. A text of fewer than 13 words has no 13-gram.

A hash is a sum of scrambled (place, character) pairs for a word, and of words times odd weights for a 13-gram, modulo
2^64. Two different 13-grams collide with probability about 2^-64, so a set of n looked up m times gives n m / 2^64
false hits: 0.002 in all for a set of 4 million and a corpus of 10 billion words.
"""

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Self

import numpy as np
from numpy.typing import NDArray

from paribus.data.partitions import distinct
from paribus.data.shingles import scrambled
from paribus.seeds import generator

WORDS_PER_NGRAM = 13
# Large enough to amortise the calls, small enough that the arrays stay near the processor.
_BYTES_PER_CHUNK = 500_000
_CODE_POINTS = 0x110000


def ngrams(texts: Sequence[bytes]) -> Iterator[tuple[NDArray[np.uint64], NDArray[np.int64]]]:
    """The hashes of all 13-grams, in parts: (hash `[ngram]`, number of its text `[ngram]`). Texts are valid UTF-8.

    Memory: some 100 times half a megabyte, however long a text is. A word of more than half a megabyte counts as
    several.
    """
    batch: list[int] = []
    size = 0
    for number, text in enumerate(texts):
        if len(text) > _BYTES_PER_CHUNK:
            for part in _of_long(text):
                yield part, np.full(len(part), number, dtype=np.int64)
            continue
        if size + len(text) > _BYTES_PER_CHUNK:
            yield _of_short(texts, batch)
            batch, size = [], 0
        batch.append(number)
        size += len(text)
    if batch:
        yield _of_short(texts, batch)


class HashSet:
    """Sorted 64-bit hashes with a table of bits in front, which answers most look-ups of what is not there."""

    def __init__(self, hashes: NDArray[np.uint64]) -> None:
        """`hashes`: sorted; each may stand there more than once."""
        self.hashes = hashes
        # 32 to 64 bits for each hash: about one look-up in fifty goes on to the search.
        self._bits = max(10, len(hashes).bit_length() + 5)
        self._table = np.zeros(1 << (self._bits - 3), dtype=np.uint8)
        byte, bit = self._place(np.asarray(hashes))
        np.bitwise_or.at(self._table, byte, bit)

    @classmethod
    def of(cls, hashes: NDArray[np.uint64]) -> Self:
        return cls(distinct(hashes))

    def __len__(self) -> int:
        return len(self.hashes)

    def found(self, looked_up: NDArray[np.uint64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """(which of the hashes looked up are in the set, where the first equal one stands), for those that are."""
        byte, bit = self._place(looked_up)
        maybe = np.flatnonzero(self._table[byte] & bit)
        place = np.searchsorted(self.hashes, looked_up[maybe])
        inside = place < len(self.hashes)
        inside[inside] = self.hashes[place[inside]] == looked_up[maybe[inside]]
        return maybe[inside], place[inside]

    def _place(self, hashes: NDArray[np.uint64]) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
        slot = hashes >> np.uint64(64 - self._bits)
        bit = np.left_shift(np.uint8(1), (slot & np.uint64(7)).astype(np.uint8))
        return (slot >> np.uint64(3)).astype(np.int64), bit


def _of_short(texts: Sequence[bytes], batch: list[int]) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    codes = [_codes(texts[number]) for number in batch]
    # A separator between texts keeps the words of two apart.
    ends = np.cumsum([len(code) + 1 for code in codes])
    joined = np.zeros(ends[-1], dtype=np.uint32)
    for code, end in zip(codes, ends.tolist(), strict=True):
        joined[end - 1 - len(code) : end - 1] = code
    words, begins = _words(joined)
    text = np.searchsorted(ends, begins, side="right")
    hashes = _combined(words)
    inside = text[: len(hashes)] == text[WORDS_PER_NGRAM - 1 :]
    return hashes[inside], np.array(batch, dtype=np.int64)[text[: len(hashes)][inside]]


def _of_long(text: bytes) -> Iterator[NDArray[np.uint64]]:
    carried = np.empty(0, dtype=np.uint64)
    begin = 0
    while begin < len(text):
        end = min(len(text), begin + _BYTES_PER_CHUNK)
        # Bytes 10xxxxxx continue a character.
        while end < len(text) and text[end] & 0xC0 == 0x80:
            end -= 1
        codes = _codes(text[begin:end])
        if end < len(text):
            outside = np.flatnonzero(~_alphanumeric()[codes])
            if len(outside):
                # The word that the segment cuts goes to the next one.
                whole = int(outside[-1]) + 1
                end -= len(codes[whole:].astype("<u4").tobytes().decode("utf-32-le").encode())
                codes = codes[:whole]
        words = np.concatenate([carried, _words(codes)[0]])
        yield _combined(words)
        carried = words[max(0, len(words) - WORDS_PER_NGRAM + 1) :]
        begin = end


def _codes(text: bytes) -> NDArray[np.uint32]:
    """The code points."""
    if text.isascii():
        return np.frombuffer(text, dtype=np.uint8).astype(np.uint32)
    return np.frombuffer(text.decode().encode("utf-32-le"), dtype="<u4")


def _words(codes: NDArray[np.uint32]) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """(hash `[word]`, where it begins `[word]`)."""
    alphanumeric = np.concatenate([[False], _alphanumeric()[codes], [False]])
    edges = np.flatnonzero(alphanumeric[1:] != alphanumeric[:-1])
    begins, ends = edges[0::2], edges[1::2]
    if len(begins) == 0:
        return np.empty(0, dtype=np.uint64), begins
    place = np.arange(len(codes), dtype=np.uint64)
    inside = alphanumeric[1:-1]
    place = place[inside] - np.repeat(begins, ends - begins).astype(np.uint64)
    pairs = scrambled((place << np.uint64(21)) + _lower()[codes[inside]])
    firsts = np.cumsum(ends - begins) - (ends - begins)
    return scrambled(np.add.reduceat(pairs, firsts)), begins


def _combined(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """`[ngram]`: one begins at every word that has twelve after it."""
    count = max(0, len(words) - WORDS_PER_NGRAM + 1)
    weights = generator("overlap", "n-grams").integers(2**64, size=WORDS_PER_NGRAM, dtype=np.uint64)
    combined = np.zeros(count, dtype=np.uint64)
    for place in range(WORDS_PER_NGRAM):
        combined += words[place : place + count] * (weights[place] | np.uint64(1))
    return scrambled(combined)


@cache
def _alphanumeric() -> NDArray[np.bool_]:
    """`[code point]`"""
    return np.fromiter((chr(code).isalnum() for code in range(_CODE_POINTS)), dtype=np.bool_, count=_CODE_POINTS)


@cache
def _lower() -> NDArray[np.uint64]:
    """`[code point]`: its lower case; of the few whose lower case is several characters, the first."""
    lowered = (ord(chr(code).lower()[0]) for code in range(_CODE_POINTS))
    return np.fromiter(lowered, dtype=np.uint64, count=_CODE_POINTS)
