"""Who holds the folders of a study, as doctor, gc and move must know it before they touch anything."""

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from paribus.errors import StudyFolderError
from paribus.runs.claims import Claim, claim
from paribus.runs.failures import Failure, record_failure
from paribus.runs.folder import METRICS, CellFolder
from paribus.runs.holders import Holder, holder, released_file, seen, tokens_of
from paribus.runs.records import lines_of

KEPT_CLAIMS = 2
"""newest claims that are never cleared away: the last trainer's and that of whoever repaired after it. The highest
must stay, so that tokens grow"""
NEVER = 1_000_000
"""attempts: who looks after a cell puts a death on record, and leaves it to the workers to park"""
_LOOK_SECONDS = 0.2


@dataclass(frozen=True)
class Lease:
    """The newest claim on a folder, where it was not released."""

    folder: Path
    holder: Holder
    state: Literal["held", "silent", "stale"]
    """held; held as far as can be known from here, though no heartbeat has come for longer than its lease, by the
    clocks of two machines; or free to be taken over: its process is gone, or its lease was seen to run out"""


def lease_of(folder: Path) -> Lease | None:
    """None where nobody holds the folder and whoever did released it."""
    found = holder(folder)
    if found is not None:
        late = found.lease_seconds > 0 and found.heartbeat_age_seconds > found.lease_seconds
        return Lease(folder, found, "silent" if late else "held")
    tokens = tokens_of(folder)
    if not tokens or released_file(folder, tokens[-1]).exists():
        return None
    last = seen(folder, tokens[-1])
    return None if last is None else Lease(folder, last, "stale")


def lease_as_json(lease: Lease) -> dict[str, Any]:
    """One claim as JSON types."""
    holder = lease.holder
    return {
        "path": str(lease.folder),
        "state": lease.state,
        "host": holder.host,
        "pid": holder.pid,
        "since": holder.taken,
        "token": holder.token,
        "lease_seconds": holder.lease_seconds,
        "heartbeat_age_seconds": round(holder.heartbeat_age_seconds, 1),
    }


def old_claims(folder: Path) -> list[Path]:
    """Files of claims that nobody can hold any more, since there are KEPT_CLAIMS newer ones."""
    tokens = tokens_of(folder)
    if len(tokens) <= KEPT_CLAIMS:
        return []
    first = tokens[-KEPT_CLAIMS]
    files = [*(folder / ".claims").glob("*.json"), *(folder / ".claims").glob("*.released")]
    return sorted(file for file in files if file.stem.isdigit() and int(file.stem) < first)


def watch(folders: Iterable[Path], say: Callable[[str], None] = lambda _: None) -> list[Lease]:
    """Leases on the folders that are still held, after each silent one was watched for as long as it lasts.

    A clock of another machine decides nothing: a lease has run out only once this process saw no heartbeat so long.
    """
    held = [lease for folder in folders if (lease := lease_of(folder)) is not None and lease.state != "stale"]
    silent = [lease for lease in held if lease.state == "silent"]
    if silent:
        longest = max(lease.holder.lease_seconds for lease in silent)
        say(f"watching {len(silent)} claims that nobody seems to renew, {longest:.0f} s at most")
    while any((lease := lease_of(each.folder)) is not None and lease.state == "silent" for each in silent):
        time.sleep(_LOOK_SECONDS)
    now = [lease_of(each.folder) for each in held]
    return [lease for lease in now if lease is not None and lease.state != "stale"]


@contextmanager
def alone(folder: Path) -> Iterator[Claim | None]:
    """Hold a folder to look after it; None where somebody else holds it.

    That an earlier worker of a cell died without a word is put on record, as the next worker would have done.
    """
    with claim(folder, above=lambda: _highest_token(folder)) as held:
        if held is not None and held.after is not None and not CellFolder(folder).finished:
            _put_on_record(folder, held, held.after)
        yield held


def _put_on_record(folder: Path, held: Claim, dead: Holder) -> None:
    step = (CellFolder(folder).checkpoint_steps() or [0])[-1]
    reason = f"its worker ended without a word (process {dead.pid} of {dead.host}, since {dead.taken})"
    record_failure(folder, Failure.now(dead.token, step, reason, dead.host), NEVER, held.require)


def _highest_token(folder: Path) -> int:
    """Of the lines of metrics; what is written later must not carry a lower one."""
    try:
        lines = [line.content for line in lines_of((folder / METRICS).read_bytes())]
    except OSError:
        return 0
    tokens = [line.get("token") for line in lines if isinstance(line, dict)]
    return max((token for token in tokens if type(token) is int), default=0)


def require_free(folders: Iterable[Path], what: str, say: Callable[[str], None] = lambda _: None) -> None:
    """StudyFolderError where somebody holds one of the folders."""
    if held := watch(folders, say):
        first = held[0]
        raise StudyFolderError(
            f"{what}, since somebody trains in it",
            expected="a study that nobody works on",
            received=f"{len(held)} cells are held; {first.folder} by process {first.holder.pid} of {first.holder.host}",
            remedy="stop its workers (Ctrl-C or SIGTERM leaves every cell resumable), then run the same command again",
        )
