"""The archive is fetched whole or not at all, goes on where it was cut, and unpacks only what it may."""

import hashlib
import io
import json
import shutil
import stat
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from filelock import FileLock
from huggingface_hub import close_session, constants

from paribus.data.progress import Advance
from paribus.data.sources.hub_requests import Patience
from paribus.downstream.core import archive
from paribus.downstream.core.bundle import read_bundle
from paribus.downstream.core.downloading import Source
from paribus.downstream.core.errors import CoreBundleError
from paribus.downstream.core.fetching import RECORD, fetch_core
from paribus.errors import StorageError
from tests.downstream.core.archive_server import ArchiveServer

Serve = Callable[[bytes], ArchiveServer]
HASTY = Patience(attempts=3, timeout_s=5, sleep=lambda _: None)


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Serve]:
    monkeypatch.setenv("NO_PROXY", "*")
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "no-token"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    close_session()
    servers: list[ArchiveServer] = []

    def start(content: bytes) -> ArchiveServer:
        servers.append(ArchiveServer(content))
        return servers[-1]

    yield start
    for server in servers:
        server.close()
    close_session()


def zipped(files: Mapping[str, bytes]) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_STORED) as opened:
        for name, content in files.items():
            opened.writestr(name, content)
    return stream.getvalue()


@pytest.fixture
def bundle_zip(write_bundle: Callable[..., Path]) -> bytes:
    """A tiny bundle as nanochat packs its own, with what a Mac leaves in archives."""
    folder = write_bundle()
    files = {
        f"eval_bundle/{path.relative_to(folder)}": path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
    shutil.rmtree(folder)
    return zipped({"eval_bundle/": b"", **files, "__MACOSX/eval_bundle/._core.yaml": b"\0", "note.txt": b"x"})


def source_of(server: ArchiveServer, content: bytes | None = None) -> Source:
    return Source(server.address, hashlib.sha256(server.content if content is None else content).hexdigest())


def names(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_a_bundle_is_fetched_verified_and_unpacked_and_nothing_is_left_beside_it(
    serve: Serve, bundle_zip: bytes, tmp_path: Path
):
    server, told = serve(bundle_zip), []
    found = fetch_core(tmp_path / "here" / "core", source_of(server), progress=told.append, patience=HASTY)
    assert found.new
    assert [task.label for task in read_bundle(found.folder).tasks] == ["picks", "schemas", "passages"]
    assert names(found.folder) == [
        RECORD,
        "core.yaml",
        *sorted(f"eval_data/group/{label}.jsonl" for label in ("picks", "schemas", "passages")),
        "eval_meta_data.csv",
    ]
    assert names(tmp_path / "here") == [f"core/{name}" for name in names(found.folder)]
    assert {advance.phase for advance in told} == {"fetch files", "unpack"}
    fetched = [advance for advance in told if advance.phase == "fetch files"]
    assert (fetched[-1].done, fetched[-1].total) == (len(bundle_zip), len(bundle_zip))
    record = json.loads((found.folder / RECORD).read_text())
    assert (record["address"], record["sha256"]) == (server.address, hashlib.sha256(bundle_zip).hexdigest())


def test_no_token_of_the_hub_is_sent_along(serve: Serve, bundle_zip: bytes, tmp_path: Path):
    server = serve(bundle_zip)
    fetch_core(tmp_path / "core", source_of(server), patience=HASTY)
    assert "authorization" not in server.requests[0]
    assert "hf_secret" not in str(server.requests)


def test_a_second_fetch_compares_and_asks_nobody(serve: Serve, bundle_zip: bytes, tmp_path: Path):
    server = serve(bundle_zip)
    fetch_core(tmp_path / "core", source_of(server), patience=HASTY)
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "core").rglob("*")}
    told: list[Advance] = []
    assert not fetch_core(tmp_path / "core", source_of(server), progress=told.append, patience=HASTY).new
    assert len(server.requests) == 1
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "core").rglob("*")} == before
    assert {advance.phase for advance in told} == {"digests of the files"}


@pytest.mark.parametrize("damage", ["changed", "gone"])
def test_a_changed_file_is_named_and_left_alone(serve: Serve, bundle_zip: bytes, tmp_path: Path, damage: str):
    server = serve(bundle_zip)
    folder = fetch_core(tmp_path / "core", source_of(server), patience=HASTY).folder
    file = folder / "eval_data" / "group" / "picks.jsonl"
    if damage == "gone":
        file.unlink()
    else:
        file.write_bytes(file.read_bytes() + b"\n")
    with pytest.raises(CoreBundleError, match=r"1 of 5 files .*gone, or changed[^\n]*\n  received: .*picks\.jsonl"):
        fetch_core(folder, source_of(server), patience=HASTY)
    assert file.exists() is (damage == "changed")


def test_a_folder_of_somebody_else_is_never_written_into(serve: Serve, bundle_zip: bytes, tmp_path: Path):
    server = serve(bundle_zip)
    (tmp_path / "own").mkdir()
    assert fetch_core(tmp_path / "own", source_of(server), patience=HASTY).new
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "core.yaml").write_text("mine")
    with pytest.raises(CoreBundleError, match="is there already and was not fetched by this command"):
        fetch_core(tmp_path / "mine", source_of(server), patience=HASTY)
    assert names(tmp_path / "mine") == ["core.yaml"]


def test_a_cut_transfer_goes_on_where_it_ended_within_a_call(serve: Serve, bundle_zip: bytes, tmp_path: Path):
    server = serve(bundle_zip)
    server.cut_after, server.statuses = [1000, 500], [503]
    fetch_core(tmp_path / "core", source_of(server), patience=Patience(attempts=5, timeout_s=5, sleep=lambda _: None))
    assert [request.get("range") for request in server.requests] == [None, None, "bytes=1000-", "bytes=1500-"]


def test_a_given_up_transfer_goes_on_in_the_next_call(serve: Serve, bundle_zip: bytes, tmp_path: Path):
    server = serve(bundle_zip)
    server.cut_after = [700, 0, 0]
    with pytest.raises(CoreBundleError, match="the 700 bytes that came are kept"):
        fetch_core(tmp_path / "core", source_of(server), patience=HASTY)
    assert not (tmp_path / "core").exists()
    fetch_core(tmp_path / "core", source_of(server), patience=HASTY)
    assert server.requests[-1]["range"] == "bytes=700-"


def test_an_archive_that_is_there_whole_is_not_fetched_again(serve: Serve, bundle_zip: bytes, tmp_path: Path):
    server = serve(bundle_zip)
    (tmp_path / ".core.fetching").mkdir()
    (tmp_path / ".core.fetching" / "archive.zip").write_bytes(bundle_zip)
    assert fetch_core(tmp_path / "core", source_of(server), patience=HASTY).new


@pytest.mark.parametrize("ranges", [True, False])
def test_what_was_left_of_another_archive_is_fetched_anew(
    serve: Serve, bundle_zip: bytes, tmp_path: Path, ranges: bool
):
    server = serve(bundle_zip)
    server.ranges = ranges
    (tmp_path / ".core.fetching").mkdir()
    (tmp_path / ".core.fetching" / "archive.zip").write_bytes(b"something else")
    assert fetch_core(tmp_path / "core", source_of(server), patience=HASTY).new


def test_another_archive_than_the_known_one_is_refused_and_not_unpacked(
    serve: Serve, bundle_zip: bytes, tmp_path: Path
):
    server = serve(bundle_zip)
    with pytest.raises(CoreBundleError, match="holds another archive than the one that is known"):
        fetch_core(tmp_path / "core", source_of(server, b"other"), patience=HASTY)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("status", "requests"), [(404, 1), (403, 1), (500, 3), (429, 3)])
def test_an_answer_that_is_no_archive_is_one_error(
    serve: Serve, bundle_zip: bytes, tmp_path: Path, status: int, requests: int
):
    server = serve(bundle_zip)
    server.statuses = [status] * 9
    with pytest.raises(CoreBundleError, match=f"127.0.0.1 answers {status}"):
        fetch_core(tmp_path / "core", source_of(server), patience=HASTY)
    assert len(server.requests) == requests


def test_without_a_network_there_is_one_clear_error(
    serve: Serve, bundle_zip: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    server = serve(bundle_zip)
    source = source_of(server)
    server.close()
    with pytest.raises(CoreBundleError, match=r"no connection to 127\.0\.0\.1.*\n.*where there is a network"):
        fetch_core(tmp_path / "core", source, patience=HASTY)
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(CoreBundleError, match="HF_HUB_OFFLINE"):
        fetch_core(tmp_path / "core", source, patience=HASTY)


def test_too_long_an_archive_is_not_taken(
    serve: Serve, bundle_zip: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    server = serve(bundle_zip)
    monkeypatch.setattr("paribus.downstream.core.downloading.LARGEST_ARCHIVE_BYTES", len(bundle_zip) - 1)
    with pytest.raises(CoreBundleError, match="too long for the bundle"):
        fetch_core(tmp_path / "core", source_of(server), patience=HASTY)


def test_two_processes_do_not_fetch_into_one_folder(serve: Serve, bundle_zip: bytes, tmp_path: Path):
    server = serve(bundle_zip)
    (tmp_path / ".core.fetching").mkdir()
    with FileLock(tmp_path / ".core.fetching" / "lock"), pytest.raises(CoreBundleError, match="another process"):
        fetch_core(tmp_path / "core", source_of(server), patience=HASTY)


def link(name: str) -> zipfile.ZipInfo:
    found = zipfile.ZipInfo(name)
    found.external_attr = (stat.S_IFLNK | 0o777) << 16
    return found


@pytest.mark.parametrize(
    "name", ["eval_bundle/../../out", "/out", "eval_bundle/..\\out", "C:/out", "../out", "elsewhere/../../out"]
)
def test_a_name_that_leads_out_of_the_folder_refuses_the_archive(tmp_path: Path, name: str):
    path = tmp_path / "bad.zip"
    path.write_bytes(zipped({"eval_bundle/core.yaml": b"x", name: b"y"}))
    with pytest.raises(CoreBundleError, match="names of files below its folder"):
        archive.unpack(path, tmp_path / "unpacked", "eval_bundle", lambda *_: None)
    assert names(tmp_path) == ["bad.zip"]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda opened: opened.writestr(link("eval_bundle/link"), "/etc/passwd"), "a link or a device"),
        (lambda opened: opened.writestr("eval_bundle/CORE.yaml", "x"), "each name once"),
        (lambda opened: opened.writestr("eval_bundle/long", b"0" * 3000), "of 2,000 bytes at most"),
    ],
)
def test_links_repeated_names_and_too_much_content_refuse_the_archive(
    tmp_path: Path, make: Callable[[zipfile.ZipFile], None], message: str
):
    path = tmp_path / "bad.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as opened:
        opened.writestr("eval_bundle/core.yaml", "x")
        make(opened)
    with pytest.raises(CoreBundleError, match=message):
        archive.unpack(path, tmp_path / "unpacked", "eval_bundle", lambda *_: None, largest_bytes=2000)
    assert names(tmp_path) == ["bad.zip"]


def test_content_that_is_longer_than_the_archive_claims_is_not_written_on(tmp_path: Path):
    path = tmp_path / "bad.zip"
    path.write_bytes(zipped({"eval_bundle/bomb": b"0" * 5000}))
    content = bytearray(path.read_bytes())
    # The directory at the end claims one byte where 5,000 are stored (zip format, 4.3.12: size at 24).
    directory = content.rindex(b"PK\x01\x02")
    content[directory + 24 : directory + 28] = (1).to_bytes(4, "little")
    path.write_bytes(content)
    with pytest.raises(CoreBundleError, match="is not unpacked"):
        archive.unpack(path, tmp_path / "unpacked", "eval_bundle", lambda *_: None)
    assert sum(file.stat().st_size for file in (tmp_path / "unpacked").rglob("*")) <= 1


@pytest.mark.parametrize("content", [b"", b"no zip at all", zipped({"eval_bundle/core.yaml": b"x" * 999})[:-30]])
def test_what_is_no_whole_zip_is_refused(tmp_path: Path, content: bytes):
    path = tmp_path / "bad.zip"
    path.write_bytes(content)
    with pytest.raises(CoreBundleError, match="a whole zip file"):
        archive.unpack(path, tmp_path / "unpacked", "eval_bundle", lambda *_: None)


def test_damaged_content_is_refused(tmp_path: Path):
    path = tmp_path / "bad.zip"
    path.write_bytes(zipped({"eval_bundle/core.yaml": b"right content"}).replace(b"right", b"wrong"))
    with pytest.raises(CoreBundleError, match="a whole zip file"):
        archive.unpack(path, tmp_path / "unpacked", "eval_bundle", lambda *_: None)


def test_an_archive_without_the_folder_is_refused(serve: Serve, tmp_path: Path):
    server = serve(zipped({"other/core.yaml": b"x"}))
    with pytest.raises(CoreBundleError, match="files below eval_bundle/"):
        fetch_core(tmp_path / "core", source_of(server), patience=HASTY)
    assert not (tmp_path / "core").exists()


def test_a_full_disk_is_told_as_one(serve: Serve, bundle_zip: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    server = serve(bundle_zip)

    def full(path: Path) -> None:
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr("paribus.downstream.core.archive.flush", full)
    with pytest.raises(StorageError, match="No space left"):
        fetch_core(tmp_path / "core", source_of(server), patience=HASTY)
    assert not (tmp_path / "core").exists()
    monkeypatch.undo()
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    assert fetch_core(tmp_path / "core", source_of(server), patience=HASTY).new
