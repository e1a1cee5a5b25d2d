"""Child processes: each leads a process group, writes to a log file or this process's output, and dies with it.

Three mechanisms end child processes. A child is killed with its whole group. The kernel kills a child when the
bootstrap dies (`exec_child`). Each child has a mark in its environment, which its own children inherit. By the mark,
processes that left the group are found when the child is stopped, or at the next start of the bootstrap.
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
LINGER_SECONDS = 2.0  # for processes that end soon after their parent, such as the reader of its pipe
COMMAND_CHARACTERS = 100
KILL_SECONDS = 5.0  # for the kernel to remove a killed process; only uninterruptible sleep takes longer
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Program:
    """The program of a child. For an unusable command or `cwd`, the child exits with 126 or 127 and logs the reason.

    `log_path`: None to write to this process's output. `inherited`: file descriptors that stay open in the child.
    `user`: the user of the child, with that user's groups and home; None: the current user. Only root can choose
    another user.
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
    log: ChildLog | None  # None: the child writes to this process's output
    log_start: int  # position in `log` at the child's start
    process: asyncio.subprocess.Process
    still_running: tuple[str, ...] = ()  # commands that were still running after the child's end

    @property
    def pid(self) -> int:
        return self.process.pid

    async def wait(self) -> int:
        """Wait for the exit code; minus the signal's number if a signal ended the child."""
        return await self.process.wait()

    def last_output(self, lines: int = 20, limit: int = 1500) -> str:
        """The child's last output, at most `lines` lines and `limit` characters; "" without output."""
        return "" if self.log is None else self.log.text_since(self.log_start, lines, limit)

    def send(self, signum: signal.Signals) -> None:
        """Send a signal to the child's group, unless the child was reaped and its id may be reused."""
        if self.process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signum)

    async def stop(self, grace: float = 0.0) -> None:
        """Send SIGTERM, wait up to `grace` seconds (0: skip both), then kill the child with all that it started.

        Returns within grace + 2 * KILL_SECONDS.
        """
        if grace > 0:
            self.send(signal.SIGTERM)
            await self._wait_for_exit(grace)
        self.send(signal.SIGKILL)
        if not await self._wait_for_exit(KILL_SECONDS):
            log.error("a process still exists after SIGKILL", extra={"child": self.name, "pid": self.pid})
        await sweep(self.mark)

    async def _wait_for_exit(self, seconds: float) -> bool:
        """Wait up to `seconds`; returns whether the process has ended."""
        with contextlib.suppress(TimeoutError):
            async with timeout(seconds):
                await self.process.wait()
        return self.process.returncode is not None


@dataclass(eq=False)
class Children:
    """All child processes of this run. `scope` identifies the node on its host: its state directory."""

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
        self._alive = {known for known in self._alive if known.process.returncode is None} | {child}
        log.info("started", extra={"child": name, "pid": child.pid})
        return child

    async def run(
        self, name: str, program: Program, seconds: float, *, exclusive: bool = False
    ) -> tuple[int | None, Child]:
        """Start a child and wait for its end; returns the exit code, None for a child killed after `seconds`.

        When this returns or raises, no process that the child started is left. Raises the errors of `start`.

        `exclusive`: the caller starts no other child meanwhile. Then daemons are found too, and the child's
        `still_running` lists the commands that it left running.
        """
        earlier_pids = set(adopted_pids()) if exclusive else set[int]()
        child = await self.start(name, program)
        code: int | None = None
        try:
            with contextlib.suppress(TimeoutError):
                async with timeout(seconds):
                    code = await child.wait()
            if code is not None and exclusive:
                child.still_running = await still_running_after(child, earlier_pids)
        finally:
            await child.stop()
            if exclusive:
                kill_all([pid for pid in adopted_pids() if pid not in earlier_pids])
        return code, child

    def _log(self, path: Path) -> tuple[ChildLog, int]:
        """Return the log file, and the position at which a new child begins to write."""
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
                        log.info(
                            "the older part of a log was moved to another file", extra={"path": str(child_log.path)}
                        )
                except OSError as error:
                    if last_error != str(error):
                        log.warning(
                            "a log cannot be kept short; free space on its disk",
                            extra={"path": str(child_log.path), "reason": str(error)},
                        )
                    last_error = str(error)
            await asyncio.sleep(pause)

    async def stop_all(self, grace: float) -> None:
        """Stop all processes that this or an earlier run started, and refuse to start new ones.

        Bounded by grace + 3 * KILL_SECONDS.
        """
        self._stopping = True
        await asyncio.gather(*(child.stop(grace) for child in self._alive))
        await sweep_scope(self.scope)

    async def sweep_earlier_runs(self) -> int:
        """Kill the processes that an earlier run left when it was killed; returns their number."""
        return await sweep_scope(self.scope)


async def sweep(mark: str) -> int:
    """Kill all processes with this mark and wait for their end; returns their number. Bounded by KILL_SECONDS."""
    return await _kill_where(lambda value: value == mark)


async def sweep_scope(scope: str) -> int:
    """Kill all processes that any run of the node's program started; returns their number."""
    return await _kill_where(lambda value: value.startswith(f"{scope}#"))


async def _kill_where(matches: Callable[[str], bool]) -> int:
    """Kill matching processes until none is left: a process may fork during the search, and takes time to die."""
    killed: set[int] = set()
    deadline = time.monotonic() + KILL_SECONDS
    while pids := {pid for pid, value in _marked_processes() if matches(value)}:
        if time.monotonic() > deadline:
            log.error("processes still exist after SIGKILL", extra={"pids": sorted(pids)})
            break
        for pid in pids:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        killed |= pids
        await asyncio.sleep(0.005)
    return len(killed)


async def still_running_after(child: Child, earlier_pids: AbstractSet[int]) -> tuple[str, ...]:
    """Return the commands that a child has left running: in its group, with its mark, or adopted by the reaper.

    Adopted processes in `earlier_pids` and processes that end within LINGER_SECONDS are left out.
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
    """Processes that lost their parent and were adopted by the reaper, which is this process's parent, if any."""
    reaper_id = reaper.reaper_pid()
    return (
        sorted(set(descendants(reaper_id)) - set(descendants(os.getpid())) - {os.getpid()})
        if reaper_id is not None
        else []
    )


def command_line(pid: int) -> str:
    """The process's command, shortened for a message; "" for a process that is gone or a zombie."""
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0").replace(b"\0", b" ")
    except OSError:
        return ""
    return command.decode("utf-8", "replace")[:COMMAND_CHARACTERS]


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
        except OSError:  # the process is gone, or belongs to another user
            continue
        for item in environment.split(b"\0"):
            if item.startswith(prefix):
                processes.append((int(entry.name), os.fsdecode(item[len(prefix) :])))
    return processes


def explain(code: int | None, timeout: float) -> str:
    """Explain why a child failed; "" if it succeeded. `code` is None if the child was killed at the timeout."""
    if code is None:
        return f"still running after {timeout:g} s, killed with its children"
    if code == 0:
        return ""
    if code < 0:
        return f"killed by {signal.Signals(-code).name if -code in set(signal.Signals) else f'signal {-code}'}"
    return {126: "cannot be executed (exit code 126)", 127: "not found (exit code 127)"}.get(code, f"exit code {code}")
