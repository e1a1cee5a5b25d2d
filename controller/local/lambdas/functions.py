"""Run handlers as Lambda does: concurrently, in separate processes, with retries of asynchronous invocations.

An asynchronous invocation that failed (error, timeout or killed process) is repeated after each delay in
`retry_delays`. If the last attempt also fails, the invocation becomes a dead letter. A synchronous invocation, such as
for stream records, returns the result to the caller without a retry.
"""

from __future__ import annotations

import contextlib
import threading
import time
import uuid
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dyntrain.controller.local.account import Account
from dyntrain.controller.local.agenda import Agenda
from dyntrain.controller.local.errors import AppNotLoaded
from dyntrain.controller.local.lambdas.dead_letters import DeadLetters
from dyntrain.controller.local.lambdas.environment import ExecutionEnvironment, HandlerDied, HandlerTimedOut
from dyntrain.controller.local.lambdas.rules import Function
from dyntrain.controller.local.options import Options
from dyntrain.controller.local.spawner import Spawner
from dyntrain.controller.local.trace import CloudTrace

DEFAULT_TIMEOUT_SECONDS = 3.0  # seconds, as in Lambda


@dataclass(frozen=True)
class InvocationResult:
    """The result of an invocation of a Lambda function. `kind` is ok, error (the handler raised an exception), timeout,
    died (the handler process ended) or stopped (the embedded cloud stopped).
    """

    kind: str  # ok, error, timeout, died or stopped
    error_type: str = ""  # name of the exception's type, or Lambda's error type
    error: str = ""  # the error message
    result: Any = None  # what the handler returned

    @property
    def ok(self) -> bool:
        return self.kind == "ok"


@dataclass(frozen=True)
class Invocation:
    function: str  # name of the Lambda function
    event: Any  # the handler's input
    request_id: str
    attempt: int = 1  # counts the attempts of an asynchronous invocation
    answer: Future[InvocationResult] | None = field(default=None, compare=False)  # of a synchronous invocation


class FairQueue:
    """A queue of invocations that serves functions round-robin, because Lambda scales each function separately.
    Invocations of one function keep their order.
    """

    def __init__(self) -> None:
        self._waiting: dict[str, deque[Invocation]] = {}
        self._changed = threading.Condition()
        self._closed = False

    def add(self, invocation: Invocation) -> bool:
        """Add an invocation. Returns False if the queue is closed and the invocation will never run."""
        with self._changed:
            if not self._closed:
                self._waiting.setdefault(invocation.function, deque()).append(invocation)
                self._changed.notify()
            return not self._closed

    def take(self) -> Invocation | None:
        """Wait for the next invocation and return it. Returns None when the queue is closed."""
        with self._changed:
            while not self._closed and not self._waiting:
                self._changed.wait()
            if self._closed:
                return None
            function = next(iter(self._waiting))
            function_queue = self._waiting.pop(function)
            invocation = function_queue.popleft()
            if function_queue:
                self._waiting[function] = function_queue
            return invocation

    def close(self) -> list[Invocation]:
        with self._changed:
            self._closed = True
            waiting_invocations = [
                invocation for function_queue in self._waiting.values() for invocation in function_queue
            ]
            self._waiting.clear()
            self._changed.notify_all()
            return waiting_invocations


class Lambdas:
    """The pool of processes that run Lambda handlers. The first handler process starts at once, and further handler
    processes start when needed.
    """

    def __init__(
        self,
        account: Account,
        agenda: Agenda,
        trace: CloudTrace,
        dead_letters: DeadLetters,
        options: Options,
        environments: list[ExecutionEnvironment],
    ) -> None:
        self._account = account
        self._agenda = agenda
        self._trace = trace
        self._dead_letters = dead_letters
        self._options = options
        self._environments = environments
        self._timeouts: dict[str, float] = {}
        self._queue = FairQueue()
        self._threads = [
            threading.Thread(
                target=self._run_invocations, args=(environment,), name=f"lambda-{process_number}", daemon=True
            )
            for process_number, environment in enumerate(environments)
        ]

    @property
    def pids(self) -> list[int]:
        """The process ids of the running handler processes."""
        return [pid for environment in self._environments if (pid := environment.pid) is not None]

    def start(self, functions: Sequence[Function], variables: Mapping[str, str]) -> None:
        """Register the functions and start the threads that run handlers. All functions share the handler processes,
        and therefore all environment variables. `variables` take precedence over the functions' own environment
        variables.
        """
        self._timeouts = {function.name: function.timeout for function in functions}
        for environment in self._environments:
            for function_variables in (*(function.variables for function in functions), variables):
                environment.add_variables(function_variables)
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Stop running invocations and drop waiting invocations."""
        for invocation in self._queue.close():
            _set_result(invocation, InvocationResult("stopped"))
        for environment in self._environments:
            environment.kill_without_restart()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join(10.0)
        for environment in self._environments:
            environment.kill_process()

    def invoke_async(self, function: str, event: Any) -> None:
        self._queue.add(Invocation(function, event, str(uuid.uuid4())))

    def invoke(self, function: str, event: Any) -> InvocationResult:
        """Run a handler and wait for the handler's result. The wait lasts at most until earlier invocations in the
        queue have ended and the handler's own timeout has passed.
        """
        result_future: Future[InvocationResult] = Future()
        if not self._queue.add(Invocation(function, event, str(uuid.uuid4()), answer=result_future)):
            return InvocationResult("stopped")
        return result_future.result()

    def _run_invocations(self, environment: ExecutionEnvironment) -> None:
        if environment is self._environments[0]:
            with contextlib.suppress(AppNotLoaded):  # the first invocation reports the error again
                environment.start_process()
        while (invocation := self._queue.take()) is not None:
            started_at = time.monotonic()
            invocation_result = self._run_handler(environment, invocation)
            self._trace.write(
                "invocation",
                function=invocation.function,
                request_id=invocation.request_id,
                attempt=invocation.attempt,
                event_id=invocation.event.get("id"),
                records=len(invocation.event.get("Records", ())),
                outcome=invocation_result.kind,
                error=f"{invocation_result.error_type}: {invocation_result.error}" if not invocation_result.ok else "",
                result=invocation_result.result,
                seconds=round(time.monotonic() - started_at, 4),
            )
            if invocation.answer is not None:
                _set_result(invocation, invocation_result)
            elif not invocation_result.ok:
                self._retry_or_give_up(invocation, invocation_result)

    def _run_handler(self, environment: ExecutionEnvironment, invocation: Invocation) -> InvocationResult:
        timeout_seconds = self._options.handler_timeout or self._timeouts.get(
            invocation.function, DEFAULT_TIMEOUT_SECONDS
        )
        request = {
            "function": invocation.function,
            "request_id": invocation.request_id,
            "arn": self._account.arn("lambda", f"function:{invocation.function}"),
            "deadline": time.time() + timeout_seconds,
            "event": invocation.event,
        }
        try:
            handler_answer = environment.invoke(request, timeout_seconds)
        except HandlerTimedOut:
            return InvocationResult(
                "timeout", "Sandbox.Timedout", f"the task timed out after {timeout_seconds} seconds"
            )
        except HandlerDied as error:
            return InvocationResult("died", "Runtime.ExitError", str(error))
        if handler_answer["ok"]:
            return InvocationResult("ok", result=handler_answer["result"])
        return InvocationResult("error", handler_answer["error_type"], handler_answer["error"])

    def _retry_or_give_up(self, invocation: Invocation, invocation_result: InvocationResult) -> None:
        retry_delays = self._options.retry_delays
        if invocation.attempt > len(retry_delays):
            self._dead_letters.store(
                invocation.function,
                invocation.request_id,
                invocation.event,
                invocation.attempt,
                invocation_result.error_type,
                invocation_result.error,
            )
            return
        next_attempt = Invocation(invocation.function, invocation.event, invocation.request_id, invocation.attempt + 1)
        self._agenda.run_after(retry_delays[invocation.attempt - 1], lambda: self._retry(next_attempt))

    def _retry(self, invocation: Invocation) -> None:
        self._queue.add(invocation)


def _set_result(invocation: Invocation, invocation_result: InvocationResult) -> None:
    if invocation.answer is not None and not invocation.answer.done():
        invocation.answer.set_result(invocation_result)


def execution_environments(
    spawner: Spawner, app: str, directory: Path | None, variables: dict[str, str], logs: Path, count: int
) -> list[ExecutionEnvironment]:
    return [
        ExecutionEnvironment(spawner, app, variables, logs / f"handler-{process_number}.log", directory)
        for process_number in range(count)
    ]
