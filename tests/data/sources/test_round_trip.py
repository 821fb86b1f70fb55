"""Whatever is written comes back: every byte, every document, once, in order."""

import gzip
import hashlib
import json
import pickle
import subprocess
import sys
import tempfile
from pathlib import Path
from unittest.mock import patch

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paribus.data.config import CorpusConfig
from paribus.data.sources import json_line, open_source
from paribus.data.sources.contract import RawDocument, Skip
from paribus.data.sources.parquet import _bytes

KINDS = ("parquet", "jsonl", "jsonl.gz", "jsonl.zst")
HARD = [
    "a\x00b",
    "astral \U0001f642",
    "one\r\ntwo\rthree\u2028four\x85",
    "\ufeffmark",
    '"\\"\\\\u0041"',
    " x ",
    "漢字" * 50,
]

some_text = st.text().filter(lambda text: bool(text) and not text.isspace())


def utf8s(judged: list[RawDocument | Skip]) -> list[bytes]:
    return [entry.utf8 for entry in judged if isinstance(entry, RawDocument)]


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=25, deadline=None)
@given(files=st.lists(st.lists(some_text, max_size=12), min_size=1, max_size=3), group=st.integers(1, 5))
def test_any_texts_come_back_in_order_and_pieces_cover_them_once(kind, files, group, write_texts):
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        for index, texts in enumerate(files):
            write_texts(folder / f"{index}.{kind}", texts, row_group_size=group)
        source = open_source(CorpusConfig(kind="folder", folder=folder))
        pieces = source.pieces()
        by_piece = [utf8s(list(source.read(piece))) for piece in pieces]
        assert [text for texts in by_piece for text in texts] == [text.encode() for texts in files for text in texts]
        assert len({(piece.file, piece.part) for piece in pieces}) == len(pieces)
        # A piece holds the same whatever was read before it.
        assert by_piece[::-1] == [utf8s(list(source.read(piece))) for piece in reversed(pieces)]


@settings(max_examples=25, deadline=None)
@given(texts=st.lists(some_text, min_size=1, max_size=6))
def test_a_text_file_is_one_document_byte_for_byte(texts: list[str], read_folder):
    with tempfile.TemporaryDirectory() as place:
        for index, text in enumerate(texts):
            (Path(place) / f"{index}.txt").write_bytes(text.encode())
        assert utf8s(read_folder(Path(place))) == [text.encode() for text in texts]


@pytest.mark.parametrize("kind", KINDS)
def test_hard_characters_keep_every_byte(kind: str, tmp_path: Path, write_texts, read_folder):
    write_texts(tmp_path / f"a.{kind}", HARD)
    assert utf8s(read_folder(tmp_path)) == [text.encode() for text in HARD]


@pytest.mark.parametrize("kind", ["jsonl.gz", "jsonl.zst"])
def test_a_stream_of_several_members_is_read_to_its_end(kind: str, tmp_path: Path, write_texts, read_folder):
    parts = [write_texts(tmp_path / "parts" / f"{n}.{kind}", [f"text {n}"] * 300).read_bytes() for n in range(3)]
    (tmp_path / "whole").mkdir()
    (tmp_path / "whole" / f"a.{kind}").write_bytes(b"".join(parts))
    assert utf8s(read_folder(tmp_path / "whole")) == [b"text %d" % n for n in range(3) for _ in range(300)]


def test_lines_longer_than_a_read_and_a_last_line_without_line_feed_are_whole(tmp_path: Path, write_lines, read_folder):
    texts = ["a" * (3 << 20), "b", "c" * ((1 << 20) - 12), "d"]
    content = b"\n".join(json.dumps({"text": text}).encode() for text in texts)
    write_lines(tmp_path / "a.jsonl.gz", content)
    assert utf8s(read_folder(tmp_path)) == [text.encode() for text in texts]


def test_windows_line_ends_and_a_byte_order_mark_belong_to_the_file(tmp_path: Path, write_lines, read_folder):
    write_lines(tmp_path / "a.jsonl", b'\xef\xbb\xbf{"text": "a"}\r\n{"text": "b\\r\\n"}\r\n')
    assert utf8s(read_folder(tmp_path)) == [b"a", b"b\r\n"]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 10**6) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@settings(max_examples=60, deadline=None)
@given(
    entry=st.dictionaries(st.text() | st.just("text"), json_values, max_size=4),
    text=st.text(st.characters(exclude_categories=()), max_size=60),
    numbers=st.lists(st.integers(0, 2**40), max_size=30),
    ascii_only=st.booleans(),
    block=st.integers(12, 40),
)
def test_a_long_line_is_read_as_the_standard_parser_reads_a_short_one(entry, text, numbers, ascii_only, block):
    value = entry | {"text": text, "tokens": numbers}
    line = json.dumps(value, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")

    def outcome() -> object:
        try:
            held = json_line.members(line)
            blocks = json_line.numbers_of(held["tokens"], "tokens")
            assert blocks is not None
            return json_line.utf8_of(held["text"], "text"), [n for ids in blocks for n in ids.tolist()]
        except json_line.BadValueError as bad:
            return bad.skip

    short = outcome()
    with (
        patch.object(json_line, "_LONG_LINE", 0),
        patch.object(json_line, "_LONG_PART", 8),
        patch.object(json_line, "_BLOCK_BYTES", block),
    ):
        assert outcome() == short
    try:
        expected: object = (json.loads(line.decode())["text"].encode(), numbers)
    except UnicodeError:
        expected = Skip.INVALID_UTF8
    assert short == expected


@pytest.mark.parametrize(
    "column",
    [
        pa.array(HARD, pa.large_string()),
        pa.array(HARD, pa.string_view()),
        pa.array([text.encode() for text in HARD], pa.binary()),
        pa.array([text.encode() for text in HARD], pa.large_binary()),
        pa.array(HARD, pa.string()).dictionary_encode(),
        pa.array([text + " " for text in HARD] + HARD, pa.string()).slice(len(HARD)),
    ],
    ids=["large", "view", "binary", "large binary", "dictionary", "slice"],
)
def test_every_layout_of_strings_is_read(column: pa.Array, tmp_path: Path, read_folder):
    pq.write_table(pa.table({"text": column}), tmp_path / "a.parquet", row_group_size=3)
    assert utf8s(read_folder(tmp_path)) == [text.encode() for text in HARD]


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.binary()], ids=str)
def test_a_value_within_an_array_is_taken_from_its_own_place(kind: pa.DataType):
    column = pa.array(HARD, kind)
    assert [_bytes(column.slice(row, 1)) for row in range(len(HARD))] == [text.encode() for text in HARD]


def test_rows_without_a_collection_take_the_stem(tmp_path: Path, read_folder, write_lines):
    (tmp_path / "p").mkdir()
    pq.write_table(pa.table({"text": ["a", "b"], "source": ["s", None]}), tmp_path / "p" / "x.parquet")
    write_lines(tmp_path / "j" / "y.jsonl.gz", b'{"text": "a", "source": "s"}\n{"text": "b"}\n')
    for folder, stem in (("p", "x"), ("j", "y")):
        assert [entry.source for entry in read_folder(tmp_path / folder)] == ["s", stem]
        assert [entry.source for entry in read_folder(tmp_path / folder, source_column=None)] == [stem, stem]


def test_text_files_in_sub_folders_name_them_as_collections(tmp_path: Path, read_folder):
    for name in ("b/c/two.md", "one.txt", "b/three.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    assert [(entry.utf8.decode(), entry.source) for entry in read_folder(tmp_path)] == [
        ("b/c/two.md", "b/c"),
        ("b/three.txt", "b"),
        ("one.txt", "one"),
    ]


@pytest.mark.parametrize("kind", ["parquet", "jsonl"])
def test_hosts_are_read_only_for_a_split_by_host(kind: str, tmp_path: Path, read_folder, write_lines):
    urls = ["https://User@WWW.Example.com:8080/a", None, "not an address"]
    texts = ["a", "b", "c"]
    if kind == "parquet":
        pq.write_table(pa.table({"text": texts, "url": urls}), tmp_path / "a.parquet")
    else:
        lines = [json.dumps({"text": text, "url": url}) for text, url in zip(texts, urls, strict=True)]
        write_lines(tmp_path / "a.jsonl", "\n".join(lines).encode() + b"\n")
    assert [entry.host for entry in read_folder(tmp_path, split_by="host")] == ["example.com", None, "not an address"]
    assert [entry.host for entry in read_folder(tmp_path)] == [None] * 3


def test_a_source_travels_to_a_spawned_process_without_its_digests(tmp_path: Path, write_texts):
    write_texts(tmp_path / "a.jsonl.zst", ["x", "y"])
    seen: list[Path] = []

    def bound_to_the_parent(path: Path) -> str:
        seen.append(path)
        return "digest"

    source = open_source(CorpusConfig(kind="folder", folder=tmp_path), digest_of=bound_to_the_parent)
    assert [(file.name, file.digest) for file in source.files()] == [("a.jsonl.zst", "digest")]
    assert seen == [tmp_path / "a.jsonl.zst"]
    assert len(pickle.dumps(source)) < 1000
    code = (
        "import pickle, sys\n"
        "source, piece = pickle.load(sys.stdin.buffer)\n"
        "sys.stdout.buffer.write(b' '.join(entry.utf8 for entry in source.read(piece)))"
    )
    sent = pickle.dumps((source, source.pieces()[0]))
    assert subprocess.run([sys.executable, "-c", code], input=sent, capture_output=True, check=True).stdout == b"x y"


def test_the_default_digest_is_of_the_content(tmp_path: Path):
    (tmp_path / "a.txt").write_bytes(b"content")
    (file,) = open_source(CorpusConfig(kind="folder", folder=tmp_path)).files()
    assert (file.bytes, file.digest) == (7, hashlib.blake2b(b"content", digest_size=32).hexdigest())


def test_gzip_of_another_writer_is_read(tmp_path: Path, read_folder):
    with gzip.open(tmp_path / "a.json.gz", "wb") as stream:
        stream.write(b'{"text": "c4"}\n')
    assert utf8s(read_folder(tmp_path)) == [b"c4"]
