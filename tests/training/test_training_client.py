"""A worker's line to its coordinator against a real server: it comes back, says what was not answered, and ends where
nobody answers.

What would break for a user: workers that end with their coordinator although it is started again, or that stay for ever
when it is not.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import errno
import logging
import random
import socket
import ssl
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from queue import Queue
from typing import Any

import pytest
from dyntrain.controller.contract.messages import ControlFile
from dyntrain.controller.local.pace import patient
from dyntrain.training.protocol import channel
from dyntrain.training.protocol.blocking import BlockingConnection, open_connection
from dyntrain.training.protocol.certificate import Certificate, make_certificate
from dyntrain.training.protocol.clocks import Clocks
from dyntrain.training.protocol.messages import (
    Challenge,
    CheckIn,
    Form,
    Go,
    Position,
    Prepared,
    Proceed,
    Refused,
    WorkerHello,
)
from dyntrain.training.protocol.wire import parse_to_coordinator
from dyntrain.training.worker.membership.client import CoordinatorClient, CoordinatorLost
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed

START = Position(epoch=0, offset=0, step=0)
FORM = Form(
    generation=3,
    number=0,
    workers=1,
    environment={},
    position=START,
    source="i-0000000a",
    transfer_token="the token of generation three",
)


class Impatient(Clocks):
    """The shortest of a job are seconds."""

    patience = 0.5


class EndsTheBlocked(Clocks):
    """As soon, while it looks for its coordinator as long as a job does."""

    blocked = 0.5


class Coordinator:
    """Accepts workers; a test takes each connection and plays the coordinator on it."""

    def __init__(self, certificate: Certificate) -> None:
        self.connections: Queue[BlockingConnection] = Queue()
        self._certificate = certificate
        started: Future[tuple[int, asyncio.AbstractEventLoop, asyncio.Event]] = Future()
        self._thread = threading.Thread(target=asyncio.run, args=(self._serve(started),))
        self._thread.start()
        self.port, self._loop, self._end = started.result()

    async def _serve(self, started: Future[tuple[int, asyncio.AbstractEventLoop, asyncio.Event]]) -> None:
        loop, end = asyncio.get_running_loop(), asyncio.Event()

        async def handle(connection: ServerConnection) -> None:
            await connection.send(Challenge(nonce="f" * 32).model_dump_json())
            self.connections.put(BlockingConnection(loop, connection))
            await end.wait()

        context = self._certificate.server_context()
        async with serve(handle, "127.0.0.1", 0, ssl=context, open_timeout=patient(20)) as server:
            started.set_result((server.sockets[0].getsockname()[1], loop, end))
            await end.wait()

    def next(self) -> tuple[BlockingConnection, Any]:
        """The next connection, and the hello on it."""
        line = self.connections.get(timeout=patient(20))
        return line, hears(line)

    def drop(self, line: BlockingConnection) -> None:
        """As when the process or the machine is gone: no word of farewell."""
        self._loop.call_soon_threadsafe(line.connection.transport.abort)

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join()


def hears(line: BlockingConnection) -> Any:
    return parse_to_coordinator(line.recv(patient(20)))


def say(line: BlockingConnection, *orders: Any) -> None:
    for order in orders:
        line.send(order.model_dump_json())


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

    def connect(
        port: int, clocks: Clocks | None = None, end: Callable[[int], None] = print, liveness: float = 20.0
    ) -> CoordinatorClient:
        who = {"cluster": "c", "instance_id": "i-0000000a", "private_ip": "127.0.0.1"}
        control = ControlFile(
            **who,
            job="j",
            token="t",
            url=f"wss://127.0.0.1:{port}",
            certificate=certificate.pem,
            mount="/",
            liveness_seconds=liveness,
        )
        hello = WorkerHello(**who, pid=1, state_port=9, epochs=1, samples=1, global_batch=1, seed=0, layout="x")
        clients.append(CoordinatorClient(control, hello, lambda order: None, clocks, end))
        return clients[-1]

    yield connect
    for client in clients:
        client.close()


def test_a_script_that_logs_everything_logs_no_token(
    coordinator: Coordinator, connect: Callable[..., CoordinatorClient], caplog: pytest.LogCaptureFixture
) -> None:
    """MXNet's own examples set the root's level to DEBUG."""
    caplog.set_level(logging.DEBUG)
    client = connect(coordinator.port)
    line, _ = coordinator.next()
    say(line, FORM)
    assert client.next_order(patient(20)) == FORM
    assert not [record for record in caplog.records if record.name.startswith("websockets.client")]
    assert not [record for record in caplog.records if record.name == channel.QUIET_LOGGER.name]


def test_t17_a_dropped_worker_comes_back_says_where_it_is_and_repeats_what_was_not_answered(
    coordinator: Coordinator, connect: Callable[..., CoordinatorClient]
) -> None:
    client = connect(coordinator.port)
    line, hello = coordinator.next()
    assert (hello.generation, hello.stage) == (None, "stands")
    say(line, FORM)
    assert client.next_order(patient(20)) == FORM
    client.say(Prepared(generation=3), awaits_answer=True)
    assert hears(line) == Prepared(generation=3)
    coordinator.drop(line)
    line, hello = coordinator.next()
    assert (hello.generation, hello.stage) == (3, "prepares")
    assert hears(line) == Prepared(generation=3)
    say(line, Go(generation=3))
    assert client.next_order(patient(20)) == Go(generation=3)
    coordinator.drop(line)
    line, hello = coordinator.next()
    assert hello.stage == "creates", "what was answered is not said again"


def test_t17_orders_that_come_twice_reach_the_training_thread_once(
    coordinator: Coordinator, connect: Callable[..., CoordinatorClient]
) -> None:
    client = connect(coordinator.port)
    line, _ = coordinator.next()
    say(line, FORM, FORM, Go(generation=3), Go(generation=3), Go(generation=2))
    assert [client.next_order(patient(20)).type for _ in range(2)] == ["form", "go"]
    at = [Position(epoch=1, offset=0, step=step) for step in (1, 2)]
    client.say(CheckIn(generation=3, position=at[0], pid=1), awaits_answer=True)
    hears(line)
    first, second = (Proceed(generation=3, position=position) for position in at)
    say(line, first, first)
    assert client.next_order(patient(20)) == first
    client.say(CheckIn(generation=3, position=at[1], pid=1), awaits_answer=True)
    say(line, first, second)
    assert client.next_order(patient(20)) == second, "the old word does not let it step on from the next boundary"


def test_one_thread_alone_reads_and_writes_a_tls_session(
    coordinator: Coordinator, connect: Callable[..., CoordinatorClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With two, a worker's line hung now and then when it was made, and nothing bounded that."""
    threads: dict[int, set[int]] = defaultdict(set)

    def seen(kind: type, names: tuple[str, ...]) -> type:
        def watched(name: str) -> Callable[..., Any]:
            def call(self: Any, *given: Any, **named: Any) -> Any:
                threads[id(self)].add(threading.get_ident())
                return getattr(kind, name)(self, *given, **named)

            return call

        return type("Watched", (kind,), {name: watched(name) for name in names})

    monkeypatch.setattr(ssl.SSLContext, "sslobject_class", seen(ssl.SSLObject, ("read", "write")))
    monkeypatch.setattr(
        ssl.SSLContext, "sslsocket_class", seen(ssl.SSLSocket, ("recv", "recv_into", "send", "sendall"))
    )
    client = connect(coordinator.port)
    line, _ = coordinator.next()
    say(line, FORM)
    assert client.next_order(patient(20)) == FORM
    client.say(Prepared(generation=3), awaits_answer=True)
    assert hears(line) == Prepared(generation=3)
    assert [len(used) for used in threads.values()] == [1, 1], "the worker's session, and the coordinator's"


def test_a_process_that_can_open_nothing_more_is_told_and_does_not_wait(
    certificate: Certificate, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full() -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(asyncio, "new_event_loop", full)
    monkeypatch.setattr(asyncio.events, "new_event_loop", full)
    with pytest.raises(OSError, match="Too many open files"), open_connection("wss://127.0.0.1:1", certificate.pem):
        raise AssertionError("there is no connection")


def test_a_worker_gives_up_after_the_patience_of_the_jobs_own_clocks(connect: Callable[..., CoordinatorClient]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    drawn = random.getstate()
    client = connect(port, liveness=2.0)
    with pytest.raises(CoordinatorLost, match="for 6 s"):
        client.next_order(patient(20))
    assert random.getstate() == drawn, "what the script draws after it would be something else"


def test_nodes_and_workers_look_for_a_silent_coordinator_as_often_as_the_jobs_clocks_say(
    coordinator: Coordinator, certificate: Certificate
) -> None:
    """A coordinator whose machine is gone closes nothing: only pings show it."""
    url, clocks = f"wss://127.0.0.1:{coordinator.port}", Clocks(40.0, 120.0)

    async def as_node() -> tuple[float | None, float | None]:
        async with await channel.connect(url, certificate.pem, clocks) as line:
            return line.ping_interval, line.ping_timeout

    with open_connection(url, certificate.pem, clocks) as line:
        assert (line.connection.ping_interval, line.connection.ping_timeout) == (10.0, 30.0)
    assert asyncio.run(as_node()) == (10.0, 30.0)


def test_a_server_that_takes_connections_and_never_answers_is_given_up(
    connect: Callable[..., CoordinatorClient],
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        client = connect(silent.getsockname()[1], Impatient())
        with pytest.raises(CoordinatorLost, match=r"the coordinator at .* was unreachable"):
            client.next_order(patient(20))


def test_a_message_of_another_protocol_ends_the_connection_and_not_the_worker(
    coordinator: Coordinator, connect: Callable[..., CoordinatorClient]
) -> None:
    connect(coordinator.port)
    line, _ = coordinator.next()
    line.send('{"type": "what"}')
    _, hello = coordinator.next()
    assert hello.stage == "stands"
    with pytest.raises(ConnectionClosed):
        line.recv(patient(20))


def test_a_refused_worker_ends_and_one_whose_training_thread_is_blocked_is_ended(
    coordinator: Coordinator, connect: Callable[..., CoordinatorClient]
) -> None:
    ended: Queue[int] = Queue()
    client = connect(coordinator.port, EndsTheBlocked(), end=ended.put)
    line, _ = coordinator.next()
    say(line, Refused(reason="generation 2 is over"))
    with pytest.raises(CoordinatorLost, match="generation 2 is over"):
        client.next_order(patient(20))
    assert ended.get(timeout=patient(20)) == 75, "the supervisor starts another"


def test_an_error_on_the_reading_thread_reaches_the_training_thread(
    coordinator: Coordinator, certificate: Certificate
) -> None:
    control = ControlFile(
        cluster="c",
        job="j",
        instance_id="i",
        private_ip="127.0.0.1",
        token="t",
        mount="/",
        certificate=certificate.pem,
        url="wss://x",
    )
    hello = WorkerHello(
        cluster="c",
        instance_id="i",
        private_ip="127.0.0.1",
        pid=1,
        state_port=9,
        epochs=1,
        samples=1,
        global_batch=1,
        seed=0,
        layout="x",
    )

    def fails(order: Any) -> None:
        raise RuntimeError("the step guard is broken")

    control = control.model_copy(update={"url": f"wss://127.0.0.1:{coordinator.port}"})
    client = CoordinatorClient(control, hello, fails, end=print)
    line, _ = coordinator.next()
    say(line, FORM)
    client.next_order(patient(20))
    line.send('{"type": "abort", "generation": 3}')
    with pytest.raises(RuntimeError, match="the step guard is broken"):
        client.next_order(patient(20))
    client.close()
