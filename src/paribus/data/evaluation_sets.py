"""The texts of evaluation sets, read for what they share with training documents."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, cast

import pyarrow as pa
import pyarrow.parquet as pq

from paribus.errors import CorpusError

_COMPRESSED = (".gz", ".zst")


def read_evaluation_sets(paths: Sequence[Path]) -> dict[str, Callable[[], Iterator[bytes]]]:
    """How to read the texts of every evaluation file, by name: `*.jsonl`, `*.parquet`, `*.txt`, the first and the last
    also as `.gz` or `.zst`.

    A folder stands for all such files below it (others there, as a README, are no evaluation sets), named relative to
    it and sorted; a file is named as it is. Every string value counts as a text, however deep it lies in lists and
    objects; keys do not, and a text file is one text. Raises CorpusError for a path without such a file, for two files
    of one name, and, while they are read, for a file (and its line or row group) that is not what its name says.
    """
    found: dict[str, Path] = {}
    for path in paths:
        for name, file in _files(path):
            if name in found:
                raise CorpusError(
                    "two evaluation files have the same name",
                    expected="a name of its own for each",
                    received=f"{found[name]} and {file}",
                    remedy="rename one, or name a folder that holds both",
                )
            found[name] = file
    return {name: _reader(file) for name, file in sorted(found.items())}


def _files(path: Path) -> Iterator[tuple[str, Path]]:
    if path.is_dir():
        inside = sorted(file for file in path.rglob("*") if file.is_file() and _kind(file) in _READERS)
        named = [(file.relative_to(path).as_posix(), file) for file in inside]
    else:
        named = [(path.name, path)] if path.is_file() and _kind(path) in _READERS else []
    if not named:
        raise CorpusError(
            "no evaluation set is there",
            expected="a file, or a folder with files, of JSONL, Parquet or text (.jsonl, .parquet, .txt)",
            received=f"{path} ({'a folder without one' if path.is_dir() else 'no such file'})",
            remedy="correct the path, or leave it out of `decontaminate`",
        )
    yield from named


def _kind(path: Path) -> str:
    return Path(path.stem).suffix if path.suffix in _COMPRESSED else path.suffix


def _reader(path: Path) -> Callable[[], Iterator[bytes]]:
    return lambda: _READERS[_kind(path)](path)


def _jsonl(path: Path) -> Iterator[bytes]:
    try:
        with _opened(path) as stream:
            for number, line in enumerate(_lines(stream), start=1):
                if line.strip():
                    yield from _strings(_parsed(line, path, number))
    except (OSError, pa.ArrowException) as error:
        raise _unreadable(path, error) from error


def _lines(stream: IO[bytes]) -> Iterator[bytes]:
    rest = b""
    while block := stream.read(2**20):
        *lines, rest = (rest + block).split(b"\n")
        yield from lines
    yield rest


def _parsed(line: bytes, path: Path, number: int) -> Any:
    try:
        return json.loads(line)
    except ValueError as error:
        raise CorpusError(
            "a line of an evaluation set is not JSON",
            expected="one JSON value a line, in UTF-8",
            received=f"{path}, line {number}: {error}",
            remedy="mend the file, or leave it out of `decontaminate`",
        ) from error


def _parquet(path: Path) -> Iterator[bytes]:
    try:
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=256):
                for row in batch.to_pylist():
                    yield from _strings(row)
    except (OSError, pa.ArrowException) as error:
        raise _unreadable(path, error) from error


def _text(path: Path) -> Iterator[bytes]:
    try:
        with _opened(path) as stream:
            content = stream.read()
        content.decode()
    except (OSError, UnicodeDecodeError, pa.ArrowException) as error:
        raise _unreadable(path, error) from error
    yield content


def _opened(path: Path) -> IO[bytes]:
    codec = {".gz": "gzip", ".zst": "zstd"}.get(path.suffix)
    return cast("IO[bytes]", pa.input_stream(str(path), compression=codec))


def _strings(value: object) -> Iterator[bytes]:
    if isinstance(value, str):
        # JSON may spell half a surrogate pair, which UTF-8 cannot.
        yield value.encode("utf-8", "replace")
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from _strings(inner)
    elif isinstance(value, Sequence) and not isinstance(value, bytes):
        for inner in value:
            yield from _strings(inner)


def _unreadable(path: Path, error: Exception) -> CorpusError:
    return CorpusError(
        "an evaluation set cannot be read",
        expected=f"a whole {_kind(path)[1:]} file",
        received=f"{path}: {error}",
        remedy="fetch the file again, or leave it out of `decontaminate`",
    )


_READERS: Mapping[str, Callable[[Path], Iterator[bytes]]] = {".jsonl": _jsonl, ".parquet": _parquet, ".txt": _text}
