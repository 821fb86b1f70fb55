"""Reading foreign files: nothing is dropped without a word."""

import json
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paribus.adopting.records import REPORT_FOLDER, number, read_folder, typed
from paribus.errors import ParibusError


def test_nested_keys_are_joined_by_dots_and_the_file_is_a_field(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"config": {"depth": 3, "heads": [1, 2]}, "ok": true, "none": null}')
    (found,), left = read_folder(tmp_path, ["*.json"])
    assert found.fields == {"config.depth": 3, "config.heads": "[1, 2]", "ok": True, "none": None, "@file": "a.json"}
    assert found.source == "a.json"
    assert left == []


def test_lists_lines_and_tables_hold_many_records(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('[{"x": 1}, {"x": 2}]')
    (tmp_path / "b.jsonl").write_text('{"x": 3}\n\n{"x": 4}\n')
    (tmp_path / "c.csv").write_text('x,name\n5,"a, b"\n6,\n')
    found, left = read_folder(tmp_path, ["*"])
    assert [record.fields["x"] for record in found] == [1, 2, 3, 4, 5, 6]
    assert [record.source for record in found][2:5] == ["b.jsonl, line 1", "b.jsonl, line 3", "c.csv, line 2"]
    assert found[4].fields["name"] == "a, b"
    assert found[5].fields["name"] is None
    assert left == []


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("bad.json", "{", "could not be read"),
        ("bad.json", "3", "a int where a record"),
        ("bad.json", '{"a.b": 1, "a": {"b": 2}}', "both called 'a.b'"),
        ("bad.jsonl", "{\n", "could not be read"),
        ("bad.csv", "a,b\n1\n", "1 cells where the heading has 2"),
        ("bad.csv", "a,a\n1,2\n", "two columns have one heading: a"),
        ("bad.csv", 'a\n"1\n', "could not be read"),
        ("bad.txt", "a", "'.txt' is not read"),
        ("bad.json", "[" * 100_000, "could not be read"),
    ],
)
def test_what_cannot_be_read_is_named_and_the_rest_is_kept(
    tmp_path: Path, name: str, content: str, reason: str
) -> None:
    (tmp_path / "good.json").write_text('{"x": 1}')
    (tmp_path / name).write_text(content)
    found, left = read_folder(tmp_path, ["*"])
    assert [record.fields["x"] for record in found if record.source == "good.json"] == [1]
    assert len(left) == 1
    assert left[0].source.startswith(name)
    assert reason in left[0].reason


def test_a_file_that_is_not_text_is_named(tmp_path: Path) -> None:
    (tmp_path / "bad.json").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "bad.csv").write_bytes(b"a\n\xff\n")
    found, left = read_folder(tmp_path, ["*"])
    assert found == []
    assert [one.source for one in left] == ["bad.csv", "bad.json"]


def test_the_page_that_adopt_wrote_is_not_read_back(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"x": 1}')
    (tmp_path / REPORT_FOLDER).mkdir()
    (tmp_path / REPORT_FOLDER / "report.json").write_text('{"x": 2}')
    found, left = read_folder(tmp_path, ["**/*.json"])
    assert [record.fields["x"] for record in found] == [1]
    assert left == []


@pytest.mark.parametrize("glob", ["*.xml", "/absolute/*.json"])
def test_a_glob_without_a_file_says_what_is_there(tmp_path: Path, glob: str) -> None:
    (tmp_path / "a.json").write_text("{}")
    with pytest.raises(ParibusError) as caught:
        read_folder(tmp_path, [glob])
    assert caught.value.expected


def test_a_missing_folder_is_one_error(tmp_path: Path) -> None:
    with pytest.raises(ParibusError, match="no such folder"):
        read_folder(tmp_path / "none", ["*"])


@given(st.one_of(st.integers(), st.floats(allow_nan=False)))
def test_a_cell_gives_back_the_number_that_was_written(value: float) -> None:
    assert typed(f" {value!r} ") == value
    assert number(repr(value)) == float(value)


@pytest.mark.parametrize("text", ["1_000", "0x10", "1.2.3", "abc", "--1", "nan0", "٣"])
def test_what_only_looks_like_a_number_stays_text(text: str) -> None:
    assert typed(text) == text
    assert number(text) is None


def test_nan_and_truth_are_what_they_are() -> None:
    assert math.isnan(number("NaN") or 0.0)
    assert number(json.loads("Infinity")) == math.inf
    assert number(True) is None
    assert number(None) is None
