"""Interfaces to AWS for jobs, with the errors of `loops.ports`."""

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
    """A job's record. A conditional write requires that the item still has `version`; 0: no item exists yet."""

    record: JobRecord
    version: int


class JobRecords(Protocol):
    def get(self, name: str) -> StoredJob | None:
        """Read one record, consistently."""

    def put(self, stored: StoredJob, *, over: bool) -> None:
        """Write over `stored.version`. `over`: the resync need not check the job any more, or at all. Raises
        Conflict.
        """

    def live(self) -> Sequence[StoredJob]:
        """Jobs to check, by the index, which may be slightly stale. Records that cannot be read are skipped."""

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
        """How the run ended; None if that is not stored, or cannot be read."""

    def codes(self, record: JobRecord, ranks: Iterable[int]) -> Mapping[int, int | None]:
        """Exit codes by rank, of the ranks that have ended."""


@dataclass(frozen=True)
class JobPorts:
    records: JobRecords
    machines: JobMachines
    results: JobResults
    clock: Callable[[], float]
