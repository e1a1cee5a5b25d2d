"""Fork a child process that continues the script, sends one answer to its parent and ends.

The child process has no effect on its parent. MXNet's engine is started again in the child, with one thread. The
parent's threads for the kvstore and for the connection to the coordinator do not exist in the child.
"""

from __future__ import annotations

import atexit
import contextlib
import dis
import fcntl
import gc
import json
import logging
import os
import select
import signal
import stat
import struct
import sys
import time
from collections.abc import Callable
from types import FrameType
from typing import Any, NoReturn

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet

import mxnet as mx  # isort: skip
from dyntrain.training.host.parentage import die_with_parent

MOST_READ_BYTES = 1 << 16  # most bytes of one read
LENGTH_HEADER = struct.Struct("!Q")  # the length of an answer, sent before the answer
IDLE_SECONDS = 10.0  # seconds without CPU time, after which the child probably waits for a missing thread
CHECK_SECONDS = 0.5  # seconds between two checks of the CPU time
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
ITERATING_OPCODES = ("FOR_ITER", "SEND", "YIELD_FROM", "GET_AWAITABLE")  # where the end of an iterator is no error
Answer = dict[str, Any]  # contains `failed` with the reason if there is no result
_kept_arrays: list[Any] = []  # in a child, the MXNet arrays that existed at its start


class ParentPipe:
    """The pipe through which a child process sends its answer to its parent."""

    def __init__(self, pipe: int) -> None:
        self._pipe = pipe

    def send_and_end(self, answer: Answer) -> NoReturn:
        """Send the answer to the parent and exit the child process at once, without running the script's `finally`
        blocks.
        """
        try:
            message = json.dumps(answer).encode()
            message = LENGTH_HEADER.pack(len(message)) + message
            while message:
                message = message[os.write(self._pipe, message) :]
        finally:
            os._exit(0)

    def ending_call(self, failure: str) -> Callable[..., NoReturn]:
        """Return a replacement, for use in the child process, of a function that only the parent process may call.

        The replacement reports `failure` to the parent and ends the child process.
        """
        return lambda *_, **__: self.send_and_end({"failed": failure})

    def end_at_errors(self, frame: FrameType | None) -> None:
        """Make any error that reaches `frame` or its callers end the child process.

        So the script's error handling in the child cannot clean up resources that the parent still uses.
        """

        def end_at_error(traced_frame: FrameType, event: str, error_info: Any) -> Any:
            if event == "exception" and not (
                issubclass(error_info[0], StopIteration) and _ends_iteration(traced_frame)
            ):
                message = str(error_info[1]).split("\n")[-1]  # MXNet's messages begin with a stack trace
                self.send_and_end({"failed": f"{error_info[0].__name__}: {message}"})
            return end_at_error

        sys.excepthook = self.ending_call("an error")
        atexit.register(self.ending_call("the script has ended"))  # the last function registered runs first
        sys.settrace(lambda *_: None)
        while frame is not None:
            frame.f_trace, frame = end_at_error, frame.f_back


def _ends_iteration(frame: FrameType) -> bool:
    return dis.opname[frame.f_code.co_code[frame.f_lasti]] in ITERATING_OPCODES


def fork(seconds: float) -> ParentPipe | Answer:
    """Fork this process; returns a `ParentPipe` in the child, and the child's answer in the parent.

    The child is killed, with all processes that it has started, if it does not answer within `seconds` or uses no CPU
    time for IDLE_SECONDS.
    """
    mx.nd.waitall()  # the engine must be idle when it is copied
    arrays = [tracked_object for tracked_object in gc.get_objects() if issubclass(type(tracked_object), mx.nd.NDArray)]
    read_end, write_end = os.pipe()
    parent_pid = os.getpid()
    try:
        pid = os.fork()
    except OSError as error:
        os.close(read_end)
        os.close(write_end)
        return {"failed": f"no process can be started: {error}"}
    if not pid:
        os.close(read_end)
        # Arrays from loading processes are in shared memory with a reference count. If the child released such an
        # array, the parent would lose it.
        _kept_arrays.extend(arrays)
        _isolate_child(parent_pid)
        return ParentPipe(write_end)
    os.close(write_end)
    with contextlib.suppress(OSError):
        os.setpgid(pid, pid)  # the child makes the same call, and either may be first
    try:
        return _read_answer(pid, read_end, time.monotonic() + seconds)
    finally:
        os.close(read_end)
        for kill in (os.killpg, os.kill):
            with contextlib.suppress(ProcessLookupError):
                kill(pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, 0)


def _read_answer(pid: int, pipe: int, deadline: float) -> Answer:
    """Read the child's answer from the pipe; the first bytes are the answer's length.

    The length is needed because the pipe may stay open after the answer, in a process that the child has started.
    """
    poller, received_bytes = select.poll(), bytearray()
    poller.register(pipe, select.POLLIN)
    cpu_seconds, busy_at = 0.0, time.monotonic()
    while (now := time.monotonic()) < deadline:
        if poller.poll(CHECK_SECONDS * 1000):
            if not (new_bytes := os.read(pipe, MOST_READ_BYTES)):
                return {"failed": "the child process crashed, or was killed because memory was short"}
            received_bytes += new_bytes
            if (
                len(received_bytes) >= LENGTH_HEADER.size
                and len(received_bytes) == LENGTH_HEADER.size + LENGTH_HEADER.unpack_from(received_bytes)[0]
            ):
                return dict(json.loads(received_bytes[LENGTH_HEADER.size :]))
        if (new_seconds := _cpu_seconds(pid)) != cpu_seconds:
            cpu_seconds, busy_at = new_seconds, now
        elif now - busy_at > IDLE_SECONDS:
            return {"failed": f"the child was idle for {IDLE_SECONDS:g} s: it may wait for a thread of its parent"}
    return {"failed": "the probe took too long"}


def _cpu_seconds(pid: int) -> float:
    """Return the CPU time that the process has used, in seconds."""
    with open(f"/proc/{pid}/stat") as stat_file:
        stat_fields = stat_file.read().rpartition(")")[2].split()
    return (int(stat_fields[11]) + int(stat_fields[12])) / TICKS_PER_SECOND


def _reopen_files() -> None:
    """In the child, open the parent's open files again at the same offsets, because a fork shares offsets with its
    parent.
    """
    for descriptor_name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # the folder's own descriptor, or a file that cannot be opened again
            descriptor = int(descriptor_name)
            if stat.S_ISREG(os.fstat(descriptor).st_mode):
                new_descriptor = os.open(f"/proc/self/fd/{descriptor_name}", fcntl.fcntl(descriptor, fcntl.F_GETFL))
                os.lseek(new_descriptor, os.lseek(descriptor, 0, os.SEEK_CUR), os.SEEK_SET)
                os.dup2(new_descriptor, descriptor, inheritable=os.get_inheritable(descriptor))
                os.close(new_descriptor)


def _isolate_child(parent_pid: int) -> None:
    try:
        os.setpgid(0, 0)
        die_with_parent(parent_pid)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        logging.disable()
        null_file = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(null_file, descriptor)
        _reopen_files()
        with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as score_file:
            score_file.write("1000")  # if memory is short, this process is killed, not the worker
    except BaseException:  # noqa: BLE001  # an error must not unwind the script here
        os._exit(1)
