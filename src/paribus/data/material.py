"""What a study trains and tests on, text or task, behind one door: batches by step, and what is held out.

text    a frozen corpus: every document once, every split a set of documents, equal for all seeds
task    rows drawn as they are needed: every seed has its own
"""

from collections.abc import Iterator

import numpy as np

from paribus.data.frozen import DocumentTable, FrozenCorpus, TokenFile
from paribus.data.held_out import EvaluationBatch, HeldOut
from paribus.data.marks import NOT_CHECKED
from paribus.data.order import Batches, Order
from paribus.data.packing import Packing
from paribus.data.split import Split
from paribus.data.tasks.stream import TaskCorpus, TaskOrder, held_out_rows
from paribus.data.windows import windows

Material = FrozenCorpus | TaskCorpus


def batches_of(
    material: Material,
    context_length: int,
    rows_per_batch: int,
    *,
    study: str,
    scale: str,
    seed: int,
    packing: Packing = "stream",
    epochs: int = 1,
) -> Batches:
    """The training batches of one (study, scale, seed). Packing and epochs are a text's; a task has neither."""
    if isinstance(material, TaskCorpus):
        return TaskOrder(material, rows_per_batch, study=study, scale=scale, seed=seed)
    return Order(
        material,
        context_length,
        rows_per_batch,
        study=study,
        scale=scale,
        seed=seed,
        packing=packing,
        epochs=epochs,
    )


def held_out_of(
    material: Material,
    split: Split,
    tokens: int | None,
    context_length: int,
    *,
    study: str,
    scale: str,
    seed: int,
) -> HeldOut:
    """What of the split is scored: whole documents or rows, in order, until they hold `tokens` tokens.

    The documents of a text are the same for every seed, the rows of a task belong to one.
    """
    if isinstance(material, TaskCorpus):
        return held_out_rows(material, split, tokens, study=study, scale=scale, seed=seed)
    file = limited(material.split(split), tokens)

    def batches(max_tokens: int) -> Iterator[EvaluationBatch]:
        return windows(file, context_length, material.bos_id).batches(max_tokens)

    documents = file.documents
    return HeldOut(
        unit=documents.id.tolist(),
        source=[material.sources[source] for source in documents.source],
        tokens=documents.tokens,
        bytes=documents.bytes,
        floor_nats=None,
        documents=len(documents),
        batches=batches,
        overlap_free=_overlap_free(documents),
    )


def _overlap_free(documents: DocumentTable) -> list[bool | None] | None:
    marks = documents.overlap_free
    return None if marks is None else [None if mark == NOT_CHECKED else bool(mark) for mark in marks.tolist()]


def limited(held_out: TokenFile, tokens: int | None) -> TokenFile:
    """The first documents of a split, whole, until they hold `tokens` tokens."""
    if tokens is None:
        return held_out
    table = held_out.documents
    count = int(np.searchsorted(np.cumsum(table.tokens), tokens)) + 1
    return TokenFile(held_out.tokens, table.first(count))
