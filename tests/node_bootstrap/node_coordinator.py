"""A coordinator by hand: the control channel's other end, over real TLS."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import socket
import ssl
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from dyntrain.controller.contract.messages import CoordinatorEndpoint
from dyntrain.training.protocol.admission import HelloChecker
from dyntrain.training.protocol.messages import Challenge, Refused
from dyntrain.training.protocol.node_messages import (
    Listed,
    NodeHello,
    Retire,
    Welcome,
)
from dyntrain.training.protocol.wire import ToCoordinator, ToNode, parse_to_coordinator
from node_fakes import INSTANCE, TOKEN, World, living, wait_until, world
from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.exceptions import ConnectionClosed


@dataclass(frozen=True)
class Certificate:
    certificate: str
    key: str


def self_signed() -> Certificate:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "coordinator")])
    now = datetime.datetime.now(datetime.UTC)
    built = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=1))
        .not_valid_after(now + datetime.timedelta(hours=1))
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return Certificate(built.public_bytes(serialization.Encoding.PEM).decode(), private.decode())


@dataclass
class FakeCoordinator:
    """Welcomes every node that knows `token`, keeps all that it hears, and says what the test tells it to."""

    token: str = TOKEN
    job: str = "job-1"
    listed: bool = True
    hellos: list[NodeHello] = field(default_factory=list)
    heard: list[ToCoordinator] = field(default_factory=list)
    refusals: int = 0
    server: Server | None = None
    present: ServerConnection | None = None
    lines: dict[str, ServerConnection] = field(default_factory=dict)  # the last one of each of the node's workers
    endpoint: CoordinatorEndpoint | None = None

    async def accept(self, connection: ServerConnection) -> None:
        with contextlib.suppress(ConnectionClosed):
            await connection.send(Challenge(nonce="nonce").model_dump_json())
            hello = parse_to_coordinator(await connection.recv())
            if not isinstance(hello, NodeHello) or HelloChecker("demo", self.token).find_refusal(hello, "nonce"):
                self.refusals += 1
                await connection.send(Refused(reason="wrong token").model_dump_json())
                return
            self.hellos.append(hello)
            await connection.send(Welcome(job=self.job).model_dump_json())
            await connection.send(Listed(listed=self.listed).model_dump_json())
            self.present = self.lines[hello.name] = connection
            async for text in connection:
                self.heard.append(parse_to_coordinator(text))
        if self.present is connection:
            self.present = None

    def messages(self, kind: type[Any]) -> list[Any]:
        return [message for message in self.heard if isinstance(message, kind)]

    async def send(self, message: ToNode) -> None:
        connection = await wait_until(lambda: self.present, "a node is connected")
        await connection.send(message.model_dump_json())

    async def retire(self) -> None:
        await self.send(Retire(reason="job finished"))

    async def stop(self) -> None:
        if self.server is not None:
            self.server.close()
            await self.server.wait_closed()


async def start_coordinator(directory: Path, **settings: Any) -> FakeCoordinator:
    coordinator = FakeCoordinator(**settings)
    identity = self_signed()
    key_file, certificate_file = directory / "coordinator.key", directory / "coordinator.pem"
    key_file.write_text(identity.key)
    certificate_file.write_text(identity.certificate)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate_file, key_file)
    coordinator.server = await serve(coordinator.accept, "127.0.0.1", 0, ssl=context, close_timeout=0.5)
    port = next(iter(coordinator.server.sockets)).getsockname()[1]
    coordinator.endpoint = CoordinatorEndpoint(
        cluster="demo",
        job=coordinator.job,
        instance_id=INSTANCE,
        url=f"wss://127.0.0.1:{port}",
        certificate=identity.certificate,
        published_at=time.time(),
    )
    return coordinator


@contextlib.asynccontextmanager
async def training_node(
    directory: Path,
    blank: tuple[str, ...] = (),
    program: tuple[str, ...] = (),
    servers: str = "base",
    logs: str = "node",
    **timing: Any,
) -> AsyncIterator[tuple[World, FakeCoordinator, asyncio.Task[int]]]:
    """A node whose worker trains, in its world with a coordinator; all of it ends with the block."""
    with world(directory) as here:
        coordinator = await start_coordinator(directory)
        here.publish(coordinator.endpoint)
        here.configure(servers=servers, logs=logs)
        here.blank, here.coordinator = blank, program
        try:
            async with living(here.dependencies(**timing)) as node:
                await wait_until(here.workers_started, "the worker is started")
                yield here, coordinator, node
        finally:
            await coordinator.stop()


def dead_endpoint() -> CoordinatorEndpoint:
    """What a coordinator that is gone left in SSM: nobody listens there."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    return CoordinatorEndpoint(
        cluster="demo",
        job="job-0",
        instance_id=INSTANCE,
        url=f"wss://127.0.0.1:{port}",
        certificate=self_signed().certificate,
        published_at=0.0,
    )
