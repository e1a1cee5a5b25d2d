"""A node that is cut off remembers it: only the controller's yes, asked for while its present coordinator is there,
lets it train again.

What would break for a user: an instance that was released trains on unasked, because its connection came and went a
second time; or one that is wanted never trains again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from dyntrain.node_bootstrap.core.pacing import Backoff
from dyntrain.node_bootstrap.host.errors import ServiceUnavailable
from dyntrain.node_bootstrap.supervision.isolation import Isolation
from hypothesis import given
from hypothesis import strategies as st

AT_ONCE = Backoff(0.0, 0.0)  # asks again without a pause: each question waits for the test's answer
CUTS, ANSWERS = ("welcome", "drop"), ("yes", "no", "away")


class Node:
    """The worker and the controller of an isolation that stops the worker after `seconds`."""

    def __init__(self, seconds: float, given_up: bool = False) -> None:
        self.begun: list[str] = []
        self.stops = self.reports = self.connections = 0
        self.question: asyncio.Future[bool] | None = None
        self.given_up = given_up
        self.isolation = Isolation(self._begin, self._stop, self._wanted, self._stopped, seconds, AT_ONCE)

    async def _begin(self, job: str) -> None:
        self.begun.append(job)

    async def _stop(self) -> bool:
        self.stops += 1
        return not self.given_up

    def _stopped(self, reason: str) -> None:
        self.reports += 1

    async def _wanted(self) -> bool:
        self.question = asyncio.get_running_loop().create_future()
        try:
            return await self.question
        finally:
            self.question = None

    async def do(self, event: str) -> None:
        if event == "welcome":
            self.connections += 1
            await self.isolation.on_welcome(f"job {self.connections}")
        elif event == "drop":
            self.isolation.on_disconnect()
        elif self.question is not None and not self.question.done():
            if event == "away":
                self.question.set_exception(ServiceUnavailable("no answer"))
            else:
                self.question.set_result(event == "yes")
        for _ in range(20):  # nothing here waits for anything but the next event
            await asyncio.sleep(0)


def lived(node: Node, events: Sequence[str]) -> Node:
    async def live() -> None:
        task = asyncio.create_task(node.isolation.run())
        for event in events:
            await node.do(event)
            if task.done():
                task.result()
        task.cancel()

    asyncio.run(live())
    return node


def may_do(events: Sequence[str]) -> tuple[list[str], int]:
    """Of a node that is cut off as soon as its connection drops: the jobs for which a worker may be started, and how
    often one must be stopped.
    """
    begun, stops, connections = list[str](), 0, 0
    isolated = connected = counts = False  # counts: what is asked now was asked since the present coordinator came
    for event in events:
        if event == "welcome":
            connections, connected, counts = connections + 1, True, False
            if not isolated:
                begun.append(f"job {connections}")
        elif event == "drop":
            stops, counts = stops + (not isolated), counts or not isolated
            isolated, connected = True, False
        elif isolated and not counts:
            counts = True  # it is asked anew
        elif isolated and event == "yes" and connected:
            begun.append(f"job {connections}")
            isolated = False
    return begun, stops


def in_turn(cuts: list[int]) -> list[str]:
    """Connections come and go by turns, with as many answers in between as each number says, in base 4."""
    events = []
    for turn, number in enumerate(cuts):
        events.append(CUTS[turn % 2])
        while number:
            number, digit = divmod(number, 4)
            events += ANSWERS[digit - 1 : digit] if digit else ()
    return events


@given(st.lists(st.integers(0, 255), max_size=12).map(in_turn))
def test_a_node_that_was_cut_off_trains_when_the_controller_says_so_and_never_else(events: list[str]) -> None:
    node = lived(Node(seconds=0.0), events)
    assert (node.begun, node.stops) == may_do(events), events
    assert node.reports == node.stops, "the controller hears of each time that it is cut off, once"


@pytest.mark.parametrize("again", [1, 2, 3])
def test_a_connection_that_drops_again_does_not_make_a_node_forget_that_it_was_cut_off(again: int) -> None:
    node = lived(Node(seconds=0.0), ["welcome", "drop", *["welcome", "drop"] * again, "welcome"])
    assert (node.begun, node.stops) == (["job 1"], 1)


def test_a_yes_to_a_question_of_an_earlier_connection_is_no_yes() -> None:
    """The controller may have changed its mind since: it is asked anew."""
    asked_before = ["welcome", "drop", "welcome", "yes"]
    assert lived(Node(seconds=0.0), asked_before).begun == ["job 1"]
    assert lived(Node(seconds=0.0), [*asked_before, "yes"]).begun == ["job 1", "job 2"]


def test_a_yes_without_a_coordinator_starts_nothing_and_the_next_coordinator_is_asked_about() -> None:
    cut = ["welcome", "drop", "yes", "yes"]
    assert lived(Node(seconds=0.0), cut).begun == ["job 1"]
    assert lived(Node(seconds=0.0), [*cut, "welcome"]).begun == ["job 1"]
    assert lived(Node(seconds=0.0), [*cut, "welcome", "no", "away", "yes"]).begun == ["job 1", "job 2"]


def test_who_is_wanted_again_is_a_node_like_any_other() -> None:
    back = ["welcome", "drop", "welcome", "no", "yes"]
    node = lived(Node(seconds=0.0), [*back, "drop", "welcome"])
    assert (node.begun, node.stops) == (["job 1", "job 2"], 2), "it is cut off a second time, and told so"


def test_a_worker_that_was_given_up_is_the_next_coordinators_to_decide_about() -> None:
    node = lived(Node(seconds=0.0, given_up=True), ["welcome", "drop", "welcome"])
    assert (node.begun, node.reports) == (["job 1", "job 2"], 0), "the controller knows already"


def test_connections_that_are_back_in_time_stop_nothing() -> None:
    node = lived(Node(seconds=1000.0), ["welcome", "drop"] * 3)
    assert (node.begun, node.stops, node.question) == (["job 1", "job 2", "job 3"], 0, None)
