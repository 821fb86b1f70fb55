"""One archive on loopback, with the ways in which a server goes wrong."""

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class ArchiveServer:
    """Serves `content` at `address`; lists are used up request by request."""

    def __init__(self, content: bytes, *, ranges: bool = True) -> None:
        self.content, self.ranges = content, ranges
        self.cut_after: list[int] = []
        """bytes of a body after which the connection is cut"""
        self.statuses: list[int] = []
        """statuses that are answered before the content is"""
        self.requests: list[dict[str, str]] = []
        """headers of each request, names in lower case"""
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                server.answer(self)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's name
                del format, args

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        self.address = f"http://127.0.0.1:{self._http.server_port}/eval_bundle.zip"
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        self.requests.append({name.lower(): value for name, value in request.headers.items()})
        if self.statuses:
            request.send_error(self.statuses.pop(0))
            return
        start = 0
        asked = request.headers.get("range", "")
        if self.ranges and asked:
            start = int(asked.removeprefix("bytes=").rstrip("-"))
            if start >= len(self.content):
                request.send_error(416)
                return
            request.send_response(206)
            request.send_header("content-range", f"bytes {start}-{len(self.content) - 1}/{len(self.content)}")
        else:
            request.send_response(200)
        body = self.content[start:]
        request.send_header("content-length", str(len(body)))
        request.end_headers()
        request.wfile.write(body[: self.cut_after.pop(0)] if self.cut_after else body)

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()
