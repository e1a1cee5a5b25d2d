"""`dyntrain launch` on a node of a cluster: the cluster runs the job.

The node's program passes the command to the coordinator, all nodes start their workers with it, and tags and groups
decide which nodes train. This process only shows the job's events and output; the job does not depend on this process.
"""

from __future__ import annotations

import os
import select
import sys
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from dyntrain.training import events
from dyntrain.training.coordinator.host_log import HOST_FILE, HOST_LOG
from dyntrain.training.coordinator.progress import describe
from dyntrain.training.launch.launcher_lines import LauncherLines
from dyntrain.training.launch.plan import LaunchError, OnCluster
from dyntrain.training.ledger import EventTail
from dyntrain.training.protocol.launch_desk import SOCKET, VARIABLE, EndQuestion, LaunchQuestion, Reply, ask

LOOK_SECONDS = 0.2
RETRY_SECONDS = 1.0
WAIT_SECONDS = 60.0  # for the end of the previous launch
LAST_SECONDS = 2.0  # without output after the job's end, as the script may still print
MOST_AT_ONCE = 1024 * 1024
FORWARDED_NAMES = ("LD_LIBRARY_PATH", "PYTHONPATH", "OMP_NUM_THREADS", "KMP_AFFINITY")  # as MXNet's launchers do
FORWARDED_PREFIXES = ("MXNET_",)
INTERRUPTED = 130


def desk() -> Path | None:
    """Path of the launch socket; None if this machine is no node of a cluster."""
    if path := os.environ.get(VARIABLE):
        return Path(path)
    return SOCKET if SOCKET.exists() else None


def forwarded_environment() -> dict[str, str]:
    """Variables of this shell that the job gets."""
    return {
        name: value
        for name, value in os.environ.items()
        if name in FORWARDED_NAMES or name.startswith(FORWARDED_PREFIXES)
    }


def launch_on_cluster(path: Path, plan: OnCluster) -> int:
    """Launch and follow the job. Raises LaunchError.

    Returns 0 if the job finished, 1 if it failed or was ended, 130 if it continues after Ctrl-C.
    """
    request = uuid.uuid4().hex
    directory_here = Path.cwd()
    question = LaunchQuestion(
        request=request,
        command=plan.command,
        directory=str(directory_here),
        environment={**forwarded_environment(), **plan.environment},
        dt_scripts=plan.dt_scripts,
    )
    reply = _ask_repeatedly(path, question, WAIT_SECONDS)
    directory = Path(reply.directory)
    if directory != directory_here:
        _say(f"{directory_here} is not on the shared volume: the job runs in {directory}")
    _say(f"Created worker host file {directory / HOST_FILE}")
    _say(f"Created worker host log file {directory / HOST_LOG}")
    return _follow(_JobStreams(reply), lambda: _ask_repeatedly(path, EndQuestion(request=request)))


def _ask_repeatedly(path: Path, question: LaunchQuestion | EndQuestion, patience: float = 0.0) -> Reply:
    """Ask the node's program; repeat for `patience` seconds while the refusal is temporary. Raises LaunchError."""
    deadline = time.monotonic() + patience
    last_refusal = ""
    while (reply := _answer(path, question)).passing and time.monotonic() < deadline:
        if reply.refused != last_refusal:
            _say(f"{reply.refused}; asking again for {patience:.0f} s")
        last_refusal = reply.refused
        time.sleep(RETRY_SECONDS)
    if reply.refused:
        raise LaunchError(reply.refused)
    return reply


def _answer(path: Path, question: LaunchQuestion | EndQuestion) -> Reply:
    """Ask once. Raises LaunchError."""
    try:
        return ask(path, question)
    except PermissionError as error:
        raise LaunchError(f"{path}: {error.strerror}; only root and the group of the job's user may launch") from error
    except (FileNotFoundError, ConnectionRefusedError) as error:
        raise LaunchError(
            f"this node accepts no launches ({error.strerror}: {path}): log in on the master, the last line of "
            "$DEEPLEARNING_WORKERS_PATH, once it is prepared"
        ) from error
    except (OSError, ValueError) as error:
        raise LaunchError(f"the node's program does not answer: {error}") from error


@dataclass
class _JobStreams:
    """The job's events and the output of this node's worker, from the launch on."""

    reply: Reply
    _tail: EventTail = field(init=False)
    _output: int = field(init=False)

    def __post_init__(self) -> None:
        self._tail = EventTail(Path(self.reply.events))
        log = Path(self.reply.log)
        self._output = log.stat().st_size if log.exists() else 0

    def events(self) -> list[events.Event]:
        """New events, without those that this version does not know."""
        try:
            return self._tail.next(skip_unknown=True)
        except OSError:
            return []

    def copy(self, output: BinaryIO) -> bool:
        """Copy new output; returns whether there was any."""
        text, self._output = _read(Path(self.reply.log), self._output)
        output.write(text)
        output.flush()
        return bool(text)


def _read(path: Path, start: int) -> tuple[bytes, int]:
    """Read new output; from the start if the file was truncated."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(start if start <= size else 0)
            text = file.read(MOST_AT_ONCE)
            return text, file.tell()
    except OSError:
        return b"", start


def _follow(streams: _JobStreams, end: Callable[[], object]) -> int:
    """Show the job's events and output until the job ends; returns the exit code."""
    code: int | None = None
    last_output = time.monotonic()
    lines = LauncherLines()
    begin = [f"{streams.reply.job} runs on the cluster: tags and groups decide how many nodes train"]
    while code is None or time.monotonic() - last_output < LAST_SECONDS:
        try:
            while begin:
                _say(begin.pop())  # inside the try, since the user may press Ctrl-C at once
            if streams.copy(sys.stdout.buffer):
                last_output = time.monotonic()
            for event in streams.events():
                if isinstance(event, events.Finished | events.Failed):
                    code, last_output = int(isinstance(event, events.Failed)), time.monotonic()
                for line in (*lines.of(event), describe(event)):
                    _say(line)
            time.sleep(LOOK_SECONDS)
        except KeyboardInterrupt:
            if code is not None:
                break
            if not _confirms_end():
                _say(f"{streams.reply.job} continues: `dyntrain status --watch` shows it")
                return INTERRUPTED
            end()
    return code


def _confirms_end() -> bool:
    """Ask whether to end the job. Without a terminal, or at a second Ctrl-C, the answer is no."""
    if not sys.stdin.isatty():
        return False
    try:
        sys.stderr.write("\nEnd the job on all nodes? [y/N] ")
        sys.stderr.flush()
        # A Ctrl-C just before a blocking read is only handled when the read ends, which may be never
        while not select.select([sys.stdin], [], [], LOOK_SECONDS)[0]:
            pass
        return sys.stdin.readline().strip().lower() in ("y", "yes")
    except KeyboardInterrupt:
        return False


def _say(text: str) -> None:
    sys.stderr.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} INFO {text}\n")
    sys.stderr.flush()
