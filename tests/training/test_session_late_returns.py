"""Who comes back late or never, decision by decision: how long the others wait, and that somebody who comes again and
again does not make them wait for ever.
"""

from __future__ import annotations

from dyntrain.training.protocol.messages import START
from dyntrain.training.session.job.roster import FailureBudget, Roster
from dyntrain.training.session.job.state import Phase
from dyntrain.training.session.orders import StopCoordinator
from session_driver import A, B, C, Driver, come_back, restarted, words


def test_a_worker_that_hangs_while_it_stands_by_is_replaced(driver: Driver) -> None:
    driver.node(C, base=False)
    driver.worker(C)
    driver.do("worker_disconnected", C, 0xC)
    driver.now += driver.options.clocks.patience - 1
    assert restarted(driver.do("tick")) == set(), "it may come back"
    driver.now += 2
    assert restarted(driver.do("tick")) == {C}


def test_a_stander_that_vanished_does_not_keep_a_job_from_its_end(driver: Driver) -> None:
    driver.node(C, base=False)
    driver.worker(C)
    driver.do("worker_disconnected", C, 0xC)
    driver.check_in(A, B, epoch=3)
    driver.do("worker_left", A)
    driver.now += driver.options.clocks.formation_limit + driver.options.clocks.patience + 1
    assert any(isinstance(order, StopCoordinator) for _ in range(3) for order in driver.do("tick")), (
        "B never said that it left"
    )


def test_a_running_worker_that_never_finds_the_coordinator_is_replaced(driver: Driver) -> None:
    """The order to end it may have been lost with the coordinator before."""
    driver.node(C, base=False, worker_pid=50)
    driver.now += driver.options.clocks.progress + 1
    driver.session.job.round.progress_at = driver.now
    assert restarted(driver.do("tick")) == {C}


def test_an_absence_that_is_over_hides_no_other() -> None:
    roster = Roster(FailureBudget(), absent={"i-0": 0.0})
    assert roster.find_overdue_worker(3.0, 60.0, 10.0) is None
    assert roster.absent == {}


def test_nobody_is_late_while_others_come_back_one_after_another(three: Driver) -> None:
    """After a cut that hit all of many at once; a machine takes its time to greet hundreds."""
    clocks = three.options.clocks
    for name in (A, B, C):
        three.do("worker_disconnected", name, int(name[-1], 16))
    for name in (A, B):
        three.now += clocks.reconnect_limit * 0.9
        assert words(three.do("tick")) == []
        three.worker(name, generation=1, stage="trains", position=START)
    three.now += clocks.reconnect_limit * 0.9
    assert words(three.do("tick")) == [], "C's turn comes"
    three.now += clocks.reconnect_limit * 0.2
    assert {name for name, word in words(three.do("tick")) if word == "abort"} == {A, B}, "nobody came for too long"


def test_nobody_is_late_while_hosts_of_servers_come_back_one_after_another(three: Driver) -> None:
    """Their ps-lite processes run on meanwhile: to take one for lost would restart everybody."""
    clocks = three.options.clocks
    for name in (A, B, C):
        three.do("node_lost", name)
    for name in (A, B):
        three.now += clocks.liveness * 0.9
        assert restarted(three.do("tick")) == set()
        three.node(name, worker_pid=int(name[-1], 16))
    three.now += clocks.liveness * 0.9
    assert restarted(three.do("tick")) == set(), "C's turn comes"
    three.now += clocks.liveness * 0.2
    assert restarted(three.do("tick")) == {A, B}, "nobody came for too long"


def test_nodes_that_are_new_do_not_keep_a_lost_worker_from_being_found(driver: Driver) -> None:
    driver.do("worker_disconnected", B, 0xB)
    driver.now += driver.options.clocks.reconnect_limit * 0.9
    driver.node(C, base=False)
    driver.worker(C)
    driver.now += driver.options.clocks.reconnect_limit * 0.2
    assert (A, "abort") in words(driver.do("tick"))


def test_one_whose_connection_breaks_again_and_again_does_not_keep_another_from_being_lost(driver: Driver) -> None:
    clocks = driver.options.clocks
    driver.do("worker_disconnected", B, 0xB)
    lost, began = list[tuple[str, str]](), driver.now
    while not lost and driver.now < began + 2 * clocks.patience:
        driver.now += clocks.reconnect_limit / 2
        lost = [word for word in words(driver.do("tick")) if word[1] == "abort"]
        driver.do("worker_disconnected", A, 0xA)
        driver.worker(A, generation=1, stage="trains", position=START)
    assert lost == [(A, "abort")]
    assert driver.now - began <= clocks.patience + clocks.reconnect_limit


def test_t17_a_coordinator_that_came_back_waits_while_its_workers_come(three: Driver) -> None:
    come_back(three, A, B, C)
    for name in (A, B):
        three.now += three.options.clocks.patience * 0.9
        assert restarted(three.do("tick")) == set()
        three.worker(name, generation=1, stage="trains", position=START)
    three.now += three.options.clocks.patience * 0.9
    assert words(three.do("tick")) == []
    three.worker(C, generation=1, stage="trains", position=START)
    assert three.session.job.phase is Phase.TRAINING


def test_t17_one_that_comes_again_and_again_does_not_keep_a_coordinator_from_deciding(three: Driver) -> None:
    come_back(three, A, B, C)
    clocks, began = three.options.clocks, three.now
    last_words = list[tuple[str, str]]()
    while three.session.job.phase is Phase.RECOVERING and three.now < began + 2 * clocks.progress:
        for name in (A, B):
            three.worker(name, generation=1, stage="trains", position=START)
        three.now += clocks.patience * 0.9
        last_words = words(three.do("tick"))
    assert {name for name, word in last_words if word == "abort"} == {A, B}, "they go on without C"
    assert clocks.progress < three.now - began <= clocks.progress + clocks.patience
