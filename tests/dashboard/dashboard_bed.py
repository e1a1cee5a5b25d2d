"""The dashboard's real server over a world in memory, for tests and benchmarks."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from dyntrain.controller.cli.answers.connection import Connection
from dyntrain.controller.cli.answers.log_sources import SourceLine
from dyntrain.controller.core.pool.inputs import Inputs
from dyntrain.controller.dashboard.changing import ChangeRequest
from dyntrain.controller.dashboard.curves import Curves
from dyntrain.controller.dashboard.happenings import Happening, Happenings
from dyntrain.controller.dashboard.readings import Readings
from dyntrain.controller.dashboard.server import Page, Server
from dyntrain.controller.dashboard.state import unread_state
from dyntrain.controller.local.pace import patient
from fakes import ELASTIC, World, instance_id

TOKEN = "token-of-the-tests-0123456789abcdef"
EVERY = 0.1


class SteadyReadings(Readings):
    """Reads while the world does not change: it is not made for two threads."""

    def __init__(self, world: World) -> None:
        self.quiet = threading.RLock()
        super().__init__(Connection(world.ports, world.registry, ELASTIC))

    def overview(self) -> dict[str, Any]:
        with self.quiet:
            return super().overview()

    def cluster(self, name: str) -> dict[str, Any]:
        with self.quiet:
            return super().cluster(name)

    def events(self, name: str, text: str, before: int | None, limit: int) -> dict[str, Any]:
        with self.quiet:
            return super().events(name, text, before, limit)

    def ask(self, wish: ChangeRequest) -> dict[str, Any]:
        with self.quiet:
            return super().ask(wish)

    def groups(self, name: str) -> dict[str, Any]:
        with self.quiet:
            return super().groups(name)

    def explain(self, name: str, instance: str) -> dict[str, Any]:
        with self.quiet:
            return super().explain(name, instance)


class Log:
    """One log of every node, from its beginning each time that it is opened."""

    def __init__(self, lines: list[str]) -> None:
        self._lines, self._read = lines, 0

    def next(self) -> Iterator[SourceLine]:
        fresh, self._read = self._lines[self._read :], len(self._lines)
        return (SourceLine("i worker", line) for line in fresh)


class Bed:
    """A server on `port`, which a later one can take over."""

    def __init__(
        self,
        world: World,
        port: int = 0,
        token: str = TOKEN,
        readings: SteadyReadings | None = None,
        *,
        allow_changes: bool = False,
    ) -> None:
        self.world, self.token = world, token
        self.readings = readings or SteadyReadings(world)
        self.log_lines: list[str] = []
        self.pool_inputs: Callable[[], Inputs] = lambda: Inputs(at=0.0, pools=())
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._socket.bind(("127.0.0.1", port))
        self._socket.listen()
        self.port = self._socket.getsockname()[1]
        page = Page(
            self.readings,
            lambda: self.pool_inputs(),
            lambda *_request: Log(self.log_lines),
            EVERY,
            allow_changes=allow_changes,
        )
        self._server = Server(page, token, self._socket)
        self._thread = threading.Thread(target=self._server.serve_page, daemon=True)
        self._thread.start()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}/{self.token}/"

    @contextmanager
    def change(self) -> Iterator[World]:
        with self.readings.quiet:
            yield self.world

    def stop(self) -> None:
        self._server.should_exit = True
        self._thread.join(patient(20))
        self._socket.close()


class Crowd(SteadyReadings):
    """A cluster of so many nodes and events, as if they had been read."""

    def __init__(self, nodes: int, events: int) -> None:
        super().__init__(World())
        self.rows = {instance_id(number): self._row(number) for number in range(nodes)}
        names = list(self.rows)
        self._known = Happenings(
            tuple(
                Happening(number, number / 10, "status", names[number % nodes], "WAITING -> ADDED", f"e{number:06}")
                for number in range(1, events + 1)
            )
        )

    def change(self, every: int) -> None:
        """Every so manieth node gets another status."""
        flipped = {"ADDED": "REMOVAL_QUEUED", "REMOVAL_QUEUED": "ADDED"}
        for number, (instance, row) in enumerate(self.rows.items()):
            if number % every == 0:
                self.rows[instance] = {**row, "status": flipped[row["status"]]}

    def cluster(self, name: str) -> dict[str, Any]:
        state = {**unread_state(name, ""), "nodes": dict(self.rows)}
        target = {"revision": 7, "members": list(self.rows), "coordinator": None}
        trail = {"problem": "", "latest": self._known.latest}
        return {**state, "target": target, "curves": Curves().columns(), "trail": trail}

    def events(self, name: str, text: str, before: int | None, limit: int) -> dict[str, Any]:
        return {"problem": "", **self._known.page(text, before, limit)}

    @staticmethod
    def _row(number: int) -> dict[str, Any]:
        reason = {"reason": "TRAINING", "sentence": "it takes part in training", "detail": "", "private_ip": None}
        role = {"base": number < 2, "master": number == 0}
        member = {"rank": number, "generation": 3, "since": 1_700_000_000.0}
        return {"instance": instance_id(number), "status": "ADDED", **reason, **role, **member}
