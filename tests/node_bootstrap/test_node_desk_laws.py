"""What a node asks for a person who launches, and what it answers, without a connection. What would break for a user: a
terminal that waits for ever, that is told to type again what is refused for good, or a command in the wrong folder.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from dyntrain.node_bootstrap.supervision import launch_desk
from dyntrain.node_bootstrap.supervision.launch_desk import NO_COORDINATOR, LaunchDesk
from dyntrain.training.layout import JobFolder
from dyntrain.training.protocol.launch_desk import ANSWER_SECONDS, EndQuestion, LaunchQuestion, Reply
from dyntrain.training.protocol.node_messages import EndRequest, Launch, LaunchAnswer, LaunchRequest
from node_clock import lived, seconds


class Node:
    def __init__(self) -> None:
        self.messages, self.connected = list[Any](), True
        self.desk = LaunchDesk(Path("socket"), 0, "c", "/data", Path("/var/log/worker.log"), self.tell)

    def tell(self, message: Any) -> bool:
        self.messages.append(message)
        return self.connected

    def ask(self, request: str, **more: Any) -> asyncio.Task[Reply]:
        fields = {"directory": "/data/mine", "environment": {}, "command": ("python", "x.py"), **more}
        line = LaunchQuestion.model_validate({"request": request, **fields}).model_dump_json()
        return asyncio.create_task(self.desk._answer_request(line.encode()))


def on(scenario: Callable[[Node], Awaitable[None]]) -> None:
    async def live() -> None:
        node = Node()
        await scenario(node)
        assert node.desk._waiting == {}, "a node lives for months"

    lived(live(), launch_desk)


async def ended(task: asyncio.Task[Reply]) -> Reply:
    await asyncio.sleep(0.001)
    assert task.done()
    return task.result()


def test_a_launch_goes_on_as_it_was_typed_and_the_answer_says_where_to_look() -> None:
    async def scenario(node: Node) -> None:
        reply = node.ask("one", environment={"A": "b"}, dt_scripts=True)
        await asyncio.sleep(1.0)
        launch = Launch(
            request="one", command=("python", "x.py"), directory="/data/mine", environment={"A": "b"}, dt_scripts=True
        )
        assert node.messages == [LaunchRequest(launch=launch)]
        node.desk.on_answer(LaunchAnswer(request="one", job="job-7"))
        events = JobFolder.of(Path("/data"), "c", "job-7").events
        assert await ended(reply) == Reply(
            job="job-7", directory="/data/mine", events=str(events), log="/var/log/worker.log"
        )

    on(scenario)


def test_everybody_hears_the_answer_to_what_they_asked_and_no_other() -> None:
    async def scenario(node: Node) -> None:
        one, two = node.ask("one"), node.ask("two")
        await asyncio.sleep(1.0)
        node.desk.on_answer(LaunchAnswer(request="nobody", job="job-1"))
        node.desk.on_answer(LaunchAnswer(request="two", job="job-2"))
        node.desk.on_answer(LaunchAnswer(request="two", job="job-3"))
        assert (await ended(two)).job == "job-2", "the first counts"
        assert not one.done()
        node.desk.on_answer(LaunchAnswer(request="one", job="", refused="one at a time", passing=True))
        assert await ended(one) == Reply(refused="one at a time", passing=True)
        node.desk.on_answer(LaunchAnswer(request="one", job="job-4"))

    on(scenario)


def test_what_is_refused_for_good_is_not_said_to_pass() -> None:
    async def scenario(node: Node) -> None:
        one = node.ask("one")
        await asyncio.sleep(1.0)
        node.desk.on_answer(LaunchAnswer(request="one", job="", refused="not in force"))
        assert await ended(one) == Reply(refused="not in force", passing=False)

    on(scenario)


def test_a_coordinator_that_says_nothing_is_waited_for_no_longer_than_its_time() -> None:
    async def scenario(node: Node) -> None:
        one, began = node.ask("one"), seconds()
        reply = await one
        assert round(seconds() - began, 1) == ANSWER_SECONDS
        assert (reply.passing, "did not answer" in reply.refused) == (False, True)
        node.desk.on_disconnect()

    on(scenario)


def test_without_a_connection_at_first_or_later_it_is_said_to_pass() -> None:
    async def scenario(node: Node) -> None:
        one, two = node.ask("one"), node.ask("two")
        await asyncio.sleep(1.0)
        node.desk.on_disconnect()
        for reply in (one, two):
            assert await ended(reply) == Reply(refused=NO_COORDINATOR, passing=True)
        node.connected = False
        assert await ended(node.ask("three")) == Reply(refused=NO_COORDINATOR, passing=True)

    on(scenario)


def test_an_end_is_asked_for_as_such() -> None:
    async def scenario(node: Node) -> None:
        line = EndQuestion(request="stop").model_dump_json().encode()
        reply = asyncio.create_task(node.desk._answer_request(line))
        await asyncio.sleep(1.0)
        assert node.messages == [EndRequest(request="stop")]
        node.desk.on_answer(LaunchAnswer(request="stop", job="job-7"))
        assert ((await ended(reply)).job, (await ended(reply)).directory) == ("job-7", "")

    on(scenario)


def test_nobody_is_asked_for_what_is_not_understood_or_would_change_the_nodes_own_words() -> None:
    async def scenario(node: Node) -> None:
        wrong = await ended(node.ask("one", environment={"DYNTRAIN_B": "x", "MINE": "y", "DYNTRAIN_A": "z"}))
        assert (
            wrong.refused == "DYNTRAIN_A, DYNTRAIN_B cannot be set: dyntrain uses the names that begin with DYNTRAIN_"
        )
        for line in (b"", b"{}", b"\xff", b'{"ask": "launch"}'):
            assert "did not understand" in (await node.desk._answer_request(line)).refused
        assert node.messages == []
        fine = node.ask("two", environment={"MY_DYNTRAIN_A": "x"}, directory="/home/me")
        await asyncio.sleep(1.0)
        assert [message.launch.directory for message in node.messages] == ["/data"]
        node.desk.on_answer(LaunchAnswer(request="two", job="job-7"))
        assert (await ended(fine)).directory == "/data"

    on(scenario)
