"""Bringing one archive of a known digest over a network that fails: the file grows, and what was cut goes on.

Nothing is sent along: the place is public, and the hub's token is not for it. The connection is huggingface_hub's, as
for corpora, so that its offline switch holds here too.
"""

import hashlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import httpx2
import huggingface_hub
from huggingface_hub import constants, get_session, is_offline_mode

from paribus.data.progress import Advance, Progress
from paribus.data.sources.hub_requests import AnswerError, PassingError, Patience, Retries
from paribus.disk import storing
from paribus.downstream.core.errors import CoreBundleError
from paribus.downstream.core.official import ADDRESS, ARCHIVE_SHA256, FOLDER

LARGEST_ARCHIVE_BYTES = 1_000_000_000
_PASSING_STATUS = (408, 425, 429)
_TOLD_EVERY_BYTES = 1 << 18


@dataclass(frozen=True)
class Source:
    """Where an archive lies, and what it must be."""

    address: str = ADDRESS
    sha256: str = ARCHIVE_SHA256
    """of the archive, hexadecimal"""
    below: str = FOLDER
    """the folder in the archive whose files are taken"""


class Download:
    """The archive as a growing file, until its digest is the published one."""

    def __init__(self, source: Source, path: Path, patience: Patience, progress: Progress) -> None:
        self.source, self.path, self.patience, self.progress = source, path, patience, progress
        self.total = 0

    def run(self) -> Path:
        """The file, whole. CoreBundleError where it cannot be had or is another archive than it must be."""
        resumed = self.path.exists() and self.path.stat().st_size > 0
        received = self._completed()
        if received != self.source.sha256 and resumed:
            # What lay there may have been of another archive: once more, from the first byte.
            self.path.unlink()
            received = self._completed()
        if received != self.source.sha256:
            self.path.unlink()
            raise CoreBundleError(
                f"{self.source.address} holds another archive than the one that is known",
                expected=f"SHA-256 {self.source.sha256}",
                received=received,
                remedy="take the bundle from elsewhere and name its folder; if the archive was replaced, tell us",
            )
        return self.path

    def _completed(self) -> str:
        """Loads what is missing; the SHA-256 of the whole."""
        with storing(self.path):
            self.path.touch()
        retries = Retries(self.patience, threading.Event())
        most = self.path.stat().st_size
        while True:
            try:
                self._stream()
                break
            except PassingError as error:
                size = self.path.stat().st_size
                try:
                    retries.after(error, max(0, size - most))
                except PassingError as last:
                    self._refuse(str(last))
                most = max(most, size)
            except AnswerError as answer:
                self._refuse(str(answer))
        with self.path.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()

    def _stream(self) -> None:
        start = self.path.stat().st_size
        with self._opened(start) as response:
            if response.status_code == 416:  # nothing follows what is there
                return
            if not response.headers.get("content-range", "").startswith(f"bytes {start}-"):
                start = 0
            self.total = start + int(response.headers.get("content-length", 0))
            if self.total > LARGEST_ARCHIVE_BYTES:
                raise AnswerError(200, "", f"it is {self.total:,} bytes long, too long for the bundle")
            received = told = start
            with storing(self.path):
                stream = self.path.open("r+b")
            with stream:
                with storing(self.path):
                    stream.truncate(start)
                    stream.seek(start)
                for block in response.iter_bytes():
                    with storing(self.path):
                        stream.write(block)
                        stream.flush()
                    received += len(block)
                    if received > LARGEST_ARCHIVE_BYTES:
                        raise AnswerError(200, "", f"it is more than {LARGEST_ARCHIVE_BYTES:,} bytes long")
                    if received - told >= _TOLD_EVERY_BYTES or received == self.total:
                        self._tell(received)
                        told = received
        if received < self.total:
            raise PassingError(f"the connection ended after {received:,} of {self.total:,} bytes")

    @contextmanager
    def _opened(self, start: int) -> Iterator[httpx2.Response]:
        if is_offline_mode():
            raise AnswerError(0, "", "nothing may be fetched (HF_HUB_OFFLINE)")
        timeout_s = self.patience.timeout_s or constants.HF_HUB_DOWNLOAD_TIMEOUT
        headers = {"user-agent": f"paribus; hf_hub/{huggingface_hub.__version__}", "accept-encoding": "identity"}
        headers |= {"range": f"bytes={start}-"} if start else {}
        host = httpx2.URL(self.source.address).host
        try:
            with get_session().stream(
                "GET", self.source.address, headers=headers, timeout=timeout_s, follow_redirects=True
            ) as response:
                status = response.status_code
                if status >= 500 or status in _PASSING_STATUS:
                    raise PassingError(f"{host} answers {status}")
                if status not in (200, 206) and not (status == 416 and start):
                    raise AnswerError(status, "", f"{host} answers {status}")
                yield response
        except httpx2.TimeoutException:
            raise PassingError(f"{host} was silent for {timeout_s:g} s") from None
        except httpx2.ConnectError:
            raise PassingError(f"no connection to {host}") from None
        except (httpx2.NetworkError, httpx2.RemoteProtocolError):
            raise PassingError("the connection was cut") from None
        except httpx2.HTTPError as error:
            raise PassingError(f"the request failed ({type(error).__name__})") from None

    def _tell(self, received: int) -> None:
        self.progress(Advance("fetch files", received, self.total))

    def _refuse(self, reason: str) -> NoReturn:
        kept = self.path.stat().st_size
        raise CoreBundleError(
            "the bundle of CORE tasks could not be fetched",
            expected=self.source.address,
            received=reason,
            remedy="run it again where there is a network"
            + (f": the {kept:,} bytes that came are kept" if kept else "")
            + "; or copy a bundle from elsewhere and name its folder",
        )
