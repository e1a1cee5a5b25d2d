"""`logs: volume`: what a worker writes is on the shared volume too, where `tail -f` on another node follows it.

What would break for a user: a joiner that fails unseen, lines that a rotation swallowed, training that stops because
the volume hangs.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from dyntrain.controller.local.pace import patient
from dyntrain.node_bootstrap.host.child_log import ChildLog
from dyntrain.node_bootstrap.node import RETIRED
from dyntrain.node_bootstrap.reports import log_copy
from dyntrain.training.layout import JobFolder
from node_coordinator import training_node
from node_fakes import INSTANCE, processes_of, wait_until
from waiting import wait_for

LINE = 100


@contextlib.contextmanager
def running(*command: object, output: Path) -> Iterator[subprocess.Popen[bytes]]:
    with output.open("wb") as file:
        process = subprocess.Popen([str(word) for word in command], stdout=file, stderr=file)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def lines(first: int, count: int) -> bytes:
    return b"".join(f"line {number} ".encode().ljust(LINE - 1, b".") + b"\n" for number in range(first, first + count))


def numbers(text: bytes) -> list[int]:
    return [int(line.split()[1]) for line in text.splitlines() if line.startswith(b"line ")]


def test_every_line_comes_to_the_volume_and_to_who_follows_it_though_both_files_are_cut(tmp_path: Path) -> None:
    source, target, seen = tmp_path / "worker.log", tmp_path / "job" / "logs" / "i-1.log", tmp_path / "seen"
    source.write_bytes(b"of the job before\n")
    start = source.stat().st_size
    copier = (sys.executable, "-I", "-S", log_copy.__file__, source, start, target, 40 * LINE)
    with running(*copier, output=tmp_path / "said") as copying:

        def write(first: int) -> None:
            with source.open("ab") as file:
                file.write(lines(first, 30))
            wait_for(lambda: numbers(target.read_bytes())[-1:] == [first + 29] if target.exists() else False, 20.0)

        write(0)
        with running("tail", "-n", "+1", "-f", target, output=seen):
            wait_for(lambda: len(numbers(seen.read_bytes())) == 30, 20.0)
            write(30)
            assert ChildLog(source).trim(max_bytes=10 * LINE)
            write(60)
            write(90)
            wait_for(lambda: set(range(120)) <= set(numbers(seen.read_bytes())), 20.0, lambda: seen.read_text()[-2000:])
        kept = target.with_name(f"{target.name}.1").read_bytes() + target.read_bytes()
        assert set(range(60, 120)) <= set(numbers(kept))
        assert target.stat().st_size <= 71 * LINE, "bounded: what was there, and one piece"
        with source.open("ab") as file:
            file.write(lines(120, 1))
        copying.send_signal(signal.SIGTERM)
        assert copying.wait(patient(20)) == 0
        assert numbers(target.read_bytes())[-1] == 120, "the last words of a worker that is ended too"
    assert b"of the job before" not in kept


def test_a_worker_s_words_are_under_its_job_on_the_volume(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with training_node(tmp_path, logs="volume") as (here, _coordinator, _node):
            copied = JobFolder.of(here.mount, "demo", "job-1").log_of(INSTANCE)
            (here.mount / "crash").touch()
            await wait_until(lambda: copied.exists() and "the worker says why" in copied.read_text(), "it is copied")

    asyncio.run(scenario())


def test_a_volume_that_hangs_holds_up_neither_worker_nor_node(tmp_path: Path) -> None:
    """A pipe that nobody reads, in the place of the file: to open it takes for ever."""

    async def scenario() -> None:
        hung = JobFolder.of(tmp_path / "shared", "demo", "job-1").log_of(INSTANCE)
        hung.parent.mkdir(parents=True)
        os.mkfifo(hung)
        async with training_node(tmp_path, logs="volume") as (here, coordinator, node):
            (here.mount / "leave").touch()
            await coordinator.retire()
            assert await node == RETIRED
        assert processes_of(tmp_path) == []

    asyncio.run(scenario())
