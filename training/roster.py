"""Who is there: nodes, workers that stand ready, train, leave, or have lost their connection; and how often each node failed."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from training.orders import Announce, Order, ToNode
from training.planning import Node, disagreement
from training.protocol import RestartWorker, WorkerHello


@dataclass(frozen=True)
class Budget:
    """How many failures of a node's worker are made good within `window` seconds."""

    restarts: int = 5
    window: float = 600.0


@dataclass
class Roster:
    budget: Budget
    nodes: dict[str, Node] = field(default_factory=dict)
    standing: dict[str, WorkerHello] = field(default_factory=dict)
    members: dict[str, WorkerHello] = field(default_factory=dict)  # connected workers of the generation
    leaving: dict[str, WorkerHello] = field(default_factory=dict)
    left: dict[str, int] = field(default_factory=dict)  # nodes whose worker left, with its pid: they may be wanted again
    revived: dict[str, int] = field(default_factory=dict)  # the pid whose loss the node was last told to make good
    given_up: set[str] = field(default_factory=set)
    failures: dict[str, list[float]] = field(default_factory=dict)
    absent: dict[str, float] = field(default_factory=dict)  # workers without a connection, since when

    def pid(self, instance: str) -> int | None:
        for group in (self.members, self.standing, self.leaving):
            if instance in group:
                return group[instance].pid
        return None

    @property
    def epochs(self) -> int:
        return max((hello.epochs for hello in [*self.members.values(), *self.standing.values()]), default=0)

    def problem(self, hello: WorkerHello) -> str | None:
        """Why the worker cannot train with those that are there, or None."""
        return disagreement(hello, [*self.members.values(), *self.standing.values()])

    def overdue(self, grace: float, now: float) -> str | None:
        """A worker that has been without a connection for longer than `grace`."""
        return next((instance for instance, since in self.absent.items() if now - since > grace), None)

    def revive(self, instance: str, pid: int, reason: str, now: float) -> list[Order]:
        """Have the supervisor start the worker again, within the node's budget.

        One loss may be told twice, by connection and by supervisor, or again because the order was lost: it is counted once and ordered each time.
        """
        if instance not in self.nodes or instance in self.given_up:
            return []
        again = ToNode(instance, RestartWorker(pid=pid, reason=reason))
        if self.revived.get(instance) == pid:
            return [again]
        self.revived[instance] = pid
        recent = [at for at in self.failures.get(instance, []) if now - at < self.budget.window]
        self.failures[instance] = [*recent, now]
        if len(recent) >= self.budget.restarts:
            spent = f"{len(recent) + 1} failures in {self.budget.window:.0f} s"
            self.given_up.add(instance)
            return [Announce("given_up", {"instance": instance, "reason": f"{spent}; last: {reason}"})]
        return [again]

    def end_again(self, instance: str, pid: int | None, reason: str = "the order to end was lost") -> list[Order]:
        """For a process that was to be replaced and still runs, perhaps because its node was not connected then."""
        told = pid is not None and self.revived.get(instance) == pid and instance in self.nodes and instance not in self.given_up
        return [ToNode(instance, RestartWorker(pid=pid, reason=reason))] if told and pid is not None else []

    def call_back(self, wanted: Collection[str]) -> list[Order]:
        """A node that left and is wanted again, before the controller took it away, gets a new worker."""
        again = [instance for instance in self.left if instance in wanted and instance in self.nodes]
        return [ToNode(instance, RestartWorker(pid=self.left.pop(instance), reason="wanted again")) for instance in again]

    def dissolve(self) -> dict[str, WorkerHello]:
        """Nobody is a member any more; returns who was, or was leaving."""
        gone = {**self.members, **self.leaving}
        self.members, self.leaving, self.absent = {}, {}, {}
        return gone
