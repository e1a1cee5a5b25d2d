"""Keeps the node's one worker process: starts it for a job, and after a crash does what the coordinator says.

The workers inherit memory of the node, one after another: what a worker packed there is there for the next one
(`dyntrain.training.host.safe_memory`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from enum import Enum

from dyntrain.node_bootstrap.core.pacing import Timing
from dyntrain.node_bootstrap.core.restarts import RestartAction, RestartReason, after_crash
from dyntrain.node_bootstrap.host.errors import NodeError
from dyntrain.node_bootstrap.host.processes import Child, Children, Program, explain
from dyntrain.node_bootstrap.supervision.spares import Spares
from dyntrain.training.host.safe_memory import SafeMemory
from dyntrain.training.protocol.node_messages import FACE_WANTED, WorkerExited, WorkerStarted
from dyntrain.training.protocol.wire import FromNode
from dyntrain.training.timeouts import timeout

FACE_WANTED_SAID = f"the script is of AWS Dynamic Training: launch it with --dt-scripts (exit code {FACE_WANTED})"
log = logging.getLogger(__name__)


class WorkerState(Enum):
    ABSENT = "not started"
    RUNNING = "running"
    CRASHED = "crashed"
    LEFT = "left"  # exit code 0: the coordinator let it go, or the job is over
    FAILED = "failed"
    RETIRED = "retired"


class Worker:
    """`program` None: a person says later what to run (`runs`).

    `tell` sends to the coordinator and is False when nobody listens. `failed` is called when the node gives up on
    the worker, `recovered` when the coordinator has it started all the same. `left` is set while its last process is
    one that ended in good order.
    """

    def __init__(
        self,
        program: Program | None,
        children: Children,
        tell: Callable[[FromNode], bool],
        failed: Callable[[str], None],
        recovered: Callable[[], None],
        timing: Timing,
        spares: int = 0,
    ) -> None:
        self._memory = SafeMemory()
        self._program = self._given(program)
        self._children, self._timing = children, timing
        self.spares = Spares(self._program, spares, children, lambda: self.state is WorkerState.RUNNING, timing)
        self._tell, self._failed, self._recovered = tell, failed, recovered
        self.state = WorkerState.ABSENT
        self._connected = False
        self._job = ""
        self._child: Child | None = None
        self._exit: WorkerExited | None = None
        self._crashed_at = self._cools_until = 0.0
        self._own_restarts: tuple[float, ...] = ()
        self.left = asyncio.Event()
        self._changed = asyncio.Event()
        self._turn = asyncio.Lock()  # orders and the node's own restarts take turns

    def _given(self, program: Program | None) -> Program | None:
        return None if program is None else program.given(self._memory.environment, *self._memory.descriptors)

    def runs(self, program: Program | None) -> None:
        """What the next welcome starts; None: nothing, it ends what runs."""
        self._program = self.spares.program = self._given(program)

    @property
    def pid(self) -> int | None:
        """Of the running process."""
        return self._child.pid if self._child and self.state is WorkerState.RUNNING else None

    async def welcomed(self, job: str) -> None:
        """The coordinator of `job` is there. Starts the worker unless this job's is running or has left; a crash is
        told again.
        """
        async with self._turn:
            self._connected = True
            another, self._job = job != self._job, job
            if self._program is None:
                await self._stand_down()
            elif self.state is WorkerState.ABSENT or (another and self.state is not WorkerState.RETIRED):
                await self.spares.discard()  # they are of the job before
                await self._replace(f"job {job}")
            elif self.state in (WorkerState.CRASHED, WorkerState.FAILED) and self._exit is not None:
                self._tell(self._exit)
                self._crashed_at = time.monotonic()
            self._changed.set()

    async def _stand_down(self) -> None:
        """Nothing is to be trained. Bounded as `Child.stop`. Call in turn."""
        before, self.state = (
            self.state,
            WorkerState.RETIRED if self.state is WorkerState.RETIRED else WorkerState.ABSENT,
        )
        await self.spares.discard()
        if self._child and before is WorkerState.RUNNING:
            await self._child.stop(self._timing.grace)
        if before is WorkerState.FAILED:
            self._recovered()

    def disconnected(self) -> None:
        self._connected = False
        self._changed.set()

    async def restart(self, pid: int | None, reason: str) -> None:
        """By order. One about a process before the running one is old and changes nothing; a worker that crashed waits
        for no other order than this. None: whichever, if it has left.
        """
        async with self._turn:
            known = self._child.pid if self._child else None
            ended = (WorkerState.LEFT,) if pid is None else (WorkerState.CRASHED, WorkerState.FAILED)
            meant = self.state in ended or (pid is not None and pid == known)
            if not meant or self.state is WorkerState.RETIRED:
                old = pid is not None  # without one, it was given before the node could say that a worker runs
                extra = {"pid": known, "ordered": pid, "reason": reason}
                log.log(
                    logging.INFO if old else logging.DEBUG, "ignored an order to restart another worker", extra=extra
                )
                return
            failed = self.state is WorkerState.FAILED
            await self._replace(reason)
            if failed:
                self._recovered()

    async def cool_down(self, pid: int, seconds: float, given_up: bool) -> None:
        """By order: none to restart the worker that crashed comes before that. `given_up`: it may never come, the
        controller is told.
        """
        async with self._turn:
            if self.state is not WorkerState.CRASHED or self._child is None or pid != self._child.pid:
                return
            self._cools_until = time.monotonic() + seconds
            log.warning("the worker cools down", extra={"seconds": seconds, "given_up": given_up})
            if given_up:
                self._give_up(RestartReason.GIVEN_UP)
                await self.spares.discard()
            self._changed.set()

    async def suspend(self, grace: float) -> bool:
        """Stop a worker that trains or is to be started again, and its spares; the next welcome starts another. Bounded
        as `Child.stop`.

        False: it was given up, and the next coordinator decides about it.
        """
        async with self._turn:
            if self.state is WorkerState.FAILED:
                return False
            if self.state in (WorkerState.RUNNING, WorkerState.CRASHED):
                self.state = WorkerState.ABSENT
                await self.spares.discard()
                if self._child:
                    await self._child.stop(grace)
                self._changed.set()
            return True

    async def finish(self, seconds: float) -> None:
        """Give the script time to end by itself: the coordinator retires a node only after its worker has left the
        job.
        """
        if self._child and self.state is WorkerState.RUNNING:
            with contextlib.suppress(TimeoutError):
                async with timeout(seconds):
                    await self._child.wait()

    async def stop(self, grace: float) -> None:
        """For good. Bounded as `Child.stop`."""
        async with self._turn:
            self.state = WorkerState.RETIRED
            await self.spares.discard()
            if self._child:
                await self._child.stop(grace)

    async def run(self) -> None:
        """Watches the process and acts on its end, until cancelled."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self.spares.run())
                await self._keep()
        finally:
            self._memory.close()

    async def _keep(self) -> None:
        while True:
            self._changed.clear()
            if self.state is WorkerState.RUNNING and self._child is not None:
                await self._watch(self._child)
            elif self.state is WorkerState.CRASHED:
                await self._recover()
            else:
                await self._changed.wait()

    async def _watch(self, child: Child) -> None:
        code = await child.wait()
        async with self._turn:
            if child is not self._child or self.state is not WorkerState.RUNNING:
                return  # replaced or retired meanwhile
            await child.stop()  # what it left running
            if code == 0:
                self.state = WorkerState.LEFT
                self.left.set()
                self._tell(WorkerExited(pid=child.pid, code=code, reason="the script has ended"))
                await self.spares.discard()
                log.info("the worker left", extra={"pid": child.pid})
                return
            self.state, self._crashed_at = WorkerState.CRASHED, time.monotonic()
            reason = FACE_WANTED_SAID if code == FACE_WANTED else explain(code, 0.0)
            if output := child.last_words(limit=1000):
                reason = f"{reason}; its last output:\n{output}"
            self._exit = WorkerExited(pid=child.pid, code=code, reason=reason)
            log.warning("the worker crashed", extra={"pid": child.pid, "code": code, "reason": reason})
            self._tell(self._exit)

    async def _recover(self) -> None:
        now = time.monotonic()
        decision = after_crash(
            now, self._crashed_at, self._cools_until, self._connected, self._own_restarts, self._timing
        )
        if decision.action is RestartAction.WAIT:
            with contextlib.suppress(TimeoutError):
                async with timeout(decision.due - now):
                    await self._changed.wait()
            return
        async with self._turn:
            if self.state is not WorkerState.CRASHED:
                return
            if decision.action is RestartAction.START:
                self._own_restarts = (*(at for at in self._own_restarts if now - at < self._timing.restart_window), now)
                await self._replace(decision.reason.value)
            else:
                self._give_up(decision.reason)
                await self.spares.discard()

    def _give_up(self, reason: RestartReason) -> None:
        self.state = WorkerState.FAILED
        last = self._exit.reason if self._exit else ""
        log.error("gave up on the worker", extra={"reason": reason.value})
        self._failed(f"{reason.value}; the last time: {last}")

    async def _replace(self, reason: str) -> None:
        """Kill the present process, if any, and let a spare take over or start another. Call in turn."""
        self.left.clear()
        assert self._program is not None, "without one there is no job to start it for"
        if self._child and self.state is WorkerState.RUNNING:
            await self._child.stop()
        try:
            spare = self.spares.take()
            self._child = spare or await self._children.start("worker", self._program)
        except (OSError, NodeError) as error:
            log.error("the worker cannot be started", extra={"reason": str(error)})
            self.state, self._crashed_at = WorkerState.CRASHED, time.monotonic()
        else:
            self.state, self._cools_until = WorkerState.RUNNING, 0.0
            # is nobody there, the next hello says it
            self._tell(WorkerStarted(pid=self._child.pid, spare=spare is not None))
            self.spares.changed()
            log.info("the worker is started", extra={"pid": self._child.pid, "reason": reason})
        self._changed.set()
