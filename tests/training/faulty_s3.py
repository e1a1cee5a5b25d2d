"""A proxy before an S3 that fails by plan: it cuts bodies, refuses for a while, and counts what it is asked for."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

PIECE = 65_536
REFUSAL = b"<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"


@dataclass
class Plan:
    """For objects whose key ends with `of`: `refused` so many answers are 503, then each is cut after `cut` bytes."""

    of: str = ".rec"
    refused: int = 0
    cut: int | None = None
    pause: float = 0.0  # seconds before each 64 KiB
    ranges: list[str] = field(default_factory=list)  # that were asked for and not refused
    lock: threading.Lock = field(default_factory=threading.Lock)


@contextmanager
def faulty(endpoint: str, plan: Plan) -> Iterator[str]:
    """The proxy's own endpoint."""

    address = urlsplit(endpoint)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            concerned = self.path.split("?")[0].endswith(plan.of)
            with plan.lock:
                refused = concerned and plan.refused > 0
                plan.refused -= refused
                if concerned and not refused:
                    plan.ranges.append(self.headers.get("Range", ""))
            if refused:
                self._answer(503, {}, REFUSAL)
                return
            self.pause = plan.pause if concerned else 0.0
            upstream = HTTPConnection(address.netloc)
            upstream.request(self.command, self.path, headers=dict(self.headers))
            answer = upstream.getresponse()
            self._answer(answer.status, dict(answer.headers), answer.read(), plan.cut if concerned else None)
            upstream.close()

        pause = 0.0

        def do_HEAD(self) -> None:
            self.do_GET()

        def _answer(self, status: int, headers: dict[str, str], body: bytes, cut: int | None = None) -> None:
            self.send_response(status)
            for name, value in headers.items():
                if name.lower() not in ("content-length", "connection", "transfer-encoding", "server", "date"):
                    self.send_header(name, value)
            length = headers.get("Content-Length", str(len(body))) if self.command == "HEAD" else str(len(body))
            self.send_header("Content-Length", length)
            self.end_headers()
            if self.command != "HEAD":
                for at in range(0, len(body[:cut]), PIECE):
                    time.sleep(self.pause)
                    self.wfile.write(body[at : min(at + PIECE, cut or len(body))])
            self.close_connection = True

        def log_message(self, format: str, *given: object) -> None:  # noqa: A002  # the library's name
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
