"""Nodes and workers that only speak the protocol, to show the coordinator many machines.

    light_members.py FOLDER FIRST COUNT BASES

Each of the COUNT members has two TLS connections, its node's and its worker's, and connects again if one is lost. The
first BASES of all members are base nodes. A worker that is ordered to proceed reaches the next boundary at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import sys
from pathlib import Path
from typing import Any

from dyntrain.training.protocol import channel
from dyntrain.training.protocol.messages import (
    CheckIn,
    FirstStep,
    Form,
    Formed,
    Go,
    Leave,
    Position,
    Prepared,
    Proceed,
    WorkerHello,
)
from dyntrain.training.protocol.node_messages import GroupReady, NodeHello, Retire, StartGroup, WorkerStarted
from dyntrain.training.worker.membership.dialogue import Dialogue
from files_as_hosts import ENDPOINT
from pydantic import SecretStr
from websockets.exceptions import WebSocketException

EPOCHS = 1_000_000
RETRY = 0.2
CHECKS = tuple((f"the momentum of stage{number}_batchnorm_gamma", f"{number:08x}") for number in range(320))
"""As many arrays as ResNet-50 has of weights and momenta."""


def instance(number: int) -> str:
    return f"i-{number:08x}"


class Member:
    def __init__(self, folder: Path, number: int, base: bool) -> None:
        self._folder, self._name, self._base, self._pid = folder, instance(number), base, 1000 + number
        self._address = f"10.0.{number // 250}.{1 + number % 250}"
        self._dialogue, self._form, self._first = Dialogue(), None, False
        self._connection: Any = None

    async def run(self) -> None:
        await asyncio.gather(self._again(self._be_node), self._again(self._be_worker))

    async def _again(self, part: Any) -> None:
        while True:
            with contextlib.suppress(OSError, ValueError, WebSocketException, TimeoutError):
                words = json.loads((self._folder / ENDPOINT).read_text())
                endpoint = words["endpoint"]
                async with await channel.connect(endpoint["url"], endpoint["certificate"]) as connection:
                    await part(connection, SecretStr(words["token"]))
            await asyncio.sleep(RETRY * (0.5 + random.random()))

    def _who(self) -> dict[str, Any]:
        return {"cluster": "bench", "instance_id": self._name, "private_ip": self._address}

    async def _be_node(self, connection: Any, token: SecretStr) -> None:
        hello = NodeHello(**self._who(), attempt=1, base=self._base, worker_pid=self._pid)
        await channel.greet(connection, hello, token)
        await connection.send(channel.encode(WorkerStarted(pid=self._pid)))
        ready = channel.encode(GroupReady(scheduler_port=10_000, blanks=2))
        if self._base:
            await connection.send(ready)
        async for text in connection:
            match channel.decode(text):
                case StartGroup():
                    await connection.send(ready)
                case Retire():
                    return

    async def _be_worker(self, connection: Any, token: SecretStr) -> None:
        hello = WorkerHello(
            **self._who(),
            pid=self._pid,
            state_port=9000,
            epochs=EPOCHS,
            samples=1000,
            global_batch=1000,
            seed=0,
            layout="x",
            **self._dialogue.hello_fields(),
        )
        challenge = await connection.recv()
        await connection.send(channel.encode(channel.answer_challenge(challenge, hello, token)))
        if self._dialogue.pending is not None:
            await connection.send(channel.encode(self._dialogue.pending))
        async for text in connection:
            order = channel.decode(text)
            if self._dialogue.accept(order):
                for word in self._answers(order):
                    await connection.send(channel.encode(word))

    def _answers(self, order: Any) -> list[Any]:
        match order:
            case Form():
                self._form, self._first = order, True
                return [self._awaiting(Prepared(generation=order.generation))]
            case Go():
                return [self._awaiting(Formed(generation=order.generation, digest="same"))]
            case Proceed():
                first, self._first = self._first, False
                at = Position(epoch=order.position.epoch + 1, offset=0, step=order.position.step + 1)
                done = CheckIn(
                    generation=order.generation, position=at, pid=self._pid, samples=4, seconds=0.1, checks=CHECKS
                )
                began = [FirstStep(generation=order.generation, pause=0.1)] if first else []
                return [*began, self._awaiting(done)]
            case Leave():
                return []
        return []

    def _awaiting(self, word: Any) -> Any:
        self._dialogue.sent(word)
        return word


async def main(folder: Path, first: int, count: int, bases: int) -> None:
    await asyncio.gather(*(Member(folder, number, number < bases).run() for number in range(first, first + count)))


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), *map(int, sys.argv[2:5])))
