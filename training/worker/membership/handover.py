"""A worker's state at a boundary: where it comes from, where it is kept, and how joiners get it.

At a change of membership all of it happens beside the training thread, which leaves the old group and waits for ps-lite
in the meantime. Whoever holds the state has it copied into memory of its supervisor before it says that it is prepared:
once the word to go is out, nobody may be left to copy it. At other boundaries the worker that commits keeps its state
there too: it is safe from a restart long before it is on slow storage.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Protocol

from dyntrain.controller.contract.messages import ControlFile
from dyntrain.training.host.safe_memory import inherited_memory
from dyntrain.training.protocol.clocks import LEAST_SPEED
from dyntrain.training.protocol.messages import START, Form, Position, SafeCopy
from dyntrain.training.sampling.statistics import Doubles
from dyntrain.training.worker.membership.background import Stopwatch, in_background
from dyntrain.training.worker.state.block import checksum
from dyntrain.training.worker.state.checkpoint import CheckpointError, CommitStore
from dyntrain.training.worker.state.equal import digest
from dyntrain.training.worker.state.safe_state import SafeStates
from dyntrain.training.worker.transfer.feed import Feed
from dyntrain.training.worker.transfer.fetching import Request, Superseded, fetch
from dyntrain.training.worker.transfer.server import StateServer

NEWEST_SECONDS = 5.0  # a worker that greets its coordinator has thirty
# A state of at most so many bytes is fetched while ps-lite forms the group, which saves the pause its transfer. One
# that takes seconds is fetched before: a joiner that is slow or lost can then stay out, and nobody has to be restarted
# for it.
BESIDE_FORMATION = 256 << 20


class WrongState(RuntimeError):
    """What this process holds is not the state that it was to hand over; says of which step it is."""


class JobState(Protocol):
    """What is handed to joiners and committed: a TrainingState, or what looks like one to a Module."""

    @property
    def layout(self) -> str: ...

    @property
    def nbytes(self) -> int: ...

    @property
    def gradient_keys(self) -> list[tuple[str, tuple[int, ...], str]]: ...

    def statistics(self) -> tuple[Doubles, Doubles]: ...

    def set_statistics(self, means: Doubles, variances: Doubles) -> None: ...

    def pack(self, position: Position, allocate: Callable[[int], memoryview] = ...) -> memoryview: ...

    def sampled(self, position: Position) -> tuple[tuple[str, str], ...]: ...

    def checks(self, block: bytes | bytearray | memoryview) -> tuple[tuple[str, str], ...]: ...

    def install(self, block: bytes | bytearray | memoryview) -> Position: ...


@dataclass(frozen=True)
class Kept:
    """The state of a generation's first position: its block, its digest, and seconds of what that took."""

    block: memoryview
    digest: str
    checks: tuple[tuple[str, str], ...]  # (name, checksum) of each array that it covers
    seconds: dict[str, float]


class Preparation:
    """Of one generation's first position, at work on a thread of its own until `state` is there."""

    def __init__(self, work: Callable[[threading.Event], Kept], needs_nothing: bool) -> None:
        self._safe = threading.Event()
        if needs_nothing:
            self._safe.set()  # others have the state, and it is here soon enough
        self.state: Future[Kept] = in_background(lambda: work(self._safe))
        safe = self._safe  # a cycle through self would keep the state's memory in use until it is collected
        self.state.add_done_callback(lambda _: safe.set())

    def safe_within(self, seconds: float) -> bool:
        """Whether this worker may say that it is prepared: its death would not lose the state, and it lacks nothing
        that takes long. Raises what has gone wrong by then.
        """
        safe = self._safe.wait(seconds)
        if self.state.done():
            self.state.result()
        return safe


class Handover:
    def __init__(self, control: ControlFile) -> None:
        self._control = control
        self._server = StateServer(control.private_ip)
        self._memory = inherited_memory()
        self._safe = SafeStates((), control.job)
        # of the state and its memory: an order to form that was taken back may still be at work
        self._installing = threading.Lock()
        self._generation = 0
        self.sealing: Future[None] = Future()  # of what was kept last; nobody has to wait for it
        self._position = START  # of the state in memory

    @property
    def port(self) -> int:
        """Where joiners fetch the state."""
        return self._server.port

    def open(self, job: str, state: JobState) -> None:
        """Before the worker stands by."""
        self._safe = SafeStates(self._memory, job)
        self.go_on(state)

    def go_on(self, state: JobState) -> None:
        """With the state of the script's next loop over epochs. What was kept of the one before stays: a commit of it
        may be on its way.
        """
        with self._installing:
            self._state = state
        size = state.nbytes
        # to fill new memory takes time, of which there is some until the worker is admitted
        in_background(lambda: self._reserve(size))

    @property
    def keeps(self) -> bool:
        """Whether there is memory that outlives this process."""
        return self._safe.there

    def newest(self) -> SafeCopy | None:
        """The latest safe state of this node, whichever process left it. None also while one is loaded from storage
        that is slow.
        """
        if not self._installing.acquire(timeout=NEWEST_SECONDS):
            return None
        try:
            return self._safe.newest()
        finally:
            self._installing.release()

    def reached(self, position: Position) -> None:
        """The state in memory was trained up to there."""
        with self._installing:
            self._position = position

    def prepare(
        self, order: Form, commits: CommitStore, on_progress: Callable[[int, int], None] = lambda received, size: None
    ) -> Preparation:
        """Nothing else may touch the parameters until the word to proceed. The latest order counts: what an earlier one
        began ends as Superseded. `on_progress` is called with the bytes that have arrived, and all bytes.
        """
        self._generation = order.generation
        self._server.expect(order.generation, order.transfer_token.get_secret_value(), order.clear)
        if not (small := self._state.nbytes <= BESIDE_FORMATION):
            on_progress(
                0, self._state.nbytes
            )  # the coordinator waits for it accordingly, also while it is read from storage
        return Preparation(lambda safe: self._obtain(order, commits, safe, on_progress), order.fetch and small)

    def keep(self, generation: int, position: Position) -> memoryview:
        """A copy of the state at a boundary, to be committed. It is safe a moment after that: its seal is set while the
        next step is made.
        """
        with self._installing:
            block = self._state.pack(position, self._safe.allocate)
        self.sealing = in_background(lambda: self._seal(block, generation, position))
        return block

    def release(self, order: Form) -> None:
        """All have formed with the state: nobody will ask for it any more."""
        self._server.withdraw(order.generation)

    def close(self) -> None:
        self._server.close()

    def _seal(self, block: memoryview, generation: int, position: Position) -> None:
        with self._installing:
            self._safe.seal(block, generation, position)

    def _reserve(self, size: int) -> None:
        with self._installing:
            self._safe.reserve(size)

    def _room(self, size: int) -> memoryview:
        with self._installing:
            return self._safe.allocate(size)

    def _obtain(
        self, order: Form, commits: CommitStore, safe: threading.Event, on_progress: Callable[[int, int], None]
    ) -> Kept:
        watch = Stopwatch()
        fetched = self._fetched(order, on_progress) if order.fetch else None
        if fetched:
            watch.lap("transfer")
        with self._installing:
            if order.generation != self._generation:
                raise Superseded(f"generation {order.generation} was taken back")
            if fetched:
                self._position = self._state.install(fetched.block)
                watch.lap("install")
            elif order.commit or order.safe:
                self._position = self._load(order, commits)
                watch.lap("load")
            if self._position.step != order.position.step:  # as when the job begins anew, and this process is of before
                raise WrongState(
                    f"the state in memory is of step {self._position.step}, not {order.position.step}: a fresh "
                    "process has to go on"
                )
            feed = fetched or self._packed(order)
            watch.lap("copy")
            name = feed.name or checksum(feed.block).hex()
            feed.finish(name)
            self._safe.seal(feed.block, order.generation, order.position, name)
            safe.set()
            watch.lap("seal")
        checks = self._state.checks(feed.block)
        watch.lap("digest")
        return Kept(feed.block, digest(each for _, each in checks), checks, watch.laps)

    def _packed(self, order: Form) -> Feed:
        """On offer at once: who lacks it need not wait for its checksum."""
        feed = Feed.whole(self._state.pack(order.position, self._safe.allocate), self._control.instance_id)
        if order.receivers:
            self._server.offer(order.generation, feed)
        return feed

    def _fetched(self, order: Form, on_progress: Callable[[int, int], None]) -> Feed:
        request = Request(
            generation=order.generation,
            token=order.transfer_token.get_secret_value(),
            sources=[(source.host, source.port) for source in order.sources],
            allocate=self._room,
            share=lambda feed: self._server.offer(order.generation, feed),
            wanted=lambda: order.generation == self._generation,
            on_progress=on_progress,
            clear=order.clear,
        )
        return fetch(request, self._control.progress_seconds + self._state.nbytes / LEAST_SPEED)

    def _load(self, order: Form, commits: CommitStore) -> Position:
        """Raises CommitDamaged when it cannot be had any more, CheckpointError when it may be had later."""
        if order.safe:
            return self._state.install(self._safe.read(order.safe))
        assert order.commit is not None
        position = self._state.install(commits.read(order.commit))
        if position != order.position:
            raise CheckpointError(
                f"commit {order.commit} is of step {position.step}, not {order.position.step} as the coordinator says"
            )
        return position
