"""The keeper of the coordinator: when it starts one, how long it waits, and when it is done.

What would break for a user: a job whose coordinator stays dead, is started without a pause for ever, or runs twice.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

from dyntrain.node_bootstrap.core.pacing import Backoff, Timing
from dyntrain.node_bootstrap.host.errors import ServiceUnavailable
from dyntrain.node_bootstrap.host.processes import Program
from dyntrain.node_bootstrap.supervision import master
from dyntrain.node_bootstrap.supervision.master import CoordinatorKeeper
from node_clock import lived, seconds

TIMING = Timing(coordinator_backoff=Backoff(1.0, 4.0), coordinator_steady_seconds=60.0, nomination_check_seconds=2.0)
CANNOT = (0.0, "it cannot be started")


@dataclass
class Child:
    lives: float
    code: Any
    stopped: list[float]

    async def wait(self) -> Any:
        await asyncio.sleep(self.lives)
        return self.code

    async def stop(self, grace: float = 0.0) -> None:
        self.stopped.append(seconds())


@dataclass
class Node:
    """Coordinators that live for some seconds each and end with a code; then one that lives on."""

    ends: list[tuple[float, Any]]
    again: bool = False
    term: int | None = 3
    away: bool = False
    connected: bool = False
    started: list[tuple[float, str]] = field(default_factory=list)
    stopped: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        here: Any = self
        self.ends = [*self.ends]
        self.keeper = CoordinatorKeeper(
            Program(["coordinator"], {}, None), here, self._term, lambda: self.connected, TIMING, self.again
        )

    async def _term(self) -> int | None:
        if self.away:
            raise ServiceUnavailable("the test says so")
        return self.term

    async def start(self, name: str, program: Program, nice: int = 0) -> Child:
        self.started.append((seconds(), program.command[-1]))
        lives, code = self.ends.pop(0) if self.ends else (1e9, 0)
        if (lives, code) == CANNOT:
            raise OSError(code)
        return Child(lives, code, self.stopped)

    def at(self, until: float, *changes: tuple[float, dict[str, Any]]) -> Node:
        async def live() -> Node:
            self.task = asyncio.create_task(self.keeper.run())
            for at, change in changes:
                await asyncio.sleep(at - seconds())
                self.retired = self.keeper.retire() if not change else None
                for name, value in change.items():
                    setattr(self, name, value)
            await asyncio.sleep(until - seconds())
            self.returned = self.task.done()
            self.task.cancel()
            return self

        return lived(live(), master)

    @property
    def times(self) -> list[float]:
        return [at for at, _ in self.started]


def test_one_that_dies_is_started_again_after_pauses_that_grow_up_to_a_limit() -> None:
    node = Node([(0.5, 1), (0.5, -9), CANNOT, (0.5, 1)]).at(100.0)
    assert node.times == [0.0, 1.5, 4.0, 8.0, 12.5]
    assert {term for _, term in node.started} == {"3"}
    assert node.stopped == [0.5, 2.0, 8.5], "with what it left running"
    assert not node.keeper.finished.is_set()


def test_one_that_lived_for_long_has_its_pauses_from_the_first_again() -> None:
    assert Node([(1.0, 1), (1.0, 1), (61.0, 1), (1.0, 1)]).at(200.0).times == [0.0, 2.0, 5.0, 67.0, 70.0]
    assert Node([(1.0, 1), (1.0, 1), (59.0, 1), (1.0, 1)]).at(200.0).times == [0.0, 2.0, 5.0, 68.0, 73.0]


def test_its_good_end_is_the_end_of_the_job() -> None:
    node = Node([(5.0, 0)]).at(100.0)
    assert (node.times, node.returned, node.keeper.finished.is_set()) == ([0.0], True, True)


def test_where_people_launch_its_good_end_is_followed_by_another_at_once() -> None:
    node = Node([(1.0, 1), (5.0, 0), (1.0, 1)], again=True).at(100.0)
    assert (node.times, node.returned, node.keeper.finished.is_set()) == ([0.0, 2.0, 7.0, 9.0], False, False)


def test_none_is_started_beside_one_that_answers_and_one_soon_after_it_is_gone() -> None:
    assert Node([], connected=True).at(50.0).times == []
    (at,) = Node([], connected=True).at(50.0, (20.0, {"connected": False})).times
    assert 20.0 <= at <= 20.0 + 2 * TIMING.nomination_check_seconds


def test_a_node_that_is_named_later_begins_then_in_that_term() -> None:
    ((at, term),) = Node([], term=None).at(50.0, (20.0, {"term": 7})).started
    assert 20.0 <= at <= 20.0 + 2 * TIMING.nomination_check_seconds
    assert term == "7"


def test_a_node_that_is_named_no_more_starts_none_again() -> None:
    assert Node([(10.0, 75)]).at(50.0, (5.0, {"term": None})).times == [0.0]


def test_none_is_started_again_beside_one_that_answers_by_now() -> None:
    assert Node([(10.0, 75)]).at(50.0, (5.0, {"connected": True})).times == [0.0]


def test_where_the_target_cannot_be_read_the_node_goes_on_as_it_was() -> None:
    assert Node([], away=True).at(50.0).times == [], "one that was never named"
    node = Node([(10.0, 1)]).at(50.0, (5.0, {"away": True, "term": 9}))
    assert node.started == [(0.0, "3"), (11.0, "3")]
    given_back = Node([(10.0, 1)]).at(90.0, (5.0, {"term": None}), (30.0, {"away": True}))
    assert given_back.times == [0.0], "it holds the job no more"


def test_a_retired_node_waits_for_the_coordinator_that_it_runs_and_begins_none() -> None:
    leads = Node([(10.0, 1), (10.0, 0)]).at(50.0, (5.0, {}))
    assert (leads.retired, leads.times, leads.returned) == (True, [0.0, 11.0], True)
    other = Node([], term=None).at(50.0, (5.0, {}), (5.5, {"term": 4}))
    assert (other.times, other.returned) == ([], True)
    assert Node([], term=None).at(6.0, (5.0, {})).retired is False
