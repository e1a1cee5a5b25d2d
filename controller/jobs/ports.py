"""Interfaces between jobs and AWS, whose methods raise the same errors as the interfaces in `loops.ports`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from dyntrain.controller.contract.job_files import Exit
from dyntrain.controller.jobs.record import JobRecord
from dyntrain.controller.jobs.verdict import Machine
from dyntrain.controller.loops.ports import Batch


@dataclass(frozen=True)
class StoredJob:
    """A job's record, with the version of the table item that contains the record. A conditional write succeeds only if
    the table item still has the version `version`.
    """

    record: JobRecord
    version: int  # of the table's item; 0 if no item exists yet


class JobRecords(Protocol):
    def get(self, name: str) -> StoredJob | None:
        """Read the job's record with a strongly consistent read."""

    def put(self, stored: StoredJob, *, over: bool) -> None:
        """Replace the job's stored record if the stored record has the version `stored.version`. `over` says that the
        periodic resync does not need to check the job. Raises Conflict when the stored record has a different version.
        """

    def live_jobs(self) -> Sequence[StoredJob]:
        """The jobs that the periodic resync must check, read from an index of the table that may be slightly out of
        date. Job records that cannot be read are skipped.
        """

    def all(self) -> Sequence[StoredJob]:
        """All jobs, including ended jobs. Only users' commands call `all`, because reading all jobs scans the whole
        table.
        """

    def delete(self, stored: StoredJob) -> None:
        """Delete the record of a job that never had a machine, so that the job's name can be used again. Raises
        Conflict if the stored record has a different version.
        """


class JobMachines(Protocol):
    def of_runs(self, tokens: Iterable[str]) -> Sequence[Machine]:
        """All instances that were launched with one of the client tokens `tokens` and that EC2 still shows."""

    def terminate(self, instances: Sequence[str]) -> Batch: ...


class JobResults(Protocol):
    def verdict(self, record: JobRecord) -> Exit | None:
        """The stored result of the job's whole run, or None if no result is stored or the result cannot be read."""

    def exit_codes(self, record: JobRecord, ranks: Iterable[int]) -> Mapping[int, int | None]:
        """The stored exit code of each rank (machine) of the job's run that has ended, by rank."""


@dataclass(frozen=True)
class JobPorts:
    records: JobRecords
    machines: JobMachines
    results: JobResults
    clock: Callable[[], float]
