"""A worker's line to its coordinator against a real server: it comes back, says what was not answered, and ends where nobody answers.

What would break for a user: workers that end with their coordinator although it is started again, or that stay for ever when it is not.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import socket
import threading
from collections.abc import Callable, Iterator
from queue import Queue
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.server import Server, ServerConnection, serve

from controller.contract import ControlFile
from training import channel
from training.certificate import Certificate, make_certificate
from training.client import CoordinatorClient, CoordinatorLost
from training.clocks import Clocks
from training.protocol import Challenge, CheckIn, Form, Go, Position, Prepared, Proceed, Refused, WorkerHello
from training.wire import parse_to_coordinator

START = Position(epoch=0, offset=0, step=0)
FORM = Form(
    generation=3,
    number=0,
    workers=1,
    environment={},
    position=START,
    source="i-0000000a",
    source_host="127.0.0.1",
    source_port=9,
    transfer_token="t",
    fetch=False,
    receivers=0,
)


class Hasty(Clocks):
    """The shortest of a job are seconds."""

    patience = blocked = 0.5


class Coordinator:
    """Accepts workers; a test takes each connection and plays the coordinator on it."""

    def __init__(self, certificate: Certificate) -> None:
        self.connections: Queue[ServerConnection] = Queue()
        self._end = threading.Event()
        self.server: Server = serve(self._handle, "127.0.0.1", 0, ssl=certificate.server_context())
        self.port = self.server.socket.getsockname()[1]
        self._thread = threading.Thread(target=self.server.serve_forever)
        self._thread.start()

    def _handle(self, connection: ServerConnection) -> None:
        say(connection, Challenge(nonce="f" * 32))
        self.connections.put(connection)
        self._end.wait()

    def next(self) -> tuple[ServerConnection, Any]:
        """The next connection, and the hello on it."""
        connection = self.connections.get(timeout=20)
        return connection, hears(connection)

    def close(self) -> None:
        self._end.set()
        self.server.shutdown()
        self._thread.join()


def hears(connection: ServerConnection) -> Any:
    return parse_to_coordinator(connection.recv(20))


def say(connection: ServerConnection, *orders: Any) -> None:
    for order in orders:
        connection.send(order.model_dump_json())


def drop(connection: ServerConnection) -> None:
    """As when the process or the machine is gone: no word of farewell."""
    connection.socket.shutdown(socket.SHUT_RDWR)


@pytest.fixture(scope="module")
def certificate() -> Certificate:
    return make_certificate("127.0.0.1", dt.datetime.now(dt.UTC))


@pytest.fixture
def coordinator(certificate: Certificate) -> Iterator[Coordinator]:
    coordinator = Coordinator(certificate)
    yield coordinator
    coordinator.close()


@pytest.fixture
def connect(certificate: Certificate) -> Iterator[Callable[..., CoordinatorClient]]:
    clients: list[CoordinatorClient] = []

    def connect(port: int, clocks: Clocks | None = None, end: Callable[[int], None] = print) -> CoordinatorClient:
        who = {"cluster": "c", "instance_id": "i-0000000a", "private_ip": "127.0.0.1"}
        control = ControlFile(**who, job="j", token="t", url=f"wss://127.0.0.1:{port}", certificate=certificate.pem, mount="/", liveness_seconds=2.0)
        hello = WorkerHello(**who, pid=1, state_port=9, epochs=1, samples=1, global_batch=1, seed=0, layout="x")
        clients.append(CoordinatorClient(control, hello, lambda order: None, clocks, end))
        return clients[-1]

    yield connect
    for client in clients:
        client.close()


def test_t17_a_dropped_worker_comes_back_says_where_it_is_and_repeats_what_was_not_answered(
    coordinator: Coordinator, connect: Callable[..., CoordinatorClient]
) -> None:
    client = connect(coordinator.port)
    line, hello = coordinator.next()
    assert (hello.generation, hello.stage) == (None, "stands")
    say(line, FORM)
    assert client.order(20) == FORM
    client.say(Prepared(generation=3), awaits_answer=True)
    assert hears(line) == Prepared(generation=3)
    drop(line)
    line, hello = coordinator.next()
    assert (hello.generation, hello.stage) == (3, "prepares")
    assert hears(line) == Prepared(generation=3)
    say(line, Go(generation=3))
    assert client.order(20) == Go(generation=3)
    drop(line)
    line, hello = coordinator.next()
    assert hello.stage == "creates", "what was answered is not said again"


def test_t17_orders_that_come_twice_reach_the_training_thread_once(coordinator: Coordinator, connect: Callable[..., CoordinatorClient]) -> None:
    client = connect(coordinator.port)
    line, _ = coordinator.next()
    say(line, FORM, FORM, Go(generation=3), Go(generation=3), Go(generation=2))
    assert [client.order(20).type for _ in range(2)] == ["form", "go"]
    at = [Position(epoch=1, offset=0, step=step) for step in (1, 2)]
    client.say(CheckIn(generation=3, position=at[0]), awaits_answer=True)
    hears(line)
    first, second = (Proceed(generation=3, position=position) for position in at)
    say(line, first, first)
    assert client.order(20) == first
    client.say(CheckIn(generation=3, position=at[1]), awaits_answer=True)
    say(line, first, second)
    assert client.order(20) == second, "the old word does not let it step on from the next boundary"


def test_a_worker_gives_up_after_the_patience_of_the_jobs_own_clocks(coordinator: Coordinator, connect: Callable[..., CoordinatorClient]) -> None:
    client = connect(coordinator.port)
    coordinator.next()
    coordinator.close()
    with pytest.raises(CoordinatorLost, match="for 6 s"):
        client.order(20)


def test_nodes_and_workers_look_for_a_silent_coordinator_as_often_as_the_jobs_clocks_say(coordinator: Coordinator, certificate: Certificate) -> None:
    """A coordinator whose machine is gone closes nothing: only pings show it."""
    url, clocks = f"wss://127.0.0.1:{coordinator.port}", Clocks(4.0, 12.0)

    async def as_node() -> tuple[float | None, float | None]:
        async with await channel.connect(url, certificate.pem, clocks) as line:
            return line.ping_interval, line.ping_timeout

    with channel.connect_sync(url, certificate.pem, clocks) as line:
        assert (line.ping_interval, line.ping_timeout) == (1.0, 3.0)
    assert asyncio.run(as_node()) == (1.0, 3.0)


def test_a_server_that_takes_connections_and_never_answers_is_given_up(connect: Callable[..., CoordinatorClient]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        client = connect(silent.getsockname()[1], Hasty())
        with pytest.raises(CoordinatorLost, match="no coordinator at"):
            client.order(20)


def test_a_message_of_another_protocol_ends_the_connection_and_not_the_worker(
    coordinator: Coordinator, connect: Callable[..., CoordinatorClient]
) -> None:
    connect(coordinator.port)
    line, _ = coordinator.next()
    line.send('{"type": "what"}')
    _, hello = coordinator.next()
    assert hello.stage == "stands"
    with pytest.raises(ConnectionClosed):
        line.recv(20)


def test_a_refused_worker_ends_and_one_whose_training_thread_is_blocked_is_ended(
    coordinator: Coordinator, connect: Callable[..., CoordinatorClient]
) -> None:
    ended: Queue[int] = Queue()
    client = connect(coordinator.port, Hasty(), end=ended.put)
    line, _ = coordinator.next()
    say(line, Refused(reason="generation 2 is over"))
    with pytest.raises(CoordinatorLost, match="generation 2 is over"):
        client.order(20)
    assert ended.get(timeout=20) == 75, "the supervisor starts another"


def test_an_error_on_the_reading_thread_reaches_the_training_thread(coordinator: Coordinator, certificate: Certificate) -> None:
    control = ControlFile(
        cluster="c", job="j", instance_id="i", private_ip="127.0.0.1", token="t", mount="/", certificate=certificate.pem, url="wss://x"
    )
    hello = WorkerHello(
        cluster="c", instance_id="i", private_ip="127.0.0.1", pid=1, state_port=9, epochs=1, samples=1, global_batch=1, seed=0, layout="x"
    )

    def fails(order: Any) -> None:
        raise RuntimeError("the step guard is broken")

    control = control.model_copy(update={"url": f"wss://127.0.0.1:{coordinator.port}"})
    client = CoordinatorClient(control, hello, fails, end=print)
    line, _ = coordinator.next()
    say(line, FORM)
    client.order(20)
    line.send('{"type": "abort", "generation": 3}')
    with pytest.raises(RuntimeError, match="the step guard is broken"):
        client.order(20)
    client.close()
