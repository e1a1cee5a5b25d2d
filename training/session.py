"""The coordinator's state machine: what happened goes in, orders come out; no clock, no socket, no file.

A generation lives through: WAITING (nobody holds the state) or PARKED (its holders wait for a group) -> PREPARING (orders are out) -> FORMING (the
word to go is out) -> TRAINING -> at each boundary TRAINING again, or PREPARING the next one -> OVER. A loss in mid-epoch leads through RELEASING
to PARKED. One that may leave others blocked inside ps-lite leads to WAITING: their supervisors kill and restart the workers, and the next generation
starts from what is safe outside them (`origin`). Messages are lost with connections only, so each (re)connection says again what may have been
lost.

Callers feed every event through a method with `now` (seconds), and carry out the returned orders in order.
"""

from __future__ import annotations

from dataclasses import dataclass

from controller.contract import Target
from training.knowledge import Phase
from training.losses import Losses
from training.orders import Announce, DropWorker, Journal, Order, ToNode, ToWorker
from training.origin import choose_origin
from training.planning import Node
from training.protocol import (
    CheckIn,
    CommitFailed,
    Committed,
    CommitUnreadable,
    FirstStep,
    Formed,
    Go,
    GroupFailed,
    GroupReady,
    Leave,
    Listed,
    NodeHello,
    NodeNotice,
    Prepared,
    Proceed,
    Progress,
    Pumped,
    Retire,
    StepStatus,
    Verdict,
    Welcome,
    WorkerExited,
    WorkerHello,
    WorkerStarted,
)
from training.roster import Away


@dataclass
class Session(Losses):
    """Made by `recovered`, also for a job that has no journal yet."""

    # ---- who is there

    def node_connected(self, hello: NodeHello, now: float) -> list[Order]:
        instance = hello.instance_id
        earlier_life = self.group_hosts.get(instance, hello.attempt) != hello.attempt
        self.hosts_absent.pop(instance, None)
        self.roster.nodes[instance] = Node(hello)
        listed = self.target is not None and instance in (self.target.members or ())
        orders: list[Order] = [
            ToNode(instance, Welcome(job=self.options.job)),
            ToNode(instance, Listed(listed=listed)),
            Announce("node_ready", {"instance": instance, "attempt": hello.attempt}),
        ]
        orders += self.roster.end_again(instance, hello.worker_pid)
        if self.phase is Phase.OVER:
            if hello.worker_pid is None:
                self.awaited.discard(instance)
            orders += [ToNode(instance, Retire(reason="job finished")), *self._finish(now)]
        elif self.phase is Phase.RECOVERING:
            if hello.worker_pid != self.pids.get(instance) and instance not in self.roster.members:
                self.lost.add(instance)
            orders += self._recover(now)
        else:
            again = "started again without its ps-lite processes"
            orders += self._group_lost(f"{instance} {again}", now) if earlier_life else self._group_again(instance)
        return orders + self._worker_of(hello, now) + self._advance(now)

    def worker_started(self, instance: str, message: WorkerStarted, now: float) -> list[Order]:
        """A process that hangs in its imports, or while it builds its model, never says anything: its time runs from here."""
        self.roster.expect(instance, message.pid, self.options.clocks.start, now, message.spare)
        return [Announce("worker_started", {"instance": instance, "pid": message.pid, "spare": message.spare})]

    def _worker_of(self, hello: NodeHello, now: float) -> list[Order]:
        """What a node says of its worker counts when the coordinator does not know better: an order to start one may be lost."""
        instance = hello.instance_id
        if hello.worker_pid is None:
            self.roster.left.setdefault(instance, 0)
            return self._call_back()
        self.roster.expect(instance, hello.worker_pid, self.options.clocks.start, now)
        return []

    def group_ready(self, instance: str, message: GroupReady, now: float) -> list[Order]:
        if node := self.roster.nodes.get(instance):
            node.hello = node.hello.model_copy(update={"base": True})  # a node may become a base node while it is connected
            node.group = message
        return self._advance(now)

    def group_failed(self, instance: str, message: GroupFailed, now: float) -> list[Order]:
        if self.generation is None or message.generation != self.generation.number:
            return []
        return self._group_lost(f"ps-lite process on {instance}: {message.reason}", now) + self._advance(now)

    def worker_connected(self, hello: WorkerHello, now: float) -> list[Order]:
        instance = hello.instance_id
        orders: list[Order] = []
        if hello.pid != self.roster.pid(instance):
            # Without the order to drop: the earlier connection is closed already, this one must not be.
            lost = self.worker_lost(instance, self.roster.pid(instance), "another worker of the node connected", now)
            orders += [order for order in lost if not isinstance(order, DropWorker) or order.instance_id != instance]
        away = self.roster.connected(instance, now)
        if self.phase is Phase.RECOVERING and self._returned(hello):
            return orders + self._recover(now)
        if instance in self.roster.leaving:
            return [*orders, self._leave(instance)]
        if instance in self.roster.members:
            return orders + self._member_back(hello, now)
        return orders + self._newcomer(hello, away, now) + self._recover(now)

    def _member_back(self, hello: WorkerHello, now: float) -> list[Order]:
        """Whatever was on its way to the worker may be lost; what the worker said and got no answer to, it says again by itself."""
        instance = hello.instance_id
        self.roster.members[instance] = hello
        orders: list[Order] = []
        if self.phase in (Phase.PARKED, Phase.PREPARING) and hello.stage == "aborted":
            orders.append(ToWorker(instance, Verdict(generation=hello.generation or 0, position=self.position)))
        if self.phase is Phase.PREPARING and hello.generation != self.number:
            orders.append(ToWorker(instance, self.forms[instance]))
        if self.phase is Phase.RELEASING and self.release and self.release.verdict is None:
            orders += self.release.ask(self.roster.members)
        return orders + self._advance(now)

    def _newcomer(self, hello: WorkerHello, away: Away | None, now: float) -> list[Order]:
        """Not a member, or not any more. Who may be inside a group that is none any more must start afresh; anybody else can be told what to do."""
        instance = hello.instance_id
        if hello.stage in ("creates", "formed", "trains", "aborted") or (hello.generation or 0) > self.number:
            return self._turn_away(hello, f"generation {hello.generation} goes on without this worker, or is over; start afresh")
        wanted = instance in (self._wanted() or ())
        if self.phase is Phase.OVER or (hello.stage in ("waits", "free") and not wanted):
            self.awaited.discard(instance)
            self.roster.leaving[instance] = hello
            return [self._leave(instance)]
        if problem := self.roster.problem(hello):
            return [DropWorker(instance, problem), Announce("worker_refused", {"instance": instance, "reason": problem})]
        self.roster.stand(hello)
        took = {"seconds": now - away.since, "spare": away.spare} if away and away.pid == hello.pid else {}
        return [Announce("worker_ready", {"instance": instance, "pid": hello.pid, **took}), *self._advance(now)]

    def _leave(self, instance: str) -> Order:
        """While the job is not finished nobody has come to its result, also at the last sample: that may be in a past that was undone."""
        finished = self.outcome == "finished"
        return ToWorker(
            instance, Leave(generation=self.number if finished else 0, reason=f"job {self.outcome}" if self.outcome else "not in the target")
        )

    def _turn_away(self, hello: WorkerHello, reason: str) -> list[Order]:
        """No failure of its node, and no reason to wait until the process has noticed."""
        instance = hello.instance_id
        self.awaited.discard(instance)
        self.roster.revived[instance] = hello.pid
        return [DropWorker(instance, reason), *([] if self.phase is Phase.OVER else self.roster.end_again(instance, hello.pid, reason))]

    def worker_exited(self, instance: str, message: WorkerExited, now: float) -> list[Order]:
        known = self.roster.pid(instance)
        if known == message.pid:
            return self.worker_lost(instance, message.pid, message.reason, now)
        if self.phase is Phase.OVER:
            self.awaited.discard(instance)
            return self._finish(now)
        if known is not None:
            return []
        orders = self._revive(instance, message.pid, message.reason, now)
        if self.phase is Phase.RECOVERING and message.pid == self.pids.get(instance):
            self.lost.add(instance)
        return orders + self._recover(now) + self._advance(now)

    def node_notice(self, instance: str, message: NodeNotice, now: float) -> list[Order]:
        """Said for people and programs: the controller hears it from the node too, and puts the deadline into the target."""
        self.roster.noticed.add(instance)
        return [Announce("node_notice", {"instance": instance, "kind": message.kind, "deadline": message.deadline})]

    # ---- what the workers say

    def worker_prepared(self, instance: str, message: Prepared, now: float) -> list[Order]:
        if not self._current(instance, message.generation):
            return []
        if self.phase is Phase.FORMING:  # the word to go was lost with a connection
            return [ToWorker(instance, Go(generation=self.number))]
        self.prepared.add(instance)
        return self._advance(now)

    def check_in(self, instance: str, message: CheckIn, now: float) -> list[Order]:
        if not self._current(instance, message.generation) or self.phase not in (Phase.TRAINING, Phase.RECOVERING):
            return []
        self.heard = now
        if message.position == self.proceeded:  # the word to step on from here was lost with a connection, or this worker asks twice
            return [ToWorker(instance, Proceed(generation=self.number, position=message.position))]
        if not self.checked_in:
            self.since = now
        self.checked_in[instance] = message
        return self._took_part(instance, message.generation, now) + self._advance(now)

    def worker_formed(self, instance: str, message: Formed, now: float) -> list[Order]:
        if not self._current(instance, message.generation):
            return []
        if self.phase is Phase.TRAINING and self.generation is not None:  # the word to proceed was lost
            return [ToWorker(instance, Proceed(generation=self.number, position=self.generation.position))]
        self.formed[instance] = message
        return self._finish_formation(now)

    def worker_left(self, instance: str, now: float) -> list[Order]:
        if not (hello := self.roster.leaving.pop(instance, None)):
            return []
        self.roster.absent.pop(instance, None)
        self.roster.left[instance] = hello.pid
        orders: list[Order] = [Announce("left", {"instance": instance, "pid": hello.pid, "generation": self.number, "at": now})]
        return orders + self._call_back() + self._finish(now)

    def _took_part(self, instance: str, generation: int, now: float) -> list[Order]:
        if instance in self.active:
            return []
        self.active.add(instance)
        fields = {"instance": instance, "pid": self.roster.pid(instance), "generation": generation, "epoch": self.position.epoch, "at": now}
        return [Announce("joined", fields)]

    def first_step(self, instance: str, message: FirstStep, now: float) -> list[Order]:
        if not self._current(instance, message.generation):
            return []
        self.heard = now
        orders = self._took_part(instance, message.generation, now)
        self.first_steps[instance] = message
        paused = [step for step in self.first_steps.values() if step.pause is not None]
        if len(self.first_steps) == len(self.roster.members) and paused:
            longest = max(paused, key=lambda step: step.pause or 0.0)
            orders.append(Announce("pause", {"generation": message.generation, "seconds": longest.pause, "phases": longest.phases}))
        return orders

    def committed(self, instance: str, message: Committed, now: float) -> list[Order]:
        # One of the same step is newer all the same: old ones are deleted by their generation.
        if message.generation <= self.void_until or (self.commit and message.position.step < self.commit[0].step):
            return []
        self.trouble.got_to(message.position.step)
        self.note_commit(message.position, message.name)
        record = {"kind": "commit", "generation": message.generation, "position": message.position.model_dump(), "name": message.name}
        return [Journal(record)]

    def commit_failed(self, instance: str, message: CommitFailed, now: float) -> list[Order]:
        return [Announce("commit_failed", {"instance": instance, "step": message.position.step, "reason": message.reason})]

    def commit_unreadable(self, instance: str, message: CommitUnreadable, now: float) -> list[Order]:
        """What the source was to load is damaged: another holder's safe state is taken, or the commit before it at its own position. What was
        trained in between is void."""
        if not self._current(instance, message.generation) or self.phase is not Phase.PREPARING:
            return []
        orders: list[Order] = []
        if (safe := self.roster.members[instance].safe) and safe.name == message.name:
            self.spoiled.add((instance, message.name))
            orders.append(Announce("safe_state_unreadable", {"instance": instance, "step": self.position.step, "reason": message.reason}))
        if self.commit and self.commit[1] == message.name:
            lost = self.commit[0]
            self.drop_commit()
            found = self.commit[0] if self.commit else None
            record = {"name": message.name, "position": lost.model_dump(), "instead": found and found.model_dump(), "reason": message.reason}
            orders += [Journal({"kind": "commit_unreadable", **record, "at": now}), Announce("commit_unreadable", record)]
            if found is None and lost.step and not self._safe_state_at_hand():
                return orders + self._fail(f"no readable commit is left to go on from: {message.reason}", now)
        return [*orders, *self._take_back(message.reason, now), *self._advance(now)]

    def _safe_state_at_hand(self) -> bool:
        there = {**self.roster.standing, **self.roster.members}
        return choose_origin(None, self.line, there, self.spoiled).safe is not None

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

    # ---- what the controller says

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
