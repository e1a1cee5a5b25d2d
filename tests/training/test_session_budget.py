"""Workers that fail again and again, or never come: their node cools down, is given up, or the job ends with the
reason.
"""

from __future__ import annotations

from dyntrain.training.events import CoolingDown, Failed, WorkerLost, WorkerReady
from dyntrain.training.protocol.messages import Position, Progress
from dyntrain.training.protocol.node_messages import (
    REFUSED,
    CoolDown,
    NodeNotice,
    WorkerExited,
    WorkerStarted,
)
from dyntrain.training.session.job.roster import FailureBudget
from dyntrain.training.session.job.state import Phase
from dyntrain.training.session.orders import Order, ToNode
from session_driver import A, B, C, Driver, announced, forms, restarted


def crash(driver: Driver, name: str, pid: int) -> list[Order]:
    driver.worker(name, pid=pid)
    return driver.do("worker_exited", name, WorkerExited(pid=pid, code=1, reason="crash"))


def cool_downs(driver: Driver) -> list[float]:
    return [event.seconds for event in announced(driver.orders, CoolingDown)]


def test_t12_a_flapping_node_cools_down_for_longer_each_time_and_is_readmitted(driver: Driver) -> None:
    driver.node(C, base=False)
    assert [bool(restarted(crash(driver, C, pid))) for pid in range(50, 58)] == [True] * 5 + [False] * 3
    assert cool_downs(driver) == [60.0]
    driver.now += 59
    assert restarted(driver.do("tick")) == set()
    driver.now += 2
    assert driver.do("tick") != [], "readmitted"
    for pid, wait in ((60, 121), (61, 241)):
        assert restarted(crash(driver, C, pid)) == set(), "one failure more, and it cools down again"
        driver.now += wait
        assert restarted(driver.do("tick")) == {C}
    assert cool_downs(driver) == [60.0, 120.0, 240.0]


def test_t12_a_node_that_cools_down_is_not_taken_in_even_if_its_worker_stands_ready(driver: Driver) -> None:
    driver.node(C, base=False)
    for pid in range(50, 57):
        crash(driver, C, pid)
    driver.worker(C, pid=70)
    driver.want(A, B, C)
    driver.blanks(A)
    assert forms(driver.check_in(A, B)) == {}


def told_to_cool(orders: list[Order]) -> list[CoolDown]:
    return [order.message for order in orders if isinstance(order, ToNode) and isinstance(order.message, CoolDown)]


def test_t12_a_node_hears_how_long_it_cools_down_also_when_it_asks_again(driver: Driver) -> None:
    """Its bootstrap would take the silence for a lost order, give the worker up, and the controller would release the
    node.
    """
    driver.node(C, base=False)
    orders = [order for pid in range(50, 56) for order in crash(driver, C, pid)]
    assert told_to_cool(orders) == [CoolDown(pid=55, seconds=60.0)]
    driver.now += 20
    again = driver.do("worker_exited", C, WorkerExited(pid=55, code=1, reason="crash"))
    assert told_to_cool(again) == [CoolDown(pid=55, seconds=40.0)]


def test_t12_n8_a_node_that_would_cool_down_for_very_long_is_given_up(driver: Driver) -> None:
    driver.node(C, base=False)
    for pid in range(50, 55):
        crash(driver, C, pid)
    pauses: list[CoolDown] = []
    for pid in range(60, 66):
        pauses += told_to_cool(crash(driver, C, pid))
        driver.now += pauses[-1].seconds + 1
        driver.session.job.round.progress_at = driver.now
        assert restarted(driver.do("tick")) == {C}, "a base node has nobody to take its place, and is tried again"
    assert [(one.seconds, one.given_up) for one in pauses] == [
        (60, False),
        (120, False),
        (240, False),
        (480, False),
        (960, True),
        (1920, True),
    ]


def test_t10_t12_a_job_without_enough_workers_waits_no_longer_than_a_first_cool_down() -> None:
    """A cool-down spares the others; where too few are left to train, it would only keep the job from going on."""
    driver = Driver(workers=1, budget=FailureBudget(restarts=0))
    driver.train(A)
    for pid in (50, 51):
        driver.exits(A, pid=driver.session.job.roster.members[A].pid)
        driver.blanks(A)
        driver.now += 61
        assert restarted([*driver.do("tick"), *driver.do("tick")]) == {A}
        driver.worker(A, pid=pid)
        driver.form(A)
    assert cool_downs(driver) == [60.0, 120.0]
    assert driver.session.job.phase is Phase.TRAINING


def test_t12_an_interrupted_machine_spends_no_budget(driver: Driver) -> None:
    driver.node(C, base=False)
    driver.do("node_notice", C, NodeNotice(kind="spot", deadline=500.0))
    assert [bool(restarted(crash(driver, C, pid))) for pid in range(50, 60)] == [True] * 10


def test_t8_a_job_whose_workers_cannot_even_start_fails_with_the_reason() -> None:
    driver = Driver(workers=1)
    driver.node(A)
    driver.want(A)
    for pid in range(50, 56):
        driver.do("worker_exited", A, WorkerExited(pid=pid, code=1, reason="no module named train"))
    driver.do("tick")
    assert driver.session.report(driver.now).state == "failed"
    assert "no module named train" in announced(driver.orders, Failed)[0].reason


def refuses(driver: Driver, name: str, pid: int) -> list[Order]:
    return driver.do("worker_exited", name, WorkerExited(pid=pid, code=REFUSED, reason="`break` leaves the loop"))


def test_t8_a_script_that_every_node_says_is_refused_is_not_tried_again() -> None:
    driver = Driver(workers=2)
    driver.node(A)
    driver.want(A, B)
    assert restarted(refuses(driver, A, 50)) == {A}, "whether it is the script shows when the others have tried it"
    driver.node(B)
    orders = refuses(driver, B, 60)
    assert not restarted(orders)
    assert "refuses the script on every node" in announced(orders, Failed)[0].reason
    assert "`break` leaves the loop" in announced(orders, Failed)[0].reason


def test_t8_a_script_that_one_node_refuses_and_another_runs_is_tried_again(driver: Driver) -> None:
    """It may be for that node's data."""
    driver.node(C, base=False)
    driver.want(A, B, C)
    assert restarted(refuses(driver, C, 70)) == {C}
    assert driver.session.report(driver.now).state != "failed"


def ends(driver: Driver, name: str, pid: int, started: bool = True) -> list[Order]:
    """As a script does that is asked for its help, or knows nothing of the job."""
    if started:
        driver.do("worker_started", name, WorkerStarted(pid=pid))
        driver.now += 1
    return driver.do("worker_exited", name, WorkerExited(pid=pid, code=0, reason="the script has ended"))


def test_t8_a_script_that_ends_well_on_every_node_and_never_joins_is_not_tried_again() -> None:
    driver = Driver(workers=2)
    driver.node(A)
    driver.want(A, B)
    assert restarted(ends(driver, A, 50)) == {A}
    assert lost(driver, A) == ["it ended after 1 s, with exit code 0"]
    driver.node(B)
    orders = ends(driver, B, 60)
    assert not restarted(orders)
    (failed,) = announced(orders, Failed)
    assert failed.reason.startswith("no worker joined: the script runs no epochs of ElasticJob.join()")
    assert "--dt-scripts; on i-" in failed.reason
    assert len(failed.reason.split()) <= 30


def test_t12_a_script_that_ends_before_it_joins_on_one_node_is_tried_again_and_cools_down(driver: Driver) -> None:
    driver.node(C, base=False)
    driver.want(A, B, C)
    assert [bool(restarted(ends(driver, C, pid))) for pid in range(50, 56)] == [True] * 5 + [False]
    assert cool_downs(driver) == [60.0]
    assert driver.session.report(driver.now).state != "failed"


def test_a_worker_that_had_joined_and_ends_well_is_not_taken_for_one_that_never_did(driver: Driver) -> None:
    """Its connection, or the word that it was started, may be lost when its node says that it has ended."""
    driver.node(C, base=False)
    assert not restarted(ends(driver, C, 50, started=False))
    driver.do("worker_started", C, WorkerStarted(pid=51))
    driver.worker(C, pid=51)
    driver.do("worker_disconnected", C, 51)
    assert not restarted(ends(driver, C, 51, started=False))
    assert driver.session.report(driver.now).state != "failed"


def test_t8_restarts_without_a_new_commit_come_to_an_end() -> None:
    driver = Driver(recovery="restart", budget=FailureBudget(restarts=1000))
    driver.train(A, B)
    for round_ in range(1, 25):
        if driver.session.job.phase is Phase.OVER:
            break
        driver.exits(B, pid=driver.session.job.roster.members[B].pid)
        driver.now += 31
        for name in (A, B):
            driver.blanks(name)
            driver.worker(name, pid=100 * round_ + int(name[-1], 16))
        driver.form(A, B)
    assert driver.session.job.outcome == "failed"


def lost(driver: Driver, name: str) -> list[str]:
    return [event.reason for event in announced(driver.orders, WorkerLost) if event.instance == name]


def test_a_worker_that_hangs_before_its_first_connection_is_started_again_and_cools_down_in_the_end(
    driver: Driver,
) -> None:
    """Stuck in its imports it would keep its node out of the job for ever, and nobody would say why."""
    driver.node(C, base=False)
    start, within = driver.options.clocks.start_limit, []
    for pid in range(50, 56):
        driver.do("worker_started", C, WorkerStarted(pid=pid))
        driver.now += start - 1
        steps = Progress(
            generation=driver.session.job.number, position=Position(epoch=0, offset=0, step=1), samples_per_second=1.0
        )
        driver.do("worker_progressed", A, steps)  # the others train
        within += driver.do("tick")
        driver.do("node_lost", C)
        driver.node(C, base=False, worker_pid=pid)  # told again, it has no more time
        driver.now += 2
        driver.do("tick")
    assert not restarted(within)
    assert [reason.split(":")[0] for reason in lost(driver, C)] == [
        f"started, and not connected to the coordinator within {start + 1:.0f} s"
    ] * 6
    assert [order.message.pid for order in driver.orders if restarted([order]) == {C}] == [50, 51, 52, 53, 54]
    assert cool_downs(driver) == [60.0], "they count together, however long each took"


def test_a_worker_that_connects_in_time_or_has_left_is_not_waited_for(driver: Driver) -> None:
    driver.node(C, base=False)
    driver.do("worker_started", C, WorkerStarted(pid=50, spare=True))
    driver.now += 2
    ready = announced(driver.worker(C, pid=50), WorkerReady)
    driver.do("worker_started", C, WorkerStarted(pid=50))  # this word was slower than the worker
    driver.blanks(A)
    driver.want(A, B, C)
    driver.check_in(A, B)
    driver.form(A, B, C)
    driver.want(A, B)
    driver.blanks(A)
    driver.check_in(A, B, C, epoch=2)
    driver.form(A, B)
    driver.do("worker_left", C)
    driver.node(C, base=False, worker_pid=50)  # it still saves its model
    driver.now += driver.options.clocks.start_limit + 1
    driver.check_in(A, B, epoch=3)
    driver.do("tick")
    assert [(event.instance, event.pid, event.seconds, event.spare) for event in ready] == [(C, 50, 2.0, True)]
    assert lost(driver, C) == []
