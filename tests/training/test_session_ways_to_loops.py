"""On the way from one of a script's loops over epochs to the next: who says what twice, too early, or after the end.
What would break for a user is a script that is sent away or ended though it does all right, or one that waits for ever.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
from dyntrain.training.events import WorkerReady, WorkerRefused
from dyntrain.training.protocol.messages import START, Entered, Leave
from dyntrain.training.session.job.state import Phase
from dyntrain.training.session.orders import DropWorker, Order, ToWorker
from session_driver import A, B, C, Driver, announced, decided, restarted, words

TERMS: dict[str, Any] = {"epochs": 5, "samples": 20, "global_batch": 10, "seed": 0, "layout": "y", "another": True}


def dropped(orders: list[Order]) -> set[str]:
    return {order.instance_id for order in orders if isinstance(order, DropWorker)}


def enter(driver: Driver, name: str, **terms: Any) -> list[Order]:
    return driver.do("loop_entered", name, Entered(generation=None, **{"loop": 1, **TERMS, **terms}))


def ended(driver: Driver, *names: str) -> list[Order]:
    return [order for name in names for order in driver.do("script_ended", name)]


def trains(*names: str) -> Driver:
    driver = Driver(workers=len(names))
    for name in names:
        driver.node(name)
        driver.worker(name, another=True)
    driver.want(*names)
    driver.form(*names)
    for name in names:
        driver.blanks(name)
    assert driver.session.job.phase is Phase.TRAINING
    return driver


@pytest.fixture
def between() -> Driver:
    """A and B have the state, and come to the second loop; C goes past the first without it."""
    driver = trains(A, B)
    driver.node(C, base=False)
    driver.worker(C, another=True)
    driver.check_in(A, B, epoch=3)
    assert (driver.session.job.between_loops, set(driver.session.job.roster.passing)) == (True, {C})
    return driver


def test_who_has_come_to_the_next_loop_is_not_told_again_that_the_one_before_is_over(between: Driver) -> None:
    enter(between, A)
    between.do("worker_disconnected", A, 0xA)
    back = {**TERMS, "loop": 1, "generation": 1, "stage": "free"}
    assert words(between.worker(A, **back)) == []


def test_one_whose_script_has_ended_is_told_of_no_other_loop(between: Driver) -> None:
    ended(between, A)
    between.do("worker_disconnected", A, 0xA)
    assert words(between.worker(A, another=True, generation=1, stage="waits")) == []
    assert words(ended(between, B)) == [(A, "leave"), (B, "leave"), (C, "leave")]


def test_one_on_its_way_to_a_loop_that_the_job_has_not_come_to_starts_afresh(driver: Driver) -> None:
    """It cannot go back to the first loop, and nobody knows whether the job comes to the second again."""
    driver.node(C, base=False)
    orders = driver.worker(C, passed=1)
    assert (dropped(orders), restarted(orders), driver.session.job.roster.passing) == ({C}, {C}, {})


def test_nobody_writes_the_result_of_a_job_that_failed(between: Driver) -> None:
    """A wrote what the loop before left."""
    assert between.session.job.writer == A
    ended(between, B)
    enter(between, A)
    assert between.session.job.outcome == "failed"
    for name in (A, B):
        orders = between.worker(name, generation=1, stage="waits", another=True)
        (leave,) = [o.message for o in orders if isinstance(o, ToWorker) and isinstance(o.message, Leave)]
        assert (leave.writes, leave.finished) == (False, False)


def test_who_comes_to_another_loop_or_to_its_end_when_the_job_is_over_is_sent_home(between: Driver) -> None:
    """The word to leave may have been lost, or may be under way."""
    ended(between, A, B)
    assert between.session.job.outcome == "finished"
    for name in (A, B):
        for orders in (ended(between, name), enter(between, name)):
            assert words(orders) == [(name, "leave")]
    assert words(enter(between, C)) == [(C, "leave")]


def test_a_script_without_the_state_that_ends_after_the_last_loop_is_sent_home_and_not_ended(between: Driver) -> None:
    for name in (A, B):
        enter(between, name, another=False)
    between.form(A, B)
    between.check_in(A, B, epoch=5)
    assert (between.session.job.outcome, set(between.session.job.roster.passing)) == ("finished", {C})
    orders = ended(between, C)
    assert (words(orders), dropped(orders)) == ([(C, "leave")], set())


@pytest.mark.parametrize("stage", ["trains", "waits", "aborted", "free"])
def test_one_that_went_past_a_loop_is_heard_as_one_that_stands_by_wherever_it_was_before(
    between: Driver, stage: str
) -> None:
    """It lacked the loop's last step, and is out of its group since."""
    passing = between.session.job.roster.passing
    passing[C] = passing[C].model_copy(update={"stage": stage, "generation": 1, "position": START})
    orders = enter(between, C)
    assert [ready.instance for ready in announced(orders, WorkerReady)] == [C]
    assert (words(orders), dropped(orders), set(between.session.job.roster.standing)) == ([], set(), {C})


def test_words_of_a_next_loop_are_void_while_the_one_at_hand_goes_on() -> None:
    driver = trains(A, B)
    driver.node(C, base=False)
    driver.worker(C, another=True)
    for name in (A, B, C):
        before = deepcopy(driver.session.job)
        assert enter(driver, name) == []
        assert ended(driver, name) == []
        assert driver.session.job == before, name


def test_the_last_ones_time_runs_from_when_the_first_has_come_and_no_other_gives_it_more() -> None:
    driver = trains(A, B, C)
    driver.check_in(A, B, C, epoch=3)
    boundary = driver.options.clocks.boundary_limit
    enter(driver, A)
    driver.now += boundary
    enter(driver, B)
    assert decided(driver.do("tick")) == []
    driver.now += 1
    assert dropped(driver.do("tick")) == {C}


def test_one_that_is_refused_at_the_next_loop_is_gone(between: Driver) -> None:
    enter(between, A)
    orders = enter(between, C, samples=30)
    assert [refused.instance for refused in announced(orders, WorkerRefused)] == [C]
    assert (dropped(orders), between.session.job.roster.pid_of(C)) == ({C}, None)


def test_one_that_stood_by_with_another_script_loses_its_connection(between: Driver) -> None:
    """Else it would wait for a word for ever, as nobody knows it any more."""
    enter(between, C, samples=30)
    orders = [*enter(between, A), *enter(between, B)]
    assert dropped(orders) == {C}
    assert between.session.job.roster.pid_of(C) is None


def test_who_went_past_the_loop_may_end_its_script_when_the_members_do(between: Driver) -> None:
    assert ended(between, C) == []
    assert words(ended(between, A, B)) == [(A, "leave"), (B, "leave"), (C, "leave")]


def test_who_ends_its_script_where_the_job_goes_on_to_another_loop_starts_afresh(between: Driver) -> None:
    enter(between, A)
    enter(between, B)
    orders = ended(between, C)
    assert (dropped(orders), restarted(orders), between.session.job.roster.pid_of(C)) == ({C}, {C}, None)
