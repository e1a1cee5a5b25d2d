"""Read a job's new log lines from CloudWatch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from dyntrain.controller.adapters.logs import LogLine
from dyntrain.controller.contract.job_files import LOG_GROUP, log_stream
from dyntrain.controller.jobs.record import JobRecord

OVERLAP_SECONDS = 60.0  # CloudWatch shows lines late and out of order, by up to this time


class Logs(Protocol):  # of CloudWatch
    def streams(self, group: str, prefix: str) -> list[str]: ...  # names of CloudWatch log streams

    def lines(self, group: str, streams: list[str], since: float) -> Iterator[LogLine]: ...


class JobLog:
    """A source of the log lines of a job's current attempt, either of all ranks or of one rank. Each log line is
    returned only once.
    """

    def __init__(self, logs: Logs, record: JobRecord, rank: int | None) -> None:
        ranks = range(record.nodes) if rank is None else (rank,)
        self._wanted = {log_stream(record.name, rank) for rank in ranks}
        self._logs, self._name, self._since = logs, record.name, record.since
        self._shown: dict[str, float] = {}

    def next(self) -> Iterator[LogLine]:
        """The log lines that are new since the last call, oldest first."""
        stream_names = [name for name in self._logs.streams(LOG_GROUP, f"{self._name}_") if name in self._wanted]
        new_lines = [
            line for line in self._logs.lines(LOG_GROUP, stream_names, self._since) if line.id not in self._shown
        ]
        for line in sorted(new_lines, key=lambda line: line.at):
            self._shown[line.id] = line.at
            yield line
        if self._shown:
            self._since = max(self._since, max(self._shown.values()) - OVERLAP_SECONDS)
            self._shown = {line_id: line_time for line_id, line_time in self._shown.items() if line_time >= self._since}
