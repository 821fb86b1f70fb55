"""What is asked of the Hugging Face hub, and what is made of its answers.

The connection, the token and the addresses are huggingface_hub's; the requests are made here. Its own download (2.4)
throws a file that was cut away, so that nothing resumes, its own listing waits for ever for a hub that is silent, and
its headers ask the hub for more than the user did. Everything goes over plain HTTP, never over hf-xet, whose transfers
cannot be continued either; every file of a repository is served so (up to 50 GB).

No text of the library reaches a message: addresses that the hub redirects to are signed, and a malformed token is
quoted in the error about it.
"""

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import Any, Literal
from urllib.parse import parse_qsl, quote, urlsplit

import httpx2
import huggingface_hub
from huggingface_hub import constants, get_session, get_token, hf_hub_url, is_offline_mode
from huggingface_hub.errors import HFValidationError
from huggingface_hub.utils import parse_ratelimit_headers, validate_repo_id

from paribus.errors import CorpusError

RepositoryKind = Literal["dataset", "model", "space"]

_TOO_MANY_REQUESTS = 429
_PASSING_STATUS = (408, 425, _TOO_MANY_REQUESTS)
_WORTH_GOING_ON_BYTES = 1 << 20
_LONGEST_SERVER_MESSAGE = 200


@dataclass(frozen=True)
class Patience:
    """How long a hub in trouble is waited for."""

    attempts: int = 6
    """in a row that bring less than 1 MiB, before a file is given up"""
    first_wait_s: float = 1.0
    """doubled with every further attempt"""
    longest_wait_s: float = 330.0
    """what the hub may ask for: it counts requests over 300 s"""
    timeout_s: float | None = None
    """of silence, until a connection counts as cut; none: HF_HUB_DOWNLOAD_TIMEOUT, by default 10"""
    sleep: Callable[[float], object] | None = None
    """none: a wait that ends at once when another thread gives up"""


class PassingError(Exception):
    """Something that may go better later: a cut connection, silence, too many requests, an error of the server."""

    def __init__(self, reason: str, wait_s: float | None = None) -> None:
        super().__init__(reason)
        self.wait_s = wait_s
        """that the hub asks for"""


class AnswerError(Exception):
    """A definite answer that is not the thing asked for."""

    def __init__(self, status: int, code: str, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.code = code
        """the hub's name for it: RepoNotFound, RevisionNotFound, EntryNotFound, GatedRepo"""


@dataclass
class Retries:
    """Counts the attempts at one thing and waits between them."""

    patience: Patience
    stop: threading.Event
    failures: int = 0

    def after(self, error: PassingError, brought_bytes: int = 0) -> None:
        """Wait for the next attempt; raises PassingError where there is none."""
        self.failures = 1 if brought_bytes >= _WORTH_GOING_ON_BYTES else self.failures + 1
        if self.failures >= self.patience.attempts:
            raise PassingError(f"{error}; {self.failures} attempts in a row")
        wait_s = self.patience.first_wait_s * 2 ** (self.failures - 1) if error.wait_s is None else error.wait_s
        if wait_s > self.patience.longest_wait_s:
            raise PassingError(f"{error}; the hub asks to come back in {wait_s:.0f} s")
        (self.patience.sleep or self.stop.wait)(wait_s)


@dataclass(frozen=True)
class Hub:
    """A repository behind an endpoint."""

    repository: str
    """owner/name"""
    kind: RepositoryKind = "dataset"
    endpoint: str = constants.ENDPOINT
    patience: Patience = Patience()
    stop: threading.Event = field(default_factory=threading.Event, repr=False, compare=False)

    def __post_init__(self) -> None:
        try:
            validate_repo_id(self.repository)
        except HFValidationError as error:
            raise CorpusError(
                "this is no name of a repository on the hub",
                expected="owner/name",
                received=repr(self.repository),
                remedy="write it as it stands in the repository's address",
            ) from error
        if urlsplit(self.endpoint).scheme not in ("http", "https") or not urlsplit(self.endpoint).hostname:
            raise CorpusError(
                "the hub's endpoint is no web address",
                expected="http:// or https:// and a host (HF_ENDPOINT)",
                received=_without_credentials(self.endpoint),
            )

    @property
    def page(self) -> str:
        """The repository's address in a browser."""
        prefix = constants.REPO_TYPES_URL_PREFIXES.get(self.kind, "")
        return f"{_without_credentials(self.endpoint)}/{prefix}{self.repository}"

    def address(self, name: str, revision: str) -> str:
        """Where a file's content is served."""
        return hf_hub_url(
            self.repository, name, repo_type=self.kind, revision=revision, endpoint=self.endpoint.rstrip("/")
        )

    def listing(self, revision: str, below: str, *, recursive: bool = True) -> Iterator[Mapping[str, Any]]:
        """What the hub says of every file and folder below a folder. Raises PassingError, AnswerError."""
        place = f"{self._api}/tree/{revision}" + (f"/{quote(below)}" if below else "")
        query: dict[str, str] | None = {"recursive": str(recursive).lower(), "expand": "false"}
        seen = []
        while query is not None and query not in seen:
            seen.append(query)
            page, further = self.asked(place, query)
            if not isinstance(page, list):
                raise AnswerError(200, "", "the answer is no listing of files")
            yield from page
            # Only the query is taken: the token goes nowhere that a listing names.
            query = dict(parse_qsl(urlsplit(further).query)) if further else None

    def commit_of(self, revision: str) -> str:
        """The commit that a branch or tag points to now. Raises PassingError, AnswerError."""
        said, _ = self.asked(f"{self._api}/revision/{quote(revision, safe='')}")
        if not isinstance(said, dict) or not isinstance(said.get("sha"), str):
            raise AnswerError(200, "", "the answer names no commit")
        return said["sha"]

    def siblings(self) -> list[str]:
        """Names of the owner's repositories of the same kind, up to a hundred."""
        owner = self.repository.rpartition("/")[0]
        said, _ = self.asked(f"{self.endpoint.rstrip('/')}/api/{self.kind}s", {"author": owner, "limit": "100"})
        return [str(item["id"]) for item in said if "id" in item]

    def asked(self, place: str, query: Mapping[str, str] | None = None) -> tuple[Any, str | None]:
        """A JSON answer, and the address of what follows it. Raises PassingError, AnswerError."""
        retries = Retries(self.patience, self.stop)
        while True:
            try:
                with self.opened(place, query) as response:
                    content = json.loads(response.read())
                    return content, response.links.get("next", {}).get("url")
            except PassingError as error:
                retries.after(error)
            except ValueError:
                raise AnswerError(
                    200, "", "the answer is not JSON: this is no hub, or a proxy answers for it"
                ) from None

    @contextmanager
    def opened(
        self, place: str, query: Mapping[str, str] | None = None, *, start: int = 0
    ) -> Iterator[httpx2.Response]:
        """A successful answer whose body is still to be read, from byte `start` where the server can.

        One attempt. Errors while the body is read are told as those before it: PassingError, AnswerError.
        """
        if is_offline_mode():
            raise AnswerError(0, "Offline", "the hub may not be asked (HF_HUB_OFFLINE)")
        timeout_s = self.patience.timeout_s or constants.HF_HUB_DOWNLOAD_TIMEOUT
        token = None if constants.HF_HUB_DISABLE_IMPLICIT_TOKEN else get_token()
        if token and not (token.isascii() and token.isprintable()):
            raise AnswerError(0, "", "the token (HF_TOKEN, or the stored one) has characters that no token has")
        headers = {
            "user-agent": f"paribus; hf_hub/{huggingface_hub.__version__}",
            # A compressed body has no length, and no part of it can be asked for.
            "accept-encoding": "identity",
        }
        headers |= {"authorization": f"Bearer {token}"} if token else {}
        headers |= {"range": f"bytes={start}-"} if start else {}
        try:
            with get_session().stream(
                "GET", place, params=query, headers=headers, timeout=timeout_s, follow_redirects=True
            ) as response:
                if response.status_code not in (200, 206):
                    raise _refusal(response, token)
                yield response
        except httpx2.TimeoutException:
            raise PassingError(f"the hub was silent for {timeout_s:g} s") from None
        except httpx2.ConnectError:
            raise PassingError(f"no connection to {_without_credentials(self.endpoint)}") from None
        except (httpx2.NetworkError, httpx2.RemoteProtocolError):
            raise PassingError("the connection was cut") from None
        except (httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError) as error:
            raise PassingError(f"the request failed ({type(error).__name__})") from None

    @property
    def _api(self) -> str:
        return f"{self.endpoint.rstrip('/')}/api/{self.kind}s/{self.repository}"


def _refusal(response: httpx2.Response, token: str | None) -> PassingError | AnswerError:
    status = response.status_code
    said = response.headers.get("x-error-message", "")[:_LONGEST_SERVER_MESSAGE]
    if token:
        said = said.replace(token, "(token)")
    reason = f"the hub answers {status}" + (f": {said}" if said else "")
    if status >= 500 or status in _PASSING_STATUS:
        return PassingError(reason, _asked_wait_s(response.headers))
    return AnswerError(status, response.headers.get("x-error-code", ""), reason)


def _asked_wait_s(headers: Mapping[str, str]) -> float | None:
    """Retry-After in seconds or as a date (RFC 9110, 10.2.3), else the end of the window that is used up."""
    value = headers.get("retry-after", "").strip()
    if value.isascii() and value.isdigit():
        return float(value)
    if value:
        try:
            return max(0.0, parsedate_to_datetime(value).timestamp() - time.time())
        except ValueError:
            return None
    limit = parse_ratelimit_headers(headers)
    return float(limit.reset_in_seconds) if limit is not None and limit.remaining == 0 else None


def _without_credentials(address: str) -> str:
    parts = urlsplit(address)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl().rstrip("/")
