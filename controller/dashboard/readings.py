"""Reads the data of the dashboard's page through the command line's ports (interfaces to AWS). If AWS reports an error,
the affected part of the page shows a sentence about the error, and the remaining parts are still shown.
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
from dyntrain.controller.cli.text.pool import pool_plan_data
from dyntrain.controller.contract.errors import ControllerError, RetryLater
from dyntrain.controller.core.pool.inputs import Inputs
from dyntrain.controller.core.pool.plan import plan_pools
from dyntrain.controller.dashboard.changing import ChangeRequest, answer_change, resizable_group_sizes
from dyntrain.controller.dashboard.curves import Curves
from dyntrain.controller.dashboard.happenings import Happenings
from dyntrain.controller.dashboard.state import card, cluster_state, unread_state

TRAIL_HISTORY_SECONDS = 86_400.0  # how far back events are shown
LOG_HISTORY_SECONDS = 3600.0  # how far back log lines are read
MAX_LOG_LINES = 400
MAX_OPEN_LOGS = 8


class Readings:  # of the page's data
    """The methods that read the page's data, which may be called from any thread. Only one thread reads at a time,
    because the threads share the cached registry and audit trail.
    """

    def __init__(self, connection: Connection, history: float = TRAIL_HISTORY_SECONDS) -> None:
        self._connection, self._history = connection, history
        self._ports, self._registry, self._elastic = connection
        self._lock = threading.Lock()
        self._curves: dict[str, Curves] = {}
        self._happenings: dict[str, Happenings] = {}

    def overview(self) -> dict[str, Any]:
        """The data for the page's list of all clusters, with a headline for each cluster."""
        try:
            with self._lock:
                names, problems = sorted(self._registry.all()), dict(self._registry.problems())
        except ControllerError as error:
            return {"problem": sentence(error), "clusters": [], "invalid": {}}
        return {"problem": "", "clusters": [card(self._read_state(name)[0]) for name in names], "invalid": problems}

    def cluster(self, name: str) -> dict[str, Any]:
        """The page's data about one cluster: the cluster's state, its job's curves, the events marked on the curves,
        and the number of the latest event.
        """
        state, latest_snapshot = self._read_state(name)
        job_history = (history(latest_snapshot) if latest_snapshot is not None else None) or {}
        trail_data = self._read_trail(name)
        with self._lock:
            curves = self._curves[name] = self._curves.get(name, Curves()).with_job(state.get("job"))
        curve_columns = curves.columns(job_history.get("points", ()))
        return {**state, "curves": curve_columns, "marks": job_history.get("marks", []), "trail": trail_data}

    def events(self, name: str, text: str, before: int | None, limit: int) -> dict[str, Any]:
        trail_data = self._read_trail(name) if name not in self._happenings else {"problem": ""}
        with self._lock:
            happenings = self._happenings.get(name, Happenings())
        return {"problem": trail_data["problem"], **happenings.page(text, before, limit)}

    def explain(self, name: str, instance: str) -> dict[str, Any]:
        try:
            with self._lock:
                return {
                    "problem": "",
                    **explanation(snapshot(self._ports, self._registry, name, self._elastic), instance),
                }
        except ControllerError as error:
            return {"problem": sentence(error)}

    def ask(self, change_request: ChangeRequest) -> dict[str, Any]:  # plans or carries out the change
        try:
            with self._lock:
                return answer_change(self._connection, change_request)
        except ControllerError as error:
            return {"problem": sentence(error), "done": False}

    def groups(self, name: str) -> dict[str, Any]:  # sizes of the cluster's resizable groups
        try:
            with self._lock:
                return resizable_group_sizes(self._connection, name)
        except ControllerError as error:
            return {"problem": sentence(error), "groups": []}

    def _read_state(self, name: str) -> tuple[dict[str, Any], Snapshot | None]:
        try:
            with self._lock:
                latest_snapshot = snapshot(self._ports, self._registry, name, self._elastic)
        except ControllerError as error:
            return unread_state(name, sentence(error)), None
        return cluster_state(summary(latest_snapshot)), latest_snapshot

    def _read_trail(self, name: str) -> dict[str, Any]:
        with self._lock:
            happenings = self._happenings.get(name, Happenings())
            try:
                trail_entries = self._ports.clusters.trail(name, happenings.since(self._ports.clock() - self._history))
            except ControllerError as error:
                return {"problem": sentence(error), "latest": happenings.latest}
            happenings = self._happenings[name] = happenings.with_new(trail_entries)
        return {"problem": "", "latest": happenings.latest}


def pools(read_inputs: Callable[[], Inputs]) -> dict[str, Any]:
    """The data of `dyntrain pool plan --json`, without the plan's inputs."""
    try:
        inputs = read_inputs()
    except ControllerError as error:
        return {"problem": sentence(error), "sum": [], "pools": []}
    plan_data = pool_plan_data(plan_pools(inputs), inputs)
    return {"problem": plan_data["problem"] or "", "sum": plan_data["sum"], "pools": plan_data["pools"]}


class LogTails:  # the newest lines of logs
    """The newest lines of the nodes' logs. The most recently viewed logs stay open, so that only new lines of open logs
    are read.
    """

    def __init__(self, source_of: Callable[[str, str, str], Source]) -> None:
        self._source_of = source_of
        self._lock = threading.Lock()
        self._open: dict[tuple[str, str, str], _LogTail] = {}

    def lines(self, cluster: str, instance: str, kind: str) -> dict[str, Any]:
        log_key = (cluster, instance, kind)
        try:
            with self._lock:
                log_tail = self._open.pop(log_key) if log_key in self._open else _LogTail(self._source_of(*log_key))
                self._open[log_key] = log_tail  # now the newest entry
                for oldest_key in list(self._open)[:-MAX_OPEN_LOGS]:
                    del self._open[oldest_key]
            return {"problem": "", "lines": log_tail.read()}
        except ControllerError as error:
            return {"problem": sentence(error), "lines": []}


class _LogTail:  # the newest lines of one log
    def __init__(self, source: Source) -> None:
        self._source, self._lock = source, threading.Lock()
        self._lines: deque[str] = deque(maxlen=MAX_LOG_LINES)

    def read(self) -> list[str]:
        with self._lock:
            self._lines.extend(line.text for line in self._source.next())
            return list(self._lines)


def log_of(cluster: str, instance: str, kind: str, now: float, directory: Path | None) -> Source:
    """Choose the source of a node's log lines: CloudWatch Logs, or the files of an emulated AWS in `directory`. Raises
    ControllerError.
    """
    line_filter = LineFilter(cluster, None, frozenset([instance]), frozenset([kind]))
    if directory is not None:
        return FromFiles(directory, line_filter, now - LOG_HISTORY_SECONDS)
    from dyntrain.controller.adapters.aws import Clients
    from dyntrain.controller.adapters.logs import CloudWatchLogs

    return FromCloudWatch(CloudWatchLogs(Clients(attempts=2)), line_filter, now - LOG_HISTORY_SECONDS)


def sentence(error: ControllerError) -> str:
    error_text = " ".join(str(error).split())
    return f"AWS cannot be reached or is busy: {error_text}" if isinstance(error, RetryLater) else error_text
