"""The web application behind the page, which serves files, answers requests, and streams changes to the page."""

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
from dyntrain.controller.dashboard.readings import LogTails, Readings, pools
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

STATIC_FOLDER = Path(__file__).parent / "static"
PING_SECONDS = 5  # when pings are missing, the page notices that the server has ended
MAX_EVENTS_A_PAGE = 500
SHUTDOWN_SECONDS = 2  # for open requests when the server ends
MAX_BODY_BYTES = 10_000


class Page:  # handlers of the page's requests
    """The handlers of the page's requests. `pause_seconds` is the pause between two readings of a cluster. The list of
    clusters is read less often than a single cluster.
    """

    def __init__(
        self,
        readings: Readings,
        pool_inputs: Callable[[], Inputs],
        log_of: Callable[[str, str, str], Source],
        pause_seconds: float,
        *,
        allow_changes: bool = False,
    ) -> None:
        self._readings, self._pool_inputs, self._pause_seconds = readings, pool_inputs, pause_seconds
        self._tails, self._allow_changes = LogTails(log_of), allow_changes
        self._overview = Watch(readings.overview, 2 * pause_seconds)
        self._clusters: dict[str, Watch] = {}

    def app(self, token: str, port: int) -> ASGIApp:
        routes: list[BaseRoute] = [
            Route("/", self.index),
            Mount("/static", StaticFiles(directory=STATIC_FOLDER)),
            Route("/api/about", self.about),
            Route("/api/live", self.live),
            Route("/api/live/{cluster}", self.live),
            Route("/api/events/{cluster}", self.events),
            Route("/api/explain/{cluster}/{instance}", self.explain),
            Route("/api/logs/{cluster}/{instance}/{kind}", self.logs),
            Route("/api/pools", self.pools),
        ]
        if self._allow_changes:
            routes += [Route("/api/groups/{cluster}", self.groups), Route("/api/change", self.change, methods=["POST"])]
        return Guard(Starlette(routes=routes), token, port)

    def end(self) -> None:  # closes the streams to all pages
        for open_watch in (self._overview, *self._clusters.values()):
            open_watch.end()

    async def index(self, _request: Request) -> Response:  # the page's HTML
        return FileResponse(STATIC_FOLDER / "index.html")

    async def about(self, _request: Request) -> Response:  # what this page can show and change
        return JSONResponse({"logs": KINDS, "changes": self._allow_changes})

    async def live(self, request: Request) -> Response:  # streams the state
        cluster = request.path_params.get("cluster")
        return EventSourceResponse(self._stream(cluster), ping=PING_SECONDS, ping_message_factory=_ping_event)

    async def events(self, request: Request) -> Response:
        query_parameters = request.query_params
        before_number = _parse_number(query_parameters.get("before"))
        event_limit = min(_parse_number(query_parameters.get("limit")) or MAX_EVENTS_A_PAGE, MAX_EVENTS_A_PAGE)
        cluster_name = request.path_params["cluster"]
        return await _answer_json(
            lambda: self._readings.events(cluster_name, query_parameters.get("text", ""), before_number, event_limit)
        )

    async def explain(self, request: Request) -> Response:
        path_parameters = request.path_params
        return await _answer_json(
            lambda: self._readings.explain(path_parameters["cluster"], path_parameters["instance"])
        )

    async def logs(self, request: Request) -> Response:
        path_parameters = request.path_params
        if not re.fullmatch(INSTANCE_ID, path_parameters["instance"]) or path_parameters["kind"] not in KINDS:
            return JSONResponse({"problem": "there is no such log", "lines": []})
        return await _answer_json(
            lambda: self._tails.lines(path_parameters["cluster"], path_parameters["instance"], path_parameters["kind"])
        )

    async def pools(self, _request: Request) -> Response:
        return await _answer_json(lambda: pools(self._pool_inputs))

    async def groups(self, request: Request) -> Response:  # sizes of a cluster's groups
        return await _answer_json(lambda: self._readings.groups(request.path_params["cluster"]))

    async def change(self, request: Request) -> Response:
        """Answer the page's request to plan or carry out a change of a cluster. The request must be JSON, because no
        HTML form on a foreign page can send JSON.
        """
        if request.headers.get("content-type") != "application/json":
            raise HTTPException(415, "the content type of a change must be application/json")
        try:
            change_request = ChangeRequest.model_validate_json(await _read_body(request))
        except ValidationError as error:
            return JSONResponse({"problem": wrong_fields(error, "change"), "done": False}, 400)
        return await _answer_json(lambda: self._readings.ask(change_request))

    async def _stream(self, cluster: str | None) -> AsyncIterator[ServerSentEvent]:
        """Stream a cluster's state to the page: first the whole state, and then each change of the state."""
        previous_state = None
        async for state in self._watch(cluster).states():
            yield ServerSentEvent(compact_json(changes(previous_state, state)), event="changes")
            previous_state = state

    def _watch(self, cluster: str | None) -> Watch:
        if cluster is None:
            return self._overview
        if cluster not in self._clusters:
            self._clusters[cluster] = Watch(lambda: self._readings.cluster(cluster), self._pause_seconds)
        return self._clusters[cluster]


class Server(uvicorn.Server):
    """A uvicorn server that serves the page on a listening socket until SIGINT or SIGTERM. When shutting down, the
    server first closes its open streams, because uvicorn waits for open streams.
    """

    def __init__(self, page: Page, token: str, listening: socket.socket) -> None:
        self._page, self._listening = page, listening
        config = uvicorn.Config(
            page.app(token, listening.getsockname()[1]),
            access_log=False,  # paths begin with the token
            log_level="warning",
            server_header=False,
            timeout_graceful_shutdown=SHUTDOWN_SECONDS,
        )
        super().__init__(config)

    def serve_page(self) -> None:
        self.run(sockets=[self._listening])

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._page.end()
        await super().shutdown(sockets)


def _parse_number(digits: str | None) -> int | None:
    """Parse a number. Raises HTTPException for a text that contains anything but the digits 0 to 9, such as "²", which
    `str.isdigit` accepts.
    """
    if not digits:
        return None
    if not re.fullmatch("[0-9]{1,9}", digits):
        raise HTTPException(400, "the parameters `before` and `limit` must be whole numbers")
    return int(digits)


async def _read_body(request: Request) -> bytes:
    body = b""
    async for body_part in request.stream():
        body += body_part
        if len(body) > MAX_BODY_BYTES:
            raise HTTPException(413, "the request is too large for a change")
    return body


async def _answer_json(read: Callable[[], Mapping[str, Any]]) -> Response:
    return JSONResponse(await to_thread.run_sync(read, abandon_on_cancel=True))


def compact_json(data: Mapping[str, Any]) -> str:
    return json.dumps(data, allow_nan=False, separators=(",", ":"))


def _ping_event() -> ServerSentEvent:
    return ServerSentEvent("", event="ping")
