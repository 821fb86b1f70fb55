"""Files of a repository on the Hugging Face hub at one commit, in a folder, each compared with its published digest.

The folder keeps the listing of the repository (`.paribus-hub.json`), so that the hub is asked only for what is missing,
and not at all where nothing is. A file grows in `.paribus-hub/` and appears under its name once its content is right; a
download that was cut or killed goes on where it ended. What already lies in the folder is compared once, kept where it
is right, and never overwritten: it may be somebody's only copy of something else.
"""

import glob
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path

from filelock import FileLock
from huggingface_hub import constants, is_offline_mode

from paribus.data.config import HubFiles
from paribus.data.progress import Progress, silent
from paribus.data.sources.hub_download import Fetching
from paribus.data.sources.hub_listing import OWN, STATE, Listing, chosen, files_of, folder_of
from paribus.data.sources.hub_refusals import refuse_answer, refuse_patterns, refuse_revision
from paribus.data.sources.hub_requests import AnswerError, Hub, PassingError, Patience, RepositoryKind
from paribus.disk import storing
from paribus.errors import CorpusError

GPT2_REPOSITORY = "openai-community/gpt2"
GPT2_COMMIT = "607a30d783dfa663caf39e06633721c8d4cfcd7e"
"""of a model repository whose tokenizer.json is GPT-2's; the commit is its main branch's in huggingface_hub's manual"""


def fetch(
    hub: HubFiles,
    folder: Path,
    *,
    last_file: bool = False,
    progress: Progress = silent,
    workers: int = 4,
    endpoint: str | None = None,
    patience: Patience | None = None,
) -> tuple[Path, ...]:
    """The declared files of a dataset repository, in their order, in `folder`, whose content is the published one.

    `last_file` takes the last of the matching files besides the first `hub.limit`. Downloads run in `workers` threads.
    `endpoint` is HF_ENDPOINT by default. Under HF_HUB_OFFLINE the folder must hold its listing and every file.
    Raises CorpusError for a revision that is no commit, a repository that is not there or not open to the token,
    patterns without files, and, once everything else is fetched, one that names every file that could not be, and why;
    StorageError where the disk refuses. What is finished, and what came of the rest, is kept for the next call.
    """
    if hub.limit is not None and hub.limit < 1:
        raise CorpusError("a corpus of no files", expected="limit >= 1, or none", received=str(hub.limit))
    asked = Hub(hub.repository, "dataset", endpoint or constants.ENDPOINT, patience or Patience())
    return _fetch(asked, hub.revision, hub.files, folder, hub.limit, last_file, progress, workers)


def fetch_file(
    repository: str,
    revision: str,
    name: str,
    folder: Path,
    *,
    kind: RepositoryKind = "model",
    progress: Progress = silent,
    endpoint: str | None = None,
    patience: Patience | None = None,
) -> Path:
    """One file of a repository at a commit, in `folder` under its path in the repository. Errors: as `fetch`."""
    asked = Hub(repository, kind, endpoint or constants.ENDPOINT, patience or Patience())
    return _fetch(asked, revision, (glob.escape(name),), folder, None, False, progress, 1)[0]


def _fetch(
    hub: Hub,
    revision: str,
    patterns: Sequence[str],
    folder: Path,
    limit: int | None,
    last_file: bool,
    progress: Progress,
    workers: int,
) -> tuple[Path, ...]:
    if not re.fullmatch("[0-9a-f]{40}", revision):
        refuse_revision(hub, revision)
    with storing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    # A copy that several machines share may be read-only; what is complete needs no lock and no note.
    writable = os.access(folder, os.W_OK)
    with _alone(folder) if writable else nullcontext():
        listing = _listing(hub, revision, folder_of(patterns), folder, writable)
        names = chosen(listing.files, patterns, limit, last_file=last_file)
        if not names:
            refuse_patterns(hub, listing, patterns)
        Fetching(hub, listing, folder, names, progress, writable).run(workers)
    return tuple(folder / name for name in names)


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    lock = FileLock(folder / f"{OWN}.lock")
    with storing(folder):
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def _listing(hub: Hub, revision: str, below: str, folder: Path, writable: bool) -> Listing:
    known = Listing.load(folder)
    here = f"{hub.repository} ({hub.kind}) at {revision}"
    if known is not None and (known.repository, known.kind, known.revision) != (hub.repository, hub.kind, revision):
        raise CorpusError(
            "the folder holds files of something else on the hub",
            expected=here,
            received=f"{known.repository} ({known.kind}) at {known.revision} in {folder}",
            remedy=f"name another folder. To go over to the other commit in this one, delete {folder / STATE} and the "
            "files that changed: those that did not are kept",
        )
    if known is not None and known.covers(below):
        return known
    if is_offline_mode():
        raise CorpusError(
            "the hub may not be asked what its files are",
            expected=f"{STATE} in {folder}, which the first fetch leaves there",
            received="HF_HUB_OFFLINE is set, and there is no listing of " + (f"{below} of " if below else "") + here,
            remedy="fetch once with a connection (files that are there already are compared, not loaded again), or "
            "declare kind = 'folder' to read them as they are",
        )
    if known is not None:
        below = folder_of([f"{below}/", f"{known.below}/"])
    try:
        files = files_of(hub.listing(revision, below))
    except AnswerError as answer:
        if answer.code == "EntryNotFound" and below:
            files = {}
        else:
            refuse_answer(hub, revision, answer)
    except PassingError as passing:
        raise CorpusError(
            f"the files of {hub.repository} cannot be listed",
            expected=f"the listing of {here}",
            received=str(passing),
            remedy=f"try again later, or bring the files and their {STATE} from another machine into {folder}",
        ) from None
    except ValueError as error:
        raise CorpusError(
            f"the hub's listing of {hub.repository} makes no sense",
            expected="paths inside the repository, with sizes and digests",
            received=str(error),
            remedy=f"look at {hub.page}; the endpoint may be no hub",
        ) from None
    listing = Listing(hub.repository, hub.kind, revision, below, files, known.verified if known else {})
    if writable and files:
        with storing(folder):
            listing.save(folder)
    return listing
