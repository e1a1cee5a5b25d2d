"""The nodes and workers of a job: ready, training, leaving or disconnected.

The roster also records each node's failures.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace

from dyntrain.training import events
from dyntrain.training.protocol.messages import WorkerHello
from dyntrain.training.protocol.node_messages import CoolDown, RestartWorker
from dyntrain.training.protocol.slots import names_of, node_of, nodes_of
from dyntrain.training.session.generation.agreement import find_disagreement
from dyntrain.training.session.generation.ps_group import ConnectedNode
from dyntrain.training.session.orders import Announce, Order, ToNode


@dataclass(frozen=True)
class FailureBudget:
    """Limits on the failures of a node's worker.

    After `restarts` immediate restarts within `window` seconds the node cools down: its worker is not restarted.
    Failures older than `window` are still counted while no worker of the node has connected since, because a worker
    that hangs at its start takes a while to fail.

    Each further cool-down takes twice as long as the previous cool-down. The count of cool-downs is reset once the node
    has had no failure for the length of its last cool-down plus `window`. While fewer workers than the job's minimum
    are left, a cool-down takes only `cool_down` seconds. A node that needs a cool-down longer than `give_up_seconds` is
    given up: an elastic node is released, a base node is tried again.
    """

    restarts: int = 5  # number of immediate restarts within `window`
    window: float = 600.0  # seconds for which a failure counts
    cool_down: float = 60.0  # seconds of the first cool-down
    longest_cool_down: float = 3600.0  # seconds of the longest cool-down
    give_up_seconds: float = 600.0  # cool-down in seconds beyond which a node is given up

    def cool_down_seconds(self, earlier_count: int) -> float:
        """Return how many seconds a node's next cool-down takes after `earlier_count` cool-downs."""
        return min(self.longest_cool_down, self.cool_down * 2.0 ** min(earlier_count, 30))


@dataclass
class FailureRecord:
    """A node's failures; announced interruptions of its machine are not included."""

    failures: list[float] = field(default_factory=list)  # times of the failures
    connected_at: float = 0.0  # when a worker of the node last connected
    cooled: int = 0  # number of cool-downs so far
    since: float = 0.0  # start of the last cool-down
    until: float = 0.0  # end of the last cool-down
    pid: int | None = None  # pid of the worker that is restarted after the present cool-down
    reason: str = ""  # reason of the last failure


@dataclass(frozen=True)
class UnconnectedWorker:
    """A worker process without a connection since the time `since`, which must connect before the time `until`."""

    pid: int  # of the worker process
    since: float  # start of the time without a connection
    until: float  # time limit to connect
    spare: bool = False  # whether the worker was a warm spare, started in advance
    stood_by: bool = False  # whether the worker had connected and stood by before


@dataclass
class Roster:
    budget: FailureBudget  # limits on each worker's failures
    nodes: dict[str, ConnectedNode] = field(default_factory=dict)  # nodes whose supervisor is connected
    addresses: dict[str, str] = field(default_factory=dict)  # addresses of all nodes that ever connected
    standing: dict[str, WorkerHello] = field(default_factory=dict)  # workers that wait for a generation
    members: dict[str, WorkerHello] = field(default_factory=dict)  # connected workers of the generation
    leaving: dict[str, WorkerHello] = field(default_factory=dict)  # workers that were ordered to leave
    passing: dict[str, WorkerHello] = field(default_factory=dict)  # workers that skip loops, without the state
    left: dict[str, int | None] = field(default_factory=dict)  # pid of the worker that left, for each node
    replaced: dict[str, int] = field(default_factory=dict)  # pid of the worker that a node was last ordered to replace
    supervisor_ids: dict[str, str] = field(default_factory=dict)  # id of each node's last connected supervisor process
    interrupted: set[str] = field(default_factory=set)  # machines with an interruption notice: no failure counts there
    records: dict[str, FailureRecord] = field(default_factory=dict)  # failures of each node's worker
    absent: dict[str, float] = field(default_factory=dict)  # workers without a connection, with the time of its loss
    connected_at: float = 0.0  # when a node or a worker connected last
    returned_at: float = 0.0  # when a disconnected node or worker last connected again
    unconnected: dict[str, UnconnectedWorker] = field(default_factory=dict)  # started workers that must still connect
    any_stood_by: bool = False  # whether any worker ever stood by
    refused: dict[str, str] = field(default_factory=dict)  # nodes whose worker's script was refused, with the reason
    never_joined: dict[str, str] = field(default_factory=dict)  # nodes whose script never connected, with the reason

    def record_supervisor(self, instance: str, life: str) -> None:
        """Record which supervisor process of the node has connected, by the process's id `life`.

        If the supervisor is a new process, none of the node's earlier processes is left. So a pid that occurs again, as
        after a reboot, belongs to a new process.
        """
        if life and self.supervisor_ids.get(instance, life) != life:
            self.replaced.pop(instance, None)
            if instance in self.left:
                self.left[instance] = None
        self.supervisor_ids[instance] = life

    def pid_of(self, instance: str) -> int | None:
        for workers in (self.members, self.standing, self.leaving, self.passing):
            if instance in workers:
                return workers[instance].pid
        return None

    @property
    def epochs(self) -> int:
        return max((hello.epochs for hello in [*self.members.values(), *self.standing.values()]), default=0)

    def conflict_of(self, hello: WorkerHello) -> str | None:
        """Return the reason why the worker cannot train with the other workers of its loop, or None."""
        other_workers = [*self.members.values(), *self.standing.values()]
        return find_disagreement(hello, [worker for worker in other_workers if worker.loop == hello.loop])

    def add_standing_worker(self, hello: WorkerHello) -> None:
        self.standing[hello.name] = hello
        self.passing.pop(hello.name, None)
        self.unconnected.pop(hello.name, None)
        self.refused.pop(hello.name, None)
        self.never_joined.pop(hello.name, None)
        self.any_stood_by = True

    def ready_nodes(self, loop: int | None = None, besides: Collection[str] = ()) -> list[str]:
        """Return the nodes whose processes can all join the next generation: each process is ready or in `besides`.

        With `loop`, a process is ready only if its script is in this loop over epochs.
        """
        standing_names = [name for name, hello in self.standing.items() if loop is None or hello.loop == loop]
        ready_names = dict.fromkeys([*(name for name in standing_names if not self.is_cooling_down(name)), *besides])
        return [node for node in nodes_of(ready_names) if self.has_all_processes(node, ready_names)]

    def has_all_processes(self, node: str, available: Collection[str]) -> bool:
        return all(name in available for name in self.process_names([node]))

    def process_names(self, nodes: Iterable[str]) -> tuple[str, ...]:
        """The names of all workers of the nodes, in the order of `nodes` and of each node's slots."""
        return tuple(name for node in nodes for name in names_of(node, self._slot_count(node)))

    def _slot_count(self, node: str) -> int:
        connected_node = self.nodes.get(node)
        hello = connected_node.hello if connected_node else self.members.get(node) or self.standing.get(node)
        return hello.slots if hello else 1

    def cooling_record(self, node: str) -> FailureRecord | None:
        """Return the failure record of the node's first worker that is cooling down, or None."""
        return next((self.records[name] for name in self.process_names([node]) if self.is_cooling_down(name)), None)

    def find_overdue_worker(self, grace: float, patience: float, now: float) -> str | None:
        """Return a worker that has been disconnected for too long, or None without such a worker."""
        self.absent = {instance: since for instance, since in self.absent.items() if self.pid_of(instance) is not None}
        return next((name for name, since in self.absent.items() if self.is_overdue(since, grace, patience, now)), None)

    def is_overdue(self, since: float, grace: float, patience: float, now: float) -> bool:
        """Whether a process that lost its connection at the time `since` has been disconnected for too long.

        If hundreds of processes lose their connections at once, they connect again one after another. While processes
        connect again, no process is overdue, for at most `patience` seconds after its disconnection.
        """
        return now > min(max(since, self.returned_at) + grace, since + patience)

    def expect_connection(self, instance: str, pid: int, seconds: float, now: float, spare: bool = False) -> None:
        """Set a limit of `seconds` for the node's process `pid` to connect.

        Do nothing if the process is connected or has left the job. A repeated call for the same process does not extend
        the time limit.
        """
        entry = self.unconnected.get(instance)
        if pid not in (self.pid_of(instance), self.left.get(instance), entry and entry.pid):
            self.unconnected[instance] = UnconnectedWorker(pid, now, now + seconds, spare)

    def record_connection(self, instance: str, now: float) -> UnconnectedWorker | None:
        """Record that a worker connected; remove and return the worker's entry in `unconnected`, or return None."""
        self.connected_at = now
        if self.absent.pop(instance, None) is not None:
            self.returned_at = now
        self.left.pop(instance, None)
        if record := self.records.get(instance):
            record.connected_at = now
        return self.unconnected.pop(instance, None)

    def find_missed_connection(self, now: float) -> tuple[str, UnconnectedWorker] | None:
        """Return a started worker that did not connect before its time limit, or None."""
        return next(((instance, entry) for instance, entry in self.unconnected.items() if now > entry.until), None)

    def extend_deadlines(self, seconds: float) -> None:
        self.connected_at += seconds
        self.returned_at += seconds
        self.absent = {instance_id: since + seconds for instance_id, since in self.absent.items()}
        extended_entries = {
            instance_id: replace(entry, until=entry.until + seconds) for instance_id, entry in self.unconnected.items()
        }
        self.unconnected = extended_entries

    def is_cooling_down(self, instance: str) -> bool:
        record = self.records.get(instance)
        return record is not None and record.pid is not None

    def replace_worker(self, instance: str, pid: int, reason: str, now: float) -> list[Order]:
        """Order the supervisor to replace the worker, within the node's budget of failures.

        If the failures exceed the budget, the node is ordered to cool down instead. The loss of a worker may be
        reported several times: when its connection closes, and by its supervisor. The loss is counted as one failure,
        but each report repeats the order to replace the worker.
        """
        self.unconnected.pop(instance, None)
        if instance not in self.nodes:
            return []
        record = self.records.setdefault(instance, FailureRecord())
        restart_orders: list[Order] = [ToNode(instance, RestartWorker(pid=pid, reason=reason))]
        if self.replaced.get(instance) == pid:
            return [self._cool_down_order(instance, record, now)] if self.is_cooling_down(instance) else restart_orders
        self.replaced[instance] = pid
        if node_of(instance) in self.interrupted:
            return restart_orders
        if self.is_cooling_down(instance):
            record.pid = pid  # the node has started this worker by itself
            return [self._cool_down_order(instance, record, now)]
        if record.cooled and now - record.until > self.budget.window + self.budget.cool_down_seconds(record.cooled - 1):
            record.cooled = 0
        recent_failures = [
            failed_at
            for failed_at in record.failures
            if (now - failed_at < self.budget.window or failed_at > record.connected_at) and failed_at >= record.until
        ]
        record.failures = [*recent_failures, now]
        record.reason = reason
        allowed_restarts = self.budget.restarts if not record.cooled else 0
        if len(record.failures) <= allowed_restarts:
            return restart_orders
        cool_down_seconds = self.budget.cool_down_seconds(record.cooled)
        record.pid, record.since, record.until, record.cooled = pid, now, now + cool_down_seconds, record.cooled + 1
        failure_text = (
            f"{len(record.failures)} failures in {now - record.failures[0]:.0f} s"
            if allowed_restarts
            else "it failed again after its cool-down"
        )
        full_reason = f"{failure_text}; last: {reason}"
        cooling_event = events.CoolingDown(instance=instance, seconds=cool_down_seconds, reason=full_reason, at=now)
        return [Announce(cooling_event), self._cool_down_order(instance, record, now)]

    def _cool_down_order(self, instance: str, record: FailureRecord, now: float) -> Order:
        """Make the order to cool down; without this order, the node would assume that an order to restart was lost."""
        assert record.pid is not None
        node_given_up = record.until - record.since > self.budget.give_up_seconds
        return ToNode(instance, CoolDown(pid=record.pid, seconds=max(0.0, record.until - now), given_up=node_given_up))

    def readmit_nodes(self, now: float, needed: bool) -> list[Order]:
        """Start new workers on nodes whose cool-down is over.

        `needed` says that the job cannot run without the cooling nodes, so the cool-downs are shortened.
        """
        orders: list[Order] = []
        for instance_id, record in self.records.items():
            cool_down_end = min(record.until, record.since + self.budget.cool_down) if needed else record.until
            if record.pid is not None and now >= cool_down_end and instance_id in self.nodes:
                orders.append(Announce(events.Readmitted(instance=instance_id, at=now)))
                orders.append(ToNode(instance_id, RestartWorker(pid=record.pid, reason="its cool-down is over")))
                record.pid, record.until = None, now
        return orders

    def repeat_replacement(
        self, instance: str, pid: int | None, reason: str = "the order to end was lost"
    ) -> list[Order]:
        """Repeat the order to replace a process that still runs, perhaps because its node missed the order."""
        restart_ordered = (
            pid is not None
            and self.replaced.get(instance) == pid
            and instance in self.nodes
            and not self.is_cooling_down(instance)
        )
        return [ToNode(instance, RestartWorker(pid=pid, reason=reason))] if restart_ordered and pid is not None else []

    def call_back_nodes(self, wanted: Collection[str]) -> list[Order]:
        """Start a new worker on each connected node that the target wants again after the node's worker has left."""
        returning_nodes = [instance for instance in self.left if node_of(instance) in wanted and instance in self.nodes]
        return [
            ToNode(instance_id, RestartWorker(pid=self.left.pop(instance_id), reason="wanted again"))
            for instance_id in returning_nodes
        ]

    def remove_members(self) -> dict[str, WorkerHello]:
        """Remove all members and all leaving workers from the roster, and return the removed workers."""
        removed_workers = {**self.members, **self.leaving}
        self.members, self.leaving, self.absent = {}, {}, {}
        return removed_workers
