"""The coordinator's state machine: what happened goes in, orders come out; no clock, no socket, no file.

A generation lives through: WAITING (nobody formed) -> FORMING (orders are out) -> TRAINING -> at each boundary TRAINING again, or FORMING the next
one -> OVER. A loss that may leave others blocked inside ps-lite leads back to WAITING: their supervisors kill and restart the workers,
and the next generation starts from the last commit.

Callers feed every event through a method with `now` (seconds), and carry out the returned orders in order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Literal

from controller.contract import JobReport, Target
from training.generation import Generation, Limits, Member, Reason, settle
from training.orders import Announce, DropWorker, Journal, Order, Over, ToNode, ToWorker
from training.planning import Node, choose_scheduler, plan_formation, plan_group, report_members, segment_record
from training.protocol import (
    CheckIn,
    Committed,
    FirstStep,
    Formed,
    GroupFailed,
    GroupReady,
    Leave,
    Listed,
    NodeHello,
    NodeNotice,
    Position,
    Proceed,
    Progress,
    Pumped,
    RestartWorker,
    Retire,
    StepStatus,
    StopGroup,
    Verdict,
    Welcome,
    WorkerExited,
    WorkerHello,
)
from training.release import Release
from training.roster import Budget, Roster

START = Position(epoch=0, offset=0, step=0)


class Phase(Enum):
    RECOVERING = "recovering"  # a coordinator that came back waits for the members of the generation it journaled
    WAITING = "waiting"
    FORMING = "forming"
    TRAINING = "training"
    RELEASING = "releasing"  # a member is lost; the survivors free themselves
    OVER = "over"


@dataclass(frozen=True)
class Options:
    cluster: str
    job: str
    started_at: float
    limits: Limits
    workers: int  # how many the first generation waits for
    segment_steps: int | None = None
    boundary: Literal["epoch", "segment"] = "epoch"  # where voluntary changes are made; who has a deadline goes at the next segment in any case
    liveness_seconds: float = 20.0  # without a sign of life for so long, a process counts as hung and its connection is closed
    reconnect_grace: float = 3.0  # how long a worker may be without a connection before it counts as lost
    start_grace: float = 60.0  # how long a start or restart waits for missing workers once the minimum is there
    formation_seconds: float = 60.0  # from the orders to the last "formed"
    boundary_seconds: float = 600.0  # how long the first at a boundary waits for the last
    progress_seconds: float = 600.0  # without a step or a boundary of anybody for so long, the job is stuck, whatever the reason
    recovery: Literal["release", "restart"] = "release"
    release_seconds: float = 10.0  # from the loss to the last survivor's freedom; then their processes are restarted
    budget: Budget = field(default_factory=Budget)


@dataclass
class Session:
    options: Options
    transfer_token: Callable[[], str]  # fresh and unguessable each time: secrets are not made in pure code
    phase: Phase = Phase.WAITING
    generation: Generation | None = None
    roster: Roster = field(init=False)
    number: int = 0  # of the latest generation, also over restarts
    position: Position = START
    commit: tuple[Position, str] | None = None
    target: Target | None = None
    checked_in: dict[str, CheckIn] = field(default_factory=dict)
    formed: dict[str, Formed] = field(default_factory=dict)
    first_steps: dict[str, FirstStep] = field(default_factory=dict)
    active: set[str] = field(default_factory=set)
    release: Release | None = None
    group_hosts: dict[str, int] = field(default_factory=dict)  # base nodes with the generation's ps-lite processes, and their attempt
    hosts_absent: dict[str, float] = field(default_factory=dict)
    proceeded: Position | None = None  # where the members were last told to step on
    heard: float = 0.0  # when anybody last made progress
    void_until: int = 0  # commits of generations up to this one were overtaken by a restart
    progress: dict[str, Progress] = field(default_factory=dict)
    since: float = 0.0  # of the phase, or of the first check-in at a boundary
    sequence: int = 0
    paused: Reason | None = None
    outcome: str = ""

    def __post_init__(self) -> None:
        self.roster = Roster(self.options.budget)

    @classmethod
    def recovered(cls, options: Options, transfer_token: Callable[[], str], journal: Sequence[dict[str, Any]], now: float) -> Session:
        """The session as its journal leaves it: with the last generation's members expected back, or waiting from the last commit."""
        session = cls(options, transfer_token, since=now)
        for record in journal:
            if record["kind"] == "generation":
                session.number, session.position = record["number"], Position(**record["position"])
                members = tuple(Member(i, joined_epoch=session.position.epoch, joined_at=record["at"]) for i in record["members"])
                session.generation = Generation(session.number, members, session.position, source=record["members"][0])
            elif record["kind"] == "commit":
                session.commit = (Position(**record["position"]), record["name"])
            elif record["kind"] == "restart":
                session.generation = None
        if session.generation is not None:
            session.phase = Phase.RECOVERING
        return session

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
            return [DropWorker(instance, f"generation {hello.generation} is over; start afresh")]
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
        pauses = [step.pause for step in self.first_steps.values() if step.pause is not None]
        if len(self.first_steps) == len(self.roster.members) and pauses:
            orders.append(Announce("pause", {"generation": message.generation, "seconds": max(pauses)}))
        return orders

    def committed(self, instance: str, message: Committed, now: float) -> list[Order]:
        if message.generation <= self.void_until or (self.commit and message.position.step <= self.commit[0].step):
            return []
        self.commit = (message.position, message.name)
        record = {"kind": "commit", "generation": message.generation, "position": message.position.model_dump(), "name": message.name}
        return [Journal(record)]

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

    def report(self, now: float) -> JobReport:
        """The coordinator's word for the controller; leaving members count until they have left."""
        state = {Phase.WAITING: "starting" if self.number == 0 else "paused", Phase.OVER: self.outcome or "finished"}.get(self.phase, "running")
        # RECOVERING counts as running: the members of the journal are, as far as anyone knows, training.
        generation = self.generation if self.phase is not Phase.OVER else None
        ahead = max(self.progress.values(), key=lambda p: p.position.step, default=None)
        position = ahead.position if ahead else self.position
        return JobReport(
            cluster=self.options.cluster,
            job=self.options.job,
            state=state,
            started_at=self.options.started_at,
            sequence=self.sequence,
            generation=self.number,
            revision=self.target.revision if self.target else 0,
            members=report_members(generation, self.active, self.roster.leaving),
            epoch=position.epoch,
            epochs=self.roster.epochs,
            step=position.step,
            samples_per_second=sum(p.samples_per_second for p in self.progress.values()),
            reason=self.paused.value if self.paused else "",
        )

    # ---- decisions

    def _current(self, instance: str, generation: int) -> bool:
        return self.generation is not None and generation == self.generation.number and instance in self.roster.members

    def _revive(self, instance: str, pid: int, reason: str, now: float) -> list[Order]:
        return [] if self.phase is Phase.OVER else self.roster.revive(instance, pid, reason, now)

    def _call_back(self) -> list[Order]:
        return [] if self.phase is Phase.OVER else self.roster.call_back(self._wanted() or ())

    @property
    def _formed(self) -> bool:
        """Whether ps-lite processes of the generation are needed now."""
        return self.phase in (Phase.FORMING, Phase.TRAINING, Phase.RELEASING)

    def _advance(self, now: float) -> list[Order]:
        """Take the next decision if all that it needs is there; a member without a connection would miss it, and is waited for or lost soon."""
        if any(instance in self.roster.members for instance in self.roster.absent):
            return []
        if self.phase is Phase.WAITING:
            return self._start(now)
        if self.phase is Phase.TRAINING and self.checked_in and set(self.checked_in) >= set(self.roster.members):
            return self._at_boundary(now)
        if self.phase is Phase.RELEASING and self.release and self.release.verdict is not None:
            return self._after_release(self.release, self.release.verdict, now)
        return []

    def _start(self, now: float) -> list[Order]:
        expected = [instance for instance in (self.target.members or ()) if instance in self.roster.nodes] if self.target else []
        missing = [instance for instance in expected if instance not in self.roster.standing]
        enough = len(expected) >= (self.options.workers if self.number == 0 else self.options.limits.min_workers)
        if (missing or not enough) and now - self.since < self.options.start_grace:
            return []
        decision = settle((), self.roster.standing, self._wanted(), self.options.limits, choose_scheduler(self.roster.nodes) is not None)
        self.paused = None if decision.members else decision.reason
        if not decision.members:
            return []
        start, commit = self.commit or (START, None)
        return self._form(decision.members, start, commit, fresh=True, now=now)

    def _at_boundary(self, now: float) -> list[Order]:
        assert self.generation is not None
        positions = {check_in.position for check_in in self.checked_in.values()}
        if len(positions) > 1:
            return self._fail(f"workers stand at different positions: {sorted(p.step for p in positions)}", now)
        position = positions.pop()
        orders: list[Order] = []
        if position != self.position:
            orders.append(segment_record(self.number, self.position, position, self.checked_in))
            self.position = position
        if not self.roster.members:
            return [*orders, *self._restart("every worker was lost at the boundary", now)]
        if position.epoch >= self.roster.epochs:
            return [*orders, *self._end(now)]
        current = [instance for instance in self.generation.instances if instance in self.roster.members]
        if position.offset and len(current) == len(self.generation.members) and not self._may_change_in_mid_epoch():
            self.checked_in.clear()
            return orders + self._proceed(committer=current[0])
        intact = len(current) == len(self.generation.members)
        decision = settle(current, self.roster.standing, self._wanted(), self.options.limits, choose_scheduler(self.roster.nodes) is not None, intact)
        self.paused = None if decision.members else decision.reason
        if decision.members is None:
            return orders
        if intact and decision.members == self.generation.instances:
            self.checked_in.clear()
            return orders + self._proceed(committer=current[0])
        return orders + self._form(decision.members, position, None, fresh=False, now=now)

    def _release(self, instance: str, reason: str, now: float) -> list[Order]:
        """A worker is lost while the others train: they void its step and go on in their processes, if the servers are still there."""
        servers_lost = [host for host in self.group_hosts if host not in self.roster.nodes]
        if self.options.recovery == "restart" or servers_lost or not self.roster.members:
            return self._restart(f"worker on {instance} lost: {reason}", now)
        self.phase, self.since = Phase.RELEASING, now
        self.release = Release(self.number, now)
        return [Announce("releasing", {"instance": instance, "generation": self.number, "reason": reason}), *self.release.ask(self.roster.members)]

    def _after_release(self, release: Release, position: Position, now: float) -> list[Order]:
        """Everybody is free: tell the verdict once, and form the next generation as soon as a group can be had."""
        assert self.generation is not None
        orders: list[Order] = []
        current = [instance for instance in self.generation.instances if instance in self.roster.members]
        if not release.told:
            release.told = True
            orders += [ToWorker(instance, Verdict(generation=self.number, position=position)) for instance in current]
            orders.append(Announce("released", {"generation": self.number, "position": position.model_dump(), "seconds": now - release.began}))
        if position.epoch >= self.roster.epochs:
            self.position, self.release = position, None
            return orders + self._end(now)
        decision = settle(current, self.roster.standing, self._wanted(), self.options.limits, choose_scheduler(self.roster.nodes) is not None, False)
        self.paused = None if decision.members else decision.reason
        if decision.members is None:
            return orders
        self.release = None
        return orders + self._form(decision.members, position, None, fresh=False, now=now)

    def _may_change_in_mid_epoch(self) -> bool:
        if self.options.boundary == "segment" or self.target is None:
            return True
        return any(instance in self.target.leave_by for instance in self.roster.members)

    def _wanted(self) -> Sequence[str] | None:
        return None if self.target is None else (self.target.members or ())

    def _form(self, members: tuple[str, ...], position: Position, commit: str | None, fresh: bool, now: float) -> list[Order]:
        """Settle the next generation and order it. `fresh`: nobody holds the state, the source makes it or loads the commit."""
        scheduler = choose_scheduler(self.roster.nodes)
        assert scheduler is not None
        previous = {member.instance_id: member for member in self.generation.members} if self.generation and not fresh else {}
        staying = [instance for instance in members if instance in previous and instance in self.roster.members]
        self.number += 1
        self.position = position
        self.generation = Generation(
            number=self.number,
            members=tuple(previous.get(i) or Member(i, joined_epoch=position.epoch, joined_at=now) for i in members),
            position=position,
            source=(staying or list(members))[0],
        )
        self.roster.leaving.update({instance: self.roster.members[instance] for instance in self.roster.members if instance not in members})
        self.roster.members = {i: self.roster.members[i] if i in staying else self.roster.standing.pop(i) for i in members}
        self.active &= set(members)
        self.phase, self.since = Phase.FORMING, now
        self.checked_in, self.formed, self.first_steps, self.progress = {}, {}, {}, {}

        source = self.roster.members[self.generation.source]
        job = {"kind": "job", "job": self.options.job, "samples": source.samples, "global_batch": source.global_batch, "seed": source.seed, "at": now}
        at = {"number": self.number, "members": list(members), "position": position.model_dump(), "commit": commit, "at": now}
        changes = {"joining": [i for i in members if i not in previous], "leaving": sorted(self.roster.leaving)}
        orders: list[Order] = [Journal(job)] if self.number == 1 else []
        orders += [Journal({"kind": "generation", **at}), Announce("forming", {**at, **changes})]
        group = plan_group(self.number, self.roster.nodes, scheduler, len(members))
        self.group_hosts = {host: self.roster.nodes[host].hello.attempt for host in group.hosts}
        self.hosts_absent = {}
        for host in group.hosts:
            self.roster.nodes[host].group = None
        orders += group.orders
        orders += [ToWorker(instance, Leave(generation=self.number - 1, reason="not in the target")) for instance in self.roster.leaving]
        holders = {self.generation.source} if fresh else set(staying)
        return orders + plan_formation(
            self.generation, self.roster.members, holders, group.environment, self.transfer_token(), commit, self.options.segment_steps
        )

    def _finish_formation(self, now: float) -> list[Order]:
        """When all have formed with equal state, they step. Leavers are not waited for: leaving needs nobody's help."""
        if self.phase is not Phase.FORMING or set(self.formed) < set(self.roster.members):
            return []
        digests = {formed.digest for formed in self.formed.values()}
        if len(digests) > 1:
            found = ", ".join(f"{instance} {formed.digest}" for instance, formed in self.formed.items())
            return self._fail(f"workers differ in state after forming generation {self.number}: {found}", now)
        self.phase, self.since = Phase.TRAINING, now
        assert self.generation is not None
        orders = self._proceed(committer=self.generation.source)
        orders += self._stop_groups(self.number - 1)
        phases = {name: max(formed.phases.get(name, 0.0) for formed in self.formed.values()) for name in ("teardown", "create", "state")}
        fields = {"generation": self.number, "members": list(self.generation.instances), "digest": digests.pop(), "phases": phases}
        return [*orders, Announce("formed", fields)]

    def _proceed(self, committer: str) -> list[Order]:
        self.proceeded = self.position
        return [ToWorker(instance, Proceed(generation=self.number, commit=instance == committer)) for instance in self.roster.members]

    def _stop_groups(self, generation: int) -> list[Order]:
        return [ToNode(i, StopGroup(generation=generation)) for i, node in self.roster.nodes.items() if node.hello.base] if generation else []

    def _restart(self, reason: str, now: float) -> list[Order]:
        """Nobody can be trusted to be free of ps-lite: all members' processes go, the next generation starts from the last commit."""
        commit = self.commit[0].model_dump() if self.commit else None
        orders: list[Order] = [Announce("restart", {"generation": self.number, "reason": reason, "commit": commit})]
        orders.append(Journal({"kind": "restart", "generation": self.number, "reason": reason, "at": now}))
        killed = self.roster.dissolve()
        self.roster.revived.update({instance: hello.pid for instance, hello in killed.items()})
        self.void_until, self.proceeded, self.group_hosts, self.hosts_absent = self.number, None, {}, {}
        self.generation = self.release = None
        self.checked_in, self.formed, self.first_steps, self.progress, self.active = {}, {}, {}, {}, set()
        self.phase, self.since = Phase.WAITING, now
        for instance, hello in killed.items():
            orders.append(DropWorker(instance, reason))
            if instance in self.roster.nodes:
                orders.append(ToNode(instance, RestartWorker(pid=hello.pid, reason=reason)))
        return orders + self._stop_groups(self.number)

    def _end(self, now: float) -> list[Order]:
        orders: list[Order] = [
            Journal({"kind": "finished", "position": self.position.model_dump(), "at": now}),
            Announce("finished", {"position": self.position.model_dump()}),
        ]
        orders += [
            ToWorker(instance, Leave(generation=self.number, reason="job finished")) for instance in [*self.roster.members, *self.roster.standing]
        ]
        self.roster.leaving, self.roster.members, self.phase, self.since, self.outcome = dict(self.roster.members), {}, Phase.OVER, now, "finished"
        return orders + self._finish(now)

    def _fail(self, reason: str, now: float) -> list[Order]:
        orders: list[Order] = [Journal({"kind": "failed", "reason": reason, "at": now}), Announce("failed", {"reason": reason})]
        orders += [DropWorker(instance, reason) for instance in {**self.roster.members, **self.roster.leaving, **self.roster.standing}]
        self.roster.members, self.roster.leaving, self.roster.standing = {}, {}, {}
        self.phase, self.outcome = Phase.OVER, "failed"
        return orders + self._finish(now)

    def _finish(self, now: float) -> list[Order]:
        """The job is over once the last worker has left."""
        if self.phase is not Phase.OVER or self.roster.leaving:
            return []
        orders: list[Order] = [ToNode(instance, Retire(reason=f"job {self.outcome}")) for instance in self.roster.nodes]
        return [*orders, Over(self.outcome)]
