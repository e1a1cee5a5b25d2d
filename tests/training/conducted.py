"""Workers as threads of one process, whose membership a test writes down: who trains from which step, who dies where.

Everything above the membership is the real thing (the loop, the trainer, the state that joiners receive); sums are made
in memory. `Plain` has the same face for one process and shares no code with it: Gluon's own Trainer, one batch after
another.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet
import numpy as np

import mxnet as mx  # isort: skip
from dyntrain.training.job import ElasticJob
from dyntrain.training.journal import Entry, GenerationSettled, JobFinished
from dyntrain.training.protocol.messages import START, Position
from dyntrain.training.sampling.sharding import epoch_order
from dyntrain.training.worker.membership.membership import Membership
from dyntrain.training.worker.state.equal import checksums
from mxnet import gluon

WAIT = 60
Script = Callable[[Any], Any]
Decide = Callable[[dict[Any, Any]], Any]


class Killed(BaseException):
    """The worker is gone, in the middle of what it did."""


_free: list[SimpleQueue[tuple[Callable[[], None], Future[None]]]] = []


def on_kept_thread(work: Callable[[], None]) -> Future[None]:
    """On a thread that serves again: MXNet keeps 5 MB of each one that ever computed."""
    if not _free:
        threading.Thread(target=_serve, args=(queue := SimpleQueue(),), daemon=True).start()
        _free.append(queue)
    done: Future[None] = Future()
    _free.pop().put((work, done))
    return done


def _serve(queue: SimpleQueue[tuple[Callable[[], None], Future[None]]]) -> None:
    while True:
        work, done = queue.get()
        try:
            work()
        finally:
            _free.append(queue)
            done.set_result(None)
            del work, done  # else the job would stay until the next one


@dataclass(frozen=True)
class Death:
    """Worker `number` dies in step `step`: at its exchange `exchange`, before it has pushed anything, or after all have
    their sums (`applied`), or when the step's exchanges are made (`late`).
    """

    step: int
    number: int = 0
    exchange: int = 0
    moment: str = "before"


@dataclass
class Conductor:
    """`plan`: from which step on so many workers train, at the next boundary. Joiners are new processes; those with the
    highest numbers leave.
    """

    plan: dict[int, int]
    deaths: Sequence[Death] = ()
    segment_steps: int | None = 2
    start: memoryview | None = None
    loops: int = 1  # over epochs, one after another
    size: int = 1  # workers that the script's numbers are for
    members: list[ConductedMembership] = field(default_factory=list)
    standing: list[ConductedMembership] = field(default_factory=list)
    blocks: dict[Position, memoryview] = field(default_factory=dict)
    reformed: int = 0
    errors: list[BaseException] = field(default_factory=list)
    settled: list[Entry] = field(default_factory=list)  # the journal
    intents: list[dict[str, Any]] = field(default_factory=list)  # the ledger

    def __post_init__(self) -> None:
        self.changed = threading.Condition()
        self._waiting: dict[ConductedMembership, Any] = {}
        self._round = self.verdict = 0
        self._in_step = False
        self._outcomes: list[Any] = []
        self._died: set[Death] = set()
        self.position = START
        self.loop = 0  # at hand
        self.arrived: set[ConductedMembership] = set()  # of the members, at the loop at hand
        self.done = False
        self.running: list[Future[None]] = []
        self.results: dict[str, Any] = {}

    def wanted(self, step: int) -> int:
        return self.plan[max(at for at in self.plan if at <= step)]

    def dies(self, member: ConductedMembership, exchange: int, moment: str, step: int) -> bool:
        for death in self.deaths:
            if death not in self._died and death == Death(step, member.kvstore.rank, exchange, moment):
                self._died.add(death)
                return True
        return False

    # ---- meeting

    def meet(self, member: ConductedMembership, brings: Any, decide: Decide, in_step: bool) -> Any:
        """All members come; the last one decides for all. None for those who meet in a step when one is lost."""
        with self.changed:
            if member.aborted and in_step:
                return None
            self._waiting[member] = brings
            self._in_step = in_step
            number = self._round
            self._check(decide)
            assert self.changed.wait_for(lambda: self._round > number or self.errors, WAIT), "somebody did not come"
            if self._round == number:  # another worker's script has failed before all came
                raise Killed
            return self._outcomes[number]

    def _check(self, decide: Decide) -> None:
        self._decide = decide
        if set(self._waiting) == set(self.members):
            waiting, self._waiting = self._waiting, {}
            self._end_round(decide(waiting))

    def _end_round(self, outcome: Any) -> None:
        self._outcomes.append(outcome)
        self._round += 1
        self.changed.notify_all()

    def lose(self, member: ConductedMembership, verdict: int) -> None:
        """What leads to a step above `verdict` is void."""
        with self.changed:
            self.members.remove(member)
            assert self.members, "nobody is left, and no state"
            self.verdict = verdict
            for other in self.members:
                other.aborted = True
            if self._waiting and self._in_step:
                self._waiting = {}
                self._end_round(None)
            elif self._waiting:
                self._check(self._decide)
        raise Killed

    # ---- formation

    def form(self, position: Position) -> None:
        """Survivors stay, as many of them as are wanted; the rest are new workers, which take the state of one of
        them. Under the condition, while all survivors wait.
        """
        wanted = self.wanted(position.step)
        before = list(self.members)
        leaving, self.members = self.members[wanted:], self.members[:wanted]
        for member in leaving:
            member.left = True
        if before:
            packed = [member.state.pack(position) for member in before]
            assert len({tuple(checksums(block)) for block in packed}) == 1, f"replicas differ at {position}"
            block = packed[-1]  # the source may leave
            self.blocks[position] = block
        else:
            block = self.start
        missing = wanted - len(self.members)  # in a later loop they may be on their way to it
        assert self.changed.wait_for(lambda: len(self.standing) >= missing or self.errors, WAIT)
        while len(self.members) < wanted:
            joiner = self.standing.pop(0)
            if block is not None:
                position = joiner.state.install(block)
            elif self.members:
                joiner.state.install(self.members[0].state.pack(position))
            self.members.append(joiner)
        for number, member in enumerate(self.members):
            member.expects(position, number, wanted)
            member.kvstore.rank, member.kvstore.num_workers = number, wanted
            member.aborted, member.first_step = False, position.step
        self.position = position
        self.reformed += 1
        nobody: dict[str, Any] = {"members": (), "pids": {}, "holders": (), "hosts": {}}
        self.settled.append(GenerationSettled(number=self.reformed, position=position, at=0.0, **nobody))

    # ---- loops

    def loop_over(self, position: Position) -> None:
        """The first member that says so; who stands by goes on to the next loop, too."""
        self.loop += 1
        self.arrived.clear()
        skipped, self.standing = self.standing, []
        for member in skipped:
            member.over, member.starts = True, position.next_loop_start
        self.position = position.next_loop_start

    def arrive(self, member: ConductedMembership) -> None:
        """At a further loop, as one that came through the one before."""
        if self.dies(member, 0, "between", self.position.step):
            self.members.remove(member)
            self._form_when_all_are_there()
            raise Killed
        self.arrived.add(member)
        self._form_when_all_are_there()

    def stand(self, member: ConductedMembership) -> None:
        self.standing.append(member)
        if self.loop and self.arrived:
            self._form_when_all_are_there()

    def _form_when_all_are_there(self) -> None:
        joiners = self.wanted(self.position.step) - len(self.members)
        if self.arrived == set(self.members) and len(self.standing) >= joiners:
            self.form(self.position)
            self.arrived = set()
            for member in self.members:
                member.formed_in = self.loop
        self.changed.notify_all()

    # ---- running

    def run(self, script: Script) -> list[Any]:
        """What the script returns on each worker that came to the end."""
        count = max(self.plan.values()) * len(self.plan) + len(self.deaths) + 1
        first = self.wanted(0)

        def work(name: str) -> None:
            membership = ConductedMembership(self)
            try:
                with mx.name.NameManager():  # counts from 0, as in a process of the worker's own
                    self.results[name] = script(ElasticJob(membership, self.size))
            except (Killed, SystemExit):
                pass
            except BaseException as error:  # noqa: BLE001  # raised again in the test's thread
                with self.changed:
                    self.errors.append(error)
                    self.changed.notify_all()

        self.running = [on_kept_thread(lambda name=f"w{i}": work(name)) for i in range(count)]  # type: ignore[misc]
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.standing) == count or self.errors, WAIT)
            if not self.errors:
                assert first <= count
                self.form(START)
                self.changed.notify_all()
            assert self.changed.wait_for(lambda: self.errors or self._over(), 2 * WAIT), "the job does not end"
            self.done = True
            self.changed.notify_all()
        wait(self.running, WAIT)
        if self.errors:
            raise self.errors[0]
        return list(self.results.values())

    def _over(self) -> bool:
        return bool(self.members) and all(member.came_to == self.loops for member in self.members)


class _Store:
    rank = 0
    num_workers = 1

    def __init__(self) -> None:
        self.pushed: dict[str, list[Any]] = {}

    def pushpull(self, key: Any, value: Any, out: Any = None, priority: int = 0) -> None:
        self.pushed[str(key)] = value if isinstance(value, list) else [value]


class ConductedMembership(Membership):
    shared = True
    failure_reported = True  # what a script raises is raised again in the test

    def __init__(self, conductor: Conductor) -> None:
        super().__init__(_Store())  # type: ignore[arg-type]
        self.conductor = conductor
        self.segment_steps = conductor.segment_steps
        self.aborted = self.left = False
        self._exchanges = 0
        self._at = START
        self.came_to = 0  # the loop that its script is at
        self.formed_in = 0

    def enter(self, state: Any, **agreed: Any) -> Position:
        self.state = state
        conductor, self.over, self.stopping = self.conductor, False, False
        with conductor.changed:
            if self.came_to and self in conductor.members:
                conductor.arrive(self)
                came = self.came_to
                assert conductor.changed.wait_for(lambda: self.formed_in == came or self.errors_or_left, 3 * WAIT)
            else:
                conductor.stand(self)
                conductor.changed.notify_all()
                assert conductor.changed.wait_for(
                    lambda: self in conductor.members or self.over or self.errors_or_left, 3 * WAIT
                )
            if self.errors_or_left:
                raise SystemExit(0)
            return conductor.position

    @property
    def errors_or_left(self) -> bool:
        return self.left or bool(self.conductor.errors) or (self.conductor.done and self not in self.conductor.members)

    @property
    def writes(self) -> bool:
        return self.kvstore.rank == 0 and self in self.conductor.members

    @property
    def generation(self) -> int:
        return self.conductor.reformed

    def step(
        self, after: Position, push: Callable[[], None], gradients: Sequence[Any], update: Callable[[], None]
    ) -> bool:
        """A Module's, whose store numbers its keys; what was summed before the epoch was of no step."""
        self._exchanges, self._at = 0, after.model_copy(update={"step": after.step - 1})
        return self.exchange([key for key, _, _ in self.state.gradient_keys], push, gradients) and self.apply(
            after, update
        )

    def intend(self, position: Position, indices: Any) -> None:
        self._exchanges, self._at = 0, position
        with self.conductor.changed:
            at = {"e": position.epoch, "o": position.offset, "s": position.step}
            self.conductor.intents.append({"g": self.conductor.reformed, **at, "i": indices.tolist()})

    @property
    def broken(self) -> bool:
        return self.aborted

    def rejoin(self, position: Position) -> Position:
        conductor = self.conductor

        def decide(positions: dict[Any, Any]) -> None:
            assert len(set(positions.values())) == 1, f"workers stand at different positions: {positions.values()}"
            if any(member.stopping for member in conductor.members):
                conductor.position = position
                for member in conductor.members:
                    member.over = True
                if conductor.loop == conductor.loops - 1:
                    conductor.settled.append(JobFinished(position=position, at=0.0))
                return
            lost = any(member.aborted for member in conductor.members)
            if lost or conductor.wanted(position.step) != len(conductor.members):
                conductor.form(position)
            else:
                blocks = {tuple(checksums(member.state.pack(position))) for member in conductor.members}
                assert len(blocks) == 1, f"replicas differ at {position}"
                assert len({member.state.sampled_checksums(position) for member in conductor.members}) == 1
                conductor.position = position

        conductor.meet(self, position, decide, in_step=False)
        if self.left:
            raise SystemExit(0)
        return conductor.position

    def boundary(self, position: Position) -> Position:
        return self.rejoin(position)

    def exchange(
        self, keys: Sequence[str], push: Callable[[], None], arrays: Sequence[Any], aside: bool = False
    ) -> bool:
        conductor, number = self.conductor, self._exchanges
        self._exchanges += 1
        if self.aborted:
            return False
        store: Any = self.kvstore
        store.pushed = {}
        push()
        assert list(store.pushed) == list(keys), "what is pushed is what the guard waits for"
        values = {
            # doubles may be added up as floats by MXNet's servers
            key: sum(array.asnumpy().astype(np.float32 if array.dtype == np.float64 else np.float64) for array in value)
            for key, value in store.pushed.items()
        }
        if conductor.dies(self, number, "before", self._at.step):
            conductor.lose(self, self._at.step)
        total = conductor.meet(self, values, self._sum, in_step=True)
        for key, value in store.pushed.items():
            for array in value:
                # What zeros were pushed for is worth nothing: a script that looked at it would show.
                array[:] = np.asarray(total[key], dtype=array.dtype) if total else float("nan")
        return True

    def _sum(self, brought: dict[Any, Any]) -> Any:
        members = sorted(brought, key=lambda member: member.kvstore.rank)
        first = brought[members[0]]
        assert all(list(brought[member]) == list(first) for member in members), "all push the same keys"
        return {key: np.sum([brought[member][key] for member in members], axis=0) for key in first}

    def apply(self, after: Position, update: Callable[[], None], reaches: bool = True) -> bool:
        if self._dies("applied"):  # the others have applied it, or will
            self.conductor.lose(self, after.step if reaches else self._at.step)
        if self.aborted and after.step > self.conductor.verdict:
            return False
        update()
        return True

    def reach(self, after: Position) -> bool:
        if self._dies("late"):
            self.conductor.lose(self, self._at.step)
        # Nobody is past the step before all have said so: whoever is lost here voids it for everybody.
        return self.conductor.meet(self, None, lambda brought: True, in_step=True) is not None

    def _dies(self, moment: str) -> bool:
        with self.conductor.changed:
            return self.conductor.dies(self, self._exchanges - 1, moment, self._at.step)

    def finished(self, position: Position) -> None:
        super().finished(position)
        with self.conductor.changed:
            self.came_to += 1
            if self.came_to < self.conductor.loops:
                if self.conductor.loop < self.came_to:
                    self.conductor.loop_over(position)
                return
            if not any(isinstance(entry, JobFinished) for entry in self.conductor.settled):
                self.conductor.settled.append(JobFinished(position=self.conductor.position, at=0.0))
            self.over = True
            self.conductor.changed.notify_all()


# ---- the same face for one process, as the script was before


class PlainEpoch(int):
    def __new__(cls, number: int, samples: int, batch: int, seed: int) -> PlainEpoch:
        return super().__new__(cls, number)

    def __init__(self, number: int, samples: int, batch: int, seed: int) -> None:
        self.number, self.resumed, self.update_due = number, False, True
        self._order, self._batch = epoch_order(samples, seed, number), batch

    def batches(self, dataset: Any) -> Iterator[Any]:
        for at in range(0, len(self._order), self._batch):
            rows = [dataset[int(i)] for i in self._order[at : at + self._batch]]
            yield gluon.data.dataloader.default_batchify_fn(rows)

    def sum(self, value: float) -> float:
        return value

    def enumerate(self, dataset: Any) -> Iterator[tuple[int, Any]]:
        return enumerate(self.batches(dataset))


class PlainLoader:
    """Gluon's own, which goes through the epochs in the order of a job's where it shuffles."""

    def __init__(
        self, dataset: Any, batch_size: int | None = None, shuffle: bool = False, passes: int = 0, **options: Any
    ) -> None:
        self._dataset, self._batch_size, self._shuffle, self._options = dataset, batch_size, shuffle, options
        self._passes = passes

    def begin(self) -> None:
        """Another loop."""
        self._passes = 0

    def __iter__(self) -> Iterator[Any]:
        order = epoch_order(len(self._dataset), 0, self._passes).tolist()
        self._passes += 1
        how = {"batch_size": self._batch_size, "sampler": order} if self._shuffle else {}
        return iter(gluon.data.DataLoader(self._dataset, **how, **self._options))


class PlainRows:
    def __init__(self, arrays: Any) -> None:
        self._begin, self.whole = arrays, list(arrays)

    @property
    def mine(self) -> Any:
        return [array.detach() for array in self.whole]

    @mine.setter
    def mine(self, values: Any) -> None:
        self.whole[:] = values

    def reset(self) -> None:
        self.whole[:] = self._begin


class Plain:
    writes = True

    def memory(self, **values: Any) -> SimpleNamespace:
        return SimpleNamespace(**values)

    def rows(self, arrays: Any, axis: int) -> PlainRows:
        return PlainRows(arrays)

    def keep(self, arrays: Any) -> Any:
        return arrays

    def loader(self, dataset: Any, *args: Any, whole_batch: bool = False, **options: Any) -> PlainLoader:
        return PlainLoader(dataset, *args, **options)

    def trainer(self, params: Any, optimizer: Any, options: Any = None, loss: str = "sum", **more: Any) -> Any:
        assert more.get("accumulate", 1) == 1
        return gluon.Trainer(params, optimizer, options, kvstore=None)

    def epochs(
        self, epochs: int, *, start: int = 0, samples: int = 1, global_batch: int = 1, seed: int = 0, **options: Any
    ) -> Iterator[Any]:
        for number in range(start, epochs):
            yield PlainEpoch(number, samples, global_batch, seed)
