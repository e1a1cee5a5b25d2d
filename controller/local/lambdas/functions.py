"""Run handlers as Lambda does: concurrently, in processes that share nothing, with retries of asynchronous invocations.

A failed asynchronous invocation (error, timeout or killed process) is tried again after each of `retry_delays`, then
becomes a dead letter. A synchronous invocation, as for a stream, returns its result to the caller without a retry.
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
from dyntrain.controller.local.lambdas.environment import Died, ExecutionEnvironment, TimedOut
from dyntrain.controller.local.lambdas.rules import Function
from dyntrain.controller.local.options import Options
from dyntrain.controller.local.spawner import Spawner
from dyntrain.controller.local.trace import Trace

DEFAULT_TIMEOUT = 3.0  # seconds, as in Lambda


@dataclass(frozen=True)
class InvocationResult:
    """The result of an invocation. `kind` is ok, error (the handler raised), timeout, died (the process ended) or
    stopped (the cloud stopped).
    """

    kind: str
    error_type: str = ""
    error: str = ""
    result: Any = None

    @property
    def ok(self) -> bool:
        return self.kind == "ok"


@dataclass(frozen=True)
class Invocation:
    function: str
    event: Any
    request_id: str
    attempt: int = 1
    answer: Future[InvocationResult] | None = field(default=None, compare=False)


class FairQueue:
    """A queue that serves functions in turn, because Lambda scales each function separately. Invocations of one
    function keep their order.
    """

    def __init__(self) -> None:
        self._waiting: dict[str, deque[Invocation]] = {}
        self._changed = threading.Condition()
        self._closed = False

    def put(self, invocation: Invocation) -> bool:
        """Add an invocation. Returns False if the queue is closed: the invocation will never run."""
        with self._changed:
            if not self._closed:
                self._waiting.setdefault(invocation.function, deque()).append(invocation)
                self._changed.notify()
            return not self._closed

    def get(self) -> Invocation | None:
        """Wait for the next invocation and return it. Returns None when the queue is closed."""
        with self._changed:
            while not self._closed and not self._waiting:
                self._changed.wait()
            if self._closed:
                return None
            function = next(iter(self._waiting))
            queue = self._waiting.pop(function)
            invocation = queue.popleft()
            if queue:
                self._waiting[function] = queue
            return invocation

    def close(self) -> list[Invocation]:
        with self._changed:
            self._closed = True
            pending = [invocation for queue in self._waiting.values() for invocation in queue]
            self._waiting.clear()
            self._changed.notify_all()
            return pending


class Lambdas:
    """The pool of handler processes. The first process starts at once, further processes when needed."""

    def __init__(
        self,
        account: Account,
        agenda: Agenda,
        trace: Trace,
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
            threading.Thread(target=self._work, args=(environment,), name=f"lambda-{number}", daemon=True)
            for number, environment in enumerate(environments)
        ]

    @property
    def pids(self) -> list[int]:
        """The running handler processes."""
        return [pid for environment in self._environments if (pid := environment.pid) is not None]

    def start(self, functions: Sequence[Function], variables: Mapping[str, str]) -> None:
        """Register the functions and start the threads. All functions share the processes, and therefore all variables;
        `variables` take precedence.
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
            _answer(invocation, InvocationResult("stopped"))
        for environment in self._environments:
            environment.interrupt()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join(10.0)
        for environment in self._environments:
            environment.kill()

    def invoke_async(self, function: str, event: Any) -> None:
        self._queue.put(Invocation(function, event, str(uuid.uuid4())))

    def invoke(self, function: str, event: Any) -> InvocationResult:
        """Run a handler and wait for its result. The wait is bounded by the handler's timeout and by earlier
        invocations in the queue.
        """
        answer: Future[InvocationResult] = Future()
        if not self._queue.put(Invocation(function, event, str(uuid.uuid4()), answer=answer)):
            return InvocationResult("stopped")
        return answer.result()

    def _work(self, environment: ExecutionEnvironment) -> None:
        if environment is self._environments[0]:
            with contextlib.suppress(AppNotLoaded):  # the first invocation reports the error again
                environment.load()
        while (invocation := self._queue.get()) is not None:
            started = time.monotonic()
            outcome = self._run(environment, invocation)
            self._trace.write(
                "invocation",
                function=invocation.function,
                request_id=invocation.request_id,
                attempt=invocation.attempt,
                event_id=invocation.event.get("id"),
                records=len(invocation.event.get("Records", ())),
                outcome=outcome.kind,
                error=f"{outcome.error_type}: {outcome.error}" if not outcome.ok else "",
                result=outcome.result,
                seconds=round(time.monotonic() - started, 4),
            )
            if invocation.answer is not None:
                _answer(invocation, outcome)
            elif not outcome.ok:
                self._handle_failure(invocation, outcome)

    def _run(self, environment: ExecutionEnvironment, invocation: Invocation) -> InvocationResult:
        timeout = self._options.handler_timeout or self._timeouts.get(invocation.function, DEFAULT_TIMEOUT)
        request = {
            "function": invocation.function,
            "request_id": invocation.request_id,
            "arn": self._account.arn("lambda", f"function:{invocation.function}"),
            "deadline": time.time() + timeout,
            "event": invocation.event,
        }
        try:
            answer = environment.invoke(request, timeout)
        except TimedOut:
            return InvocationResult("timeout", "Sandbox.Timedout", f"the task timed out after {timeout} seconds")
        except Died as error:
            return InvocationResult("died", "Runtime.ExitError", str(error))
        if answer["ok"]:
            return InvocationResult("ok", result=answer["result"])
        return InvocationResult("error", answer["error_type"], answer["error"])

    def _handle_failure(self, invocation: Invocation, outcome: InvocationResult) -> None:
        delays = self._options.retry_delays
        if invocation.attempt > len(delays):
            self._dead_letters.put(
                invocation.function,
                invocation.request_id,
                invocation.event,
                invocation.attempt,
                outcome.error_type,
                outcome.error,
            )
            return
        next_attempt = Invocation(invocation.function, invocation.event, invocation.request_id, invocation.attempt + 1)
        self._agenda.after(delays[invocation.attempt - 1], lambda: self._retry(next_attempt))

    def _retry(self, invocation: Invocation) -> None:
        self._queue.put(invocation)


def _answer(invocation: Invocation, outcome: InvocationResult) -> None:
    if invocation.answer is not None and not invocation.answer.done():
        invocation.answer.set_result(outcome)


def execution_environments(
    spawner: Spawner, app: str, directory: Path | None, variables: dict[str, str], logs: Path, count: int
) -> list[ExecutionEnvironment]:
    return [
        ExecutionEnvironment(spawner, app, variables, logs / f"handler-{number}.log", directory)
        for number in range(count)
    ]
