"""The turn is a lock, so that only one run at a time announces the statuses of a cluster's nodes in tags, log and audit
trail.

EC2's tags have no compare-and-set. If two runs overlapped, the slower run could overwrite a newer status with an older
status. A run with statuses to announce first takes the cluster's turn, and then reads the facts again. If another run
has the turn, a run leaves its instances to the run that has the turn. The run that has the turn handles the left
instances before ending.

A turn lasts at most TURN_SECONDS. If the run that has the turn dies or hangs, the next run also handles the instances
that were left to the dead run. A run writes no status tag after the end of its turn.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from dyntrain.controller.contract.errors import Conflict, RetryLater
from dyntrain.controller.loops.ports import Ports

TURN_SECONDS = 30.0  # limit of a turn
REQUEST_EFFECT_SECONDS = 5.0  # a request takes effect within this time, or never
ATTEMPTS = 8  # of a conditional write


class Turn:
    """One run's turn to announce statuses. `left` contains the instances that were left to earlier turns and are not
    yet handled.
    """

    def __init__(self, ports: Ports, cluster: str) -> None:
        self._ports, self._cluster = ports, cluster
        self._number: int | None = None
        self._until = 0.0
        self.left: frozenset[str] = frozenset()

    @property
    def is_taken(self) -> bool:
        return self._number is not None

    def take(self, instance_ids: Iterable[str], *, wanted: bool) -> bool:
        """If `wanted`, take the turn unless another run has the turn. Returns whether this run has the turn. If another
        run has the turn, the instances `instance_ids` are left to the other run, which may have read an older state of
        the instances. Raises RetryLater.
        """
        for _ in range(ATTEMPTS):
            stored_turn, now = self._ports.clusters.turn(self._cluster), self._ports.clock()
            is_free, new_turn = stored_turn.until <= now, stored_turn
            if not is_free:
                new_turn = replace(stored_turn, left=stored_turn.left | frozenset(instance_ids))
            elif wanted:
                new_turn = replace(
                    stored_turn, number=stored_turn.number + 1, until=now + TURN_SECONDS, left=frozenset()
                )
            try:
                if new_turn != stored_turn:
                    self._ports.clusters.put_turn(self._cluster, new_turn)
            except Conflict:
                continue
            if is_free and wanted:
                self._number, self._until, self.left = new_turn.number, new_turn.until, stored_turn.left
            return self.is_taken
        raise self._busy_error()

    @property
    def until(self) -> float:
        """The time after which this run may send no more requests that write status tags."""
        return self._until - REQUEST_EFFECT_SECONDS

    def end(self, *, done: bool) -> frozenset[str]:
        """End the turn. If `done` is set, returns the instances that other runs left to this run. If `done` is not set,
        the instances that other runs left to this run wait for the next turn. Raises RetryLater.
        """
        if not self.is_taken:
            return frozenset()
        for _ in range(ATTEMPTS):
            stored_turn = self._ports.clusters.turn(self._cluster)
            if stored_turn.number != self._number:
                return frozenset()
            left_instances = frozenset[str]() if done else stored_turn.left | self.left
            try:
                self._ports.clusters.put_turn(self._cluster, replace(stored_turn, until=0.0, left=left_instances))
            except Conflict:
                continue
            self._number = None
            return stored_turn.left if done else frozenset()
        raise self._busy_error()

    def _busy_error(self) -> RetryLater:
        return RetryLater(f"other runs wrote the turn of {self._cluster} {ATTEMPTS} times in a row")
