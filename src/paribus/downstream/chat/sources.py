"""Where conversations come from: files of them, questions of a data set turned into them, or words.

A path is a file, or a folder of files of one kind; where the folder has a manifest.json that lists file names (the
hub's automatic Parquet), exactly these are read, and each must be there. Rows are numbered from 0 over all files in
order. A row that is no conversation is told, with the reason; nothing is left out silently.
"""

import gzip
import json
import re
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from paribus.data.sources.contract import SourceFile
from paribus.data.sources.folder import file_digest
from paribus.disk import is_plain_name
from paribus.downstream.chat.format import Conversation, ConversationError
from paribus.downstream.chat.questions import LETTERS, multiple_choice_prompt
from paribus.downstream.chat.spelling import Split, simple_spelling, spelling_bee
from paribus.errors import ParibusError

Kind = Literal["conversations", "gsm8k", "mmlu", "arc", "simple-spelling", "spelling-bee"]
GENERATED: tuple[Kind, ...] = ("simple-spelling", "spelling-bee")
ROWS_AT_ONCE = 1000
"""of Parquet; bounds memory"""
MANIFEST = "manifest.json"
LONGEST_LINE_BYTES = 64 * 2**20
"""of JSON; a few kilobytes of gzip can hold a line that no memory does"""
_SUFFIXES = (".parquet", ".jsonl", ".jsonl.gz")
_CALL = re.compile(r"(<<[^>]+>>)")
"""GSM8K's mark of a calculation, <<expression=result>>"""


@dataclass(frozen=True)
class Raw:
    """A row as it was found."""

    row: int
    conversation: Conversation | None
    problem: str = ""
    """why there is no conversation"""


class ChatSource(Protocol):
    """Rows of conversations."""

    def count(self) -> int:
        """Number of rows, whether they can be used or not."""
        ...

    def files(self) -> tuple[SourceFile, ...]:
        """What is read, with digests. Reads all of it."""
        ...

    def read(self) -> Iterator[Raw]:
        """Every row in order."""
        ...


def open_chat_source(kind: Kind, path: Path, *, rows: int | None, split: Split, fetch: str = "") -> ChatSource:
    """The rows at `path`. `rows` and `split` are of generated ones: how many, and of which stream.

    ParibusError where there is nothing to read, with what to `fetch`.
    """
    files = chat_files(path, fetch, words=kind in GENERATED)
    if kind in GENERATED:
        if rows is None:
            raise ParibusError(
                f"a part of {kind} without a number of rows",
                expected="rows: how many conversations are generated",
                received="none",
            )
        return Generated(files[0], simple_spelling if kind == "simple-spelling" else spelling_bee, rows, split)
    return Files(files, _CONVERSATIONS[kind])


def chat_files(path: Path, fetch: str = "", *, words: bool = False) -> tuple[Path, ...]:
    """The files that a path means, in order. ParibusError where there are none, or files of several kinds."""
    if words and path.is_file():
        return (path,)
    if path.is_file() and _kind_of(path) is not None:
        return (path,)
    manifest = path / MANIFEST
    if path.is_dir() and manifest.exists() and not words:
        return _listed(manifest, fetch)
    found = sorted(f for f in path.glob("*") if _kind_of(f) is not None) if path.is_dir() and not words else []
    kinds = {_kind_of(f) for f in found}
    if len(kinds) == 1:
        return tuple(found)
    wanted = "a word list, one word a line" if words else "a file, or files of one kind in a folder: Parquet or JSONL"
    if not path.exists():
        received = "no such file or folder"
    else:
        received = " and ".join(sorted(filter(None, kinds))) or "no such file in it"
    raise ParibusError(
        f"{path} holds no data to fine-tune on",
        expected=wanted,
        received=received,
        remedy=f"put there {fetch}" if fetch else "correct the path of this part, or the folder given with --data",
    )


@dataclass(frozen=True)
class Files:
    """Rows of Parquet or JSON lines."""

    paths: tuple[Path, ...]
    conversation_of: Callable[[Any], Conversation]

    def count(self) -> int:
        return sum(_rows_of(path) for path in self.paths)

    def files(self) -> tuple[SourceFile, ...]:
        return tuple(_digested(path) for path in self.paths)

    def read(self) -> Iterator[Raw]:
        records = (record for path in self.paths for record in _records(path))
        for row, record in enumerate(records):
            if isinstance(record, ConversationError):
                yield Raw(row, None, record.what)
                continue
            try:
                yield Raw(row, self.conversation_of(record))
            except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
                yield Raw(row, None, f"not as this source has it ({type(error).__name__}: {error})")
            except ParibusError as error:
                yield Raw(row, None, error.what)


@dataclass(frozen=True)
class Generated:
    """Rows made of a word list. Each word is stripped; empty lines are none."""

    path: Path
    make: Callable[[Sequence[str], int, Split], Conversation]
    rows: int
    split: Split

    def count(self) -> int:
        return self.rows

    def files(self) -> tuple[SourceFile, ...]:
        return (_digested(self.path),)

    def read(self) -> Iterator[Raw]:
        try:
            words = [word for line in _lines(self.path) if (word := line.decode().strip())]
        except UnicodeDecodeError as error:
            raise _unreadable(self.path, error) from error
        if not words:
            raise ParibusError(f"{self.path} holds no words", expected="one word a line", received="none")
        for row in range(self.rows):
            yield Raw(row, self.make(words, row, self.split))


def calculations(answer: str) -> list[Mapping[str, str]]:
    """A GSM8K answer in parts: each <<expression=result>> is a call of the interpreter and what it puts out."""
    parts: list[Mapping[str, str]] = []
    for piece in _CALL.split(answer):
        if _CALL.fullmatch(piece):
            expression, equals, result = piece[2:-2].rpartition("=")
            parts.append({"type": "python", "text": expression if equals else result})
            parts.append({"type": "python_output", "text": result if equals else ""})
        elif piece:
            parts.append({"type": "text", "text": piece})
    return parts


def _messages(record: Any) -> Conversation:
    messages = record["messages"] if isinstance(record, Mapping) else record
    return [{"role": message["role"], "content": message["content"]} for message in messages]


def _gsm8k(record: Any) -> Conversation:
    return _asked(record["question"], calculations(record["answer"]))


def _mmlu(record: Any) -> Conversation:
    row = record["train"] if isinstance(record.get("train"), Mapping) else record  # of auxiliary_train on the hub
    return _asked(multiple_choice_prompt(row["question"], row["choices"]), LETTERS[_index(row["answer"])])


def _arc(record: Any) -> Conversation:
    texts, letters = record["choices"]["text"], record["choices"]["label"]
    if record["answerKey"] not in letters:
        raise ValueError(f"the answer {record['answerKey']!r} is none of {', '.join(letters)}")
    return _asked(multiple_choice_prompt(record["question"], texts, letters), record["answerKey"])


def _index(answer: Any) -> int:
    if not isinstance(answer, int) or not 0 <= answer < len(LETTERS):
        raise ValueError(f"the answer {answer!r} is none of the choices")
    return answer


_CONVERSATIONS: Mapping[str, Callable[[Any], Conversation]] = {
    "conversations": _messages,
    "gsm8k": _gsm8k,
    "mmlu": _mmlu,
    "arc": _arc,
}


def _asked(question: str, content: str | Sequence[Mapping[str, str]]) -> Conversation:
    return [{"role": "user", "content": question}, {"role": "assistant", "content": content}]


def _kind_of(path: Path) -> str | None:
    return next((suffix for suffix in _SUFFIXES if path.name.endswith(suffix)), None)


def _listed(manifest: Path, fetch: str) -> tuple[Path, ...]:
    try:
        names = json.loads(manifest.read_bytes())
        if foreign := [name for name in names if not is_plain_name(str(name))]:
            raise ValueError(f"{foreign[0]!r}, which is not beside it")
        found = tuple(manifest.parent / str(name) for name in names)
    except (OSError, ValueError, TypeError) as error:
        raise ParibusError(
            f"{manifest} is not readable", expected="a JSON list of file names", received=str(error)
        ) from error
    missing = [path.name for path in found if not path.is_file()]
    if missing or not found:
        raise ParibusError(
            f"{manifest.parent} is not complete",
            expected=f"the {len(found)} files that its {MANIFEST} lists",
            received=f"without {', '.join(missing[:5])}" if missing else "an empty list",
            remedy=f"put there {fetch}" if fetch else "fetch the missing files",
        )
    return found


def _rows_of(path: Path) -> int:
    if path.suffix == ".parquet":
        with _parquet(path) as file:
            return file.metadata.num_rows
    return sum(bool(line.strip()) for line in _lines(path))


def _records(path: Path) -> Iterator[Any]:
    """Each row as JSON types; ConversationError, not raised, for a line that is not JSON."""
    if path.suffix == ".parquet":
        with _parquet(path) as file:
            for batch in file.iter_batches(batch_size=ROWS_AT_ONCE, use_threads=False):
                yield from batch.to_pylist()
        return
    for line in _lines(path):
        if not line.strip():
            continue
        try:
            yield json.loads(line)
        except ValueError as error:
            yield ConversationError(f"a line that is not JSON ({error})")


def _parquet(path: Path) -> pq.ParquetFile:
    try:
        return pq.ParquetFile(path)
    except (OSError, pa.ArrowException) as error:
        raise _unreadable(path, error) from error


def _lines(path: Path) -> Iterator[bytes]:
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as stream:
            while line := stream.readline(LONGEST_LINE_BYTES + 1):
                if len(line) > LONGEST_LINE_BYTES:
                    raise EOFError(f"a line of more than {LONGEST_LINE_BYTES:,} bytes")
                yield line
    except (OSError, EOFError, zlib.error) as error:
        raise _unreadable(path, error) from error


def _digested(path: Path) -> SourceFile:
    try:
        return SourceFile(path.name, path.stat().st_size, file_digest(path))
    except OSError as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: Exception) -> ParibusError:
    return ParibusError(
        f"{path} is not readable",
        expected="a complete file",
        received=f"{type(error).__name__}: {error}",
        remedy="fetch it again",
    )
