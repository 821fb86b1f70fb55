"""What can be said of a frozen corpus by reading it: lengths, sources, what packing wastes, a few documents.

Memory: the document table of one split at a time (26 bytes a document), and the plan of best fit.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from paribus.data.frozen import FrozenCorpus, TokenFile
from paribus.data.marks import NOT_CHECKED
from paribus.data.packing import PACKINGS, Waste, waste
from paribus.data.split import SPLITS, Split
from paribus.data.tokenizer import Tokenizer
from paribus.seeds import generator

USUAL_CONTEXT_LENGTH = 1024
SAMPLES_PER_SPLIT = 3
SAMPLE_CHARACTERS = 700
_SAMPLE_TOKENS = 700
"""of a document, that are decoded: a token has at least a byte, and mostly more than a character"""
_BINS_PER_DOUBLING = 2


@dataclass(frozen=True)
class SplitFacts:
    split: Split
    documents: int
    bytes: int
    """UTF-8 bytes of the texts"""
    tokens: int
    """without special tokens"""
    shortest: int
    """in tokens, as the next three; 0 of a split without documents"""
    median: float
    ninetieth: float
    """90 % of the documents are not longer"""
    longest: int

    @property
    def bytes_per_token(self) -> float | None:
        return self.bytes / self.tokens if self.tokens else None


@dataclass(frozen=True)
class Lengths:
    """Documents of all splits by their length in tokens, in bins that grow by a constant factor."""

    edges: NDArray[np.float64]
    """`[bin + 1]`; a bin holds the lengths from its first edge on, below its second"""
    documents: NDArray[np.int64]
    """`[bin]`"""
    tokens: NDArray[np.int64]
    """`[bin]`, in the documents of the bin"""


@dataclass(frozen=True)
class SourceFacts:
    """A collection that documents come from, over all splits."""

    source: str
    documents: int
    bytes: int
    tokens: int


@dataclass(frozen=True)
class Sample:
    """The beginning of a document, decoded from its tokens."""

    split: Split
    document: str
    """its id"""
    source: str
    tokens: int
    """of the whole document, as the bytes"""
    bytes: int
    text: str
    cut: bool
    """whether the document goes on"""
    overlap_free: bool | None
    """of the test split: whether it shares no 13-gram with the training texts; None where that is not known"""


@dataclass(frozen=True)
class Findings:
    frozen: FrozenCorpus
    splits: tuple[SplitFacts, ...]
    lengths: Lengths
    sources: tuple[SourceFacts, ...]
    """the most tokens first"""
    context_length: int
    wastes: tuple[Waste, ...]
    """of the train split, a packing each"""
    samples: tuple[Sample, ...]

    @property
    def documents(self) -> int:
        return sum(facts.documents for facts in self.splits)

    @property
    def bytes(self) -> int:
        return sum(facts.bytes for facts in self.splits)

    @property
    def tokens(self) -> int:
        return sum(facts.tokens for facts in self.splits)

    @property
    def left_out(self) -> dict[str, int]:
        """What was read and is in no split, by reason in words; reasons that nothing was left out for are missing."""
        return {reason.replace("_", " "): count for reason, count in self.frozen.dropped.items() if count}


def look_into(frozen: FrozenCorpus, context_length: int, samples: int = SAMPLES_PER_SPLIT) -> Findings:
    """Read the document tables and a few documents. `context_length`: tokens of a row, for what packing wastes.

    Which documents are shown depends on the corpus' digest alone. Raises CorpusError where a file has changed.
    """
    tokenizer = frozen.tokenizer()
    facts: list[SplitFacts] = []
    shown: list[Sample] = []
    per_source = np.zeros((3, len(frozen.sources)), dtype=np.int64)
    bins = np.zeros((2, 0), dtype=np.int64)
    wastes: tuple[Waste, ...] = ()
    for split in SPLITS:
        part = frozen.split(split)
        documents = part.documents
        facts.append(_facts(split, documents.tokens, documents.bytes))
        per_source[0] += np.bincount(documents.source, minlength=len(frozen.sources))
        for row, values in enumerate((documents.bytes, documents.tokens), 1):
            np.add.at(per_source[row], documents.source, values)
        bins = _added(bins, _binned(documents.tokens))
        if split == "train":
            wastes = tuple(waste(documents.tokens, context_length, packing) for packing in PACKINGS)
        shown += _samples(frozen, split, part, tokenizer, samples)
    edges = 2.0 ** (np.arange(bins.shape[1] + 1) / _BINS_PER_DOUBLING)
    sources = [SourceFacts(name, *per_source[:, place].tolist()) for place, name in enumerate(frozen.sources)]
    return Findings(
        frozen,
        tuple(facts),
        Lengths(edges, bins[0], bins[1]),
        tuple(sorted(sources, key=lambda found: (-found.tokens, found.source))),
        context_length,
        wastes,
        tuple(shown),
    )


def _facts(split: Split, tokens: NDArray[np.int64], sizes: NDArray[np.int64]) -> SplitFacts:
    median, ninetieth = np.quantile(tokens, (0.5, 0.9)) if len(tokens) else (0.0, 0.0)
    longest, shortest = (int(tokens.max()), int(tokens.min())) if len(tokens) else (0, 0)
    return SplitFacts(
        split, len(tokens), int(sizes.sum()), int(tokens.sum()), shortest, float(median), float(ninetieth), longest
    )


def _binned(tokens: NDArray[np.int64]) -> NDArray[np.int64]:
    """`[2 bin]`: documents and tokens by length; the first bin begins at one token."""
    if not len(tokens):
        return np.zeros((2, 0), dtype=np.int64)
    places = np.floor(np.log2(np.maximum(tokens, 1)) * _BINS_PER_DOUBLING).astype(np.int64)
    documents = np.bincount(places)
    of_tokens = np.zeros_like(documents)
    np.add.at(of_tokens, places, tokens)
    return np.stack([documents, of_tokens])


def _added(left: NDArray[np.int64], right: NDArray[np.int64]) -> NDArray[np.int64]:
    total = np.zeros((2, max(left.shape[1], right.shape[1])), dtype=np.int64)
    for part in (left, right):
        total[:, : part.shape[1]] += part
    return total


def _samples(frozen: FrozenCorpus, split: Split, part: TokenFile, tokenizer: Tokenizer, count: int) -> Sequence[Sample]:
    documents = part.documents
    draw = generator("inspect", frozen.digest, split)
    chosen = np.sort(draw.choice(len(documents), min(count, len(documents)), replace=False)).tolist()
    found = []
    for row in chosen:
        begin, tokens = int(documents.offset[row]), int(documents.tokens[row])
        text = tokenizer.decode(np.asarray(part.tokens[begin : begin + min(tokens, _SAMPLE_TOKENS)]))
        if tokens > _SAMPLE_TOKENS:
            # The last character may have been cut within.
            text = text.rstrip("\N{REPLACEMENT CHARACTER}")
        cut = tokens > _SAMPLE_TOKENS or len(text) > SAMPLE_CHARACTERS
        free = None if documents.overlap_free is None else int(documents.overlap_free[row])
        found.append(
            Sample(
                split,
                documents.id[row],
                frozen.sources[int(documents.source[row])],
                tokens,
                int(documents.bytes[row]),
                text[:SAMPLE_CHARACTERS],
                cut,
                None if free is None or free == NOT_CHECKED else bool(free),
            )
        )
    return found
