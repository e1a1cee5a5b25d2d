"""Makes slow requests to S3 in child processes, which answer in JSON.

If a child dies, its request is repeated in a new child.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from dyntrain.training.feed.feeder import Writer, fork
from dyntrain.training.feed.places import ChannelError
from dyntrain.training.feed.pump import MOST_DEATHS


@dataclass
class _ChildRequest:
    channel: str  # the channel's name
    request: Callable[[], Any]  # runs in the child process
    on_answer: Callable[[Any], None]
    child_pid: int
    answer_bytes: bytearray = field(default_factory=bytearray)
    child_deaths: int = 0  # unsuccessful children so far


class ChildRequests:
    """All S3 requests in progress.

    `fail` is called with a failed request's error message. Call the methods of `ChildRequests` from one thread only.
    """

    def __init__(self, fail: Callable[[str], None]) -> None:
        self._fail = fail
        self._running: dict[int, _ChildRequest] = {}

    @property
    def pipes(self) -> set[int]:
        """The descriptors of the pipes from the child processes.

        When a pipe is readable, pass the pipe to `read_answer`.
        """
        return set(self._running)

    @property
    def child_pids(self) -> set[int]:
        return {child.child_pid for child in self._running.values()}

    def send(  # a request to a new child process
        self, channel: str, request: Callable[[], Any], on_answer: Callable[[Any], None], child_deaths: int = 0
    ) -> None:
        """Run `request`, which may raise ChannelError, in a child process.

        The result of `request` is sent as JSON and passed to `on_answer`.
        """

        def write_answer(write: Writer) -> None:
            try:
                answer = ["", request()]
            except ChannelError as error:
                answer = [str(error), None]
            write([json.dumps(answer).encode()])

        child_pid, pipe = fork(write_answer)
        os.set_blocking(pipe, False)
        self._running[pipe] = _ChildRequest(channel, request, on_answer, child_pid, child_deaths=child_deaths)

    def read_answer(self, pipe: int) -> None:
        """Read from a child's pipe, and handle the child's answer once complete.

        Raises ChannelError if `on_answer` raises ChannelError.
        """
        child = self._running[pipe]
        try:
            received_bytes = os.read(pipe, 1024 * 1024)
        except BlockingIOError:
            return
        child.answer_bytes += received_bytes
        if received_bytes:
            return
        os.close(pipe)
        os.waitpid(child.child_pid, 0)
        del self._running[pipe]
        try:
            problem, answer = json.loads(child.answer_bytes)
        except ValueError:  # the child was killed
            if child.child_deaths < MOST_DEATHS:
                self.send(child.channel, child.request, child.on_answer, child.child_deaths + 1)
            else:
                self._fail(
                    f"channel {child.channel}: the child process for requests to S3 ended {MOST_DEATHS + 1} times"
                )
            return
        if problem:
            self._fail(f"channel {child.channel}: {problem}")
        else:
            child.on_answer(answer)
