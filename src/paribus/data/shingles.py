"""Word shingles and their MinHash band keys: what two documents are compared by.

A shingle is five consecutive words (lower case, split at white space); every word of a document begins one, the last
ones padded. Signatures are 80 smallest hash values (Broder 1997), in 16 bands of 5: a pair whose sets of shingles have
the Jaccard index s agrees in some band with probability 1 - (1 - s^5)^16: 0.998 at 0.8, 0.9999 at 0.85, 0.40 at 0.5.
"""

import re
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from paribus.data.partitions import distinct
from paribus.seeds import generator

WORDS_PER_SHINGLE = 5
BANDS = 16
ROWS_PER_BAND = 5
# Large enough to amortise the calls, small enough that a chunk of hashes stays near the processor.
_BYTES_PER_CHUNK = 1_000_000
_WHITE_SPACE = re.compile(rb"[ \n\t\r]")


def band_keys(texts: Sequence[bytes]) -> NDArray[np.uint64]:
    """`[document band]`: one hash of the signature's rows that belong to the band. Texts are valid UTF-8.

    Memory: some 50 times a chunk of 1 MB; twice a text that is longer, and a few times its longest word.
    """
    weights = generator("near-duplicates", "bands").integers(2**64, size=ROWS_PER_BAND, dtype=np.uint64)
    banded = signatures(texts).reshape(-1, BANDS, ROWS_PER_BAND)
    return scrambled(banded * (weights | np.uint64(1))).sum(axis=-1, dtype=np.uint64)


def signatures(texts: Sequence[bytes]) -> NDArray[np.uint64]:
    """`[document hash]`: the smallest value of each of the 80 keyed hashes over the document's shingles.

    The share of equal entries of two rows estimates their Jaccard index s with standard deviation
    sqrt(s (1 - s) / 80), at most 0.056.
    """
    draw = generator("near-duplicates", "permutations")
    count = BANDS * ROWS_PER_BAND
    multipliers = draw.integers(2**64, size=count, dtype=np.uint64) | np.uint64(1)
    offsets = draw.integers(2**64, size=count, dtype=np.uint64)
    smallest = np.full((len(texts), count), np.iinfo(np.uint64).max, dtype=np.uint64)
    for begin, end in _chunks(texts):
        for hashes, starts in _shingles(texts[begin:end]):
            for index in range(count):
                found = np.minimum.reduceat(hashes * multipliers[index] + offsets[index], starts)
                np.minimum(smallest[begin:end, index], found, out=smallest[begin:end, index])
    return smallest


def shingle_sets(texts: Sequence[bytes]) -> Iterator[NDArray[np.uint64]]:
    """For each text, the hashes of its shingles, sorted, each once.

    Memory: a long text takes the size of its set twice: at most eight times its own, mostly three times.
    """
    for begin, end in _chunks(texts):
        if end - begin == 1:
            yield _shingle_set(texts[begin])
            continue
        for hashes, starts in _shingles(texts[begin:end]):
            yield from (distinct(of_text) for of_text in np.split(hashes, starts[1:]))


def jaccard_reaches(left: NDArray[np.uint64], right: NDArray[np.uint64], similarity: float) -> bool:
    """Whether two sorted sets have at least this Jaccard index (common / all elements)."""
    smaller, larger = sorted((left, right), key=len)
    # The index is at most the ratio of the sizes, in real numbers and in floats: division rounds monotonically.
    if len(smaller) / len(larger) < similarity:
        return False
    common = 0
    for begin in range(0, len(smaller), _BYTES_PER_CHUNK):
        part = smaller[begin : begin + _BYTES_PER_CHUNK]
        place = np.minimum(np.searchsorted(larger, part), len(larger) - 1)
        common += int(np.count_nonzero(larger[place] == part))
    return common / (len(left) + len(right) - common) >= similarity


def scrambled(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """A bijection of 64-bit words (the finaliser of SplitMix64, Steele et al. 2014) that spreads low bits to high ones:
    sums of products alone leave them regular."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def _shingle_set(utf8: bytes) -> NDArray[np.uint64]:
    parts = [distinct(hashes) for hashes, _ in _shingles([utf8])]
    if len(parts) == 1:
        return parts[0]
    together = np.empty(sum(map(len, parts)), dtype=np.uint64)
    end = len(together)
    # From the back, so that every part is given up when it has been copied.
    while parts:
        part = parts.pop()
        together[end - len(part) : end] = part
        end -= len(part)
    together.sort()
    kept = 0
    for begin in range(0, len(together), _BYTES_PER_CHUNK):
        # Compacted in place: the last one kept stands before what is still to be read.
        block = distinct(together[begin : begin + _BYTES_PER_CHUNK])
        if kept and block[0] == together[kept - 1]:
            block = block[1:]
        together[kept : kept + len(block)] = block
        kept += len(block)
    return together[:kept]


def _chunks(texts: Sequence[bytes]) -> list[tuple[int, int]]:
    """(begin, end) of texts that are handled at once; a long text is alone."""
    if not texts:
        return []
    sizes = np.array([len(text) for text in texts])
    ends = np.cumsum(sizes)
    cuts = np.searchsorted(ends, np.arange(0, ends[-1], _BYTES_PER_CHUNK), side="left")
    long = np.flatnonzero(sizes > _BYTES_PER_CHUNK)
    bounds = np.unique(np.concatenate([[0], cuts, long, long + 1, [len(texts)]]))
    return list(pairwise(bounds.tolist()))


def _shingles(texts: Sequence[bytes]) -> Iterator[tuple[NDArray[np.uint64], NDArray[np.int64]]]:
    """(hash of each shingle `[shingle]`, where each document begins `[document]`); a long text comes in several parts,
    of one document each."""
    over = WORDS_PER_SHINGLE - 1
    if len(texts) > 1 or len(texts[0]) <= _BYTES_PER_CHUNK:
        words, starts = _words(texts)
        padded_starts = starts + np.arange(len(texts)) * over
        padded = np.zeros(len(words) + len(texts) * over, dtype=np.uint64)
        is_word = np.ones(len(padded), dtype=np.bool_)
        ends = np.append(padded_starts[1:], len(padded))
        for back in range(1, WORDS_PER_SHINGLE):
            is_word[ends - back] = False
        padded[is_word] = words
        # The padding is zero and contributes nothing, so no shingle reaches into the next document.
        yield _combined(padded)[is_word], starts
        return
    whole = np.zeros(1, dtype=np.int64)
    carried = np.empty(0, dtype=np.uint64)
    for words in _words_of_long(texts[0]):
        carried = np.concatenate([carried, words])
        complete = len(carried) - over
        if complete > 0:
            yield _combined(carried)[:complete], whole
            carried = carried[complete:]
    yield _combined(np.append(carried, np.zeros(over, dtype=np.uint64)))[: len(carried)], whole


def _combined(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """`[word]`: the hash of the shingle that begins there; what would follow the last word counts as zero."""
    weights = generator("near-duplicates", "shingles").integers(2**64, size=WORDS_PER_SHINGLE, dtype=np.uint64)
    combined = np.zeros(len(words), dtype=np.uint64)
    for place in range(min(WORDS_PER_SHINGLE, len(words))):
        combined[: len(words) - place] += words[place:] * (weights[place] | np.uint64(1))
    return scrambled(combined)


def _words_of_long(utf8: bytes) -> Iterator[NDArray[np.uint64]]:
    """The words of a long text in order, a segment at a time, cut at ASCII white space."""
    begin, blank = 0, True
    while True:
        cut = _WHITE_SPACE.search(utf8, begin + _BYTES_PER_CHUNK)
        words = _words([utf8[begin : cut.start() if cut else None]])[0]
        if not (len(words) == 1 and words[0] == _BLANK):
            blank = False
            yield words
        if cut is None:
            break
        begin = cut.end()
    if blank:
        yield np.array([_BLANK], dtype=np.uint64)


def _words(texts: Sequence[bytes]) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """(hash of each word `[word]`, where each document begins `[document]`); a blank text is one empty word."""
    offsets = np.cumsum([0, *map(len, texts)], dtype=np.int64)
    together = pa.py_buffer(texts[0] if len(texts) == 1 else b"".join(texts))
    array = pa.LargeStringArray.from_buffers(len(texts), pa.py_buffer(offsets), together)
    # Untrimmed, the split reads past a text that ends in white space of Unicode, so it would depend on what lies there.
    # Each array replaces the one before: a text of one long word is as large as all of them.
    for function in ("utf8_lower", "utf8_trim_whitespace", "utf8_split_whitespace"):
        array = pc.call_function(function, [array])
    starts = array.offsets.to_numpy()[:-1].astype(np.int64)
    encoded = array.flatten().dictionary_encode()
    del array, together
    spelled = encoded.dictionary.cast(pa.large_binary()).to_pylist()
    hash_of = np.frombuffer(b"".join([blake2b(word, digest_size=8).digest() for word in spelled]), dtype="<u8")
    return hash_of[encoded.indices.to_numpy()], starts


_BLANK = np.frombuffer(blake2b(b"", digest_size=8).digest(), dtype="<u8")[0]
