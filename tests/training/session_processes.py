"""What is around the coordinator in `session_world`: worker processes, their links, the nodes that start them, and
their engine.

An engine is two facts: a group is formed when all its workers are inside, and a step ends when all of them have pushed.
With ps-lite it ends for all of them; with an all-reduce that breaks, for some it may have failed.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from dyntrain.training.protocol.messages import (
    Abort,
    Broken,
    CheckIn,
    Committed,
    CommitUnreadable,
    Entered,
    FirstStep,
    Form,
    Formed,
    Go,
    Leave,
    Left,
    LoopOver,
    LoopTerms,
    Position,
    Prepared,
    Proceed,
    Pump,
    Pumped,
    SafeCopy,
    ScriptEnded,
    StepStatus,
    StepVerdict,
    Where,
    Whereabouts,
    WorkerHello,
)
from dyntrain.training.protocol.node_messages import (
    GroupReady,
    NodeHello,
    RestartWorker,
    Retire,
    StartGroup,
    StopGroup,
    WorkerExited,
    WorkerStarted,
)
from dyntrain.training.protocol.slots import node_of, slot_of
from dyntrain.training.sampling.sharding import after_step, share
from dyntrain.training.worker.membership.dialogue import Dialogue
from dyntrain.training.worker.state.checkpoint import commit_name, superseded_commits

if TYPE_CHECKING:
    from session_world import World

SAMPLES, BATCH, EPOCHS = 5, 2, 3  # epochs of a loop
WINDOWS = ((0, 1), (2,))  # of the keys that are summed in a step
KEYS = tuple(key for window in WINDOWS for key in window)
History = tuple[int, ...]  # a state: for each step in it, the generation that made it; negative: zeros are in it


def instance(letter: str) -> str:
    return f"i-{ord(letter):08x}"


@dataclass
class Group:
    """The engine's side of a generation."""

    size: int = 0
    started: bool = False
    inside: set[int] = field(default_factory=set)
    pushed: dict[int, set[int]] = field(default_factory=dict)  # step: pids
    zeros: set[int] = field(default_factory=set)  # steps that have zeros in them
    filled: dict[tuple[int, int], set[int]] = field(default_factory=dict)  # (step, key): pids, in their own places
    owed: Counter[tuple[int, int]] = field(default_factory=Counter)  # (step, key): how often for the lost
    stopped: bool = False  # its servers take no more requests; sums that have arrived stay valid
    broken: bool = False  # somebody is gone or has broken off: sums may fail

    def requests(self, step: int, key: int) -> int:
        return len(self.pushed.get(step, ())) + len(self.filled.get((step, key), ())) + self.owed[step, key]


class Worker:
    """A process: its control thread is `hear`, its training thread `act`."""

    def __init__(self, world: World, name: str, pid: int) -> None:
        self.world, self.name, self.pid = world, name, pid
        self.dialogue = Dialogue()
        self.link: Link | None = None
        self.orders: deque[Any] = deque()
        self.alive, self.hung, self.exit_code = True, False, 1
        self.position = Position(epoch=0, offset=0, step=0)
        self.applied: History = ()
        self.loop, self.holds, self.starts = 0, False, self.position
        self.terms = self._terms(0)
        self.form: Form | None = None
        self.doing = "order"  # waits for an order; or: create, step, wait; between: on its way to the next loop
        self.aborted, self.verdict = False, None
        self.broken_step = 0  # which survivors wait for, or have not come to
        self.first = False
        self.writing: tuple[int, Position, tuple[str, ...] | None, tuple[Position, int, History]] | None = None
        self.written: list[str] = []

    def _terms(self, begins: int) -> LoopTerms:
        """Of the loop at hand, whose first epoch is number `begins` of the job's."""
        return LoopTerms(
            epochs=begins + self.world.epochs,
            samples=SAMPLES,
            global_batch=BATCH,
            seed=0,
            layout=f"of loop {self.loop}",
            loop=self.loop,
            another=self.world.loops > 1,
        )

    def hello(self) -> WorkerHello:
        return WorkerHello(
            cluster="c",
            instance_id=node_of(self.name),
            slot=slot_of(self.name),
            slots=self.world.slots,
            private_ip="10.0.0.1",
            pid=self.pid,
            state_port=9000,
            engine=self.world.engine,
            safe=self._safe(),
            **dict(self.terms),
            **self.dialogue.hello_fields(),
        )

    def _safe(self) -> SafeCopy | None:
        safe = self.world.nodes[self.name].safe
        return safe and safe.copy

    def say(self, message: Any, awaits: bool = False) -> None:
        if awaits:
            self.dialogue.sent(message)
        if self.link:
            self.link.up.append(message)

    @property
    def group(self) -> Group:
        assert self.form is not None
        return self.world.groups[self.form.generation]

    # ---- the control thread

    def hear(self, order: Any) -> None:
        if not self.dialogue.accept(order):
            return
        if isinstance(order, Where):
            waits = self.doing in ("wait", "failed")
            self.say(Whereabouts(generation=order.generation, waits=waits, position=self.position))
        elif not isinstance(order, Abort | Pump | StepVerdict):
            self.orders.append(order)
        elif self.form is None or order.generation != self.form.generation:
            return
        elif isinstance(order, Abort):
            self.aborted = True
            self.broken_step = self.form.position.step + self._exchanges
            if self.doing == "wait" and self.world.all_reduce and not (self._answered() and self._lucky):
                self.fail()
            waits = self.doing == "wait" and not self._answered()
            phase = (
                "failed" if self.doing == "failed" else "wait" if waits else "held" if self.doing == "wait" else "out"
            )
            self.say(
                StepStatus(
                    generation=order.generation,
                    phase=phase,
                    position=self.position,
                    answered=0,
                    exchanges=self._exchanges,
                    keys=KEYS if waits else (),
                    windows=len(WINDOWS) if waits else 1,
                )
            )
        elif isinstance(order, Pump):
            self._pump(order)
            self.say(Pumped(generation=order.generation, number=order.number, rounds=0, seconds=0.0))
        else:
            self.verdict = order.position

    @property
    def _exchanges(self) -> int:
        """That have come to their end here, applied or not."""
        assert self.form is not None
        return self.position.step + (self.doing == "wait" and self._answered()) - self.form.position.step

    def _pump(self, order: Pump) -> None:
        step, group = self.broken_step, self.group
        if group.stopped:
            return
        group.zeros.add(step)
        keys = order.keys if order.window is None else WINDOWS[order.window]
        for key in keys if order.fills else keys[order.share :: order.shares]:
            if not order.fills:
                assert group.requests(step, key) + order.count >= group.size, "all that is not owed is there"
                group.owed[step, key] += max(0, group.size - group.requests(step, key))
            elif self.pid not in group.filled.setdefault((step, key), set()):
                assert group.requests(step, key) < group.size, "zeros that begin a round which nobody will end"
                group.filled[step, key].add(self.pid)

    @property
    def _lucky(self) -> bool:
        """Whether the sums were here before the connections were broken off."""
        return (self.pid + self.position.step) % 2 == 0

    @property
    def may_fail(self) -> bool:
        """By itself, before anybody says so: in a step that others may have ended. Who has said that it holds the sums
        of that step cannot lose them any more.
        """
        return self.world.all_reduce and self.doing == "wait" and self.group.broken and not self.aborted

    def fail_by_itself(self) -> bool:
        """If it still may: moves that were possible together may follow each other."""
        if may := self.may_fail:
            self.fail()
        return may

    def fail(self) -> None:
        assert self.form is not None
        self.doing, self.group.broken = "failed", True
        if not self.aborted:
            self.say(Broken(generation=self.form.generation, reason="a connection is closed"), awaits=True)

    def _answered(self) -> bool:
        return all(self.group.requests(self.position.step, key) >= self.group.size for key in KEYS)

    # ---- the training thread

    def act(self) -> bool:
        """One move, if there is one to make."""
        if self.doing == "order":
            if not self.orders:
                return False
            self._obey(self.orders.popleft())
            return True
        if self.doing == "between":
            self._go_on()
            return True
        if self.doing == "create":
            return self._create()
        if self.doing == "failed":
            if self.verdict is not None:
                self.doing = "order"
            return self.verdict is not None
        return self._step()

    def _obey(self, order: Any) -> None:
        match order:
            case Form():
                self.form, self.aborted, self.verdict = order, False, None
                self.world.groups.setdefault(order.generation, Group()).size = order.workers
                if not self._loaded(order):
                    self.say(
                        CommitUnreadable(generation=order.generation, name=order.safe or "", reason="damaged"),
                        awaits=True,
                    )
                    return
                if self.world.all_reduce and not order.fetch and self.position.step < order.position.step:
                    self.exit(1)  # a coordinator died that alone knew who was behind: a fresh process goes on
                    return
                if order.source == self.name:
                    if self.position != order.position:
                        assert order.position.step == 0, (
                            "the source has the state that it hands over, unless the job begins anew"
                        )
                        self.exit(1)
                        return
                    self.world.offers[order.generation] = self.loop, self.applied
                if not order.fetch:
                    assert self.position == order.position, "a holder has the state of the position"
                    self._keep(order.generation)
                self.holds = False
                self.say(Prepared(generation=order.generation), awaits=True)
            case Go():
                self.group.inside.add(self.pid)
                self.doing = "create"
            case Proceed():
                assert order.position == self.position
                if order.commit:
                    assert self.form is not None
                    self._keep(self.form.generation)
                    if self.position == self.form.position or not self.world.slow_storage:
                        self._commit(self.form.generation, order.keep)
                self.doing = "step"
            case LoopOver():
                assert order.loop > self.loop, "no process goes back to a loop that it has left"
                assert not order.holds or order.loop == self.loop + 1, "a state is of one loop"
                self.loop, self.holds, self.doing, self.starts = order.loop, order.holds, "between", order.position
                if order.holds:
                    assert order.position.step == self.position.step, "who holds the state has its last step"
                    self.position = order.position
                else:
                    self.form = None
            case Leave():
                self.say(Left(generation=order.generation))
                if self.form is not None and order.generation == self.form.generation:
                    self.world.results.append(self.applied)
                self.exit(0)
            case _:
                raise AssertionError(f"the training thread got {order}")

    def _go_on(self) -> None:
        """The script has done what stands between two loops, or after the last one."""
        self.doing = "order"
        generation = self.form.generation if self.holds and self.form is not None else None
        if self.loop == self.world.loops:
            self.say(ScriptEnded(generation=generation), awaits=True)
        else:
            self.terms = self._terms(self.starts.epoch)
            self.say(Entered(generation=generation, **dict(self.terms)), awaits=True)

    def _keep(self, generation: int) -> None:
        self.world.nodes[self.name].safe = Safe.of(generation, self.position, self.loop, self.applied)

    def _commit(self, generation: int, keep: tuple[str, ...] | None) -> None:
        """Not at once: a thread writes it, one at a time, while the process trains on."""
        if self.writing is None:
            self.writing = generation, self.position, keep, (self.position, self.loop, self.applied)

    def write(self) -> None:
        """The commit is on disk, and what it may replace is gone."""
        assert self.writing is not None
        (generation, position, keep, state), self.writing = self.writing, None
        name = commit_name(generation, position.step)
        self.world.commits[name] = state
        self.written.append(name)
        for old in superseded_commits(self.world.commits, self.written, keep):
            del self.world.commits[old]
        self.world.check_commits()
        self.say(Committed(generation=generation, position=position, name=name))

    def _loaded(self, order: Form) -> bool:
        if order.safe:
            safe = self.world.nodes[self.name].safe
            if safe is None or safe.damaged or safe.copy.name != order.safe:
                return False
            self.position, self.applied = safe.copy.position, self._of_this_loop(safe.loop, safe.applied)
        elif order.commit:
            self.position, loop, applied = self.world.commits[order.commit]
            self.applied = self._of_this_loop(loop, applied)
        return True

    def _of_this_loop(self, loop: int, applied: History) -> History:
        assert loop == self.loop, "a state is of one loop: another loop's trainers have no place for it"
        return applied

    def _create(self) -> bool:
        assert self.form is not None
        if len(self.group.inside) < self.form.workers or self.group.stopped or not self.group.started:
            return False
        if self.form.fetch:
            self.position = self.form.position
            self.applied = self._of_this_loop(*self.world.offers[self.form.generation])
        self.first, self.doing = True, "order"
        self.say(Formed(generation=self.form.generation, digest=str(self.applied)), awaits=True)
        return True

    def _step(self) -> bool:
        assert self.form is not None
        if self.doing == "step":
            if self.aborted:
                self.doing = "order"
                return True
            self._intend()
            if self.world.all_reduce or not self.group.stopped:
                self.group.pushed.setdefault(self.position.step, set()).add(self.pid)
            self.doing = "wait"
            return True
        after = after_step(self.position, SAMPLES, BATCH)
        if not self._answered() or (self.aborted and self.verdict is None):
            return False
        if self.verdict is not None and self.verdict.step < after.step:
            self.doing = "order"
            return True
        zeros = self.position.step in self.group.zeros and len(self.group.pushed[self.position.step]) < self.group.size
        assert not zeros or self.world.given_up(self.name, self.form.generation), (
            "only who does not count any more applies a step with zeros in it"
        )
        entry = -self.form.generation if zeros else self.form.generation
        before, self.position, self.applied = self.position, after, (*self.applied, entry)
        assert len(self.applied) == self.position.step, "the state holds each step once"
        if self.first:
            self.first = False
            self.say(FirstStep(generation=self.form.generation))
        self.doing = "step"
        if self.aborted:
            self.doing = "order"
        elif after.epoch > before.epoch or self.world.segments:
            self.doing = "order"
            self.say(CheckIn(generation=self.form.generation, position=after, pid=self.pid), awaits=True)
        return True

    def _intend(self) -> None:
        assert self.form is not None
        taken = share(np.arange(SAMPLES), BATCH, self.position.offset, self.form.number, self.form.workers)
        here = {"e": self.position.epoch, "o": self.position.offset, "s": self.position.step}
        self.world.intents.append({"g": self.form.generation, **here, "i": [int(i) for i in taken]})

    def exit(self, code: int) -> None:
        """As the supervisor sees it."""
        self.alive, self.exit_code = False, code
        if self.form is not None:
            self.group.broken = True
        self.world.cut(self)
        reason = "killed" if code else "the script has ended"
        self.world.nodes[self.name].tell(WorkerExited(pid=self.pid, code=code, reason=reason))


@dataclass
class Safe:
    """What a node's supervisor keeps for the next worker."""

    copy: SafeCopy
    loop: int
    applied: History
    damaged: bool = False

    @classmethod
    def of(cls, generation: int, position: Position, loop: int, applied: History) -> Safe:
        name = f"{loop}: {'-'.join(map(str, applied))}"
        return cls(SafeCopy(generation=generation, position=position, name=name), loop, applied)


@dataclass
class Link:
    """One connection. What is under way on it is lost with it."""

    worker: Worker
    up: deque[Any] = field(default_factory=deque)
    down: deque[Any] = field(default_factory=deque)
    greeted: bool = False


class Node:
    def __init__(self, world: World, name: str, base: bool) -> None:
        self.world, self.name, self.base = world, name, base
        self.connected = self.retired = False
        self.safe: Safe | None = None
        self.worker = Worker(world, name, next(world.pids))

    def connect(self) -> None:
        self.connected = True
        pid = self.worker.pid if self.worker.alive else None
        hello = NodeHello(
            cluster="c",
            instance_id=node_of(self.name),
            slot=slot_of(self.name),
            slots=self.world.slots,
            private_ip=f"10.0.0.{int(node_of(self.name)[2:], 16)}",
            attempt=1,
            base=self.base,
            worker_pid=pid,
        )
        self.world.do("node_connected", hello)
        if not self.worker.alive and self.worker.exit_code:
            self.tell(WorkerExited(pid=self.worker.pid, code=1, reason="killed"))
        self.offer()

    def offer(self) -> None:
        if self.base and self.connected:
            self.world.do("group_ready", self.name, GroupReady(scheduler_port=10_000, blanks=2))

    def tell(self, message: WorkerExited | WorkerStarted) -> None:
        if self.connected:
            self.world.do(message.type, self.name, message)

    def obey(self, order: Any) -> None:
        match order:
            case StartGroup():
                roles = {process.role for process in order.processes}
                assert roles <= ({"rendezvous"} if self.world.all_reduce else {"scheduler", "server"})
                self.world.groups.setdefault(order.generation, Group()).started = True
                self.world.later.append(self.offer)
            case StopGroup():
                for generation, group in self.world.groups.items():
                    group.stopped = group.stopped or generation <= order.generation
            case RestartWorker():
                left = not self.worker.alive and self.worker.exit_code == 0
                if self.worker.pid == order.pid or (order.pid is None and left):
                    if self.worker.alive:
                        self.worker.alive = False
                        self.world.cut(self.worker)
                    self.worker = Worker(self.world, self.name, next(self.world.pids))
                    self.tell(WorkerStarted(pid=self.worker.pid))
            case Retire():
                self.retired = True
