"""A worker's part in the job's membership: stands by, forms generations, checks in at boundaries, leaves.

`Membership.join()` gives the real one under a supervisor, and one that is always alone without.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import training.numpy_aliases  # noqa: F401  # before mxnet

import mxnet as mx  # isort: skip

from controller.contract import ControlFile
from training.checkpoint import CheckpointError, CommitDamaged, CommitStore
from training.client import CoordinatorClient, CoordinatorLost, read_control_file
from training.engine import Engine
from training.engine.pslite import PsLite
from training.handover import Handover, JobState
from training.kvstore import ElasticKVStore
from training.layout import JobFolder
from training.ledger import IntentLog
from training.protocol import (
    CheckIn,
    CommitFailed,
    Committed,
    CommitUnreadable,
    FirstStep,
    Form,
    Formed,
    Go,
    Leave,
    Left,
    Position,
    Prepared,
    Proceed,
    Progress,
    WorkerHello,
)
from training.sharding import Indices
from training.standby import wait_until_needed
from training.statistics import averaged, weighted
from training.step import StepGuard
from training.wire import FromCoordinator

STATISTICS = "statistics"  # the key behind those of the gradients
PROGRESS_SECONDS = 1.0
QUIET = 10  # niceness of what can wait
log = logging.getLogger(__name__)


class Membership:
    """Alone: one worker, for ever. Each method is what a coordinated worker overrides."""

    def __init__(self, kvstore: ElasticKVStore) -> None:
        self.kvstore = kvstore
        self.segment_steps: int | None = None
        self.first_step = 0
        self._metrics: dict[str, tuple[float, float]] = {}

    @staticmethod
    def join(kind: str) -> Membership:
        control = read_control_file()
        return CoordinatedMembership(control, PsLite(kind, control.private_ip)) if control else Membership(ElasticKVStore(None))

    def enter(self, state: JobState, *, epochs: int, samples: int, global_batch: int, seed: int, batching: str) -> Position:
        """Blocks until this worker is a member; returns where the job is. What all workers must have in common goes to the coordinator."""
        return Position(epoch=0, offset=0, step=0)

    def boundary(self, position: Position) -> Position:
        """Blocks until the coordinator says how it goes on; SystemExit(0) when this worker is to leave before the job's end."""
        self._metrics.clear()
        return position

    @property
    def broken(self) -> bool:
        """Whether a member was lost: no step can be made before `rejoin`."""
        return False

    def rejoin(self, position: Position) -> Position:
        """Blocks until the survivors have formed the next generation; returns where it begins."""
        return position

    def step(self, after: Position, push: Callable[[], None], gradients: Sequence[Any], update: Callable[[], None]) -> bool:
        """Push the gradients, update with their sums. False: the step is void, `after` is not reached."""
        push()
        update()
        return True

    def average_statistics(self, position: Position) -> None:
        """Make BatchNorm's running statistics those of all workers' samples since the last boundary. All workers must come, at one boundary."""

    @property
    def generation(self) -> int:
        """The number of the present formation; 0 alone."""
        return 0

    def intend(self, position: Position, indices: Indices) -> None:
        """To the ledger: what this worker is about to train on."""

    def count(self, samples: int) -> None:
        """Samples that no ledger can name: the user's own iterator chose them."""

    def take_back(self, count: int) -> None:
        """The step that `count` samples were meant for is void."""

    def stepped(self, position: Position) -> None:
        """A step's update is issued; `position` is after it."""

    def record(self, name: str, total: float, count: float) -> None:
        before = self._metrics.get(name, (0.0, 0.0))
        self._metrics[name] = (before[0] + total, before[1] + count)

    def finished(self) -> None:
        """All epochs are done."""

    def close(self) -> None:
        """Let go of everything; safe to call twice."""


class CoordinatedMembership(Membership):
    def __init__(self, control: ControlFile, engine: Engine) -> None:
        self._control = control
        self._engine = engine
        super().__init__(ElasticKVStore(engine))
        self._handover = Handover(control)
        folder = JobFolder.of(Path(control.mount), control.cluster, control.job)
        self._folder = folder
        self._commits: CommitStore | None = None
        self._guard = StepGuard(self._engine, lambda message: self._client.say(message))
        self._intents = IntentLog(folder.ledger, control.instance_id, os.getpid())
        self._generation = 0
        self._epochs = 0
        self._taken = 0  # samples of this worker since the last proceed
        self._steps = 0  # likewise
        self._proceeded = self._stepped = self._progressed = time.monotonic()
        self._step_seconds = 0.0
        self._first = False  # the next step is the generation's first
        self._phases: dict[str, float] = {}  # of the change that is being made
        self._survivor = False
        self._over = False  # the job's last order was taken
        self._committing: threading.Thread | None = None

    def enter(self, state: JobState, *, epochs: int, samples: int, global_batch: int, seed: int, batching: str) -> Position:
        if wait_until_needed():
            self._control = read_control_file() or self._control  # the coordinator of then may be gone
        self._state, self._epochs = state, epochs
        values = 1 + 2 * len(state.statistics()[0])
        self._keys = [*state.gradient_keys, *([(STATISTICS, (values,), "float64")] if values > 1 else [])]
        hello = WorkerHello(
            cluster=self._control.cluster,
            instance_id=self._control.instance_id,
            private_ip=self._control.private_ip,
            pid=os.getpid(),
            state_port=self._handover.port,
            epochs=epochs,
            samples=samples,
            global_batch=global_batch,
            seed=seed,
            batching=batching,
            layout=state.layout,
        )
        self._handover.open(self._control.job, state)
        self._client = CoordinatorClient(self._control, hello, self._guard.handle, safe=self._handover.newest)
        log.info("standing by for job %s of cluster %s", self._control.job, self._control.cluster)
        order = self._client.order()  # admission may take an hour: what bounds it is the supervisor, who ends us with the job
        if isinstance(order, Leave):
            raise SystemExit(0)
        if not isinstance(order, Form):
            raise CoordinatorLost(f"expected the order to form a generation, got {order.type}")
        return self._form(order)

    def boundary(self, position: Position) -> Position:
        if self._over:
            return position
        mx.nd.waitall()
        self._stepped = time.monotonic()
        if self._steps:
            self._step_seconds = (self._stepped - self._proceeded) / self._steps
        self._client.say(
            CheckIn(
                generation=self._generation,
                position=position,
                pid=os.getpid(),
                samples=self._taken,
                seconds=self._stepped - self._proceeded,
                metrics=self._metrics,
            ),
            awaits_answer=True,
        )
        return self._go_on(position)

    def rejoin(self, position: Position) -> Position:
        self._stepped = time.monotonic()
        return self._go_on(position)

    def _go_on(self, position: Position) -> Position:
        order = self._client.order()  # bounded by the coordinator: it restarts us when somebody does not come
        self._phases = {"check_in": time.monotonic() - self._stepped}
        if isinstance(order, Form):
            self._survivor = True
            self._handover.reached(position)
            position = self._form(order)
        elif isinstance(order, Leave):
            self._leave(order)
            if position.epoch < self._epochs or order.generation != self._generation:  # it is at the end of a past that was undone
                raise SystemExit(0)
        elif isinstance(order, Proceed):
            self._proceed(order, position, None)
        else:
            raise CoordinatorLost(f"expected the word how to go on from the boundary, got {order.type}")
        return position

    def _form(self, order: Form) -> Position:
        """Forms this generation, or the one that is ordered in its place before all are formed."""
        while isinstance(answer := self._formed(order), Form):
            order = answer
        if isinstance(answer, Leave):
            self._leave(answer)
            raise SystemExit(0)
        return order.position

    def _formed(self, order: Form) -> Form | Leave | None:
        """None: the generation is formed. Else what came instead: a member was lost meanwhile, or this one is not wanted any more."""
        began = time.monotonic()
        self._generation = order.generation
        if self._commits is None:
            self._commits = CommitStore(Path(order.checkpoint_dir) if order.checkpoint_dir else self._folder.commits)
        preparation = self._handover.prepare(order, self._commits)
        self._engine.dissolve()
        self._phases["teardown"] = time.monotonic() - began
        prepared: Prepared | CommitUnreadable = Prepared(generation=order.generation)
        waiting = time.monotonic()
        try:
            preparation.wait_until_safe()
        except CommitDamaged as error:  # now, while everybody can still be told to form from another state
            prepared = CommitUnreadable(generation=order.generation, name=order.safe or order.commit or "", reason=str(error))
        self._phases["safe"] = time.monotonic() - waiting
        waiting = time.monotonic()
        self._client.say(prepared, awaits_answer=True)
        answer = self._client.order()  # bounded by the coordinator: it goes on without whoever is not prepared
        if not isinstance(answer, Go):
            return _instead(answer, order)
        self._phases["wait"] = time.monotonic() - waiting
        self._phases |= self._engine.form(order.environment, self._keys)
        formed = time.monotonic()
        kept = preparation.state.result()
        self.kvstore.rank, self.kvstore.num_workers = order.number, order.workers
        self.segment_steps, self.first_step = order.segment_steps, order.position.step
        self._guard.formed(order.generation, order.position)
        self._phases["state"] = time.monotonic() - formed
        formation = Formed(generation=order.generation, digest=kept.digest, phases=self._phases, background=kept.seconds)
        self._client.say(formation, awaits_answer=True)
        answer = self._client.order()  # bounded by the coordinator's formation deadline
        if not isinstance(answer, Proceed):
            return _instead(answer, order)
        self._phases["agree"] = time.monotonic() - formed - self._phases["state"]
        self._handover.release(order)
        self._first = True
        self._proceed(answer, order.position, kept.block)
        return None

    def _proceed(self, order: Proceed, position: Position, block: memoryview | None) -> None:
        self._guard.stands(position)
        writing = self._committing is not None and self._committing.is_alive()
        if order.commit and (self._handover.keeps or not writing):
            block = self._handover.keep(self._generation, position) if block is None else block
            if not writing:  # slow storage gets fewer commits, not a queue of states
                self._committing = threading.Thread(target=self._commit, args=(self._generation, position, block), name="commit", daemon=True)
                self._committing.start()
        self._metrics = {}
        self._taken = self._steps = 0
        self._proceeded = self._progressed = time.monotonic()

    def _commit(self, generation: int, position: Position, block: memoryview) -> None:
        assert self._commits is not None
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), QUIET)  # of this thread: steps go first
        try:
            name = self._commits.write(position.step, generation, block)
        except CheckpointError as error:
            log.error("%s", error)  # the message is the whole story; training goes on with the commit before
            self._client.say(CommitFailed(generation=generation, position=position, reason=str(error)))
            return
        self._client.say(Committed(generation=generation, position=position, name=name))

    def _leave(self, order: Leave) -> None:
        self._over = True
        self._engine.dissolve()
        log.info("leaving generation %d: %s", order.generation, order.reason)
        self._client.say(Left(generation=order.generation))

    @property
    def broken(self) -> bool:
        return self._guard.aborted

    def step(self, after: Position, push: Callable[[], None], gradients: Sequence[Any], update: Callable[[], None]) -> bool:
        return self._guard.run(after, push, gradients, update)

    def average_statistics(self, position: Position) -> None:
        means, variances = self._state.statistics()
        if not len(means):
            return
        vector = mx.nd.array(weighted(means, variances, self._taken), dtype="float64")

        def take() -> None:
            if (result := averaged(vector.asnumpy())) is not None:
                self._state.set_statistics(*result)

        # As a step of its own that ends where it begins: if a worker is lost in it, the others are freed as from any step.
        self._guard.run(position, lambda: self._engine.kvstore.pushpull(STATISTICS, vector), [vector], take, first=len(self._keys) - 1)

    def take_back(self, count: int) -> None:
        self._taken -= count

    def intend(self, position: Position, indices: Indices) -> None:
        self._intents.intend(self._generation, position, indices.tolist())
        self._taken += len(indices)

    @property
    def generation(self) -> int:
        return self._generation

    def count(self, samples: int) -> None:
        self._taken += samples

    def stepped(self, position: Position) -> None:
        self._steps += 1
        if self._first:
            self._first = False
            mx.nd.waitall()
            now = time.monotonic()
            pause = max(0.0, now - self._stepped - self._step_seconds) if self._survivor else None
            self._phases["first_step"] = now - self._proceeded - self._step_seconds
            self._client.say(FirstStep(generation=self._generation, pause=pause, phases=self._phases))
        now = time.monotonic()
        if now - self._progressed >= PROGRESS_SECONDS:
            self._progressed = now
            self._client.say(Progress(generation=self._generation, position=position, samples_per_second=self._taken / (now - self._proceeded)))

    def close(self) -> None:
        self._engine.abandon()  # after an error something may be in flight for ever: the exit must not wait for it
        self._handover.close()
        self._intents.close()
        if hasattr(self, "_client"):
            self._client.close()


def _instead(answer: FromCoordinator, order: Form) -> Form | Leave:
    if isinstance(answer, Form | Leave):
        return answer
    raise CoordinatorLost(f"while generation {order.generation} was formed: got {answer.type}")
