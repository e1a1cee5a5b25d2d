"""A member that comes back as a new process is no member: what would break for a user is a process that is told to go
on in a group that it never formed, and waits there for ever, while the others wait for it.
"""

from __future__ import annotations

import pytest
from dyntrain.training.events import WorkerLost
from dyntrain.training.protocol.messages import START, Formed, Position
from dyntrain.training.session.job.state import Phase
from dyntrain.training.session.orders import DropWorker
from session_driver import A, B, C, Driver, announced, come_back, forms, restarted, words

ONE = Position(epoch=1, offset=0, step=2)


def goes_on(driver: Driver, *nodes: str) -> None:
    """Another coordinator; what it says from now on is in the driver's `orders`."""
    come_back(driver, *nodes)
    driver.orders.clear()


@pytest.mark.parametrize("first", [True, False], ids=["before the others", "after the others"])
def test_t17_a_new_process_of_a_member_is_not_told_to_go_on_in_its_place(three: Driver, first: bool) -> None:
    goes_on(three, A, B)
    if first:
        three.worker(C, pid=99)
    for name in (A, B):
        three.worker(name, generation=1, stage="trains", position=START)
    if not first:
        three.worker(C, pid=99)
    three.node(C, worker_pid=99)
    assert set(words(three.orders)) == {(A, "abort"), (B, "abort")}
    job = three.session.job
    assert (job.phase, set(job.roster.members), set(job.roster.standing)) == (Phase.RELEASING, {A, B}, {C})


def test_t17_the_word_of_the_nodes_is_enough_to_know_that_a_members_process_is_another(three: Driver) -> None:
    """Nobody waits for the process that is gone."""
    goes_on(three, A, B)
    three.node(C, worker_pid=99)
    for name in (A, B):
        orders = three.worker(name, generation=1, stage="trains", position=START)
    assert {name for name, word in words(orders) if word == "abort"} == {A, B}


def test_t17_the_word_of_a_new_process_is_enough_to_know_that_the_member_is_lost() -> None:
    """Also where its node, which has no servers, is not heard of: nobody waits for it."""
    driver = Driver(workers=3)
    driver.node(C, base=False)
    driver.worker(C)
    for name in (A, B):
        driver.node(name)
        driver.worker(name)
    driver.want(A, B, C)
    driver.form(A, B, C)
    goes_on(driver, A, B)
    driver.worker(C, pid=99)
    for name in (A, B):
        driver.worker(name, generation=1, stage="trains", position=START)
    assert set(words(driver.orders)) == {(A, "abort"), (B, "abort")}


def test_t17_a_node_that_runs_the_members_own_process_is_waited_for(three: Driver) -> None:
    goes_on(three, A, B, C)
    for name in (A, B):
        orders = three.worker(name, generation=1, stage="trains", position=START)
    assert (words(orders), three.session.job.phase) == ([], Phase.RECOVERING)


def test_t17_at_a_boundary_the_others_go_on_without_the_new_process(three: Driver) -> None:
    three.check_in(A, B)
    goes_on(three, A, B)
    three.node(C, worker_pid=99)
    three.worker(C, pid=99)
    for name in (A, B):
        three.worker(name, generation=1, stage="waits", position=ONE)
    assert (C, "proceed") not in words(three.orders)
    assert C not in three.session.job.roster.members


def test_t17_in_a_formation_a_new_process_of_a_member_restarts_all(three: Driver) -> None:
    """The others are inside ps-lite's barrier, and wait for it there."""
    goes_on(three, A, B)
    three.node(C, worker_pid=99)
    three.worker(C, pid=99)
    for name in (A, B):
        three.worker(name, generation=1, stage="formed")
        orders = three.do("worker_formed", name, Formed(generation=1, digest="same"))
    assert "proceed" not in {word for _, word in words(three.orders)}
    assert three.session.job.phase is Phase.WAITING, orders
    assert {A, B} <= restarted(three.orders)


def test_a_new_process_in_a_members_place_is_a_loss_of_the_member(three: Driver) -> None:
    orders = three.worker(C, pid=99)
    assert [(event.instance, event.pid) for event in announced(orders, WorkerLost)] == [(C, 0xC)]
    assert {name for name, word in words(orders) if word == "abort"} == {A, B}
    assert not [order for order in orders if isinstance(order, DropWorker)], "its own connection is the new one"
    job = three.session.job
    assert (set(job.roster.members), set(job.roster.standing)) == ({A, B}, {C})


def test_the_members_own_process_that_connects_again_is_no_loss(three: Driver) -> None:
    three.do("worker_disconnected", C, 0xC)
    orders = three.worker(C, generation=1, stage="trains", position=START)
    assert (announced(orders, WorkerLost), words(orders)) == ([], [])
    assert set(three.session.job.roster.members) == {A, B, C}


def test_a_new_process_is_not_given_the_order_to_form_of_the_one_before(three: Driver) -> None:
    """C was settled in, and its process is another before the word to go."""
    three.want(A, C)
    three.check_in(A, B, C)
    assert three.session.job.phase is Phase.PREPARING
    before = three.session.job.number
    three.blanks(A)
    orders = three.worker(C, pid=99)
    assert all(form.generation > before for form in forms(orders).values())
    assert before not in {form.generation for form in forms(three.prepare(A)).values()}


@pytest.mark.parametrize("stage", ["creates", "formed", "trains", "aborted"])
def test_who_may_be_inside_another_group_starts_afresh(driver: Driver, stage: str) -> None:
    driver.node(C, base=False)
    orders = driver.worker(C, pid=99, generation=1, stage=stage, position=START)
    assert [order.instance_id for order in orders if isinstance(order, DropWorker)] == [C]
    assert (restarted(orders), C in driver.session.job.roster.standing) == ({C}, False)


@pytest.mark.parametrize("stage", ["stands", "prepares", "waits"])
def test_who_says_that_it_is_of_a_generation_to_come_starts_afresh(driver: Driver, stage: str) -> None:
    driver.node(C, base=False)
    driver.want(A, B, C)
    orders = driver.worker(C, pid=99, generation=2, stage=stage, position=START)
    assert [order.instance_id for order in orders if isinstance(order, DropWorker)] == [C]
    assert C not in driver.session.job.roster.standing
