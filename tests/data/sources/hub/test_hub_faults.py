"""Fetching from a hub that fails: what can be had is had, and the error names the rest."""

import contextlib
import errno
import os
import resource
import signal
import socket
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path

import pytest

from paribus.data.config import HubFiles
from paribus.data.progress import Advance
from paribus.data.sources import hub_download
from paribus.data.sources.hub import fetch
from paribus.data.sources.hub_listing import OWN
from paribus.data.sources.hub_requests import Patience
from paribus.errors import CorpusError, StorageError
from paribus.seeds import generator
from tests.data.sources.hub.hub_server import COMMIT, Fault, HubServer, Serve

SIZE = 200_000
NAMES = ["a.parquet", "b.parquet", "c.parquet"]
FILES = {name: generator("tests", "hub faults", name).bytes(SIZE) for name in NAMES}
SHARDS = HubFiles("owner/data", COMMIT)
TOKEN = "hf_neverToBeSeen"


@pytest.fixture
def server(serve: Serve) -> HubServer:
    return serve(dict(FILES))


@pytest.fixture
def waits() -> list[float]:
    return []


@pytest.fixture
def patience(waits: list[float]) -> Patience:
    """Three attempts, and nobody really waits between them; a loaded machine may be silent for a while."""
    return Patience(attempts=3, timeout_s=30, sleep=waits.append)


def is_complete(folder: Path) -> bool:
    return all((folder / name).read_bytes() == FILES[name] for name in NAMES)


def resumed_at(server: HubServer, name: str) -> list[int]:
    return [asked.start for asked in server.asked if asked.path == f"/cdn/{name}"]


@pytest.mark.parametrize(
    ("faults", "waited", "starts"),
    [
        ([Fault(429, {"Retry-After": "7"})], [7], [0, 0]),
        ([Fault(429, {"ratelimit": '"resolvers";r=0;t=55'})], [55], [0, 0]),
        ([Fault(429), Fault(429)], [1, 2], [0, 0, 0]),
        ([Fault(408)], [1], [0, 0]),
        ([Fault(500), Fault(503, {"Retry-After": "3"})], [1, 3], [0, 0, 0]),
        ([Fault(cut_after=70_000), Fault(cut_after=50_000)], [1, 2], [0, 70_000, 120_000]),
        ([Fault(cut_after=0)], [1], [0, 0]),
        ([Fault(longer=-60_000)], [1], [0, SIZE - 60_000]),
        ([Fault(cut_after=70_000), Fault(whole=True)], [1], [0, 70_000]),
        ([Fault(flipped=True)], [], [0, 0]),
        ([Fault(cut_after=70_000), Fault(flipped=True)], [1], [0, 70_000, 0]),
        ([Fault(longer=1)], [], [0, 0]),
    ],
)
def test_a_passing_fault_is_waited_out_and_a_cut_file_goes_on_where_it_ended(
    server, tmp_path: Path, patience: Patience, waits: list[float], faults, waited, starts
):
    server.misbehave("b.parquet", *faults)
    fetch(SHARDS, tmp_path, endpoint=server.endpoint, patience=patience)
    assert is_complete(tmp_path)
    assert waits == waited
    assert resumed_at(server, "b.parquet") == starts


def test_a_cut_file_is_not_loaded_twice(server, tmp_path: Path, patience: Patience):
    server.misbehave("b.parquet", Fault(cut_after=150_000), Fault(cut_after=40_000))
    fetch(SHARDS, tmp_path, endpoint=server.endpoint, patience=patience)
    assert server.sent["b.parquet"] == SIZE


def test_a_retry_after_may_be_a_date(server, tmp_path: Path, patience: Patience, waits: list[float]):
    then = format_datetime(datetime.now(UTC) + timedelta(seconds=200), usegmt=True)
    server.misbehave("b.parquet", Fault(429, {"Retry-After": then}))
    fetch(SHARDS, tmp_path, endpoint=server.endpoint, patience=patience)
    # A date has whole seconds, and the loaded machine took some of them.
    assert len(waits) == 1
    assert 100 < waits[0] <= 200


def test_a_hub_that_asks_for_a_longer_wait_than_is_sensible_is_not_waited_for(
    server, tmp_path: Path, patience: Patience, waits: list[float]
):
    server.misbehave("b.parquet", Fault(429, {"Retry-After": "86400"}))
    with pytest.raises(CorpusError, match=r"b\.parquet: the hub answers 429; the hub asks to come back in 86400 s"):
        fetch(SHARDS, tmp_path, endpoint=server.endpoint, patience=patience)
    assert waits == []


def test_progress_never_passes_the_total_and_reaches_it_after_a_wrong_byte(server, tmp_path: Path, patience: Patience):
    told: list[Advance] = []
    server.misbehave("b.parquet", Fault(cut_after=90_000), Fault(flipped=True))
    fetch(SHARDS, tmp_path, progress=told.append, endpoint=server.endpoint, patience=patience)
    assert max(advance.done for advance in told) <= 3 * SIZE
    assert told[-1].done == told[-1].total == 3 * SIZE


@pytest.mark.parametrize(
    ("fault", "reason", "attempts"),
    [
        (Fault(404, {"X-Error-Code": "EntryNotFound", "X-Error-Message": "not here"}), "answers 404: not here", 1),
        (Fault(401), "answers 401", 1),
        (Fault(403, {"X-Error-Code": "GatedRepo", "X-Error-Message": "ask its owner"}), "403: ask its owner", 1),
        (Fault(429), "answers 429; 3 attempts", 3),
        (Fault(500), "answers 500; 3 attempts", 3),
        (Fault(cut_after=0), "connection was cut; 3 attempts", 3),
        (Fault(longer=-SIZE), "ended after 0 of 200,000 bytes; 3 attempts", 3),
        (Fault(flipped=True), "wrong content twice: SHA-256", 2),
        (Fault(longer=9), "wrong content twice: 200,009 bytes, not 200,000", 2),
    ],
)
def test_a_lasting_fault_of_one_file_names_it_and_the_others_stay(
    server, tmp_path: Path, patience: Patience, fault: Fault, reason: str, attempts: int
):
    server.misbehave("b.parquet", fault, forever=True)
    with pytest.raises(CorpusError) as error:
        fetch(SHARDS, tmp_path, endpoint=server.endpoint, patience=patience)
    assert f"b.parquet: {'the hub ' if reason.startswith('answers') else ''}{reason}".split(":")[0] in str(error.value)
    assert reason in error.value.received
    assert "a.parquet" not in error.value.received
    assert len(resumed_at(server, "b.parquet")) == attempts
    assert not (tmp_path / "b.parquet").exists()
    server.heal()
    server.forget()
    fetch(SHARDS, tmp_path, endpoint=server.endpoint, patience=patience)
    assert is_complete(tmp_path)
    assert dict(server.sent) == {"b.parquet": SIZE}


def test_a_silent_hub_counts_as_cut(server, tmp_path: Path, patience: Patience):
    fetch(HubFiles("owner/data", COMMIT, ("*",), 1), tmp_path, endpoint=server.endpoint, patience=patience)
    server.misbehave("b.parquet", Fault(silent=True), forever=True)
    hasty = Patience(attempts=2, timeout_s=0.3, sleep=lambda _: None)
    with pytest.raises(CorpusError, match=r"b\.parquet: the hub was silent for 0\.3 s; 2 attempts in a row"):
        fetch(HubFiles("owner/data", COMMIT, ("b*",)), tmp_path, endpoint=server.endpoint, patience=hasty)


def test_one_error_names_every_file_that_failed_with_its_reason(server, tmp_path: Path, patience: Patience):
    server.misbehave("a.parquet", Fault(404), forever=True)
    server.misbehave("c.parquet", Fault(flipped=True), forever=True)
    with pytest.raises(CorpusError) as error:
        fetch(SHARDS, tmp_path, endpoint=server.endpoint, patience=patience)
    assert "2 of 3 files of owner/data" in error.value.what
    assert "a.parquet: the hub answers 404" in error.value.received
    assert "c.parquet: wrong content twice" in error.value.received
    assert (tmp_path / "b.parquet").read_bytes() == FILES["b.parquet"]


def test_what_an_earlier_fetch_left_counts_as_progress(server, tmp_path: Path, patience: Patience):
    server.misbehave("b.parquet", Fault(cut_after=70_000), Fault(404))
    with pytest.raises(CorpusError):
        fetch(SHARDS, tmp_path, endpoint=server.endpoint, patience=patience)
    told: list[Advance] = []
    fetch(SHARDS, tmp_path, progress=told.append, endpoint=server.endpoint, patience=patience)
    assert [advance.done for advance in told[:2]] == [0, 70_000]
    assert (told[-1].done, told[-1].total, told[-1].documents) == (SIZE, SIZE, 3)


def test_a_file_that_other_bytes_began_is_loaded_anew(server, tmp_path: Path, patience: Patience):
    server.misbehave("b.parquet", Fault(cut_after=70_000), Fault(404))
    with pytest.raises(CorpusError):
        fetch(SHARDS, tmp_path, endpoint=server.endpoint, patience=patience)
    (growing,) = (tmp_path / OWN).iterdir()
    growing.write_bytes(bytes(80_000))
    server.forget()
    fetch(SHARDS, tmp_path, endpoint=server.endpoint, patience=patience)
    assert is_complete(tmp_path)
    assert resumed_at(server, "b.parquet") == [80_000, 0]
    assert not (tmp_path / OWN).exists()


def unused_endpoint() -> str:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{taken.getsockname()[1]}"


@pytest.mark.usefixtures("alone_with_loopback")
def test_a_hub_that_refuses_connections_is_named_without_its_password(tmp_path: Path, patience: Patience):
    address = unused_endpoint().replace("http://", "http://user:secret@")
    with pytest.raises(CorpusError, match=r"cannot be listed[^$]*no connection to http://127[^$]*3 attempts") as error:
        fetch(SHARDS, tmp_path, endpoint=address, patience=patience)
    assert "secret" not in str(error.value)


def test_a_dead_hub_is_not_waited_for_once_a_file(serve: Serve, tmp_path: Path, patience: Patience, waits: list[float]):
    server = serve({f"{index:02}.parquet": b"x" * 10 for index in range(40)})
    everything = HubFiles("owner/data", COMMIT)
    for index in range(40):
        server.misbehave(f"{index:02}.parquet", Fault(503), forever=True)
    with pytest.raises(CorpusError) as error:
        fetch(everything, tmp_path, workers=2, endpoint=server.endpoint, patience=patience)
    assert "40 of 40 files" in error.value.what
    assert all(f"{index:02}.parquet" in error.value.received for index in range(40))
    # Each of the two threads may have been at a file when the eighth failed.
    assert len(waits) <= 2 * (8 + 2)


def test_files_that_are_there_are_compared_even_if_the_hub_is_dead(serve: Serve, tmp_path: Path, patience: Patience):
    server = serve({f"{index:02}.parquet": b"x" * 10 for index in range(12)})
    for index in range(10):
        server.misbehave(f"{index:02}.parquet", Fault(503), forever=True)
    (tmp_path / "10.parquet").write_bytes(b"x" * 10)
    (tmp_path / "11.parquet").write_bytes(b"y" * 10)
    with pytest.raises(CorpusError) as error:
        fetch(HubFiles("owner/data", COMMIT), tmp_path, workers=1, endpoint=server.endpoint, patience=patience)
    assert "11 of 12 files" in error.value.what
    assert "10.parquet" not in error.value.received
    assert "11.parquet: other content lies there" in error.value.received
    assert "09.parquet: not tried after 8 others" in error.value.received


def test_a_server_that_starts_over_and_is_cut_again_and_again_is_given_up(
    serve: Serve, tmp_path: Path, patience: Patience
):
    server = serve({"a.parquet": bytes(5 << 20)})
    cuts = [Fault(cut_after=(4 if index % 2 else 2) << 20, whole=True) for index in range(12)]
    server.misbehave("a.parquet", *cuts, forever=True)
    with pytest.raises(CorpusError, match="3 attempts in a row"):
        fetch(HubFiles("owner/data", COMMIT), tmp_path, endpoint=server.endpoint, patience=patience)
    assert len(resumed_at(server, "a.parquet")) == 4


@pytest.mark.parametrize(
    ("repository", "hint"), [("owner/dat", "did you mean owner/data"), ("owner/zzzzz", "its owner has owner/data, ")]
)
def test_a_repository_that_is_not_there_is_answered_with_those_that_are(
    server, tmp_path: Path, patience: Patience, repository: str, hint: str
):
    with pytest.raises(CorpusError, match=f"no dataset repository {repository}[^$]*{hint}"):
        fetch(HubFiles(repository, COMMIT), tmp_path, endpoint=server.endpoint, patience=patience)


def test_a_commit_that_is_not_there_is_answered_with_the_newest(server, tmp_path: Path, patience: Patience):
    with pytest.raises(CorpusError, match=f"no such commit[^$]*{'b' * 40}[^$]*main is at {COMMIT}"):
        fetch(HubFiles("owner/data", "b" * 40), tmp_path, endpoint=server.endpoint, patience=patience)


@pytest.mark.parametrize("revision", ["main", "0123456", COMMIT.upper(), f"{COMMIT}\n"])
def test_a_revision_that_is_no_commit_is_refused_with_the_commit_that_it_points_to(
    server, tmp_path: Path, patience: Patience, revision: str
):
    with pytest.raises(CorpusError, match=f"40 hexadecimal digits[^$]*points to now: {COMMIT}"):
        fetch(HubFiles("owner/data", revision), tmp_path, endpoint=server.endpoint, patience=patience)


def test_a_branch_of_a_hub_out_of_reach_is_refused_after_one_attempt(
    server, tmp_path: Path, patience: Patience, waits: list[float]
):
    server.misbehave("revision", Fault(500), forever=True)
    with pytest.raises(CorpusError, match=r"needs a commit[^$]*'main'[^$]*/datasets/owner/data/commits/main"):
        fetch(HubFiles("owner/data", "main"), tmp_path, endpoint=server.endpoint, patience=patience)
    assert waits == []


def test_a_gated_repository_says_where_its_terms_are(server, tmp_path: Path, patience: Patience):
    server.misbehave("tree", Fault(403, {"X-Error-Code": "GatedRepo"}), forever=True)
    with pytest.raises(CorpusError, match=r"not open[^$]*403[^$]*accept its terms on http\S*/datasets/owner/data, and"):
        fetch(SHARDS, tmp_path, endpoint=server.endpoint, patience=patience)


@pytest.mark.parametrize(
    ("pattern", "shown"),
    [("d.parquet", r"did you mean \S+\.parquet"), ("*.json", r"3 others: a\.parquet, b"), ("no/*.txt", "3 others: a")],
)
def test_patterns_without_files_are_answered_with_what_there_is(
    server, tmp_path: Path, patience: Patience, pattern: str, shown: str
):
    with pytest.raises(CorpusError, match=rf"no file of owner/data matches[^$]*{shown}"):
        fetch(HubFiles("owner/data", COMMIT, (pattern,)), tmp_path, endpoint=server.endpoint, patience=patience)


@pytest.mark.parametrize("fault", [Fault(429, {"Retry-After": "2"}), Fault(502), Fault(cut_after=0, status=500)])
def test_a_listing_is_asked_for_again(server, tmp_path: Path, patience: Patience, waits: list[float], fault: Fault):
    server.misbehave("tree", fault)
    fetch(SHARDS, tmp_path, endpoint=server.endpoint, patience=patience)
    assert is_complete(tmp_path)
    assert len(waits) == 1


@pytest.mark.parametrize("page", ["<html>Log in to the network</html>", '{"error": 0}', '[{"type": "file"}]', "[3]"])
def test_an_answer_that_is_no_listing_is_refused(server, tmp_path: Path, patience: Patience, page: str):
    server.misbehave("tree", Fault(page=page), forever=True)
    with pytest.raises(CorpusError, match=r"owner/data"):
        fetch(SHARDS, tmp_path, endpoint=server.endpoint, patience=patience)
    assert not [path for path in tmp_path.iterdir() if not path.name.startswith(".")]


def test_no_error_tells_the_token_or_a_signed_address(
    server, tmp_path: Path, patience: Patience, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    server.misbehave("tree", Fault(403, {"X-Error-Message": f"Bearer {TOKEN} may not"}))
    with pytest.raises(CorpusError, match="may not") as listing:
        fetch(SHARDS, tmp_path, endpoint=server.endpoint, patience=patience)
    server.misbehave("b.parquet", Fault(500), forever=True)
    with pytest.raises(CorpusError) as content:
        fetch(SHARDS, tmp_path, endpoint=server.endpoint, patience=patience)
    monkeypatch.setenv("HF_TOKEN", f"{TOKEN}\u00e9")
    with pytest.raises(CorpusError, match="characters that no token has") as malformed:
        fetch(SHARDS, tmp_path / "new", endpoint=server.endpoint, patience=patience)
    for error in (listing, content, malformed):
        told = f"{error.value} {error.value.__cause__}"
        assert TOKEN not in told
        assert "confidential" not in told
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and TOKEN.encode() in path.read_bytes()]


def test_a_disk_that_fills_up_is_an_error_and_the_next_fetch_goes_on(server, tmp_path: Path, patience: Patience):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (120_000, hard))
    try:
        with pytest.raises(StorageError, match=os.strerror(errno.EFBIG)):
            fetch(SHARDS, tmp_path, workers=1, endpoint=server.endpoint, patience=patience)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    server.forget()
    fetch(SHARDS, tmp_path, endpoint=server.endpoint, patience=patience)
    assert is_complete(tmp_path)
    assert resumed_at(server, "a.parquet") == [120_000]


def test_too_little_room_is_said_before_anything_is_loaded(
    server, tmp_path: Path, patience: Patience, monkeypatch: pytest.MonkeyPatch
):
    usage = hub_download.shutil.disk_usage(tmp_path)
    monkeypatch.setattr(hub_download.shutil, "disk_usage", lambda _: usage._replace(free=599_999))
    with pytest.raises(StorageError, match=r"600,000 bytes of room[^$]*599,999"):
        fetch(SHARDS, tmp_path, endpoint=server.endpoint, patience=patience)
    assert not server.sent


def test_an_error_of_whoever_draws_the_progress_ends_the_fetch(server, tmp_path: Path, patience: Patience):
    def interrupted(advance: Advance) -> None:
        if advance.done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetch(SHARDS, tmp_path, progress=interrupted, endpoint=server.endpoint, patience=patience)
    fetch(SHARDS, tmp_path, endpoint=server.endpoint, patience=patience)
    assert is_complete(tmp_path)


def test_a_killed_fetch_goes_on_and_loads_only_the_rest(serve: Serve, tmp_path: Path, patience: Patience):
    size = 4 << 20
    server = serve({name: generator("tests", "hub kill", name).bytes(size) for name in NAMES})
    server.misbehave("b.parquet", Fault(pause_s=0.05), forever=True)
    code = (
        "from pathlib import Path\n"
        "from paribus.data.config import HubFiles\n"
        "from paribus.data.sources.hub import fetch\n"
        f"fetch(HubFiles('owner/data', '{COMMIT}'), Path({str(tmp_path)!r}), workers=1)\n"
    )
    environment = os.environ | {"HF_ENDPOINT": server.endpoint, "HF_HOME": str(tmp_path / ".home"), "NO_PROXY": "*"}
    with subprocess.Popen([sys.executable, "-c", code], env=environment) as process:
        deadline = time.monotonic() + 60
        growing = tmp_path / OWN
        while time.monotonic() < deadline and not (
            (tmp_path / "a.parquet").exists() and sum(path.stat().st_size for path in entries(growing)) > size // 4
        ):
            time.sleep(0.01)
        os.kill(process.pid, signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL
    (left,) = growing.iterdir()
    held = left.stat().st_size
    assert size // 4 < held < size
    while server.answering and time.monotonic() < deadline:
        # It notices only at its next write that nobody reads any more.
        time.sleep(0.01)
    server.heal()
    server.forget()
    fetch(SHARDS, tmp_path, endpoint=server.endpoint, patience=patience)
    assert all((tmp_path / name).read_bytes() == server.files[name] for name in NAMES)
    assert dict(server.sent) == {"b.parquet": size - held, "c.parquet": size}


def entries(folder: Path) -> list[Path]:
    with contextlib.suppress(FileNotFoundError):
        return list(folder.iterdir())
    return []
