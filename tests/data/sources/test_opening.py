"""What a folder is found to hold, and what a declaration can ask of it."""

from dataclasses import replace
from pathlib import Path

import pytest

from paribus.data.config import CorpusConfig, HubFiles
from paribus.data.sources import open_source
from paribus.data.sources.folder import FolderSource
from paribus.data.sources.hosts import host_of
from paribus.data.sources.known import KNOWN, known_corpus, require_last_file
from paribus.data.sources.listing import corpus_files
from paribus.errors import CorpusError

COMMIT = "0123456789abcdef" * 2 + "01234567"


def make(folder: Path, *names: str) -> Path:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"x")
    return folder


def test_names_are_relative_sorted_and_searched_below(tmp_path: Path):
    make(tmp_path, "b.JSONL", "a/z.jsonl.zst", "a/b/c.ndjson", "a.json.gz", "c.jsonl.gz")
    assert corpus_files(tmp_path) == ("jsonl", ("a.json.gz", "a/b/c.ndjson", "a/z.jsonl.zst", "b.JSONL", "c.jsonl.gz"))


def test_what_is_about_the_data_is_no_data(tmp_path: Path):
    make(tmp_path, "s.parquet", "README.md", "LICENSE.txt", "x/Notice.txt", ".cache/a.jsonl", ".hidden.txt", "sums.csv")
    assert corpus_files(tmp_path) == ("parquet", ("s.parquet",))


def test_a_readme_among_texts_is_a_text(tmp_path: Path):
    assert corpus_files(make(tmp_path, "README.md", "b.txt")) == ("text", ("README.md", "b.txt"))


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (("a.parquet", "b.jsonl", "c.jsonl"), "files of several kinds.*2 of jsonl .b.jsonl, c.jsonl.; 1 of parquet"),
        (("a.parquet", "notes.txt"), "files of several kinds.*1 of parquet .a.parquet.; 1 of text .notes.txt"),
        (("a.csv", "b.csv", "Makefile"), "no file of a corpus.*2 of .csv, 1 of no suffix"),
        ((), "no file of a corpus.*no files"),
    ],
)
def test_several_kinds_or_none_is_an_error_that_lists_what_was_found(names, said, tmp_path: Path):
    with pytest.raises(CorpusError, match=f"(?s){said}"):
        corpus_files(make(tmp_path, *names))


def test_a_missing_folder_is_named(tmp_path: Path):
    with pytest.raises(CorpusError, match=r"(?s)does not exist.*nowhere"):
        open_source(CorpusConfig(kind="folder", folder=tmp_path / "nowhere"))


def test_links_are_followed_and_a_circle_is_entered_once(tmp_path: Path):
    make(tmp_path, "blobs/1f", "data/a.jsonl")
    (tmp_path / "data" / "b.jsonl").symlink_to(tmp_path / "blobs" / "1f")
    (tmp_path / "data" / "circle").symlink_to(tmp_path / "data")
    (tmp_path / "data" / "more").symlink_to(make(tmp_path / "elsewhere", "c.jsonl"))
    assert corpus_files(tmp_path / "data") == ("jsonl", ("a.jsonl", "b.jsonl", "more/c.jsonl"))


def names_of(config: CorpusConfig) -> tuple[str, ...]:
    source = open_source(config)
    assert isinstance(source, FolderSource)
    return source.names


def test_a_hub_corpus_reads_only_its_files_in_a_folder_that_has_more(tmp_path: Path):
    make(tmp_path, "sample/10BT/0.parquet", "sample/10BT/1.parquet", "sample/10BT/2.parquet", "data/x.jsonl")
    hub = HubFiles("owner/name", COMMIT, ("sample/10BT/*.parquet",))
    every = tuple(f"sample/10BT/{n}.parquet" for n in range(3))
    assert names_of(CorpusConfig(kind="hub", hub=hub, folder=tmp_path)) == every
    first = HubFiles("owner/name", COMMIT, ("sample/10BT/*.parquet",), limit=1)
    assert names_of(CorpusConfig(kind="hub", hub=first, folder=tmp_path)) == every[:1]
    with_last = CorpusConfig(kind="hub", hub=first, folder=tmp_path, held_out="last-file")
    assert names_of(with_last) == (every[0], every[2])


def test_a_folder_may_be_one_within_the_repository_and_its_neighbours_are_others(tmp_path: Path):
    hub = HubFiles("owner/name", COMMIT, ("sample/10BT/*.parquet",))
    make(tmp_path, "sample/10BT/0.parquet", "sample/10BT/below/1.parquet", "sample/100BT/2.parquet", "3.parquet")
    for named, found in (
        # `*` matches a folder's name too, as the hub's own patterns do.
        ("", ("sample/10BT/0.parquet", "sample/10BT/below/1.parquet")),
        ("sample", ("10BT/0.parquet",)),
        ("sample/10BT", ("0.parquet",)),
    ):
        assert names_of(CorpusConfig(kind="hub", hub=hub, folder=tmp_path / named)) == found
    (tmp_path / "sample" / "10BT").rename(tmp_path / "sample" / "350BT")
    with pytest.raises(CorpusError, match=r"(?s)that match sample/10BT.*or other patterns"):
        open_source(CorpusConfig(kind="hub", hub=hub, folder=tmp_path / "sample"))


def test_a_hub_corpus_that_is_not_here_says_so():
    with pytest.raises(CorpusError, match="not here yet"):
        open_source(CorpusConfig(kind="hub", hub=HubFiles("owner/name", COMMIT)))


@pytest.mark.parametrize("declared", [{"split_by": "host"}, {"form": "gpt2-tokens"}])
def test_text_files_cannot_meet_what_needs_columns(declared, tmp_path: Path):
    make(tmp_path, "a.txt")
    with pytest.raises(CorpusError, match=r"web addresses|token ids"):
        open_source(CorpusConfig(kind="folder", folder=tmp_path, **declared))


def test_docs_of_packages_have_no_hosts():
    with pytest.raises(CorpusError, match="no web addresses"):
        open_source(CorpusConfig(split_by="host"))


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("https://www.Example.com/a?b#c", "example.com"),
        ("http://example.com.:80/", "example.com"),
        ("https://user:word@sub.example.org:8443/x", "sub.example.org"),
        ("example.com/page", "example.com"),
        ("//WWW.example.com", "example.com"),
        ("https://www.com/", "www.com"),
        ("http://[2001:db8::1]:80/", "2001:db8::1"),
        ("http://[broken/", None),
        ("", None),
        ("https:///path", None),
    ],
)
def test_a_host_has_no_port_no_user_no_case_and_no_www(url: str, host: str | None):
    assert host_of(url) == host


@pytest.mark.parametrize("name", sorted(KNOWN))
@pytest.mark.parametrize("revision", [None, "main", COMMIT[:12], COMMIT.upper()])
def test_a_known_corpus_asks_for_a_commit_and_says_how_to_find_it(name: str, revision: str | None):
    with pytest.raises(CorpusError, match=rf"(?s)40 hexadecimal.*git ls-remote .*{KNOWN[name].repository} main"):
        known_corpus(name, revision=revision)


def test_a_known_corpus_becomes_a_declaration(tmp_path: Path):
    mix = known_corpus("climbmix", revision=COMMIT, folder=tmp_path, limit=3, last_file_held_out=True)
    assert mix.hub == HubFiles("karpathy/climbmix-400b-shuffle", COMMIT, ("shard_*.parquet",), 3)
    assert (mix.held_out, mix.folder, mix.form) == ("last-file", tmp_path, "text")
    tokens = known_corpus("climbmix-gpt2", revision=COMMIT)
    assert (tokens.form, tokens.text_column, tokens.held_out) == ("gpt2-tokens", "tokens", "hash")
    edu = known_corpus("fineweb-edu", revision=COMMIT)
    assert edu.hub is not None
    assert edu.hub.files == ("sample/10BT/*.parquet",)


def test_a_copy_without_the_file_that_everybody_validates_on_is_no_copy_to_validate_on(tmp_path: Path):
    make(tmp_path, "shard_00000.parquet", "shard_00001.parquet")
    declared = known_corpus("climbmix", revision=COMMIT, folder=tmp_path, last_file_held_out=True)
    with pytest.raises(CorpusError, match=r"(?s)lacks the file.*shard_06542\.parquet.*shard_00001\.parquet"):
        require_last_file(declared)
    require_last_file(replace(declared, held_out="hash"))
    require_last_file(CorpusConfig(kind="folder", folder=tmp_path, held_out="last-file"))
    make(tmp_path, "shard_06542.parquet")
    require_last_file(declared)


def test_a_known_corpus_has_one_form():
    assert known_corpus("climbmix-gpt2", revision=COMMIT, form="gpt2-tokens").form == "gpt2-tokens"
    with pytest.raises(CorpusError, match="fineweb-edu is of another form"):
        known_corpus("fineweb-edu", revision=COMMIT, form="gpt2-tokens")


def test_an_unknown_name_and_a_convention_that_is_none_are_refused():
    with pytest.raises(CorpusError, match="did you mean 'fineweb-edu'"):
        known_corpus("fineweb_edu", revision=COMMIT)
    with pytest.raises(CorpusError, match=r"(?s)no validation split.*climbmix"):
        known_corpus("fineweb-edu", revision=COMMIT, last_file_held_out=True)
