"""Which tokens a measurement scores: every token of every document, exactly once.

A document of n tokens, read with a context of T: inputs [BOS, t1 .. t(T-1)] predict [t1 .. tT], then inputs
[tT .. t(2T-1)] predict [t(T+1) .. t2T], and so on. BOS is never predicted and has no bytes.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from paribus.data.frozen import TokenFile
from paribus.data.held_out import EvaluationBatch
from paribus.data.tokenizer import BOS_ID
from paribus.errors import CorpusError


@dataclass(frozen=True)
class Windows:
    """The windows of a split, longest first; every array is `[window]`."""

    token_file: TokenFile
    document_row: NDArray[np.int64]
    """Index of the document in its split."""
    start: NDArray[np.int64]
    """The first target's place in the document, in tokens from 0."""
    targets: NDArray[np.int64]
    """How many tokens the window scores."""
    bos_id: int
    """Stands before a document's first token, and in the padding."""

    def __len__(self) -> int:
        return len(self.targets)

    def batches(self, max_tokens: int) -> Iterator[EvaluationBatch]:
        """Padded batches of at most `max_tokens` inputs, padding included, but of at least one window."""
        begin = 0
        while begin < len(self):
            # Longest first: the first window of a batch is its width.
            width = int(self.targets[begin])
            end = min(begin + max(max_tokens // width, 1), len(self))
            yield self._batch(begin, end, width)
            begin = end

    def _batch(self, begin: int, end: int, width: int) -> EvaluationBatch:
        row = self.document_row[begin:end]
        documents = self.token_file.documents
        time = np.arange(width)
        scored = time < self.targets[begin:end, None]
        place = self.start[begin:end, None] + time
        first = documents.offset[row][:, None]
        has_input = scored & (place > 0)
        target_at, input_at = np.where(scored, first + place, first), np.where(has_input, first + place - 1, first)
        stored = self.token_file.tokens
        targets = np.where(scored, stored[target_at].astype(np.int64), self.bos_id)
        inputs = np.where(has_input, stored[input_at].astype(np.int64), self.bos_id)
        return EvaluationBatch(
            tokens=inputs,
            targets=targets,
            weight=scored.astype(np.float32),
            document=(~scored).astype(np.int32),
            slice=np.broadcast_to(documents.source[row][:, None], scored.shape).copy(),
            document_row=row,
        )


def windows(token_file: TokenFile, context_length: int, bos_id: int = BOS_ID) -> Windows:
    """Cut a split into windows of at most `context_length` targets, longest first, ties in document order.

    `bos_id` is the corpus', by default that of a tokenizer learnt with the default layout. Raises CorpusError for a
    context of no tokens.
    """
    if context_length < 1:
        raise CorpusError(
            "a window needs at least one token", expected="context_length >= 1", received=str(context_length)
        )
    lengths = token_file.documents.tokens
    per_document = -(-lengths // context_length)
    row = np.repeat(np.arange(len(lengths), dtype=np.int64), per_document)
    first_window = np.cumsum(per_document) - per_document
    start = (np.arange(len(row), dtype=np.int64) - first_window[row]) * context_length
    targets = np.minimum(lengths[row] - start, context_length)
    longest_first = np.argsort(-targets, kind="stable")
    return Windows(token_file, row[longest_first], start[longest_first], targets[longest_first], bos_id)
