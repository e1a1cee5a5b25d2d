"""Protects the dashboard's page: only requests with the secret token in the address are admitted.

The token is in the path of the page's address, not in a cookie. Browsers send cookies of 127.0.0.1 to every port, so
every server on the machine would receive a token in a cookie. The check of the header Host refuses requests to foreign
host names that resolve to 127.0.0.1. Requests for changes must also come from the dashboard's own page according to the
header Origin, which browsers set and no page can forge.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping

from starlette.responses import PlainTextResponse, RedirectResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

SECURITY_HEADERS: Mapping[str, str] = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
SAFE_METHODS = ("GET", "HEAD")  # of HTTP: requests that change nothing
_ADDED_HEADERS = [(name.encode(), value.encode()) for name, value in SECURITY_HEADERS.items()]


class Guard:  # admits only requests with the token
    """A wrapper around the page's web application, which checks each request before the application receives the
    request. The application sees request paths without the token. A request with a wrong token gets the same answer as
    a request with a wrong path.
    """

    def __init__(self, app: ASGIApp, token: str, port: int) -> None:
        self._app, self._token = app, token
        self._hosts = {f"127.0.0.1:{port}", f"localhost:{port}"}
        self._origins = {f"http://{host}" for host in self._hosts}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":  # a websocket, which this server does not use
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                other_headers = [
                    header
                    for header in message.get("headers", [])
                    if header[0].decode().lower() not in SECURITY_HEADERS
                ]
                message["headers"] = [*other_headers, *_ADDED_HEADERS]
            await send(message)

        headers = dict(scope["headers"])
        if headers.get(b"host", b"").decode("latin-1") not in self._hosts:
            await PlainTextResponse("this page is at 127.0.0.1 only\n", 421)(scope, receive, send_with_headers)
            return
        token, slash, path = scope["path"][1:].partition("/")
        if not hmac.compare_digest(token.encode(), self._token.encode()):
            await PlainTextResponse("not found\n", 404)(scope, receive, send_with_headers)
            return
        if scope["method"] not in SAFE_METHODS and headers.get(b"origin", b"").decode("latin-1") not in self._origins:
            await PlainTextResponse("this request does not come from the page\n", 403)(
                scope, receive, send_with_headers
            )
            return
        if not slash:  # the page's addresses are relative to the folder
            await RedirectResponse(f"/{self._token}/")(scope, receive, send_with_headers)
            return
        await self._app(
            {**scope, "path": f"/{path}", "raw_path": f"/{path}".encode(), "root_path": ""}, receive, send_with_headers
        )
