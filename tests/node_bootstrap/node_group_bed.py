"""A node's ps-lite processes without a process: blanks, fork servers and what the node tells, on a clock of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any
from unittest.mock import patch

from dyntrain.node_bootstrap.core.pacing import Backoff, Timing
from dyntrain.node_bootstrap.supervision import group
from dyntrain.node_bootstrap.supervision.group import PsGroup
from dyntrain.training.protocol.node_messages import GroupFailed, GroupReady, PsProcess, StartGroup
from node_clock import lived, seconds

TIMING = Timing(group_formation_seconds=2.0, blank_backoff=Backoff(1.0, 4.0), blank_start_seconds=120.0)
WANTED = 2


class Blank:
    def __init__(self, number: int) -> None:
        self.pid, self.role, self.stopped = number, "", False
        self.is_started, self.is_ended = asyncio.Event(), asyncio.Event()
        self.starts = self.in_order = True

    async def started(self, uid: int | None) -> bool:
        await self.is_started.wait()
        return self.starts

    async def give(self, role: str, environment: Any) -> None:
        self.role = role

    async def ended(self) -> bool:
        await self.is_ended.wait()
        return self.in_order

    async def stop(self) -> None:
        self.stopped, self.in_order = True, self.in_order and self.is_ended.is_set()
        self.starts = self.starts and self.is_started.is_set()
        self.is_started.set()
        self.is_ended.set()

    def ends(self, in_order: bool) -> None:
        self.in_order = in_order
        self.is_ended.set()


class Child:
    pid = 1

    def __init__(self) -> None:
        self.over, self.blanks = asyncio.Event(), list[Blank]()

    async def wait(self) -> int:
        await self.over.wait()
        return -9

    async def stop(self) -> None:
        if not self.over.is_set():
            await asyncio.sleep(5.0)  # one that hangs takes its time
        self.over.set()
        for blank in self.blanks:
            await blank.stop()

    def last_output(self, limit: int = 0) -> str:
        return "why"


class Node:
    """Blanks are ready at once while `quick`; the host's fork servers are `servers`."""

    environment, child_fd = dict[str, str](), None

    def __init__(self) -> None:
        here: Any = self
        self.servers, self.blanks, self.messages = list[Child](), list[Blank](), list[Any]()
        self.quick, self.ports, self.forks = True, 10_000, list[float]()
        self.group = PsGroup(here, WANTED, "here", here, self.tell, TIMING)

    def with_environment(self, *line: Any) -> Node:
        return self

    def close_child_end(self) -> None: ...

    def close(self) -> None: ...

    def tell(self, message: Any) -> bool:
        self.messages.append(message)
        return True

    def free_port(self, host: str) -> int:
        self.ports += 1
        return self.ports

    async def start(self, name: str, program: Any) -> Child:
        self.servers.append(Child())
        return self.servers[-1]

    async def fork(self) -> Blank:
        self.forks.append(seconds())
        self.blanks.append(Blank(len(self.blanks)))
        self.servers[-1].blanks.append(self.blanks[-1])
        if self.quick:
            self.blanks[-1].is_started.set()
        return self.blanks[-1]

    async def form(self, generation: int, *roles: str) -> list[Blank]:
        before = [blank for blank in self.blanks if blank.role]
        processes = tuple(PsProcess(role=role, environment={}) for role in roles or ("scheduler", "server"))
        await self.group.start(StartGroup(generation=generation, processes=processes))
        await asyncio.sleep(0.001)
        return [blank for blank in self.blanks if blank.role and blank not in before]

    async def ends(self, blank: Blank, in_order: bool = False) -> None:
        blank.ends(in_order)
        await asyncio.sleep(0.001)

    @property
    def offers(self) -> list[GroupReady]:
        return [message for message in self.group.state() if isinstance(message, GroupReady)]

    @property
    def failures(self) -> list[int]:
        return [message.generation for message in self.messages if isinstance(message, GroupFailed)]


def on(scenario: Callable[[Node], Awaitable[None]]) -> None:
    async def live() -> None:
        node = Node()
        with patch.object(group, "ForkServerSocket", lambda: node), patch.object(group, "free_port", node.free_port):
            task = asyncio.create_task(node.group.run())
            await scenario(node)
            assert not task.done()
            task.cancel()

    lived(live(), group)
