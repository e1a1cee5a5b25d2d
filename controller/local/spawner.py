"""One thread that starts every child process of the cloud, because a child process dies with the thread that forked the
child process (see `dyntrain.training.host.parentage`).
"""

from __future__ import annotations

import queue
import subprocess
import threading
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import IO, Any

SPAWN_SECONDS = 30.0  # limit for the start of a process

Popen = subprocess.Popen[bytes]


class Spawner:
    """Start child processes, each in a session of its own (setsid). Because of the separate sessions, Ctrl-C in a
    terminal reaches only the cloud's own process, which then stops the child processes cleanly.
    """

    def __init__(self) -> None:
        self._requests: queue.SimpleQueue[tuple[Callable[[], Popen], Future[Popen]] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._start_requested_processes, name="spawner", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread that starts processes. Child processes that still run die when the thread ends."""
        self._requests.put(None)
        self._thread.join(SPAWN_SECONDS)

    def spawn(
        self,
        argv: tuple[str, ...],
        *,
        environment: dict[str, str],
        directory: Path | None,
        stdin: int | IO[Any],
        output: int | IO[Any],
        inherited_descriptors: tuple[int, ...] = (),
    ) -> Popen:
        """Start a process. Raises OSError when the program cannot be started. The process inherits the file descriptors
        `inherited_descriptors`.
        """

        def start_process() -> Popen:
            return subprocess.Popen(
                argv,
                env=environment,
                cwd=directory,
                stdin=stdin,
                stdout=output,
                stderr=subprocess.STDOUT,
                pass_fds=inherited_descriptors,
                start_new_session=True,
            )

        process_future: Future[Popen] = Future()
        self._requests.put((start_process, process_future))
        return process_future.result(SPAWN_SECONDS)

    def _start_requested_processes(self) -> None:
        while (request := self._requests.get()) is not None:
            start_process, process_future = request
            try:
                process_future.set_result(start_process())
            except OSError as error:
                process_future.set_exception(error)
