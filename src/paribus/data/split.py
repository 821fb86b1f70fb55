"""Train, validation, test: decided by the document's text alone.

A keyed hash puts the same document into the same split on every machine, whatever else is in the corpus and in
whatever order it is read. Raising a fraction takes documents from the training split only.
"""

import hashlib
from typing import Literal

Split = Literal["train", "validation", "test"]
SPLITS: tuple[Split, ...] = ("train", "validation", "test")

_KEY = b"paribus split 1"


def split_of(text: str, *, test_fraction: float = 0.04, validation_fraction: float = 0.02) -> Split:
    """The split of a document. Fractions are shares of the documents; they hold in expectation, not exactly."""
    digest = hashlib.blake2b(text.encode(), digest_size=8, key=_KEY).digest()
    # 53 bits: every value is a float64 exactly, so the comparison below is the same on every machine.
    position = (int.from_bytes(digest, "little") >> 11) / 2**53
    if position < test_fraction:
        return "test"
    # Validation counts from the other end, so neither fraction shifts the documents of the other split.
    if position >= 1 - validation_fraction:
        return "validation"
    return "train"
