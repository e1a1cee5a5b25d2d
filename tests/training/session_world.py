"""A job in memory that can go wrong anywhere: the real session, and all that is around it, on links that break, in
processes that die.

Time passes only when told to.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from itertools import count
from typing import Any

from dyntrain.controller.contract.messages import Target
from dyntrain.training.journal import (
    CommitFoundUnreadable,
    CommitWritten,
    Entry,
    GenerationSettled,
    JobFinished,
    MembersGivenUp,
)
from dyntrain.training.protocol.engines import EngineName
from dyntrain.training.protocol.messages import (
    COMMITS_KEPT,
    Broken,
    CheckIn,
    Committed,
    CommitUnreadable,
    Entered,
    FirstStep,
    Form,
    Formed,
    Go,
    Left,
    Position,
    Prepared,
    Proceed,
    Pumped,
    ScriptEnded,
    StepStatus,
    Whereabouts,
    WorkerHello,
)
from dyntrain.training.protocol.slots import names_of, nodes_of, slot_of
from dyntrain.training.session.generation.generation import Limits
from dyntrain.training.session.job.options import Options
from dyntrain.training.session.orders import Announce, DropWorker, Journal, Order, StopCoordinator, ToNode, ToWorker
from dyntrain.training.session.recovery.from_journal import restore_job
from dyntrain.training.session.session import Session
from session_processes import EPOCHS, Group, History, Link, Node, Worker, instance

METHODS: dict[type, str] = {
    Entered: "loop_entered",
    Prepared: "worker_prepared",
    CheckIn: "check_in",
    Formed: "worker_formed",
    FirstStep: "first_step",
    Committed: "commit_written",
    CommitUnreadable: "commit_unreadable",
    StepStatus: "step_status",
    Pumped: "zeros_pushed",
    Broken: "summation_failed",
    Whereabouts: "whereabouts",
}


class Killed(Exception):
    """The coordinator dies between two orders."""


class World:
    def __init__(
        self,
        base: str,
        elastic: str = "",
        segments: bool = False,
        slow_storage: bool = False,
        engine: EngineName = "pslite",
        loops: int = 1,
        epochs: int = EPOCHS,
        slots: int = 1,
        **options: Any,
    ) -> None:
        """On `slow_storage` no commit but a generation's first one comes to its end. The script has so many `loops`
        over `epochs` each. Each node has so many processes as `slots` says.
        """
        self.loops, self.epochs, self.slots = loops, epochs, slots
        self.engine, self.all_reduce = engine, engine == "horovod"
        self.now, self.segments, self.slow_storage = 100.0, segments, slow_storage
        self.pids = count(100)
        self.options = Options(
            cluster="c",
            job="j",
            started_at=1.0,
            limits=Limits(1, 8),
            workers=len(base),
            boundary="segment" if segments else "epoch",
            **options,
        )
        self.journal: list[Entry] = []
        self.intents: list[dict[str, Any]] = []
        self.announced: list[Announce] = []
        self.groups: dict[int, Group] = {}
        self.offers: dict[int, tuple[int, History]] = {}  # with the loop that the state is of
        self.commits: dict[str, tuple[Position, int, History]] = {}
        self.results: list[History] = []  # what leaving workers took along
        self.later: deque[Callable[[], None]] = deque()
        self.settled: dict[int, tuple[Any, ...]] = {}
        self.gone: set[int] = set()
        self.over: str | None = None
        self.orders_left: int | None = None  # the coordinator dies after so many
        self.target = Target.of(1, tuple(map(instance, base)))
        self.session: Session | None = None
        self.nodes: dict[str, Node] = {}
        for letter in base + elastic:
            for name in names_of(instance(letter), slots):
                self.nodes[name] = Node(self, name, letter in base and not slot_of(name))
        self.start()

    # ---- the coordinator

    def start(self) -> None:
        if self.session is None:
            self.session = Session.restore(self.options, lambda: "token", self.journal, self.now)
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

    def _obeyed(self, order: ToNode) -> None:
        self.nodes[order.instance_id].obey(order.message)

    def _carry_out(self, orders: list[Order]) -> None:
        for order in orders:
            if self.orders_left is not None:
                self.orders_left -= 1
                if self.orders_left < 0:
                    raise Killed
            match order:
                case Journal():
                    self._journaled(order.entry)
                case ToNode():
                    if self.nodes[order.instance_id].connected:
                        self.later.append(partial(self._obeyed, order))
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
                case StopCoordinator():
                    self.over = order.outcome

    def generations(self) -> list[int]:
        return [entry.number for entry in self.journal if isinstance(entry, GenerationSettled)]

    def _journaled(self, entry: Entry) -> None:
        if isinstance(entry, GenerationSettled):
            before = self.generations()
            assert entry.number not in before, "no two generations have one number"
            whole = [name for node in nodes_of(entry.members) for name in names_of(node, self.slots)]
            assert list(entry.members) == whole, (
                "a node trains with all its processes, one after another, or not at all"
            )
            assert not self.journal or all(number < entry.number for number in before)
            replaced = (
                set(self.session.job.target.replacing)
                if self.session is not None and self.session.job.target is not None
                else set()
            )
            assert not (replaced - set(entry.members)) & set(entry.hosts), (
                "no server on a replaced node that trains no more: its machine may end"
            )
        self.journal.append(entry)
        if isinstance(entry, CommitWritten | CommitFoundUnreadable | GenerationSettled):
            self.check_commits()

    def _to_worker(self, order: ToWorker) -> None:
        message = order.message
        latest = max(self.generations(), default=0)
        if isinstance(message, Form):
            assert message.generation == latest, "an order to form is for the generation that is journaled last"
            terms = (message.workers, message.position, message.source)
            assert self.settled.setdefault(message.generation, terms) == terms, (
                "all members are told of the same generation"
            )
        if isinstance(message, Go | Proceed):
            assert message.generation == latest, "nobody goes on with a generation that was taken back"
        worker = self.nodes[order.instance_id].worker
        if worker.link and worker.link.greeted:
            worker.link.down.append(message)

    def check_commits(self) -> None:
        """What a coordinator that came back now would go back to is there."""
        kept = restore_job(self.options, lambda: "token", self.journal, self.now).kept_commits
        assert set(kept) <= set(self.commits), f"{kept} are what the journal names, {sorted(self.commits)} are there"
        assert len(self.commits) <= 2 * COMMITS_KEPT + 1, "old ones go"

    def given_up(self, name: str, generation: int) -> bool:
        entries = [entry for entry in self.journal if isinstance(entry, MembersGivenUp)]
        return any(entry.generation == generation and name in entry.members for entry in entries)

    def history(self) -> History:
        """What the journal says of the finished job: for each step, the generation in which it counts."""
        steps: list[int] = []
        last = 0
        for entry in self.journal:
            if isinstance(entry, GenerationSettled | JobFinished):
                start = entry.position.step
                steps = [*steps, *[last] * (start - len(steps))][:start]
                last = entry.number if isinstance(entry, GenerationSettled) else 0
        return tuple(steps)

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
        elif isinstance(message, ScriptEnded):
            self.do("script_ended", worker.name)
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
            if worker.alive and worker.writing is not None:  # also of a process that nobody can hear
                moves.append(worker.write)
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
            if worker.may_fail:
                moves.append(worker.fail_by_itself)
        return moves

    def want(self, names: str, replacing: str = "") -> None:
        """`replacing` "ac": the base node a is given up for c."""
        pairs = {instance(replacing[0]): instance(replacing[1])} if replacing else {}
        self.target = Target.of(self.target.revision + 1, tuple(map(instance, names))).model_copy(
            update={"replacing": pairs}
        )
        self.do("new_target", self.target)

    def promote(self, letter: str) -> None:
        """The node has become a base node."""
        node = self.nodes[instance(letter)]
        node.base = True
        node.offer()

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        self.do("tick")
