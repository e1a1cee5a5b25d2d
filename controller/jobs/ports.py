"""Interfaces to AWS for jobs, which raise the same errors as the interfaces in `loops.ports`."""

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
    """A job's record. A conditional write requires that the table's item still has the version `version`."""

    record: JobRecord
    version: int  # of the table's item; 0 if no item exists yet


class JobRecords(Protocol):
    def get(self, name: str) -> StoredJob | None:
        """Read the job's record with a strongly consistent read."""

    def put(self, stored: StoredJob, *, over: bool) -> None:
        """Replace the record of version `stored.version`. `over` says that the resync does not need to check the job
        (any more). Raises Conflict.
        """

    def live_jobs(self) -> Sequence[StoredJob]:
        """The jobs to check, from an index that may be slightly out of date. Records that cannot be read are
        skipped.
        """

    def all(self) -> Sequence[StoredJob]:
        """All jobs, including ended jobs. This reads the whole table, so only people's commands call it."""

    def delete(self, stored: StoredJob) -> None:
        """Delete the record of a job that never had a machine, so that its name is free again. Raises Conflict."""


class JobMachines(Protocol):
    def of_runs(self, tokens: Iterable[str]) -> Sequence[Machine]:
        """All instances launched with one of the client tokens, as far as EC2 still shows them."""

    def terminate(self, instances: Sequence[str]) -> Batch: ...


class JobResults(Protocol):
    def verdict(self, record: JobRecord) -> Exit | None:
        """The exit that is stored for the whole run, or None if no exit is stored or it cannot be read."""

    def exit_codes(self, record: JobRecord, ranks: Iterable[int]) -> Mapping[int, int | None]:
        """The exit code of each rank that has ended, by rank."""


@dataclass(frozen=True)
class JobPorts:
    records: JobRecords
    machines: JobMachines
    results: JobResults
    clock: Callable[[], float]
