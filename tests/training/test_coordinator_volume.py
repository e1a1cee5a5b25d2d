"""A shared volume that stalls: nobody is told of a decision that is not written, and nobody is given up meanwhile."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from dyntrain.controller.local.pace import patient
from dyntrain.training import events, journal
from dyntrain.training.coordinator.outbox import Outbox
from dyntrain.training.coordinator.server import Coordinator
from dyntrain.training.layout import JobFolder
from dyntrain.training.protocol.clocks import Clocks
from dyntrain.training.protocol.messages import Go
from dyntrain.training.session.generation.generation import Limits
from dyntrain.training.session.job.options import Options
from dyntrain.training.session.job.state import Phase
from dyntrain.training.session.orders import Announce, Journal, Order, ToWorker
from dyntrain.training.session.phases.ending import fail
from job_bed import BED, JobBed, ListedHosts
from session_driver import A, B, C, Driver
from waiting import until

DECISION = journal.JobFailed(reason="a decision", at=1.0)


class StallingVolume(ThreadPoolExecutor):
    """Does what it is given while it is `open`."""

    def __init__(self) -> None:
        super().__init__(1)
        self.open, self.holds = threading.Event(), threading.Event()
        self.open.set()

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        def work() -> Any:
            if not self.open.is_set():
                self.holds.set()
            self.open.wait(patient(300))
            return fn(*args, **kwargs)

        return super().submit(work)


def test_the_controller_hears_of_nothing_that_no_journal_has(tmp_path: Path) -> None:
    """Told that the job is over it ends machines, and names no successor for one that dies before the write."""

    async def scenario() -> None:
        volume, hosts = StallingVolume(), ListedHosts()
        options = Options(**BED, started_at=1.0, limits=Limits(1, 2), workers=1)
        folder = JobFolder.of(tmp_path, **BED)
        coordinator = Coordinator(options, folder, hosts, "127.0.0.1", A, volume=volume)
        running = asyncio.create_task(coordinator.run())
        await until(lambda: bool(hosts.reports), 30)
        volume.open.clear()
        coordinator.carry_out(fail(coordinator.session.job, "it was made to", 1.0))
        await until(volume.holds.is_set, 30)
        known = len(hosts.reports)
        await until(lambda: len(hosts.reports) > known, 30)
        assert {report.state for report in hosts.reports} == {"starting"}, "the lease lives on, and says no more"
        volume.open.set()
        await running
        assert hosts.reports[-1].state == "failed"

    asyncio.run(scenario())


def test_what_follows_a_decision_waits_for_it_and_what_goes_before_does_not() -> None:
    """A worker that was told of a generation which no journal has would train what its successor does not know of."""

    async def scenario() -> None:
        volume, done = StallingVolume(), list[object]()
        before, after = (Announce(events.NodeLost(instance=name, at=1.0)) for name in (A, B))
        go = ToWorker(A, Go(generation=1))
        outbox = Outbox(volume, done.append, done.append, done.append)
        running = asyncio.create_task(outbox.run())
        volume.open.clear()
        outbox.put([before, Journal(DECISION), go])
        outbox.put([after])
        await until(volume.holds.is_set, 30)
        assert done == [before]
        assert outbox.is_stalled
        volume.open.set()
        await until(lambda: len(done) == 4, 30)
        assert done == [before, DECISION, go, after]
        assert not outbox.is_stalled
        outbox.put([go])
        assert done[-1] == go, "without a decision nothing waits"
        running.cancel()
        volume.shutdown()

    asyncio.run(scenario())


def test_one_that_was_overtaken_says_nothing_more() -> None:
    async def scenario() -> None:
        volume, sent = StallingVolume(), list[Order]()
        outbox = Outbox(volume, lambda entry: outbox.drop_orders(), lambda event: None, sent.append)
        running = asyncio.create_task(outbox.run())
        outbox.put([Journal(DECISION), ToWorker(A, Go(generation=1))])
        await until(lambda: not outbox.is_stalled, 30)
        running.cancel()
        assert sent == []
        volume.shutdown()

    asyncio.run(scenario())


def test_time_in_which_nothing_could_be_ordered_counts_against_nobody() -> None:
    driver = Driver()
    driver.train(A, B)
    driver.node(C, base=False)
    driver.worker(C)
    driver.want(A, B, C)
    for base in (A, B):
        driver.blanks(base)
    driver.check_in(A, B)
    driver.do("worker_disconnected", A, 10)
    for _ in range(12):
        driver.now += 10.0
        driver.session.extend_deadlines(10.0)
    assert driver.do("tick") == []
    assert driver.session.job.phase is Phase.PREPARING
    driver.worker(A, generation=2, stage="prepares")
    driver.prepare(A, B, C)
    assert driver.session.job.phase is Phase.FORMING


@pytest.mark.jobs
def test_a_volume_that_stalls_for_longer_than_any_bound_of_a_change_ends_nobody(
    make_bed: Callable[..., JobBed], tmp_path: Path
) -> None:
    """A file server that fails over is away for a minute or two: that ended all workers."""
    volume = StallingVolume()
    clocks = Clocks(patient(2.0), progress=patient(6.0))  # bounds on living processes, and load may yet come
    bed = make_bed(clocks=clocks, volume=volume)
    bed.begin()
    bed.add_node("C")
    bed.wait_for(bed.saw("worker_ready", "C"), 60, "the joiner stands by")
    volume.open.clear()
    bed.want("ABC")
    bed.wait_for(volume.holds.is_set, 60, "a decision waits for the volume")
    time.sleep(1.5 * clocks.progress)  # how long it is away: the length is what is tried
    volume.open.set()
    bed.wait_for(bed.saw("joined", "C"), 60, "the change is made once the volume is back")
    bed.finish()
    assert bed.events("worker_lost") + bed.events("restart") + bed.events("taken_back") == []
    assert bed.audit().exact
