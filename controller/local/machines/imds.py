"""The instance metadata service of one machine, on a port of its own.

https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/configuring-instance-metadata-service.html
A request with an invalid token gets status 401. A request without a token also gets status 401, unless the instance's
metadata options make tokens optional, as EC2's defaults do. For each request, the service calls the function
`metadata`, so that answers are always current.
"""

from __future__ import annotations

import base64
import http.server
import json
import secrets
import socket
import sys
import threading
import time
import urllib.parse
from collections.abc import Callable
from typing import Any, ClassVar

TOKEN_HEADER = "X-aws-ec2-metadata-token"
TTL_HEADER = "X-aws-ec2-metadata-token-ttl-seconds"
LONGEST_TTL_SECONDS = 21600
# Scripts test for the first characters of this page, which AWS does not document.
NOT_FOUND_PAGE = """\
<?xml version="1.0" encoding="iso-8859-1"?>
<html xmlns="http://www.w3.org/1999/xhtml" xml:lang="en" lang="en">
 <head><title>404 - Not Found</title></head>
 <body><h1>404 - Not Found</h1></body>
</html>
"""

MetadataTree = dict[str, Any]


def find_value(tree: MetadataTree, path: str) -> str | None:
    """The value at `path` in the tree, or None if nothing has this path. If `path` names a folder, the value is a list
    of the folder's names, one in each line, with / after the name of a subfolder.
    """
    tree_node: Any = tree
    for path_part in [urllib.parse.unquote(path_part) for path_part in path.split("/") if path_part]:
        if not isinstance(tree_node, dict) or path_part not in tree_node:
            return None
        tree_node = tree_node[path_part]
    if isinstance(tree_node, dict):
        return "\n".join(name + ("/" if isinstance(value, dict) else "") for name, value in tree_node.items())
    return str(tree_node)


class SessionTokens:
    """Session tokens of the metadata service, which expire after their time to live. Thread-safe."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._expiry_times: dict[str, float] = {}
        self._lock = threading.Lock()

    def issue_token(self, lifetime_seconds: int) -> str:
        token = base64.urlsafe_b64encode(secrets.token_bytes(40)).decode()
        with self._lock:
            now = self._clock()
            self._expiry_times = {
                issued_token: expiry for issued_token, expiry in self._expiry_times.items() if expiry > now
            }
            self._expiry_times[token] = now + lifetime_seconds
        return token

    def is_valid_token(self, token: str | None) -> bool:
        with self._lock:
            return token is not None and self._expiry_times.get(token, 0.0) > self._clock()


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 30.0  # seconds without data after which a connection is closed
    service: ClassVar[MetadataService]

    def do_PUT(self) -> None:
        if self.path != "/latest/api/token":
            self._respond(404)
            return
        if self.headers.get("X-Forwarded-For"):
            self._respond(403)
            return
        ttl_text = self.headers.get(TTL_HEADER, "")
        if not ttl_text.isdecimal() or not 1 <= int(ttl_text) <= LONGEST_TTL_SECONDS:
            self._respond(400)
            return
        self._respond(200, self.service.tokens.issue_token(int(ttl_text)), {TTL_HEADER: ttl_text})

    def do_GET(self) -> None:
        token = self.headers.get(TOKEN_HEADER)
        if not self.service.tokens.is_valid_token(token) and (token is not None or self.service.tokens_required()):
            self._respond(401)
            return
        metadata_value = find_value(self.service.metadata(), urllib.parse.urlsplit(self.path).path)
        self._respond(404, NOT_FOUND_PAGE) if metadata_value is None else self._respond(200, metadata_value)

    def _respond(self, status: int, body: str = "", headers: dict[str, str] | None = None) -> None:
        body_bytes = body.encode()
        self.send_response(status)
        self.send_header("Content-Type", "text/plain")
        self.send_header("Content-Length", str(len(body_bytes)))
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body_bytes)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class names it so
        """Log nothing, because a node logs its own requests."""


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False  # a client that keeps its connection open must not delay the machine's end

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore a lost connection, as when a node is killed during its request. Print errors other than a lost
        connection with a traceback.
        """
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class MetadataService:
    """The metadata service of one machine. The function `metadata` returns all values as a tree: {"latest":
    {"meta-data": {...}, "dynamic": {...}}}. The service listens on the address `host`, or on the socket that `listen`
    returns.
    """

    def __init__(
        self,
        metadata: Callable[[], MetadataTree],
        host: str = "127.0.0.1",
        listen: Callable[[], socket.socket] | None = None,
        tokens_required: Callable[[], bool] = lambda: True,
    ) -> None:
        self.metadata = metadata
        self.tokens_required = tokens_required
        self._host = host
        self._listen = listen
        self.tokens = SessionTokens()
        self._server: _Server | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> str:
        """Start the metadata service and return its base URL."""
        handler_class = type("Handler", (_Handler,), {"service": self})
        if self._listen is None:
            self._server = _Server((self._host, 0), handler_class)
        else:
            self._server = _Server((self._host, 0), handler_class, bind_and_activate=False)
            self._server.socket.close()
            self._server.socket = self._listen()
            self._server.server_address = self._server.socket.getsockname()
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), name="imds", daemon=True)
        self._thread.start()
        return "http://{}:{}".format(*self._server.server_address[:2])

    def stop(self) -> None:
        if self._server is not None and self._thread is not None:
            self._server.shutdown()
            self._server.server_close()
            self._thread.join(5.0)
            self._server = None


def format_identity_document(fields: dict[str, Any]) -> str:
    """The text of an identity document as AWS formats it. The signature covers exactly this text."""
    return json.dumps(fields, indent=2)
