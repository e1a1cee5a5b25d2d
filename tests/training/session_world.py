"""A job in memory that can go wrong anywhere: the real session and the dialogues of its workers, on links that break, in processes that die.

Time passes only when told to. ps-lite is two facts: a group is formed when all its workers are inside, and a step ends when all of them have pushed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import numpy as np

from controller.contract import Target
from training.dialogue import Dialogue
from training.generation import Limits
from training.knowledge import Options
from training.orders import Announce, DropWorker, Journal, Order, Over, ToNode, ToWorker
from training.protocol import (
    Abort,
    CheckIn,
    Committed,
    FirstStep,
    Form,
    Formed,
    Go,
    GroupReady,
    Leave,
    Left,
    NodeHello,
    Position,
    Prepared,
    Proceed,
    Pump,
    Pumped,
    RestartWorker,
    Retire,
    StartGroup,
    StepStatus,
    StopGroup,
    Verdict,
    WorkerExited,
    WorkerHello,
    WorkerStarted,
)
from training.session import Session
from training.sharding import after_step, share

SAMPLES, BATCH, EPOCHS = 5, 2, 3
METHODS: dict[type, str] = {
    Prepared: "worker_prepared",
    CheckIn: "check_in",
    Formed: "worker_formed",
    FirstStep: "first_step",
    Committed: "committed",
    StepStatus: "step_status",
    Pumped: "pumped",
}


def instance(letter: str) -> str:
    return f"i-{ord(letter):08x}"


class Killed(Exception):
    """The coordinator dies between two orders."""


@dataclass
class Group:
    """The ps-lite side of a generation."""

    size: int
    started: bool = False
    inside: set[int] = field(default_factory=set)
    pushed: dict[int, set[int]] = field(default_factory=dict)  # step: pids
    zeros: set[int] = field(default_factory=set)  # steps that somebody pushed for the dead
    stopped: bool = False


class Worker:
    """A process: its control thread is `hear`, its training thread `act`."""

    def __init__(self, world: World, name: str, pid: int) -> None:
        self.world, self.name, self.pid = world, name, pid
        self.dialogue = Dialogue()
        self.link: Link | None = None
        self.orders: deque[Any] = deque()
        self.alive, self.hung, self.exit_code = True, False, 1
        self.position = Position(epoch=0, offset=0, step=0)
        self.applied = 0  # the state: how many steps are in it
        self.form: Form | None = None
        self.doing = "order"  # waits for an order; or: create, step, wait
        self.aborted, self.verdict = False, None
        self.first = False

    def hello(self) -> WorkerHello:
        return WorkerHello(
            cluster="c",
            instance_id=self.name,
            private_ip="10.0.0.1",
            pid=self.pid,
            state_port=9000,
            epochs=EPOCHS,
            samples=SAMPLES,
            global_batch=BATCH,
            seed=0,
            layout="x",
            **self.dialogue.where(),
        )

    def say(self, message: Any, awaits: bool = False) -> None:
        if awaits:
            self.dialogue.said(message)
        if self.link:
            self.link.up.append(message)

    @property
    def group(self) -> Group:
        assert self.form is not None
        return self.world.groups[self.form.generation]

    # ---- the control thread

    def hear(self, order: Any) -> None:
        if not self.dialogue.hears(order):
            return
        if not isinstance(order, Abort | Pump | Verdict):
            self.orders.append(order)
        elif self.form is None or order.generation != self.form.generation:
            return
        elif isinstance(order, Abort):
            self.aborted = True
            waits = self.doing == "wait" and not self._answered()
            phase = "wait" if waits else "held" if self.doing == "wait" else "out"
            self.say(StepStatus(generation=order.generation, phase=phase, position=self.position, answered=0))
        elif isinstance(order, Pump):
            self.group.zeros.add(self.position.step)
            self.say(Pumped(generation=order.generation, rounds=1, seconds=0.0))
        else:
            self.verdict = order.position

    def _answered(self) -> bool:
        return self.position.step in self.group.zeros or len(self.group.pushed.get(self.position.step, ())) >= self.group.size

    # ---- the training thread

    def act(self) -> bool:
        """One move, if there is one to make."""
        if self.doing == "order":
            if not self.orders:
                return False
            self._obey(self.orders.popleft())
            return True
        if self.doing == "create":
            return self._create()
        return self._step()

    def _obey(self, order: Any) -> None:
        match order:
            case Form():
                self.form, self.aborted, self.verdict = order, False, None
                self.world.groups.setdefault(order.generation, Group(order.workers))
                if order.source == self.name:
                    if order.commit:
                        self.position, self.applied = self.world.commits[order.commit]
                    assert self.position == order.position, "the source has the state that it hands over"
                    self.world.offers[order.generation] = self.applied
                elif not order.fetch:
                    assert self.position == order.position, "a holder has the state of the position"
                self.say(Prepared(generation=order.generation), awaits=True)
            case Go():
                self.group.inside.add(self.pid)
                self.doing = "create"
            case Proceed():
                assert order.position == self.position
                if order.commit:
                    assert self.form is not None
                    name = f"commit-{self.position.step}-{self.form.generation}"
                    self.world.commits[name] = (self.position, self.applied)
                    self.say(Committed(generation=self.form.generation, position=self.position, name=name))
                self.doing = "step"
            case Leave():
                self.say(Left(generation=order.generation))
                self.exit(0)
            case _:
                raise AssertionError(f"the training thread got {order}")

    def _create(self) -> bool:
        assert self.form is not None
        if len(self.group.inside) < self.form.workers or self.group.stopped or not self.group.started:
            return False
        if self.form.fetch:
            self.position, self.applied = self.form.position, self.world.offers[self.form.generation]
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
            self.group.pushed.setdefault(self.position.step, set()).add(self.pid)
            self.doing = "wait"
            return True
        after = after_step(self.position, SAMPLES, BATCH)
        if not self._answered() or self.group.stopped or (self.aborted and self.verdict is None):
            return False
        if self.verdict is not None and self.verdict.step < after.step:
            self.doing = "order"
            return True
        assert not (self.position.step in self.group.zeros and not self.aborted), "a step with zeros in it is not applied unseen"
        before, self.position, self.applied = self.position, after, self.applied + 1
        assert self.applied == self.position.step, "the state holds each step once"
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
        self.world.cut(self)
        if code:
            self.world.nodes[self.name].tell(WorkerExited(pid=self.pid, code=code, reason="killed"))


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
        self.worker = Worker(world, name, next(world.pids))

    def connect(self) -> None:
        self.connected = True
        pid = self.worker.pid if self.worker.alive else None
        hello = NodeHello(
            cluster="c", instance_id=self.name, private_ip=f"10.0.0.{int(self.name[2:], 16)}", attempt=1, base=self.base, worker_pid=pid
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
                size = int(order.processes[0].environment["DMLC_NUM_WORKER"])
                self.world.groups.setdefault(order.generation, Group(size)).started = True
                self.world.later.append(self.offer)
            case StopGroup():
                for generation, group in self.world.groups.items():
                    group.stopped = group.stopped or generation <= order.generation
            case RestartWorker():
                left = not self.worker.alive and self.worker.exit_code == 0
                if self.worker.pid == order.pid or (order.pid == 0 and left):
                    if self.worker.alive:
                        self.worker.alive = False
                        self.world.cut(self.worker)
                    self.worker = Worker(self.world, self.name, next(self.world.pids))
                    self.tell(WorkerStarted(pid=self.worker.pid))
            case Retire():
                self.retired = True


class World:
    def __init__(self, base: str, elastic: str = "", segments: bool = False, **options: Any) -> None:
        self.now, self.segments = 100.0, segments
        self.pids = count(100)
        self.options = Options(
            cluster="c", job="j", started_at=1.0, limits=Limits(1, 8), workers=len(base), boundary="segment" if segments else "epoch", **options
        )
        self.journal: list[dict[str, Any]] = []
        self.intents: list[dict[str, Any]] = []
        self.announced: list[Announce] = []
        self.groups: dict[int, Group] = {}
        self.offers: dict[int, int] = {}
        self.commits: dict[str, tuple[Position, int]] = {}
        self.later: deque[Callable[[], None]] = deque()
        self.settled: dict[int, tuple[Any, ...]] = {}
        self.gone: set[int] = set()
        self.over: str | None = None
        self.orders_left: int | None = None  # the coordinator dies after so many
        self.target = Target.of(1, tuple(map(instance, base)))
        self.session: Session | None = None
        self.nodes = {instance(letter): Node(self, instance(letter), letter in base) for letter in base + elastic}
        self.start()

    # ---- the coordinator

    def start(self) -> None:
        if self.session is None:
            self.session = Session.recovered(self.options, lambda: "token", self.journal, self.now)
            self.do("new_target", self.target)

    def crash(self) -> None:
        """SIGKILL: the journal stays, all else goes."""
        self.session, self.orders_left = None, None
        for node in self.nodes.values():
            node.connected = False
            self.cut(node.worker, seen=False)

    def do(self, method: str, *arguments: Any) -> None:
        if self.session is None:
            return
        try:
            self._carry_out(getattr(self.session, method)(*arguments, self.now))
        except Killed:
            self.crash()

    def _carry_out(self, orders: list[Order]) -> None:
        for order in orders:
            if self.orders_left is not None:
                self.orders_left -= 1
                if self.orders_left < 0:
                    raise Killed
            match order:
                case Journal():
                    self._journaled(order.record)
                case ToNode():
                    if self.nodes[order.instance_id].connected:
                        self.later.append(lambda order=order: self.nodes[order.instance_id].obey(order.message))  # type: ignore[misc]
                case ToWorker():
                    self._to_worker(order)
                case DropWorker():
                    worker = self.nodes[order.instance_id].worker
                    if worker.link and worker.link.greeted:
                        self.cut(worker, seen=False)
                        if not worker.hung:
                            worker.alive = False
                            self.later.append(lambda worker=worker: worker.exit(75))  # type: ignore[misc]
                case Announce():
                    self.announced.append(order)
                case Over():
                    self.over = order.outcome

    def _journaled(self, record: dict[str, Any]) -> None:
        if record["kind"] == "generation":
            before = [earlier["number"] for earlier in self.journal if earlier["kind"] == "generation"]
            assert record["number"] not in before, "no two generations have one number"
            assert not self.journal or all(number < record["number"] for number in before)
            replaced = set(self.session.target.replacing) if self.session is not None and self.session.target is not None else set()
            assert not (replaced - set(record["members"])) & set(record["hosts"]), (
                "no server on a replaced node that trains no more: its machine may end"
            )
        self.journal.append(record)

    def _to_worker(self, order: ToWorker) -> None:
        message = order.message
        latest = max((r["number"] for r in self.journal if r["kind"] == "generation"), default=0)
        if isinstance(message, Form):
            assert message.generation == latest, "an order to form is for the generation that is journaled last"
            said = (message.workers, message.position, message.source)
            assert self.settled.setdefault(message.generation, said) == said, "all members are told of the same generation"
        if isinstance(message, Go | Proceed):
            assert message.generation == latest, "nobody goes on with a generation that was taken back"
        worker = self.nodes[order.instance_id].worker
        if worker.link and worker.link.greeted:
            worker.link.down.append(message)

    # ---- links

    def connect(self, worker: Worker) -> None:
        worker.link = Link(worker)
        worker.link.up.append(worker.hello())
        if worker.dialogue.pending is not None:
            worker.link.up.append(worker.dialogue.pending)

    def cut(self, worker: Worker, seen: bool = True) -> None:
        """Not `seen`: by the coordinator, which has closed the connection itself, or is gone."""
        link, worker.link = worker.link, None
        if link and link.greeted and seen:
            self.do("worker_disconnected", worker.name, worker.pid)

    def deliver_up(self, worker: Worker) -> None:
        if worker.link is None or not worker.link.up:
            return  # cut since this move was found
        message = worker.link.up.popleft()
        if isinstance(message, WorkerHello):
            worker.link.greeted = True
            self.do("worker_connected", message)
        elif isinstance(message, Left):
            self.do("worker_left", worker.name)
        else:
            self.do(METHODS[type(message)], worker.name, message)

    def deliver_down(self, worker: Worker) -> None:
        if worker.link and worker.link.down:
            worker.hear(worker.link.down.popleft())

    # ---- what can happen next

    def moves(self) -> list[Callable[[], Any]]:
        """All that happens by itself, sooner or later."""
        moves: list[Callable[[], Any]] = []
        if self.session is None:
            return [self.start]
        if self.later:
            moves.append(lambda: self.later.popleft()())
        for node in self.nodes.values():
            worker = node.worker
            if not node.connected and not node.retired:
                moves.append(node.connect)
            if not worker.alive or worker.hung:
                continue
            if worker.link is None:
                moves.append(lambda worker=worker: self.connect(worker))
            else:
                if worker.link.up:
                    moves.append(lambda worker=worker: self.deliver_up(worker))
                if worker.link.down:
                    moves.append(lambda worker=worker: self.deliver_down(worker))
            if worker.orders or worker.doing != "order":
                moves.append(worker.act)
        return moves

    def want(self, names: str, replacing: str = "") -> None:
        """`replacing` "ac": the base node a is given up for c."""
        pairs = {instance(replacing[0]): instance(replacing[1])} if replacing else {}
        self.target = Target.of(self.target.revision + 1, tuple(map(instance, names))).model_copy(update={"replacing": pairs})
        self.do("new_target", self.target)

    def promote(self, letter: str) -> None:
        """The node has become a base node."""
        node = self.nodes[instance(letter)]
        node.base = True
        node.offer()

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        self.do("tick")
