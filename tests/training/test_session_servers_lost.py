"""ps-lite's processes die, in each phase of a generation: what would break for a user is a job that waits for sums that
no server will ever send.
"""

from __future__ import annotations

import pytest
from dyntrain.training.protocol.messages import START, Position, StepStatus
from dyntrain.training.protocol.node_messages import GroupFailed, NodeHello
from dyntrain.training.session.job.state import Phase
from dyntrain.training.session.orders import Order
from session_driver import A, B, C, Driver, forms, restarted, words

AT = Position(epoch=0, offset=10, step=1)


def fails(driver: Driver, name: str, generation: int = 0) -> list[Order]:
    number = generation or driver.session.job.number
    return driver.do("group_failed", name, GroupFailed(generation=number, reason="server ended"))


def starts_again(driver: Driver, name: str) -> list[Order]:
    """The node itself: its ps-lite processes have gone with the life before."""
    driver.do("node_lost", name)
    ip = f"10.0.0.{int(name[-1], 16)}"
    hello = NodeHello(cluster="c", instance_id=name, private_ip=ip, attempt=2, base=True, worker_pid=int(name[-1], 16))
    return driver.do("node_connected", hello)


def stays_away(driver: Driver, name: str) -> list[Order]:
    driver.do("node_lost", name)
    driver.now += driver.options.clocks.liveness * 0.99
    driver.session.job.since = driver.now  # the bound of the phase itself is no matter here
    assert restarted(driver.do("tick")) == set(), "it may be back"
    driver.now += driver.options.clocks.liveness * 0.02
    return driver.do("tick")


def is_lost_with_its_worker(driver: Driver, name: str) -> list[Order]:
    return driver.exits(name) + driver.do("node_lost", name)


def trains(three: Driver) -> None:
    assert three.session.job.phase is Phase.TRAINING


def frees(three: Driver) -> None:
    """A and B free themselves of C; nobody has said yet where it is."""
    three.exits(C)
    assert three.session.job.phase is Phase.RELEASING


def forms_group(three: Driver) -> None:
    three.want(A, B)
    three.check_in(A, B, C)
    three.prepare(A, B)
    assert three.session.job.phase is Phase.FORMING


LOSSES = [fails, starts_again, stays_away]


@pytest.mark.parametrize("lose", LOSSES)
@pytest.mark.parametrize("reach", [trains, frees, forms_group])
def test_servers_that_die_where_somebody_may_wait_for_their_sums_restart_all(
    three: Driver, reach: object, lose: object
) -> None:
    reach(three)  # type: ignore[operator]
    three.orders.clear()
    members = set(three.session.job.roster.members)
    lose(three, B)  # type: ignore[operator]
    job = three.session.job
    assert (job.phase, job.roster.members) == (Phase.WAITING, {})
    there = {name for name in members if name in job.roster.nodes}
    assert restarted(three.orders) >= there, "who is inside ps-lite is freed by nobody"


def test_a_server_that_dies_with_its_worker_while_the_others_are_freed_restarts_them(three: Driver) -> None:
    """Its node is gone at once, and it is not waited for: no worker of it says that the machine lives."""
    frees(three)
    three.exits(B)
    assert three.session.job.phase is Phase.RELEASING
    assert A in restarted(three.do("node_lost", B))
    assert three.session.job.phase is Phase.WAITING


def test_the_node_of_a_worker_that_was_lost_takes_its_server_along(three: Driver) -> None:
    frees(three)
    assert restarted(three.do("node_lost", C)) == {A, B}


def test_a_host_whose_worker_is_there_is_waited_for_while_the_others_are_freed(three: Driver) -> None:
    """Its supervisor is away for a moment, its servers are not."""
    frees(three)
    three.do("node_lost", B)
    assert three.session.job.phase is Phase.RELEASING
    three.node(B, worker_pid=0xB)
    for name in (A, B):
        orders = three.do("step_status", name, StepStatus(generation=1, phase="held", position=AT, answered=0))
    assert set(forms(orders)) == {A, B}
    three.now += three.options.clocks.liveness * 1.5
    assert restarted(three.do("tick")) == set(), "it is back"


@pytest.mark.parametrize("reach", [trains, frees])
def test_a_node_without_servers_takes_none_along(reach: object) -> None:
    driver = Driver(workers=3)
    driver.node(C, base=False)
    driver.worker(C)
    for name in (A, B):
        driver.node(name)
        driver.worker(name)
    driver.want(A, B, C)
    driver.form(A, B, C)
    reach(driver)  # type: ignore[operator]
    phase = driver.session.job.phase
    driver.do("node_lost", C)
    driver.now += driver.options.clocks.liveness + 1
    driver.session.job.round.progress_at = driver.session.job.since = driver.now
    driver.do("tick")
    assert (driver.session.job.phase, set(driver.session.job.roster.members) >= {A, B}) == (phase, True)


def test_servers_of_a_generation_that_is_past_or_on_a_node_that_has_none_concern_nobody(driver: Driver) -> None:
    driver.node(C, base=False)
    assert (fails(driver, A, generation=7), fails(driver, C)) == ([], [])
    driver.blanks(A)
    driver.want(A)
    driver.check_in(A, B)
    driver.form(A)
    assert fails(driver, A, generation=1) == []
    assert driver.session.job.phase is Phase.TRAINING


def test_before_the_word_to_go_they_cost_nobody_anything(three: Driver) -> None:
    three.want(A, B)
    three.check_in(A, B, C)
    assert three.session.job.phase is Phase.PREPARING
    for name in (A, B):
        three.blanks(name)
    orders = fails(three, A)
    assert (restarted(orders), set(forms(orders))) == (set(), {A, B})


def test_once_all_are_free_of_the_group_its_servers_are_missed_by_nobody() -> None:
    driver = Driver(workers=3)
    driver.train(A, B, C)
    driver.exits(C)
    for name in (A, B):
        driver.do("step_status", name, StepStatus(generation=1, phase="out", position=START, answered=0))
    assert driver.session.job.phase is Phase.PARKED
    for lose in LOSSES:
        assert restarted(lose(driver, B)) == set()
    assert (driver.session.job.phase, words(driver.orders)[-1][1]) == (Phase.PARKED, "verdict")


def test_a_host_that_came_back_is_not_missed_later(driver: Driver) -> None:
    driver.do("node_lost", B)
    driver.node(B, worker_pid=0xB)
    driver.now = driver.session.job.round.progress_at = driver.now + driver.options.clocks.liveness + 1
    assert (driver.do("tick"), driver.session.job.phase) == ([], Phase.TRAINING)


def test_a_host_without_a_worker_of_its_own_has_the_same_time_to_come_back() -> None:
    driver = Driver()
    driver.node(C)
    driver.train(A, B)
    assert C in driver.session.job.round.group.hosts
    assert restarted(driver.do("node_lost", C)) == set()
    assert driver.session.job.phase is Phase.TRAINING


def test_a_host_whose_supervisor_is_away_for_a_moment_does_not_cost_the_others_their_processes(three: Driver) -> None:
    """Its worker lives, and so do its servers: another's loss is one step's."""
    three.do("node_lost", B)
    assert restarted(three.exits(C)) == {C}
    assert three.session.job.phase is Phase.RELEASING
