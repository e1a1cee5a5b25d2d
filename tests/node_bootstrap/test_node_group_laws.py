"""A node's ps-lite processes, word by word, without a process: what is offered, which orders count, and what is told.

What would break for a user: a generation whose dead server nobody hears of, servers of an earlier one that live on, or
a node that offers what it does not have.
"""

from __future__ import annotations

import asyncio

from dyntrain.training.protocol.node_messages import GroupFailed
from node_group_bed import WANTED, Node, on


def test_a_group_is_offered_while_enough_are_ready_at_one_port_until_it_is_used() -> None:
    async def scenario(node: Node) -> None:
        node.quick = False
        await asyncio.sleep(1.0)
        assert (len(node.blanks), node.offers) == (2 * WANTED, [])
        for count, blank in enumerate(node.blanks, 1):
            blank.is_started.set()
            await asyncio.sleep(0.001)
            assert [offer.blanks for offer in node.offers] == ([count] if count >= WANTED else [])
        assert {offer.scheduler_port for offer in node.messages} == {10_001}
        await node.form(1)
        assert [offer.scheduler_port for offer in node.offers] == [10_002]
        assert node.messages[-1] == node.offers[0], "the next is offered at once"
        assert not node.messages[-1].base
        node.group.become_base()
        assert node.messages[-1] == node.offers[0]
        assert node.messages[-1].base

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
        assert [message.generation for message in node.group.state() if isinstance(message, GroupFailed)] == [2]
        await node.group.stop(1)
        assert [message.generation for message in node.group.state() if isinstance(message, GroupFailed)] == [2]
        await node.group.stop(2)
        assert not [message for message in node.group.state() if isinstance(message, GroupFailed)], (
            "it is no news any more"
        )

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
        await node.group.forget_groups()
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
