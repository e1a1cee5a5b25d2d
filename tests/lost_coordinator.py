"""A cluster whose coordinator is gone, on a clock of its own: what its nodes ask of Parameter Store, and when each has
found the next coordinator. The nodes' channel, isolation and reading are the real ones; connections are not.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

from dyntrain.controller.contract.messages import CoordinatorEndpoint, Target, parameter
from dyntrain.node_bootstrap.core.pacing import Timing
from dyntrain.node_bootstrap.instance.identity import Identity
from dyntrain.node_bootstrap.reports import published
from dyntrain.node_bootstrap.reports.published import PublishedParameters
from dyntrain.node_bootstrap.supervision import control_channel, isolation
from dyntrain.node_bootstrap.supervision.control_channel import ControlChannel
from dyntrain.node_bootstrap.supervision.isolation import Isolation
from node_clock import lived, seconds

ISOLATED = 60.0  # seconds after which a node without a coordinator stops its worker
OLD, NEW = "wss://old", "wss://new"


def identity(number: int = 0, *, base: bool = False) -> Identity:
    address = f"10.0.{number // 250}.{number % 250}"
    return Identity(f"i-{number:017x}", address, "eu-west-1", "demo", base=base, master=False, tags={})


@dataclass
class Lost:
    """Seconds since the coordinator was lost: of each request, and of each node's connection to the next one."""

    lasting: float
    requests: list[float] = field(default_factory=list)
    connections: list[float] = field(default_factory=list)

    @property
    def a_second(self) -> float:
        """Requests, on the average of the time without a coordinator."""
        return sum(at < self.lasting for at in self.requests) / self.lasting

    @property
    def busiest(self) -> int:
        """The most requests within one second."""
        return max(Counter(int(at) for at in self.requests).values(), default=0)


class _Store:
    """Parameter Store: the next coordinator is published after `lasting` seconds."""

    def __init__(self, nodes: int, lost: Lost) -> None:
        self._lost = lost
        target = Target(revision=1, count=nodes, digest="d", members=None, pointer="cluster#demo/target")
        self._same = {parameter("demo", "target"): target.model_dump_json(), parameter("demo", "token"): "t"}

    def get(self, *names: str) -> dict[str, str]:
        self._lost.requests.append(seconds())
        url = NEW if seconds() >= self._lost.lasting else OLD
        endpoint = CoordinatorEndpoint(
            cluster="demo", job="j", instance_id="i-1", url=url, certificate="none", published_at=1.0
        )
        return {**self._same, parameter("demo", "coordinator"): endpoint.model_dump_json()}


async def _here(call: Callable[..., Any], *arguments: Any) -> Any:
    return call(*arguments)


async def _node(one: PublishedParameters, lost: Lost) -> None:
    """Until it has found the next coordinator; that it is admitted there takes another answer of the target."""

    async def nothing(*words: Any) -> bool:
        return True

    alone = Isolation(nothing, nothing, one.is_wanted, lambda reason: None, ISOLATED, Timing().controller_query_backoff)
    alone.on_disconnect()
    channel = ControlChannel("demo", one.access, Timing())

    async def converse(access: Any, receiver: Any) -> Any:
        if access.endpoint.url == OLD:
            raise OSError("nobody listens")
        lost.connections.append(seconds())
        channel.leave()
        return control_channel.ConnectionEnd.CLOSED

    waiting = asyncio.create_task(alone.run())
    with patch.object(channel, "_run_connection", converse):
        await channel.run(None)  # type: ignore[arg-type]
    waiting.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await waiting


def simulate(nodes: int, *, base: int = 0, placed: bool = True, lasting: float = 300.0) -> Lost:
    """`base` of the `nodes` are base nodes, which do not look for a nomination here; `placed`: the lost coordinator had
    told them the order of the nodes.
    """
    lost = Lost(lasting)
    identities = [identity(number, base=number < base) for number in range(nodes)]
    store = _Store(nodes, lost)

    async def scenario() -> None:
        cluster = [PublishedParameters(store, one, Timing()) for one in identities]
        for one in cluster:
            if placed:
                one.set_addresses([other.private_ip for other in identities])
            await one.access()  # when it had booted
        lost.requests.clear()
        await asyncio.gather(*(_node(one, lost) for one in cluster))

    with patch.object(published.asyncio, "to_thread", _here):
        lived(scenario(), published, control_channel, isolation)
    return lost
