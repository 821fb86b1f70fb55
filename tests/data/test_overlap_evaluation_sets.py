import gzip
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from paribus.data.evaluation_sets import read_evaluation_sets
from paribus.errors import CorpusError

ROW = {"query": "Who?", "choices": ["Ann", "Bob"], "gold": 1, "more": {"deep": [{"text": "hidden ä"}], "none": None}}
STRINGS = ["Who?", "Ann", "Bob", "hidden ä"]


def texts_of(*paths: Path) -> dict[str, list[str]]:
    return {name: [text.decode() for text in read()] for name, read in read_evaluation_sets(paths).items()}


def test_every_string_value_of_a_row_is_a_text_in_every_format(tmp_path: Path):
    lines = (json.dumps(ROW) + "\n\n" + json.dumps(ROW)).encode()
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "a.jsonl").write_bytes(lines)
    (tmp_path / "b.jsonl.gz").write_bytes(gzip.compress(lines))
    (tmp_path / "c.jsonl.zst").write_bytes(pa.compress(lines, codec="zstd", asbytes=True))
    pq.write_table(pa.Table.from_pylist([ROW, ROW]), tmp_path / "d.parquet")
    (tmp_path / "e.txt").write_text("a\nwhole file", encoding="utf-8")
    (tmp_path / "README.md").write_text("no evaluation set", encoding="utf-8")
    rows = ["b.jsonl.gz", "c.jsonl.zst", "d.parquet", "deep/a.jsonl"]
    assert texts_of(tmp_path) == dict.fromkeys(rows, STRINGS * 2) | {"e.txt": ["a\nwhole file"]}
    assert list(texts_of(tmp_path)) == [*rows, "e.txt"]
    assert texts_of(tmp_path / "e.txt", tmp_path / "deep") == {"e.txt": ["a\nwhole file"], "a.jsonl": STRINGS * 2}


def test_rows_longer_than_a_block_are_whole(tmp_path: Path):
    long = ["x" * 3_000_000, "y" * 1_500_000, "z"]
    (tmp_path / "long.jsonl").write_text("\n".join(json.dumps(text) for text in long), encoding="utf-8")
    assert texts_of(tmp_path)["long.jsonl"] == long


def test_a_path_without_an_evaluation_set_is_refused(tmp_path: Path):
    (tmp_path / "README.md").write_text("none", encoding="utf-8")
    for path in (tmp_path, tmp_path / "absent.jsonl", tmp_path / "README.md"):
        with pytest.raises(CorpusError, match="no evaluation set is there"):
            read_evaluation_sets([path])


def test_two_files_of_one_name_are_refused(tmp_path: Path):
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "a.txt").write_text("text", encoding="utf-8")
    with pytest.raises(CorpusError, match="the same name"):
        read_evaluation_sets([tmp_path / "one", tmp_path / "two"])


def test_a_malformed_line_is_named_and_so_is_a_damaged_file(tmp_path: Path):
    (tmp_path / "bad.jsonl").write_text('{"a": "b"}\n{"a": ', encoding="utf-8")
    with pytest.raises(CorpusError, match=r"bad\.jsonl, line 2"):
        texts_of(tmp_path / "bad.jsonl")
    whole = pa.compress(b'"text"\n' * 10_000, codec="zstd", asbytes=True)
    contents = {
        "cut.jsonl.zst": whole[:-9],
        "cut.jsonl.gz": gzip.compress(b'"text"\n' * 9999)[:-9],
        "no.parquet": b"PAR1",
        "latin.txt": b"\xe9",
    }
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(CorpusError, match=name):
            texts_of(tmp_path / name)
