"""What training text shares with evaluation sets and with the test split, in 13-grams of words (`ngrams`).

Decontamination drops a training document that shares a 13-gram with an evaluation set (the filter of Brown et al.
2020, appendix C, there with the passage around it). The marks say which test documents share none with any training
text, so that a contrast can also be reported on those alone.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from paribus.data.ngrams import HashSet, ngrams
from paribus.data.partitions import distinct, mapped, write_whole

_TEXTS_AT_ONCE = 1024


@dataclass(frozen=True)
class NgramSet:
    """The 13-grams of evaluation files."""

    files: tuple[str, ...]
    hashes: NDArray[np.uint64]
    """`[entry]`, sorted; a 13-gram of several files has an entry for each"""
    file: NDArray[np.int16]
    """`[entry]`: whose it is, counted through `files`"""

    @classmethod
    def of(cls, texts: Mapping[str, Iterable[bytes]]) -> Self:
        """Of the texts (UTF-8) of each named file. 10 bytes a 13-gram; half a megabyte of English has some 80,000."""
        hashes = [distinct(_joined(_ngrams_of_many(of_file), np.uint64)) for of_file in texts.values()]
        joined = _joined(hashes, np.uint64)
        file = np.repeat(np.arange(len(hashes), dtype=np.int16), [len(part) for part in hashes])
        order = np.argsort(joined, kind="stable")
        return cls(tuple(texts), joined[order], file[order])

    def shares(self, utf8: bytes) -> bool:
        """Whether the text has a 13-gram of any file."""
        return bool(self.matches([utf8]).any())

    def matches(self, texts: Sequence[bytes]) -> NDArray[np.bool_]:
        """`[document file]`: whether the document has a 13-gram of the file. Faster for many documents at once."""
        matched = np.zeros((len(texts), len(self.files)), dtype=np.bool_)
        for hashes, document in ngrams(texts):
            which, entry = self._set.found(hashes)
            # Equal entries stand side by side, at most one for each file.
            while len(which):
                matched[document[which], self.file[entry]] = True
                following = np.minimum(entry + 1, len(self.hashes) - 1)
                again = (following > entry) & (self.hashes[following] == hashes[which])
                which, entry = which[again], following[again]
        return matched

    def save(self, folder: Path) -> None:
        """Write what `open` maps, so that processes share it."""
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(folder / "hashes", [self.hashes])
        write_whole(folder / "file", [self.file])
        write_whole(folder / "files", [np.frombuffer("\n".join(self.files).encode(), dtype=np.uint8)])

    @classmethod
    def open(cls, folder: Path) -> Self:
        names = (folder / "files").read_text(encoding="utf-8")
        hashes, file = mapped(folder / "hashes", np.uint64), mapped(folder / "file", np.int16)
        return cls(tuple(names.split("\n")) if names else (), hashes, file)

    @cached_property
    def _set(self) -> HashSet:
        return HashSet(self.hashes)


@dataclass(frozen=True)
class HeldOutNgrams:
    """The 13-grams of the first test documents, looked for in every training text."""

    hashes: NDArray[np.uint64]
    """`[ngram]`, sorted, each once"""
    ngram: NDArray[np.int64]
    """`[occurrence]`: index of its hash"""
    document: NDArray[np.int64]
    """`[occurrence]`: the test document"""
    checked: int
    """the first so many test documents"""
    documents: int

    @classmethod
    def of(cls, texts: Iterable[bytes], documents: int, *, max_bytes: int = 20_000_000) -> Self:
        """Of the test documents in their order, as far as they end within the first `max_bytes` bytes of test text;
        the others are not read. `documents`: how many there are.

        Memory: some 5 bytes for each of these bytes, and three times as much while it is made.
        """
        checked: list[bytes] = []
        size = 0
        for text in texts:
            size += len(text)
            if size > max_bytes:
                break
            checked.append(text)
        parts = list(ngrams(checked))
        hashes, ngram = np.unique(_joined([of_part for of_part, _ in parts], np.uint64), return_inverse=True)
        document = _joined([numbers for _, numbers in parts], np.int64)
        return cls(hashes, ngram.astype(np.int64), document, len(checked), documents)

    def hits(self, texts: Sequence[bytes]) -> NDArray[np.int64]:
        """Which of `hashes` stand in these training texts, as sorted indices: little to send from a worker."""
        return distinct(_joined([self._set.found(hashes)[1] for hashes, _ in ngrams(texts)], np.int64))

    def free(self, hits: Iterable[NDArray[np.int64]]) -> list[bool | None]:
        """For each test document: True where it shares no 13-gram with training text (also where it has none, being
        shorter), False where it does, None where it was not checked. `hits` are those of all training texts."""
        hit = np.zeros(len(self.hashes), dtype=np.bool_)
        for some in hits:
            hit[some] = True
        shared = np.zeros(self.checked, dtype=np.bool_)
        shared[self.document[hit[self.ngram]]] = True
        return [*(~shared).tolist(), *[None] * (self.documents - self.checked)]

    def save(self, folder: Path) -> None:
        """Write what `open` maps, so that processes share it."""
        folder.mkdir(parents=True, exist_ok=True)
        for name in ("hashes", "ngram", "document"):
            write_whole(folder / name, [getattr(self, name)])
        write_whole(folder / "counts", [np.array([self.checked, self.documents], dtype=np.int64)])

    @classmethod
    def open(cls, folder: Path) -> Self:
        checked, documents = np.fromfile(folder / "counts", dtype=np.int64).tolist()
        hashes, ngram, document = (
            mapped(folder / name, kind)
            for name, kind in (("hashes", np.uint64), ("ngram", np.int64), ("document", np.int64))
        )
        return cls(hashes, ngram, document, checked, documents)

    @cached_property
    def _set(self) -> HashSet:
        return HashSet(self.hashes)


def _ngrams_of_many(texts: Iterable[bytes]) -> Iterator[NDArray[np.uint64]]:
    remaining = iter(texts)
    while batch := list(islice(remaining, _TEXTS_AT_ONCE)):
        yield from (hashes for hashes, _ in ngrams(batch))


def _joined(parts: Iterable[NDArray[Any]], kind: type[np.generic]) -> NDArray[Any]:
    return np.concatenate([*parts, np.empty(0, dtype=kind)])
