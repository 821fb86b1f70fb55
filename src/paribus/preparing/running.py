"""A preparation from its declaration to the frozen corpus; Ctrl-C and SIGTERM leave one that goes on later."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from paribus.data.frozen import FrozenCorpus
from paribus.data.prepare.pipeline import prepare
from paribus.data.progress import Advance
from paribus.data.store import store_of, stored
from paribus.preparing.declaring import Declared
from paribus.preparing.fetching import with_files
from paribus.terminal import steps_of_preparation

STOPPED = "stopped; the same command continues: what is finished is kept"
_BEFORE = ("fetch files", "digests of the files")
"""phases of a corpus that is prepared already"""


@dataclass(frozen=True)
class Prepared:
    frozen: FrozenCorpus
    new: bool
    """whether anything had to be done for it"""


@dataclass(frozen=True)
class Stopped:
    """By Ctrl-C, or by a signal that asked for the end."""

    exit_code: int


class _TerminatedError(KeyboardInterrupt):
    """SIGTERM came. Whatever lets Ctrl-C through lets this through."""


def run(declared: Declared, runs: Path, console: Console, workers: int | None = None) -> Prepared | Stopped:
    """Fetch what is missing and prepare the corpus in the store of `runs`; errors: as `prepare`."""
    phases: set[str] = set()
    try:
        with _ending_on_sigterm(), steps_of_preparation(console) as show:

            def progress(advance: Advance) -> None:
                phases.add(advance.phase)
                show(advance)

            store = store_of(runs)
            found = with_files(declared, store, progress)
            _say_who_works(found.name, runs, console)
            frozen = prepare(found.corpus, found.tokenizer, store, name=found.name, progress=progress, workers=workers)
    except _TerminatedError:
        return Stopped(128 + signal.SIGTERM)
    except KeyboardInterrupt:
        return Stopped(128 + signal.SIGINT)
    return Prepared(frozen, new=not phases <= set(_BEFORE))


def _say_who_works(name: str, runs: Path, console: Console) -> None:
    for each in stored(runs):
        if each.kind == "partial" and each.held and each.name.rpartition("-")[0] == name:
            console.print(
                f"another process prepares {each.name}; if this is the same corpus, this command waits for it",
                highlight=False,
                markup=False,
                soft_wrap=True,
            )


@contextmanager
def _ending_on_sigterm() -> Iterator[None]:
    """SIGTERM ends the work as Ctrl-C does: workers are ended, locks released, and the reason is said."""

    def on_signal(number: int, frame: object) -> None:
        del number, frame
        raise _TerminatedError

    previous = signal.signal(signal.SIGTERM, on_signal)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)
