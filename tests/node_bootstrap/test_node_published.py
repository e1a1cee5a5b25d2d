"""What a node reads of its cluster's parameters, and how often.

What would break for a user: a takeover in a large cluster that uses up the account's requests to Parameter Store, so
that nobody is told of the new coordinator; or a node of a small one that is told late.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import pytest
from dyntrain.controller.contract.messages import Target, parameter
from dyntrain.node_bootstrap.core.pacing import Timing
from dyntrain.node_bootstrap.host.errors import ServiceUnavailable
from dyntrain.node_bootstrap.reports import published
from dyntrain.node_bootstrap.reports.published import PublishedParameters
from lost_coordinator import identity, simulate
from node_clock import lived, seconds
from node_coordinator import dead_endpoint
from node_fakes import INSTANCE, MemoryParameters

COORDINATOR, TOKEN, TARGET = (
    parameter("demo", "coordinator"),
    parameter("demo", "token"),
    parameter("demo", "target"),
)


def target_of(count: int) -> str:
    """As it is published of more nodes than the parameter has room for."""
    return Target(revision=1, count=count, digest="d", members=None, pointer="cluster#demo/target").model_dump_json()


class Counting(MemoryParameters):
    """Notes when it is asked; answers at once, in the loop's own thread."""

    def __init__(self, values: Mapping[str, str]) -> None:
        super().__init__(dict(values))
        self.requests: list[float] = []

    def get(self, *names: str) -> dict[str, str]:
        self.requests.append(seconds())
        return super().get(*names)


@pytest.fixture(autouse=True)
def _no_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    async def here(call: Callable[..., Any], *arguments: Any) -> Any:
        return call(*arguments)

    monkeypatch.setattr(published.asyncio, "to_thread", here)


def read(values: Mapping[str, str], question: Callable[[PublishedParameters], Awaitable[Any]]) -> Any:
    return asyncio.run(question(PublishedParameters(MemoryParameters(dict(values)), identity(), Timing())))  # type: ignore[arg-type]


def test_the_token_shows_in_no_text() -> None:
    access = read({COORDINATOR: dead_endpoint().model_dump_json(), TOKEN: "plain"}, PublishedParameters.access)
    assert access.token.get_secret_value() == "plain"
    assert "plain" not in repr(access)


def test_half_published_endpoint_is_waited_for() -> None:
    """Coordinators write two parameters, one after the other; and a broken one must not end the node."""
    assert read({COORDINATOR: dead_endpoint().model_dump_json()}, PublishedParameters.access) is None
    with pytest.raises(ServiceUnavailable, match="field url"):
        read({COORDINATOR: "{}", TOKEN: "plain"}, PublishedParameters.access)


def test_a_broken_target_keeps_nobody_from_the_coordinator() -> None:
    values = {COORDINATOR: dead_endpoint().model_dump_json(), TOKEN: "plain", TARGET: "{}"}
    assert read(values, PublishedParameters.access) is not None
    with pytest.raises(ServiceUnavailable, match="waiting for the controller"):
        read(values, PublishedParameters.target)


def test_wanted_is_whoever_the_target_lists() -> None:
    assert read({}, PublishedParameters.is_wanted) is False
    assert read({TARGET: target_of(1000)}, PublishedParameters.is_wanted) is True, "a long list is for the coordinator"
    for members, wanted in (((INSTANCE,), False), ((identity().instance_id,), True)):
        assert read({TARGET: Target.of(1, members).model_dump_json()}, PublishedParameters.is_wanted) is wanted


def test_a_thousand_nodes_without_a_coordinator_ask_ten_times_in_any_second() -> None:
    lost = simulate(1000, base=4)
    assert lost.busiest <= 10
    assert len(lost.connections) == 1000, "and all find the next one"


def test_nodes_that_no_coordinator_has_counted_take_turns_by_the_target() -> None:
    """Whose instance ids say when, which is even only on the whole."""
    lost = simulate(1000, placed=False)
    assert lost.a_second <= 10
    assert len(lost.connections) == 1000


def test_a_node_of_a_small_cluster_finds_the_next_coordinator_as_soon_as_it_looks() -> None:
    lost = simulate(3, base=1)
    assert max(lost.connections) <= lost.lasting + Timing().connection_backoff.limit * 1.2 + 3 / 8


def test_all_questions_of_a_node_at_one_time_are_one_request() -> None:
    parameters = Counting({TARGET: target_of(1000)})

    async def scenario() -> None:
        node = PublishedParameters(parameters, identity(), Timing())  # type: ignore[arg-type]
        await asyncio.gather(node.access(), node.target(), node.is_wanted())
        await asyncio.gather(node.access(), node.target(), node.is_wanted())

    lived(scenario(), published)
    assert len(parameters.requests) <= 2


def test_what_failed_is_asked_again() -> None:
    parameters = Counting({TARGET: target_of(1)})

    async def scenario() -> Any:
        node = PublishedParameters(parameters, identity(), Timing())
        parameters.down = True
        with pytest.raises(ServiceUnavailable):
            await node.target()
        parameters.down = False
        return await node.target()

    assert lived(scenario(), published) is not None


def test_a_target_that_lists_few_does_not_have_the_others_ask_at_once() -> None:
    """The controller has given a large cluster up: its nodes are many still."""
    parameters = Counting({TARGET: target_of(1)})

    async def scenario() -> None:
        node = PublishedParameters(parameters, identity(7), Timing())
        node.set_addresses([identity(number).private_ip for number in range(1000)])
        while seconds() < 1000.0:
            await node.target()
            await asyncio.sleep(0.5)

    lived(scenario(), published)
    assert len(parameters.requests) <= 10
