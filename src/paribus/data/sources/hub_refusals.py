"""Errors about a repository, with what the hub has instead: they ask once more, and do without where it is silent."""

import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NoReturn, TypeVar

from paribus.data.sources.hub_listing import Listing
from paribus.data.sources.hub_requests import AnswerError, Hub, PassingError
from paribus.errors import CorpusError

_SHOWN = 5
_Found = TypeVar("_Found")


def refuse_revision(hub: Hub, revision: str) -> NoReturn:
    """The error for a revision that is no commit; says what it points to now, where the hub can be reached."""
    once = replace(hub, patience=replace(hub.patience, attempts=1))
    now = _or_none(lambda: once.commit_of(revision))
    raise CorpusError(
        f"{hub.repository} needs a commit, and this is the name of something that moves"
        if now
        else f"{hub.repository} needs a commit",
        expected="revision = 40 hexadecimal digits, so that no later push changes the study",
        received=repr(revision),
        remedy=f"write the commit that it points to now: {now}" if now else f"take one of {hub.page}/commits/main",
    )


def refuse_answer(hub: Hub, revision: str, answer: AnswerError) -> NoReturn:
    """The error for a repository that the hub does not list; says what there is instead."""
    once = replace(hub, patience=replace(hub.patience, attempts=1))
    if answer.code == "RevisionNotFound":
        now = _or_none(lambda: once.commit_of("main"))
        remedy = f"take one of {hub.page}/commits/main" + (f"; main is at {now}" if now else "")
        what = f"{hub.repository} has no such commit"
    elif answer.code == "GatedRepo" or answer.status == 403:
        what = f"{hub.repository} is not open to everybody"
        remedy = f"accept its terms on {hub.page}, and set HF_TOKEN to a token that may read it"
    elif answer.code == "RepoNotFound" or answer.status in (401, 404):
        siblings = _or_none(once.siblings) or []
        close = difflib.get_close_matches(hub.repository, siblings, n=3)
        shown = close or sorted(siblings)[:_SHOWN]
        what = f"the hub has no {hub.kind} repository {hub.repository}, or does not show it"
        remedy = (
            (f"did you mean {' or '.join(close)}? " if close else "")
            + (f"its owner has {', '.join(shown)}; " if shown and not close else "")
            + "a private one needs HF_TOKEN"
        )
    else:
        what = f"the hub does not list the files of {hub.repository}"
        remedy = f"look at {hub.page}"
    raise CorpusError(what, expected=f"{hub.page} at {revision}", received=str(answer), remedy=remedy) from None


def refuse_patterns(hub: Hub, listing: Listing, patterns: Sequence[str]) -> NoReturn:
    """The error where no file matches; says which there are."""
    names = sorted(listing.files)
    if not names:
        once = replace(hub, patience=replace(hub.patience, attempts=1))
        names = _or_none(lambda: sorted(map(_shown, once.listing(listing.revision, "", recursive=False)))) or []
    close = list(dict.fromkeys(name for pattern in patterns for name in difflib.get_close_matches(pattern, names, 3)))
    raise CorpusError(
        f"no file of {hub.repository} matches",
        expected=" or ".join(patterns),
        received=f"{len(names)} others"
        + (f": {', '.join(names[:_SHOWN])}" if names else "")
        + (", ..." if len(names) > _SHOWN else ""),
        remedy=f"did you mean {' or '.join(close)}?" if close else f"look at {hub.page}/tree/{listing.revision}",
    )


def _shown(item: Mapping[str, Any]) -> str:
    return f"{item['path']}/" if item["type"] == "directory" else str(item["path"])


def _or_none(ask: Callable[[], _Found]) -> _Found | None:
    """For what only makes an error clearer."""
    try:
        return ask()
    except (PassingError, AnswerError, ValueError, TypeError, KeyError):
        return None
