"""Train, validation, test: decided by a document's own text, or by what it is kept together with.

A keyed hash puts the same document into the same split on every machine, whatever else is in the corpus and in
whatever order it is read. Raising a fraction takes documents from the training split only. The key is the text, the
web host, or the smallest document id of a cluster of near duplicates: documents with equal keys share a split.
"""

import hashlib
from typing import Literal

Split = Literal["train", "validation", "test"]
SPLITS: tuple[Split, ...] = ("train", "validation", "test")

_KEY = b"paribus split 1"


def split_of(text: str | bytes, *, test_fraction: float = 0.04, validation_fraction: float = 0.02) -> Split:
    """The split of a document by its text (as UTF-8, where it is bytes).

    Fractions are shares of the documents; they hold in expectation, not exactly.
    """
    utf8 = text if isinstance(text, bytes) else text.encode()
    return split_of_key(utf8, test_fraction=test_fraction, validation_fraction=validation_fraction)


def split_of_key(key: bytes, *, test_fraction: float = 0.04, validation_fraction: float = 0.02) -> Split:
    """The split of all documents that have this key. Fractions are shares of the keys, in expectation.

    By host, the key is the host; a document without one has its own text, so it is split as `split_of` splits it. By
    cluster, it is the smallest id (16 bytes) of the cluster's documents, which no order and no layout of files changes.
    """
    position = _position(key)
    if position < test_fraction:
        return "test"
    # Validation counts from the other end, so neither fraction shifts the documents of the other split.
    if position >= 1 - validation_fraction:
        return "validation"
    return "train"


def split_beside_last_file(key: bytes, *, stands_in_last_file: bool, test_fraction: float = 0.04) -> Split:
    """The split where the last file is the validation split, as nanochat has it: test is taken from the others.

    `stands_in_last_file`: the text is one of the last file's, wherever else it stands, so it is validation only. The
    test split is the one of `split_of_key` with the same fraction, less those documents.
    """
    if stands_in_last_file:
        return "validation"
    return "test" if _position(key) < test_fraction else "train"


def _position(key: bytes) -> float:
    """Uniform in [0, 1)."""
    digest = hashlib.blake2b(key, digest_size=8, key=_KEY).digest()
    # 53 bits: every value is a float64 exactly, so comparisons with it are the same on every machine.
    return (int.from_bytes(digest, "little") >> 11) / 2**53
