"""The coordinator with 256 workers and their nodes on 512 real TLS connections.

The workers are processes that speak the protocol without training. Measured are the coordinator's processor time for a
round of check-ins at a boundary, the duration of a change 128 -> 256, and the time until all workers train again after
the coordinator's SIGKILL and return. No worker may be lost on the way.

All of these depend on the machine, so the bounds are on ratios: a worker's share of a round to the processor time for
parsing its check-in and writing the answer, and both durations to that of the first start with 128 workers.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dyntrain.controller.contract.messages import Target
from dyntrain.training.coordinator.server import Coordinator
from dyntrain.training.layout import JobFolder
from dyntrain.training.ledger import read_lines
from dyntrain.training.protocol.messages import CheckIn, Position, Proceed
from dyntrain.training.session.generation.generation import Limits
from dyntrain.training.session.job.options import Options
from figures import Figure, at_most, processor_seconds, progress, unbounded, write
from files_as_hosts import TARGET, FilesAsHosts, write_whole
from light_members import CHECKS, instance

JOB = {"cluster": "bench", "job": "job-1"}
HALF, ALL, BASES, PROCESSES = 128, 256, 2, 4
ROUND_SECONDS = 10.0
MESSAGES = 500  # in a turn of the reference
ROUND_OVER_MESSAGES, CHANGE_OVER_START, BACK_OVER_START = 8.0, 3.0, 3.0
LONGEST = 300.0


class Bench:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._events = JobFolder.of(folder, **JOB).events
        self._members: list[subprocess.Popen[bytes]] = []
        self._coordinator: subprocess.Popen[bytes] | None = None
        self._revision = 0

    def want(self, count: int) -> None:
        self._revision += 1
        target = Target.of(self._revision, tuple(instance(number) for number in range(count)))
        write_whole(self._folder / TARGET, target.model_dump_json())

    def coordinate(self) -> None:
        log = (self._folder / "coordinator.log").open("ab")
        self._coordinator = subprocess.Popen([sys.executable, __file__, str(self._folder)], stderr=log, stdout=log)

    def kill_coordinator(self) -> None:
        assert self._coordinator is not None
        self._coordinator.send_signal(signal.SIGKILL)
        self._coordinator.wait()

    def members(self, first: int, count: int) -> None:
        script = str(Path(__file__).with_name("light_members.py"))
        each = count // PROCESSES
        for start in range(first, first + count, each):
            command = [sys.executable, script, str(self._folder), str(start), str(each), str(BASES)]
            self._members.append(subprocess.Popen(command))

    def events(self, name: str) -> list[dict[str, Any]]:
        return [event for event in read_lines(self._events) if event["event"] == name]

    def rounds(self, workers: int, since: float = 0.0) -> int:
        return sum(event["workers"] == workers and event["at"] > since for event in self.events("segment"))

    def processor(self) -> float:
        assert self._coordinator is not None
        return processor_seconds(self._coordinator.pid)

    def until(self, condition: Callable[[], bool], what: str) -> float:
        """Wait until `condition` is true, and return the seconds that it took. Raises TimeoutError."""
        began = time.monotonic()
        while not condition():
            if time.monotonic() - began > LONGEST:
                raise TimeoutError(f"not within {LONGEST:.0f} s: {what}")
            time.sleep(0.05)
        return time.monotonic() - began

    def a_round(self, workers: int) -> float:
        """CPU milliseconds of the coordinator for each worker in a round of check-ins."""
        now, used, before = time.time(), self.processor(), self.rounds(workers)
        time.sleep(ROUND_SECONDS)
        used, rounds = self.processor() - used, self.rounds(workers) - before
        progress(f"{workers} workers: {rounds} rounds in {time.time() - now:.0f} s, {used:.1f} CPU s")
        assert rounds, "nobody stepped on: there is nothing to divide by"
        return used / rounds / workers * 1000

    def close(self) -> None:
        for process in [*self._members, *([self._coordinator] if self._coordinator else [])]:
            process.kill()
            process.wait()


def main(out: Path) -> list[Figure]:
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Path(folder))
        try:
            bench.want(HALF)
            bench.coordinate()
            bench.members(0, HALF)
            start = bench.until(lambda: bench.rounds(HALF) > 1, f"{HALF} workers train")
            few = bench.a_round(HALF)
            bare = [bare_messages()]
            bench.members(HALF, ALL - HALF)
            bench.until(lambda: len(bench.events("worker_ready")) >= ALL, "the others stand by")
            bench.want(ALL)
            change = bench.until(lambda: bench.rounds(ALL) > 1, f"{ALL} workers train")
            many = bench.a_round(ALL)
            bare.append(bare_messages())
            bench.kill_coordinator()
            killed = time.time()
            bench.coordinate()
            back = bench.until(lambda: bench.rounds(ALL, killed) > 1, "everybody trains on")
            lost = len(bench.events("worker_lost")) + len(bench.events("restart"))
        finally:
            bench.close()
    messages = statistics.mean(bare)
    results = {"round_128": few, "round_256": many, "messages": messages, "start": start, "change": change}
    write(out, "coordinator", {**results, "return": back, "lost": lost})
    return [
        unbounded("coordinator.128.cpu_ms_a_worker_and_round", few),
        unbounded("coordinator.256.cpu_ms_a_worker_and_round", many),
        unbounded("coordinator.cpu_ms_a_check_in_and_its_answer", messages),
        at_most("coordinator.256.round_over_messages", many / messages, ROUND_OVER_MESSAGES),
        unbounded("coordinator.start_of_128.seconds", start),
        unbounded("coordinator.change_128_to_256.seconds", change),
        at_most("coordinator.change_over_start", change / start, CHANGE_OVER_START),
        unbounded("coordinator.all_back_after_its_death.seconds", back),
        at_most("coordinator.all_back_over_start", back / start, BACK_OVER_START),
        at_most("coordinator.workers_lost", lost, 0),
    ]


def bare_messages() -> float:
    """CPU milliseconds to parse one check-in with all its checks and to write one order to proceed."""
    position = Position(epoch=1, offset=0, step=1)
    text = CheckIn(generation=1, position=position, pid=1, checks=CHECKS).model_dump_json()
    began = time.process_time()
    for _ in range(MESSAGES):
        CheckIn.model_validate_json(text)
        Proceed(generation=1, position=position).model_dump_json()
    return (time.process_time() - began) / MESSAGES * 1000


def serve(folder: Path) -> None:
    logging.basicConfig(level=logging.INFO)
    options = Options(**JOB, started_at=1.0, limits=Limits(1, 1024), workers=HALF)
    asyncio.run(Coordinator(options, JobFolder.of(folder, **JOB), FilesAsHosts(folder), "127.0.0.1", instance(0)).run())


if __name__ == "__main__":
    serve(Path(sys.argv[1]))
