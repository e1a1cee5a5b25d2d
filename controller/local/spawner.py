"""One thread that starts every child process of the cloud, because a child dies with the thread that forked it (see
`dyntrain.training.host.parentage`).
"""

from __future__ import annotations

import queue
import subprocess
import threading
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import IO, Any

SPAWN_SECONDS = 30.0

Popen = subprocess.Popen[bytes]


class Spawner:
    """Start processes in sessions of their own. A terminal's Ctrl-C then reaches only the cloud, which stops the
    processes in order.
    """

    def __init__(self) -> None:
        self._requests: queue.SimpleQueue[tuple[Callable[[], Popen], Future[Popen]] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="spawner", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End the thread. Children that still run die with the thread."""
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
        keep: tuple[int, ...] = (),
    ) -> Popen:
        """Start a process. Raises OSError when the program cannot be started. `keep` are descriptors that the child
        inherits.
        """

        def launch() -> Popen:
            return subprocess.Popen(
                argv,
                env=environment,
                cwd=directory,
                stdin=stdin,
                stdout=output,
                stderr=subprocess.STDOUT,
                pass_fds=keep,
                start_new_session=True,
            )

        answer: Future[Popen] = Future()
        self._requests.put((launch, answer))
        return answer.result(SPAWN_SECONDS)

    def _run(self) -> None:
        while (request := self._requests.get()) is not None:
            launch, answer = request
            try:
                answer.set_result(launch())
            except OSError as error:
                answer.set_exception(error)
