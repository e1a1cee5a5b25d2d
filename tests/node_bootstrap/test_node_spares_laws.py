"""Warm spares on a clock of their own, without a process: when one is started, which is taken, and which are ended.
What would break for a user: spares that take the processor from the worker, that are started without a pause for ever,
that hang unseen until they are needed, or that stay behind with the memory of a model.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from typing import Any
from unittest.mock import patch

import pytest
from dyntrain.node_bootstrap.core import pacing
from dyntrain.node_bootstrap.core.pacing import Backoff, Timing
from dyntrain.node_bootstrap.host.processes import Program
from dyntrain.node_bootstrap.supervision import spares
from dyntrain.node_bootstrap.supervision.spares import Spares
from node_clock import lived, seconds

TIMING = Timing(spare_delay_seconds=2.0, blank_backoff=Backoff(5.0, 40.0), spare_start_seconds=100.0)
NOBODY = 1 << 23  # no process has such a number


class Line:
    """To one spare; it never gets ready by itself."""

    environment, child_fd = dict[str, str](), 0

    def __init__(self) -> None:
        self.is_ready, self.listens = asyncio.Event(), True
        self.handed = self.closed = self.started = False

    def __enter__(self) -> Line:
        return self

    def __exit__(self, *error: object) -> None:
        self.closed = True

    def close_child_end(self) -> None:
        self.handed = True

    async def ready(self) -> bool:
        await self.is_ready.wait()
        return self.listens

    def go(self) -> bool:
        self.started = True
        return self.listens


class Child:
    grace = 0.0

    def __init__(self, pid: int, line: Line, nice: int) -> None:
        self.pid, self.line, self.nice, self.over = pid, line, nice, asyncio.Event()

    async def wait(self) -> int:
        await self.over.wait()
        return 0

    async def stop(self) -> None:
        await asyncio.sleep(self.grace)
        self.dies()

    def dies(self) -> None:
        self.line.listens = self.line.listens and self.line.is_ready.is_set()
        self.line.is_ready.set()
        self.over.set()


class Node:
    def __init__(self, count: int) -> None:
        here: Any = self
        self.needed, self.starts, self.takes = True, True, 0.0
        self.children, self.lines, self.at = list[Child](), list[Line](), list[float]()
        self.spares = Spares(Program(("worker",), {}, None), count, here, lambda: self.needed, TIMING)

    def line(self) -> Line:
        self.lines.append(Line())
        return self.lines[-1]

    async def start(self, name: str, program: Program, nice: int) -> Child:
        self.at.append(seconds())
        if not self.starts:
            raise OSError("no memory")
        child = Child(NOBODY + len(self.children), self.lines[-1], nice)
        self.children.append(child)
        await asyncio.sleep(self.takes)
        return child

    async def ready(self, number: int) -> None:
        self.children[number].line.is_ready.set()
        await asyncio.sleep(0.001)


def on(count: int, scenario: Callable[[Node], Awaitable[None]]) -> None:
    async def live() -> None:
        node = Node(count)
        with patch.object(spares, "StandbySocket", node.line):
            task = asyncio.create_task(node.spares.run())
            await scenario(node)
            assert not task.done()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await asyncio.sleep(0.001)
        assert all(line.closed for line in node.lines), "nothing watches them any more"

    lived(live(), spares, pacing)


def test_one_at_a_time_with_a_pause_up_to_their_number() -> None:
    async def scenario(node: Node) -> None:
        await asyncio.sleep(50.0)
        assert (node.at, node.spares.ready_count, len(node.spares.pids)) == ([2.0], 0, 1)
        await node.ready(0)
        await asyncio.sleep(5.0)
        assert [round(at) for at in node.at] == [2, 52]
        await node.ready(1)
        await asyncio.sleep(50.0)
        assert (len(node.at), node.spares.ready_count) == (2, 2)
        assert {child.nice for child in node.children} == {spares.SPARE_NICENESS}
        assert all(line.handed for line in node.lines), "the end of a process is the end of its line"

    on(2, scenario)


def test_none_is_started_that_is_not_needed_also_when_that_ends_in_the_pause() -> None:
    async def scenario(node: Node) -> None:
        await asyncio.sleep(1.0)
        node.needed = False
        await asyncio.sleep(50.0)
        assert node.at == []
        node.needed = True
        await asyncio.sleep(50.0)
        assert node.at == [], "nobody said so"
        node.spares.notify_change()
        await asyncio.sleep(3.0)
        assert len(node.at) == 1

    on(1, scenario)


def test_a_ready_one_is_taken_before_one_that_is_not_at_full_priority_and_another_follows() -> None:
    async def scenario(node: Node) -> None:
        await asyncio.sleep(3.0)
        await node.ready(0)
        await asyncio.sleep(3.0)
        first, second = node.children
        with patch.object(os, "setpriority") as raised:
            assert node.spares.take_spare() is first
            assert node.spares.take_spare() is second, "better than none: it finds the word when it is ready"
        mine = os.getpriority(os.PRIO_PROCESS, 0)
        assert [call.args for call in raised.call_args_list] == [
            (os.PRIO_PGRP, child.pid, mine) for child in (first, second)
        ]
        assert node.spares.take_spare() is None
        assert (first.line.started, second.line.started) == (True, True)
        await asyncio.sleep(3.0)
        assert len(node.children) == 3

    on(2, scenario)


def test_the_later_one_is_taken_where_only_that_is_ready() -> None:
    async def scenario(node: Node) -> None:
        await asyncio.sleep(3.0)
        await node.ready(0)
        await asyncio.sleep(3.0)
        await node.ready(1)
        node.spares.take_spare()
        await asyncio.sleep(3.0)
        assert node.spares.pids == [NOBODY + 1, NOBODY + 2]
        node.spares._waiting.reverse()
        taken = node.spares.take_spare()
        assert taken is node.children[1]

    on(2, scenario)


def test_one_that_does_not_listen_any_more_is_not_taken() -> None:
    async def scenario(node: Node) -> None:
        for number in range(2):
            await asyncio.sleep(3.0)
            await node.ready(number)
        node.lines[0].listens = False
        assert node.spares.take_spare() is node.children[1]
        assert node.spares.take_spare() is None

    on(2, scenario)


@pytest.mark.parametrize("cannot", [True, False], ids=["cannot be started", "die"])
def test_those_that_fail_are_made_good_after_ever_longer_pauses_until_one_is_ready(cannot: bool) -> None:
    async def scenario(node: Node) -> None:
        node.starts = not cannot
        for pause in (2.0, 10.0, 20.0, 40.0, 40.0):
            before = len(node.at)
            await asyncio.sleep(pause * 0.5)
            assert len(node.at) == before, pause
            await asyncio.sleep(pause * 0.5 + 0.01)
            assert len(node.at) == before + 1, pause
            if not cannot:
                node.children[-1].dies()
                await asyncio.sleep(0.001)
        node.starts = True
        await asyncio.sleep(41.0)
        await node.ready(-1)
        node.children[-1].dies()
        await asyncio.sleep(11.0)
        assert seconds() - node.at[-1] < 2.0, "those before are forgiven"

    on(1, scenario)


def test_one_that_hangs_is_ended_and_the_next_has_twice_the_time() -> None:
    async def scenario(node: Node) -> None:
        ends = [(102.0, 0), (312.0, 1), (732.0, 2)]
        for at, number in ends:
            await asyncio.sleep(at - 0.5 - seconds())
            assert not node.children[number].over.is_set(), number
            await asyncio.sleep(1.0)
            assert node.children[number].over.is_set(), number
            assert node.spares.pids == []
        await asyncio.sleep(50.0)
        await node.ready(3)
        node.children[3].dies()
        await asyncio.sleep(11.0)
        began = node.at[4]
        await asyncio.sleep(began + 99.0 - seconds())
        assert not node.children[4].over.is_set()
        await asyncio.sleep(2.0)
        assert node.children[4].over.is_set(), "one that got ready shows that the others just hung"

    on(1, scenario)


def test_one_that_was_taken_before_it_was_ready_is_not_ended_here() -> None:
    """The coordinator has a bound of its own for it."""

    async def scenario(node: Node) -> None:
        await asyncio.sleep(3.0)
        taken = node.spares.take_spare()
        await asyncio.sleep(500.0)
        assert taken is node.children[0]
        assert not taken.over.is_set()
        assert not node.lines[0].closed, "the end of the line would end it"

    on(1, scenario)


def test_one_that_hangs_is_not_taken_while_it_is_being_ended() -> None:
    async def scenario(node: Node) -> None:
        await asyncio.sleep(3.0)
        node.children[0].grace = 5.0
        await asyncio.sleep(100.0)
        assert not node.children[0].over.is_set()
        assert node.spares.take_spare() is None

    on(1, scenario)


def test_others_follow_those_that_were_discarded() -> None:
    async def scenario(node: Node) -> None:
        await asyncio.sleep(3.0)
        await node.ready(0)
        await node.spares.discard_spares()
        await asyncio.sleep(3.0)
        assert node.spares.pids == [NOBODY + 1]

    on(1, scenario)


def test_those_that_wait_and_one_that_is_being_started_are_discarded_together() -> None:
    async def scenario(node: Node) -> None:
        await asyncio.sleep(3.0)
        await node.ready(0)
        node.takes = 5.0
        await asyncio.sleep(4.0)
        assert len(node.children) == 2
        await node.spares.discard_spares()
        assert (node.spares.pids, node.children[0].over.is_set()) == ([], True)
        await asyncio.sleep(4.0)
        assert node.children[1].over.is_set(), "it opened the same job's files"
        await asyncio.sleep(10.0)
        assert [child.over.is_set() for child in node.children] == [True, True, False]

    on(2, scenario)
