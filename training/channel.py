"""How nodes and workers reach the coordinator: a WebSocket over TLS that trusts one pinned certificate.

The certificate is self-signed and made anew by each coordinator; it arrives through SSM, so nothing else is trusted and the host
name is not checked (addresses change, the certificate is the identity).
"""

from __future__ import annotations

import asyncio
import ssl

from pydantic import SecretStr
from websockets.asyncio.client import ClientConnection as AsyncConnection
from websockets.asyncio.client import connect as connect_async_client
from websockets.sync.client import ClientConnection as SyncConnection
from websockets.sync.client import connect as connect_sync_client

from training.admission import H, answering
from training.clocks import DEFAULT, Clocks
from training.protocol import MAX_BYTES, Challenge, NodeHello, Refused
from training.wire import FromCoordinator, ToCoordinator, parse_from_coordinator

OPEN_SECONDS = 10.0


def client_context(certificate: str) -> ssl.SSLContext:
    """Trusts `certificate` (PEM) alone. Raises ssl.SSLError when it is no certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False
    context.load_verify_locations(cadata=certificate)
    return context


async def connect(url: str, certificate: str, clocks: Clocks = DEFAULT) -> AsyncConnection:
    """For supervisors. Raises OSError, TimeoutError, ssl.SSLError or websockets.WebSocketException within `OPEN_SECONDS`."""
    return await connect_async_client(
        url,
        ssl=client_context(certificate),
        max_size=MAX_BYTES,
        open_timeout=OPEN_SECONDS,
        ping_interval=clocks.ping,
        ping_timeout=clocks.pong,
        proxy=None,
    )


def connect_sync(url: str, certificate: str, clocks: Clocks = DEFAULT, seconds: float = OPEN_SECONDS) -> SyncConnection:
    """For worker processes, whose threads cannot run an event loop. Raises as `connect` does, within `seconds` if that is less."""
    return connect_sync_client(
        url,
        ssl=client_context(certificate),
        max_size=MAX_BYTES,
        open_timeout=min(OPEN_SECONDS, seconds),
        ping_interval=clocks.ping,
        ping_timeout=clocks.pong,
        proxy=None,
    )


async def greet(connection: AsyncConnection, hello: NodeHello, token: SecretStr) -> None:
    """Answer the coordinator's challenge. Raises as `connect` does, and ValueError when it does not begin with one."""
    async with asyncio.timeout(OPEN_SECONDS):
        first = await connection.recv()
    await connection.send(encode(answer(first, hello, token)))


def answer(first: str | bytes, hello: H, token: SecretStr) -> H:
    """The hello that answers the coordinator's first message. Raises ValueError when that is no challenge."""
    match decode(first):
        case Challenge(nonce=nonce):
            return answering(hello, token.get_secret_value(), nonce)
        case Refused(reason=reason):
            raise ValueError(f"the coordinator refused the connection: {reason}")
        case message:
            raise ValueError(f"the coordinator began with {message.type}, not with a challenge: run the same version on all nodes")


def encode(message: ToCoordinator) -> str:
    return message.model_dump_json()


def decode(text: str | bytes) -> FromCoordinator:
    """Raises pydantic.ValidationError when the coordinator speaks another protocol."""
    return parse_from_coordinator(text)
