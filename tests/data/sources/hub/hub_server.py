"""A hub on loopback that holds one repository and misbehaves on demand.

It serves what a client of the Hugging Face hub asks for, in the hub's own shapes: the listing of a commit in pages, the
commit of a branch, an owner's repositories, and contents, where a file of Git LFS is redirected to another host. Every
request is kept, and the bytes of content that went out are counted.
"""

import hashlib
import json
import socket
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit

COMMIT = "0123456789abcdef0123456789abcdef01234567"
PAGE = 3


@dataclass(frozen=True)
class Fault:
    """What happens to one request instead of an answer, or to its body."""

    status: int | None = None
    headers: dict[str, str] = field(default_factory=dict)
    cut_after: int | None = None
    """bytes of the body after which the connection is torn"""
    flipped: bool = False
    """one byte of the body is wrong"""
    longer: int = 0
    """so many bytes more than there are, or fewer; the connection ends in order"""
    silent: bool = False
    whole: bool = False
    """the whole file, whichever part was asked for"""
    page: str | None = None
    """a web page instead of an answer"""
    pause_s: float = 0.0
    """after every 64 KiB"""


@dataclass(frozen=True)
class Asked:
    path: str
    start: int
    authorized: bool


class HubServer:
    """`files` of `repository`; a `faults[key]` list is used up request by request, the last one stays if `forever`."""

    def __init__(self, files: dict[str, bytes], repository: str = "owner/data", kind: str = "dataset") -> None:
        self.files, self.repository, self.kind = files, repository, kind
        self.others = ["owner/datum", "owner/pictures"]
        self.listed: list[dict[str, object]] | None = None
        self.faults: defaultdict[str, list[Fault]] = defaultdict(list)
        self.forever: set[str] = set()
        self.asked: list[Asked] = []
        self.sent: defaultdict[str, int] = defaultdict(int)
        self.answering = 0
        self.lock = threading.Lock()
        self.closing = threading.Event()
        hub = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                hub.count(1)
                try:
                    hub.answer(self)
                except (BrokenPipeError, ConnectionResetError):
                    self.close_connection = True
                finally:
                    hub.count(-1)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name of the base class
                del format, args

        class Quiet(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, request: object, client_address: object) -> None:
                del request, client_address

        self.server = Quiet(("127.0.0.1", 0), Handler)
        self.port = self.server.server_address[1]
        self.endpoint = f"http://127.0.0.1:{self.port}"
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        self.thread.start()

    def close(self) -> None:
        self.closing.set()
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()

    def count(self, more: int) -> None:
        with self.lock:
            self.answering += more

    def misbehave(self, key: str, *faults: Fault, forever: bool = False) -> None:
        """`key`: a file's name, or tree, revision."""
        self.faults[key] = list(faults)
        self.forever = self.forever | {key} if forever else self.forever - {key}

    def heal(self) -> None:
        self.faults.clear()
        self.forever = set()

    def forget(self) -> None:
        """Start counting again."""
        self.asked.clear()
        self.sent.clear()

    def entries(self) -> list[dict[str, object]]:
        if self.listed is not None:
            return self.listed
        found: list[dict[str, object]] = []
        folders = {name.rsplit("/", end)[0] for name in self.files for end in range(1, name.count("/") + 1)}
        found += [{"type": "directory", "path": folder, "oid": "0" * 40, "size": 0} for folder in sorted(folders)]
        for name, content in sorted(self.files.items()):
            blob = hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
            entry: dict[str, object] = {"type": "file", "path": name, "size": len(content), "oid": blob}
            if name.endswith(".parquet"):
                sha256 = hashlib.sha256(content).hexdigest()
                # What git holds of it is a pointer, with another digest.
                entry |= {"oid": "f" * 40, "lfs": {"oid": sha256, "size": len(content), "pointerSize": 134}}
            found.append(entry)
        return found

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        parts = urlsplit(request.path)
        path = unquote(parts.path)
        asked_range = request.headers.get("Range", "")
        start = int(asked_range.removeprefix("bytes=").rstrip("-")) if asked_range else 0
        with self.lock:
            self.asked.append(Asked(path, start, "Authorization" in request.headers))
        api = f"/api/{self.kind}s"
        home = f"{'' if self.kind == 'model' else f'/{self.kind}s'}/{self.repository}/resolve/{COMMIT}/"
        query = parse_qs(parts.query)
        if path == api:
            names = [self.repository, *self.others] if query["author"] == ["owner"] else []
            self.reply(request, [{"id": name} for name in names])
        elif path.startswith(f"{api}/{self.repository}/tree/"):
            self.tree(request, path.removeprefix(f"{api}/{self.repository}/tree/"), query)
        elif path.startswith(f"{api}/{self.repository}/revision/"):
            if not self.refused(request, "revision"):
                self.reply(request, {"id": self.repository, "sha": COMMIT})
        elif path.startswith(home):
            self.resolve(request, path.removeprefix(home), start)
        elif path.startswith("/cdn/"):
            self.content(request, path.removeprefix("/cdn/"), start)
        else:
            self.refuse(request, 404, "RepoNotFound", "Repository not found")

    def tree(self, request: BaseHTTPRequestHandler, place: str, query: dict[str, list[str]]) -> None:
        if self.refused(request, "tree"):
            return None
        revision, _, below = place.partition("/")
        if revision != COMMIT:
            return self.refuse(request, 404, "RevisionNotFound", f"Invalid rev id: {revision}")
        inside = f"{below}/" if below else ""
        found = [entry for entry in self.entries() if str(entry["path"]).startswith(inside)]
        if query["recursive"] == ["false"]:
            found = [entry for entry in found if "/" not in str(entry["path"]).removeprefix(inside)]
        if below and not found:
            return self.refuse(request, 404, "EntryNotFound", f"{below} does not exist")
        at = int(query.get("cursor", ["0"])[0])
        headers = {}
        if at + PAGE < len(found):
            # As the hub does, by its public name, whatever name it was asked by.
            further = f"https://hub.invalid/api/?recursive={query['recursive'][0]}&cursor={at + PAGE}"
            headers["Link"] = f'<{further}>; rel="next"'
        self.reply(request, found[at : at + PAGE], headers)
        return None

    def resolve(self, request: BaseHTTPRequestHandler, name: str, start: int) -> None:
        if name not in self.files:
            self.refuse(request, 404, "EntryNotFound", f"{name} does not exist")
        elif name.endswith(".parquet"):
            sha256 = hashlib.sha256(self.files[name]).hexdigest()
            request.send_response(302)
            request.send_header("X-Repo-Commit", COMMIT)
            request.send_header("X-Linked-Size", str(len(self.files[name])))
            request.send_header("X-Linked-ETag", f'"{sha256}"')
            request.send_header("Location", f"http://localhost:{self.port}/cdn/{name}?Signature=confidential")
            request.send_header("Content-Length", "0")
            request.end_headers()
        else:
            self.content(request, name, start)

    def content(self, request: BaseHTTPRequestHandler, name: str, start: int) -> None:
        fault = self.next_fault(name)
        if self.apply(request, fault):
            return None
        body = self.files[name]
        whole = fault.whole or not start
        if not whole and start >= len(body):
            return self.refuse(request, 416, "", "")
        part = body if whole else body[start:]
        if fault.flipped:
            part = part[:-1] + bytes([part[-1] ^ 1])
        part = part[: len(part) + fault.longer] if fault.longer < 0 else part + b"x" * fault.longer
        request.send_response(200 if whole else 206)
        request.send_header("Content-Length", str(len(part)))
        request.send_header("X-Repo-Commit", COMMIT)
        if not whole:
            request.send_header("Content-Range", f"bytes {start}-{len(body) - 1}/{len(body)}")
        request.end_headers()
        end = len(part) if fault.cut_after is None else min(fault.cut_after, len(part))
        for at in range(0, end, 1 << 16):
            block = part[at : min(end, at + (1 << 16))]
            request.wfile.write(block)
            with self.lock:
                self.sent[name] += len(block)
            if fault.pause_s:
                time.sleep(fault.pause_s)
        if fault.cut_after is not None:
            request.wfile.flush()
            request.connection.shutdown(socket.SHUT_RDWR)
            request.close_connection = True
        return None

    def next_fault(self, key: str) -> Fault:
        with self.lock:
            waiting = self.faults[key]
            if not waiting:
                return Fault()
            return waiting[0] if key in self.forever and len(waiting) == 1 else waiting.pop(0)

    def refused(self, request: BaseHTTPRequestHandler, key: str) -> bool:
        return self.apply(request, self.next_fault(key))

    def apply(self, request: BaseHTTPRequestHandler, fault: Fault) -> bool:
        """Whether the fault was the whole answer."""
        if fault.silent:
            self.closing.wait(20)
            request.close_connection = True
        elif fault.page is not None:
            self.write(request, 200, fault.page.encode(), {"Content-Type": "text/html"})
        elif fault.status is not None:
            self.write(request, fault.status, b"{}", fault.headers)
        else:
            return False
        return True

    def refuse(self, request: BaseHTTPRequestHandler, status: int, code: str, message: str) -> None:
        headers = {"X-Error-Code": code, "X-Error-Message": message}
        self.write(request, status, json.dumps({"error": message}).encode(), headers)

    def reply(self, request: BaseHTTPRequestHandler, content: object, headers: dict[str, str] | None = None) -> None:
        self.write(request, 200, json.dumps(content).encode(), {"Content-Type": "application/json", **(headers or {})})

    def write(self, request: BaseHTTPRequestHandler, status: int, body: bytes, headers: dict[str, str]) -> None:
        request.send_response(status)
        for name, value in headers.items():
            request.send_header(name, value)
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        request.wfile.write(body)


Serve = Callable[..., HubServer]
