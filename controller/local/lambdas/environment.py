"""One Lambda execution environment: a process that runs handlers, one invocation at a time."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dyntrain.controller.local.errors import AppNotLoaded
from dyntrain.controller.local.lines import read_line
from dyntrain.controller.local.pace import Deadline
from dyntrain.controller.local.spawner import Spawner

APP_IMPORT_SECONDS = 60.0  # limit for the start of a handler process


class HandlerDied(Exception):
    """Raised when the handler process ended without an answer, or was killed because no answer came in time."""


class HandlerTimedOut(HandlerDied):
    """Raised when the handler process did not answer in time and was killed."""


class ExecutionEnvironment:
    """A process that runs handlers. The class is not thread-safe: each execution environment belongs to one worker
    thread. If the process has ended, the next invocation starts another process.
    """

    def __init__(
        self, spawner: Spawner, app: str, environment: dict[str, str], log: Path, directory: Path | None
    ) -> None:
        self._spawner = spawner
        self._app = app
        self._environment = environment
        self._log_path = log
        self._directory = directory
        self._process: subprocess.Popen[bytes] | None = None
        self._answer_descriptor: int | None = None
        self._unread_bytes = b""
        self._closed = False

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None else None

    def add_variables(self, variables: Mapping[str, str]) -> None:
        """Add a function's configured environment variables to the environment of the handler process."""
        self._environment = {**self._environment, **variables}

    def start_process(self) -> None:
        """Start the handler process, which imports the Chalice app. Raises AppNotLoaded, whose message has
        the reason.
        """
        self.kill_process()
        if self._closed:
            raise AppNotLoaded("the app was not loaded, because the cloud is stopping")
        read_end, write_end = os.pipe()
        try:
            with self._log_path.open("ab") as log_file:
                self._process = self._spawner.spawn(
                    (
                        sys.executable,
                        "-m",
                        "dyntrain.controller.local.lambdas.runtime",
                        self._app,
                        "--answers",
                        str(write_end),
                        "--parent",
                        str(os.getpid()),
                    ),
                    environment=self._environment,
                    directory=self._directory,
                    stdin=subprocess.PIPE,
                    output=log_file,
                    inherited_descriptors=(write_end,),
                )
        finally:
            os.close(write_end)
        self._answer_descriptor, self._unread_bytes = read_end, b""
        try:
            first_answer = self._read_answer(Deadline(APP_IMPORT_SECONDS))
        except HandlerDied as error:
            raise AppNotLoaded(
                f"the handlers' process of {self._app!r} ended before the app was loaded; see {self._log_path}"
            ) from error
        if not first_answer["ok"]:
            raise AppNotLoaded(
                f"the Chalice app {self._app!r} cannot be loaded: {first_answer['error']}; see {self._log_path}"
            )

    def invoke(self, request: dict[str, Any], timeout: float) -> dict[str, Any]:
        """Run a handler and return the handler's answer. `timeout` is the function's time limit in seconds, which is
        extended on a busy host. Raises HandlerTimedOut when the handler does not answer in time, and HandlerDied when
        the handler process has ended. After an error, the next invocation starts another process.
        """
        if self._process is None or self._process.poll() is not None:
            try:
                self.start_process()
            except AppNotLoaded as error:
                raise HandlerDied(str(error)) from error
        assert self._process is not None
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()
        except OSError as error:
            self.kill_process()
            raise HandlerDied("the handler process ended before its answer") from error
        return self._read_answer(Deadline(timeout, headroom=1.0))

    def kill_without_restart(self) -> None:
        """Kill the handler process and prevent a restart; any thread may call this method. If `invoke` still waits for
        an answer, `invoke` raises HandlerDied.
        """
        self._closed = True
        running_process = self._process
        if running_process is not None:
            running_process.kill()

    def kill_process(self) -> None:
        """Kill the handler process and wait for its end. `kill_process` may be called more than once."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            if self._process.stdin is not None:
                with contextlib.suppress(OSError):  # the ended process cannot receive unsent bytes
                    self._process.stdin.close()
            self._process = None
        if self._answer_descriptor is not None:
            os.close(self._answer_descriptor)
            self._answer_descriptor = None

    def _read_answer(self, deadline: Deadline) -> dict[str, Any]:
        assert self._answer_descriptor is not None
        try:
            line, self._unread_bytes = read_line(self._answer_descriptor, deadline, self._unread_bytes)
        except TimeoutError as error:
            self.kill_process()
            raise HandlerTimedOut("the handler did not answer in time and was killed") from error
        except EOFError as error:
            self.kill_process()
            raise HandlerDied("the handler process ended before its answer") from error
        answer: dict[str, Any] = json.loads(line)
        return answer
