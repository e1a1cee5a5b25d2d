"""Ports to the world for jobs. Errors are those of `loops.ports`."""

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
    """A job's record with its `version`, which a conditional write must still find; 0: there is no item yet."""

    record: JobRecord
    version: int


class JobRecords(Protocol):
    def get(self, name: str) -> StoredJob | None:
        """Read one record, consistently."""

    def put(self, stored: StoredJob, *, over: bool) -> None:
        """Write over `stored.version`. `over`: the job needs no more attention; an elastic job never does. Raises
        Conflict.
        """

    def live(self) -> Sequence[StoredJob]:
        """The jobs that need attention; by the index, so slightly stale. A record that cannot be read is skipped."""

    def all(self) -> Sequence[StoredJob]:
        """All jobs, ended ones too; for people, because it reads the whole table."""

    def delete(self, stored: StoredJob) -> None:
        """Delete the record of a job that never had a machine, so that its name is free again. Raises Conflict."""


class JobMachines(Protocol):
    def of_runs(self, tokens: Iterable[str]) -> Sequence[Machine]:
        """All instances launched with one of the client tokens, as far as EC2 still shows them."""

    def terminate(self, instances: Sequence[str]) -> Batch: ...


class JobResults(Protocol):
    def verdict(self, record: JobRecord) -> Exit | None:
        """The run's exit; None when there is none, or it cannot be read."""

    def codes(self, record: JobRecord, ranks: Iterable[int]) -> Mapping[int, int | None]:
        """Exit codes by rank, of the ranks that have ended."""


@dataclass(frozen=True)
class JobPorts:
    records: JobRecords
    machines: JobMachines
    results: JobResults
    clock: Callable[[], float]
