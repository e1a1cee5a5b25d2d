"""A node's ps-lite processes, word by word, without a process: what is offered, which orders count, and what is told.

What would break for a user: a generation whose dead server nobody hears of, servers of an earlier one that live on, or
a node that offers what it does not have.
"""

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

TIMING = Timing(formation=2.0, blank=Backoff(1.0, 4.0), blank_start=120.0)
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

    def last_words(self, limit: int = 0) -> str:
        return "why"


class Node:
    """Blanks are ready at once while `quick`; the host's fork servers are `servers`."""

    environment, theirs = dict[str, str](), None

    def __init__(self) -> None:
        here: Any = self
        self.servers, self.blanks, self.told = list[Child](), list[Blank](), list[Any]()
        self.quick, self.ports, self.forks = True, 10_000, list[float]()
        self.group = PsGroup(here, WANTED, "here", here, self.tell, TIMING)

    def given(self, *line: Any) -> Node:
        return self

    def handed_over(self) -> None: ...

    def close(self) -> None: ...

    def tell(self, message: Any) -> bool:
        self.told.append(message)
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
        return [said for said in self.group.state() if isinstance(said, GroupReady)]

    @property
    def failures(self) -> list[int]:
        return [said.generation for said in self.told if isinstance(said, GroupFailed)]


def on(scenario: Callable[[Node], Awaitable[None]]) -> None:
    async def live() -> None:
        node = Node()
        with patch.object(group, "ForkServerSocket", lambda: node), patch.object(group, "free_port", node.free_port):
            task = asyncio.create_task(node.group.run())
            await scenario(node)
            assert not task.done()
            task.cancel()

    lived(live(), group)


def test_a_group_is_offered_while_enough_are_ready_at_one_port_until_it_is_used() -> None:
    async def scenario(node: Node) -> None:
        node.quick = False
        await asyncio.sleep(1.0)
        assert (len(node.blanks), node.offers) == (2 * WANTED, [])
        for count, blank in enumerate(node.blanks, 1):
            blank.is_started.set()
            await asyncio.sleep(0.001)
            assert [offer.blanks for offer in node.offers] == ([count] if count >= WANTED else [])
        assert {offer.scheduler_port for offer in node.told} == {10_001}
        await node.form(1)
        assert [offer.scheduler_port for offer in node.offers] == [10_002]
        assert node.told[-1] == node.offers[0], "the next is offered at once"
        assert not node.told[-1].base
        node.group.of_base()
        assert node.told[-1] == node.offers[0]
        assert node.told[-1].base

    on(scenario)


def test_an_order_counts_once_and_not_after_the_word_to_stop() -> None:
    async def scenario(node: Node) -> None:
        await asyncio.sleep(1.0)
        assert len(await node.form(2)) == 2
        assert await node.form(2) == []
        await node.group.stop(3)
        for late in (1, 2, 3):
            assert await node.form(late) == [], late
        assert len(await node.form(4)) == 2

    on(scenario)


def test_the_word_to_stop_ends_earlier_generations_and_no_later_one() -> None:
    async def scenario(node: Node) -> None:
        await asyncio.sleep(1.0)
        one, two, three = await node.form(1), await node.form(2), await node.form(3)
        await node.group.stop(2)
        assert all(blank.stopped for blank in one + two)
        assert not any(blank.stopped for blank in three)
        await node.group.stop(1)
        assert await node.form(2) == [], "an earlier word does not take a later one back"
        assert node.failures == [], "they were told to"

    on(scenario)


def test_a_process_that_ends_is_told_unless_it_ended_in_order() -> None:
    async def scenario(node: Node) -> None:
        await asyncio.sleep(1.0)
        one, two = await node.form(1), await node.form(2)
        await node.ends(one[0], in_order=True)
        assert node.failures == []
        await node.ends(one[1])
        await node.ends(two[1])
        assert node.failures == [1, 2]
        assert [said.generation for said in node.group.state() if isinstance(said, GroupFailed)] == [2]
        await node.group.stop(1)
        assert [said.generation for said in node.group.state() if isinstance(said, GroupFailed)] == [2]
        await node.group.stop(2)
        assert not [said for said in node.group.state() if isinstance(said, GroupFailed)], "it is no news any more"

    on(scenario)


def test_used_blanks_are_made_good_when_the_group_stands_or_soon_after() -> None:
    async def scenario(node: Node) -> None:
        await asyncio.sleep(1.0)
        await node.form(1)
        await asyncio.sleep(1.5)
        assert len(node.forks) == 4, "forks would slow it down"
        await asyncio.sleep(1.0)
        assert len(node.forks) == 6
        await node.form(2)
        await node.group.stop(1)
        await asyncio.sleep(0.001)
        assert len(node.forks) == 8, "the group before goes when the present one is formed"

    on(scenario)


def test_blanks_that_die_are_made_good_after_pauses_until_one_is_ready() -> None:
    async def scenario(node: Node) -> None:
        await asyncio.sleep(1.0)
        await node.ends(node.blanks[0])
        await asyncio.sleep(0.5)
        assert len(node.forks) == 4
        await asyncio.sleep(1.0)
        assert len(node.forks) == 5
        assert (node.failures, len(node.offers)) == ([], 1), "it was nobody's"
        for more in (1, 2):  # those before are forgiven: one was ready since
            await node.ends(node.blanks[more])
            await asyncio.sleep(1.5)
            assert len(node.forks) == 5 + more

    on(scenario)


def test_the_readiest_blank_is_taken_and_one_is_made_where_none_is() -> None:
    async def scenario(node: Node) -> None:
        node.quick = False
        await asyncio.sleep(1.0)
        node.blanks[2].is_started.set()
        await asyncio.sleep(0.001)
        assert node.blanks[2] in await node.form(1, "server")
        assert len(await node.form(2, *["server"] * 5)) == 5

    on(scenario)


def test_a_server_that_does_not_answer_is_given_nothing_and_another_follows() -> None:
    async def scenario(node: Node) -> None:
        node.quick = False
        await asyncio.sleep(119.0)
        assert len(node.servers) == 1
        node.quick = True
        await asyncio.sleep(1.5)
        assert not node.servers[0].over.is_set(), "it is being ended"
        assert set(await node.form(1)) <= set(node.servers[1].blanks)
        await asyncio.sleep(20.0)
        assert len(node.servers) == 2, "the end of the one before does not end the next"
        assert node.servers[0].over.is_set()
        assert [offer.blanks for offer in node.offers] == [4]
        assert set(await node.form(2)) <= set(node.servers[1].blanks)

    on(scenario)


def test_a_server_that_dies_takes_its_blanks_with_it_and_another_follows() -> None:
    async def scenario(node: Node) -> None:
        await asyncio.sleep(1.0)
        one = await node.form(1)
        node.quick = False
        for _ in range(3):
            server = node.servers[-1]
            server.over.set()
            for blank in server.blanks:
                await blank.stop()
            await asyncio.sleep(20.0)
        assert node.failures == [1] * len(one)
        assert len(node.servers) == 4
        assert node.offers == []

    on(scenario)


def test_the_next_job_counts_anew_with_the_same_blanks() -> None:
    async def scenario(node: Node) -> None:
        await asyncio.sleep(1.0)
        one = await node.form(7)
        await node.group.forget()
        assert all(blank.stopped for blank in one)
        assert not any(blank.stopped for blank in node.blanks if blank not in one)
        assert len(await node.form(1)) == 2

    on(scenario)


def test_at_the_end_of_the_node_nothing_is_left_and_nothing_is_made() -> None:
    async def scenario(node: Node) -> None:
        await asyncio.sleep(1.0)
        await node.form(1)
        await node.group.stop_all()
        await asyncio.sleep(50.0)
        assert all(blank.stopped for blank in node.blanks)
        assert [server.over.is_set() for server in node.servers] == [True]

    on(scenario)
