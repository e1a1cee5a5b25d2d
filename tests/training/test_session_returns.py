"""Who connects again, decision by decision: what is said again, to whom, and what is not. What would break for a user
is a process that is told twice, sent away though it is wanted, or kept waiting for a word that never comes.
"""

from __future__ import annotations

import pytest
from dyntrain.training.protocol.messages import START, Position, StepStatus, StepVerdict
from dyntrain.training.session.job.state import Phase
from dyntrain.training.session.orders import DropWorker, Order, StopCoordinator, ToWorker
from session_driver import A, B, C, Driver, come_back, forms, restarted, words

STEP = Position(epoch=0, offset=10, step=1)
END = Position(epoch=3, offset=0, step=6)


def dropped(orders: list[Order]) -> set[str]:
    return {order.instance_id for order in orders if isinstance(order, DropWorker)}


def over(orders: list[Order]) -> bool:
    return any(isinstance(order, StopCoordinator) for order in orders)


def settled(driver: Driver) -> None:
    """C is to join A and B, and nobody has prepared yet."""
    driver.node(C, base=False)
    driver.worker(C)
    driver.want(A, B, C)
    driver.blanks(A)
    driver.check_in(A, B)
    assert driver.session.job.phase is Phase.PREPARING


def test_one_that_is_to_leave_hears_so_again_though_it_is_wanted_meanwhile(three: Driver) -> None:
    """It has dropped its place: its node gets another process once it has left."""
    three.want(A, B)
    three.check_in(A, B, C)
    three.want(A, B, C)
    three.do("worker_disconnected", C, 0xC)
    assert words(three.worker(C, generation=1, stage="waits", position=START)) == [(C, "leave")]
    roster = three.session.job.roster
    assert (C in roster.standing, C in roster.leaving) == (False, True)
    assert restarted(three.do("worker_left", C)) == {C}
    assert roster.leaving == {}


def test_the_controller_is_told_who_has_not_left_yet_and_that_it_is_no_member_any_more(three: Driver) -> None:
    """Were it told as one that trains, who is tagged again meanwhile would be ADDED, and then wait to be added."""

    def report_members() -> dict[str, tuple[bool, bool]]:
        report = three.session.report(three.now)
        return {member.instance_id: (member.active, member.leaving) for member in report.members}

    assert report_members() == dict.fromkeys((A, B, C), (True, False))
    three.want(A, B)
    assert report_members() == dict.fromkeys((A, B, C), (True, False)), "it trains until the boundary"
    three.check_in(A, B, C)
    assert report_members() == {A: (True, False), B: (True, False), C: (True, True)}
    three.want(A, B, C)
    assert report_members()[C] == (True, True)
    three.do("worker_left", C)
    assert set(report_members()) == {A, B}


def test_in_a_formation_a_members_new_process_costs_the_others_theirs_and_keeps_its_own() -> None:
    """The others wait inside ps-lite, where no word reaches them; what they say on old connections is void."""
    driver = Driver(workers=3)
    for name in (A, B, C):
        driver.node(name)
        driver.worker(name)
    driver.want(A, B, C)
    driver.prepare(A, B, C)
    assert driver.session.job.phase is Phase.FORMING
    assert dropped(driver.worker(C, pid=99)) == {A, B}
    assert set(driver.session.job.roster.standing) == {C}


def test_a_joiner_fetches_from_where_a_member_said_last_that_it_hands_its_state_out(driver: Driver) -> None:
    for name in (A, B):
        hello = driver.session.job.roster.members[name].model_copy(update={"generation": 1, "stage": "trains"})
        driver.do("worker_disconnected", name, hello.pid)
        driver.do("worker_connected", hello.model_copy(update={"state_port": 9100}))
    settled(driver)
    sources = forms(driver.orders)[C].sources
    assert {source.port for source in sources} == {9100}


def test_who_has_the_order_and_waits_for_nothing_hears_nothing_twice(driver: Driver) -> None:
    settled(driver)
    driver.do("worker_disconnected", B, 0xB)
    assert words(driver.worker(B, generation=2, stage="prepares", position=START)) == []


def test_a_verdict_that_is_said_again_is_of_the_generation_whose_step_is_void(three: Driver) -> None:
    three.exits(C)
    for name in (A, B):
        three.do("step_status", name, StepStatus(generation=1, phase="held", position=STEP, answered=0))
    assert three.session.job.number == 2
    three.do("worker_disconnected", B, 0xB)
    orders = three.worker(B, generation=1, stage="aborted", position=START)
    verdicts = [o.message for o in orders if isinstance(o, ToWorker) and isinstance(o.message, StepVerdict)]
    assert [(verdict.generation, verdict.position) for verdict in verdicts] == [(1, STEP)]


def test_a_verdict_waits_for_who_is_away_and_nobody_is_asked_anew(three: Driver) -> None:
    three.exits(C)
    three.do("step_status", B, StepStatus(generation=1, phase="held", position=STEP, answered=0))
    three.do("worker_disconnected", B, 0xB)
    assert words(three.do("step_status", A, StepStatus(generation=1, phase="held", position=STEP, answered=0))) == []
    orders = three.worker(B, generation=1, stage="aborted", position=START)
    assert words(orders)[:2] == [(A, "verdict"), (B, "verdict")]


def test_a_process_that_was_given_up_and_comes_after_the_end_is_sent_home(three: Driver) -> None:
    """Its node was told to end it; now there is nothing to end it for."""
    three.do("worker_disconnected", C, 0xC)
    three.now += three.options.clocks.reconnect_limit + 1
    three.do("tick")
    for name in (A, B):
        three.do("step_status", name, StepStatus(generation=1, phase="held", position=STEP, answered=0))
    three.form(A, B)
    three.check_in(A, B, epoch=3)
    orders = three.worker(C, generation=1, stage="waits", position=START)
    assert (words(orders), dropped(orders)) == ([(C, "leave")], set())


@pytest.mark.parametrize("fields", [{}, {"passed": 1}], ids=["stands by", "between two loops"])
def test_whoever_comes_after_the_end_is_sent_home(driver: Driver, fields: dict[str, int]) -> None:
    driver.node(C, base=False)
    driver.want(A, B, C)
    driver.check_in(A, B, epoch=3)
    assert driver.session.job.phase is Phase.OVER
    assert words(driver.worker(C, **fields)) == [(C, "leave")]


def test_one_that_starts_afresh_after_the_end_is_not_waited_for(driver: Driver) -> None:
    """Of a past that was undone, for a coordinator that came back after the end."""
    driver.check_in(A, B, epoch=3)
    come_back(driver)
    assert dropped(driver.worker(A, generation=1, stage="trains", position=START)) == {A}
    driver.worker(B, generation=1, stage="waits", position=END)
    assert over(driver.do("worker_left", B))
