"""N6 at the coordinator's door: whatever a stranger or a confused node says there is refused and logged, and the
session never hears of it.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import functools
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Any, get_args

import pytest
from dyntrain.controller.contract.instance_identity import Keys, parse_keys
from dyntrain.controller.contract.messages import SignedDocument
from dyntrain.controller.local.machines.identity import InstanceFacts, Signer, identity_document
from dyntrain.controller.local.pace import patient
from dyntrain.training.coordinator.control import ControlServer
from dyntrain.training.protocol import channel
from dyntrain.training.protocol.admission import HelloChecker, HelloRefusal, with_proof
from dyntrain.training.protocol.certificate import Certificate, make_certificate
from dyntrain.training.protocol.clocks import Clocks
from dyntrain.training.protocol.messages import (
    MAX_BYTES,
    PROTOCOL,
    Challenge,
    CheckIn,
    Left,
    Position,
    Refused,
    WorkerHello,
)
from dyntrain.training.protocol.node_messages import GroupFailed, NodeHello, Welcome
from dyntrain.training.protocol.wire import FromNode, FromWorker, parse_from_coordinator, parse_to_coordinator
from forged_messages import MESSAGES, NOISE, changed
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr, ValidationError
from waiting import until
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed

NODE, OTHER, ADDRESS, TOKEN = "i-0123456789abcdef0", "i-0fedcba9876543210", "10.0.0.7", "the-token-of-this-job"
FACTS = InstanceFacts(NODE, "ami-1", "c5.large", ADDRESS, "us-east-1a", "us-east-1", "123456789012", 0.0, None)
SIGNER = Signer()
KEYS = parse_keys(SIGNER.public_key)


@functools.cache
def certificate() -> Certificate:
    return make_certificate("127.0.0.1", dt.datetime.now(dt.UTC))


def signed(facts: InstanceFacts = FACTS, signer: Signer = SIGNER) -> SignedDocument:
    return SignedDocument(document=identity_document(facts), signature=signer.sign(identity_document(facts)))


def hello(**changes: Any) -> NodeHello:
    return NodeHello(
        **{
            "cluster": "demo",
            "instance_id": NODE,
            "private_ip": ADDRESS,
            "attempt": 1,
            "base": True,
            "identity": signed(),
            **changes,
        }
    )


def worker_hello(**changes: Any) -> WorkerHello:
    fields = {
        "cluster": "demo",
        "instance_id": NODE,
        "private_ip": ADDRESS,
        "pid": 7,
        "state_port": 9,
        "identity": signed(),
    }
    return WorkerHello(**{**fields, "epochs": 1, "samples": 1, "global_batch": 1, "seed": 1, "layout": "x", **changes})


@dataclass
class HeardSession:
    """Stands where the session stands, and keeps what reaches it."""

    heard: list[tuple[str, tuple[Any, ...]]] = field(default_factory=list)
    launch: None = None

    def __getattr__(self, name: str) -> Callable[..., list[Any]]:
        def hear(*arguments: Any) -> list[Any]:
            self.heard.append((name, arguments))
            return []

        return hear

    def named(self) -> list[str]:
        return [name for name, _ in self.heard]


@contextlib.asynccontextmanager
async def door(keys: Keys = KEYS) -> AsyncIterator[tuple[str, HeardSession]]:
    session = HeardSession()
    server = ControlServer(session, "j", HelloChecker("demo", TOKEN, keys), lambda orders: None)  # type: ignore[arg-type]
    async with server.listen("127.0.0.1", certificate().server_context(), Clocks(60.0)) as port:
        yield f"wss://127.0.0.1:{port}", session


async def ended(connection: ClientConnection) -> str:
    """The reason of the refusal, if one was given, once the coordinator has closed the connection."""
    reason = ""
    with contextlib.suppress(ConnectionClosed):
        async with asyncio.timeout(patient(10)):
            while True:
                message = parse_from_coordinator(await connection.recv())
                reason = message.reason if isinstance(message, Refused) else reason
    return reason


async def nonce_of(connection: ClientConnection) -> str:
    first = parse_from_coordinator(await connection.recv())
    assert isinstance(first, Challenge)
    return first.nonce


async def knock(say: Callable[[ClientConnection], Awaitable[None]], keys: Keys = KEYS) -> tuple[str, list[str]]:
    """The reason given and what reached the session, when `say` speaks on a fresh connection."""
    async with door(keys) as (url, session), await channel.connect(url, certificate().pem) as connection:
        await say(connection)
        reason = await ended(connection)
    return reason, session.named()  # the door is closed: whatever was under way has been heard


def greeting(hello: NodeHello | WorkerHello, token: str = TOKEN) -> Callable[[ClientConnection], Awaitable[None]]:
    return lambda connection: channel.greet(connection, hello, SecretStr(token))  # type: ignore[arg-type]


def raw(text: str | bytes) -> Callable[[ClientConnection], Awaitable[None]]:
    return lambda connection: connection.send(text)


STRANGERS = {
    "without a proof": (raw(hello().model_dump_json()), HelloRefusal.UNPROVEN.value),
    "wrong token": (greeting(hello(), "guessed"), HelloRefusal.UNPROVEN.value),
    "a worker with a wrong token": (greeting(worker_hello(), "guessed"), HelloRefusal.UNPROVEN.value),
    "the token in the clear": (
        raw(json.dumps({**hello().model_dump(), "token": TOKEN, "proof": TOKEN})),
        HelloRefusal.UNPROVEN.value,
    ),
    "another cluster": (greeting(hello(cluster="other")), HelloRefusal.OTHER_CLUSTER.value),
    "another version": (greeting(hello(protocol=PROTOCOL - 1)), HelloRefusal.OTHER_PROTOCOL.value),
    "another node's name": (greeting(hello(instance_id=OTHER)), HelloRefusal.NOT_ITSELF.value),
    "another node's name, as a worker": (greeting(worker_hello(instance_id=OTHER)), HelloRefusal.NOT_ITSELF.value),
    "another node's address": (greeting(hello(private_ip="10.0.0.8")), HelloRefusal.NOT_ITSELF.value),
    "an identity signed by itself": (greeting(hello(identity=signed(signer=Signer()))), HelloRefusal.NOT_ITSELF.value),
    "no identity": (greeting(hello(identity=None)), HelloRefusal.NOT_ITSELF.value),
    "an order instead of a hello": (raw(Left(generation=1).model_dump_json()), "the first message is not a hello"),
    "not JSON": (raw("hello?"), "the first message is not a hello"),
    "bytes": (raw(b"\x00\xff"), "the first message is not a hello"),
    "JSON of another form": (raw('[{"type": "node_hello"}]'), "the first message is not a hello"),
    "oversized": (raw("x" * (MAX_BYTES + 1)), ""),
}


@pytest.mark.parametrize("stranger", STRANGERS)
def test_n6_strangers_are_refused_and_change_nothing(stranger: str, caplog: pytest.LogCaptureFixture) -> None:
    say, reason = STRANGERS[stranger]
    with caplog.at_level(logging.INFO, "control"):
        given_reason, heard = asyncio.run(knock(say))
    assert (given_reason, heard) == (reason, [])
    refusals = [record.getMessage() for record in caplog.records if record.name == "control"]
    assert len(refusals) == 1
    assert refusals[0].startswith("refused a connection from 127.0.0.1")
    assert not any(secret in refusals[0] for secret in (TOKEN, "guessed", signed().signature, "pendingTime"))


def test_n6_a_hello_recorded_on_one_connection_opens_no_other() -> None:
    """Even one that was let in: whoever gets hold of it later, from a core dump or a debug log, must still not be able
    to use it.
    """

    async def scenario() -> tuple[str, list[str]]:
        async with door() as (url, session):
            async with await channel.connect(url, certificate().pem) as connection:
                recorded = channel.encode(with_proof(hello(), TOKEN, await nonce_of(connection)))
                await connection.send(recorded)
                await connection.ping()
            async with await channel.connect(url, certificate().pem) as connection:
                await connection.send(recorded)
                return await ended(connection), session.named()

    reason, heard = asyncio.run(scenario())
    assert reason == HelloRefusal.UNPROVEN.value
    assert heard.count("node_connected") == 1


def test_n6_a_proof_is_for_one_name_only() -> None:
    """With a hello's proof moved to another hello, a node that is let in could bring in a machine that does not know
    the token.
    """

    async def say(connection: ClientConnection) -> None:
        proven = with_proof(hello(), TOKEN, await nonce_of(connection))
        await connection.send(
            channel.encode(
                hello(instance_id=OTHER, identity=signed(replace(FACTS, instance_id=OTHER)), proof=proven.proof)
            )
        )

    assert asyncio.run(knock(say)) == (HelloRefusal.UNPROVEN.value, [])


def check_in() -> CheckIn:
    return CheckIn(generation=1, position=Position(epoch=0, offset=0, step=0), pid=7)


MISPLACED = {
    "a node that speaks as a worker": (hello(), check_in().model_dump_json()),
    "a node that says hello again, as another": (hello(), hello(instance_id=OTHER).model_dump_json()),
    "a worker that speaks as its node": (worker_hello(), GroupFailed(generation=1, reason="x").model_dump_json()),
    "a worker that says hello again": (worker_hello(), worker_hello(pid=8).model_dump_json()),
    "a node that speaks as the coordinator": (hello(), Welcome(job="j").model_dump_json()),
    "a deadline that is no time": (hello(), '{"type": "node_notice", "kind": "spot", "deadline": NaN}'),
    "half a message": (hello(), check_in().model_dump_json()[:-5]),
    "oversized": (worker_hello(), "x" * (MAX_BYTES + 1)),
}


@pytest.mark.parametrize("who", MISPLACED)
def test_n6_words_that_are_not_the_speakers_end_its_connection(who: str, caplog: pytest.LogCaptureFixture) -> None:
    greeted, message = MISPLACED[who]

    async def say(connection: ClientConnection) -> None:
        await channel.greet(connection, greeted, SecretStr(TOKEN))  # type: ignore[arg-type]
        await connection.send(message)

    with caplog.at_level(logging.WARNING, "control"):
        _, heard = asyncio.run(knock(say))
    assert heard in (["node_connected", "node_lost"], ["worker_connected", "worker_disconnected"])
    assert len([record for record in caplog.records if record.name == "control"]) == 1


def test_without_keys_the_token_alone_lets_a_node_in() -> None:
    """The manual launcher's hosts have no identity documents."""

    async def say(connection: ClientConnection) -> None:
        await channel.greet(connection, hello(identity=None), SecretStr(TOKEN))
        await connection.send("x")  # ends it

    assert asyncio.run(knock(say, keys=()))[1] == ["node_connected", "node_lost"]


def test_a_metric_that_is_no_number_reaches_the_coordinator() -> None:
    """A diverged loss is NaN. A check-in that cannot be read would end the connection, again and again, and with it the
    job.
    """
    sent = check_in().model_copy(update={"metrics": {"loss": (float("nan"), 3.0), "norm": (float("inf"), 3.0)}})
    read = parse_to_coordinator(channel.encode(sent))
    assert isinstance(read, CheckIn)
    assert [str(number) for number in (*read.metrics["loss"], *read.metrics["norm"])] == ["nan", "3.0", "inf", "3.0"]


def understood(text: str | bytes) -> bool:
    with contextlib.suppress(ValidationError):
        parse_to_coordinator(text)
        return True
    return False


def test_every_word_of_the_protocol_is_forged() -> None:
    """A message that is added later would otherwise never be fuzzed."""
    assert {type(message) for message in MESSAGES} == {*get_args(FromNode), *get_args(FromWorker)}


@given(NOISE)
def test_n6_noise_is_never_a_message(noise: str | bytes) -> None:
    """And raises nothing but the error that is handled: another would end the coordinator's task with a traceback for
    every packet.
    """
    assert not understood(noise)


@given(st.sampled_from([with_proof(hello(), TOKEN, "n"), with_proof(worker_hello(), TOKEN, "n")]).flatmap(changed))
def test_n6_a_changed_hello_opens_no_gate(text: str) -> None:
    """Whatever is read out of it, it is refused, unless the change left alone what the proof and the identity cover."""
    if understood(text):
        read = parse_to_coordinator(text)
        covered = ("cluster", "instance_id", "private_ip", "identity", "protocol")
        untouched = all(getattr(read, name, None) == getattr(hello(), name) for name in covered)
        assert (
            untouched
            or not isinstance(read, NodeHello | WorkerHello)
            or HelloChecker("demo", TOKEN, KEYS).find_refusal(read, "n")
        )


def test_of_two_processes_that_name_one_instance_the_second_is_refused_by_name_until_the_first_is_gone() -> None:
    """Two supervisors of one instance end each other's workers for as long as both are let in."""

    async def play() -> tuple[str, list[str], str]:
        async with door() as (url, session):
            async with await channel.connect(url, certificate().pem) as first:
                await greeting(hello(life="one"))(first)
                assert isinstance(parse_from_coordinator(await first.recv()), Welcome)
                async with await channel.connect(url, certificate().pem) as second:
                    await greeting(hello(life="two"))(second)
                    reason = await ended(second)
                heard = session.named()
                async with await channel.connect(url, certificate().pem) as again:
                    await greeting(hello(life="one"))(again)
                    assert isinstance(parse_from_coordinator(await again.recv()), Welcome), "its own line, made anew"
            await until(lambda: "node_lost" in session.named(), what="the first process is gone")
            async with await channel.connect(url, certificate().pem) as second:
                await greeting(hello(life="two"))(second)
                later = parse_from_coordinator(await second.recv())
            return reason, heard, later.type

    reason, heard, later = asyncio.run(play())
    assert reason == (
        f"{NODE} is connected already, from {ADDRESS}; this process, at {ADDRESS}, names the same instance: "
        "give each node an id of its own, or end one of them"
    )
    assert heard == ["node_connected"], "the session hears of the first alone"
    assert later == "welcome"
