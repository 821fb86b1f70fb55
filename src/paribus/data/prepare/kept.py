"""The kept documents of a split, in order, read again one at a time."""

from collections.abc import Iterator, Sequence

from paribus.data.prepare.dedupe import decisions_of
from paribus.data.prepare.inventory import DOCUMENTS_PER_BLOCK, Lot, Work
from paribus.data.prepare.reading import batches
from paribus.data.split import SPLITS, Split


def kept_texts(work: Work, lots: Sequence[Lot], documents: Sequence[int], split: Split) -> Iterator[bytes]:
    """The texts of a split's documents. `documents`: how many each lot has. A caller may stop at any time."""
    first = 0
    for lot, count in zip(lots, documents, strict=True):
        decisions = decisions_of(work, first, count)
        first += count
        if (decisions == SPLITS.index(split)).any():
            for batch in batches(work, lot):
                begin = batch.block * DOCUMENTS_PER_BLOCK + batch.row
                for decision, document in zip(decisions[begin:], batch.documents, strict=False):
                    if decision == SPLITS.index(split):
                        yield document.utf8
