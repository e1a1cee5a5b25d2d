"""N6 for FUZZ_SECONDS (default 20; 3600 for the full hour): forged messages to a real control server and session.

Strangers send noise and mutated messages, to the parser and over TLS: none may be admitted. An admitted node and its
worker send any messages that their protocol can express, in any order: their connection may end, but neither handler
nor session may fail. A case is one message; a crash is an error in the log of the server's library.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import logging
import os
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from dyntrain.controller.contract.instance_identity import parse_keys
from dyntrain.controller.local.machines.identity import Signer
from dyntrain.training.coordinator.control import ControlServer
from dyntrain.training.protocol import channel
from dyntrain.training.protocol.admission import HelloChecker
from dyntrain.training.protocol.certificate import make_certificate
from dyntrain.training.protocol.clocks import Clocks
from dyntrain.training.protocol.messages import WorkerHello
from dyntrain.training.protocol.node_messages import NodeHello, Welcome
from dyntrain.training.protocol.wire import parse_to_coordinator
from dyntrain.training.session.generation.generation import Limits
from dyntrain.training.session.job.options import Options
from dyntrain.training.session.session import Session
from figures import Figure, at_most, unbounded, write
from forged_messages import CHANGED, NOISE, OF_NODES, OF_WORKERS, hello, twisted, worker_hello
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import SecretStr, ValidationError
from websockets.exceptions import WebSocketException

TOKEN = "the-token-of-this-job"
CASES = 2_000  # in one round of the parser
BATCH = 100  # cases drawn at once for the connections
SHARES = (0.4, 0.2, 0.4)  # of the time: parser, strangers, admitted members
MANY = {"deadline": None, "database": None, "suppress_health_check": list(HealthCheck)}


class Crashes(logging.Handler):
    """Counts errors that the server did not handle, and prints the first."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.count = 0

    def emit(self, record: logging.LogRecord) -> None:
        self.count += 1
        if self.count == 1:
            sys.stderr.write(logging.Formatter().format(record) + "\n")


class Door:
    """A coordinator's control server on this machine; without keys, the token alone admits nodes."""

    def __init__(self, keys: str = "") -> None:
        options = Options(
            cluster="demo",
            job="fuzz",
            started_at=time.time(),
            limits=Limits(1, 4),
            workers=1,
            segment_steps=5,
            boundary="segment",
        )
        self.session = Session.restore(options, lambda: "transfer", [], time.time())
        gate = HelloChecker("demo", TOKEN, parse_keys(keys) if keys else ())
        self.server = ControlServer(self.session, "j", gate, lambda orders: None)
        self.certificate = make_certificate("127.0.0.1", dt.datetime.now(dt.UTC))

    async def connections(
        self, draw: Callable[[], list[Any]], talk: Callable[[Any, Any], Awaitable[None]], until: float
    ) -> None:
        """Make connections one after another, each of which runs `talk` with one drawn case."""
        drawn: list[Any] = []
        async with self.server.listen("127.0.0.1", self.certificate.server_context(), Clocks()) as port:
            while time.monotonic() < until:
                drawn = drawn or draw()
                subject = drawn.pop()
                async with (
                    asyncio.timeout(30),
                    await channel.connect(f"wss://127.0.0.1:{port}", self.certificate.pem) as connection,
                ):
                    with contextlib.suppress(WebSocketException):
                        await talk(connection, subject)


def main(out: Path) -> list[Figure]:
    seconds = float(os.environ.get("FUZZ_SECONDS", "20"))
    crashes = Crashes()
    logging.getLogger("websockets.server").addHandler(crashes)
    logging.getLogger("control").setLevel(logging.CRITICAL)
    cases, let_in = parser_cases(seconds * SHARES[0])
    strangers, met = stranger_cases(seconds * SHARES[1])
    words = member_cases(seconds * SHARES[2])
    results = {"seconds": seconds, "cases": cases + strangers + words, "let_in": let_in + met, "crashes": crashes.count}
    write(out, "fuzz", results)
    return [
        unbounded("fuzz.cases", results["cases"]),
        at_most("fuzz.let_in", results["let_in"], 0),
        at_most("fuzz.crashes", results["crashes"], 0),
    ]


def parser_cases(seconds: float) -> tuple[int, int]:
    """Count cases and the hellos that the gate admitted. An unexpected error ends the benchmark."""
    gate = HelloChecker("demo", TOKEN, parse_keys(Signer().public_key))
    count = let_in = 0

    @settings(max_examples=CASES, **MANY)
    @given(NOISE | CHANGED)
    def case(text: str | bytes) -> None:
        nonlocal count, let_in
        count += 1
        with contextlib.suppress(ValidationError):
            read = parse_to_coordinator(text)
            let_in += isinstance(read, NodeHello | WorkerHello) and gate.find_refusal(read, "nonce") is None

    until = time.monotonic() + seconds
    while time.monotonic() < until:
        case()
    return count, let_in


def drawn(strategy: st.SearchStrategy[Any], wanted: int) -> list[Any]:
    values: list[Any] = []

    @settings(max_examples=wanted, **MANY)
    @given(strategy)
    def collect(value: Any) -> None:
        values.append(value)

    collect()
    return values


def stranger_cases(seconds: float) -> tuple[int, int]:
    """Count cases over TLS, and the connections on which the coordinator sent a Welcome."""
    door, until = Door(Signer().public_key), time.monotonic() + seconds
    count = welcomes = 0

    async def talk(connection: Any, text: str | bytes) -> None:
        nonlocal count, welcomes
        await connection.recv()
        await connection.send(text)
        count += 1
        async for answer in connection:
            welcomes += isinstance(channel.decode(answer), Welcome)

    asyncio.run(door.connections(lambda: drawn(NOISE | CHANGED, BATCH), talk, until))
    return count, welcomes


def member_cases(seconds: float) -> int:
    """Count messages of an admitted node and its worker, all to one session."""
    door, until = Door(), time.monotonic() + seconds
    script = st.booleans().flatmap(
        lambda node: st.tuples(
            st.just(node), st.lists(st.sampled_from(OF_NODES if node else OF_WORKERS).flatmap(twisted), max_size=12)
        )
    )
    count = 0

    async def talk(connection: Any, chosen: tuple[bool, list[str]]) -> None:
        nonlocal count
        node, words = chosen
        await channel.greet(connection, hello() if node else worker_hello(), SecretStr(TOKEN))  # type: ignore[arg-type]
        for word in words:
            await connection.send(word)
            count += 1
        await (await connection.ping())  # all of it was read

    asyncio.run(door.connections(lambda: drawn(script, BATCH), talk, until))
    return count
