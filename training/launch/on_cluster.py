"""`dyntrain launch` on a node of a cluster: the job is the cluster's. The node's program takes the command to the
coordinator, all nodes start their workers with it, and tags and groups decide who trains. This process only shows what
happens: whatever becomes of its terminal, the job goes on.
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
from dyntrain.training.protocol.launch_desk import SOCKET, VARIABLE, Reply, ToEnd, ToLaunch, ask

LOOK_SECONDS = 0.2
AGAIN_SECONDS = 1.0
WAIT_SECONDS = 60.0  # for the end of the launch before
LAST_SECONDS = 2.0  # without another line, once the job is over: the script may have a last word
MOST_AT_ONCE = 1024 * 1024
CARRIED = ("LD_LIBRARY_PATH", "PYTHONPATH", "OMP_NUM_THREADS", "KMP_AFFINITY")  # what launchers take along
CARRIED_OF = ("MXNET_",)
INTERRUPTED = 130


def desk() -> Path | None:
    """Where launches are taken on this machine; None: it is no node of a cluster."""
    if named := os.environ.get(VARIABLE):
        return Path(named)
    return SOCKET if SOCKET.exists() else None


def carried() -> dict[str, str]:
    """Of this shell's environment."""
    return {name: value for name, value in os.environ.items() if name in CARRIED or name.startswith(CARRIED_OF)}


def launch_there(path: Path, plan: OnCluster) -> int:
    """0: the job finished; 1: it failed, or was ended; 130: it goes on, and nobody looks any more. Raises
    LaunchError.
    """
    request = uuid.uuid4().hex
    here = Path.cwd()
    wanted = ToLaunch(
        request=request,
        command=plan.command,
        directory=str(here),
        environment={**carried(), **plan.environment},
        dt_scripts=plan.dt_scripts,
    )
    reply = _asked(path, wanted, WAIT_SECONDS)
    directory = Path(reply.directory)
    if directory != here:
        _say(f"{here} is not on the shared volume: the job runs in {directory}")
    _say(f"Created worker host file {directory / HOST_FILE}")
    _say(f"Created worker host log file {directory / HOST_LOG}")
    return _follow(_Followed(reply), lambda: _asked(path, ToEnd(request=request)))


def _asked(path: Path, question: ToLaunch | ToEnd, patience: float = 0.0) -> Reply:
    """What only has to wait for a moment is asked again for so many seconds. Raises LaunchError."""
    until = time.monotonic() + patience
    said = ""
    while (reply := _answer(path, question)).passing and time.monotonic() < until:
        if reply.refused != said:
            _say(f"{reply.refused}; asking again for {patience:.0f} s")
        said = reply.refused
        time.sleep(AGAIN_SECONDS)
    if reply.refused:
        raise LaunchError(reply.refused)
    return reply


def _answer(path: Path, question: ToLaunch | ToEnd) -> Reply:
    try:
        return ask(path, question)
    except PermissionError as error:
        raise LaunchError(f"{path}: {error.strerror}; only root and the group of the job's user may launch") from error
    except (FileNotFoundError, ConnectionRefusedError) as error:
        raise LaunchError(
            f"this node takes no launches ({error.strerror}: {path}): log in on the master, the last line of "
            "$DEEPLEARNING_WORKERS_PATH; there it takes them once it is prepared"
        ) from error
    except (OSError, ValueError) as error:
        raise LaunchError(f"the node's program does not answer: {error}") from error


@dataclass
class _Followed:
    """The job's events, and the output of this node's worker, from the launch on."""

    reply: Reply
    _tail: EventTail = field(init=False)
    _output: int = field(init=False)

    def __post_init__(self) -> None:
        self._tail = EventTail(Path(self.reply.events))
        log = Path(self.reply.log)
        self._output = log.stat().st_size if log.exists() else 0

    def events(self) -> list[events.Event]:
        """Those that are new, as far as this version knows them."""
        try:
            return self._tail.next(skip_unknown=True)
        except OSError:
            return []

    def copy(self, to: BinaryIO) -> bool:
        """Whether there was output."""
        text, self._output = _read(Path(self.reply.log), self._output)
        to.write(text)
        to.flush()
        return bool(text)


def _read(path: Path, start: int) -> tuple[bytes, int]:
    """What came since; from the front where the file was cut."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(start if start <= size else 0)
            text = file.read(MOST_AT_ONCE)
            return text, file.tell()
    except OSError:
        return b"", start


def _follow(followed: _Followed, end: Callable[[], object]) -> int:
    code: int | None = None
    quiet = time.monotonic()
    lines = LauncherLines()
    begin = [f"{followed.reply.job} is the cluster's: tags and groups decide how many nodes train"]
    while code is None or time.monotonic() - quiet < LAST_SECONDS:
        try:
            while begin:
                _say(begin.pop())  # who reads it may press Ctrl-C at once
            if followed.copy(sys.stdout.buffer):
                quiet = time.monotonic()
            for event in followed.events():
                if isinstance(event, events.Finished | events.Failed):
                    code, quiet = int(isinstance(event, events.Failed)), time.monotonic()
                for line in (*lines.of(event), describe(event)):
                    _say(line)
            time.sleep(LOOK_SECONDS)
        except KeyboardInterrupt:
            if code is not None:
                break
            if not _wishes_the_end():
                _say(f"{followed.reply.job} goes on: `dyntrain status --watch` shows it")
                return INTERRUPTED
            end()
    return code


def _wishes_the_end() -> bool:
    """Nobody is asked where nobody could answer. A second Ctrl-C is a no."""
    if not sys.stdin.isatty():
        return False
    try:
        sys.stderr.write("\nEnd the job on all nodes? [y/N] ")
        sys.stderr.flush()
        # A Ctrl-C that comes just before a read that waits is seen when the read ends, which may be never
        while not select.select([sys.stdin], [], [], LOOK_SECONDS)[0]:
            pass
        return sys.stdin.readline().strip().lower() in ("y", "yes")
    except KeyboardInterrupt:
        return False


def _say(text: str) -> None:
    sys.stderr.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} INFO {text}\n")
    sys.stderr.flush()
