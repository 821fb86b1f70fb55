"""A corpus from a folder of Parquet files with one document a row."""

import hashlib
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from paribus.data.raw import RawTexts
from paribus.errors import CorpusError


def read_parquet_folder(folder: Path, progress: Callable[[str, int, int], None]) -> RawTexts:
    """Every text of `folder/*.parquet`, files sorted by name, rows in file order.

    The source is the column `source`, or the file's stem where that column is absent or null. Null and blank texts
    are counted, not kept. Raises CorpusError naming the folder or the file.
    """
    texts: list[tuple[str, str]] = []
    empty = 0
    files = parquet_files(folder)
    for done, path in enumerate(files):
        progress("read files", done, len(files))
        for text, source in _rows(path):
            if text is None or not text.strip():
                empty += 1
            else:
                texts.append((text, source or path.stem))
    progress("read files", len(files), len(files))
    return RawTexts(texts, empty=empty, skipped_files=0)


def source_digest(folder: Path) -> str:
    """blake2b-256 over names and contents of the Parquet files, hexadecimal. Raises CorpusError where none is there."""
    digest = hashlib.blake2b(digest_size=32)
    for path in parquet_files(folder):
        try:
            with path.open("rb") as stream:
                content = hashlib.file_digest(stream, lambda: hashlib.blake2b(digest_size=32)).digest()
        except OSError as error:
            raise _unreadable(path, error) from error
        name = path.name.encode()
        digest.update(len(name).to_bytes(4, "little") + name + content)
    return digest.hexdigest()


def parquet_files(folder: Path) -> list[Path]:
    """The files `*.parquet` directly in the folder, sorted by name."""
    if not folder.is_dir():
        raise CorpusError(
            "the corpus folder does not exist",
            expected="a folder of Parquet files",
            received=str(folder),
            remedy="correct the path in the experiment file, or restore the folder",
        )
    files = sorted((path for path in folder.glob("*.parquet") if path.is_file()), key=lambda path: path.name)
    if not files:
        raise CorpusError(
            "the corpus folder holds no Parquet file",
            expected=f"at least one file *.parquet in {folder}",
            received=f"{sum(1 for _ in folder.iterdir())} other entries",
            remedy="name the folder that holds the files themselves; sub-folders are not searched",
        )
    return files


def _rows(path: Path) -> list[tuple[str | None, str | None]]:
    try:
        with pq.ParquetFile(path) as file:
            names = file.schema_arrow.names
            if "text" not in names:
                raise CorpusError(
                    f"{path.name} has no column 'text'",
                    expected="a column 'text' of strings, optionally a column 'source'",
                    received="columns " + ", ".join(names),
                    remedy=f"rename the column in {path}, or move the file out of the folder",
                )
            table = file.read(columns=[name for name in ("text", "source") if name in names])
        rows = pa.Table.from_arrays(
            [column.cast(pa.large_string()) for column in table.columns], names=table.column_names
        ).to_pydict()
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise _unreadable(path, error) from error
    texts = rows["text"]
    return list(zip(texts, rows.get("source", [None] * len(texts)), strict=True))


def _unreadable(path: Path, error: Exception) -> CorpusError:
    return CorpusError(
        f"{path.name} cannot be read as Parquet",
        expected="a complete Parquet file",
        received=f"{type(error).__name__}: {error}",
        remedy=f"fetch {path} again, or move it out of the folder",
    )
