"""Members that are given up and may live: what would break for a user is a state with zeros in it that counts.

A worker without a word from it, behind a link that is cut or on a machine that hangs, ends a step all the same when the
others are freed of it. A coordinator that comes later must not take that worker for one that is ahead.
"""

from __future__ import annotations

import pytest
from dyntrain.training.journal import MembersGivenUp
from dyntrain.training.protocol.messages import START, Position, StepStatus
from dyntrain.training.session.job.state import Phase
from dyntrain.training.session.orders import DropWorker, Journal, Order, ToWorker
from session_driver import A, B, C, Driver, come_back, restarted, words

AHEAD = Position(epoch=0, offset=10, step=1)


def given_up(orders: list[Order]) -> list[tuple[str, ...]]:
    entries = [order.entry for order in orders if isinstance(order, Journal)]
    return [entry.members for entry in entries if isinstance(entry, MembersGivenUp)]


def come_without(driver: Driver, *silent: str) -> list[Order]:
    """All nodes find the coordinator that came back, and the workers but for these."""
    come_back(driver, A, B, C)
    for name in {A, B, C} - {*silent}:
        driver.worker(name, generation=1, stage="trains", position=START)
    driver.now += driver.options.clocks.patience + 1
    return driver.do("tick")


def test_who_did_not_come_back_is_ended_by_its_node(three: Driver) -> None:
    orders = come_without(three, C)
    assert restarted(orders) == {C}
    assert {name for name, word in words(orders) if word == "abort"} == {A, B}


def test_who_is_given_up_is_written_down_before_anybody_is_freed(three: Driver) -> None:
    orders = come_without(three, C)
    assert given_up(orders) == [(C,)]
    kinds = [type(order) for order in orders if isinstance(order, Journal | ToWorker)]
    assert kinds.index(Journal) < kinds.index(ToWorker)


def test_t17_the_next_coordinator_does_not_go_on_from_who_was_given_up(three: Driver) -> None:
    come_without(three, C)
    come_back(three, A, B, C)
    orders = three.worker(C, generation=1, stage="trains", position=AHEAD)
    assert [order.instance_id for order in orders if isinstance(order, DropWorker)] == [C]
    for name in (A, B):
        three.worker(name, generation=1, stage="aborted", position=START)
    assert (three.session.job.phase, set(three.session.job.roster.members)) == (Phase.RELEASING, {A, B})


def test_t17_the_node_of_who_was_given_up_ends_it_also_for_the_next_coordinator(three: Driver) -> None:
    come_without(three, C)
    come_back(three, A, B)
    three.orders.clear()
    three.node(C, worker_pid=0xC)
    assert restarted(three.orders) == {C}


@pytest.mark.parametrize("stage", ["prepares", "waits", "free", "stands"])
def test_t17_who_was_given_up_is_not_taken_in_again_only_to_be_ended_by_its_node(three: Driver, stage: str) -> None:
    """Inside the next generation that would restart everybody."""
    come_without(three, C)
    come_back(three, A, B, C)
    orders = three.worker(C, generation=1, stage=stage, position=START)
    assert [order.instance_id for order in orders if isinstance(order, DropWorker)] == [C]
    assert C not in three.session.job.roster.standing


def test_a_loss_while_others_are_freed_is_written_down_too(three: Driver) -> None:
    assert given_up(three.exits(C)) == [(C,)]
    assert given_up(three.exits(B)) == [(B, C)]


def test_nothing_is_written_where_nobody_is_lost(three: Driver) -> None:
    three.now += three.options.clocks.progress + 1
    orders = three.do("tick")
    assert (three.session.job.phase, given_up(orders)) == (Phase.RELEASING, [])


def test_who_trains_in_the_next_generation_after_all_counts_again(three: Driver) -> None:
    """A new process on the same node, and a coordinator that dies then."""
    three.exits(C)
    three.worker(C, pid=99)
    for name in (A, B):
        three.do("step_status", name, StepStatus(generation=1, phase="held", position=AHEAD, answered=0))
    three.form(A, B, C)
    come_back(three, A, B)
    three.node(C, worker_pid=99)
    for name, pid in ((A, 0xA), (B, 0xB), (C, 99)):
        three.worker(name, pid=pid, generation=2, stage="trains", position=AHEAD)
    assert (three.session.job.phase, set(three.session.job.roster.members)) == (Phase.TRAINING, {A, B, C})
