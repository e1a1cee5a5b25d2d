"""Connects nodes and workers to the coordinator by a WebSocket over TLS that trusts only the coordinator's certificate.

Each coordinator makes a new self-signed certificate and publishes the certificate through SSM. Nodes and workers trust
only the published certificate, and do not check the host name, as addresses change.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl

from dyntrain.training.protocol.admission import H, with_proof
from dyntrain.training.protocol.clocks import DEFAULT, Clocks
from dyntrain.training.protocol.messages import MAX_BYTES, Challenge, Refused
from dyntrain.training.protocol.node_messages import NodeHello
from dyntrain.training.protocol.wire import FromCoordinator, ToCoordinator, parse_from_coordinator
from dyntrain.training.timeouts import timeout
from pydantic import SecretStr
from websockets.asyncio.client import ClientConnection as AsyncConnection
from websockets.asyncio.client import connect as connect_async_client
from websockets.uri import parse_uri

REACH_SECONDS = 10.0  # limit until the coordinator's machine accepts the connection
# Limit for each of three steps from the accepted connection to the coordinator's first message. If hundreds connect at
# once, the last ones wait long; an earlier retry would make the coordinator do the same work twice.
ANSWER_SECONDS = 30.0  # limit of each step from the connection to the first message
# Some scripts set the level DEBUG globally. Then websockets logs parts of each frame, and frames contain tokens.
QUIET_LOGGER = logging.getLogger("dyntrain.websockets")
QUIET_LOGGER.setLevel(logging.WARNING)


def client_context(certificate: str) -> ssl.SSLContext:
    """Return a TLS context that trusts only `certificate` (PEM text).

    Raises ssl.SSLError if the text `certificate` is no certificate.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False
    context.load_verify_locations(cadata=certificate)
    return context


async def connect(url: str, certificate: str, clocks: Clocks = DEFAULT) -> AsyncConnection:
    """Connect to the coordinator from an event loop; threads use `blocking.open_connection` instead.

    A failure raises OSError, TimeoutError, ssl.SSLError or websockets.WebSocketException, at the latest after the
    limits `REACH_SECONDS` and `ANSWER_SECONDS`.
    """
    parsed_url = parse_uri(url)
    sock = socket.socket()
    sock.setblocking(False)
    try:
        async with timeout(REACH_SECONDS):
            await asyncio.get_running_loop().sock_connect(sock, (parsed_url.host, parsed_url.port))
    except BaseException:
        sock.close()
        raise
    return await connect_async_client(
        url,
        sock=sock,
        ssl=client_context(certificate),
        max_size=MAX_BYTES,
        open_timeout=answer_seconds(clocks),
        ping_interval=clocks.ping_interval,
        ping_timeout=clocks.pong_limit,
        proxy=None,
        logger=QUIET_LOGGER,
    )


def answer_seconds(clocks: Clocks) -> float:
    """Time limit for an answer of the coordinator.

    The limit is at most half of `Clocks.patience`, as a new coordinator may take the place of one that does not answer.
    """
    return min(ANSWER_SECONDS, clocks.patience / 2)


async def greet(connection: AsyncConnection, hello: NodeHello, token: SecretStr, clocks: Clocks = DEFAULT) -> None:
    """Answer the coordinator's challenge on a new connection with a hello.

    Raises the errors of `connect`, and ValueError if the coordinator's first message is no challenge.
    """
    async with timeout(answer_seconds(clocks)):
        first_message = await connection.recv()
    await connection.send(encode(answer_challenge(first_message, hello, token)))


def answer_challenge(first_message: str | bytes, hello: H, token: SecretStr) -> H:
    """Return the hello that answers the coordinator's first message.

    Raises ValueError if the coordinator's first message is no challenge.
    """
    match decode(first_message):
        case Challenge(nonce=nonce):
            return with_proof(hello, token.get_secret_value(), nonce)
        case Refused(reason=reason):
            raise ValueError(f"the coordinator refused the connection: {reason}")
        case message:
            raise ValueError(
                f"the coordinator began with {message.type}, not with a challenge: run the same version on all nodes"
            )


def encode(message: ToCoordinator) -> str:
    return message.model_dump_json()


def decode(text: str | bytes) -> FromCoordinator:
    """Parse a message from the coordinator.

    Raises pydantic.ValidationError if the coordinator uses another version of the protocol.
    """
    return parse_from_coordinator(text)
