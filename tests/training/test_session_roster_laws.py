"""How a node's failures are counted, and what is known of who is not there. What would break for a user: a good node
that is put aside for failures of long ago, or one that fails for ever and is tried without a pause.
"""

from __future__ import annotations

from typing import Any

import pytest
from dyntrain.training.protocol.node_messages import CoolDown, RestartWorker, StopGroup
from dyntrain.training.session.job.roster import FailureBudget, Roster, UnconnectedWorker
from dyntrain.training.session.orders import Order, ToNode
from session_driver import A, B, C, Driver, words

BUDGET = FailureBudget(restarts=2, window=100.0, cool_down=10.0, give_up_seconds=30.0)


def roster() -> Roster:
    here: Any = object()
    return Roster(BUDGET, nodes={A: here})


def orders_to_node(orders: list[Order]) -> list[tuple[str, int | None]]:
    messages = [order.message for order in orders if isinstance(order, ToNode)]
    return [(message.type, message.pid) for message in messages if isinstance(message, RestartWorker | CoolDown)]


def fails(roster: Roster, *pids: int, at: float) -> list[tuple[str, int | None]]:
    return [order for pid in pids for order in orders_to_node(roster.replace_worker(A, pid, "crash", at))]


def test_failures_that_are_far_apart_count_while_no_worker_has_connected_between() -> None:
    for connects, last in ((False, "cool_down"), (True, "restart_worker")):
        here = roster()
        for pid, at in ((1, 50.0), (2, 200.0), (3, 350.0)):
            orders = fails(here, pid, at=at)
            if connects:
                here.record_connection(A, at + 1.0)
        assert orders == [(last, 3)]


def test_a_node_that_kept_up_for_long_begins_anew_and_one_that_did_not_cools_down_at_once() -> None:
    for later, first in ((111.0, "restart_worker"), (109.0, "cool_down")):
        here = roster()
        assert fails(here, 1, 2, 3, at=0.0)[-1] == ("cool_down", 3)
        assert orders_to_node(here.readmit_nodes(10.0, needed=False)) == [("restart_worker", 3)]
        assert fails(here, 4, at=10.0 + later) == [(first, 4)]


def test_who_cools_down_is_told_so_again_and_ends_with_the_process_it_has_by_then() -> None:
    here = roster()
    fails(here, 1, 2, 3, at=0.0)
    assert here.repeat_replacement(A, 3) == [], "its process is to stay away"
    assert fails(here, 4, at=5.0) == [("cool_down", 4)]
    assert here.readmit_nodes(9.9, needed=False) == []
    nodes, here.nodes = here.nodes, {}
    assert here.readmit_nodes(10.0, needed=False) == [], "it would not hear of it"
    here.nodes = nodes
    assert orders_to_node(here.readmit_nodes(10.0, needed=False)) == [("restart_worker", 4)]
    assert here.readmit_nodes(20.0, needed=False) == [], "once"


def test_a_node_is_called_back_once() -> None:
    here = roster()
    here.left[A] = 7
    assert orders_to_node(here.call_back_nodes([A, B])) == [("restart_worker", 7)]
    assert here.call_back_nodes([A, B]) == []


@pytest.mark.parametrize("name", ["connected_at", "returned_at"])
def test_time_in_which_nothing_could_be_ordered_counts_against_nobody(name: str) -> None:
    here = roster()
    setattr(here, name, 50.0)
    here.extend_deadlines(7.0)
    assert getattr(here, name) == 57.0


def test_one_that_stands_by_is_neither_missed_nor_refused() -> None:
    driver = Driver()
    driver.node(C, base=False)
    here = driver.session.job.roster
    driver.worker(C)
    hello = here.standing.pop(C)
    here.refused[C], here.unconnected[C] = "no", UnconnectedWorker(50, 0.0, 1.0)
    here.add_standing_worker(hello)
    assert (here.refused, here.unconnected, set(here.standing)) == ({}, {}, {C})


def test_the_servers_of_a_loop_that_is_over_are_ended() -> None:
    """Its members are out of them, and the next loop's generation has its own."""
    driver = Driver()
    for name in (A, B):
        driver.node(name)
        driver.worker(name, another=True)
    driver.want(A, B)
    driver.form(A, B)
    orders = driver.check_in(A, B, epoch=3)
    assert {word for _, word in words(orders)} == {"loop_over"}
    stopped = [o for o in orders if isinstance(o, ToNode)]
    assert stopped == [ToNode(name, StopGroup(generation=1)) for name in (A, B)]
