"""One holder at a time: who is granted a cell, when it is taken over, and what happens to who wakes up too late."""

import errno
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

from paribus.errors import StorageError
from paribus.runs import claims, holders
from paribus.runs.claims import ClaimLostError, claim, release_for
from paribus.runs.holders import Owner, claimed, history, holder
from paribus.runs.records import sealed, unsealed

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="asks /proc when a process started")

# Claims the folder again and again; inside a claim it creates a file that must not be there.
CONTENDER = """
import os, sys, time
from pathlib import Path
from paribus.runs.claims import claim

folder, end, held = Path(sys.argv[1]), time.monotonic() + 1.0, 0
while time.monotonic() < end:
    with claim(folder) as got:
        if got:
            os.close(os.open(folder / "inside", os.O_CREAT | os.O_EXCL))
            time.sleep(0.002)
            (folder / "inside").unlink()
            held += 1
    time.sleep(0.001)
print(held)
"""

# Says whether it got the claim; then, for each line that it reads, whether it may write.
HOLDER = """
import sys
from pathlib import Path
from paribus.runs.claims import ClaimLostError, claim

with claim(Path(sys.argv[1]), lease_seconds=float(sys.argv[2]), patience_seconds=float(sys.argv[3])) as held:
    print("held" if held else "refused", flush=True)
    for _ in sys.stdin:
        try:
            held.require()
            print("may write", flush=True)
        except ClaimLostError as error:
            print(error.received, flush=True)
"""

# Tries each of many folders at the moment that all processes wait for, and keeps what it got.
RACER = """
import sys, time
from contextlib import ExitStack
from pathlib import Path
from paribus.runs.claims import claim

folder, rounds = Path(sys.argv[1]), int(sys.argv[2])
print("ready", flush=True)
start = float(sys.stdin.readline())
with ExitStack() as kept:
    won = []
    for number in range(rounds):
        while time.time() < start + 0.02 * number:
            pass
        won.append(kept.enter_context(claim(folder / str(number))) is not None)
    print("".join("x" if each else "." for each in won), flush=True)
    sys.stdin.readline()
"""
ELSEWHERE = "another machine"


def started(script: str, *arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", script, *map(str, arguments)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def answer(process: subprocess.Popen[str], asked: str = "") -> str:
    """The next line of a process, which is asked for it where `asked` is given."""
    assert process.stdin is not None
    assert process.stdout is not None
    if asked:
        process.stdin.write(asked)
        process.stdin.flush()
    return process.stdout.readline().rstrip("\n")


def holding(folder: Path, lease_seconds: float = 60.0, patience_seconds: float = 1800.0) -> subprocess.Popen[str]:
    """A process that has the claim."""
    process = started(HOLDER, folder, lease_seconds, patience_seconds)
    assert answer(process) == "held"
    return process


def wait_for(what: Callable[[], bool], patience: float = 30.0) -> float:
    """Wait until `what` holds; how many seconds that took."""
    began = time.monotonic()
    while not what():
        assert time.monotonic() < began + patience, "waited too long"
        time.sleep(0.02)
    return time.monotonic() - began


def try_to_take(folder: Path, lease_seconds: float = 60.0) -> int:
    """The token of the claim that this process got and gave back; 0 where it was refused."""
    with claim(folder, lease_seconds=lease_seconds) as held:
        return 0 if held is None else held.token


def made_by(folder: Path, owner: Owner, token: int = 1, lease_seconds: float = 60.0) -> Path:
    """The claim of another worker."""
    (folder / claims.FOLDER).mkdir(parents=True, exist_ok=True)
    record = {"token": token, "owner": asdict(owner), "taken": "2026-11-30T12:00:00+00:00"}
    file = folder / claims.FOLDER / f"{token:08d}.json"
    file.write_bytes(sealed({**record, "lease_seconds": lease_seconds}))
    return file


def end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()


def test_two_processes_never_hold_one_cell_at_once(tmp_path: Path):
    command = [sys.executable, "-c", CONTENDER, str(tmp_path)]
    contenders = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    held = [int(contender.communicate()[0]) for contender in contenders]
    assert all(contender.returncode == 0 for contender in contenders), "somebody was inside another one's claim"
    assert sum(held) > 10


def test_a_held_claim_is_refused_and_a_killed_holders_claim_is_free_again(tmp_path: Path):
    process = holding(tmp_path)
    try:
        assert claimed(tmp_path)
        with claim(tmp_path) as got:
            assert not got
    finally:
        end(process)
    assert not claimed(tmp_path)
    with claim(tmp_path) as got:
        assert got


def test_a_reader_that_asks_leaves_the_claim_as_it_was(tmp_path: Path):
    assert not claimed(tmp_path), "a folder that nobody ever claimed"
    assert list(tmp_path.iterdir()) == [], "asking writes nothing"
    with claim(tmp_path) as got:
        assert got
    assert not claimed(tmp_path)
    with claim(tmp_path) as got:
        assert got


def test_a_claim_is_released_when_its_block_fails(tmp_path: Path):
    with pytest.raises(RuntimeError, match="inside"), claim(tmp_path):
        raise RuntimeError("inside")
    assert not claimed(tmp_path)


def test_of_many_processes_that_try_at_the_same_moment_exactly_one_gets_each_cell(tmp_path: Path):
    rounds, racers = 25, [started(RACER, tmp_path, 25) for _ in range(8)]
    try:
        assert [answer(racer) for racer in racers] == ["ready"] * 8
        start = f"{time.time() + 0.3}\n"
        for racer in racers:
            assert racer.stdin is not None
            racer.stdin.write(start)
            racer.stdin.flush()
        won = [answer(racer) for racer in racers]
        assert [sum(each[number] == "x" for each in won) for number in range(rounds)] == [1] * rounds
        assert all(len(list((tmp_path / str(n) / claims.FOLDER).iterdir())) == 1 for n in range(rounds)), "no leftovers"
    finally:
        for racer in racers:
            end(racer)


def test_a_file_system_without_hard_links_grants_a_claim_once_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def refused(*_: object) -> None:
        raise OSError(errno.EOPNOTSUPP, "Operation not supported")

    monkeypatch.setattr(os, "link", refused)
    with claim(tmp_path) as held:
        assert held is not None
        held.require()
        assert not claims._make(holders.claim_file(tmp_path, 1), b"another"), "made once"
        assert unsealed(holders.claim_file(tmp_path, 1).read_bytes())[0]["token"] == 1
    assert try_to_take(tmp_path) == 2


def test_an_answer_that_a_network_file_system_lost_does_not_lose_the_claim(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    link = os.link

    def repeated(*names: Any) -> None:
        link(*names)
        link(*names)  # finds the file there

    monkeypatch.setattr(os, "link", repeated)
    assert try_to_take(tmp_path) == 1
    monkeypatch.setattr(os, "link", link)
    assert not claims._make(holders.claim_file(tmp_path, 1), b"another"), "who has it keeps it"


def test_a_disk_that_refuses_is_an_error_of_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(claims, "write_flushed", full)
    with pytest.raises(StorageError, match="could not write"), claim(tmp_path):
        pass
    monkeypatch.undo()
    assert try_to_take(tmp_path) == 1


def test_each_holder_has_a_higher_token_also_where_earlier_claims_were_cleared_away(tmp_path: Path):
    assert [try_to_take(tmp_path) for _ in range(3)] == [1, 2, 3]
    for file in (tmp_path / claims.FOLDER).iterdir():
        file.unlink()
    with claim(tmp_path, above=lambda: 7) as held:
        assert held is not None
        assert held.token == 8


def test_a_process_number_that_came_again_is_another_process(tmp_path: Path):
    mine = Owner.of_this_process()
    made_by(tmp_path, mine)
    assert try_to_take(tmp_path) == 0, "this very process lives"
    made_by(tmp_path, replace(mine, started=str(int(mine.started) - 1)))
    assert try_to_take(tmp_path) == 2, "one with its number lived before"


def test_a_process_of_another_machine_is_never_looked_for_here(tmp_path: Path):
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    here = replace(Owner.of_this_process(), pid=ended.pid, started="1")
    made_by(tmp_path, replace(here, machine=ELSEWHERE))
    assert try_to_take(tmp_path) == 0, "its lease is all that is known of it"
    made_by(tmp_path, replace(here, machine=""))
    assert try_to_take(tmp_path) == 0, "nor where the machine has no name"
    made_by(tmp_path, here)
    assert try_to_take(tmp_path) == 2


def test_a_killed_process_that_nobody_has_reaped_yet_is_gone(tmp_path: Path):
    process = holding(tmp_path)
    process.kill()
    assert os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT) is not None
    try:
        assert try_to_take(tmp_path) == 2
    finally:
        process.communicate()


@pytest.mark.parametrize("clock", [0.0, 4e9])
def test_only_the_observers_own_clock_decides_when_a_lease_has_run_out(tmp_path: Path, clock: float):
    # The other machine's clock stands in 1970 or in 2096.
    file = made_by(tmp_path, replace(Owner.of_this_process(), machine=ELSEWHERE), lease_seconds=0.5)
    end = time.monotonic() + 1.2
    while time.monotonic() < end:
        clock -= 0.25  # even a clock that is turned back makes heartbeats
        os.utime(file, (clock + 1e6, clock + 1e6))
        assert try_to_take(tmp_path) == 0, "alive"
        time.sleep(0.05)
    seen = time.monotonic()
    wait_for(lambda: try_to_take(tmp_path) == 2)
    assert time.monotonic() - seen > 0.4, "a lease after the last heartbeat that was seen"


def test_a_holder_that_trains_keeps_its_claim_for_many_leases(tmp_path: Path):
    process = holding(tmp_path, lease_seconds=1.5)
    try:
        end_at = time.monotonic() + 3.5
        while time.monotonic() < end_at:
            assert try_to_take(tmp_path) == 0
            time.sleep(0.1)
        assert answer(process, "?\n") == "may write"
    finally:
        end(process)


def test_a_holder_that_was_stopped_for_longer_than_its_lease_finds_its_writes_refused(tmp_path: Path):
    process = holding(tmp_path, lease_seconds=1.0)
    try:
        assert answer(process, "?\n") == "may write"
        process.send_signal(signal.SIGSTOP)
        # Its process exists: only the lease gives the cell free.
        assert wait_for(lambda: (try_to_take(tmp_path)) == 2) > 0.5
        process.send_signal(signal.SIGCONT)
        assert answer(process, "?\n") == "claim 2 was made by another worker"
        beat = holders.claim_file(tmp_path, 1).stat().st_mtime_ns
        time.sleep(0.6)
        assert holders.claim_file(tmp_path, 1).stat().st_mtime_ns == beat, "and it has no heartbeat any more"
        assert answer(process, "?\n") == "claim 2 was made by another worker", "lost for good"
        process.communicate("", timeout=10)
        assert not holders.released_file(tmp_path, 1).exists(), "it does not end what it no longer has"
    finally:
        end(process)


def test_a_holder_that_was_stopped_refuses_itself_before_anybody_has_taken_over(tmp_path: Path):
    process = holding(tmp_path, lease_seconds=1.0)
    try:
        process.send_signal(signal.SIGSTOP)
        time.sleep(1.2)
        process.send_signal(signal.SIGCONT)
        assert answer(process, "?\n").endswith("s late, of a lease of 1 s")
        time.sleep(0.5)
        assert answer(process, "?\n").endswith("s late, of a lease of 1 s"), "a late heartbeat brings nothing back"
        process.communicate("", timeout=10)
        assert try_to_take(tmp_path) == 2, "given back at once"
    finally:
        end(process)


def test_a_trainer_that_hangs_loses_its_lease_although_its_process_lives(tmp_path: Path):
    process = holding(tmp_path, lease_seconds=1.0, patience_seconds=0.5)
    try:
        assert wait_for(lambda: try_to_take(tmp_path) == 2) > 1.0
        assert answer(process, "?\n") == "claim 2 was made by another worker"
    finally:
        end(process)


def test_a_trainer_whose_updates_are_slow_is_waited_for_the_longer(tmp_path: Path):
    with claim(tmp_path, lease_seconds=2.0, patience_seconds=0.1) as held:
        assert held is not None
        time.sleep(0.3)
        held.alive()  # it has broken a silence of 0.3 s: ten times that are no reason to give it up
        time.sleep(2.5)
        held.require()


def test_a_claim_whose_file_was_removed_is_lost(tmp_path: Path):
    with claim(tmp_path) as held:
        assert held is not None
        holders.claim_file(tmp_path, held.token).unlink()
        with pytest.raises(ClaimLostError, match="the file of the claim was removed"):
            held.require()


def test_two_that_knew_of_different_tokens_do_not_both_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    # Claims were cleared away; one worker has read rows with higher tokens than the other, and was quicker.
    made = claims._make

    def overtaken(file: Path, content: bytes) -> bool:
        made_by(tmp_path, Owner.of_this_process(), token=5)
        return made(file, content)

    monkeypatch.setattr(claims, "_make", overtaken)
    assert try_to_take(tmp_path) == 0


def test_a_damaged_claim_is_respected_as_long_as_it_has_a_heartbeat(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(holders, "LEASE_SECONDS", 0.5)
    file = made_by(tmp_path, replace(Owner.of_this_process(), started="1"))
    content = bytearray(file.read_bytes())
    content[content.index(b'"pid"') + 8] ^= 1
    file.write_bytes(content)
    assert try_to_take(tmp_path) == 0, "whose it is cannot be known"
    assert history(tmp_path)[0].owner is None
    file.write_bytes(b"")
    assert try_to_take(tmp_path) == 0
    assert wait_for(lambda: try_to_take(tmp_path) == 2) > 0.3


def test_a_cell_that_an_earlier_version_trains_is_left_alone(tmp_path: Path):
    lock = FileLock(tmp_path / holders.EARLIER_LOCK)
    with lock:
        assert try_to_take(tmp_path) == 0
        assert claimed(tmp_path)
        seen = holder(tmp_path)
        assert seen is not None
        assert seen.host == "a worker of an earlier version"
    assert not claimed(tmp_path)
    with claim(tmp_path) as held:
        assert held is not None
        code = (
            "import sys; from filelock import FileLock, Timeout\n"
            "try: FileLock(sys.argv[1]).acquire(timeout=0)\nexcept Timeout: print('refused')"
        )
        command = [sys.executable, "-c", code, str(tmp_path / holders.EARLIER_LOCK)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        assert done.stdout == "refused\n", "such a worker finds it held as well"
    assert not (tmp_path / "new" / holders.EARLIER_LOCK).exists()
    assert try_to_take(tmp_path / "new") == 1
    assert not (tmp_path / "new" / holders.EARLIER_LOCK).exists(), "nobody makes that file any more"


def test_status_tells_who_holds_a_cell_and_writes_nothing(tmp_path: Path):
    process = holding(tmp_path, lease_seconds=2.0)
    try:
        before = sorted(tmp_path.rglob("*"))
        seen = holder(tmp_path)
        assert seen is not None
        assert (seen.token, seen.host, seen.pid, seen.lease_seconds) == (1, socket.gethostname(), process.pid, 2.0)
        assert seen.unchanged_seconds < 2.0
        assert seen.heartbeat_age_seconds < 2.0
        assert sorted(tmp_path.rglob("*")) == before
    finally:
        end(process)
    assert holder(tmp_path) is None


def test_the_history_names_every_holder_and_how_it_ended(tmp_path: Path):
    process = holding(tmp_path)
    end(process)
    with claim(tmp_path) as held:
        assert held is not None
        assert held.after is not None, "the one before never released it"
        assert (held.after.token, held.after.pid) == (1, process.pid)
    with claim(tmp_path) as held:
        assert held is not None
        assert held.after is None, "the one before did"
        first, second, third = history(tmp_path)
    assert [each.token for each in (first, second, third)] == [1, 2, 3]
    assert first.owner is not None
    assert first.owner.pid == process.pid
    assert (first.released, third.released) == (None, None)
    assert second.released is not None
    assert second.released >= second.last_heartbeat
    assert json.loads(holders.claim_file(tmp_path, 2).read_bytes())["owner"]["host"] == socket.gethostname()


def test_who_ends_a_worker_on_purpose_releases_its_cell_and_nobody_elses(tmp_path: Path):
    process = holding(tmp_path)
    release_for(tmp_path, process.pid)
    assert claimed(tmp_path), "it lives"
    end(process)
    release_for(tmp_path, process.pid + 1)
    assert not holders.released_file(tmp_path, 1).exists()
    release_for(tmp_path, process.pid)
    with claim(tmp_path) as held:
        assert held is not None
        assert held.after is None


def test_one_process_may_hold_many_cells_at_once(tmp_path: Path):
    with ExitStack() as stack:
        held = [stack.enter_context(claim(tmp_path / str(number))) for number in range(5)]
        assert all(held)
        assert all(claimed(tmp_path / str(number)) for number in range(5))
    assert not any(claimed(tmp_path / str(number)) for number in range(5))
