"""The page's application: files of the page, its requests, and the stream of changes."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

import uvicorn
from anyio import to_thread
from dyntrain.controller.cli.answers.log_sources import KINDS, Source
from dyntrain.controller.contract.messages import INSTANCE_ID
from dyntrain.controller.contract.wrong_fields import wrong_fields
from dyntrain.controller.core.pool.inputs import Inputs
from dyntrain.controller.dashboard.changing import ChangeRequest
from dyntrain.controller.dashboard.guard import Guard
from dyntrain.controller.dashboard.readings import Readings, Tails, pools
from dyntrain.controller.dashboard.state import changes
from dyntrain.controller.dashboard.watching import Watch
from pydantic import ValidationError
from sse_starlette import EventSourceResponse, ServerSentEvent
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

STATIC = Path(__file__).parent / "static"
PING_SECONDS = 5  # when pings are missing, the page notices that the server has ended
EVENTS_A_PAGE = 500
STOP_SECONDS = 2
BODY_BYTES = 10_000


class Page:
    """The page. `every` is the pause between two readings of a cluster; the list of clusters is read less often."""

    def __init__(
        self,
        readings: Readings,
        pool_inputs: Callable[[], Inputs],
        log_of: Callable[[str, str, str], Source],
        every: float,
        *,
        allow_changes: bool = False,
    ) -> None:
        self._readings, self._pool_inputs, self._every = readings, pool_inputs, every
        self._tails, self._allow_changes = Tails(log_of), allow_changes
        self._overview = Watch(readings.overview, 2 * every)
        self._clusters: dict[str, Watch] = {}

    def app(self, token: str, port: int) -> ASGIApp:
        routes: list[BaseRoute] = [
            Route("/", self.index),
            Mount("/static", StaticFiles(directory=STATIC)),
            Route("/api/about", self.about),
            Route("/api/live", self.live),
            Route("/api/live/{cluster}", self.live),
            Route("/api/events/{cluster}", self.events),
            Route("/api/explain/{cluster}/{instance}", self.explain),
            Route("/api/logs/{cluster}/{instance}/{kind}", self.logs),
            Route("/api/pools", self.pools),
        ]
        if self._allow_changes:
            routes += [
                Route("/api/groups/{cluster}", self.groups),
                Route("/api/change", self.change, methods=["POST"]),
            ]
        return Guard(Starlette(routes=routes), token, port)

    def end(self) -> None:
        for watch in (self._overview, *self._clusters.values()):
            watch.end()

    async def index(self, _request: Request) -> Response:
        return FileResponse(STATIC / "index.html")

    async def about(self, _request: Request) -> Response:
        return JSONResponse({"logs": KINDS, "changes": self._allow_changes})

    async def live(self, request: Request) -> Response:
        cluster = request.path_params.get("cluster")
        return EventSourceResponse(self._stream(cluster), ping=PING_SECONDS, ping_message_factory=_ping)

    async def events(self, request: Request) -> Response:
        query = request.query_params
        before = _number(query.get("before"))
        limit = min(_number(query.get("limit")) or EVENTS_A_PAGE, EVENTS_A_PAGE)
        name = request.path_params["cluster"]
        return await _answer(lambda: self._readings.events(name, query.get("text", ""), before, limit))

    async def explain(self, request: Request) -> Response:
        path = request.path_params
        return await _answer(lambda: self._readings.explained(path["cluster"], path["instance"]))

    async def logs(self, request: Request) -> Response:
        path = request.path_params
        if not re.fullmatch(INSTANCE_ID, path["instance"]) or path["kind"] not in KINDS:
            return JSONResponse({"problem": "there is no such log", "lines": []})
        return await _answer(lambda: self._tails.lines(path["cluster"], path["instance"], path["kind"]))

    async def pools(self, _request: Request) -> Response:
        return await _answer(lambda: pools(self._pool_inputs))

    async def groups(self, request: Request) -> Response:
        return await _answer(lambda: self._readings.groups(request.path_params["cluster"]))

    async def change(self, request: Request) -> Response:
        """Handle a request for a change. The request must be JSON, which no form of another page can send."""
        if request.headers.get("content-type") != "application/json":
            raise HTTPException(415, "send a change as application/json")
        try:
            change_request = ChangeRequest.model_validate_json(await _body(request))
        except ValidationError as error:
            return JSONResponse({"problem": wrong_fields(error, "change"), "done": False}, 400)
        return await _answer(lambda: self._readings.ask(change_request))

    async def _stream(self, cluster: str | None) -> AsyncIterator[ServerSentEvent]:
        """Stream first the whole state, then each change."""
        before = None
        async for state in self._watch(cluster).states():
            yield ServerSentEvent(text(changes(before, state)), event="changes")
            before = state

    def _watch(self, cluster: str | None) -> Watch:
        if cluster is None:
            return self._overview
        if cluster not in self._clusters:
            self._clusters[cluster] = Watch(lambda: self._readings.cluster(cluster), self._every)
        return self._clusters[cluster]


class Server(uvicorn.Server):
    """A server on a listening socket, until SIGINT or SIGTERM. At the end, the server
    first closes its open streams, because uvicorn waits for these.
    """

    def __init__(self, page: Page, token: str, listening: socket.socket) -> None:
        self._page, self._listening = page, listening
        config = uvicorn.Config(
            page.app(token, listening.getsockname()[1]),
            access_log=False,  # paths begin with the token
            log_level="warning",
            server_header=False,
            timeout_graceful_shutdown=STOP_SECONDS,
        )
        super().__init__(config)

    def serve_page(self) -> None:
        self.run(sockets=[self._listening])

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._page.end()
        await super().shutdown(sockets)


def _number(text: str | None) -> int | None:
    """Parse a number. Raises HTTPException for other text, also for "²", which `str.isdigit` accepts."""
    if not text:
        return None
    if not re.fullmatch("[0-9]{1,9}", text):
        raise HTTPException(400, "`before` and `limit` must be whole numbers")
    return int(text)


async def _body(request: Request) -> bytes:
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > BODY_BYTES:
            raise HTTPException(413, "the request is too large for a change")
    return body


async def _answer(read: Callable[[], Mapping[str, Any]]) -> Response:
    return JSONResponse(await to_thread.run_sync(read, abandon_on_cancel=True))


def text(data: Mapping[str, Any]) -> str:
    return json.dumps(data, allow_nan=False, separators=(",", ":"))


def _ping() -> ServerSentEvent:
    return ServerSentEvent("", event="ping")
