"""Child processes: each leads a process group of its own, writes to a log file or where we write, and cannot outlive
us.

Three nets under each other: the group is killed as a whole; the kernel kills a child when the bootstrap dies
(exec_child); and every child carries a mark in its environment, which its own children inherit, so that even those that
left the group are found: when their parent is stopped, or at the next start of the bootstrap.
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
LINGER_SECONDS = 2.0  # for what ends with its parent, such as the other end of a pipe
COMMAND_CHARACTERS = 100
KILL_SECONDS = 5.0  # for the kernel to take a killed process away; longer only in uninterruptible sleep
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Program:
    """What a child runs. A program that cannot be run, or not in `cwd`, exits with 126 or 127 and says why in its log.

    `log_path`: None to write where this process writes.
    `inherited`: file descriptors that stay open in the child.
    `user`: who runs it, with that user's groups and home; only root can make it another than itself, which None is.
    """

    command: Sequence[str]
    environment: Mapping[str, str]
    log_path: Path | None
    cwd: str | None = None
    inherited: Sequence[int] = ()
    user: str | None = None

    def given(self, environment: Mapping[str, str], *inherited: int) -> Program:
        """With these besides."""
        return replace(self, environment={**self.environment, **environment}, inherited=(*self.inherited, *inherited))


@dataclass(eq=False)
class Child:
    name: str
    mark: str
    log: ChildLog | None  # None: it writes where we write
    log_start: int  # a position in `log`
    process: asyncio.subprocess.Process
    left: tuple[str, ...] = ()  # what still ran when it had ended, as commands

    @property
    def pid(self) -> int:
        return self.process.pid

    async def wait(self) -> int:
        """The exit code; minus the signal's number when a signal ended it."""
        return await self.process.wait()

    def last_words(self, lines: int = 20, limit: int = 1500) -> str:
        """What it wrote last to its log, at most `lines` and `limit` characters; empty when it wrote nothing."""
        return "" if self.log is None else self.log.said_since(self.log_start, lines, limit)

    def send(self, signum: signal.Signals) -> None:
        """To the whole group, as long as its leader is not reaped: its number may be somebody else's afterwards."""
        if self.process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signum)

    async def stop(self, grace: float = 0.0) -> None:
        """Ask, wait up to `grace` seconds (0: do not ask), kill what is left with everything it started. Returns within
        grace + 2 * KILL_SECONDS.
        """
        if grace > 0:
            self.send(signal.SIGTERM)
            await self._gone(grace)
        self.send(signal.SIGKILL)
        if not await self._gone(KILL_SECONDS):
            log.error("a process does not go away after SIGKILL", extra={"child": self.name, "pid": self.pid})
        await sweep(self.mark)

    async def _gone(self, seconds: float) -> bool:
        with contextlib.suppress(TimeoutError):
            async with timeout(seconds):
                await self.process.wait()
        return self.process.returncode is not None


@dataclass(eq=False)
class Children:
    """All children of this life. `scope` is unique to the node on its host (its state directory)."""

    scope: str
    attempt: int
    _started: int = 0
    _alive: set[Child] = field(default_factory=set)
    _logs: dict[Path, ChildLog] = field(default_factory=dict)
    _stopping: bool = False

    async def start(self, name: str, program: Program, nice: int = 0) -> Child:
        """Raises OSError, and Interrupted once the node is stopping."""
        if self._stopping:
            raise Interrupted(f"{name} is not started: the node is stopping")
        self._started += 1
        mark = f"{self.scope}#{self.attempt}.{self._started}"
        written, start = (None, 0) if program.log_path is None else self._log(program.log_path)
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
                env={**os.environ, **exec_child.withheld(program.environment, os.environ), MARK: mark},
                process_group=0,
                pass_fds=program.inherited,
            )
        child = Child(name, mark, written, start, process)
        self._alive = {other for other in self._alive if other.process.returncode is None} | {child}
        log.info("started", extra={"child": name, "pid": child.pid})
        return child

    async def run(
        self, name: str, program: Program, seconds: float, *, alone: bool = False
    ) -> tuple[int | None, Child]:
        """`start`, and wait for its end: the exit code, None when it was killed after `seconds`. On return, however
        that comes, nothing that it started is left. Raises what `start` raises.

        `alone`: nothing else is started meanwhile, so that daemons that hide are found too, and `left` of the child
        names what it had left running.
        """
        before = set(adopted()) if alone else set[int]()
        child = await self.start(name, program)
        code: int | None = None
        try:
            with contextlib.suppress(TimeoutError):
                async with timeout(seconds):
                    code = await child.wait()
            if code is not None and alone:
                child.left = await left_by(child, before)
        finally:
            await child.stop()
            if alone:
                kill_all([pid for pid in adopted() if pid not in before])
        return code, child

    def _log(self, path: Path) -> tuple[ChildLog, int]:
        """The file, and the position from which on a child that starts now writes."""
        path.parent.mkdir(parents=True, exist_ok=True)
        written = self._logs.setdefault(path, ChildLog(path))
        return written, written.cut + (path.stat().st_size if path.exists() else 0)

    async def keep_logs_short(self, pause: float) -> None:
        """Looks at every file that a child writes to, each `pause` seconds, until cancelled."""
        said = ""
        while True:
            for written in list(self._logs.values()):
                try:
                    if await asyncio.to_thread(written.trim):
                        log.info("the older part of a log is kept beside it", extra={"path": str(written.path)})
                except OSError as error:
                    if said != str(error):
                        log.warning(
                            "a log cannot be kept short; make room on its disk",
                            extra={"path": str(written.path), "reason": str(error)},
                        )
                    said = str(error)
            await asyncio.sleep(pause)

    async def stop_all(self, grace: float) -> None:
        """Nothing that this or an earlier life started runs any more, and nothing can be started. Bounded by grace + 3
        * KILL_SECONDS.
        """
        self._stopping = True
        await asyncio.gather(*(child.stop(grace) for child in self._alive))
        await sweep_scope(self.scope)

    async def sweep_earlier_lives(self) -> int:
        """Kill what an earlier life left behind when it was killed itself; returns how many."""
        return await sweep_scope(self.scope)


async def sweep(mark: str) -> int:
    """Kill every process that carries exactly this mark, and wait until they are gone; returns how many. Bounded by
    KILL_SECONDS.
    """
    return await _kill_where(lambda value: value == mark)


async def sweep_scope(scope: str) -> int:
    """The same for every process that any life of the node started."""
    return await _kill_where(lambda value: value.startswith(f"{scope}#"))


async def _kill_where(matches: Callable[[str], bool]) -> int:
    """Again until a look finds nobody: a process may fork while it is looked for, and dies some time after it was
    killed.
    """
    killed: set[int] = set()
    until = time.monotonic() + KILL_SECONDS
    while found := {pid for pid, value in _marked() if matches(value)}:
        if time.monotonic() > until:
            log.error("processes do not go away after SIGKILL", extra={"pids": sorted(found)})
            break
        for pid in found:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        killed |= found
        await asyncio.sleep(0.005)
    return len(killed)


async def left_by(child: Child, before: AbstractSet[int]) -> tuple[str, ...]:
    """What still runs of a child that has ended, as commands: of its group, with its mark, or adopted by the process
    above us since, when only `before` was; what ends by itself within LINGER_SECONDS is not told.
    """
    until = time.monotonic() + LINGER_SECONDS
    while True:
        marked = {pid for pid, value in _marked() if value == child.mark}
        found = {pid: command_line(pid) for pid in sorted(marked | _of_group(child.pid) | set(adopted()) - before)}
        running = tuple(command for command in found.values() if command)
        if not running or time.monotonic() > until:
            return running
        await asyncio.sleep(0.02)


def adopted() -> list[int]:
    """What lost its parent below us, whatever it did to its environment; none where no reaper is above us."""
    above = reaper.above()
    return sorted(set(descendants(above)) - set(descendants(os.getpid())) - {os.getpid()}) if above is not None else []


def command_line(pid: int) -> str:
    """As far as people need it to know it again; "" for one that is gone, or dead and not taken away yet."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0").replace(b"\0", b" ")
    except OSError:
        return ""
    return words.decode("utf-8", "replace")[:COMMAND_CHARACTERS]


def _of_group(leader: int) -> set[int]:
    found = set()
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError, IndexError):
            if entry.name.isdigit() and int((entry / "stat").read_text().rpartition(")")[2].split()[2]) == leader:
                found.add(int(entry.name))
    return found


def _marked() -> list[tuple[int, str]]:
    prefix = f"{MARK}=".encode()
    marked = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            environment = (entry / "environ").read_bytes()
        except OSError:  # gone, or another user's
            continue
        for item in environment.split(b"\0"):
            if item.startswith(prefix):
                marked.append((int(entry.name), os.fsdecode(item[len(prefix) :])))
    return marked


def explain(code: int | None, timeout: float) -> str:
    """Why a run counts as failed; empty for success. `code` is None when it was killed at the timeout."""
    if code is None:
        return f"still running after {timeout:g} s, killed with its children"
    if code == 0:
        return ""
    if code < 0:
        return f"killed by {signal.Signals(-code).name if -code in set(signal.Signals) else f'signal {-code}'}"
    return {126: "cannot be executed (exit code 126)", 127: "not found (exit code 127)"}.get(code, f"exit code {code}")
