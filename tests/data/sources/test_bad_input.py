"""Damaged files: an error that names file and place, or a counted skip where bad documents may be skipped."""

import gzip
import json
import random
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from paribus.data.config import CorpusConfig
from paribus.data.sources import open_source
from paribus.data.sources.contract import RawDocument, Skip
from paribus.errors import CorpusError

TEXTS = [f"document {n} of many words" for n in range(2000)]


@pytest.fixture
def varied() -> list[str]:
    """2,000 texts that hardly compress, so that a cut lands inside the stream."""
    draw = random.Random(7)
    return [f"{draw.getrandbits(400):x}" for _ in range(2000)]


def refused(read_folder: Callable[..., object], folder: Path, **declared: object) -> str:
    with pytest.raises(CorpusError) as raised:
        read_folder(folder, **declared)
    assert raised.value.expected
    assert raised.value.received
    assert raised.value.remedy
    return str(raised.value)


@pytest.mark.parametrize("bad_documents", ["refuse", "skip"])
@pytest.mark.parametrize("kind", ["jsonl.gz", "jsonl.zst"])
@pytest.mark.parametrize("cut", [0.0, 0.5, 0.999])
def test_a_compressed_stream_that_was_cut_is_no_shorter_corpus(
    bad_documents, kind, cut, varied, tmp_path, write_texts, read_folder
):
    path = write_texts(tmp_path / f"a.{kind}", varied)
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * cut)])
    said = refused(read_folder, tmp_path, bad_documents=bad_documents)
    assert f"a.{kind} cannot be read" in said


def test_a_compressed_stream_with_a_wrong_byte_is_an_error(varied, tmp_path, write_texts, read_folder):
    path = write_texts(tmp_path / "a.jsonl.gz", varied)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    assert "a.jsonl.gz" in refused(read_folder, tmp_path)


@pytest.mark.parametrize("bad_documents", ["refuse", "skip"])
def test_a_plain_file_that_was_cut_within_a_line_is_an_error(bad_documents, tmp_path, write_lines, read_folder):
    whole = b'{"text": "one"}\n{"text": "caf\xc3\xa9"}\n'
    for bytes_kept in (len(whole) - 2, len(whole) - 5):
        write_lines(tmp_path / "a.jsonl", whole[:bytes_kept])
        said = refused(read_folder, tmp_path, bad_documents=bad_documents)
        assert "a.jsonl, line 2: the file ends within a line" in said


@pytest.mark.parametrize("bad_documents", ["refuse", "skip"])
@pytest.mark.parametrize("damage", ["footer", "no footer", "text", "empty"])
def test_a_parquet_file_without_a_whole_footer_is_named_before_anything_is_read(
    bad_documents, damage, tmp_path, write_texts
):
    content = write_texts(tmp_path / "bad.parquet", TEXTS).read_bytes()
    kept = {"footer": content[:-20], "no footer": content[: len(content) // 2], "text": b"a,b\n", "empty": b""}
    (tmp_path / "bad.parquet").write_bytes(kept[damage])
    source = open_source(CorpusConfig(kind="folder", folder=tmp_path, bad_documents=bad_documents))
    with pytest.raises(CorpusError, match=r"(?s)bad\.parquet cannot be read.*expected: a complete Parquet file"):
        source.pieces()


@pytest.mark.parametrize("bad_documents", ["refuse", "skip"])
@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_a_damaged_row_group_is_named_and_the_others_are_read(
    bad_documents, compression, varied, tmp_path, write_texts
):
    path = write_texts(
        tmp_path / "bad.parquet",
        varied,
        row_group_size=500,
        use_dictionary=False,
        compression=compression,
        write_page_checksum=True,
    )
    column = pq.read_metadata(path).row_group(2).column(0)
    content = bytearray(path.read_bytes())
    middle = column.data_page_offset + column.total_compressed_size // 2
    content[middle : middle + 100] = bytes(100)
    path.write_bytes(content)
    source = open_source(CorpusConfig(kind="folder", folder=tmp_path, bad_documents=bad_documents))
    pieces = source.pieces()
    assert [len(list(source.read(pieces[part]))) for part in (0, 1, 3)] == [500, 500, 500]
    with pytest.raises(CorpusError, match=r"bad\.parquet, row group 2 cannot be read"):
        list(source.read(pieces[2]))


@pytest.mark.parametrize("bad_documents", ["refuse", "skip"])
def test_a_missing_column_names_the_file_and_the_columns_it_has(bad_documents, tmp_path, write_texts, read_folder):
    write_texts(tmp_path / "a.parquet", ["one"])
    pq.write_table(pa.table({"content": ["x"], "url": ["y"]}), tmp_path / "b.parquet")
    said = refused(read_folder, tmp_path, bad_documents=bad_documents)
    assert "b.parquet has no column 'text'" in said
    assert "columns content, url" in said


def test_where_ids_are_in_the_place_of_a_text_the_form_is_named(tmp_path, read_folder):
    pq.write_table(pa.table({"tokens": [[1, 2]], "token_count": [2]}), tmp_path / "a.parquet")
    said = refused(read_folder, tmp_path)
    assert "a.parquet has no column 'text'" in said
    assert "'tokens' holds GPT-2 token ids, declare the form 'gpt2-tokens'" in said


@pytest.mark.parametrize(
    ("columns", "declared", "named"),
    [
        ({"text": [1, 2]}, {}, "'text' of a.parquet is of the wrong type"),
        ({"text": [["a"], ["b"]]}, {}, "'text' of a.parquet is of the wrong type"),
        ({"text": ["a", "b"], "source": [1, 2]}, {}, "'source' of a.parquet is of the wrong type"),
        ({"text": ["a", "b"]}, {"split_by": "host"}, "no column 'url'"),
    ],
)
def test_a_column_of_another_type_is_an_error_whatever_may_be_skipped(columns, declared, named, tmp_path, read_folder):
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    assert named in refused(read_folder, tmp_path, bad_documents="skip", **declared)


def test_two_columns_of_one_name_are_refused(tmp_path, read_folder):
    table = pa.Table.from_arrays([pa.array(["a"]), pa.array(["b"])], names=["text", "text"])
    pq.write_table(table, tmp_path / "a.parquet")
    assert "more than one column 'text'" in refused(read_folder, tmp_path)


def test_null_empty_and_blank_texts_are_counted_in_their_place(tmp_path, read_folder, write_lines):
    texts = [None, "", " \t\n\u3000\u2028", "kept", None]
    expected = [Skip.NULL, Skip.EMPTY, Skip.EMPTY, b"kept", Skip.NULL]
    (tmp_path / "p").mkdir()
    pq.write_table(pa.table({"text": pa.array(texts, pa.string())}), tmp_path / "p" / "a.parquet")
    lines = [json.dumps({"text": text}).encode() for text in texts]
    write_lines(tmp_path / "j" / "a.jsonl", b"\n".join(lines) + b"\n")
    for folder in ("p", "j"):
        found = read_folder(tmp_path / folder)
        assert [entry.utf8 if isinstance(entry, RawDocument) else entry for entry in found] == expected
    write_lines(tmp_path / "t" / "a.txt", b"")
    write_lines(tmp_path / "t" / "b.txt", b"\r\n ")
    assert read_folder(tmp_path / "t") == [Skip.EMPTY, Skip.EMPTY]


def test_a_column_of_nothing_but_nulls_is_counted(tmp_path, read_folder):
    pq.write_table(pa.table({"text": pa.nulls(3)}), tmp_path / "a.parquet")
    assert read_folder(tmp_path) == [Skip.NULL] * 3


LINES = {
    b"": Skip.EMPTY,
    b'{"text": ': Skip.MALFORMED,
    b'["text"]': Skip.MALFORMED,
    b'{"body": "x"}': Skip.MALFORMED,
    b'{"text": "raw \x00 zero"}': Skip.MALFORMED,
    b"\x00\x00\x00": Skip.MALFORMED,
    b"[" * 100_000: Skip.MALFORMED,
    b'{"text": 5}': Skip.WRONG_TYPE,
    b'{"text": {"a": "b"}}': Skip.WRONG_TYPE,
    b'{"text": "x", "source": 5}': Skip.WRONG_TYPE,
    b'{"text": "caf\xe9"}': Skip.INVALID_UTF8,
    b'{"text": "\xed\xa0\x80"}': Skip.INVALID_UTF8,
    b'{"text": "lone \\ud800 half"}': Skip.INVALID_UTF8,
}


@pytest.mark.parametrize(("line", "skip"), LINES.items(), ids=[repr(line[:24]) for line in LINES])
@pytest.mark.parametrize("long", [False, True])
def test_a_bad_line_is_counted_or_named(line, skip, long, tmp_path, write_lines, read_folder):
    if long:  # the same line, too long for the standard parser
        line = line.replace(b'{"', b'{"padding": "' + b"x" * (1 << 20) + b'", "', 1)
    write_lines(tmp_path / "a.jsonl", b'{"text": "good"}\n' + line + b'\n{"text": "good"}\n')
    good, counted, last = read_folder(tmp_path, bad_documents="skip")
    assert (good.utf8, counted, last.utf8) == (b"good", skip, b"good")
    if skip is Skip.EMPTY:
        assert read_folder(tmp_path)[1] is skip
    else:
        assert "a.jsonl, line 2: " in refused(read_folder, tmp_path)


@pytest.mark.parametrize("end", [b'\\x"}', b'\\u12g4"}', b'\\"}', b'\t"}'])
def test_a_long_string_with_a_wrong_escape_or_without_an_end_is_malformed(end, tmp_path, write_lines, read_folder):
    line = b'{"text": "' + b"\\n" * (1 << 20) + end
    write_lines(tmp_path / "a.jsonl", line + b"\n")
    assert read_folder(tmp_path, bad_documents="skip") == [Skip.MALFORMED]


def test_the_fault_of_a_long_text_is_found_at_its_byte(tmp_path, read_folder):
    # One byte before the letters of two: every block ends within a letter.
    text = bytearray(b"x" + "é".encode() * (1 << 20))
    text[1_500_002] = 0x41
    (tmp_path / "a.txt").write_bytes(text)
    assert "byte 0xc3 at byte 1500001 of 2097153" in refused(read_folder, tmp_path)
    (tmp_path / "a.txt").write_bytes(b"x" * (1 << 20) + b"\xc3")
    assert "byte 0xc3 at byte 1048576 of 1048577" in refused(read_folder, tmp_path)


def test_invalid_utf8_in_parquet_is_counted_or_named_with_its_row(tmp_path, read_folder):
    values = pa.array([b"good", b"caf\xe9", b"\xed\xa0\x80"], pa.binary())
    as_text = pa.StringArray.from_buffers(3, *values.buffers()[1:])
    for column in (values, as_text):
        pq.write_table(pa.table({"text": column}), tmp_path / "a.parquet")
        found = read_folder(tmp_path, bad_documents="skip")
        assert (found[0].utf8, found[1:]) == (b"good", [Skip.INVALID_UTF8] * 2)
        said = refused(read_folder, tmp_path)
        assert "a.parquet, row group 0, row 1: the text is not valid UTF-8" in said
        assert "byte 0xe9 at byte 3" in said


def test_a_text_file_that_is_not_utf8_is_counted_or_named(tmp_path, read_folder):
    (tmp_path / "latin.txt").write_bytes(b"caf\xe9")
    assert read_folder(tmp_path, bad_documents="skip") == [Skip.INVALID_UTF8]
    assert "latin.txt: the text is not valid UTF-8" in refused(read_folder, tmp_path)


@pytest.mark.parametrize("bad_documents", ["refuse", "skip"])
@pytest.mark.parametrize("kind", ["parquet", "jsonl", "jsonl.gz", "jsonl.zst", "txt"])
def test_a_file_that_vanishes_or_changes_is_an_error(bad_documents, kind, tmp_path, write_texts, write_lines):
    write = write_lines if kind == "txt" else write_texts
    paths = [write(tmp_path / f"{n}.{kind}", b"x" if kind == "txt" else ["x"]) for n in range(2)]
    source = open_source(CorpusConfig(kind="folder", folder=tmp_path, bad_documents=bad_documents))
    pieces = source.pieces()
    write(paths[0], b"xyz" if kind == "txt" else ["another text", "and more"])
    with pytest.raises(CorpusError, match=rf"0\.{kind}.* changed while the corpus was read"):
        list(source.read(pieces[0]))
    paths[1].unlink()
    for ask in (source.files, source.pieces, lambda: list(source.read(pieces[1]))):
        with pytest.raises(CorpusError, match=rf"1\.{kind} is gone"):
            ask()


@pytest.mark.parametrize("kind", ["parquet", "jsonl", "jsonl.gz", "txt"])
def test_a_file_that_cannot_be_opened_is_named(kind, tmp_path):
    # A link to itself: no permission could make it readable.
    (tmp_path / f"loop.{kind}").symlink_to(tmp_path / f"loop.{kind}")
    source = open_source(CorpusConfig(kind="folder", folder=tmp_path))
    for ask in (source.files, source.pieces):
        with pytest.raises(CorpusError, match=rf"loop\.{kind} cannot be read"):
            ask()


@pytest.mark.parametrize("kind", ["txt", "jsonl"])
def test_a_file_that_opens_and_cannot_be_read_is_named(kind, tmp_path):
    if not Path("/proc/self/mem").exists():
        pytest.skip("needs a file that opens and refuses to be read: /proc/self/mem")
    (tmp_path / f"a.{kind}").symlink_to("/proc/self/mem")
    source = open_source(CorpusConfig(kind="folder", folder=tmp_path))
    with pytest.raises(CorpusError, match=rf"a\.{kind} cannot be read"):
        list(source.read(source.pieces()[0]))


def test_a_row_group_of_no_rows_has_no_documents(tmp_path, read_folder):
    schema = pa.schema({"text": pa.string()})
    with pq.ParquetWriter(tmp_path / "a.parquet", schema) as writer:
        for texts in (["one"], [], ["two"]):
            writer.write_table(pa.table({"text": pa.array(texts, pa.string())}))
    assert pq.read_metadata(tmp_path / "a.parquet").num_row_groups == 3
    assert [entry.utf8 for entry in read_folder(tmp_path)] == [b"one", b"two"]


def test_lines_that_never_name_an_address_cannot_be_split_by_host(tmp_path, read_folder, write_lines):
    write_lines(tmp_path / "a.jsonl", b'{"text": "x"}\n{"text": "y"}\n')
    assert "a.jsonl has no 'url' in any line" in refused(read_folder, tmp_path, split_by="host")


def test_an_empty_gzip_member_is_a_file_without_documents(tmp_path, read_folder):
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(b""))
    assert read_folder(tmp_path) == []
