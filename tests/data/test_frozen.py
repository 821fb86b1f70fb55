import json
import os
import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from paribus.data.digests import RememberedDigests, file_digest
from paribus.data.frozen import (
    NOT_CHECKED,
    DocumentTable,
    FrozenCorpus,
    IndexDigest,
    index_digest,
    open_frozen,
    token_type,
)
from paribus.data.split import SPLITS
from paribus.errors import CorpusError

FILES = ["tokenizer.json", *(f"{split}.{ending}" for split in SPLITS for ending in ("tokens", "documents.parquet"))]


@pytest.fixture
def copy(frozen: FrozenCorpus, tmp_path: Path) -> FrozenCorpus:
    shutil.copytree(frozen.folder, tmp_path / "copy")
    return open_frozen(tmp_path / "copy")


def test_a_manifest_that_is_written_and_read_again_is_the_same(frozen: FrozenCorpus):
    assert open_frozen(frozen.folder) == frozen
    assert (frozen.folder / "manifest.json").read_text(encoding="utf-8") == frozen.to_json()
    assert frozen.tokenizer_digest == frozen.tokenizer().digest == frozen.files["tokenizer.json"]
    assert frozen.tokenizer().bos_id == frozen.bos_id


def test_the_digest_covers_values_of_the_document_table_and_not_how_they_were_written(copy: FrozenCorpus):
    path = copy.folder / "test.documents.parquet"
    table = pq.read_table(path)
    pq.write_table(table, path, compression="gzip")
    with pytest.raises(CorpusError, match=r"test\.documents\.parquet"):
        copy.verify()
    assert index_digest(pq.read_table(path)) == copy.index["test"]
    files = dict(copy.files) | {path.name: "0" * 64}
    assert replace(copy, files=files).digest == copy.digest
    assert replace(copy, index=dict(copy.index) | {"test": "0" * 64}).digest != copy.digest


@pytest.mark.parametrize("rows", [1, 7, 1000])
def test_the_index_digest_does_not_depend_on_the_parts_it_is_computed_from(frozen: FrozenCorpus, rows: int):
    table = pq.read_table(frozen.folder / "test.documents.parquet")
    digest = IndexDigest(table.column_names)
    for begin in range(0, len(table), rows):
        digest.update(table.slice(begin, rows))
    assert digest.hexdigest() == frozen.index["test"]


@pytest.mark.parametrize("column", ["id", "source", "offset", "tokens", "bytes", "overlap_free"])
def test_the_index_digest_covers_every_column(frozen: FrozenCorpus, column: str):
    table = pq.read_table(frozen.folder / "test.documents.parquet")
    values = table[column].to_pylist()
    values[3] = {"id": "0" * 32, "source": "elsewhere", "overlap_free": None}.get(column, 10**6)
    place = table.column_names.index(column)
    changed = table.set_column(place, column, pa.array(values, table.schema.field(column).type))
    assert index_digest(changed) != index_digest(table)


def test_the_index_digest_tells_where_one_string_ends_and_the_next_begins():
    one, other = ({"id": pa.array(values, pa.string())} for values in (["ab", "c"], ["a", "bc"]))
    assert index_digest(pa.table(one)) != index_digest(pa.table(other))


@pytest.mark.parametrize("name", ["tokenizer.json", *(f"{split}.tokens" for split in SPLITS)])
def test_the_digest_covers_the_tokenizer_and_the_tokens_of_every_split(frozen: FrozenCorpus, name: str):
    assert replace(frozen, files=dict(frozen.files) | {name: "0" * 64}).digest != frozen.digest


@pytest.mark.parametrize("name", FILES)
def test_a_changed_byte_in_any_file_is_found_and_the_file_named(copy: FrozenCorpus, name: str):
    copy.verify()
    path = copy.folder / name
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(CorpusError) as error:
        copy.verify()
    assert name in error.value.what
    assert copy.files[name] in error.value.expected
    assert "digest" in error.value.received
    assert "restore" in error.value.remedy


@pytest.mark.parametrize("name", FILES)
def test_a_missing_and_a_shortened_file_are_found_and_named(copy: FrozenCorpus, name: str):
    path = copy.folder / name
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(CorpusError, match=name.replace(".", r"\.")):
        copy.verify()
    path.unlink()
    with pytest.raises(CorpusError, match=name.replace(".", r"\.")):
        copy.verify()


def test_verifying_reads_contents_once_and_again_where_a_file_was_touched(
    copy: FrozenCorpus, monkeypatch: pytest.MonkeyPatch
):
    # What was written a moment ago is read again each time: a clock that ticks seldom would hide a change.
    for name in FILES:
        os.utime(copy.folder / name, (1, 1))
    read: list[str] = []

    def counting(path: Path) -> str:
        read.append(path.name)
        return file_digest(path)

    monkeypatch.setattr(RememberedDigests.__init__, "__defaults__", (counting,))
    copy.verify()
    copy.verify()
    open_frozen(copy.folder).verify()
    assert sorted(read) == sorted(FILES)
    os.utime(copy.folder / "train.tokens", (2, 2))
    copy.verify()
    assert read[len(FILES) :] == ["train.tokens"]
    content = bytearray((copy.folder / "test.tokens").read_bytes())
    content[0] ^= 1
    (copy.folder / "test.tokens").write_bytes(content)
    with pytest.raises(CorpusError, match=r"test\.tokens"):
        copy.verify()


def test_a_digest_is_not_remembered_of_a_file_that_was_just_written(tmp_path: Path):
    path, remembered = tmp_path / "file", tmp_path / "remembered"
    path.write_bytes(b"one")
    stamp = time.time_ns()
    os.utime(path, ns=(stamp, stamp))
    with RememberedDigests(remembered) as digests:
        first = digests.of(path)
    path.write_bytes(b"two")
    os.utime(path, ns=(stamp, stamp))
    with RememberedDigests(remembered) as digests:
        assert digests.of(path) != first


@pytest.mark.parametrize("content", ["", "[]", '{"a": 1}', '{"a": [1, 2]}', "\x00"])
def test_a_damaged_memory_of_digests_is_no_memory(tmp_path: Path, content: str):
    path, remembered = tmp_path / "file", tmp_path / "remembered"
    path.write_bytes(b"one")
    os.utime(path, (1, 1))
    remembered.write_text(content)
    with RememberedDigests(remembered) as digests:
        assert digests.of(path) == file_digest(path)
    assert json.loads(remembered.read_text())[str(path.resolve())][-1] == file_digest(path)


def test_a_truncated_token_file_is_refused_on_opening_the_split(copy: FrozenCorpus):
    path = copy.folder / "train.tokens"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(CorpusError, match=r"train\.tokens"):
        copy.split("train")


def without_rows(table: pa.Table) -> pa.Table:
    return table.slice(1)


def with_a_row_more(table: pa.Table) -> pa.Table:
    return pa.concat_tables([table, table.slice(0, 1)])


def without_a_column(table: pa.Table) -> pa.Table:
    return table.drop_columns(["tokens"])


def of_another_source(table: pa.Table) -> pa.Table:
    return table.set_column(1, "source", pa.array(["elsewhere"] * len(table)))


@pytest.mark.parametrize("change", [without_rows, with_a_row_more, without_a_column, of_another_source])
def test_a_table_that_is_not_the_manifests_is_refused_on_opening_the_split(
    copy: FrozenCorpus, change: Callable[[pa.Table], pa.Table]
):
    path = copy.folder / "test.documents.parquet"
    pq.write_table(change(pq.read_table(path)), path)
    with pytest.raises(CorpusError, match=r"test\.documents\.parquet"):
        copy.split("test")


def test_ids_are_read_when_they_are_asked_for_and_not_before(copy: FrozenCorpus):
    path = copy.folder / "train.documents.parquet"
    expected = pq.read_table(path)["id"].to_pylist()
    documents = copy.split("train").documents
    first = documents.first(5)
    assert (len(documents), len(first)) == (len(expected), 5)
    assert first.id.tolist() == expected[:5] == list(first.id)
    assert documents.id[-1] == expected[-1]
    assert list(documents.id[3:9][1:4]) == expected[4:7]
    assert list(documents.id[::-2]) == expected[::-2]
    assert list(documents.id[9:3]) == []
    assert first.tokens.tolist() == documents.tokens[:5].tolist()
    untouched = copy.split("train").documents
    path.unlink()
    assert untouched.tokens.sum() == copy.counts["train"].tokens
    with pytest.raises(CorpusError, match=r"train\.documents\.parquet"):
        untouched.id.tolist()


def test_a_table_of_arrays_is_shortened_with_its_marks():
    numbers = np.arange(4)
    table = DocumentTable(
        np.array(["a", "b", "c", "d"]),
        numbers.astype(np.int16),
        numbers,
        numbers,
        numbers,
        np.array([1, 0, -1, 1], np.int8),
    )
    first = table.first(3)
    assert first.overlap_free is not None
    assert (first.id.tolist(), first.overlap_free.tolist()) == (["a", "b", "c"], [1, 0, NOT_CHECKED])


def test_test_documents_that_were_not_checked_are_told_from_those_that_share(copy: FrozenCorpus):
    path = copy.folder / "test.documents.parquet"
    table = pq.read_table(path)
    marks = [True, False, None] + [True] * (len(table) - 3)
    place = table.column_names.index("overlap_free")
    pq.write_table(table.set_column(place, "overlap_free", pa.array(marks, pa.bool_())), path)
    free = copy.split("test").documents.overlap_free
    assert free is not None
    assert free.tolist()[:4] == [1, 0, NOT_CHECKED, 1]


def test_a_split_name_with_a_typing_error_gets_the_nearest_name(frozen: FrozenCorpus):
    with pytest.raises(CorpusError, match="did you mean 'validation'"):
        frozen.split("validaton")  # pyright: ignore[reportArgumentType]


def test_a_byte_of_the_manifest_that_no_digest_of_a_file_covers_is_noticed(copy: FrozenCorpus):
    path = copy.folder / "manifest.json"
    content = path.read_bytes()
    for word in (b'"bos_id"', b'"made_with"', b'"text_column"', b'"dropped"'):
        place = content.index(word) + 3
        path.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        with pytest.raises(CorpusError, match=r"manifest\.json"):
            open_frozen(copy.folder)
    path.write_bytes(content)
    assert open_frozen(copy.folder) == copy


def test_a_manifest_of_an_earlier_version_without_a_checksum_is_read(copy: FrozenCorpus):
    path = copy.folder / "manifest.json"
    content = json.loads(path.read_text())
    del content["checksum"]
    path.write_text(json.dumps(content))
    assert open_frozen(copy.folder) == copy


@pytest.mark.parametrize("damage", ["text", "list", "version", "field", "digest"])
def test_a_damaged_manifest_is_refused(copy: FrozenCorpus, damage: str):
    path = copy.folder / "manifest.json"
    content = json.loads(path.read_text())
    del content["checksum"]  # so that each of the other checks is asked, too
    if damage == "version":
        content["format_version"] = 1
    if damage == "field":
        del content["sources"]
    if damage == "digest":
        content["files"]["train.tokens"] = "0" * 64
    path.write_text({"text": "{", "list": "[]"}.get(damage, json.dumps(content)))
    with pytest.raises(CorpusError, match=r"manifest\.json"):
        open_frozen(copy.folder)


def test_a_folder_without_a_corpus_is_an_error_that_says_so(tmp_path: Path):
    with pytest.raises(CorpusError, match="no such folder"):
        open_frozen(tmp_path / "nothing")
    with pytest.raises(CorpusError, match=r"without manifest\.json"):
        open_frozen(tmp_path)


def test_sixteen_bits_hold_the_ids_up_to_65536_of_them():
    assert token_type(65536) == np.uint16
    assert token_type(65537) == np.uint32
