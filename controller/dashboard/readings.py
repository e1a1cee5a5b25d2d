"""Reads the page's data through the command line's ports. An error of AWS becomes a sentence in one part of the page;
the other parts are still shown.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dyntrain.controller.cli.answers.connection import Connection
from dyntrain.controller.cli.answers.log_sources import FromCloudWatch, FromFiles, LineFilter, Source
from dyntrain.controller.cli.answers.query import Snapshot, explanation, history, snapshot, summary
from dyntrain.controller.cli.text.pool import as_data
from dyntrain.controller.contract.errors import ControllerError, RetryLater
from dyntrain.controller.core.pool.inputs import Inputs
from dyntrain.controller.core.pool.plan import plan_pools
from dyntrain.controller.dashboard.changing import ChangeRequest, answer, groups
from dyntrain.controller.dashboard.curves import Curves
from dyntrain.controller.dashboard.happenings import Happenings
from dyntrain.controller.dashboard.state import card, cluster_state, unread_state

HISTORY_SECONDS = 86_400.0
LOG_SECONDS = 3600.0
MAX_LINES = 400
MAX_OPEN_TAILS = 8


class Readings:
    """The page's readings. Safe to call from any thread: one thread reads at a time, since registry and trail are
    cached.
    """

    def __init__(self, connection: Connection, history: float = HISTORY_SECONDS) -> None:
        self._connection, self._history = connection, history
        self._ports, self._registry, self._elastic = connection
        self._lock = threading.Lock()
        self._curves: dict[str, Curves] = {}
        self._happenings: dict[str, Happenings] = {}

    def overview(self) -> dict[str, Any]:
        """All clusters, each with a headline."""
        try:
            with self._lock:
                names, invalid = sorted(self._registry.all()), dict(self._registry.problems())
        except ControllerError as error:
            return {"problem": sentence(error), "clusters": [], "invalid": {}}
        return {"problem": "", "clusters": [card(self._read_state(name)[0]) for name in names], "invalid": invalid}

    def cluster(self, name: str) -> dict[str, Any]:
        """A cluster with its curves and their events, and the number of its latest event."""
        state, latest = self._read_state(name)
        past = (history(latest) if latest is not None else None) or {}
        trail = self._read_trail(name)
        with self._lock:
            curves = self._curves[name] = self._curves.get(name, Curves()).with_job(state.get("job"))
        columns = curves.columns(past.get("points", ()))
        return {**state, "curves": columns, "marks": past.get("marks", []), "trail": trail}

    def events(self, name: str, text: str, before: int | None, limit: int) -> dict[str, Any]:
        trail = self._read_trail(name) if name not in self._happenings else {"problem": ""}
        with self._lock:
            happenings = self._happenings.get(name, Happenings())
        return {"problem": trail["problem"], **happenings.page(text, before, limit)}

    def explained(self, name: str, instance: str) -> dict[str, Any]:
        try:
            with self._lock:
                return {
                    "problem": "",
                    **explanation(snapshot(self._ports, self._registry, name, self._elastic), instance),
                }
        except ControllerError as error:
            return {"problem": sentence(error)}

    def ask(self, change_request: ChangeRequest) -> dict[str, Any]:
        try:
            with self._lock:
                return answer(self._connection, change_request)
        except ControllerError as error:
            return {"problem": sentence(error), "done": False}

    def groups(self, name: str) -> dict[str, Any]:
        try:
            with self._lock:
                return groups(self._connection, name)
        except ControllerError as error:
            return {"problem": sentence(error), "groups": []}

    def _read_state(self, name: str) -> tuple[dict[str, Any], Snapshot | None]:
        try:
            with self._lock:
                latest = snapshot(self._ports, self._registry, name, self._elastic)
        except ControllerError as error:
            return unread_state(name, sentence(error)), None
        return cluster_state(summary(latest)), latest

    def _read_trail(self, name: str) -> dict[str, Any]:
        with self._lock:
            happenings = self._happenings.get(name, Happenings())
            try:
                read = self._ports.clusters.trail(name, happenings.since(self._ports.clock() - self._history))
            except ControllerError as error:
                return {"problem": sentence(error), "latest": happenings.latest}
            happenings = self._happenings[name] = happenings.with_new(read)
        return {"problem": "", "latest": happenings.latest}


def pools(read: Callable[[], Inputs]) -> dict[str, Any]:
    """The data of `dyntrain pool plan --json`, without the inputs."""
    try:
        inputs = read()
    except ControllerError as error:
        return {"problem": sentence(error), "sum": [], "pools": []}
    data = as_data(plan_pools(inputs), inputs)
    return {"problem": data["problem"] or "", "sum": data["sum"], "pools": data["pools"]}


class Tails:
    """The newest lines of logs. Logs viewed last stay open, so that only their new lines are read."""

    def __init__(self, source_of: Callable[[str, str, str], Source]) -> None:
        self._source_of = source_of
        self._lock = threading.Lock()
        self._open: dict[tuple[str, str, str], _Tail] = {}

    def lines(self, cluster: str, instance: str, kind: str) -> dict[str, Any]:
        key = (cluster, instance, kind)
        try:
            with self._lock:
                tail = self._open.pop(key) if key in self._open else _Tail(self._source_of(*key))
                self._open[key] = tail  # now the newest entry
                for oldest_key in list(self._open)[:-MAX_OPEN_TAILS]:
                    del self._open[oldest_key]
            return {"problem": "", "lines": tail.read()}
        except ControllerError as error:
            return {"problem": sentence(error), "lines": []}


class _Tail:
    def __init__(self, source: Source) -> None:
        self._source, self._lock = source, threading.Lock()
        self._lines: deque[str] = deque(maxlen=MAX_LINES)

    def read(self) -> list[str]:
        with self._lock:
            self._lines.extend(line.text for line in self._source.next())
            return list(self._lines)


def log_of(cluster: str, instance: str, kind: str, now: float, directory: Path | None) -> Source:
    """A log in CloudWatch, or below an embedded cloud's `directory`. Raises ControllerError."""
    query = LineFilter(cluster, None, frozenset([instance]), frozenset([kind]))
    if directory is not None:
        return FromFiles(directory, query, now - LOG_SECONDS)
    from dyntrain.controller.adapters.aws import Clients
    from dyntrain.controller.adapters.logs import CloudWatchLogs

    return FromCloudWatch(CloudWatchLogs(Clients(attempts=2)), query, now - LOG_SECONDS)


def sentence(error: ControllerError) -> str:
    text = " ".join(str(error).split())
    return f"AWS cannot be reached or is busy: {text}" if isinstance(error, RetryLater) else text
