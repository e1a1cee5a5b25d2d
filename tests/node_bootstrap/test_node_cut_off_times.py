"""When a node that is cut off stops its worker, and when it asks the controller again.

What would break for a user: a worker that is stopped though its coordinator is back, or an idle node that is wanted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from dyntrain.node_bootstrap.core.pacing import Backoff
from dyntrain.node_bootstrap.supervision import isolation
from dyntrain.node_bootstrap.supervision.isolation import Isolation
from node_clock import lived, seconds


class Node:
    """Events happen at given seconds; the controller does not want the node."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.stops: list[float] = []
        self.questions: list[float] = []

    async def live(self, events: Sequence[tuple[float, str]], until: float) -> Node:
        cut = Isolation(self._begin, self._stop, self._wanted, lambda reason: None, 10.0, Backoff(2.0, 30.0))
        task = asyncio.create_task(cut.run())
        for at, event in events:
            await asyncio.sleep(at - seconds())
            if event == "drop":
                cut.on_disconnect()
            else:
                await cut.on_welcome(event)
        await asyncio.sleep(until - seconds())
        task.cancel()
        return self

    async def _begin(self, job: str) -> None:
        self.begun.append(job)

    async def _stop(self) -> bool:
        self.stops.append(seconds())
        return True

    async def _wanted(self) -> bool:
        self.questions.append(seconds())
        return False


def after(*events: tuple[float, str], until: float = 100.0) -> Node:
    return lived(Node().live([(0.0, "job"), *events], until), isolation)


def test_who_is_back_in_time_is_not_stopped_later() -> None:
    node = after((1.0, "drop"), (10.0, "job"), until=1000.0)
    assert (node.stops, node.questions, node.begun) == ([], [], ["job", "job"])


def test_the_time_runs_from_the_last_loss_and_is_waited_for_to_its_end() -> None:
    assert after((1.0, "drop")).stops == [11.0]
    assert after((1.0, "drop"), (8.0, "job"), (9.0, "drop")).stops == [19.0]


def test_the_controller_is_asked_again_and_again_and_less_and_less_often() -> None:
    assert after((1.0, "drop")).questions == [11.0, 13.0, 17.0, 25.0, 41.0, 71.0]


def test_a_coordinator_that_comes_back_is_asked_about_at_once() -> None:
    """Not when the long pause of its absence is over."""
    assert after((1.0, "drop"), (50.0, "job"), until=60.0).questions == [11.0, 13.0, 17.0, 25.0, 41.0, 50.0, 52.0, 56.0]


def test_a_connection_that_drops_again_asks_no_more_often() -> None:
    assert after((1.0, "drop"), (12.0, "job"), (12.5, "drop"), until=20.0).questions == [11.0, 12.0, 14.0, 18.0]


def test_a_worker_is_begun_for_the_coordinator_that_is_there_now() -> None:
    class Wanted(Node):
        async def _wanted(self) -> bool:
            await super()._wanted()
            return True

    events = [(0.0, "job 1"), (1.0, "drop"), (20.0, "job 2"), (21.0, "drop"), (25.0, "job 3")]
    assert lived(Wanted().live(events, 100.0), isolation).begun == ["job 1", "job 2", "job 3"]
