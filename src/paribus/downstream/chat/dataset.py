"""A mixture's conversations in tokens, each once however often it is in the mixture, and what became of every row.

Memory: 3 bytes a token (5 with more than 65,536 token ids) and some 30 a conversation; while it is read, twice that.
"""

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paribus.data.progress import Advance, Progress, silent
from paribus.downstream.chat.format import ChatFormat, Conversation
from paribus.downstream.chat.mixture import Part
from paribus.downstream.chat.sources import GENERATED, ChatSource, Raw, open_chat_source
from paribus.errors import ParibusError
from paribus.seeds import generator

AT_ONCE = 1000
"""conversations that are encoded together"""
NANOCHAT_SEED = 42
"""of both its shuffles"""


@dataclass(frozen=True)
class PartFacts:
    """What became of a part's rows."""

    label: str
    rows: int
    """in the files"""
    chosen: int
    """of them, where the part takes only some"""
    malformed: int
    """no conversations; left out"""
    without_targets: int
    """nothing in them is learnt; left out"""
    truncated: int
    """longer than the context; their ends were cut off"""
    truncated_tokens: int
    dropped: int
    """longer than the context; left out"""
    held_out: int
    """conversations for validation"""
    files: tuple[dict[str, Any], ...]
    """name, bytes, digest of each"""

    def as_json(self) -> dict[str, Any]:
        return asdict(self) | {"files": list(self.files)}


@dataclass(frozen=True)
class ChatData:
    """Conversations end to end."""

    tokens: NDArray[np.unsignedinteger]
    """`[token]`"""
    learnt: NDArray[np.bool_]
    """`[token]`"""
    start: NDArray[np.int64]
    """`[conversation + 1]`: where each begins"""
    part: NDArray[np.int16]
    """`[conversation]`"""
    place: NDArray[np.int64]
    """`[conversation]`: which of its part's chosen rows it is, in the order of the sample"""
    digest: NDArray[np.uint64]
    """`[conversation]`: of its messages"""
    held_out: NDArray[np.bool_]
    """`[conversation]`"""
    facts: tuple[PartFacts, ...]
    """`[part]`"""

    def __len__(self) -> int:
        return len(self.part)

    @property
    def lengths(self) -> NDArray[np.int64]:
        """`[conversation]`: tokens"""
        return np.diff(self.start)

    def conversation(self, number: int | np.integer) -> tuple[NDArray[np.unsignedinteger], NDArray[np.bool_]]:
        """Tokens and mask, `[token]`."""
        span = slice(self.start[number], self.start[number + 1])
        return self.tokens[span], self.learnt[span]


def read_chat_data(
    parts: Sequence[Part],
    folder: Path,
    chat: ChatFormat,
    *,
    max_tokens: int,
    drop_too_long: bool = False,
    held_out_fraction: float = 0.0,
    by_nanochat: bool = False,
    progress: Progress = silent,
) -> ChatData:
    """Every usable row of the parts. ParibusError for data that is missing, incomplete or, where a part refuses such
    rows, malformed. `by_nanochat` takes samples and orders of files by its shuffle."""
    opened = [_opened(part, folder) for part in parts]
    gathered = _Gathered(chat, max_tokens, drop_too_long, held_out_fraction)
    facts = []
    done, total = 0, sum(part.rows or source.count() for part, source in opened)
    for number, (part, source) in enumerate(opened):
        rows = source.count()
        if part.rows_expected is not None and rows != part.rows_expected:
            raise ParibusError(
                f"{part.label} is not the data set that the mixture means",
                expected=f"{part.rows_expected:,} rows",
                received=f"{rows:,} rows in {folder / part.path}",
                remedy="fetch all of it, or write a mixture of your own without rows_expected",
            )
        order = _sample(part, source, rows, by_nanochat=by_nanochat)
        place_of = np.full(rows, -1, dtype=np.int64)
        place_of[order] = np.arange(len(order))
        gathered.begin(number)
        for batch in _batches(source.read(), place_of):
            gathered.take(part, batch, place_of)
            done += len(batch)
            progress(Advance("tokenise conversations", done, total, done, gathered.bytes, gathered.count))
        files = tuple(asdict(file) for file in source.files())
        facts.append(PartFacts(part.label, rows, len(order), **gathered.counts, files=files))
    return gathered.joined(tuple(facts))


def require_present(parts: Sequence[Part], folder: Path) -> None:
    """ParibusError that names every file or folder that is not there, each with what to fetch."""
    missing = {_path_of(part, folder): part.fetch for part in parts if not _path_of(part, folder).exists()}
    if missing:
        raise ParibusError(
            f"{len(missing)} of the mixture's data sets {'is' if len(missing) == 1 else 'are'} not in {folder}",
            expected="\n    ".join(f"{path}" + (f": {fetch}" if fetch else "") for path, fetch in missing.items()),
            received="no such file or folder",
            remedy="put them there, or name the folder that holds them with --data",
        )


def conversation_digest(conversation: Conversation) -> int:
    """64 bits of the messages, the same in whatever file they lie."""
    said = json.dumps([[m["role"], m["content"]] for m in conversation], sort_keys=True)
    return int.from_bytes(hashlib.blake2b(said.encode(), digest_size=8).digest(), "little")


class _Gathered:
    """What has been read so far."""

    def __init__(self, chat: ChatFormat, max_tokens: int, drop_too_long: bool, held_out_fraction: float) -> None:
        self.chat, self.max_tokens, self.drop = chat, max_tokens, drop_too_long
        self.threshold = int(held_out_fraction * 2**64)
        self.tokens: list[NDArray[np.unsignedinteger]] = []
        self.learnt: list[NDArray[np.bool_]] = []
        self.rows: list[tuple[int, int, int, bool]] = []
        self.number, self.count, self.bytes = 0, 0, 0
        self.sizes = chat.tokenizer.token_bytes()
        self.counts: dict[str, int] = {}

    def begin(self, number: int) -> None:
        self.number = number
        names = ("malformed", "without_targets", "truncated", "truncated_tokens", "dropped", "held_out")
        self.counts = dict.fromkeys(names, 0)

    def take(self, part: Part, batch: list[Raw], place_of: NDArray[np.int64]) -> None:
        good: list[tuple[Raw, Conversation]] = []
        for raw in batch:
            problem = raw.problem or ("" if raw.conversation is None else self.chat.problem_of(raw.conversation))
            if raw.conversation is not None and not problem:
                good.append((raw, raw.conversation))
                continue
            if part.bad_rows == "refuse":
                raise ParibusError(
                    f"row {raw.row} of {part.label} is no conversation: {problem}",
                    expected="messages of user and assistant in turns, after a system message or none",
                    remedy='correct the file, or write bad_rows = "skip" to leave such rows out and count them',
                )
            self.counts["malformed"] += 1
        rendered = self.chat.render_all([conversation for _, conversation in good], self.max_tokens)
        for (raw, conversation), found in zip(good, rendered, strict=True):
            if found.left_out and self.drop:
                self.counts["dropped"] += 1
                continue
            if not found.mask[1:].any():
                self.counts["without_targets"] += 1
                continue
            self.counts["truncated"] += found.left_out > 0
            self.counts["truncated_tokens"] += found.left_out
            digest = conversation_digest(conversation)
            held_out = digest < self.threshold
            self.counts["held_out"] += held_out
            self.tokens.append(found.ids.astype(self.chat.tokenizer.token_type))
            self.learnt.append(found.mask)
            self.rows.append((self.number, int(place_of[raw.row]), digest, held_out))
            self.count += len(found.ids)
            self.bytes += int(self.sizes[found.ids].sum())

    def joined(self, facts: tuple[PartFacts, ...]) -> ChatData:
        lengths = [len(tokens) for tokens in self.tokens]
        return ChatData(
            tokens=np.concatenate([np.zeros(0, self.chat.tokenizer.token_type), *self.tokens]),
            learnt=np.concatenate([np.zeros(0, np.bool_), *self.learnt]),
            start=np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]).astype(np.int64),
            part=np.array([row[0] for row in self.rows], dtype=np.int16),
            place=np.array([row[1] for row in self.rows], dtype=np.int64),
            digest=np.array([row[2] for row in self.rows], dtype=np.uint64),
            held_out=np.array([row[3] for row in self.rows], dtype=np.bool_),
            facts=facts,
        )


def _opened(part: Part, folder: Path) -> tuple[Part, ChatSource]:
    split = "test" if part.split == "test" else "train"
    return part, open_chat_source(part.source, _path_of(part, folder), rows=part.rows, split=split, fetch=part.fetch)


def _path_of(part: Part, folder: Path) -> Path:
    path = folder / part.path
    return path if part.split is None or part.source in GENERATED else path / part.split


def _sample(part: Part, source: ChatSource, rows: int, *, by_nanochat: bool) -> NDArray[np.int64]:
    """Numbers of the rows that are taken, in the order that `place` counts: the file's, or a shuffle's."""
    limit = rows if part.rows is None else part.rows
    if part.source in GENERATED:
        return np.arange(rows)
    if limit > rows:
        raise ParibusError(
            f"{part.label} has fewer rows than the mixture takes", expected=f"at least {limit:,}", received=f"{rows:,}"
        )
    if by_nanochat and _of_the_hub(source):
        # What `datasets` makes of shuffle(seed=42).
        return np.random.default_rng(NANOCHAT_SEED).permutation(rows)[:limit]
    if by_nanochat or limit == rows:
        return np.arange(limit)
    return generator("chat", "sample", part.label).permutation(rows)[:limit]


def _of_the_hub(source: ChatSource) -> bool:
    return all(path.suffix == ".parquet" for path in getattr(source, "paths", ()))


def _batches(raws: Iterator[Raw], place_of: NDArray[np.int64]) -> Iterator[list[Raw]]:
    """Chosen rows, some at a time."""
    batch: list[Raw] = []
    for raw in raws:
        if place_of[raw.row] < 0:
            continue
        batch.append(raw)
        if len(batch) == AT_ONCE:
            yield batch
            batch = []
    if batch:
        yield batch
