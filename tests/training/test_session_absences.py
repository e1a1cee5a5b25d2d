"""Connections and processes that go, and the bounds of waiting for them, decision by decision: what would break for a
user is a worker that is ended while all is well, or one that is waited for though it is gone.
"""

from __future__ import annotations

import pytest
from dyntrain.training.events import WorkerLost
from dyntrain.training.protocol.messages import WorkerHello
from dyntrain.training.protocol.node_messages import WorkerExited, WorkerStarted
from dyntrain.training.session.job.state import Phase
from dyntrain.training.session.orders import DropWorker, Order
from session_driver import A, B, C, Driver, announced, decided, forms, restarted, words


def dropped(orders: list[Order]) -> list[tuple[str, int]]:
    return [(order.instance_id, order.pid) for order in orders if isinstance(order, DropWorker)]


def stands(driver: Driver) -> Driver:
    driver.node(C, base=False)
    driver.worker(C, pid=50)
    return driver


def passes(driver: Driver) -> Driver:
    """C is on its way to a later loop, without the state."""
    driver.node(C, base=False)
    hello = stands(Driver()).session.job.roster.standing[C]
    assert isinstance(hello, WorkerHello)
    driver.session.job.roster.passing[C] = hello
    return driver


def test_a_connection_of_an_earlier_process_that_closes_late_is_no_absence(driver: Driver) -> None:
    assert driver.do("worker_disconnected", B, 999) == []
    assert driver.session.job.roster.absent == {}
    assert words(driver.check_in(A, B)) == [(A, "proceed"), (B, "proceed")], "nobody waits for B"


def test_one_that_stands_by_and_has_no_connection_is_not_taken_in(driver: Driver) -> None:
    stands(driver).do("worker_disconnected", C, 50)
    driver.want(A, B, C)
    driver.blanks(A)
    assert forms(driver.check_in(A, B)) == {}, "the order would reach nobody"


@pytest.mark.parametrize("place", [stands, passes])
def test_one_without_the_state_whose_connection_closes_has_its_time_to_come_back(driver: Driver, place: object) -> None:
    place(driver)  # type: ignore[operator]
    driver.do("worker_disconnected", C, 50)
    roster = driver.session.job.roster
    assert (roster.pid_of(C), roster.unconnected[C].pid, roster.absent) == (None, 50, {})
    driver.now += driver.options.clocks.patience + 1
    driver.session.job.round.progress_at = driver.now
    orders = driver.do("tick")
    assert restarted(orders) == {C}
    assert "its connection closed" in announced(orders, WorkerLost)[0].reason


@pytest.mark.parametrize("place", [stands, passes])
def test_one_without_the_state_whose_process_ends_is_replaced_and_costs_nobody_a_step(
    driver: Driver, place: object
) -> None:
    place(driver)  # type: ignore[operator]
    orders = driver.do("worker_exited", C, WorkerExited(pid=50, code=1, reason="crash"))
    assert (dropped(orders), restarted(orders), words(orders)) == ([(C, 50)], {C}, [])
    assert (driver.session.job.roster.pid_of(C), driver.session.job.phase) == (None, Phase.TRAINING)


def test_a_worker_that_was_started_and_never_comes_is_told_of_as_one_that_hangs(driver: Driver) -> None:
    driver.node(C, base=False)
    driver.do("worker_started", C, WorkerStarted(pid=50, spare=False))
    driver.now += driver.options.clocks.start_limit + 1
    driver.session.job.round.progress_at = driver.now
    orders = driver.do("tick")
    assert restarted(orders) == {C}
    assert "started, and not connected" in announced(orders, WorkerLost)[0].reason


def test_a_member_that_is_lost_has_no_connection_any_more(driver: Driver) -> None:
    """It may live: nothing that it says later counts, and it must notice."""
    assert dropped(driver.exits(B)) == [(B, 0xB)]


def test_after_the_end_nobody_is_started_again(driver: Driver) -> None:
    stands(driver)
    driver.check_in(A, B, epoch=3)
    assert driver.session.job.phase is Phase.OVER
    orders = driver.do("worker_exited", C, WorkerExited(pid=50, code=1, reason="crash"))
    assert restarted(orders) == set()


def test_one_that_is_to_leave_has_its_time_and_no_more(three: Driver) -> None:
    three.want(A, B)
    assert (C, "leave") in words(three.check_in(A, B, C))
    three.form(A, B)
    three.now += three.options.clocks.formation_limit
    three.session.job.round.progress_at = three.now
    assert dropped(three.do("tick")) == []
    three.now += 1
    assert dropped(three.do("tick")) == [(C, 0xC)]
    assert set(three.session.job.roster.members) == {A, B}
    assert three.session.job.phase is Phase.TRAINING


def test_who_comes_to_a_boundary_a_little_later_than_the_first_is_waited_for(three: Driver) -> None:
    three.check_in(A)
    for share in (0.0, 0.5, 0.5):
        three.now += three.options.clocks.boundary_limit * share
        assert dropped(three.do("tick")) == []
    three.now += 0.1
    assert sorted(dropped(three.do("tick"))) == [(B, 0xB), (C, 0xC)]


def test_a_job_that_waits_at_a_boundary_with_all_its_members_loses_none_of_them(driver: Driver) -> None:
    """There is no group for the change that is wanted, for longer than a worker may take over anything."""
    stands(driver)
    driver.want(C)
    driver.session.job.roster.standing.clear()
    driver.check_in(A, B)
    clocks = driver.options.clocks
    assert driver.session.job.paused is not None
    driver.now += clocks.boundary_limit + clocks.progress + 1
    orders = driver.do("tick")
    assert (dropped(orders), words(orders)) == ([], [])
    assert driver.session.job.phase is Phase.TRAINING


def test_nobody_makes_progress_where_one_of_them_does_not_say_so(driver: Driver) -> None:
    """The clock runs from the last word of anybody, and from the start of the phase."""
    clocks = driver.options.clocks
    driver.now += clocks.progress
    assert decided(driver.do("tick")) == []
    driver.now += 0.1
    assert words(driver.do("tick")) == [(A, "abort"), (B, "abort")]
