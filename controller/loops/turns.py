"""One run at a time announces the statuses of a cluster's instances: in tags, log and audit trail.

EC2's tags have no compare-and-set. Of two overlapping runs the slower would write what it decided before the faster one
read: a status that goes back. So a run with something to announce takes the cluster's turn first, and reads again what
it decides by. A run that finds the turn taken leaves its instances to the other run, which handles them before it ends.

A turn is short: after a run that died or hangs, the next one takes over with all that was left to it, and no tag is
written after a turn's end.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from dyntrain.controller.contract.errors import Conflict, RetryLater
from dyntrain.controller.loops.ports import Ports

TURN_SECONDS = 30.0
LANDING_SECONDS = 5.0  # a request sent has taken effect by then, or never will
ATTEMPTS = 8


class Turn:
    """One run's turn. `left`: instances that others left to whoever has the turn next."""

    def __init__(self, ports: Ports, cluster: str) -> None:
        self._ports, self._cluster = ports, cluster
        self._number: int | None = None
        self._until = 0.0
        self.left: frozenset[str] = frozenset()

    @property
    def mine(self) -> bool:
        return self._number is not None

    def take(self, news: Iterable[str], *, wanted: bool) -> bool:
        """Whether this run has the turn, which it takes if it is `wanted`. Otherwise the instances with `news` are left
        to the run that has it, even when this run has nothing to announce: the other may have read the older state.
        Raises RetryLater.
        """
        for _ in range(ATTEMPTS):
            stored, now = self._ports.clusters.turn(self._cluster), self._ports.clock()
            free, after = stored.until <= now, stored
            if not free:
                after = replace(stored, left=stored.left | frozenset(news))
            elif wanted:
                after = replace(stored, number=stored.number + 1, until=now + TURN_SECONDS, left=frozenset())
            try:
                if after != stored:
                    self._ports.clusters.put_turn(self._cluster, after)
            except Conflict:
                continue
            if free and wanted:
                self._number, self._until, self.left = after.number, after.until, stored.left
            return self.mine
        raise self._busy()

    @property
    def until(self) -> float:
        """The deadline after which nothing may be sent."""
        return self._until - LANDING_SECONDS

    def end(self, *, done: bool) -> frozenset[str]:
        """End the turn. Returns the instances left to this run meanwhile, if it is `done`; else they wait, with the
        earlier ones, for the next turn. Raises RetryLater.
        """
        if not self.mine:
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
        raise self._busy()

    def _busy(self) -> RetryLater:
        return RetryLater(f"the turn at {self._cluster} was asked for by others {ATTEMPTS} times in a row")
