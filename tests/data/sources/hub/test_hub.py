"""Fetching from a hub that behaves."""

import json
import threading
from pathlib import Path

import pytest
from huggingface_hub import constants

from paribus.data.config import HubFiles
from paribus.data.progress import Advance
from paribus.data.sources import hub as fetching
from paribus.data.sources.hub import fetch, fetch_file
from paribus.data.sources.hub_listing import STATE, RemoteFile, folder_of
from paribus.errors import CorpusError, StorageError
from paribus.seeds import generator
from tests.data.sources.hub.hub_server import COMMIT, HubServer, Serve

TOKEN = "hf_neverToBeSeen"


def content(name: str, size: int = 5000) -> bytes:
    return generator("tests", "hub", name).bytes(size)


FILES = {
    name: content(name)
    for name in ("data/a/0.parquet", "data/a/1.parquet", "data/a/2.parquet", "data/b/0.parquet", "data/a/notes.txt")
} | {".gitattributes": b"*.parquet filter=lfs\n", "README.md": b"# Data\n"}
SHARDS = HubFiles("owner/data", COMMIT, ("data/a/*.parquet",))
NAMES = ["data/a/0.parquet", "data/a/1.parquet", "data/a/2.parquet"]


@pytest.fixture
def server(serve: Serve) -> HubServer:
    return serve(dict(FILES))


def loaded(server: HubServer) -> list[str]:
    """Names of the files of which anything was sent, sorted."""
    return sorted(name for name, count in server.sent.items() if count)


def files_in(folder: Path) -> list[str]:
    return sorted(
        path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file() and "/." not in str(path)
    )


def test_matching_files_come_sorted_with_their_published_content_and_nothing_else_comes(server, tmp_path: Path):
    found = fetch(SHARDS, tmp_path, endpoint=server.endpoint)
    assert found == tuple(tmp_path / name for name in NAMES)
    assert [path.read_bytes() for path in found] == [FILES[name] for name in NAMES]
    assert files_in(tmp_path) == NAMES


def test_files_outside_lfs_are_compared_with_their_git_digest(server, tmp_path: Path):
    (found,) = fetch(HubFiles("owner/data", COMMIT, ("data/a/*.txt",)), tmp_path, endpoint=server.endpoint)
    assert found.read_bytes() == FILES["data/a/notes.txt"]


@pytest.mark.parametrize(
    ("limit", "last_file", "expected"),
    [(1, False, [0]), (1, True, [0, 2]), (2, True, [0, 1, 2]), (3, True, [0, 1, 2]), (9, True, [0, 1, 2])],
)
def test_a_limit_takes_the_first_files_and_the_held_out_last_one(server, tmp_path: Path, limit, last_file, expected):
    few = HubFiles("owner/data", COMMIT, SHARDS.files, limit)
    found = fetch(few, tmp_path, last_file=last_file, endpoint=server.endpoint)
    assert found == tuple(tmp_path / NAMES[index] for index in expected)
    assert loaded(server) == [NAMES[index] for index in expected]


def test_a_complete_folder_is_used_without_one_request(server, tmp_path: Path):
    found = fetch(SHARDS, tmp_path, endpoint=server.endpoint)
    server.forget()
    assert fetch(SHARDS, tmp_path, endpoint=server.endpoint) == found
    assert server.asked == []


def test_a_listing_of_many_pages_is_read_to_its_end(serve, tmp_path: Path):
    files = {f"{index:02}.parquet": content(str(index), 10) for index in range(11)}
    server = serve(files)
    found = fetch(HubFiles("owner/data", COMMIT), tmp_path, endpoint=server.endpoint)
    assert [path.name for path in found] == sorted(files)
    assert sum("/tree/" in asked.path for asked in server.asked) == 4


def test_only_the_folder_that_the_patterns_name_is_listed(server, tmp_path: Path):
    fetch(SHARDS, tmp_path, endpoint=server.endpoint)
    assert {asked.path.partition(COMMIT)[2] for asked in server.asked if "/tree/" in asked.path} == {"/data/a"}


def test_a_pattern_outside_what_was_listed_is_listed_and_the_rest_is_kept(server, tmp_path: Path):
    fetch(SHARDS, tmp_path, endpoint=server.endpoint)
    server.forget()
    found = fetch(HubFiles("owner/data", COMMIT, ("data/b/*.parquet",)), tmp_path, endpoint=server.endpoint)
    assert found == (tmp_path / "data/b/0.parquet",)
    server.forget()
    fetch(SHARDS, tmp_path, endpoint=server.endpoint)
    assert server.asked == []


@pytest.mark.parametrize(
    ("patterns", "folder"),
    [
        (["*.parquet"], ""),
        (["sample/10BT/*.parquet"], "sample/10BT"),
        (["sample/10BT/*.parquet", "sample/10BT/more/[ab].txt"], "sample/10BT"),
        (["sample/10BT/*", "sample/100BT/*"], "sample"),
        (["data/x*/y"], "data"),
        (["one.txt"], ""),
    ],
)
def test_the_folder_of_patterns_is_the_deepest_that_holds_all_matches(patterns, folder):
    assert folder_of(patterns) == folder


def copy_by_hand(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(FILES[name])


def test_files_copied_by_hand_are_compared_once_and_kept(server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    copy_by_hand(tmp_path, *NAMES[:2])
    fetch(SHARDS, tmp_path, endpoint=server.endpoint)
    assert loaded(server) == NAMES[2:]
    monkeypatch.setattr(RemoteFile, "difference", lambda *_: pytest.fail("read again"))
    fetch(SHARDS, tmp_path, endpoint=server.endpoint)


def test_a_file_that_was_written_since_is_compared_again(server, tmp_path: Path):
    changed = fetch(SHARDS, tmp_path, endpoint=server.endpoint)[1]
    changed.write_bytes(bytes(len(FILES[NAMES[1]])))
    with pytest.raises(CorpusError, match=r"1 of 3 files[^$]*data/a/1\.parquet: other content lies there \(SHA-256"):
        fetch(SHARDS, tmp_path, endpoint=server.endpoint)


def test_other_content_in_the_folder_is_named_and_never_overwritten(server, tmp_path: Path):
    (tmp_path / "data/a").mkdir(parents=True)
    (tmp_path / NAMES[0]).write_bytes(b"mine")
    with pytest.raises(CorpusError, match=r"data/a/0\.parquet: other content lies there \(4 bytes, not 5,000\)"):
        fetch(SHARDS, tmp_path, endpoint=server.endpoint)
    assert (tmp_path / NAMES[0]).read_bytes() == b"mine"
    assert [(tmp_path / name).read_bytes() for name in NAMES[1:]] == [FILES[name] for name in NAMES[1:]]


def test_offline_a_complete_folder_is_used(server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    found = fetch(SHARDS, tmp_path, endpoint=server.endpoint)
    server.forget()
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert fetch(SHARDS, tmp_path, endpoint=server.endpoint) == found
    assert server.asked == []


def test_offline_a_folder_of_copies_beside_their_listing_is_compared_and_used(
    server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    fetch(HubFiles("owner/data", COMMIT, SHARDS.files, 1), tmp_path / "online", endpoint=server.endpoint)
    copied = tmp_path / "offline"
    copy_by_hand(copied, *NAMES)
    (copied / STATE).write_bytes((tmp_path / "online" / STATE).read_bytes())
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert fetch(SHARDS, copied, endpoint=server.endpoint) == tuple(copied / name for name in NAMES)


def test_offline_every_missing_file_is_named(server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    fetch(HubFiles("owner/data", COMMIT, SHARDS.files, 1), tmp_path, endpoint=server.endpoint)
    server.forget()
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(CorpusError, match=r"2 of 3 files[^$]*1\.parquet, data/a/2\.parquet: .*HF_HUB_OFFLINE"):
        fetch(SHARDS, tmp_path, endpoint=server.endpoint)
    assert server.asked == []


def test_offline_without_a_listing_the_remedies_are_named(server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    copy_by_hand(tmp_path, *NAMES)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(CorpusError, match=r"HF_HUB_OFFLINE is set[^$]*kind = 'folder'"):
        fetch(SHARDS, tmp_path, endpoint=server.endpoint)
    assert server.asked == []


def test_a_folder_of_another_commit_is_refused(server, tmp_path: Path):
    fetch(SHARDS, tmp_path, endpoint=server.endpoint)
    with pytest.raises(CorpusError, match=rf"{'a' * 40}[^$]*{COMMIT}[^$]*another folder"):
        fetch(HubFiles("owner/data", "a" * 40, SHARDS.files), tmp_path, endpoint=server.endpoint)


def test_a_listing_that_was_damaged_is_asked_for_again_and_the_files_are_kept(server, tmp_path: Path):
    fetch(SHARDS, tmp_path, endpoint=server.endpoint)
    (tmp_path / STATE).write_text((tmp_path / STATE).read_text()[:-20])
    server.forget()
    fetch(SHARDS, tmp_path, endpoint=server.endpoint)
    assert loaded(server) == []


def test_a_complete_folder_that_cannot_be_written_to_is_used(server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    copy_by_hand(tmp_path, *NAMES)
    monkeypatch.setattr(fetching.os, "access", lambda *_: False)
    fetch(SHARDS, tmp_path, endpoint=server.endpoint)
    assert not (tmp_path / STATE).exists()
    (tmp_path / NAMES[0]).unlink()
    with pytest.raises(StorageError, match="cannot be written to"):
        fetch(SHARDS, tmp_path, endpoint=server.endpoint)


def test_two_at_once_load_every_file_once(server, tmp_path: Path):
    both = [threading.Thread(target=fetch, args=(SHARDS, tmp_path), kwargs={"endpoint": server.endpoint}) for _ in "ab"]
    for one in both:
        one.start()
    for one in both:
        one.join()
    assert files_in(tmp_path) == NAMES
    assert dict(server.sent) == dict.fromkeys(NAMES, 5000)


def test_progress_ends_with_all_bytes_and_all_files(server, tmp_path: Path):
    copy_by_hand(tmp_path, NAMES[0])
    told: list[Advance] = []
    fetch(SHARDS, tmp_path, progress=told.append, endpoint=server.endpoint)
    assert [advance.done for advance in told] == sorted(advance.done for advance in told)
    assert (told[-1].done, told[-1].total, told[-1].documents) == (15_000, 15_000, 3)


def test_one_file_of_a_model_repository_comes_under_its_path(serve, tmp_path: Path):
    server = serve({"tokenizer.json": b"{}", "onnx/model[1].txt": b"x", "onnx/model1.txt": b"y"}, "owner/gpt", "model")
    found = fetch_file("owner/gpt", COMMIT, "tokenizer.json", tmp_path, endpoint=server.endpoint)
    assert (found, found.read_bytes()) == (tmp_path / "tokenizer.json", b"{}")
    literal = fetch_file("owner/gpt", COMMIT, "onnx/model[1].txt", tmp_path, endpoint=server.endpoint)
    assert literal.read_bytes() == b"x"
    assert loaded(server) == ["onnx/model[1].txt", "tokenizer.json"]


@pytest.mark.parametrize(
    "name", ["../x.parquet", "/x.parquet", "a/../../x.parquet", "a\\..\\x.parquet", ".paribus-hub/x"]
)
def test_a_listed_name_that_leads_out_of_the_folder_is_refused(server, tmp_path: Path, name: str):
    server.listed = [{"type": "file", "path": name, "size": 1, "oid": "0" * 40}]
    with pytest.raises(CorpusError, match="listing of owner/data makes no sense"):
        fetch(HubFiles("owner/data", COMMIT, ("*",)), tmp_path / "in", endpoint=server.endpoint)


def test_the_token_goes_to_the_hub_and_to_no_host_that_it_redirects_to(
    server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    fetch(SHARDS, tmp_path, endpoint=server.endpoint)
    assert {asked.authorized for asked in server.asked if asked.path.startswith("/cdn/")} == {False}
    assert {asked.authorized for asked in server.asked if not asked.path.startswith("/cdn/")} == {True}
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and TOKEN.encode() in path.read_bytes()]


def test_the_listing_in_the_folder_holds_sizes_and_digests(server, tmp_path: Path):
    fetch(SHARDS, tmp_path, endpoint=server.endpoint)
    kept = json.loads((tmp_path / STATE).read_text())
    assert (kept["repository"], kept["revision"], kept["below"]) == ("owner/data", COMMIT, "data/a")
    listed = {entry["path"]: entry for entry in server.entries()}
    expected = {name: [5000, listed[name]["lfs"]["oid"]] for name in NAMES}
    assert {name: kept["files"][name] for name in NAMES} == expected


def test_a_limit_below_one_is_refused(tmp_path: Path):
    with pytest.raises(CorpusError, match="no files"):
        fetch(HubFiles("owner/data", COMMIT, SHARDS.files, 0), tmp_path, endpoint="http://127.0.0.1:1")


@pytest.mark.parametrize("repository", ["a/b/c", "", "owner/da ta", "../x"])
def test_a_malformed_repository_name_is_refused(tmp_path: Path, repository: str):
    with pytest.raises(CorpusError, match="no name of a repository"):
        fetch(HubFiles(repository, COMMIT), tmp_path, endpoint="http://127.0.0.1:1")
