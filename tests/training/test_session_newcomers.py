"""Who connects: whether they stand by, leave, or write the job's result. What would break for a user: a model that two
workers write at once, or a wanted worker that is sent away.
"""

from __future__ import annotations

import pytest
from dyntrain.training.events import WorkerReady
from dyntrain.training.protocol.messages import Leave
from dyntrain.training.protocol.node_messages import WorkerExited, WorkerStarted
from dyntrain.training.session.orders import Order, ToWorker
from session_driver import A, B, C, Driver, announced, words


def leaves(orders: list[Order]) -> dict[str, Leave]:
    return {o.instance_id: o.message for o in orders if isinstance(o, ToWorker) and isinstance(o.message, Leave)}


def test_one_worker_writes_the_result_also_when_they_ask_again(driver: Driver) -> None:
    orders = driver.check_in(A, B, epoch=3)
    for name in (A, B):
        orders += driver.worker(name, generation=1, stage="waits")
        assert [leave.writes for leave in leaves(orders).values()].count(True) == 1
    assert all(leave.finished for leave in leaves(orders).values())


@pytest.mark.parametrize("stage", ["waits", "free"])
def test_who_waits_for_a_word_is_sent_away_only_where_nobody_wants_it(driver: Driver, stage: str) -> None:
    driver.node(C, base=False)
    driver.want(A, B, C)
    assert (C, "leave") not in words(driver.worker(C, generation=1, stage=stage))
    driver.want(A, B)
    assert (C, "leave") in words(driver.worker(C, pid=99, generation=1, stage=stage))


def test_the_time_of_a_start_is_told_of_the_process_that_was_started(driver: Driver) -> None:
    for pid, seconds in ((50, 5.0), (60, None)):
        fresh = Driver()
        fresh.node(C, base=False)
        fresh.do("worker_started", C, WorkerStarted(pid=50))
        fresh.now += 5.0
        assert [ready.seconds for ready in announced(fresh.worker(C, pid=pid), WorkerReady)] == [seconds]


@pytest.mark.parametrize("went", ["left", "lost"])
def test_a_node_that_was_a_member_before_joins_again_also_where_its_process_has_the_same_number(
    driver: Driver, went: str
) -> None:
    """After a boot numbers are given out anew: the process is no lost one that its node has been told to end."""
    driver.node(C, base=False, life="first boot")
    driver.worker(C, pid=30)
    driver.want(A, B, C)
    driver.blanks(A)
    driver.check_in(A, B)
    driver.form(A, B, C)
    assert C in driver.session.job.round.instances
    if went == "left":
        driver.blanks(A)
        driver.want(A, B)
        driver.check_in(A, B, C, epoch=2)
        driver.do("worker_left", C)
        driver.form(A, B)
    else:
        driver.do("worker_exited", C, WorkerExited(pid=30, code=-9, reason="killed"))
    driver.do("node_lost", C)
    driver.want(A, B, C)
    driver.node(C, base=False, life="second boot")
    driver.do("worker_started", C, WorkerStarted(pid=30))
    assert C in driver.session.job.roster.unconnected, "it is waited for"
    assert [ready.instance for ready in announced(driver.worker(C, pid=30), WorkerReady)] == [C]
