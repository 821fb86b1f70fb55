import io
import itertools
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from rich.console import Console

from paribus.data.frozen import FrozenCorpus
from paribus.errors import StorageError
from paribus.inspecting import tables
from paribus.inspecting.findings import Findings, look_into
from paribus.inspecting.page import render, write
from paribus.inspecting.showing import as_json, length_lines, show

VOID = {"meta", "link", "br", "path", "use", "input", "img", "hr"}


class Reader(HTMLParser):
    """What a browser would see: tags, whether they are closed in order, and text."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.open: list[str] = []
        self.links: list[str] = []
        self.ids: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.links += [value or "" for name, value in attrs if name in ("href", "src", "xlink:href")]
        self.ids += [value or "" for name, value in attrs if name == "id"]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def read(page: str) -> Reader:
    reader = Reader()
    reader.feed(page)
    reader.close()
    return reader


@pytest.fixture(scope="module")
def page(found: Findings) -> str:
    return render(found)


def test_the_page_is_well_formed_and_needs_nothing_from_elsewhere(page: str):
    reader = read(page)
    assert reader.open == []
    assert "script" not in reader.tags
    assert all(link.startswith(("#", "data:")) for link in reader.links)
    assert not re.search(r"url\((?!#)", page)
    assert len(reader.ids) == len(set(reader.ids))
    assert reader.tags.count("svg") == 6  # three figures, wide and narrow


def test_what_a_document_or_a_name_holds_is_text_and_never_markup(page: str, found: Findings):
    reader = read(page)
    assert "<i>texts & more" in reader.text
    assert found.sources[0].source.startswith("<b>source</b>")
    assert found.sources[0].source in reader.text
    assert "</pre><script>alert('x')</script> & " in reader.text
    assert not re.search(r"[\x00-\x08\x0b\x0c\x0e-\x1f]", page)
    assert reader.tags.count("pre") == len(found.samples)


def test_documents_that_are_held_out_are_marked(page: str, found: Findings):
    assert read(page).text.count("held out") >= sum(sample.split != "train" for sample in found.samples) == 6
    assert page.count('<article class="sample held-out">') == 6
    assert page.count('<article class="sample">') == 3


def test_the_same_corpus_gives_the_same_bytes(page: str, frozen: FrozenCorpus):
    assert render(look_into(frozen, 64)) == page


def test_every_digest_and_every_reason_is_on_the_page(page: str, found: Findings):
    text = read(page).text
    for digest in (found.frozen.digest, found.frozen.key, *found.frozen.files.values()):
        assert digest in text
    assert found.frozen.source_files[0].digest in text
    for reason in found.left_out:
        assert reason in text


def test_a_corpus_of_one_split_has_a_page(only_training: FrozenCorpus):
    reader = read(render(look_into(only_training, 64)))
    assert reader.open == []
    assert "NaN" not in reader.text


def test_a_place_that_cannot_be_written_is_one_error(found: Findings, tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="could not be written"):
        write(found, tmp_path / "file" / "page.html")


def shown(found: Findings) -> str:
    """What the terminal gets."""
    out = io.StringIO()
    show(found, Console(file=out, width=80))
    return out.getvalue()


def test_the_terminal_gets_no_control_character_of_a_document(found: Findings):
    told = shown(found)
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f\u2028]", told)
    assert "alert('x')" in told
    assert "test, held out: " in told
    assert found.frozen.digest in told


def test_the_lengths_in_the_terminal_are_whole_numbers_without_gaps_and_hold_every_document(found: Findings):
    lines = length_lines(found.lengths)
    spans = [re.match(r" *([\d,]+)(?: to ([\d,]+))?  ", line) for line in lines]
    ends = [tuple(int((part or match[1]).replace(",", "")) for part in match.groups()) for match in spans if match]
    assert len(ends) == len(lines)
    assert all(after[0] == before[1] + 1 for before, after in itertools.pairwise(ends))
    counted = [int(line.split(" of the tokens")[0].split()[-3].replace(",", "")) for line in lines]
    assert sum(counted) == found.documents


def test_sources_that_are_not_shown_are_one_row_and_the_rows_add_up(found: Findings):
    table = tables.sources_table(found)
    assert len(found.sources) == 24
    assert table.rows[-1][0] == "4 others"
    tokens = [int(row[3].replace("\u202f", "")) for row in table.rows]
    assert sum(tokens) == found.tokens


def test_the_json_holds_what_is_shown(found: Findings):
    held = json.loads(json.dumps(as_json(found), allow_nan=False))
    assert held["digest"] == found.frozen.digest
    assert sum(held["lengths"]["documents"]) == found.documents
    assert [sample["text"] for sample in held["samples"]] == [sample.text for sample in found.samples]
    assert held["splits"]["train"]["tokens"] == found.splits[0].tokens


def test_only_evaluation_sets_that_share_something_are_named_and_all_are_counted(found: Findings):
    shared = {"a/deep/folder/of/one.jsonl": 0, "a/deep/folder/of/two.jsonl": 1204, "three.jsonl": 0}
    some = replace(found, frozen=replace(found.frozen, contaminated_by=shared, hostless=7))
    none = replace(found, frozen=replace(found.frozen, contaminated_by={"one.jsonl": 0}))
    told, alone = shown(some), shown(none)
    assert "    1,204  a/deep/folder/of/two.jsonl\n" in told
    assert "one.jsonl" not in told
    assert "compared with 3 files of evaluation sets; 2 of them share none." in told
    assert "compared with 1 file of evaluation sets; none of them shares a 13-gram." in alone
    assert "evaluation" not in shown(found)
    page = read(render(some)).text
    assert "a/deep/folder/of/two.jsonl" in page
    assert "one.jsonl" not in page
    assert "2 of them share none" in page
    for text in (told, page):
        assert "7 documents have no web address" in text
    assert "none of them shares a 13-gram" in read(render(none)).text


def test_tables_and_lengths_fit_a_terminal_of_80_characters(found: Findings):
    lines = shown(found).splitlines()
    samples = next(number for number, line in enumerate(lines) if line.startswith("train: "))
    tables_only = [line for line in lines[1:samples] if not line.startswith("<i>")]
    assert max(map(len, tables_only)) <= 80
