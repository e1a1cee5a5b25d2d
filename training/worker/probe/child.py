"""A process that goes on as this one would, says one thing, and is gone: nothing that it does comes back.

MXNet's engine is started anew in it, with one thread. Everything else of this process' threads, the store's and the
coordinator's, is not there.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import select
import signal
import sys
import time
from types import FrameType
from typing import Any, NoReturn

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet

import mxnet as mx  # isort: skip
from dyntrain.training.host.parentage import die_with_parent

PIECE = 1 << 16


class Home:
    """In the child: the way back to its parent."""

    def __init__(self, pipe: int) -> None:
        self._pipe = pipe

    def say(self, answer: dict[str, Any]) -> NoReturn:
        """And end, without a single line more of the script's, not even its `finally`."""
        try:
            words = json.dumps(answer).encode()
            while words:
                words = words[os.write(self._pipe, words) :]
        finally:
            os._exit(0)

    def leave_at_errors(self, frame: FrameType | None) -> None:
        """An error that comes up to `frame` or to whoever called it ends the child there, before the script cleans up
        what is its parent's.
        """

        def traced(_: FrameType, event: str, what: Any) -> Any:
            if event == "exception" and not issubclass(what[0], StopIteration | GeneratorExit):
                said = str(what[1]).split("\n")[-1]  # MXNet's begin with a trace of its own
                self.say({"failed": f"{what[0].__name__}: {said}"})
            return traced

        sys.settrace(lambda *_: None)
        while frame is not None:
            frame.f_trace, frame = traced, frame.f_back


def fork(seconds: float) -> Home | dict[str, Any]:
    """`Home` in the child. In the parent what the child said, with `failed` where it came to nothing; who says nothing
    within `seconds` is killed.
    """
    mx.nd.waitall()  # nothing may be under way in the engine when it is copied
    read, write = os.pipe()
    parent = os.getpid()
    pid = os.fork()
    if not pid:
        os.close(read)
        _settle_down(parent)
        return Home(write)
    os.close(write)
    try:
        if words := _all_of(read, time.monotonic() + seconds):
            return dict(json.loads(words))
        return {"failed": f"it came to no end within {seconds:.0f} s, or crashed"}
    finally:
        os.close(read)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, 0)


def _all_of(pipe: int, until: float) -> bytes:
    """What is said before the pipe is closed; nothing where that is too late."""
    words = bytearray()
    while (left := until - time.monotonic()) > 0:
        if select.select([pipe], [], [], left)[0]:
            if not (piece := os.read(pipe, PIECE)):
                return bytes(words)
            words += piece
    return b""


def _settle_down(parent: int) -> None:
    die_with_parent(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    logging.disable()
    nowhere = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(nowhere, standard)
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as score:
        score.write("1000")  # where memory is short, this process goes, not the worker
