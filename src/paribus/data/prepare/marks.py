"""Which test documents share a 13-gram with the training texts: looked for while those are encoded."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from paribus.data.overlap import HeldOutNgrams
from paribus.data.prepare.finished import record, recorded
from paribus.data.prepare.inventory import Lot, Work
from paribus.data.prepare.kept import kept_texts

STAGE = "held-out"
CHECKED_BYTES = 20_000_000
"""of test text; reading stops there, so that marking costs a fixed memory and time whatever the corpus"""


@dataclass(frozen=True)
class HeldOutTask:
    lots: tuple[Lot, ...]
    documents: tuple[int, ...]
    """that each lot has"""
    test_documents: int


def collect_held_out(work: Work, task: HeldOutTask) -> None:
    """Write the 13-grams of the first test documents, unless that is done."""
    mark = work.path(STAGE, "ngrams.json")
    if recorded(mark) is not None:
        return
    folder = work.folder / STAGE
    texts = kept_texts(work, task.lots, task.documents, "test")
    HeldOutNgrams.of(texts, task.test_documents, max_bytes=CHECKED_BYTES).save(folder)
    record(mark, [path for path in folder.iterdir() if not path.name.startswith(".")], {})


def marks(work: Work, lots: Sequence[Lot]) -> pa.Array:
    """`[test document]`: true where it shares none, false where it does, null where it was not checked."""
    files = [work.path("encode", f"{lot.stem}.hits") for lot in lots]
    held_out = HeldOutNgrams.open(work.folder / STAGE)
    return pa.array(held_out.free(np.fromfile(path, dtype=np.int64) for path in files), pa.bool_())
