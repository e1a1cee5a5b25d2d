"""Child processes of the node's program: each leads a process group, and is killed when the program dies.

Three mechanisms make sure that no child process remains. A child is killed with its whole process group. The kernel
kills a child when the node's program dies (`exec_child`). Each child has a mark in its environment, which its own
children inherit. By its mark, a process that has left the child's process group is found and killed, when the child is
stopped or when the node's program starts again.
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

MARK_VARIABLE = "DYNTRAIN_SUPERVISED"  # environment variable that marks child processes
LINGER_SECONDS = 2.0  # time for processes that end soon after their parent, such as the reader of its pipe
COMMAND_CHARACTERS = 100  # length to which a command line is shortened in messages
KILL_SECONDS = 5.0  # time limit for the kernel to remove a killed process; only uninterruptible sleep takes longer
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Program:
    """The command of a child process, with its environment, log file, working directory and user.

    If `command` or `cwd` cannot be used, the child logs why and exits with code 126 or 127.
    """

    command: Sequence[str]  # the executable file and its arguments
    environment: Mapping[str, str]  # variables that are added to this process's environment
    log_path: Path | None  # None: the child writes to this process's output
    cwd: str | None = None  # working directory; None: this process's
    inherited: Sequence[int] = ()  # file descriptors that stay open in the child
    user: str | None = None  # the child runs with this user's groups and home; None: the current user

    def with_environment(self, environment: Mapping[str, str], *inherited: int) -> Program:
        """Return a copy of the program with further environment variables and inherited file descriptors."""
        return replace(self, environment={**self.environment, **environment}, inherited=(*self.inherited, *inherited))


@dataclass(eq=False)
class Child:
    """A child process that was started by `Children`, with its mark and its log."""

    name: str  # name of the child in the log
    mark: str  # value of MARK_VARIABLE in the environment of the child and of all that it starts
    log: ChildLog | None  # None: the child writes to this process's output
    log_start: int  # position in `log` at the child's start
    process: asyncio.subprocess.Process
    still_running: tuple[str, ...] = ()  # commands that were still running after the child's end

    @property
    def pid(self) -> int:
        return self.process.pid

    async def wait(self) -> int:
        """Wait for the child's end; returns its exit code, or minus the number of the signal that ended it."""
        return await self.process.wait()

    def last_output(self, lines: int = 20, limit: int = 1500) -> str:
        """Return the child's last output, at most `lines` lines and `limit` characters."""
        return "" if self.log is None else self.log.text_since(self.log_start, lines, limit)

    def send_signal(self, signum: signal.Signals) -> None:
        """Send a signal to the child's process group, unless the child has ended (then its id may be reused)."""
        if self.process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signum)

    async def stop(self, grace: float = 0.0) -> None:
        """Send SIGTERM, wait up to `grace` seconds, then kill the child and all processes that it started.

        If `grace` is 0, the child is killed at once. Returns within `grace` + 2 * KILL_SECONDS seconds.
        """
        if grace > 0:
            self.send_signal(signal.SIGTERM)
            await self._wait_for_exit(grace)
        self.send_signal(signal.SIGKILL)
        if not await self._wait_for_exit(KILL_SECONDS):
            log.error("a process still exists after SIGKILL", extra={"child": self.name, "pid": self.pid})
        await kill_marked(self.mark)

    async def _wait_for_exit(self, seconds: float) -> bool:
        """Wait up to `seconds` for the child's end; returns whether the child has ended."""
        with contextlib.suppress(TimeoutError):
            async with timeout(seconds):
                await self.process.wait()
        return self.process.returncode is not None


@dataclass(eq=False)
class Children:
    """All child processes that this run of the node's program has started."""

    scope: str  # identifies the node on its host: path of its state directory
    attempt: int  # number of this run of the node's program
    _start_count: int = 0
    _running_children: set[Child] = field(default_factory=set)
    _logs: dict[Path, ChildLog] = field(default_factory=dict)
    _node_is_stopping: bool = False

    async def start(self, name: str, program: Program, nice: int = 0) -> Child:
        """Start a child process, with the niceness `nice`. Raises OSError, or Interrupted if the node is stopping."""
        if self._node_is_stopping:
            raise Interrupted(f"the process {name} is not started, since the node is stopping")
        self._start_count += 1
        mark = f"{self.scope}#{self.attempt}.{self._start_count}"
        child_log, start_position = (None, 0) if program.log_path is None else self._log_and_position(program.log_path)
        with contextlib.ExitStack() as stack:
            output_file = None if program.log_path is None else stack.enter_context(program.log_path.open("ab"))
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
                stdout=output_file,
                stderr=output_file,
                env={**os.environ, **exec_child.hide_variables(program.environment, os.environ), MARK_VARIABLE: mark},
                process_group=0,
                pass_fds=program.inherited,
            )
        child = Child(name, mark, child_log, start_position, process)
        self._running_children = {
            earlier_child for earlier_child in self._running_children if earlier_child.process.returncode is None
        } | {child}
        log.info("started", extra={"child": name, "pid": child.pid})
        return child

    async def run(
        self, name: str, program: Program, limit_seconds: float, *, exclusive: bool = False
    ) -> tuple[int | None, Child]:
        """Run a child to its end.

        Returns the child's exit code (None if the child was killed after `limit_seconds`) and the `Child`. When `run`
        returns or raises an error, no process that the child started is left. Raises the same errors as `start`.

        With `exclusive`, the caller must start no other child process while this child runs. With `exclusive`, the
        attribute `still_running` of the child lists the commands that the child left running, including daemons.
        """
        earlier_pids = set(adopted_pids()) if exclusive else set[int]()
        child = await self.start(name, program)
        exit_code: int | None = None
        try:
            with contextlib.suppress(TimeoutError):
                async with timeout(limit_seconds):
                    exit_code = await child.wait()
            if exit_code is not None and exclusive:
                child.still_running = await commands_left_by(child, earlier_pids)
        finally:
            await child.stop()
            if exclusive:
                kill_all([pid for pid in adopted_pids() if pid not in earlier_pids])
        return exit_code, child

    def _log_and_position(self, path: Path) -> tuple[ChildLog, int]:
        """Return the log at `path`, and the position in the log at which a new child begins to write."""
        path.parent.mkdir(parents=True, exist_ok=True)
        child_log = self._logs.setdefault(path, ChildLog(path))
        return child_log, child_log.removed_bytes + (path.stat().st_size if path.exists() else 0)

    async def keep_logs_short(self, pause: float) -> None:
        """Every `pause` seconds, move the older part of each overlong log file to another file, until cancelled."""
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
        """Stop all processes that any run of the node's program started; no new processes can be started afterwards.

        Takes at most `grace` + 3 * KILL_SECONDS seconds.
        """
        self._node_is_stopping = True
        await asyncio.gather(*(child.stop(grace) for child in self._running_children))
        await kill_scope(self.scope)

    async def kill_earlier_runs(self) -> int:
        """Kill the processes that an earlier run of the node's program left running.

        Returns the number of killed processes.
        """
        return await kill_scope(self.scope)


async def kill_marked(mark: str) -> int:
    """Kill all processes that have the mark `mark`, and wait at most KILL_SECONDS until they have ended.

    Returns the number of killed processes.
    """
    return await _kill_by_mark(lambda value: value == mark)


async def kill_scope(scope: str) -> int:
    """Kill all processes that any run of the node's program with this `scope` started.

    Returns the number of killed processes.
    """
    return await _kill_by_mark(lambda value: value.startswith(f"{scope}#"))


async def _kill_by_mark(matches: Callable[[str], bool]) -> int:
    """Kill all processes for whose mark `matches` returns True. Returns the number of killed processes.

    The killing is repeated until no process matches (for at most KILL_SECONDS), since a process may fork meanwhile.
    """
    killed_pids: set[int] = set()
    deadline = time.monotonic() + KILL_SECONDS
    while pids := {pid for pid, mark in _pids_and_marks() if matches(mark)}:
        if time.monotonic() > deadline:
            log.error("processes still exist after SIGKILL", extra={"pids": sorted(pids)})
            break
        for pid in pids:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        killed_pids |= pids
        await asyncio.sleep(0.005)
    return len(killed_pids)


async def commands_left_by(child: Child, earlier_pids: AbstractSet[int]) -> tuple[str, ...]:
    """Return the commands of the processes that a child has left running.

    A process belongs to the child if it is in the child's process group, has the child's mark, or was adopted by the
    reaper (the parent of this process). Adopted processes in `earlier_pids`, and processes that end within
    LINGER_SECONDS, are ignored.
    """
    deadline = time.monotonic() + LINGER_SECONDS
    while True:
        marked_pids = {pid for pid, mark in _pids_and_marks() if mark == child.mark}
        command_by_pid = {
            pid: command_line(pid)
            for pid in sorted(marked_pids | _group_pids(child.pid) | set(adopted_pids()) - earlier_pids)
        }
        running_commands = tuple(command for command in command_by_pid.values() if command)
        if not running_commands or time.monotonic() > deadline:
            return running_commands
        await asyncio.sleep(0.02)


def adopted_pids() -> list[int]:
    """Return the ids of the processes that the reaper (this process's parent) adopted after their parent's end."""
    reaper_id = reaper.reaper_pid()
    return (
        sorted(set(descendants(reaper_id)) - set(descendants(os.getpid())) - {os.getpid()})
        if reaper_id is not None
        else []
    )


def command_line(pid: int) -> str:
    """Return the process's command line, shortened for a message; "" for a process that has ended."""
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0").replace(b"\0", b" ")
    except OSError:
        return ""
    return command.decode("utf-8", "replace")[:COMMAND_CHARACTERS]


def _group_pids(leader: int) -> set[int]:
    pids = set()
    for process_folder in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError, IndexError):
            if (
                process_folder.name.isdigit()
                and int((process_folder / "stat").read_text().rpartition(")")[2].split()[2]) == leader
            ):
                pids.add(int(process_folder.name))
    return pids


def _pids_and_marks() -> list[tuple[int, str]]:
    mark_prefix = f"{MARK_VARIABLE}=".encode()
    pids_and_marks = []
    for process_folder in Path("/proc").iterdir():
        if not process_folder.name.isdigit() or int(process_folder.name) == os.getpid():
            continue
        try:
            environment = (process_folder / "environ").read_bytes()
        except OSError:  # the process is gone, or belongs to another user
            continue
        for variable in environment.split(b"\0"):
            if variable.startswith(mark_prefix):
                pids_and_marks.append((int(process_folder.name), os.fsdecode(variable[len(mark_prefix) :])))
    return pids_and_marks


def explain_exit(exit_code: int | None, timeout_seconds: float) -> str:
    """Return why a child failed; "" if it succeeded. `exit_code` is None if the child was killed at the timeout."""
    if exit_code is None:
        return f"still running after {timeout_seconds:g} s, killed with its children"
    if exit_code == 0:
        return ""
    if exit_code < 0:
        signum = -exit_code
        return f"killed by {signal.Signals(signum).name if signum in set(signal.Signals) else f'signal {signum}'}"
    return {126: "cannot be executed (exit code 126)", 127: "not found (exit code 127)"}.get(
        exit_code, f"exit code {exit_code}"
    )
