"""The coordinator's end of the control channel: admits connections, and passes their messages to the session.

A connection begins with the coordinator's challenge. Within `HELLO_SECONDS` the peer must send the hello that answers
the challenge (`admission`). After its hello, a peer may only send messages of its kind (node or worker) about the
instance that the hello named. Any other message has no effect, except that the connection is closed and one log line is
written. No log line contains a token, a proof or an identity document. In log lines, text from a peer that has not
proved its identity is quoted and shortened.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import ssl
import time
from collections.abc import AsyncIterator, Callable

from dyntrain.training.protocol.admission import HelloChecker
from dyntrain.training.protocol.channel import QUIET_LOGGER
from dyntrain.training.protocol.clocks import Clocks
from dyntrain.training.protocol.messages import (
    MAX_BYTES,
    PROTOCOL,
    Broken,
    Challenge,
    CheckIn,
    CommitFailed,
    Committed,
    CommitUnreadable,
    Entered,
    Fetching,
    FirstStep,
    Formed,
    Left,
    Prepared,
    Progress,
    Pumped,
    Refused,
    ScriptEnded,
    ScriptFailed,
    StepStatus,
    Whereabouts,
    WorkerHello,
)
from dyntrain.training.protocol.node_messages import (
    EndRequest,
    GroupFailed,
    GroupReady,
    LaunchRequest,
    NodeHello,
    NodeNotice,
    Welcome,
    WorkerExited,
    Workers,
    WorkerStarted,
)
from dyntrain.training.protocol.wire import FromCoordinator, FromNode, FromWorker, WorkerReport, parse_to_coordinator
from dyntrain.training.protocol.wire import ToNode as NodeMessage
from dyntrain.training.protocol.wire import ToWorker as WorkerMessage
from dyntrain.training.session.orders import Order
from dyntrain.training.session.session import Session
from dyntrain.training.timeouts import timeout
from pydantic import ValidationError
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed
from websockets.frames import CloseCode

HELLO_SECONDS = 30.0  # limit for the hello; hundreds of peers may connect at once
BACKLOG = 1024  # most waiting connections; after a coordinator's death all peers connect at once
QUEUE_LENGTH = 1000  # the most unsent messages to a peer; with more, the peer is disconnected
log = logging.getLogger("control")


class _Peer:
    """An accepted connection with a queue of unsent messages, so that senders never wait for a slow peer."""

    def __init__(self, connection: ServerConnection) -> None:
        self.connection = connection
        self.last_sent: Workers | None = None
        self.life = self.address = ""  # both are set for nodes only
        self.queue: asyncio.Queue[FromCoordinator | None] = asyncio.Queue(QUEUE_LENGTH)

    def send(self, message: FromCoordinator | None) -> None:
        try:
            self.queue.put_nowait(message)
        except asyncio.QueueFull:
            self.connection.transport.abort()

    async def write_messages(self) -> None:
        with contextlib.suppress(ConnectionClosed):
            while (message := await self.queue.get()) is not None:
                await self.connection.send(message.model_dump_json())
            await self.connection.close()


def duplicate_node_refusal(instance: str, first_address: str, second_address: str) -> str:
    """Return the reason to refuse a second node process of an instance while the first process is connected, or None.

    If both node processes were accepted, they would repeatedly kill each other's workers. If the first process is gone,
    unanswered pings close its connection, and the second process is admitted when it tries again.
    """
    return (
        f"{instance} is connected already, from {first_address}; this process, at {second_address}, names the same "
        "instance: give each node an id of its own, or end one of them"
    )


class PeerRejected(Exception):
    """The peer must be disconnected: `reason` is sent to the peer and logged, `detail` is only logged."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(reason + detail)
        self.reason = reason


def _closed_for_bad_data(error: ConnectionClosed) -> bool:
    """Whether the coordinator closed the connection because a peer's data was too long, not text, or not WebSocket."""
    return error.sent is not None and error.sent.code in (
        CloseCode.PROTOCOL_ERROR,
        CloseCode.INVALID_DATA,
        CloseCode.MESSAGE_TOO_BIG,
    )


class ControlServer:
    def __init__(
        self, session: Session, job: str, gate: HelloChecker, carry_out: Callable[[list[Order]], None]
    ) -> None:
        self._session, self._job, self._gate, self._carry_out = session, job, gate, carry_out
        self._nodes: dict[str, _Peer] = {}
        self._workers: dict[str, tuple[_Peer, int]] = {}

    @contextlib.asynccontextmanager
    async def listen(self, host: str, context: ssl.SSLContext, clocks: Clocks, port: int = 0) -> AsyncIterator[int]:
        """Listen for connections of nodes and workers, and yield the port (a free port if `port` is 0).

        Peers that do not answer pings are disconnected.
        """
        async with serve(
            self._serve,
            host,
            port,
            ssl=context,
            max_size=MAX_BYTES,
            ping_interval=clocks.ping_interval,
            ping_timeout=clocks.pong_limit,
            open_timeout=HELLO_SECONDS,
            backlog=BACKLOG,
            logger=QUIET_LOGGER,
        ) as server:
            yield next(iter(server.sockets)).getsockname()[1]

    def send_node(self, instance: str, message: NodeMessage) -> None:
        if peer := self._nodes.get(instance):
            peer.send(message)

    def send_addresses(self, message: Workers) -> None:
        """Send the addresses to each node, except nodes that have already received equal addresses last."""
        for peer in self._nodes.values():
            if peer.last_sent != message:
                peer.last_sent = message
                peer.send(message)

    def send_worker(self, instance: str, message: WorkerMessage) -> None:
        if worker_entry := self._workers.get(instance):
            worker_entry[0].send(message)

    def drop_worker(self, instance: str, pid: int, reason: str) -> None:
        """Close the connection of the worker process `pid`, but not that of a later worker of the same instance."""
        peer, connected_pid = self._workers.get(instance, (None, None))
        if peer is not None and connected_pid == pid:
            del self._workers[instance]
            peer.send(Refused(reason=reason))
            peer.send(None)

    async def drain(self, seconds: float) -> None:
        """Wait until all peers have closed their connections, or until `seconds` have passed."""
        deadline = time.monotonic() + seconds

        while (self._nodes or self._workers) and time.monotonic() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(0.05)  # new peers may connect meanwhile, so no single event can be awaited

    async def _serve(self, connection: ServerConnection) -> None:
        address = connection.remote_address[0] if connection.remote_address else "?"
        try:
            hello = await self._receive_hello(connection)
        except (TimeoutError, PeerRejected) as error:
            log.warning("refused a connection from %s: %s", address, str(error) or "no hello in time")
            with contextlib.suppress(ConnectionClosed):
                await connection.send(
                    Refused(
                        reason=error.reason if isinstance(error, PeerRejected) else "no hello in time"
                    ).model_dump_json()
                )
            return
        except ConnectionClosed as error:
            log.warning("refused a connection from %s: it ended before its hello (%s)", address, error)
            return
        peer = _Peer(connection)
        writer = asyncio.create_task(peer.write_messages())
        try:
            if isinstance(hello, NodeHello):
                await self._serve_node(peer, hello)
            else:
                await self._serve_worker(peer, hello)
        except ConnectionClosed as error:
            log.log(
                logging.WARNING if _closed_for_bad_data(error) else logging.DEBUG,
                "connection of %s closed: %s",
                hello.name,
                error,
            )
        except ValidationError:
            log.warning(
                "connection of %s closed: it sent something that is no message of protocol %d",
                hello.name,
                PROTOCOL,
            )
        except PeerRejected as error:
            log.warning("connection of %s closed: %s", hello.name, error)
        finally:
            peer.send(None)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(writer, 2.0)

    async def _receive_hello(self, connection: ServerConnection) -> NodeHello | WorkerHello:
        """Send a challenge on a new connection, and return the peer's hello that answers the challenge.

        Raises TimeoutError, ConnectionClosed, or PeerRejected.
        """
        nonce = secrets.token_urlsafe(24)
        async with timeout(HELLO_SECONDS):
            await connection.send(Challenge(nonce=nonce).model_dump_json())
            hello_text = await connection.recv()
        try:
            hello = parse_to_coordinator(hello_text)
        except ValidationError:
            hello = None
        if not isinstance(hello, NodeHello | WorkerHello):
            raise PeerRejected("the first message is not a hello")
        if refusal_and_detail := self._gate.find_refusal(hello, nonce):
            refusal, detail = refusal_and_detail
            raise PeerRejected(refusal.value, f"; it claims to be {hello.name!r}{f', {detail}' if detail else ''}")
        return hello

    async def _serve_node(self, peer: _Peer, hello: NodeHello) -> None:
        instance_id = hello.name
        if earlier_peer := self._nodes.get(instance_id):
            if hello.life and earlier_peer.life and hello.life != earlier_peer.life:
                refusal = duplicate_node_refusal(instance_id, earlier_peer.address, hello.private_ip)
                peer.send(Refused(reason=refusal))
                raise PeerRejected(refusal)
            earlier_peer.send(None)
        self._nodes[instance_id] = peer
        peer.life, peer.address = hello.life, hello.private_ip
        # Sent directly: a Welcome contains no decision, so it need not wait until earlier decisions are on the volume.
        peer.send(Welcome(job=self._job, launch=self._session.launch))
        self._carry_out(self._session.node_connected(hello, time.time()))
        try:
            async for message_text in peer.connection:
                message = parse_to_coordinator(message_text)
                if not isinstance(message, FromNode) or isinstance(message, NodeHello):
                    raise PeerRejected(f"a node may not send {message.type}")
                if self._nodes.get(instance_id) is peer:
                    self._carry_out(self._handle_from_node(instance_id, message, time.time()))
        finally:
            if self._nodes.get(instance_id) is peer:
                del self._nodes[instance_id]
                self._carry_out(self._session.node_lost(instance_id, time.time()))

    def _handle_from_node(
        self,
        instance: str,
        message: GroupReady | GroupFailed | WorkerStarted | WorkerExited | NodeNotice | LaunchRequest | EndRequest,
        now: float,
    ) -> list[Order]:
        match message:
            case GroupReady():
                return self._session.group_ready(instance, message, now)
            case GroupFailed():
                return self._session.group_failed(instance, message, now)
            case WorkerStarted():
                return self._session.worker_started(instance, message, now)
            case WorkerExited():
                return self._session.worker_exited(instance, message, now)
            case NodeNotice():
                return self._session.node_notice(instance, message, now)
            case LaunchRequest():
                return self._session.launch_requested(instance, message.launch, now)
            case EndRequest():
                return self._session.end_requested(instance, message, now)

    async def _serve_worker(self, peer: _Peer, hello: WorkerHello) -> None:
        instance_id = hello.name
        if earlier_peer_and_pid := self._workers.get(instance_id):
            earlier_peer_and_pid[0].send(None)
        self._workers[instance_id] = (peer, hello.pid)
        self._carry_out(self._session.worker_connected(hello, time.time()))
        try:
            async for message_text in peer.connection:
                message = parse_to_coordinator(message_text)
                if not isinstance(message, FromWorker) or isinstance(message, WorkerHello):
                    raise PeerRejected(f"a worker may not send {message.type}")
                if self._workers.get(instance_id) == (peer, hello.pid):
                    self._carry_out(self._handle_from_worker(instance_id, message, time.time()))
        finally:
            if self._workers.get(instance_id) == (peer, hello.pid):
                del self._workers[instance_id]
                self._carry_out(self._session.worker_disconnected(instance_id, hello.pid, time.time()))

    def _handle_from_worker(self, instance: str, message: WorkerReport, now: float) -> list[Order]:
        match message:
            case Prepared():
                return self._session.worker_prepared(instance, message, now)
            case CheckIn():
                return self._session.check_in(instance, message, now)
            case Formed():
                return self._session.worker_formed(instance, message, now)
            case Left():
                return self._session.worker_left(instance, now)
            case Entered():
                return self._session.loop_entered(instance, message, now)
            case ScriptEnded():
                return self._session.script_ended(instance, now)
            case FirstStep():
                return self._session.first_step(instance, message, now)
            case Committed():
                return self._session.commit_written(instance, message, now)
            case CommitFailed():
                return self._session.commit_failed(instance, message, now)
            case CommitUnreadable():
                return self._session.commit_unreadable(instance, message, now)
            case ScriptFailed():
                return self._session.script_failed(instance, message, now)
            case Fetching():
                return self._session.worker_fetching(instance, message, now)
            case Progress():
                return self._session.worker_progressed(instance, message, now)
            case Whereabouts():
                return self._session.whereabouts(instance, message, now)
            case StepStatus():
                return self._session.step_status(instance, message, now)
            case Pumped():
                return self._session.zeros_pushed(instance, message, now)
            case Broken():
                return self._session.summation_failed(instance, message, now)
