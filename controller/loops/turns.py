"""The turn: a lock, so that one run at a time announces a cluster's statuses, in tags, log and audit trail.

EC2's tags have no compare-and-set. Of two overlapping runs, the slower run could overwrite a newer status with an older
one. So a run with statuses to announce first takes the cluster's turn, and then reads the facts again. If the turn is
taken, a run leaves its instances to the run that has the turn, which handles them before it ends.

A turn is short. After a run that dies or hangs, the next run takes over with the instances left to that run. No tag is
written after a turn's end.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from dyntrain.controller.contract.errors import Conflict, RetryLater
from dyntrain.controller.loops.ports import Ports

TURN_SECONDS = 30.0
LANDING_SECONDS = 5.0  # a request takes effect within this time, or never
ATTEMPTS = 8


class Turn:
    """One run's turn. `left`: instances that other runs left to the next turn, which this run took."""

    def __init__(self, ports: Ports, cluster: str) -> None:
        self._ports, self._cluster = ports, cluster
        self._number: int | None = None
        self._until = 0.0
        self.left: frozenset[str] = frozenset()

    @property
    def is_taken(self) -> bool:
        return self._number is not None

    def take(self, news: Iterable[str], *, wanted: bool) -> bool:
        """Take the turn, if it is `wanted` and free; returns whether this run has it. If another run has the turn, the
        instances in `news` are left to that run, which may have read an older state. Raises RetryLater.
        """
        for _ in range(ATTEMPTS):
            stored, now = self._ports.clusters.turn(self._cluster), self._ports.clock()
            free, new_turn = stored.until <= now, stored
            if not free:
                new_turn = replace(stored, left=stored.left | frozenset(news))
            elif wanted:
                new_turn = replace(stored, number=stored.number + 1, until=now + TURN_SECONDS, left=frozenset())
            try:
                if new_turn != stored:
                    self._ports.clusters.put_turn(self._cluster, new_turn)
            except Conflict:
                continue
            if free and wanted:
                self._number, self._until, self.left = new_turn.number, new_turn.until, stored.left
            return self.is_taken
        raise self._busy_error()

    @property
    def until(self) -> float:
        """The deadline after which nothing may be sent."""
        return self._until - LANDING_SECONDS

    def end(self, *, done: bool) -> frozenset[str]:
        """End the turn. If this run is `done`, returns the instances that other runs left to this run. Otherwise
        all instances left to it wait for the next turn. Raises RetryLater.
        """
        if not self.is_taken:
            return frozenset()
        for _ in range(ATTEMPTS):
            stored = self._ports.clusters.turn(self._cluster)
            if stored.number != self._number:
                return frozenset()
            left = frozenset[str]() if done else stored.left | self.left
            try:
                self._ports.clusters.put_turn(self._cluster, replace(stored, until=0.0, left=left))
            except Conflict:
                continue
            self._number = None
            return stored.left if done else frozenset()
        raise self._busy_error()

    def _busy_error(self) -> RetryLater:
        return RetryLater(f"other runs wrote the turn of {self._cluster} {ATTEMPTS} times in a row")
