"""Near duplicates: MinHash signatures of word shingles, found by a banded index, decided by the exact similarity.

The similarity of two documents is the Jaccard index of their sets of 5-word shingles (lower case, split at white
space). A pair of similarity s becomes a candidate with probability 1 - (1 - s^5)^16: 0.998 at 0.8, 0.9999 at 0.85,
0.40 at 0.5. Candidates are then decided by the exact index, so a document is never dropped below the threshold, and
a repeat at the threshold of 0.8 is missed with probability 0.002 (0.05 at 0.7).
"""

import hashlib
from collections import defaultdict
from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from paribus.seeds import generator

_WORDS_PER_SHINGLE = 5
_BANDS = 16
_ROWS_PER_BAND = 5
# Large enough to amortise the calls, small enough that a chunk of hashes stays near the processor.
_CHARACTERS_PER_CHUNK = 1_000_000


def near_duplicates(
    texts: Sequence[str], similarity: float, progress: Callable[[str, int, int], None] | None = None
) -> NDArray[np.bool_]:
    """`[document]`: true where a text repeats an earlier kept text with at least the given Jaccard similarity."""
    keys = _band_keys(texts, progress)
    shared = np.zeros(keys.shape, dtype=np.bool_)
    for band in range(_BANDS):
        _, inverse, counts = np.unique(keys[:, band], return_inverse=True, return_counts=True)
        shared[:, band] = counts[inverse] > 1

    repeats = np.zeros(len(texts), dtype=np.bool_)
    kept_in_bucket: dict[tuple[int, int], list[int]] = defaultdict(list)
    shingles_of: dict[int, NDArray[np.uint64]] = {}
    for document in np.flatnonzero(shared.any(axis=1)).tolist():
        buckets = [(band, int(keys[document, band])) for band in np.flatnonzero(shared[document]).tolist()]
        own = np.unique(_shingles([texts[document]])[0])
        candidates = sorted({earlier for bucket in buckets for earlier in kept_in_bucket[bucket]})
        if any(_jaccard(own, shingles_of[earlier]) >= similarity for earlier in candidates):
            repeats[document] = True
            continue
        shingles_of[document] = own
        for bucket in buckets:
            kept_in_bucket[bucket].append(document)
    return repeats


def signatures(texts: Sequence[str]) -> NDArray[np.uint64]:
    """`[document hash]`: the smallest value of each of the 80 keyed hashes over the document's shingles.

    The share of equal entries of two rows estimates their Jaccard index s with standard deviation
    sqrt(s (1 - s) / 80), at most 0.056.
    """
    hashes, starts = _shingles(texts)
    draw = generator("near-duplicates", "permutations")
    count = _BANDS * _ROWS_PER_BAND
    multipliers = draw.integers(2**64, size=count, dtype=np.uint64) | np.uint64(1)
    offsets = draw.integers(2**64, size=count, dtype=np.uint64)
    smallest = np.empty((len(texts), count), dtype=np.uint64)
    for index in range(count):
        smallest[:, index] = np.minimum.reduceat(hashes * multipliers[index] + offsets[index], starts)
    return smallest


def _band_keys(texts: Sequence[str], progress: Callable[[str, int, int], None] | None = None) -> NDArray[np.uint64]:
    """`[document band]`: one hash of the signature's rows that belong to the band."""
    weights = generator("near-duplicates", "bands").integers(2**64, size=_ROWS_PER_BAND, dtype=np.uint64)
    keys = np.empty((len(texts), _BANDS), dtype=np.uint64)
    for begin, end in _chunks(texts):
        if progress is not None:
            progress("find near duplicates", begin, len(texts))
        banded = signatures(texts[begin:end]).reshape(-1, _BANDS, _ROWS_PER_BAND)
        keys[begin:end] = _scrambled(banded * (weights | np.uint64(1))).sum(axis=-1)
    if progress is not None:
        progress("find near duplicates", len(texts), len(texts))
    return keys


def _chunks(texts: Sequence[str]) -> list[tuple[int, int]]:
    ends = np.cumsum([len(text) for text in texts])
    cuts = np.unique(np.searchsorted(ends, np.arange(0, ends[-1], _CHARACTERS_PER_CHUNK), side="left"))
    bounds = [0, *(int(cut) for cut in cuts if 0 < cut < len(texts)), len(texts)]
    return list(pairwise(bounds))


def _shingles(texts: Sequence[str]) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """(hash of each shingle `[shingle]`, where each document begins `[document]`).

    Every word begins a shingle; the last ones of a document are padded, so that a document of three words has some.
    """
    lower = pc.call_function("utf8_lower", [pa.array(texts, pa.large_string())])
    words = pc.call_function("utf8_split_whitespace", [lower])
    encoded = words.flatten().dictionary_encode()
    unique = encoded.dictionary.to_pylist()
    hash_of = np.array(
        [int.from_bytes(hashlib.blake2b(word.encode(), digest_size=8).digest(), "little") for word in unique],
        dtype=np.uint64,
    )
    starts = words.offsets.to_numpy()[:-1].astype(np.int64)
    padded_starts = starts + np.arange(len(texts)) * (_WORDS_PER_SHINGLE - 1)
    padded = np.zeros(len(encoded) + len(texts) * (_WORDS_PER_SHINGLE - 1), dtype=np.uint64)
    is_word = np.ones(len(padded), dtype=np.bool_)
    ends = np.append(padded_starts[1:], len(padded))
    for back in range(1, _WORDS_PER_SHINGLE):
        is_word[ends - back] = False
    padded[is_word] = hash_of[encoded.indices.to_numpy()]

    weights = generator("near-duplicates", "shingles").integers(2**64, size=_WORDS_PER_SHINGLE, dtype=np.uint64)
    # The padding is zero and contributes nothing, so no shingle reaches into the next document.
    combined = np.zeros(len(padded), dtype=np.uint64)
    for place in range(_WORDS_PER_SHINGLE):
        combined[: len(padded) - place] += padded[place:] * (weights[place] | np.uint64(1))
    return _scrambled(combined[is_word]), starts


def _scrambled(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """A bijection of 64-bit words that spreads low bits to high ones: sums of products alone leave them regular."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def _jaccard(left: NDArray[np.uint64], right: NDArray[np.uint64]) -> float:
    common = len(np.intersect1d(left, right, assume_unique=True))
    return common / (len(left) + len(right) - common)
