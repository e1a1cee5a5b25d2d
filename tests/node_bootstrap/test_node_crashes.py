"""The worker process of a node: a crash is told, and who decides what follows; leaving is no crash."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from dyntrain.node_bootstrap.core.pacing import Backoff
from dyntrain.node_bootstrap.node import RETIRED
from dyntrain.training.protocol.node_messages import (
    CoolDown,
    Listed,
    RestartWorker,
    WorkerExited,
    WorkerStarted,
)
from node_coordinator import start_coordinator, training_node
from node_fakes import alive, living, processes_of, wait_until, world


def test_n8_crash_is_told_and_the_coordinator_decides(tmp_path: Path) -> None:
    """A worker restarted behind the coordinator's back would disturb the recovery; an order about an earlier process is
    void.
    """

    async def scenario() -> None:
        async with training_node(tmp_path) as (here, coordinator, _):
            first = here.workers_started()[0]["pid"]
            (here.mount / "crash").touch()
            exited = (await wait_until(lambda: coordinator.messages(WorkerExited), "the crash is told"))[0]
            assert (exited.pid, exited.code) == (first, 3)
            assert "the worker says why" in exited.reason
            (here.mount / "crash").unlink()
            assert len(here.workers_started()) == 1

            await coordinator.send(RestartWorker(pid=first, reason="again"))
            second = (await wait_until(lambda: here.workers_started()[1:], "it is restarted by order"))[0]["pid"]
            await coordinator.send(RestartWorker(pid=first, reason="an old order"))
            await wait_until(lambda: "ignored an order" in here.logged(), "the old order is handled")
            assert alive(second)

            await coordinator.send(RestartWorker(pid=second, reason="killed by order"))
            third = (await wait_until(lambda: here.workers_started()[2:], "a running worker is replaced by order"))[0][
                "pid"
            ]
            assert not alive(second)
            started = await wait_until(
                lambda: coordinator.messages(WorkerStarted)[2:] and coordinator.messages(WorkerStarted),
                "each start is told",
            )
            assert [message.pid for message in started] == [first, second, third], (
                "the coordinator bounds what hangs before it connects"
            )
            await coordinator.present.close()  # type: ignore[union-attr]
            await wait_until(lambda: len(coordinator.hellos) == 2, "the node reconnects")
            assert coordinator.hellos[1].worker_pid == third

    asyncio.run(scenario())
    assert processes_of(tmp_path) == []


def test_n8_crash_that_nobody_heard_of_is_told_again(tmp_path: Path) -> None:
    """The connection broke while the crash was being told: without repetition the worker would wait for ever."""

    async def scenario() -> None:
        async with training_node(tmp_path, own_restart_backoff=Backoff(30.0, 30.0)) as (here, coordinator, _):
            (here.mount / "crash").touch()
            await wait_until(lambda: coordinator.messages(WorkerExited), "the crash is told")
            await coordinator.present.close()  # type: ignore[union-attr]
            await wait_until(lambda: len(coordinator.messages(WorkerExited)) >= 2, "it is told again")
        first, second = coordinator.messages(WorkerExited)[:2]
        assert first == second

    asyncio.run(scenario())


def test_n8_worker_that_crashes_without_a_coordinator_is_restarted_then_reported(tmp_path: Path) -> None:
    """Restarted with backoff while nobody can be asked; after the budget the controller hears worker_failed, and it
    stops.
    """

    async def scenario() -> None:
        async with training_node(tmp_path) as (here, coordinator, node):
            await coordinator.stop()
            (here.mount / "crash").touch()
            await wait_until(lambda: "worker_failed" in here.reports.outcomes(), "the node gives up")
            assert len(here.workers_started()) == 1 + 2  # the budget of this test is two
            assert not node.done()  # the node waits to be terminated
            reason = next(report.reason for report in here.reports.sent if report.outcome == "worker_failed")
            assert "crashed too often" in reason
            assert "the worker says why" in reason

    asyncio.run(scenario())
    assert processes_of(tmp_path) == []


def test_t12_a_worker_that_cools_down_is_waited_for(tmp_path: Path) -> None:
    """The node would take the silence for a lost order, and the controller would release it."""
    order_seconds = 2.0

    async def scenario() -> None:
        async with training_node(tmp_path, restart_order_seconds=order_seconds) as (here, coordinator, _):
            pid = here.workers_started()[0]["pid"]
            (here.mount / "crash").touch()
            await wait_until(lambda: coordinator.messages(WorkerExited), "the crash is told")
            lost_at = time.monotonic() + order_seconds
            await coordinator.send(CoolDown(pid=pid, seconds=60.0))
            await wait_until(lambda: "the worker cools down" in here.logged(), "it hears so")
            (here.mount / "crash").unlink()
            await wait_until(lambda: time.monotonic() > lost_at, "a lost order would be noticed by now")
            await coordinator.send(RestartWorker(pid=pid, reason="its cool-down is over"))
            await wait_until(lambda: len(here.workers_started()) == 2, "it is started again")
            assert here.reports.outcomes() == {"prepared"}

    asyncio.run(scenario())


def test_n8_a_worker_that_the_coordinator_gave_up_is_reported_and_started_again_if_it_says_so(tmp_path: Path) -> None:
    """An elastic node is released then; of a base node the controller hears that it is of use again."""

    async def scenario() -> None:
        async with training_node(tmp_path) as (here, coordinator, _):
            pid = here.workers_started()[0]["pid"]
            (here.mount / "crash").touch()
            await wait_until(lambda: coordinator.messages(WorkerExited), "the crash is told")
            await coordinator.send(CoolDown(pid=pid, seconds=960.0, given_up=True))
            await wait_until(lambda: "worker_failed" in here.reports.outcomes(), "the controller hears that it failed")
            await coordinator.send(Listed(listed=False))
            (here.mount / "crash").unlink()
            await coordinator.send(RestartWorker(pid=pid, reason="its cool-down is over"))
            await wait_until(lambda: len(here.workers_started()) == 2, "it is started again")
            await wait_until(lambda: here.reports.sent[-1].outcome == "prepared", "and the controller hears that too")
            assert "the coordinator had the worker started again" in here.reports.sent[-1].reason

    asyncio.run(scenario())


def test_an_order_about_an_earlier_worker_starts_one_where_none_runs(tmp_path: Path) -> None:
    """A coordinator that did not notice how the node replaced its worker, and then lost that one too, has no other
    number to name.
    """

    async def scenario() -> None:
        async with training_node(tmp_path) as (here, coordinator, _):
            (here.mount / "crash").touch()
            await wait_until(lambda: coordinator.messages(WorkerExited), "the crash is told")
            (here.mount / "crash").unlink()
            await coordinator.send(RestartWorker(pid=1, reason="no connection for 3.0 s"))
            started = await wait_until(lambda: here.workers_started()[1:], "it is started again")
            assert alive(started[0]["pid"])

    asyncio.run(scenario())


def test_a_node_that_gave_up_without_a_coordinator_is_taken_back_by_the_next_one(tmp_path: Path) -> None:
    """The controller wants no node whose worker failed: one that waited for its word before it asks the coordinator
    would wait for ever.
    """

    async def scenario() -> int:
        with world(tmp_path) as here:
            here.configure(isolation_seconds=3.0)  # enough to crash and give up before, on a busy machine too
            first = await start_coordinator(tmp_path)
            here.publish(first.endpoint)
            async with living(here.dependencies(max_own_restarts=0)):
                await wait_until(here.workers_started, "the worker is started")
                (here.mount / "crash").touch()
                await wait_until(lambda: first.messages(WorkerExited), "the crash is told")
                await first.stop()
                await wait_until(lambda: "worker_failed" in here.reports.outcomes(), "the node gives up")
                lost_for = time.monotonic() + 3.0
                await wait_until(lambda: time.monotonic() > lost_for, "the node counts as cut off")
                second = await start_coordinator(tmp_path)
                here.publish(second.endpoint)
                exited = (await wait_until(lambda: second.messages(WorkerExited), "the next coordinator hears of it"))[
                    0
                ]
                (here.mount / "crash").unlink()
                before = len(here.workers_started())
                await second.send(RestartWorker(pid=exited.pid, reason="the worker exited"))
                await wait_until(lambda: len(here.workers_started()) > before, "it is started again")
            await second.stop()
            return here.logged().count("asked the controller")

    assert asyncio.run(scenario()) == 0


def test_worker_that_was_let_go_is_not_a_crash(tmp_path: Path) -> None:
    """Exit code 0 after Leave: no alarm, no restart, retirement follows."""

    async def scenario() -> None:
        async with training_node(tmp_path) as (here, coordinator, node):
            (here.mount / "leave").touch()
            await wait_until(lambda: "the worker left" in here.logged(), "its end is seen")
            await coordinator.retire()
            assert await node == RETIRED
        assert [exited.code for exited in coordinator.messages(WorkerExited)] == [0]
        assert len(here.workers_started()) == 1

    asyncio.run(scenario())
    assert processes_of(tmp_path) == []


def test_another_job_gets_a_worker_of_its_own(tmp_path: Path) -> None:
    """A worker of the job before holds that job's state and address: it can never join, and would keep the node's
    place.
    """

    async def scenario() -> list[str]:
        with world(tmp_path) as here:
            first = await start_coordinator(tmp_path)
            here.publish(first.endpoint)
            async with living(here.dependencies()):
                old = (await wait_until(here.workers_started, "the worker is started"))[0]["pid"]
                await first.stop()
                second = await start_coordinator(tmp_path, job="job-2")
                here.publish(second.endpoint)
                await wait_until(lambda: len(here.workers_started()) == 2, "the new job's worker is started")
                assert not alive(old)
            await second.stop()
            return [entry["job"] for entry in here.workers_started()]

    assert asyncio.run(scenario()) == ["job-1", "job-2"]
