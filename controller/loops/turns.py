"""A lock for each cluster (its turn), so that only one run at a time announces the statuses of the cluster's nodes in
tags, log and audit trail.

EC2's tags have no compare-and-set. If two runs overlapped, the slower run could overwrite a newer status with an older
status. A run with statuses to announce first takes the cluster's lock, and then reads the facts again. If another run
holds the lock, a run leaves its instances to the run that holds the lock. Before it releases the lock, the run that
holds the lock handles the instances that other runs left.

A run holds the lock for at most TURN_SECONDS. If the run that holds the lock dies or hangs, the next run also handles
the instances that were left to the dead run. A run writes no status tag after its hold on the lock has ended.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from dyntrain.controller.contract.errors import Conflict, RetryLater
from dyntrain.controller.loops.ports import Ports

TURN_SECONDS = 30.0  # a run holds the lock for at most this time
REQUEST_EFFECT_SECONDS = 5.0  # a request takes effect within this time, or never
ATTEMPTS = 8  # of a conditional write


class StatusLock:
    """A cluster's lock for announcing statuses, as one run sees the lock. `left` contains the instances that were left
    to earlier holders of the lock and are not yet handled.
    """

    def __init__(self, ports: Ports, cluster: str) -> None:
        self._ports, self._cluster = ports, cluster
        self._number: int | None = None
        self._until = 0.0
        self.left: frozenset[str] = frozenset()

    @property
    def held_by_this_run(self) -> bool:
        return self._number is not None

    def take_lock(self, instance_ids: Iterable[str], *, wanted: bool) -> bool:
        """If `wanted`, take the lock unless another run holds the lock. Returns whether this run holds the lock. If
        another run holds the lock, the instances `instance_ids` are left to the other run, which may have read an older
        state of the instances. Raises RetryLater.
        """
        for _ in range(ATTEMPTS):
            stored_lock, now = self._ports.clusters.turn(self._cluster), self._ports.clock()
            is_free, new_lock = stored_lock.until <= now, stored_lock
            if not is_free:
                new_lock = replace(stored_lock, left=stored_lock.left | frozenset(instance_ids))
            elif wanted:
                new_lock = replace(
                    stored_lock, number=stored_lock.number + 1, until=now + TURN_SECONDS, left=frozenset()
                )
            try:
                if new_lock != stored_lock:
                    self._ports.clusters.put_turn(self._cluster, new_lock)
            except Conflict:
                continue
            if is_free and wanted:
                self._number, self._until, self.left = new_lock.number, new_lock.until, stored_lock.left
            return self.held_by_this_run
        raise self._busy_error()

    @property
    def until(self) -> float:
        """The time after which this run may send no more requests that write status tags."""
        return self._until - REQUEST_EFFECT_SECONDS

    def release_lock(self, *, done: bool) -> frozenset[str]:
        """Release the lock. If `done` is set, returns the instances that other runs left to this run. If `done` is not
        set, the instances that other runs left wait for the next run that takes the lock. Raises RetryLater.
        """
        if not self.held_by_this_run:
            return frozenset()
        for _ in range(ATTEMPTS):
            stored_lock = self._ports.clusters.turn(self._cluster)
            if stored_lock.number != self._number:
                return frozenset()
            deferred_instances = frozenset[str]() if done else stored_lock.left | self.left
            try:
                self._ports.clusters.put_turn(self._cluster, replace(stored_lock, until=0.0, left=deferred_instances))
            except Conflict:
                continue
            self._number = None
            return stored_lock.left if done else frozenset()
        raise self._busy_error()

    def _busy_error(self) -> RetryLater:
        return RetryLater(f"other runs wrote the turn of {self._cluster} {ATTEMPTS} times in a row")
