"""How nodes and workers reach the coordinator: a WebSocket over TLS that trusts one pinned certificate.

The certificate is self-signed and made anew by each coordinator; it arrives through SSM, so nothing else is trusted and the host
name is not checked (addresses change, the certificate is the identity).
"""

from __future__ import annotations

import ssl

from websockets.asyncio.client import ClientConnection as AsyncConnection
from websockets.asyncio.client import connect as connect_async_client
from websockets.sync.client import ClientConnection as SyncConnection
from websockets.sync.client import connect as connect_sync_client

from training.protocol import MAX_BYTES, FromCoordinator, ToCoordinator, parse_from_coordinator

OPEN_SECONDS = 10.0
PING_SECONDS = 5.0


def client_context(certificate: str) -> ssl.SSLContext:
    """Trusts `certificate` (PEM) alone. Raises ssl.SSLError when it is no certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False
    context.load_verify_locations(cadata=certificate)
    return context


async def connect(url: str, certificate: str) -> AsyncConnection:
    """For supervisors. Raises OSError, TimeoutError, ssl.SSLError or websockets.WebSocketException within `OPEN_SECONDS`."""
    return await connect_async_client(
        url,
        ssl=client_context(certificate),
        max_size=MAX_BYTES,
        open_timeout=OPEN_SECONDS,
        ping_interval=PING_SECONDS,
        ping_timeout=4 * PING_SECONDS,
        proxy=None,
    )


def connect_sync(url: str, certificate: str) -> SyncConnection:
    """For worker processes, whose threads cannot run an event loop. Raises as `connect` does."""
    return connect_sync_client(
        url,
        ssl=client_context(certificate),
        max_size=MAX_BYTES,
        open_timeout=OPEN_SECONDS,
        ping_interval=PING_SECONDS,
        ping_timeout=4 * PING_SECONDS,
        proxy=None,
    )


def encode(message: ToCoordinator) -> str:
    return message.model_dump_json()


def decode(text: str | bytes) -> FromCoordinator:
    """Raises pydantic.ValidationError when the coordinator speaks another protocol."""
    return parse_from_coordinator(text)
