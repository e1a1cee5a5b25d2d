"""A node cut off from its coordinator: it must neither train on unseen, nor come back when nobody wants it any more."""

from __future__ import annotations

import asyncio
import math
from pathlib import Path

from dyntrain.controller.contract.messages import Target, parameter
from dyntrain.node_bootstrap.core.isolation import IsolationAction, IsolationState, next_isolation_action
from dyntrain.node_bootstrap.core.pacing import Backoff
from hypothesis import given
from hypothesis import strategies as st
from node_coordinator import start_coordinator
from node_fakes import INSTANCE, World, alive, living, processes_of, wait_until, world

ASK = Backoff(2.0, 30.0)
TIMES = st.floats(0, 1e6)


@given(TIMES, TIMES, st.floats(1, 1e4))
def test_the_worker_is_stopped_at_the_deadline_and_not_before(lost_at: float, later: float, seconds: float) -> None:
    """Earlier, a coordinator that restarts would cost every worker its state."""
    step, due = next_isolation_action(lost_at + later, IsolationState(lost_at=lost_at), seconds, ASK)
    assert step is (IsolationAction.STOP if lost_at + later >= lost_at + seconds else IsolationAction.WAIT)
    assert due == (lost_at + later if step is IsolationAction.STOP else lost_at + seconds)


@given(TIMES, st.integers(1, 1000), TIMES)
def test_the_controller_is_asked_again_within_a_bound(asked_at: float, asks: int, later: float) -> None:
    step, due = next_isolation_action(
        asked_at + later, IsolationState(worker_stopped=True, query_count=asks, queried_at=asked_at), 1.0, ASK
    )
    assert step is IsolationAction.ASK or asked_at + later < due <= asked_at + 30.0
    assert next_isolation_action(asked_at, IsolationState(worker_stopped=True), 1.0, ASK)[0] is IsolationAction.ASK


def test_a_connected_node_waits_for_news_alone() -> None:
    assert next_isolation_action(5.0, IsolationState(), 1.0, ASK) == (IsolationAction.WAIT, math.inf)


def want(here: World, *members: str, revision: int = 1) -> None:
    here.parameters.values[parameter("demo", "target")] = Target.of(revision, members).model_dump_json()


def test_a_partitioned_node_stops_its_worker_and_comes_back_when_it_is_wanted(tmp_path: Path) -> None:
    """The coordinator is back at once, but it is the controller's word that counts: the instance may have been released
    meanwhile.
    """

    async def scenario() -> None:
        with world(tmp_path) as here:
            here.configure(isolation_seconds=0.3)
            coordinator = await start_coordinator(tmp_path)
            here.publish(coordinator.endpoint)
            want(here)
            async with living(here.dependencies(controller_query_backoff=Backoff(0.05, 0.1))):
                first = (await wait_until(here.workers_started, "the worker is started"))[0]["pid"]
                sent = len(here.reports.sent)
                await coordinator.stop()
                await wait_until(lambda: not alive(first), "the worker is stopped")
                await wait_until(
                    lambda: len(here.reports.sent) > sent + 1, "the controller hears of it, again and again"
                )
                assert (here.reports.sent[-1].outcome, "no coordinator for 0.3 s" in here.reports.sent[-1].reason) == (
                    "prepared",
                    True,
                )

                second = await start_coordinator(tmp_path)
                here.publish(second.endpoint)
                await wait_until(lambda: second.hellos, "the node signals the coordinator that came back")
                await wait_until(lambda: "the controller does not want this node" in here.logged(), "it asks")
                here.parameters.down = True
                await wait_until(lambda: "the test says so" in here.logged(), "no answer is no permission")
                assert len(here.workers_started()) == 1
                here.parameters.down = False
                want(here, INSTANCE, revision=2)
                await wait_until(lambda: len(here.workers_started()) == 2, "the worker is started again")
            await second.stop()

    asyncio.run(scenario())
    assert processes_of(tmp_path) == []


def test_a_short_loss_costs_nothing(tmp_path: Path) -> None:
    """The worker that went on training is still the same one."""

    async def scenario() -> int:
        with world(tmp_path) as here:
            here.configure(isolation_seconds=30)
            coordinator = await start_coordinator(tmp_path)
            here.publish(coordinator.endpoint)
            async with living(here.dependencies()):
                await wait_until(here.workers_started, "the worker is started")
                for expected in (2, 3):
                    await coordinator.present.close()  # type: ignore[union-attr]
                    await wait_until(
                        lambda expected=expected: len(coordinator.hellos) == expected, "the node reconnects"
                    )
                assert coordinator.hellos[-1].worker_pid == here.workers_started()[0]["pid"]
            await coordinator.stop()
            return len(here.workers_started())

    assert asyncio.run(scenario()) == 1


def test_a_worker_that_has_left_stays_away_after_a_partition(tmp_path: Path) -> None:
    """It was let go; a new one would join a job that the node is no longer part of."""

    async def scenario() -> int:
        with world(tmp_path) as here:
            here.configure(isolation_seconds=0.2)
            coordinator = await start_coordinator(tmp_path)
            here.publish(coordinator.endpoint)
            want(here)
            async with living(here.dependencies(controller_query_backoff=Backoff(0.05, 0.1))):
                await wait_until(here.workers_started, "the worker is started")
                (here.mount / "leave").touch()
                await wait_until(lambda: "the worker left" in here.logged(), "its end is seen")
                await coordinator.stop()
                await wait_until(lambda: "no coordinator for 0.2 s" in here.logged(), "the loss is noticed")
                second = await start_coordinator(tmp_path)
                here.publish(second.endpoint)
                await wait_until(
                    lambda: second.hellos and "the controller does not want this node" in here.logged(),
                    "it signals and asks",
                )
                want(here, INSTANCE, revision=2)
                await wait_until(lambda: "the controller wants this node" in here.logged(), "it may go on")
                await second.retire()
                await wait_until(lambda: '"retiring"' in here.logged(), "and is retired")
            await second.stop()
            return here.logged().count('"the worker is started"')

    assert asyncio.run(scenario()) == 1
