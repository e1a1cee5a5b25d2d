"""The node's end of the control channel, connection by connection: how soon it tries again, what its receiver hears.

What would break for a user: nodes that all but attack a coordinator that refuses them, one that comes back minutes
after its coordinator, or one that takes itself for connected when it is not.
"""

from __future__ import annotations

import asyncio
from typing import Any
from unittest.mock import patch

from dyntrain.controller.contract.messages import CoordinatorEndpoint
from dyntrain.node_bootstrap.core.pacing import Backoff, Timing
from dyntrain.node_bootstrap.host.errors import ServiceUnavailable
from dyntrain.node_bootstrap.reports.config import Access
from dyntrain.node_bootstrap.supervision import control_channel
from dyntrain.node_bootstrap.supervision.control_channel import ControlChannel
from dyntrain.training.protocol.channel import answer_seconds, encode
from dyntrain.training.protocol.clocks import DEFAULT
from dyntrain.training.protocol.messages import Refused
from dyntrain.training.protocol.node_messages import Listed, NodeNotice, Retire, Welcome
from node_clock import lived, seconds
from pydantic import SecretStr

ENDPOINT = CoordinatorEndpoint(
    cluster="demo", job="j", instance_id="i-1", url="wss://here", certificate="none", published_at=1.0
)
TIMING = Timing(connection_backoff=Backoff(1.0, 4.0), refusal_backoff=Backoff(10.0, 30.0))
WELCOME, REFUSED, LISTED = Welcome(job="j"), Refused(reason="no"), Listed(listed=True)
NOTICE = NodeNotice(kind="spot", deadline=1.0)


class Connection:
    """Says what it is given, a second apart; then it closes, or stays open."""

    def __init__(self, says: list[Any]) -> None:
        self.says, self.sent, self.closed = [*says], list[str](), asyncio.Event()

    async def recv(self) -> str:
        if not self.says:
            await self.closed.wait()
        message = self.says.pop(0)
        return message if isinstance(message, str) else encode(message)

    def __aiter__(self) -> Connection:
        return self

    async def __anext__(self) -> str:
        await asyncio.wait([asyncio.ensure_future(self.closed.wait())], timeout=1.0)
        if self.closed.is_set() or not self.says:
            raise StopAsyncIteration
        return await self.recv()

    async def send(self, text: str) -> None:
        self.sent.append(text)

    async def close(self) -> None:
        self.closed.set()


class Node:
    """Its connections, in order: an exception, or what the coordinator says; None: no address is published. Then
    nobody answers for a day. `tried`: when; `read`: how often an address was.
    """

    def __init__(self, *connections: Any) -> None:
        self.waiting, self.tried = [*connections], list[float]()
        self.connections: list[Connection] = []
        self.read = 0
        self.heard: list[Any] = []
        self.channel = ControlChannel("demo", self.access, TIMING)

    async def access(self) -> Access | None:
        if self.waiting and self.waiting[0] is None:
            self.tried.append(seconds())
            return self.waiting.pop(0)
        if self.waiting and isinstance(self.waiting[0], ServiceUnavailable):
            self.tried.append(seconds())
            raise self.waiting.pop(0)
        self.read += 1
        return Access(ENDPOINT, SecretStr("t"))

    async def connect(self, *to: Any) -> Connection:
        self.tried.append(seconds())
        if not self.waiting:
            await asyncio.sleep(1e5)
        first = self.waiting.pop(0)
        if isinstance(first, Exception):
            raise first
        self.connections.append(Connection(first))
        return self.connections[-1]

    async def greet(self, *words: Any) -> None: ...

    def hello(self) -> Any:
        return None

    async def on_welcome(self, access: Access, welcome: Welcome) -> None:
        self.heard.append(("welcomed", self.channel.connected))

    async def on_message(self, message: Any) -> None:
        self.heard.append(message)
        if isinstance(message, Retire):
            self.channel.send(NOTICE)
            self.channel.leave() if message.reason == "leave" else self.channel.end_connection()

    def on_disconnect(self) -> None:
        self.heard.append(("lost", self.channel.connected, self.channel.send(NOTICE)))

    async def live(self) -> Node:
        with patch.object(control_channel, "connect", self.connect), patch.object(control_channel, "greet", self.greet):
            task = asyncio.create_task(self.channel.run(self))
            await asyncio.sleep(1000.0)
            self.left = task.done()
            task.cancel()
        return self


def tried(*connections: Any) -> Node:
    return lived(Node(*connections).live(), control_channel)


UP, DOWN = ("welcomed", True), ("lost", False, False)


def test_who_cannot_connect_tries_again_after_pauses_that_grow_up_to_a_limit() -> None:
    errors = [OSError("a"), TimeoutError(), ValueError("no certificate"), OSError("a"), OSError("a")]
    node = tried(*errors)
    assert node.tried == [0.0, 1.0, 3.0, 7.0, 11.0, 15.0]
    assert node.heard == [], "nothing was lost that was never there"


def test_who_is_refused_waits_for_longer_and_longer() -> None:
    node = tried([REFUSED], [REFUSED], [REFUSED], [REFUSED])
    assert node.tried == [0.0, 10.0, 30.0, 60.0, 90.0]
    assert node.heard == []


def test_an_ending_of_another_kind_begins_the_pauses_anew() -> None:
    assert tried(OSError("a"), OSError("a"), [REFUSED], OSError("a")).tried == [0.0, 1.0, 3.0, 13.0, 14.0]
    assert tried([REFUSED], [REFUSED], OSError("a"), [REFUSED]).tried == [0.0, 10.0, 30.0, 31.0, 41.0]
    closed = tried(OSError("a"), OSError("a"), [WELCOME], OSError("a"), OSError("a"))
    assert closed.tried == [0.0, 1.0, 3.0, 5.0, 6.0, 8.0], "a second to hear that it is closed"


def test_the_address_is_read_anew_only_where_nobody_was_reached() -> None:
    """A coordinator that was reached is there still, as a rule; the parameters of thousands of nodes are not free."""
    assert tried([WELCOME], [WELCOME], [WELCOME]).read == 1
    assert tried(OSError("a"), [REFUSED], [WELCOME]).read == 3, "whom a token does not open may hold an old one"


def test_where_none_is_published_or_nobody_can_be_asked_it_is_looked_for_again() -> None:
    none: list[Any] = [None, None, ServiceUnavailable("away"), None, None]
    assert tried(*none, [WELCOME]).tried[:6] == [0.0, 1.0, 3.0, 7.0, 11.0, 15.0]


def test_a_connection_is_there_from_the_welcome_to_its_end_and_is_lost_once() -> None:
    node = tried([WELCOME, LISTED, "what nobody knows", '{"type": "of-a-later-version"}', LISTED], [WELCOME])
    assert node.heard == [UP, LISTED, LISTED, DOWN, UP, DOWN]
    assert all(connection.closed.is_set() for connection in node.connections)


def test_an_answer_that_is_no_welcome_is_none() -> None:
    node = tried([LISTED, LISTED], ["what nobody knows"], [WELCOME])
    assert node.tried[:3] == [0.0, 1.0, 3.0]
    assert node.heard == [UP, DOWN]


def test_a_coordinator_that_hangs_before_it_answers_is_not_waited_for() -> None:
    node = tried([], [WELCOME])
    assert node.tried[1] == answer_seconds(DEFAULT) + 1.0
    assert node.heard == [UP, DOWN]


def test_a_refusal_after_the_welcome_ends_the_connection_and_is_one() -> None:
    node = tried([WELCOME, REFUSED, LISTED])
    assert (node.heard, node.tried) == ([UP, DOWN], [0.0, 11.0])


def test_who_hangs_up_has_said_everything_before_and_comes_again() -> None:
    hangs = Retire(reason="hang up")
    node = tried([WELCOME, hangs, LISTED], [WELCOME])
    assert node.heard == [UP, hangs, DOWN, UP, DOWN]
    assert node.connections[0].sent == [encode(NOTICE)]
    assert not node.left


def test_who_leaves_has_said_everything_before_and_never_comes_again() -> None:
    leaves = Retire(reason="leave")
    node = tried([WELCOME, leaves, LISTED], [WELCOME])
    assert node.heard == [UP, leaves, DOWN]
    assert node.left
    assert (node.connections[0].sent, len(node.tried)) == ([encode(NOTICE)], 1)
