"""What nodes say of their workers, where only the right one's word may count: what would break for a user is a job that
ends before a script has saved its model, waits for one that is gone, or lets a healthy worker go.
"""

from __future__ import annotations

from copy import deepcopy

import pytest
from dyntrain.training.events import WorkerLost
from dyntrain.training.protocol.node_messages import REFUSED, GroupReady, Listed, NodeHello, WorkerExited
from dyntrain.training.session.job.state import Phase
from dyntrain.training.session.orders import Order, StopCoordinator, ToNode
from session_driver import A, B, C, Driver, announced, come_back


def exits(driver: Driver, name: str, pid: int, code: int) -> list[Order]:
    return driver.do("worker_exited", name, WorkerExited(pid=pid, code=code, reason="why"))


def over(orders: list[Order]) -> bool:
    return any(isinstance(order, StopCoordinator) for order in orders)


@pytest.fixture
def ended(driver: Driver) -> Driver:
    """The coordinator is another after the last sample: it does not know whose worker has left yet."""
    driver.check_in(A, B, epoch=3)
    come_back(driver)
    assert driver.session.job.phase is Phase.OVER
    return driver


def test_after_the_end_a_node_whose_worker_runs_is_waited_for_and_one_without_is_not(ended: Driver) -> None:
    ended.node(A, worker_pid=10)
    ended.node(B)
    assert not over(ended.orders), "A's script may be saving its model"
    assert over(exits(ended, A, 10, 0))


def test_after_the_end_the_last_node_without_a_worker_ends_the_wait(ended: Driver) -> None:
    ended.node(A)
    assert not over(ended.orders)
    ended.node(B)
    assert over(ended.orders)


@pytest.mark.parametrize("code", [0, 1, -9])
def test_after_the_end_a_worker_that_ends_in_any_way_is_not_waited_for(ended: Driver, code: int) -> None:
    assert not over(exits(ended, A, 10, code))
    assert over(exits(ended, B, 11, code))


@pytest.mark.parametrize("code", [0, 1, -9, REFUSED])
def test_an_end_of_another_process_than_the_member_is_no_news(driver: Driver, code: int) -> None:
    before = deepcopy(driver.session.job)
    assert exits(driver, B, 999, code) == []
    assert driver.session.job == before


def test_a_member_that_ends_well_in_an_epoch_that_it_was_to_train_is_lost_at_once(driver: Driver) -> None:
    """And not after its connection was waited for: nobody told it to leave."""
    orders = exits(driver, B, int(B[-1], 16), 0)
    (reason,) = [event.reason for event in announced(orders, WorkerLost)]
    assert reason == "the script ends in epoch 0 of 3, by itself"
    assert driver.session.job.phase is Phase.RELEASING


def test_only_the_code_of_a_refused_script_counts_as_one() -> None:
    driver = Driver(workers=2)
    for name in (A, B):
        driver.node(name, worker_pid=10)
    driver.want(A, B)
    for name in (A, B):
        exits(driver, name, 10, 1)
    assert (driver.session.job.roster.refused, driver.session.job.phase) == ({}, Phase.WAITING)


def test_a_node_hears_whether_the_target_lists_it() -> None:
    driver = Driver(workers=2)
    driver.want(A, B)
    for name, expected in ((A, True), (C, False)):
        hello = NodeHello(cluster="c", instance_id=name, private_ip="10.0.0.1", attempt=1, base=True)
        orders = driver.do("node_connected", hello)
        listed = [o.message.listed for o in orders if isinstance(o, ToNode) and isinstance(o.message, Listed)]
        assert listed[0] is expected, name


def test_a_base_node_stays_one_whatever_an_offer_says(driver: Driver) -> None:
    for base in (False, True, False):
        driver.do("group_ready", A, GroupReady(scheduler_port=10_000, blanks=2, base=base))
        assert driver.session.job.roster.nodes[A].hello.base
    driver.node(C, base=False)
    for base, becomes in ((False, False), (True, True), (False, True)):
        driver.do("group_ready", C, GroupReady(scheduler_port=10_000, blanks=2, base=base))
        assert driver.session.job.roster.nodes[C].hello.base is becomes


def test_between_two_loops_a_script_has_ended_when_the_members_own_process_has() -> None:
    driver = Driver(workers=2)
    for name in (A, B):
        driver.node(name)
        driver.worker(name, another=True)
    driver.want(A, B)
    driver.form(A, B)
    driver.check_in(A, B, epoch=3)
    assert driver.session.job.between_loops
    exits(driver, A, 999, 0)
    assert driver.session.job.script_ended == set()
    exits(driver, A, int(A[-1], 16), 0)
    assert driver.session.job.script_ended == {A}


def test_a_script_that_cannot_start_is_told_at_its_first_try_and_each_try_once() -> None:
    """Who watched heard nothing until the tries were used up, which takes a minute of imports and more."""
    driver = Driver(2)
    driver.node(A)
    driver.want(A)
    tries = [announced(exits(driver, A, pid, 1), WorkerLost) for pid in (1, 1, 2)]
    assert [[(lost.instance, lost.pid, lost.reason) for lost in losses] for losses in tries] == [
        [(A, 1, "why")],
        [],
        [(A, 2, "why")],
    ], "a node that connects anew tells of its last one again"
