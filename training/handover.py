"""A worker's state at a boundary: where it comes from, where it is kept, and how joiners get it.

At a change of membership all of it happens beside the training thread, which leaves the old group and waits for ps-lite in the meantime. Whoever
holds the state has it copied into memory of its supervisor before it says that it is prepared: once the word to go is out, nobody may be left to
copy it. At other boundaries the worker that commits keeps its state there too: it is safe from a restart long before it is on slow storage.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Protocol

from controller.contract import ControlFile
from training.background import Stopwatch, in_background
from training.checkpoint import CheckpointError, CommitStore
from training.origin import START
from training.protocol import Form, Position, SafeCopy
from training.safe_memory import inherited_memory
from training.safe_state import SafeStates
from training.state import digest
from training.statistics import Doubles
from training.transfer import StateServer, fetch

NEWEST_SECONDS = 5.0  # a worker that greets its coordinator has ten
KEEP_SECONDS = 60.0  # how long a state is offered to joiners that do not come


class Superseded(RuntimeError):
    """Another order to form came in the place of this one; nobody waits for its state."""


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

    def install(self, block: bytes | bytearray | memoryview) -> Position: ...


@dataclass(frozen=True)
class Kept:
    """The state of a generation's first position: its block, its digest, and seconds of what that took."""

    block: memoryview
    digest: str
    seconds: dict[str, float]


class Preparation:
    """Of one generation's first position, at work on a thread of its own until `state` is there."""

    def __init__(self, work: Callable[[threading.Event], Kept], lacks: bool) -> None:
        self._safe = threading.Event()
        if lacks:
            self._safe.set()  # others have it
        self.state: Future[Kept] = in_background(lambda: work(self._safe))
        safe = self._safe  # a cycle through self would keep the state's memory in use until it is collected
        self.state.add_done_callback(lambda _: safe.set())

    def wait_until_safe(self) -> None:
        """Until this worker's death would not lose the state. Raises what has gone wrong by then."""
        self._safe.wait()
        if self.state.done():
            self.state.result()


class Handover:
    def __init__(self, control: ControlFile) -> None:
        self._control = control
        self._server = StateServer(control.private_ip)
        self._memory = inherited_memory()
        self._safe = SafeStates((), control.job)
        self._installing = threading.Lock()  # of the state and its memory: an order to form that was taken back may still be at work
        self._generation = 0
        self.sealing: Future[None] = Future()  # of what was kept last; nobody has to wait for it
        self._position = START  # of the state in memory

    @property
    def port(self) -> int:
        """Where joiners fetch the state."""
        return self._server.port

    def open(self, job: str, state: JobState) -> None:
        """Before the worker stands by."""
        self._state, self._safe = state, SafeStates(self._memory, job)
        size = state.nbytes
        in_background(lambda: self._reserve(size))  # to fill new memory takes time, of which there is some until the worker is admitted

    @property
    def keeps(self) -> bool:
        """Whether there is memory that outlives this process."""
        return self._safe.there

    def newest(self) -> SafeCopy | None:
        """The latest safe state of this node, whichever process left it. None also while one is loaded from storage that is slow."""
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

    def prepare(self, order: Form, commits: CommitStore) -> Preparation:
        """Nothing else may touch the parameters until the word to proceed. The latest order counts: what an earlier one began ends as Superseded."""
        self._generation = order.generation
        return Preparation(lambda safe: self._obtain(order, commits, safe), lacks=order.fetch)

    def keep(self, generation: int, position: Position) -> memoryview:
        """A copy of the state at a boundary, to be committed. It is safe a moment after that: its seal is set while the next step is made."""
        with self._installing:
            block = self._state.pack(position, self._safe.allocate)
        self.sealing = in_background(lambda: self._seal(block, generation, position))
        return block

    def release(self, order: Form) -> None:
        """The generation is formed: let go of the state once all receivers have it."""
        if order.source == self._control.instance_id:
            threading.Thread(target=self._server.withdraw, args=(order.receivers, KEEP_SECONDS), daemon=True).start()

    def close(self) -> None:
        self._server.close()

    def _seal(self, block: memoryview, generation: int, position: Position) -> None:
        with self._installing:
            self._safe.seal(block, generation, position)

    def _reserve(self, size: int) -> None:
        with self._installing:
            self._safe.reserve(size)

    def _obtain(self, order: Form, commits: CommitStore, safe: threading.Event) -> Kept:
        token = order.transfer_token.get_secret_value()
        watch = Stopwatch()
        if order.fetch:
            block = fetch(order.source_host, order.source_port, order.generation, token)
            watch.lap("transfer")
        with self._installing:
            if order.generation != self._generation:
                raise Superseded(f"generation {order.generation} was taken back")
            if order.fetch:
                self._position = self._state.install(block)
                watch.lap("install")
            else:
                if order.commit or order.safe:
                    self._position = self._load(order, commits)
                    watch.lap("load")
                if self._position.step != order.position.step:  # as when the job begins anew, and this process is of before
                    raise WrongState(f"the state in memory is of step {self._position.step}, not {order.position.step}: a fresh process has to go on")
                block = self._state.pack(order.position, self._safe.allocate)
                watch.lap("copy")
                if order.source == self._control.instance_id:
                    self._server.offer(order.generation, token, block)
                self._safe.seal(block, order.generation, order.position)
                safe.set()
                watch.lap("seal")
        summary = digest(block)
        watch.lap("digest")
        return Kept(block, summary, watch.laps)

    def _load(self, order: Form, commits: CommitStore) -> Position:
        """Raises CommitDamaged when it cannot be had any more, CheckpointError when it may be had later."""
        if order.safe:
            return self._state.install(self._safe.read(order.safe))
        assert order.commit is not None
        found = self._state.install(commits.read(order.commit))
        if found != order.position:
            raise CheckpointError(f"commit {order.commit} is of step {found.step}, not {order.position.step} as the coordinator says")
        return found
