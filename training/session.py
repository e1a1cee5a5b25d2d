"""The coordinator's state machine: what happened goes in, orders come out; no clock, no socket, no file.

A generation lives through: WAITING (nobody formed) -> FORMING (orders are out) -> TRAINING -> at each boundary TRAINING again, or FORMING the next
one -> OVER. A loss that may leave others blocked inside ps-lite leads back to WAITING: their supervisors kill and restart the workers,
and the next generation starts from the last commit.

Callers feed every event through a method with `now` (seconds), and carry out the returned orders in order.
"""

from __future__ import annotations

from dataclasses import dataclass

from controller.contract import Target
from training.decisions import Decisions
from training.knowledge import Phase
from training.orders import Announce, DropWorker, Journal, Order, ToNode, ToWorker
from training.planning import Node
from training.protocol import (
    CheckIn,
    CommitFailed,
    Committed,
    CommitUnreadable,
    FirstStep,
    Formed,
    GroupFailed,
    GroupReady,
    Listed,
    NodeHello,
    NodeNotice,
    Proceed,
    Progress,
    Pumped,
    Retire,
    StepStatus,
    Welcome,
    WorkerExited,
    WorkerHello,
)


@dataclass
class Session(Decisions):
    """Made by `recovered`, also for a job that has no journal yet."""

    # ---- who is there

    def node_connected(self, hello: NodeHello, now: float) -> list[Order]:
        earlier_life = self.group_hosts.get(hello.instance_id, hello.attempt) != hello.attempt
        self.hosts_absent.pop(hello.instance_id, None)
        self.roster.nodes[hello.instance_id] = Node(hello)
        listed = self.target is not None and hello.instance_id in (self.target.members or ())
        orders: list[Order] = [
            ToNode(hello.instance_id, Welcome(job=self.options.job)),
            ToNode(hello.instance_id, Listed(listed=listed)),
            Announce("node_ready", {"instance": hello.instance_id, "attempt": hello.attempt}),
        ]
        orders += self.roster.end_again(hello.instance_id, hello.worker_pid)
        if self.phase is Phase.OVER:
            orders.append(ToNode(hello.instance_id, Retire(reason="job finished")))
        elif earlier_life and self._formed:
            orders += self._restart(f"{hello.instance_id} started again without its ps-lite processes", now)
        return orders + self._advance(now)

    def node_lost(self, instance: str, now: float) -> list[Order]:
        """The supervisor's connection is gone. Its worker may still train: the worker's own connection tells."""
        self.roster.nodes.pop(instance, None)
        orders: list[Order] = [Announce("node_lost", {"instance": instance})]
        if instance in self.group_hosts:
            self.hosts_absent[instance] = now
        if self.phase is Phase.RELEASING and instance in self.group_hosts:
            orders += self._restart(f"{instance} was lost with its ps-lite server", now)
        return orders

    def group_ready(self, instance: str, message: GroupReady, now: float) -> list[Order]:
        if node := self.roster.nodes.get(instance):
            node.group = message
        return self._advance(now)

    def group_failed(self, instance: str, message: GroupFailed, now: float) -> list[Order]:
        if self.generation is None or message.generation != self.generation.number or self.phase is Phase.WAITING:
            return []
        return self._restart(f"ps-lite process on {instance}: {message.reason}", now)

    def worker_connected(self, hello: WorkerHello, now: float) -> list[Order]:
        instance = hello.instance_id
        if hello.generation is not None:
            return self._worker_back(hello, now)
        orders: list[Order] = []
        if hello.pid != self.roster.pid(instance):
            # Without the order to drop: the earlier connection is closed already, this one must not be.
            lost = self.worker_lost(instance, self.roster.pid(instance), "another worker of the node connected", now)
            orders += [order for order in lost if not isinstance(order, DropWorker) or order.instance_id != instance]
        if problem := self.roster.problem(hello):
            return [*orders, DropWorker(instance, problem), Announce("worker_refused", {"instance": instance, "reason": problem})]
        self.roster.standing[instance] = hello
        orders.append(Announce("worker_ready", {"instance": instance, "pid": hello.pid}))
        if self.phase is Phase.RECOVERING and self.generation is not None and instance in self.generation.instances:
            # Its member of the generation died while there was no coordinator to hear of it: the others wait for it inside ps-lite.
            return orders + self._restart(f"{instance} has a new worker, its member of generation {self.number} is gone", now)
        return orders + self._advance(now)

    def _worker_back(self, hello: WorkerHello, now: float) -> list[Order]:
        """A worker that is in the middle of training: it is a member of the present generation, or of none any more."""
        instance = hello.instance_id
        known = self.roster.members.get(instance)
        if (
            self.generation is None
            or hello.generation != self.number
            or instance not in self.generation.instances
            or (known and known.pid != hello.pid)
        ):
            reason = f"generation {hello.generation} is over; start afresh"
            self.roster.revived[instance] = hello.pid  # no fault of the node's: its training thread may be blocked inside ps-lite
            return [DropWorker(instance, reason), *self.roster.end_again(instance, hello.pid, reason)]
        self.roster.absent.pop(instance, None)
        self.roster.members[instance] = hello
        if self.phase is Phase.RECOVERING and set(self.roster.members) == set(self.generation.instances):
            self.phase, self.since, self.heard, self.active = Phase.TRAINING, now, now, set(self.roster.members)
            orders: list[Order] = [Announce("recovered", {"generation": self.number, "members": list(self.generation.instances)})]
            orders += [ToWorker(formed, Proceed(generation=self.number)) for formed in self.formed]
            return orders + self._advance(now)
        return self._advance(now)

    def worker_disconnected(self, instance: str, pid: int, now: float) -> list[Order]:
        """The connection is gone; the process may be too, which its supervisor would say, or it connects again."""
        if pid == self.roster.pid(instance):
            if instance in self.roster.standing:
                self.roster.standing.pop(instance)
                return [Announce("worker_lost", {"instance": instance, "pid": pid, "reason": "connection closed"})]
            self.roster.absent.setdefault(instance, now)
        return []

    def worker_lost(self, instance: str, pid: int | None, reason: str, now: float) -> list[Order]:
        """The worker's connection or process is gone; a notice about an earlier process (`pid`) changes nothing."""
        if pid is None or pid != self.roster.pid(instance):
            return []
        self.roster.absent.pop(instance, None)
        orders: list[Order] = [DropWorker(instance, reason)]
        if self.roster.leaving.pop(instance, None):
            return [*orders, *self._finish(now)]
        orders.append(Announce("worker_lost", {"instance": instance, "pid": pid, "reason": reason}))
        if self.roster.standing.pop(instance, None):
            return [*orders, *self._revive(instance, pid, reason, now)]
        self.roster.members.pop(instance)
        if self.phase is Phase.TRAINING and instance in self.checked_in:
            # Its last step is in, so nobody can be blocked: the next generation just goes without it.
            return [*orders, *self._revive(instance, pid, reason, now), *self._advance(now)]
        orders += self._revive(instance, pid, reason, now)
        if self.phase is Phase.TRAINING:
            return orders + self._release(instance, reason, now)
        if self.phase is Phase.RELEASING and self.release is not None and self.roster.members:
            return orders + self.release.lost(instance, self.roster.members) + self._advance(now)
        return orders + self._restart(f"worker on {instance} lost: {reason}", now)

    def worker_exited(self, instance: str, message: WorkerExited, now: float) -> list[Order]:
        known = self.roster.pid(instance)
        if known == message.pid:
            return self.worker_lost(instance, message.pid, message.reason, now)
        if known is None and self.phase is not Phase.OVER:
            return self._revive(instance, message.pid, message.reason, now)
        return []

    def node_notice(self, instance: str, message: NodeNotice, now: float) -> list[Order]:
        """Said for people and programs: the controller hears it from the node too, and puts the deadline into the target."""
        return [Announce("node_notice", {"instance": instance, "kind": message.kind, "deadline": message.deadline})]

    # ---- what the workers say

    def check_in(self, instance: str, message: CheckIn, now: float) -> list[Order]:
        if not self._current(instance, message.generation) or self.phase not in (Phase.TRAINING, Phase.RECOVERING):
            return []
        self.heard = now
        if message.position == self.proceeded:  # the word to step on from here was lost with a connection, or this worker asks twice
            return [ToWorker(instance, Proceed(generation=self.number))]
        if not self.checked_in:
            self.since = now
        self.checked_in[instance] = message
        return self._advance(now)

    def worker_formed(self, instance: str, message: Formed, now: float) -> list[Order]:
        if not self._current(instance, message.generation):
            return []
        if self.phase is Phase.TRAINING:  # the coordinator came back in the middle of a formation that it had journaled
            return [ToWorker(instance, Proceed(generation=self.number))]
        self.formed[instance] = message
        return self._finish_formation(now)

    def worker_left(self, instance: str, now: float) -> list[Order]:
        if not (hello := self.roster.leaving.pop(instance, None)):
            return []
        self.roster.left[instance] = hello.pid
        orders: list[Order] = [Announce("left", {"instance": instance, "pid": hello.pid, "generation": self.number, "at": now})]
        return orders + self._call_back() + self._finish(now)

    def first_step(self, instance: str, message: FirstStep, now: float) -> list[Order]:
        if not self._current(instance, message.generation):
            return []
        self.heard = now
        joined = instance not in self.active
        self.active.add(instance)
        self.first_steps[instance] = message
        orders: list[Order] = []
        if joined:
            orders.append(
                Announce(
                    "joined",
                    {
                        "instance": instance,
                        "pid": self.roster.pid(instance),
                        "generation": message.generation,
                        "epoch": self.position.epoch,
                        "at": now,
                    },
                )
            )
        paused = [step for step in self.first_steps.values() if step.pause is not None]
        if len(self.first_steps) == len(self.roster.members) and paused:
            longest = max(paused, key=lambda step: step.pause or 0.0)
            orders.append(Announce("pause", {"generation": message.generation, "seconds": longest.pause, "phases": longest.phases}))
        return orders

    def committed(self, instance: str, message: Committed, now: float) -> list[Order]:
        # One of the same step is newer all the same: old ones are deleted by their generation.
        if message.generation <= self.void_until or (self.commit and message.position.step < self.commit[0].step):
            return []
        self.note_commit(message.position, message.name)
        record = {"kind": "commit", "generation": message.generation, "position": message.position.model_dump(), "name": message.name}
        return [Journal(record)]

    def commit_failed(self, instance: str, message: CommitFailed, now: float) -> list[Order]:
        return [Announce("commit_failed", {"instance": instance, "step": message.position.step, "reason": message.reason})]

    def commit_unreadable(self, instance: str, message: CommitUnreadable, now: float) -> list[Order]:
        """What the source was to load is damaged: the commit before it is taken, at its own position. What was trained in between is void."""
        if not self._current(instance, message.generation) or self.phase is not Phase.FORMING or not self.commit or self.commit[1] != message.name:
            return []
        lost = self.commit[0]
        self.drop_commit()
        found = self.commit[0] if self.commit else None
        record = {"name": message.name, "position": lost.model_dump(), "instead": found and found.model_dump(), "reason": message.reason}
        orders: list[Order] = [Journal({"kind": "commit_unreadable", **record, "at": now}), Announce("commit_unreadable", record)]
        if found is None and lost.step:
            return orders + self._fail(f"no readable commit is left to go on from: {message.reason}", now)
        return orders + self._restart(message.reason, now)

    def progressed(self, instance: str, message: Progress, now: float) -> list[Order]:
        if self._current(instance, message.generation):
            self.progress[instance], self.heard = message, now
        return []

    def step_status(self, instance: str, message: StepStatus, now: float) -> list[Order]:
        if self.release is None or not self._current(instance, message.generation):
            return []
        return self.release.said(instance, message, self.roster.members) + self._advance(now)

    def pumped(self, instance: str, message: Pumped, now: float) -> list[Order]:
        if self.release is None or not self._current(instance, message.generation):
            return []
        return self.release.pumped(instance, self.roster.members)

    # ---- what the controller says, and time

    def new_target(self, target: Target, now: float) -> list[Order]:
        """A revision below the one in force is refused: it is an old read."""
        if self.target is not None and target.revision < self.target.revision:
            return []
        before = set(self.target.members or ()) if self.target else set()
        after = set(target.members or ())
        changed = [instance for instance in self.roster.nodes if (instance in before) != (instance in after)]
        self.target = target
        orders: list[Order] = [ToNode(instance, Listed(listed=instance in after)) for instance in changed]
        return orders + self._call_back() + self._advance(now)

    def tick(self, now: float) -> list[Order]:
        if self.phase is not Phase.RECOVERING and (instance := self.roster.overdue(self.options.reconnect_grace, now)):
            return self.worker_lost(instance, self.roster.pid(instance), f"no connection for {self.options.reconnect_grace:.0f} s", now)
        if self._formed and (hosts := [i for i, since in self.hosts_absent.items() if now - since > self.options.liveness_seconds]):
            return self._restart(f"no word from {', '.join(hosts)}, where ps-lite processes run, for {self.options.liveness_seconds:.0f} s", now)
        if self.phase is Phase.TRAINING and now - max(self.heard, self.since) > self.options.progress_seconds:
            return self._restart(f"nobody made progress for {self.options.progress_seconds:.0f} s", now)
        if self.phase is Phase.RECOVERING and now - self.since > self.options.start_grace:
            return self._restart("not all members came back to the restarted coordinator", now)
        if self.phase is Phase.RELEASING and self.release and self.release.verdict is None and now - self.since > self.options.release_seconds:
            return self._restart(f"the survivors were not free within {self.options.release_seconds:.0f} s", now)
        if self.phase is Phase.FORMING and now - self.since > self.options.formation_seconds:
            absent = ", ".join(sorted(set(self.roster.members) - set(self.formed)))
            return self._restart(f"generation {self.number} not formed within {self.options.formation_seconds:.0f} s; waited for {absent}", now)
        if self.roster.leaving and now - self.since > self.options.formation_seconds:
            instance = next(iter(self.roster.leaving))
            return self.worker_lost(instance, self.roster.pid(instance), f"did not leave within {self.options.formation_seconds:.0f} s", now)
        late = ", ".join(sorted(set(self.roster.members) - set(self.checked_in)))
        if self.phase is Phase.TRAINING and self.checked_in and late and now - self.since > self.options.boundary_seconds:
            return self._restart(f"{late} not at the boundary within {self.options.boundary_seconds:.0f} s of the first", now)
        return self._advance(now)
