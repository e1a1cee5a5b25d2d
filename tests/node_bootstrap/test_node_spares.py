"""Warm spares: who takes over when the worker dies, and that none outlives its node."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from dyntrain.node_bootstrap.core.pacing import Backoff, Timing
from dyntrain.node_bootstrap.host.processes import Child, Children, Program
from dyntrain.node_bootstrap.supervision.worker import Worker, WorkerState
from dyntrain.training.protocol.node_messages import WorkerStarted
from dyntrain.training.protocol.wire import FromNode
from node_fakes import alive, processes_of, wait_until

TIMING = Timing(spare_delay_seconds=0.0, blank_backoff=Backoff(0.01, 0.1))
SCRIPT = """
import os, sys, time
sys.path.insert(0, {root!r})
from dyntrain.training.host.standby import wait_until_needed
print("up", os.getpid(), wait_until_needed(), flush=True)
time.sleep(600)
"""


class Bed:
    def __init__(
        self, folder: Path, spares: int, script: str = SCRIPT, children: Children | None = None, timing: Timing = TIMING
    ) -> None:
        root = str(Path(__file__).resolve().parents[2])
        self.log = folder / "worker.log"
        self.children = children or Children(str(folder), 1)
        self.messages: list[FromNode] = []
        program = Program((sys.executable, "-c", script.format(root=root)), {}, self.log, str(folder))
        self.worker = Worker(program, self.children, self._tell, lambda reason: None, lambda: None, timing, spares)
        self._run = asyncio.create_task(self.worker.run())

    def _tell(self, message: FromNode) -> bool:
        self.messages.append(message)
        return True

    def took_over(self, pid: int | None) -> bool:
        return f"up {pid} True" in self.log.read_text()

    async def close(self) -> None:
        self._run.cancel()
        await asyncio.gather(self._run, return_exceptions=True)
        await self.children.stop_all(0.0)


@pytest.mark.parametrize("wait", [True, False], ids=["a spare that is ready", "a spare that is still getting ready"])
def test_a_spare_takes_over_and_another_takes_its_place(tmp_path: Path, wait: bool) -> None:
    async def run() -> tuple[int, int, int | None, bool, list[tuple[int, bool]]]:
        bed = Bed(tmp_path, spares=1)
        try:
            await bed.worker.on_welcome("job-1")
            first = bed.worker.pid
            assert first is not None
            await wait_until(lambda: len(bed.worker.spares.pids) == 1, "the spares")
            spare = bed.worker.spares.pids[0]
            if wait:
                await wait_until(lambda: bed.worker.spares.ready_count == 1, "the spares")
            os.kill(first, signal.SIGKILL)
            await wait_until(lambda: bed.worker.state is WorkerState.CRASHED, "the spares")
            await bed.worker.restart(first, "killed")
            taken = bed.worker.pid
            await wait_until(lambda: bed.took_over(taken), "the spares")
            await wait_until(lambda: bed.worker.spares.ready_count == 1, "the spares")
            started = [(message.pid, message.spare) for message in bed.messages if isinstance(message, WorkerStarted)]
            return first, spare, taken, bed.worker.spares.pids[0] != taken, started
        finally:
            await bed.close()

    first, spare, taken, another, started = asyncio.run(run())
    assert taken == spare
    assert started == [(first, False), (spare, True)]
    assert another


def test_no_spare_outlives_the_worker_and_without_the_option_there_is_none(tmp_path: Path) -> None:
    async def run(count: int) -> tuple[list[int], list[int]]:
        bed = Bed(tmp_path, spares=count)
        try:
            await bed.worker.on_welcome("job-1")
            await wait_until(lambda: bed.worker.spares.ready_count == count, "the spares")
            before = bed.worker.spares.pids
            await bed.worker.stop(0.0)
            return before, [pid for pid in before if alive(pid)]
        finally:
            await bed.close()

    spares, left = asyncio.run(run(2))
    assert len(spares) == 2
    assert left == []
    assert asyncio.run(run(0)) == ([], [])


def test_a_spare_that_dies_is_made_good_and_never_taken(tmp_path: Path) -> None:
    async def run() -> tuple[int, int | None]:
        bed = Bed(tmp_path, spares=1)
        try:
            await bed.worker.on_welcome("job-1")
            await wait_until(lambda: bed.worker.spares.ready_count == 1, "the spares")
            dead, first = bed.worker.spares.pids[0], bed.worker.pid
            assert first is not None
            os.kill(dead, signal.SIGKILL)
            await wait_until(
                lambda: bed.worker.spares.pids not in ([], [dead]) and bed.worker.spares.ready_count == 1, "the spares"
            )
            await bed.worker.restart(first, "by order")
            await wait_until(lambda: bed.took_over(bed.worker.pid), "the spares")
            return dead, bed.worker.pid
        finally:
            await bed.close()

    dead, taken = asyncio.run(run())
    assert taken != dead


HANGS_ONCE = """
import os, time
if "DYNTRAIN_STANDBY_SOCKET" in os.environ and not os.path.exists("hung"):
    open("hung", "w").write(str(os.getpid()))
    time.sleep(600)
"""


def test_a_spare_that_hangs_in_its_imports_is_started_again(tmp_path: Path) -> None:
    """Without a bound there would be no spare any more, and nobody would notice before the next loss."""

    async def run() -> bool:
        bed = Bed(tmp_path, spares=1, script=HANGS_ONCE + SCRIPT, timing=replace(TIMING, spare_start_seconds=5.0))
        try:
            await bed.worker.on_welcome("job-1")
            await wait_until(lambda: bed.worker.spares.ready_count == 1, "a spare that does not hang")
            return alive(int((tmp_path / "hung").read_text()))
        finally:
            await bed.close()

    assert asyncio.run(run()) is False, "the one that hung is gone"


MEMORY = """
import os, sys, time
sys.path.insert(0, {root!r})
from dyntrain.training.host.safe_memory import inherited_memory
from dyntrain.training.host.standby import wait_until_needed
spare = wait_until_needed()
memory, *_ = inherited_memory()
print("found", spare, os.pread(memory, 20, 0).decode(), flush=True)
os.pwrite(memory, str(os.getpid()).encode(), 0)
print("up", os.getpid(), spare, flush=True)
time.sleep(600)
"""


def test_t9_what_a_worker_keeps_in_the_nodes_memory_is_there_for_the_spare_and_gone_with_the_node(
    tmp_path: Path,
) -> None:
    def held() -> set[int]:
        """The inodes of such memory that this process has open."""
        inodes = set()
        for descriptor in os.listdir("/proc/self/fd"):
            with contextlib.suppress(FileNotFoundError):  # that of the listing itself
                if "dyntrain-safe" in os.readlink(f"/proc/self/fd/{descriptor}"):
                    inodes.add(os.stat(f"/proc/self/fd/{descriptor}").st_ino)
        return inodes

    others = held()

    async def run() -> tuple[int | None, str, bool]:
        bed = Bed(tmp_path, spares=1, script=MEMORY)
        try:
            await bed.worker.on_welcome("job-1")
            first = bed.worker.pid
            assert first is not None
            await wait_until(lambda: f"up {first} False" in bed.log.read_text(), "the worker")
            await wait_until(lambda: bed.worker.spares.ready_count == 1, "the spares")
            os.kill(first, signal.SIGKILL)
            await wait_until(lambda: bed.worker.state is WorkerState.CRASHED, "the spares")
            await bed.worker.restart(first, "killed")
            await wait_until(lambda: bed.took_over(bed.worker.pid), "the spares")
            return first, bed.log.read_text(), bool(held() - others)
        finally:
            await bed.close()

    first, log, there = asyncio.run(run())
    assert f"found True {first}\n" in log
    assert (there, held() - others) == (True, set())


def test_a_spare_of_an_earlier_job_is_not_taken_for_the_next(tmp_path: Path) -> None:
    """It has opened the earlier job's ledger."""

    async def run() -> tuple[list[int], int | None]:
        bed = Bed(tmp_path, spares=1)
        try:
            await bed.worker.on_welcome("job-1")
            await wait_until(lambda: bed.worker.spares.ready_count == 1, "the spares")
            old = bed.worker.spares.pids
            await bed.worker.on_welcome("job-2")
            return old, bed.worker.pid
        finally:
            await bed.close()

    old, taken = asyncio.run(run())
    assert taken not in old
    assert not any(alive(pid) for pid in old)


def test_no_spare_outlives_a_suspended_worker_and_the_next_welcome_makes_new_ones(tmp_path: Path) -> None:
    """A node that is cut off, and perhaps released, would keep the memory of a model for nobody."""

    async def run() -> tuple[list[int], list[int]]:
        bed = Bed(tmp_path, spares=1)
        try:
            await bed.worker.on_welcome("job-1")
            await wait_until(lambda: bed.worker.spares.ready_count == 1, "the spares")
            before = [*bed.worker.spares.pids, bed.worker.pid or 0]
            await bed.worker.suspend(0.0)
            left = [pid for pid in before if alive(pid)] + bed.worker.spares.pids
            await bed.worker.on_welcome("job-1")
            await wait_until(lambda: bed.worker.spares.ready_count == 1, "the spares")
            return left, before
        finally:
            await bed.close()

    left, before = asyncio.run(run())
    assert left == []
    assert len(before) == 2


class SlowStart(Children):
    """Holds the start of a spare up until the test lets it go on; its process is there by then."""

    def __init__(self, folder: Path) -> None:
        super().__init__(str(folder), 1)
        self.begun, self.go_on = asyncio.Event(), asyncio.Event()

    async def start(self, name: str, program: Program, nice: int = 0) -> Child:
        child = await super().start(name, program, nice)
        if name == "spare":
            self.begun.set()
            await self.go_on.wait()
        return child


def test_a_spare_that_is_being_started_when_the_worker_is_suspended_is_stopped_too(tmp_path: Path) -> None:
    async def run() -> list[int]:
        children = SlowStart(tmp_path)
        bed = Bed(tmp_path, spares=1, children=children)
        try:
            await bed.worker.on_welcome("job-1")
            await children.begun.wait()
            await bed.worker.suspend(0.0)
            assert len(processes_of(tmp_path)) == 1  # the spare: otherwise this test shows nothing
            children.go_on.set()
            await wait_until(lambda: not processes_of(tmp_path), "the spare is stopped")
            return bed.worker.spares.pids
        finally:
            await bed.close()

    assert asyncio.run(run()) == []
