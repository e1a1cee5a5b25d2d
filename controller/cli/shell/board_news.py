"""Read a job's new entries for TensorBoard, from the job's events file or from the job's reports in AWS."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from dyntrain.controller.cli.shell.named_job import file_errors_as_give_up, is_file_name, latest_report

if TYPE_CHECKING:
    from dyntrain.training.report.board import Entry

REPORT_SECONDS = 15.0  # between two reads of a job's report from AWS


class JobNews(Protocol):  # a source of new entries
    """A source of a job's entries for TensorBoard."""

    name: str  # of the job
    over: bool  # the job's end was among the entries returned so far

    def next(self) -> Iterable[Entry]:
        """The job's entries that are new since the last call. Raises GiveUp if the job cannot be read, and RetryLater
        while AWS is unreachable.
        """
        ...


def news_of(job: str | None) -> JobNews:
    """Return the source of a job's entries for TensorBoard. The argument `job` is the job's events file, folder, name
    or cluster, or None for the only job.
    """
    return _FileNews(Path(job)) if job is not None and is_file_name(job) else _ReportNews(job)


class _FileNews:  # entries from an events file
    def __init__(self, job: Path) -> None:
        from dyntrain.training.ledger import EventTail
        from dyntrain.training.report.board import Board
        from dyntrain.training.report.source import events_file

        self._file = events_file(job)
        self._tail, self._board = EventTail(self._file), Board()
        self.name, self.over = self._file.resolve().parent.name, False

    def next(self) -> Iterable[Entry]:
        with file_errors_as_give_up(self._file):
            entries = [entry for event in self._tail.next() for entry in self._board.entries_of(event)]
        self.over = self._board.over
        return entries


class _ReportNews:  # entries from a job's reports in AWS
    def __init__(self, job: str | None) -> None:
        self.name, self.over = latest_report(job).job, False
        self._last_time = self._last_read = 0.0

    def next(self) -> Iterable[Entry]:
        from dyntrain.training.report.board import entries_of_history, latest_time

        if self._last_read and time.monotonic() - self._last_read < REPORT_SECONDS:
            return ()
        self._last_read = time.monotonic()
        report = latest_report(self.name)
        self.over = report.state in ("finished", "failed")
        if report.history is None:
            return ()
        previous_time, self._last_time = self._last_time, max(self._last_time, latest_time(report.history))
        return list(entries_of_history(report.history, previous_time))
