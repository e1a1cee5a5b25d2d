"""Who is waited for, and who is missed no longer: by a coordinator that came back, between two loops, after the end.
What would break for a user is a job that waits for nobody, or that loses one who is only a little late.
"""

from __future__ import annotations

import pytest
from dyntrain.training import events
from dyntrain.training.protocol.messages import START, Entered, Formed, StepStatus
from dyntrain.training.protocol.node_messages import Retire, WorkerExited
from dyntrain.training.session.job.state import Phase
from dyntrain.training.session.orders import DropWorker, Order, StopCoordinator, ToNode
from session_driver import A, B, C, Driver, announced, come_back, forms, restarted, words

NEXT = {"epochs": 5, "samples": 20, "global_batch": 10, "seed": 0, "layout": "x"}


def dropped(orders: list[Order]) -> set[str]:
    return {order.instance_id for order in orders if isinstance(order, DropWorker)}


def over(orders: list[Order]) -> bool:
    return any(isinstance(order, StopCoordinator) for order in orders)


def trains(driver: Driver, *names: str) -> list[Order]:
    return [o for name in names for o in driver.worker(name, generation=1, stage="trains", position=START)]


def aborted(orders: list[Order]) -> set[str]:
    return {name for name, word in words(orders) if word == "abort"}


# ---- by a coordinator that came back


def test_t17_nothing_is_decided_while_nodes_still_come(three: Driver) -> None:
    come_back(three)
    patience = three.options.clocks.patience
    for name in (A, B):
        three.now += patience * 0.9
        assert (restarted(three.do("tick")), three.session.job.phase) == (set(), Phase.RECOVERING)
        three.node(name, worker_pid=int(name[-1], 16))
    three.now += patience * 1.1
    three.do("tick")
    assert three.session.job.phase is Phase.WAITING, "nobody came for too long"


def test_t17_the_end_of_another_process_than_the_members_is_not_its_own(three: Driver) -> None:
    come_back(three, A, B, C)
    three.exits(C, pid=999)
    trains(three, A, B)
    assert three.session.job.phase is Phase.RECOVERING, "C may come"
    trains(three, C)
    assert three.session.job.phase is Phase.TRAINING


def test_t17_a_member_that_came_and_was_lost_is_not_waited_for(three: Driver) -> None:
    come_back(three, A, B, C)
    trains(three, A, C)
    three.exits(C)
    assert aborted(trains(three, B)) == {A, B}


def test_t17_the_loss_of_the_last_one_that_was_waited_for_decides(three: Driver) -> None:
    come_back(three, A, B, C)
    trains(three, A, C)
    three.do("worker_disconnected", C, 0xC)
    assert words(trains(three, B)) == []
    assert aborted(three.exits(C)) == {A, B}


def test_t17_a_member_that_is_there_is_not_lost_by_an_older_word_of_its_node(driver: Driver) -> None:
    """Said before the worker was started again, or before it was known."""
    come_back(driver)
    trains(driver, A)
    driver.node(A)
    driver.do("worker_disconnected", A, 0xA)
    driver.node(B, worker_pid=0xB)
    trains(driver, B)
    assert driver.session.job.phase is Phase.RECOVERING
    trains(driver, A)
    assert driver.session.job.phase is Phase.TRAINING


# ---- before the start


def test_a_job_starts_when_the_last_node_is_there_though_its_worker_was_first() -> None:
    driver = Driver(workers=2)
    driver.node(A)
    for name in (A, B):
        driver.worker(name)
    assert forms(driver.want(A, B)) == {}
    driver.orders.clear()
    driver.node(B, base=False, worker_pid=0xB)
    assert set(forms(driver.orders)) == {A, B}


def test_a_job_starts_without_a_node_that_cools_down() -> None:
    driver = Driver(workers=2)
    for name in (A, B, C):
        driver.node(name)
    for name in (A, B):
        driver.worker(name)
    driver.want(A, B, C)
    tries = [forms(driver.exits(C, pid=50 + number)) for number in range(6)]
    assert [set(members) for members in tries] == [set()] * 5 + [{A, B}]


def test_a_node_that_fails_again_cools_down_for_longer_where_nobody_needs_it(driver: Driver) -> None:
    driver.node(C, base=False)
    pids = iter(range(50, 99))
    for seconds, failures in ((60.0, 6), (120.0, 1)):
        for _ in range(failures):
            driver.exits(C, pid=next(pids))
        for share, again in ((0.9, set[str]()), (0.2, {C})):
            driver.now += seconds * share
            driver.session.job.round.progress_at = driver.now
            assert restarted(driver.do("tick")) == again, (seconds, share)


# ---- one that stands by


def test_people_are_told_of_one_that_stood_by_and_is_gone(driver: Driver) -> None:
    driver.node(C, base=False)
    driver.worker(C)
    losses = announced(driver.do("worker_disconnected", C, 0xC), events.WorkerLost)
    assert [(event.instance, event.pid, event.reason) for event in losses] == [(C, 0xC, "connection closed")]
    driver.worker(C)
    losses = announced(driver.exits(C), events.WorkerLost)
    assert [(event.instance, event.pid, event.reason) for event in losses] == [(C, 0xC, "killed")]


# ---- between two loops


@pytest.fixture
def between() -> Driver:
    driver = Driver(workers=2)
    for name in (A, B):
        driver.node(name)
        driver.worker(name, another=True)
    driver.want(A, B)
    driver.form(A, B)
    for name in (A, B):
        driver.blanks(name)
    driver.check_in(A, B, epoch=3)
    assert driver.session.job.between_loops
    return driver


def test_who_has_ended_its_script_may_go_without_another_word(between: Driver) -> None:
    between.do("script_ended", A)
    between.do("worker_disconnected", A, 0xA)
    between.now += between.options.clocks.reconnect_limit + 1
    assert dropped(between.do("tick")) == set()
    between.do("script_ended", B)
    assert between.session.job.outcome == "finished"


def test_who_has_not_and_is_away_is_lost(between: Driver) -> None:
    between.do("script_ended", A)
    between.do("worker_disconnected", B, 0xB)
    between.now += between.options.clocks.reconnect_limit + 1
    assert dropped(between.do("tick")) == {B}


def test_a_node_whose_script_ended_too_early_is_missed_in_the_next_loop_as_any_other(between: Driver) -> None:
    between.do("script_ended", A)
    between.exits(A)
    between.do("loop_entered", B, Entered(generation=1, loop=1, **NEXT))
    between.form(B)
    for name in (A, B):
        between.blanks(name)
    between.worker(A, pid=99, loop=1, passed=1, **NEXT)
    between.check_in(B, epoch=4)
    between.prepare(A, B)
    for name in (A, B):
        between.do("worker_formed", name, Formed(generation=3, digest="same"))
    assert (set(between.session.job.roster.members), between.session.job.phase) == ({A, B}, Phase.TRAINING)
    between.do("worker_disconnected", A, 99)
    between.now += between.options.clocks.reconnect_limit + 1
    assert dropped(between.do("tick")) == {A}


# ---- after the end


def test_a_worker_that_dies_when_all_others_have_left_ends_the_wait_at_once(driver: Driver) -> None:
    driver.check_in(A, B, epoch=3)
    assert not over(driver.do("worker_left", A))
    assert over(driver.exits(B))


def test_a_node_that_is_away_after_the_end_keeps_nobody_waiting(driver: Driver) -> None:
    """Its ps-lite processes are nobody's any more."""
    driver.check_in(A, B, epoch=3)
    driver.do("node_lost", A)
    driver.now += driver.options.clocks.formation_limit + driver.options.clocks.patience + 1
    assert any(over(driver.do("tick")) for _ in range(4))


def test_a_coordinator_that_came_back_after_the_end_gives_the_workers_their_time_to_leave(driver: Driver) -> None:
    driver.check_in(A, B, epoch=3)
    come_back(driver)
    assert not over(driver.do("tick"))
    driver.now += driver.options.clocks.patience
    assert not over(driver.do("tick"))
    driver.now += 1
    assert over(driver.do("tick"))


def test_a_node_that_comes_after_the_end_is_let_go(driver: Driver) -> None:
    driver.check_in(A, B, epoch=3)
    come_back(driver)
    driver.orders.clear()
    driver.node(A, worker_pid=0xA)
    let_go = [o.instance_id for o in driver.orders if isinstance(o, ToNode) and isinstance(o.message, Retire)]
    assert (let_go, over(driver.orders)) == ([A], False)


# ---- bounds


def test_a_formation_and_a_release_have_exactly_their_time(three: Driver) -> None:
    clocks = three.options.clocks
    three.exits(C)
    three.now += clocks.release_limit
    assert restarted(three.do("tick")) == set()
    for name in (A, B):
        three.do("step_status", name, StepStatus(generation=1, phase="held", position=START, answered=0))
    three.prepare(A, B)
    three.now += clocks.formation_limit
    assert restarted(three.do("tick")) == set()
    three.now += 0.1
    assert restarted(three.do("tick")) == {A, B}


def test_that_a_worker_has_ended_well_is_no_loss_after_its_script_did(between: Driver) -> None:
    for name in (A, B):
        between.do("worker_exited", name, WorkerExited(pid=int(name[-1], 16), code=0, reason="ended"))
    assert between.session.job.outcome == "finished"
