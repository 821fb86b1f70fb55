import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from paribus.data.parquet_folder import read_parquet_folder, source_digest
from paribus.errors import CorpusError


def read(folder: Path):
    return read_parquet_folder(folder, lambda *_: None)


def test_rows_come_in_the_order_of_the_file_names(tmp_path: Path, write_parquet):
    write_parquet(tmp_path / "b.parquet", ["three"])
    write_parquet(tmp_path / "a.parquet", ["one", "two"], ["s", None])
    assert list(read(tmp_path).texts) == [("one", "s"), ("two", "a"), ("three", "b")]


def test_null_and_blank_texts_are_counted_and_not_kept(tmp_path: Path, write_parquet):
    write_parquet(tmp_path / "a.parquet", ["one", None, "", " \t\n"])
    raw = read(tmp_path)
    assert list(raw.texts) == [("one", "a")]
    assert raw.empty == 3


def test_a_missing_folder_is_named(tmp_path: Path):
    with pytest.raises(CorpusError, match=r"(?s)does not exist.*nowhere"):
        read(tmp_path / "nowhere")


def test_a_folder_without_parquet_files_says_so(tmp_path: Path):
    (tmp_path / "readme.txt").write_text("x")
    with pytest.raises(CorpusError, match=r"(?s)no Parquet file.*1 other entries"):
        read(tmp_path)


def test_a_missing_column_names_the_file_and_the_columns_it_has(tmp_path: Path, write_parquet):
    write_parquet(tmp_path / "a.parquet", ["one"])
    pq.write_table(pa.table({"content": ["x"], "url": ["y"]}), tmp_path / "b.parquet")
    with pytest.raises(CorpusError, match=r"(?s)b\.parquet has no column 'text'.*columns content, url"):
        read(tmp_path)


@pytest.mark.parametrize("damage", ["truncated", "not parquet", "empty"])
def test_a_corrupt_file_is_named(tmp_path: Path, write_parquet, damage: str):
    path = write_parquet(tmp_path / "good.parquet", ["one"] * 100)
    content = {"truncated": path.read_bytes()[:-20], "not parquet": b"text,source\n", "empty": b""}[damage]
    (tmp_path / "bad.parquet").write_bytes(content)
    with pytest.raises(CorpusError, match=r"bad\.parquet cannot be read as Parquet"):
        read(tmp_path)


def test_a_text_column_that_is_not_text_is_named(tmp_path: Path):
    pq.write_table(pa.table({"text": pa.array([["a"], ["b"]])}), tmp_path / "lists.parquet")
    with pytest.raises(CorpusError, match=r"lists\.parquet"):
        read(tmp_path)


def test_bytes_that_are_not_utf8_are_an_error_naming_the_file(tmp_path: Path):
    pq.write_table(pa.table({"text": pa.array([b"caf\xe9"], pa.binary())}), tmp_path / "latin.parquet")
    with pytest.raises(CorpusError, match=r"latin\.parquet"):
        read(tmp_path)


def test_the_source_digest_covers_names_and_contents_and_not_the_place(parquet_folder: Path, tmp_path: Path):
    copy = tmp_path / "elsewhere"
    shutil.copytree(parquet_folder, copy)
    (copy / "notes.txt").write_text("not part of the corpus")
    assert source_digest(copy) == source_digest(parquet_folder)
    (copy / "b.parquet").rename(copy / "c.parquet")
    renamed = source_digest(copy)
    (copy / "c.parquet").rename(copy / "b.parquet")
    (copy / "b.parquet").write_bytes((copy / "b.parquet").read_bytes() + b"x")
    assert len({renamed, source_digest(copy), source_digest(parquet_folder)}) == 3
