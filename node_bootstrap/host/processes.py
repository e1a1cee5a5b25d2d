"""Child processes: each leads its own process group, writes to a log file or to our output, and cannot outlive us.

Three mechanisms ensure that. The whole group is killed; the kernel kills a child when the bootstrap dies (exec_child);
and each child has a mark in its environment, which its own children inherit, so that even those that left the group are
found: when their parent is stopped, or at the next start of the bootstrap.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from pathlib import Path

from dyntrain.node_bootstrap.host.child_log import ChildLog
from dyntrain.node_bootstrap.host.errors import Interrupted
from dyntrain.training.host import exec_child, reaper
from dyntrain.training.host.parentage import descendants, kill_all
from dyntrain.training.timeouts import timeout

MARK = "DYNTRAIN_SUPERVISED"
LINGER_SECONDS = 2.0  # for processes that end with their parent, such as the reader of its pipe
COMMAND_CHARACTERS = 100
KILL_SECONDS = 5.0  # for the kernel to take a killed process away; longer only in uninterruptible sleep
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Program:
    """What a child runs. If the command or `cwd` is unusable, it exits with 126 or 127 and writes the reason to its
    log.

    `log_path`: None to write to this process's output. `inherited`: file descriptors that stay open in the child.
    `user`: the user that runs it, with that user's groups and home; None is the current user, only root can set
    another.
    """

    command: Sequence[str]
    environment: Mapping[str, str]
    log_path: Path | None
    cwd: str | None = None
    inherited: Sequence[int] = ()
    user: str | None = None

    def with_environment(self, environment: Mapping[str, str], *inherited: int) -> Program:
        """Copy of the program with further environment variables and inherited file descriptors."""
        return replace(self, environment={**self.environment, **environment}, inherited=(*self.inherited, *inherited))


@dataclass(eq=False)
class Child:
    """A started child process."""

    name: str
    mark: str
    log: ChildLog | None  # None: it writes to our output
    log_start: int  # a position in `log`
    process: asyncio.subprocess.Process
    still_running: tuple[str, ...] = ()  # commands that were still running when it had ended

    @property
    def pid(self) -> int:
        return self.process.pid

    async def wait(self) -> int:
        """The exit code; minus the signal's number when a signal ended it."""
        return await self.process.wait()

    def last_words(self, lines: int = 20, limit: int = 1500) -> str:
        """Its last output, at most `lines` and `limit` characters; "" if it wrote nothing."""
        return "" if self.log is None else self.log.text_since(self.log_start, lines, limit)

    def send(self, signum: signal.Signals) -> None:
        """Send a signal to the whole group, unless its leader was reaped: the number may then belong to another
        process.
        """
        if self.process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signum)

    async def stop(self, grace: float = 0.0) -> None:
        """Send SIGTERM, wait up to `grace` seconds (0: skip both), then kill it with all that it started.

        Returns within grace + 2 * KILL_SECONDS.
        """
        if grace > 0:
            self.send(signal.SIGTERM)
            await self._wait_for_exit(grace)
        self.send(signal.SIGKILL)
        if not await self._wait_for_exit(KILL_SECONDS):
            log.error("a process does not go away after SIGKILL", extra={"child": self.name, "pid": self.pid})
        await sweep(self.mark)

    async def _wait_for_exit(self, seconds: float) -> bool:
        """Wait up to `seconds`; returns whether the process has ended."""
        with contextlib.suppress(TimeoutError):
            async with timeout(seconds):
                await self.process.wait()
        return self.process.returncode is not None


@dataclass(eq=False)
class Children:
    """All children of this run. `scope` is unique to the node on its host (its state directory)."""

    scope: str
    attempt: int
    _start_count: int = 0
    _alive: set[Child] = field(default_factory=set)
    _logs: dict[Path, ChildLog] = field(default_factory=dict)
    _stopping: bool = False

    async def start(self, name: str, program: Program, nice: int = 0) -> Child:
        """Start a child. Raises OSError, and Interrupted once the node is stopping."""
        if self._stopping:
            raise Interrupted(f"{name} is not started: the node is stopping")
        self._start_count += 1
        mark = f"{self.scope}#{self.attempt}.{self._start_count}"
        child_log, start = (None, 0) if program.log_path is None else self._log(program.log_path)
        with contextlib.ExitStack() as stack:
            output = None if program.log_path is None else stack.enter_context(program.log_path.open("ab"))
            process = await asyncio.create_subprocess_exec(
                *(
                    sys.executable,
                    "-I",
                    "-S",
                    exec_child.__file__,
                    str(os.getpid()),
                    str(nice),
                    *([f"--cwd={program.cwd}"] if program.cwd is not None else []),
                    *([f"--user={program.user}"] if program.user else []),
                    *program.command,
                ),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={**os.environ, **exec_child.withhold_unsafe(program.environment, os.environ), MARK: mark},
                process_group=0,
                pass_fds=program.inherited,
            )
        child = Child(name, mark, child_log, start, process)
        self._alive = {other for other in self._alive if other.process.returncode is None} | {child}
        log.info("started", extra={"child": name, "pid": child.pid})
        return child

    async def run(
        self, name: str, program: Program, seconds: float, *, alone: bool = False
    ) -> tuple[int | None, Child]:
        """Start a child and wait for its end; returns the exit code, None if it was killed after `seconds`.

        On return, however it happens, nothing that it started is left. Raises what `start` raises.

        `alone`: nothing else is started meanwhile, so that hidden daemons are found too, and `still_running` of the
        child lists what it left running.
        """
        earlier_pids = set(adopted_pids()) if alone else set[int]()
        child = await self.start(name, program)
        code: int | None = None
        try:
            with contextlib.suppress(TimeoutError):
                async with timeout(seconds):
                    code = await child.wait()
            if code is not None and alone:
                child.still_running = await still_running_after(child, earlier_pids)
        finally:
            await child.stop()
            if alone:
                kill_all([pid for pid in adopted_pids() if pid not in earlier_pids])
        return code, child

    def _log(self, path: Path) -> tuple[ChildLog, int]:
        """The log file, and the position where a child that starts now begins to write."""
        path.parent.mkdir(parents=True, exist_ok=True)
        child_log = self._logs.setdefault(path, ChildLog(path))
        return child_log, child_log.cut + (path.stat().st_size if path.exists() else 0)

    async def keep_logs_short(self, pause: float) -> None:
        """Trim all log files of children every `pause` seconds, until cancelled."""
        last_error = ""
        while True:
            for child_log in list(self._logs.values()):
                try:
                    if await asyncio.to_thread(child_log.trim):
                        log.info("the older part of a log is kept beside it", extra={"path": str(child_log.path)})
                except OSError as error:
                    if last_error != str(error):
                        log.warning(
                            "a log cannot be kept short; make room on its disk",
                            extra={"path": str(child_log.path), "reason": str(error)},
                        )
                    last_error = str(error)
            await asyncio.sleep(pause)

    async def stop_all(self, grace: float) -> None:
        """Stop all processes that this or an earlier run started, and refuse to start others.

        Bounded by grace + 3 * KILL_SECONDS.
        """
        self._stopping = True
        await asyncio.gather(*(child.stop(grace) for child in self._alive))
        await sweep_scope(self.scope)

    async def sweep_earlier_lives(self) -> int:
        """Kill the processes that an earlier run left when it was killed; returns how many."""
        return await sweep_scope(self.scope)


async def sweep(mark: str) -> int:
    """Kill all processes with exactly this mark, and wait until they are gone; returns how many. Bounded by
    KILL_SECONDS.
    """
    return await _kill_where(lambda value: value == mark)


async def sweep_scope(scope: str) -> int:
    """Same as `sweep`, for all processes that any run of the node's program started."""
    return await _kill_where(lambda value: value.startswith(f"{scope}#"))


async def _kill_where(matches: Callable[[str], bool]) -> int:
    """Kill until none is left: a process may fork while we search, and takes time to die."""
    killed: set[int] = set()
    deadline = time.monotonic() + KILL_SECONDS
    while pids := {pid for pid, value in _marked_processes() if matches(value)}:
        if time.monotonic() > deadline:
            log.error("processes do not go away after SIGKILL", extra={"pids": sorted(pids)})
            break
        for pid in pids:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        killed |= pids
        await asyncio.sleep(0.005)
    return len(killed)


async def still_running_after(child: Child, earlier_pids: AbstractSet[int]) -> tuple[str, ...]:
    """Commands that a child has left running: in its group, with its mark, or adopted by our parent, except those in
    `earlier_pids`.

    Leaves out what ends by itself within LINGER_SECONDS.
    """
    deadline = time.monotonic() + LINGER_SECONDS
    while True:
        marked_pids = {pid for pid, value in _marked_processes() if value == child.mark}
        commands = {
            pid: command_line(pid)
            for pid in sorted(marked_pids | _group_pids(child.pid) | set(adopted_pids()) - earlier_pids)
        }
        running = tuple(command for command in commands.values() if command)
        if not running or time.monotonic() > deadline:
            return running
        await asyncio.sleep(0.02)


def adopted_pids() -> list[int]:
    """Processes below us that lost their parent, whatever their environment; none if we have no reaper."""
    above = reaper.reaper_pid()
    return sorted(set(descendants(above)) - set(descendants(os.getpid())) - {os.getpid()}) if above is not None else []


def command_line(pid: int) -> str:
    """The command, shortened for a message; "" for a process that is gone or a zombie."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0").replace(b"\0", b" ")
    except OSError:
        return ""
    return words.decode("utf-8", "replace")[:COMMAND_CHARACTERS]


def _group_pids(leader: int) -> set[int]:
    pids = set()
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError, IndexError):
            if entry.name.isdigit() and int((entry / "stat").read_text().rpartition(")")[2].split()[2]) == leader:
                pids.add(int(entry.name))
    return pids


def _marked_processes() -> list[tuple[int, str]]:
    prefix = f"{MARK}=".encode()
    processes = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            environment = (entry / "environ").read_bytes()
        except OSError:  # gone, or another user's
            continue
        for item in environment.split(b"\0"):
            if item.startswith(prefix):
                processes.append((int(entry.name), os.fsdecode(item[len(prefix) :])))
    return processes


def explain(code: int | None, timeout: float) -> str:
    """Why a run failed; "" if it succeeded. `code` is None if it was killed at the timeout."""
    if code is None:
        return f"still running after {timeout:g} s, killed with its children"
    if code == 0:
        return ""
    if code < 0:
        return f"killed by {signal.Signals(-code).name if -code in set(signal.Signals) else f'signal {-code}'}"
    return {126: "cannot be executed (exit code 126)", 127: "not found (exit code 127)"}.get(code, f"exit code {code}")
