"""Membership of a worker with a coordinator: admission, forming of generations, check-in between steps, leaving."""

from __future__ import annotations

import atexit
import contextlib
import logging
import math
import os
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from dyntrain.controller.contract.messages import ControlFile
from dyntrain.training.engine import Engine
from dyntrain.training.host.standby import wait_until_needed
from dyntrain.training.layout import JobFolder
from dyntrain.training.ledger import IntentLog
from dyntrain.training.protocol.checks import limit_checks
from dyntrain.training.protocol.messages import (
    Broken,
    CheckIn,
    CommitUnreadable,
    Fetching,
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
    Progress,
    ScriptEnded,
    ScriptFailed,
    WorkerHello,
)
from dyntrain.training.protocol.node_messages import REFUSED
from dyntrain.training.protocol.slots import name_of
from dyntrain.training.protocol.wire import FromCoordinator
from dyntrain.training.sampling.sharding import Indices
from dyntrain.training.sampling.statistics import averages_of, weighted_moments
from dyntrain.training.worker.arrays import float64_array, numbers_of, wait_for_all
from dyntrain.training.worker.arrays.kvstore import ElasticKVStore
from dyntrain.training.worker.membership.client import CoordinatorClient, CoordinatorLost, read_control_file
from dyntrain.training.worker.membership.committing import CommitWriter
from dyntrain.training.worker.membership.handover import Handover, JobState
from dyntrain.training.worker.membership.membership import Key, Membership
from dyntrain.training.worker.membership.step import StepGuard
from dyntrain.training.worker.refused import Refused, Unrecoverable, past_help, raised_by_checks, trace_for_people
from dyntrain.training.worker.state.checkpoint import CommitDamaged
from dyntrain.training.worker.transfer.fetching import TransferError

STATISTICS_KEY = "statistics"  # name of the key after the gradients' keys
PROGRESS_SECONDS = 1.0  # between reports of progress
LOOK_SECONDS = 0.2  # between two checks for another order, while the state is fetched
log = logging.getLogger(__name__)


class CoordinatedMembership(Membership):
    shared = True  # the job can have other workers
    probes = True  # the first batch is tried in children of this process

    def __init__(self, control: ControlFile, engine: Engine) -> None:
        self._control = control
        self._engine = engine
        super().__init__(ElasticKVStore(engine))
        self.local_rank, self.local_size, self.numbered = control.slot, control.slots, False
        self._handover = Handover(control)
        folder = JobFolder.of(Path(control.mount), control.cluster, control.job)
        self._folder = folder
        self._connection: CoordinatorClient | None = None  # from `enter` on
        self._commits = CommitWriter(folder, lambda message: self._client.say(message))
        self._guard = StepGuard(
            self._engine, lambda message: self._client.say(message, awaits_answer=isinstance(message, Broken))
        )
        self._intents = IntentLog(folder.ledger, name_of(control.instance_id, control.slot), os.getpid())
        self._generation = 0
        self._writes = (
            False  # whether this worker's script writes files; the coordinator chooses at the end of the loop
        )
        self._loop = 0  # number of the script's loop over epochs
        self._holds = False  # whether this process holds the state that the next loop begins with
        self._taken = 0  # samples of this worker since the last proceed
        self._steps = 0  # of this worker since the last proceed
        self._proceeded = self._stepped = self._progressed = time.monotonic()
        self._step_seconds = 0.0
        self._first = False  # the next step is the generation's first
        self._phases: dict[str, float] = {}  # seconds of the current membership change, by phase
        self._survivor = False
        self._install_hook()

    @property
    def _client(self) -> CoordinatorClient:
        if self._connection is None:
            raise RuntimeError("there is no connection to the coordinator yet: call enter() first")
        return self._connection

    @property
    def output(self) -> Path:
        return self._folder.output

    @property
    def writes(self) -> bool:
        if self.over:
            return self._writes
        if not self._generation:
            raise RuntimeError(
                "job.writes was used before the loop over job.epochs(), when no worker has its number yet. Make "
                "folders on every "
                "worker, with exist_ok=True"
            )
        return self.kvstore.rank == 0

    def enter(
        self,
        state: JobState,
        *,
        epochs: int,
        samples: int,
        global_batch: int,
        seed: int,
        batching: str,
        keys: Sequence[Key] = (),
        drawn_from: int | None = None,
        another: bool = False,
    ) -> Position:
        if self._connection is None and wait_until_needed():
            self._control = read_control_file() or self._control  # the coordinator may have been restarted
        self._state, self.over, self.stopping = state, False, False
        statistics_length = 1 + 2 * len(state.statistics()[0])
        # The statistics' key comes last, so that the numbers of the other keys do not change.
        self._keys = [
            *state.gradient_keys,
            *keys,
            *([(STATISTICS_KEY, (statistics_length,), "float64")] if statistics_length > 1 else []),
        ]
        self._numbers = {name: key_number for key_number, (name, _, _) in enumerate(self._keys)}
        terms = LoopTerms(
            epochs=epochs,
            samples=samples,
            drawn_from=drawn_from,
            global_batch=global_batch,
            seed=seed,
            batching=batching,
            layout=state.layout,
            summed_bytes=sum(math.prod(shape) * np.dtype(dtype).itemsize for _, shape, dtype in self._keys),
            loop=self._loop,
            another=another,
        )
        if self._connection is None:
            self._connect(state, terms)
        else:
            self._handover.begin_next_loop(state)
            self._client.enter(terms, self._generation if self._holds else None)
        # no timeout, as admission may take an hour; the supervisor ends this process with the job
        order = self._client.next_order()
        if isinstance(order, Leave):
            if self._holds:
                self._leave(order)
            raise SystemExit(0)
        if isinstance(order, LoopOver):
            return self._end_loop(order)
        if not isinstance(order, Form):
            raise CoordinatorLost(f"expected the order to form a generation, got {order.type}")
        if self._holds:
            self._survivor, self._holds = True, False
            self._handover.note_position(self.starts)
        return self._form(order)

    def _connect(self, state: JobState, terms: LoopTerms) -> None:
        hello = WorkerHello(
            cluster=self._control.cluster,
            instance_id=self._control.instance_id,
            private_ip=self._control.private_ip,
            slot=self._control.slot,
            slots=self._control.slots,
            pid=os.getpid(),
            state_port=self._handover.port,
            engine=self._engine.name,
            **terms.model_dump(),
        )
        self._handover.open(self._control.job, state)
        self._connection = CoordinatorClient(self._control, hello, self._guard.handle, safe=self._handover.newest)
        log.info("waiting for admission to job %s of cluster %s", self._control.job, self._control.cluster)

    def _end_loop(self, order: LoopOver) -> Position:
        """Handle the coordinator's order that the script's loop over epochs has ended.

        The job ends when the script ends, unless the script begins another loop.
        """
        if not self._loop:
            atexit.register(self.script_ended)
        self.over, self._writes, self.starts = True, order.writes, order.position
        self._loop, self._holds = order.loop, order.holds
        self._engine.dissolve()
        log.info("the loop over epochs is over at step %d", order.position.step)
        return order.position

    def script_ended(self) -> None:
        if self.over and not self.failure_reported and not self.ended:
            self._client.say(ScriptEnded(generation=self._generation if self._holds else None), awaits_answer=True)
            with contextlib.suppress(CoordinatorLost):
                # No timeout: another worker's script may still run, and an export after the last loop may take any
                # time. Processes that end meanwhile are not waited for.
                order = self._client.next_order()
                if isinstance(order, Leave):
                    self._leave(order)
        self.ended = True
        self.close()

    def boundary(self, position: Position) -> Position:
        if self.over:
            return position
        wait_for_all()
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
                stop=self.stopping,
                silenced=self.findings.silenced,
                checks=limit_checks(self._state.sampled_checksums(position)),
            ),
            awaits_answer=True,
        )
        return self._follow_boundary_order(position)

    def rejoin(self, position: Position) -> Position:
        self._stepped = time.monotonic()
        return self._follow_boundary_order(position)

    def _follow_boundary_order(self, position: Position) -> Position:
        order = (
            self._client.next_order()
        )  # the coordinator bounds the wait: it restarts this worker if another worker does not come
        self._phases = {"check_in": time.monotonic() - self._stepped}
        if isinstance(order, Form):
            self._survivor = True
            self._handover.note_position(position)
            position = self._form(order)
        elif isinstance(order, Leave):
            self._leave(order)
            if not order.finished or order.generation != self._generation:  # the job ended with steps that were undone
                raise SystemExit(0)
        elif isinstance(order, Proceed):
            self._proceed(order, position, None)
        elif isinstance(order, LoopOver):
            position = self._end_loop(order)
        else:
            raise CoordinatorLost(f"expected an order at the boundary, got {order.type}")
        return position

    def _form(self, order: Form) -> Position:
        """Form the ordered generation, or a later generation that replaces the ordered generation.

        Returns the position at which training continues.
        """
        while isinstance(answer := self._form_generation(order), Form):
            order = answer
        if isinstance(answer, Leave):
            self._leave(answer)
            raise SystemExit(0)
        return order.position if answer is None else self._end_loop(answer)

    def _form_generation(self, order: Form) -> Form | Leave | LoopOver | None:
        """Form one generation. Returns None after success, or a later order that replaced `order`.

        A later order arrives when a member was lost during the formation, or when this worker is no longer needed.
        """
        began_at = time.monotonic()
        self._generation = order.generation
        commit_store = self._commits.store(order.checkpoint_dir)
        state_task = self._handover.prepare(order, commit_store, self._fetching_reporter(order.generation))
        self._engine.dissolve()
        self._phases["teardown"] = time.monotonic() - began_at
        prepared_report: Prepared | CommitUnreadable = Prepared(generation=order.generation)
        waiting_since = time.monotonic()
        try:
            while not state_task.safe_within(LOOK_SECONDS):
                if self._client.has_order:  # another member was lost, and this generation is void
                    return _replacing_order(self._client.next_order(), order)
        except TransferError as error:  # the coordinator sends the next order in bounded time
            log.warning("%s", error)
            return _replacing_order(self._client.next_order(), order)
        except CommitDamaged as error:  # reported now, while all can still form from another state
            prepared_report = CommitUnreadable(
                generation=order.generation, name=order.safe or order.commit or "", reason=str(error)
            )
        self._phases["safe"] = time.monotonic() - waiting_since
        waiting_since = time.monotonic()
        self._client.say(prepared_report, awaits_answer=True)
        answer = self._client.next_order()  # the coordinator bounds the wait and leaves out unprepared members
        if not isinstance(answer, Go):
            return _replacing_order(answer, order)
        self._phases["wait"] = time.monotonic() - waiting_since
        self.expects(order.position, order.number, order.workers)
        self._phases |= self._engine.form(order.environment, self._keys)
        formed_at = time.monotonic()
        kept_state = state_task.state.result()
        self.kvstore.rank, self.kvstore.num_workers = order.number, order.workers
        self.cross_rank, self.numbered = order.cross_rank, True
        self.segment_steps, self.first_step = order.segment_steps, order.position.step
        self._guard.formed(order.generation, order.position)
        self._phases["state"] = time.monotonic() - formed_at
        formed_report = Formed(
            generation=order.generation,
            digest=kept_state.digest,
            checks=limit_checks(kept_state.checks),
            phases=self._phases,
            background=kept_state.seconds,
        )
        self._client.say(formed_report, awaits_answer=True)
        answer = self._client.next_order()  # the coordinator's formation deadline bounds the wait
        if not isinstance(answer, Proceed):
            return _replacing_order(answer, order)
        self._phases["agree"] = time.monotonic() - formed_at - self._phases["state"]
        self._handover.stop_offering(order)
        self._first = True
        self._proceed(answer, order.position, kept_state.block)
        return None

    def _fetching_reporter(self, generation: int) -> Callable[[int, int], None]:
        reported_at = 0.0

        def report_progress(received_bytes: int, state_bytes: int) -> None:
            nonlocal reported_at
            if (now := time.monotonic()) - reported_at >= PROGRESS_SECONDS:
                reported_at = now
                self._client.say(Fetching(generation=generation, received=received_bytes, size=state_bytes))

        return report_progress

    def _proceed(self, order: Proceed, position: Position, state_block: memoryview | None) -> None:
        self._guard.set_position(position)
        is_writing = self._commits.is_writing
        if order.commit and (self._handover.has_safe_memory or not is_writing):
            state_block = self._handover.keep(self._generation, position) if state_block is None else state_block
            if not is_writing:
                self._commits.begin_commit(self._generation, position, state_block, order.keep)
        self._metrics = {}
        self._taken = self._steps = 0
        self._proceeded = self._progressed = time.monotonic()

    def _leave(self, order: Leave) -> None:
        self.over, self._writes = True, order.writes
        self._engine.dissolve()
        log.info("leaving generation %d: %s", order.generation, order.reason)
        self._client.say(Left(generation=order.generation))

    @property
    def broken(self) -> bool:
        return self._guard.aborted

    def step(
        self, after: Position, push: Callable[[], None], gradients: Sequence[Any], update: Callable[[], None]
    ) -> bool:
        return self._guard.run(after, push, gradients, update)

    def exchange(
        self, keys: Sequence[str], push: Callable[[], None], arrays: Sequence[Any], aside: bool = False
    ) -> bool:
        return self._guard.exchange([self._numbers[key] for key in keys], push, arrays, aside)

    def apply(self, after: Position, update: Callable[[], None], reaches: bool = True) -> bool:
        return self._guard.apply(after, update, reaches)

    def all_have_sums(self, exchange_again: Callable[[], bool]) -> bool:
        return self._guard.all_have_sums(exchange_again)

    def reach(self, after: Position) -> bool:
        return self._guard.reach(after)

    def average_statistics(self, position: Position) -> None:
        means, variances = self._state.statistics()
        if not len(means):
            return
        statistics_vector = float64_array(weighted_moments(means, variances, self._taken))

        def set_averages() -> None:
            if (averages := averages_of(numbers_of(statistics_vector))) is not None:
                self._state.set_statistics(*averages)

        # This is a step of its own, without a change of position: if a worker is lost in the step, the survivors are
        # released as in any step.
        self._guard.run(
            position,
            lambda: self._engine.kvstore.pushpull(STATISTICS_KEY, statistics_vector),
            [statistics_vector],
            set_averages,
            first=len(self._keys) - 1,
        )

    def take_back(self, count: int) -> None:
        self._taken -= count

    def intend(self, position: Position, indices: Indices) -> None:
        self._intents.append_intent(self._generation, position, indices.tolist())
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
            wait_for_all()
            step_ended_at = time.monotonic()
            pause_seconds = max(0.0, step_ended_at - self._stepped - self._step_seconds) if self._survivor else None
            self._phases["first_step"] = max(0.0, step_ended_at - self._proceeded - self._step_seconds)
            self._client.say(FirstStep(generation=self._generation, pause=pause_seconds, phases=self._phases))
        step_ended_at = time.monotonic()
        if step_ended_at - self._progressed >= PROGRESS_SECONDS:
            self._progressed = step_ended_at
            self._client.say(
                Progress(
                    generation=self._generation,
                    position=position,
                    samples_per_second=self._taken / (step_ended_at - self._proceeded),
                    own_seconds=self._guard.own_seconds,
                )
            )

    def failed(self, error: BaseException) -> None:
        """Report the script's error to the coordinator, unless an error was reported before.

        Before `enter` was called, an error appears only in the process's output.
        """
        needs_no_report = self.failure_reported or self._connection is None
        if needs_no_report or isinstance(error, SystemExit | KeyboardInterrupt | GeneratorExit):
            return
        self.failure_reported = True
        if (batch_note := self.in_hand()) and not isinstance(error, Refused | Unrecoverable):
            error.add_note(batch_note)
        self._client.say(
            ScriptFailed(
                generation=self._generation,
                position=self._guard.position,
                error=f"{type(error).__name__}: {error}".strip()[:2000],
                traceback="".join(traceback.format_exception(type(error), error, trace_for_people(error)))[-20_000:],
                past_help=past_help(error, before_steps=self._guard.position.step == self.starts.step),
            )
        )

    def _install_hook(self) -> None:
        """Install an exception hook that reports errors to the coordinator, for errors outside of dyntrain's functions.

        If dyntrain's checks of the script fail before `enter` was called, the exit code says that a restart would not
        help.
        """
        earlier_hook = sys.excepthook

        def report_error(error_class: type[BaseException], error: BaseException, _: Any) -> None:
            self.failed(error)
            earlier_hook(error_class, error, trace_for_people(error))
            if self._connection is None and raised_by_checks(error):
                raise SystemExit(REFUSED)

        sys.excepthook = report_error

    def close(self) -> None:
        self._engine.abandon()  # after an error, gradients may stay in flight for ever; the exit must not wait for them
        self._handover.close()
        self._intents.close()
        if self._connection is not None:
            self._connection.close()


def _replacing_order(answer: FromCoordinator, order: Form) -> Form | Leave | LoopOver:
    if isinstance(answer, Form | Leave | LoopOver):
        return answer
    raise CoordinatorLost(f"unexpected order while generation {order.generation} was formed: {answer.type}")
