"""What jobs need of the world. Errors are those of `loops.ports`."""

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
    """`version` is what a conditional write must still find; 0: there is no item yet."""

    record: JobRecord
    version: int


class JobRecords(Protocol):
    def get(self, name: str) -> StoredJob | None:
        """A consistent read."""

    def put(self, stored: StoredJob, *, over: bool) -> None:
        """Write over `stored.version`. `over`: it is not looked at any more; an elastic job never is. Raises
        Conflict.
        """

    def live(self) -> Sequence[StoredJob]:
        """Those that are to be looked at; by the index, so a moment old. One that cannot be read is passed over."""

    def all(self) -> Sequence[StoredJob]:
        """Ended ones too; for people, since it reads the whole table."""

    def delete(self, stored: StoredJob) -> None:
        """Of a job that never had a machine: its name is free again. Raises Conflict."""


class JobMachines(Protocol):
    def of_runs(self, tokens: Iterable[str]) -> Sequence[Machine]:
        """All instances that were launched with one of the client tokens, as far as EC2 still shows them."""

    def terminate(self, instances: Sequence[str]) -> Batch: ...


class JobResults(Protocol):
    def verdict(self, record: JobRecord) -> Exit | None:
        """None also where it cannot be read."""

    def codes(self, record: JobRecord, ranks: Iterable[int]) -> Mapping[int, int | None]:
        """Of those ranks that have ended."""


@dataclass(frozen=True)
class JobPorts:
    records: JobRecords
    machines: JobMachines
    results: JobResults
    clock: Callable[[], float]
