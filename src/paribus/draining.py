"""The queue of a study's cells: who takes which, what is tried again, what is parked, when all have ended.

There is no scheduler. Each worker, wherever it runs, goes through the plan's order and takes what is free; a claim is
`paribus.runs.claims`'s, and what happens to a cell that is held is `paribus.training`'s.
"""

import errno
import time
import traceback
from collections.abc import Callable
from typing import Any, Literal

import torch

from paribus.errors import CorpusError, ParibusError, StorageError
from paribus.experiment.plan import Cell, device_of
from paribus.runs.claims import Claim, ClaimLostError, claim
from paribus.runs.environment import without_secrets
from paribus.runs.failures import Failure, is_parked, parked, record_failure
from paribus.runs.holders import Holder
from paribus.study import Study, prepare_process
from paribus.training import Emit, Say, Stopping, context_of, train_cell

WAIT_SECONDS = 0.5
"""between two looks at cells that other processes hold"""
NOBODYS_FAULT = (StorageError, CorpusError)
"""errors of the disk and of the corpus on it: the next cell would meet them as well, so they end the worker"""
DISK_REFUSES = {errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.ESTALE, errno.EMFILE, errno.ENFILE}
"""what the system says of the disk, or of too many open files, and never of a cell"""
TRACEBACK_FRAMES = 6


def train_missing(study: Study, emit: Emit, should_stop: Callable[[], bool], say: Say = lambda _: None) -> bool:
    """Train cells until each has ended, whoever trains it; True then, and False where `should_stop` came first.

    The next cell is always the first of the plan's order that is free: arms of a seed together, early seeds first, also
    where a worker has died and its cell has become free again. A cell that others hold is come back to, and one whose
    donor is not finished. A cell that fails is put back behind the others, and parked after `execution.attempts`; then
    it and what starts from it are left out.

    Raises StorageError and CorpusError, for which no cell can be blamed, and errors of a device that no longer works.
    """
    prepare_process(study.experiment.execution)
    stopping = Stopping.of(should_stop)
    ended: set[str] = set()
    put_back: set[str] = set()
    while True:
        others_at_work = False
        for cell in study.cells:
            if stopping():
                return False
            if cell.name in ended:
                continue
            outcome = _turn(study, cell, emit, stopping, say) if cell.name not in put_back else "later"
            if outcome == "ended":
                ended.add(cell.name)
            elif outcome == "put back":
                put_back.add(cell.name)
                break
            elif outcome == "trained":
                break
            others_at_work |= outcome == "elsewhere"
        else:
            if put_back:
                put_back.clear()
            elif others_at_work:
                time.sleep(WAIT_SECONDS)
            else:
                return True


Turn = Literal["ended", "set aside", "elsewhere", "trained", "put back", "later"]


def _turn(study: Study, cell: Cell, emit: Emit, stopping: Stopping, say: Say) -> Turn:
    """What this worker can do for a cell just now, done."""
    if (known := _where(study, cell)) != "free":
        return known
    folder, lease = study.cell_folder(cell), study.experiment.execution.lease_seconds
    with claim(folder.path, lease_seconds=lease, above=folder.highest_token) as held:
        if held is None:
            return "elsewhere"
        if (known := _where(study, cell)) != "free":  # since it was looked at
            return known
        if held.after is not None and _failed(study, cell, held, _how_it_died(held.after), say, held.after):
            return "set aside"
        return _attempt(study, cell, held, emit, stopping, say)


def _where(study: Study, cell: Cell) -> Literal["ended", "set aside", "elsewhere", "free"]:
    """What is known of a cell without its claim."""
    if study.cell_folder(cell).finished:
        return "ended"
    before = _unfinished_before(study, cell)
    if any(is_parked(study.cell_folder(each).path) for each in (cell, *before)):
        return "set aside"
    return "elsewhere" if before else "free"


def _attempt(study: Study, cell: Cell, held: Claim, emit: Emit, stopping: Stopping, say: Say) -> Turn:
    """Train a cell that is held; whatever goes wrong is put on record."""
    last: dict[str, Any] = {}

    def listen(event: dict[str, Any]) -> None:
        nonlocal last
        last = event
        emit(event)

    def stopped(reason: str) -> None:
        if last.get("kind") in ("started", "step"):
            emit({**context_of(cell), "kind": "stopped", "step": last["step"], "reason": reason})

    try:
        train_cell(study, cell, listen, stopping, held)
    except ClaimLostError as error:
        stopped(error.received)
        say(f"{cell.name} was left to another worker: {error.received}")
        return "put back"
    except NOBODYS_FAULT:
        raise
    except Exception as error:
        if isinstance(error, OSError) and error.errno in DISK_REFUSES:
            raise StorageError(
                f"could not read or write while {cell.name} was trained",
                received=str(error),
                remedy="see to the disk and run again: finished cells and checkpoints are kept",
            ) from error
        reason = _reason(error)
        stopped(reason.splitlines()[0])
        try:
            aside = _failed(study, cell, held, reason, say)
        except ClaimLostError:
            return "put back"
        if not isinstance(error, ParibusError):
            _require_device(study)
        return "set aside" if aside else "put back"
    return "trained"


def _failed(study: Study, cell: Cell, held: Claim, reason: str, say: Say, holder: Holder | None = None) -> bool:
    """Put a failed attempt on record, this one or that of an earlier `holder`; True where that parks the cell."""
    folder, attempts = study.cell_folder(cell), study.experiment.execution.attempts
    step = (folder.checkpoint_steps() or [0])[-1]
    token, host = (held.token, "") if holder is None else (holder.token, holder.host)
    aside = record_failure(folder.path, Failure.now(token, step, reason, host), attempts, held.require)
    what = f"is parked after {attempts} failed attempts" if aside else "failed and will be tried again"
    say(f"{cell.name} {what}: {reason.splitlines()[0]}")
    return aside


def _how_it_died(holder: Holder) -> str:
    how = "gave no sign of life any more" if holder.unchanged_seconds >= holder.lease_seconds else "ended"
    return f"its worker {how} without a word (process {holder.pid} of {holder.host}, since {holder.taken})"


def _reason(error: Exception) -> str:
    """What is kept of an error: a user's error in its own words, any other one with the last frames. Secrets of this
    process' environment that it quotes are left out."""
    if isinstance(error, ParibusError):
        return without_secrets(str(error))
    frames = traceback.format_list(traceback.extract_tb(error.__traceback__)[-TRACEBACK_FRAMES:])
    return without_secrets(f"{type(error).__name__}: {error}\n{''.join(frames)}".rstrip())


def _require_device(study: Study) -> None:
    """ParibusError where the device no longer works: then every further cell would fail without being at fault."""
    device = device_of(study.experiment.execution)
    try:
        (torch.ones(1, device=device) + 1).cpu()
    except RuntimeError as error:
        raise ParibusError(
            f"the device '{device}' no longer works in this process",
            received=str(error).partition("\n")[0],
            remedy="run again; where it persists, look at the device: finished cells and checkpoints are kept",
        ) from error


def parked_cells(study: Study) -> dict[str, str]:
    """Why each parked cell of the study is parked, the last reason in one line, by the cell's name."""
    found = {cell.name: parked(study.cell_folder(cell).path) for cell in study.cells}
    return {
        name: reasons[-1].reason.partition("\n")[0] if reasons else "the reasons are not readable"
        for name, reasons in found.items()
        if reasons is not None
    }


def _unfinished_before(study: Study, cell: Cell) -> list[Cell]:
    """Cells that this one starts from (donors, the trunk that it leaves), and theirs, that have not ended."""
    before = [*cell.donors.values(), *([cell.trunk] if cell.trunk is not None else [])]
    found = [d for d in before if not study.cell_folder(d).finished]
    return [below for d in found for below in _unfinished_before(study, d)] + found
