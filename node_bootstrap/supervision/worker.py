"""Keeps the node's worker process: starts it for a job, and after a crash follows the coordinator's orders.

All worker processes of a node inherit the same memory, so a new process finds the state that the previous process
stored there (`dyntrain.training.host.safe_memory`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from enum import Enum

from dyntrain.node_bootstrap.core.pacing import Timing
from dyntrain.node_bootstrap.core.restarts import RestartAction, RestartReason, decide_after_crash
from dyntrain.node_bootstrap.host.errors import NodeError
from dyntrain.node_bootstrap.host.processes import Child, Children, Program, explain_exit
from dyntrain.node_bootstrap.supervision.spares import Spares
from dyntrain.training.host.safe_memory import SafeMemory
from dyntrain.training.protocol.node_messages import FACE_WANTED, WorkerExited, WorkerStarted
from dyntrain.training.protocol.wire import FromNode
from dyntrain.training.timeouts import timeout

DT_SCRIPTS_MESSAGE = (
    f"the script is written for AWS Dynamic Training: launch it with --dt-scripts (exit code {FACE_WANTED})"
)
log = logging.getLogger(__name__)


class WorkerState(Enum):
    ABSENT = "not started"
    RUNNING = "running"
    CRASHED = "crashed"
    LEFT = "left"  # exit code 0: the coordinator released the worker, or the job is over
    FAILED = "failed"
    RETIRED = "retired"


class Worker:
    """Keeps the node's worker process running. `program` is None until a person launches a job (`set_program`).

    `send` sends a message to the coordinator, and returns False without a connection. `on_failure` is called when the
    node gives up the worker. `on_recovery` is called when a worker that was given up starts again. The event
    `exited_cleanly` is set when the worker process has ended with exit code 0.
    """

    def __init__(
        self,
        program: Program | None,
        children: Children,
        send: Callable[[FromNode], bool],
        on_failure: Callable[[str], None],
        on_recovery: Callable[[], None],
        timing: Timing,
        spares: int = 0,
    ) -> None:
        self._memory = SafeMemory()
        self._program = self._with_memory(program)
        self._children, self._timing = children, timing
        self.spares = Spares(self._program, spares, children, lambda: self.state is WorkerState.RUNNING, timing)
        self._send, self._on_failure, self._on_recovery = send, on_failure, on_recovery
        self.state = WorkerState.ABSENT
        self._connected = False
        self._job = ""
        self._child: Child | None = None
        self._last_exit: WorkerExited | None = None
        self._crashed_at = self._cools_until = 0.0
        self._own_restarts: tuple[float, ...] = ()
        self.exited_cleanly = asyncio.Event()
        self._changed = asyncio.Event()
        self._lock = asyncio.Lock()  # held by orders and by the node's own restarts

    def _with_memory(self, program: Program | None) -> Program | None:
        return (
            None if program is None else program.with_environment(self._memory.environment, *self._memory.descriptors)
        )

    def set_program(self, program: Program | None) -> None:
        """Set the program that `on_welcome` starts next; with None, `on_welcome` stops the running worker."""
        self._program = self.spares.program = self._with_memory(program)

    @property
    def pid(self) -> int | None:
        """Process id of the worker, or None if no worker runs."""
        return self._child.pid if self._child and self.state is WorkerState.RUNNING else None

    async def on_welcome(self, job: str) -> None:
        """Record that the coordinator of `job` is connected.

        Starts the worker, unless the worker of this job runs already or has left. If the worker has crashed, the crash
        is reported to the coordinator again.
        """
        async with self._lock:
            self._connected = True
            is_new_job, self._job = job != self._job, job
            if self._program is None:
                await self._end_worker()
            elif self.state is WorkerState.ABSENT or (is_new_job and self.state is not WorkerState.RETIRED):
                await self.spares.discard_spares()  # the spares belong to the previous job
                await self._replace_process(f"job {job}")
            elif self.state in (WorkerState.CRASHED, WorkerState.FAILED) and self._last_exit is not None:
                self._send(self._last_exit)
                self._crashed_at = time.monotonic()
            self._changed.set()

    async def _end_worker(self) -> None:
        """Stop the worker without starting another worker. Takes at most as long as `Child.stop`.

        The caller must hold `_lock`.
        """
        earlier_state, self.state = (
            self.state,
            WorkerState.RETIRED if self.state is WorkerState.RETIRED else WorkerState.ABSENT,
        )
        await self.spares.discard_spares()
        if self._child and earlier_state is WorkerState.RUNNING:
            await self._child.stop(self._timing.retire_grace_seconds)
        if earlier_state is WorkerState.FAILED:
            self._on_recovery()

    def on_disconnect(self) -> None:
        self._connected = False
        self._changed.set()

    async def restart(self, pid: int | None, reason: str) -> None:
        """Restart the worker process `pid` (None: a worker that has left), as the coordinator has ordered.

        An order for a process that has been replaced is ignored.
        """
        async with self._lock:
            current_pid = self._child.pid if self._child else None
            ended_states = (WorkerState.LEFT,) if pid is None else (WorkerState.CRASHED, WorkerState.FAILED)
            order_applies = self.state in ended_states or (pid is not None and pid == current_pid)
            if not order_applies or self.state is WorkerState.RETIRED:
                has_pid = pid is not None  # an order without a pid was sent before the node reported its worker
                log_fields = {"pid": current_pid, "ordered": pid, "reason": reason}
                log.log(
                    logging.INFO if has_pid else logging.DEBUG,
                    "ignored an order to restart another worker",
                    extra=log_fields,
                )
                return
            had_failed = self.state is WorkerState.FAILED
            await self._replace_process(reason)
            if had_failed:
                self._on_recovery()

    async def cool_down(self, pid: int, seconds: float, given_up: bool) -> None:
        """Record that the coordinator will send no restart order for the crashed worker for `seconds`.

        With `given_up`, the coordinator may never send an order, so the failure is reported to the controller.
        """
        async with self._lock:
            if self.state is not WorkerState.CRASHED or self._child is None or pid != self._child.pid:
                return
            self._cools_until = time.monotonic() + seconds
            log.warning("the worker cools down", extra={"seconds": seconds, "given_up": given_up})
            if given_up:
                self._give_up(RestartReason.GIVEN_UP)
                await self.spares.discard_spares()
            self._changed.set()

    async def suspend(self, grace: float) -> bool:
        """Stop a running or crashed worker and its spares; the next `on_welcome` starts a new worker.

        Returns False if the worker was given up, so that the next coordinator decides whether to restart the worker.
        Takes at most the time of `Child.stop`.
        """
        async with self._lock:
            if self.state is WorkerState.FAILED:
                return False
            if self.state in (WorkerState.RUNNING, WorkerState.CRASHED):
                self.state = WorkerState.ABSENT
                await self.spares.discard_spares()
                if self._child:
                    await self._child.stop(grace)
                self._changed.set()
            return True

    async def wait_for_end(self, seconds: float) -> None:
        """Wait up to `seconds` for the end of the training script, which may still work after it has left the job."""
        if self._child and self.state is WorkerState.RUNNING:
            with contextlib.suppress(TimeoutError):
                async with timeout(seconds):
                    await self._child.wait()

    async def stop(self, grace: float) -> None:
        """Stop the worker, which is never started again. Takes at most the time of `Child.stop`."""
        async with self._lock:
            self.state = WorkerState.RETIRED
            await self.spares.discard_spares()
            if self._child:
                await self._child.stop(grace)

    async def run(self) -> None:
        """Watch the worker process until cancelled: report its end, and after a crash restart the worker or give up."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self.spares.run())
                await self._supervise_process()
        finally:
            self._memory.close()

    async def _supervise_process(self) -> None:
        while True:
            self._changed.clear()
            if self.state is WorkerState.RUNNING and self._child is not None:
                await self._watch_process(self._child)
            elif self.state is WorkerState.CRASHED:
                await self._act_after_crash()
            else:
                await self._changed.wait()

    async def _watch_process(self, child: Child) -> None:
        exit_code = await child.wait()
        async with self._lock:
            if child is not self._child or self.state is not WorkerState.RUNNING:
                return  # the process was replaced or retired meanwhile
            await child.stop()  # kills processes that the worker left running
            if exit_code == 0:
                self.state = WorkerState.LEFT
                self.exited_cleanly.set()
                self._send(WorkerExited(pid=child.pid, code=exit_code, reason="the script has ended"))
                await self.spares.discard_spares()
                log.info("the worker left", extra={"pid": child.pid})
                return
            self.state, self._crashed_at = WorkerState.CRASHED, time.monotonic()
            reason = DT_SCRIPTS_MESSAGE if exit_code == FACE_WANTED else explain_exit(exit_code, 0.0)
            if last_output := child.last_output(limit=1000):
                reason = f"{reason}; its last output:\n{last_output}"
            self._last_exit = WorkerExited(pid=child.pid, code=exit_code, reason=reason)
            log.warning("the worker crashed", extra={"pid": child.pid, "code": exit_code, "reason": reason})
            self._send(self._last_exit)

    async def _act_after_crash(self) -> None:
        now = time.monotonic()
        restart_decision = decide_after_crash(
            now, self._crashed_at, self._cools_until, self._connected, self._own_restarts, self._timing
        )
        if restart_decision.action is RestartAction.WAIT:
            with contextlib.suppress(TimeoutError):
                async with timeout(restart_decision.due_at - now):
                    await self._changed.wait()
            return
        async with self._lock:
            if self.state is not WorkerState.CRASHED:
                return
            if restart_decision.action is RestartAction.START:
                self._own_restarts = (
                    *(
                        restarted_at
                        for restarted_at in self._own_restarts
                        if now - restarted_at < self._timing.restart_window_seconds
                    ),
                    now,
                )
                await self._replace_process(restart_decision.reason.value)
            else:
                self._give_up(restart_decision.reason)
                await self.spares.discard_spares()

    def _give_up(self, reason: RestartReason) -> None:
        self.state = WorkerState.FAILED
        last_exit_reason = self._last_exit.reason if self._last_exit else ""
        log.error("gave up on the worker", extra={"reason": reason.value})
        self._on_failure(f"{reason.value}; the last time: {last_exit_reason}")

    async def _replace_process(self, reason: str) -> None:
        """Kill the worker process, then let a spare take over or start a new process. The caller must hold `_lock`."""
        self.exited_cleanly.clear()
        assert self._program is not None, "without a program there is no job to start a worker for"
        if self._child and self.state is WorkerState.RUNNING:
            await self._child.stop()
        try:
            spare_process = self.spares.take_spare()
            self._child = spare_process or await self._children.start("worker", self._program)
        except (OSError, NodeError) as error:
            log.error("the worker cannot be started", extra={"reason": str(error)})
            self.state, self._crashed_at = WorkerState.CRASHED, time.monotonic()
        else:
            self.state, self._cools_until = WorkerState.RUNNING, 0.0
            # without a connection, the next hello reports the worker
            self._send(WorkerStarted(pid=self._child.pid, spare=spare_process is not None))
            self.spares.notify_change()
            log.info("the worker is started", extra={"pid": self._child.pid, "reason": reason})
        self._changed.set()
