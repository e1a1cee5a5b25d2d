"""Obtains the training state between steps, keeps a safe copy of the state, and sends the state to joining workers.

At a membership change, the state is obtained and sent on a background thread, while the training thread leaves the old
group of workers and forms the new one. A worker that holds the state copies the state into its supervisor's memory
before it reports that it is prepared. After the order `Go` the copy might come too late, as all workers with the state
may die. After an epoch or segment without a membership change, the worker that writes commits also copies the state
into its supervisor's memory. If the worker that writes a commit dies, its copy is available long before the commit is
on slow storage.
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
from dyntrain.training.worker.transfer.fetching import FetchRequest, Superseded, fetch
from dyntrain.training.worker.transfer.server import StateServer

NEWEST_SECONDS = 5.0  # limit for reading the newest safe state; the hello must be sent within 30 s
# A state of at most so many bytes is fetched while ps-lite forms the group, which keeps its transfer out of the pause.
# A larger state is fetched before: a slow or lost joiner can then be left out without a restart of the others.
BESIDE_FORMATION = 256 << 20  # bytes of the largest state that is fetched while the group forms


class WrongState(RuntimeError):
    """The training state in this process belongs to another step than the one in the coordinator's order."""


class JobState(Protocol):
    """The training state that is sent to joining workers and committed: a TrainingState or a ModuleState."""

    @property
    def layout(self) -> str: ...

    @property
    def nbytes(self) -> int: ...

    @property
    def gradient_keys(self) -> list[tuple[str, tuple[int, ...], str]]: ...

    def statistics(self) -> tuple[Doubles, Doubles]: ...

    def set_statistics(self, means: Doubles, variances: Doubles) -> None: ...

    def pack(self, position: Position, allocate: Callable[[int], memoryview] = ...) -> memoryview: ...

    def sampled_checksums(self, position: Position) -> tuple[tuple[str, str], ...]: ...

    def checks(self, block: bytes | bytearray | memoryview) -> tuple[tuple[str, str], ...]: ...

    def install(self, block: bytes | bytearray | memoryview) -> Position: ...


@dataclass(frozen=True)
class KeptState:
    """The training state at a generation's first position: as a packed block, with a digest and with timings."""

    block: memoryview  # the packed state
    digest: str  # of all checksums
    checks: tuple[tuple[str, str], ...]  # (name, checksum) of each compared array
    seconds: dict[str, float]  # of each part of the work, by name


class StateTask:
    """Obtains the training state at a generation's first position, on a background thread.

    The attribute `state` is a future with the result, a `KeptState`.
    """

    def __init__(self, work: Callable[[threading.Event], KeptState], can_fetch_later: bool) -> None:
        self._safe = threading.Event()
        if can_fetch_later:
            self._safe.set()  # the state can be fetched from other workers during the formation
        self.state: Future[KeptState] = in_background(lambda: work(self._safe))
        safe_event = self._safe  # a cycle through self would keep the state's memory until garbage collection
        self.state.add_done_callback(lambda _: safe_event.set())

    def safe_within(self, timeout_seconds: float) -> bool:
        """Wait until this worker may report that it is prepared. Returns False after `timeout_seconds`.

        A worker is prepared when the state survives the worker's death, and only short work is left. If obtaining the
        state has failed, raises the error.
        """
        is_state_safe = self._safe.wait(timeout_seconds)
        if self.state.done():
            self.state.result()
        return is_state_safe


class Handover:
    def __init__(self, control: ControlFile) -> None:
        self._control = control
        self._server = StateServer(control.private_ip)
        self._memory = inherited_memory()
        self._safe_states = SafeStates((), control.job)
        # guards the state and its memory, as the work for a withdrawn order may still run
        self._installing = threading.Lock()
        self._generation = 0
        self.sealing: Future[None] = Future()  # of the state that was kept last; no caller has to wait
        self._position = START  # position of the state in memory

    @property
    def port(self) -> int:
        """The port from which joining workers fetch the state."""
        return self._server.port

    def open(self, job: str, state: JobState) -> None:
        """Prepare the memory for safe copies of the job's state, before the worker waits for admission."""
        self._safe_states = SafeStates(self._memory, job)
        self.begin_next_loop(state)

    def begin_next_loop(self, state: JobState) -> None:
        """Use `state`, the state of the script's next loop over epochs, from now on.

        The copy of the previous loop's state stays in memory, since a commit may still be written from this copy.
        """
        with self._installing:
            self._state = state
        state_bytes = state.nbytes
        # filling new memory takes time, so it is done before the worker is admitted
        in_background(lambda: self._reserve(state_bytes))

    @property
    def has_safe_memory(self) -> bool:
        """Whether the state can be copied into memory that outlives this process."""
        return self._safe_states.has_memory

    def newest(self) -> SafeCopy | None:
        """Return the latest safe state on this node, which may have been written by an earlier worker process.

        Returns None if there is no safe state, or if a state is being loaded and the lock stays busy for
        `NEWEST_SECONDS`.
        """
        if not self._installing.acquire(timeout=NEWEST_SECONDS):
            return None
        try:
            return self._safe_states.newest()
        finally:
            self._installing.release()

    def note_position(self, position: Position) -> None:
        """Store that the state in memory was trained up to `position`."""
        with self._installing:
            self._position = position

    def prepare(
        self, order: Form, commits: CommitStore, on_progress: Callable[[int, int], None] = lambda received, size: None
    ) -> StateTask:
        """Start to obtain the training state for the generation in `order`.

        The parameters must not be read or changed elsewhere until the coordinator's order to proceed. A later call
        cancels the work for an earlier order, and that work raises Superseded. `on_progress` is called with the
        received bytes and the total bytes.
        """
        self._generation = order.generation
        self._server.expect(order.generation, order.transfer_token.get_secret_value(), order.clear)
        if not (is_small := self._state.nbytes <= BESIDE_FORMATION):
            on_progress(
                0, self._state.nbytes
            )  # the coordinator's time limit depends on the size, also while the state is read from storage
        return StateTask(lambda safe: self._obtain_state(order, commits, safe, on_progress), order.fetch and is_small)

    def keep(self, generation: int, position: Position) -> memoryview:
        """Return a copy of the state after an epoch or segment, for a commit.

        The copy is marked as a safe state on a background thread, during the next step.
        """
        with self._installing:
            block = self._state.pack(position, self._safe_states.allocate)
        self.sealing = in_background(lambda: self._seal(block, generation, position))
        return block

    def stop_offering(self, order: Form) -> None:
        """Stop offering the state to other workers, after all members have formed the generation."""
        self._server.withdraw(order.generation)

    def close(self) -> None:
        self._server.close()

    def _seal(self, block: memoryview, generation: int, position: Position) -> None:
        with self._installing:
            self._safe_states.seal(block, generation, position)

    def _reserve(self, size: int) -> None:
        with self._installing:
            self._safe_states.reserve(size)

    def _allocate(self, size: int) -> memoryview:
        with self._installing:
            return self._safe_states.allocate(size)

    def _obtain_state(
        self, order: Form, commits: CommitStore, safe: threading.Event, on_progress: Callable[[int, int], None]
    ) -> KeptState:
        stopwatch = Stopwatch()
        fetched_feed = self._fetch_state(order, on_progress) if order.fetch else None
        if fetched_feed:
            stopwatch.lap("transfer")
        with self._installing:
            if order.generation != self._generation:
                raise Superseded(f"generation {order.generation} was withdrawn")
            if fetched_feed:
                self._position = self._state.install(fetched_feed.block)
                stopwatch.lap("install")
            elif order.commit or order.safe:
                self._position = self._install_stored_state(order, commits)
                stopwatch.lap("load")
            if self._position.step != order.position.step:  # e.g. the job restarts, and this process is an old one
                raise WrongState(
                    f"the state in memory is of step {self._position.step}, not {order.position.step}: a new "
                    "process must continue the job"
                )
            feed = fetched_feed or self._pack_and_offer(order)
            stopwatch.lap("copy")
            state_checksum = feed.name or checksum(feed.block).hex()
            feed.finish(state_checksum)
            self._safe_states.seal(feed.block, order.generation, order.position, state_checksum)
            safe.set()
            stopwatch.lap("seal")
        checks = self._state.checks(feed.block)
        stopwatch.lap("digest")
        return KeptState(feed.block, digest(array_checksum for _, array_checksum in checks), checks, stopwatch.laps)

    def _pack_and_offer(self, order: Form) -> Feed:
        """Pack the state, and offer the packed state to receivers before its checksum is known."""
        feed = Feed.whole(self._state.pack(order.position, self._safe_states.allocate), self._control.instance_id)
        if order.receivers:
            self._server.offer(order.generation, feed)
        return feed

    def _fetch_state(self, order: Form, on_progress: Callable[[int, int], None]) -> Feed:
        fetch_request = FetchRequest(
            generation=order.generation,
            token=order.transfer_token.get_secret_value(),
            sources=[(source.host, source.port) for source in order.sources],
            allocate=self._allocate,
            share=lambda feed: self._server.offer(order.generation, feed),
            wanted=lambda: order.generation == self._generation,
            on_progress=on_progress,
            clear=order.clear,
        )
        return fetch(fetch_request, self._control.progress_seconds + self._state.nbytes / LEAST_SPEED)

    def _install_stored_state(self, order: Form, commits: CommitStore) -> Position:
        """Install the safe state or the commit that the order names. Returns the position of the installed state.

        Raises CommitDamaged if the state is missing or damaged, and CheckpointError if a later attempt to read the
        commit may succeed.
        """
        if order.safe:
            return self._state.install(self._safe_states.read(order.safe))
        assert order.commit is not None
        position = self._state.install(commits.read(order.commit))
        if position != order.position:
            raise CheckpointError(
                f"commit {order.commit} is of step {position.step}, not {order.position.step} as the coordinator says"
            )
        return position
