"""Connections that break and coordinators that die, decision by decision: nothing hangs on a word that was lost with
one.
"""

from __future__ import annotations

from dyntrain.training.protocol.messages import (
    CheckIn,
    Committed,
    Formed,
    Position,
    Prepared,
    StepStatus,
)
from dyntrain.training.protocol.node_messages import NodeHello, StartGroup
from dyntrain.training.session.job.state import Phase
from dyntrain.training.session.orders import DropWorker, Order, ToNode
from session_driver import A, B, C, Driver, come_back, forms, restarted, words


def test_a_check_in_of_an_earlier_generation_is_void(driver: Driver) -> None:
    stale = CheckIn(generation=0, position=Position(epoch=1, offset=0, step=2), pid=1)
    assert driver.do("check_in", A, stale) == []


START = Position(epoch=0, offset=0, step=0)
ONE = Position(epoch=1, offset=0, step=2)


def test_t17_in_mid_epoch_the_workers_go_on_under_the_coordinator_that_came_back(driver: Driver) -> None:
    come_back(driver, A, B)
    driver.worker(A, generation=1, stage="trains", position=START)
    assert words(driver.worker(B, generation=1, stage="trains", position=START)) == []
    assert driver.session.job.phase is Phase.TRAINING
    assert {word for _, word in words(driver.check_in(A, B))} == {"proceed"}


def test_t17_a_start_that_nobody_heard_of_is_made_again() -> None:
    driver = Driver()
    for name in (A, B):
        driver.node(name)
        driver.worker(name)
    driver.want(A, B)
    come_back(driver, A, B)
    driver.worker(A)
    assert {name: form.generation for name, form in forms(driver.worker(B)).items()} == {A: 2, B: 2}


def group_orders(orders: list[Order]) -> list[tuple[str, int]]:
    return [
        (order.instance_id, order.message.generation)
        for order in orders
        if isinstance(order, ToNode) and isinstance(order.message, StartGroup)
    ]


def test_a_base_node_that_connects_again_hears_again_which_ps_lite_processes_to_start() -> None:
    """The workers would wait for them inside ps-lite until the formation's bound, and be restarted."""
    driver = Driver()
    for name in (A, B):
        driver.node(name)
        driver.worker(name)
    driver.want(A, B)
    again = NodeHello(cluster="c", instance_id=A, private_ip="10.0.0.10", attempt=1, base=True, worker_pid=0xA)
    driver.do("node_lost", A)
    assert group_orders(driver.do("node_connected", again)) == [(A, 1)], "while the members prepare"
    driver.prepare(A, B)
    driver.do("node_lost", A)
    assert group_orders(driver.do("node_connected", again)) == [(A, 1)], "while they form"
    driver.form(A, B)
    driver.do("node_lost", A)
    assert group_orders(driver.do("node_connected", again)) == [], "nobody waits for them any more"


def test_t17_nobody_is_waited_for_who_was_in_a_start_that_was_taken_back() -> None:
    """Each coordinator that died before its patience was over would have the next one wait as long again."""
    driver = Driver(workers=1)
    for name in (A, B):
        driver.node(name)
        driver.worker(name)
    driver.want(A, B)
    driver.exits(B)
    come_back(driver, A)
    driver.now += 1
    assert {
        name: form.generation for name, form in forms(driver.worker(A, generation=1, stage="prepares")).items()
    } == {A: 2}


def settled(driver: Driver) -> None:
    driver.node(C, base=False)
    driver.worker(C)
    driver.want(A, B, C)
    driver.blanks(A)
    driver.check_in(A, B)


def test_t17_a_change_that_some_have_not_heard_of_is_taken_back_and_nobody_is_restarted(driver: Driver) -> None:
    settled(driver)
    come_back(driver, A, B, C)
    driver.worker(A, generation=2, stage="prepares")
    driver.worker(C)
    orders = driver.worker(B, generation=1, stage="waits", position=START)
    assert restarted(orders) == set()
    assert {name: (form.generation, form.fetch) for name, form in forms(orders).items()} == {
        A: (3, False),
        B: (3, False),
    }


def test_t17_a_change_that_all_have_prepared_goes_on(driver: Driver) -> None:
    settled(driver)
    come_back(driver, A, B, C)
    for name in (A, B, C):
        driver.worker(name, generation=2, stage="prepares")
    driver.do("worker_prepared", A, Prepared(generation=2))
    assert words(driver.prepare(B, C)) == [(A, "go"), (B, "go"), (C, "go")]


def test_t17_inside_ps_lite_those_who_missed_the_word_hear_it(driver: Driver) -> None:
    settled(driver)
    driver.prepare(A, B, C)
    come_back(driver, A, B, C)
    driver.worker(A, generation=2, stage="creates")
    driver.worker(B, generation=2, stage="prepares")
    assert words(driver.worker(C, generation=2, stage="formed")) == [(B, "go")]
    for name in (A, B, C):
        orders = driver.do("worker_formed", name, Formed(generation=2, digest="same"))
    assert [word for _, word in words(orders)] == ["proceed"] * 3


def test_t17_a_death_inside_ps_lite_while_the_coordinator_was_away_restarts_all(driver: Driver) -> None:
    settled(driver)
    driver.prepare(A, B, C)
    come_back(driver, A, B)
    driver.worker(A, generation=2, stage="creates")
    driver.worker(B, generation=2, stage="creates")
    assert restarted(driver.exits(C)) == {A, B}


def test_t17_at_a_boundary_who_missed_the_word_to_step_on_hears_it(driver: Driver) -> None:
    driver.check_in(A, B)
    come_back(driver, A, B)
    driver.worker(A, generation=1, stage="trains", position=ONE)
    driver.worker(B, generation=1, stage="waits", position=START)
    assert words(driver.check_in(B)) == [(B, "proceed")], "A is past this boundary and waits for B inside the next step"


def test_t17_what_a_worker_said_before_the_others_were_back_is_answered(driver: Driver) -> None:
    driver.check_in(A, B)
    come_back(driver, A, B)
    driver.worker(B, generation=1, stage="waits", position=START)
    assert words(driver.check_in(B)) == []
    assert words(driver.worker(A, generation=1, stage="trains", position=ONE)) == [(B, "proceed")]


def test_t17_a_release_goes_on(three: Driver) -> None:
    three.exits(C)
    come_back(three, A, B)
    three.node(C)
    three.exits(C)
    three.worker(A, generation=1, stage="aborted", position=START)
    assert words(three.worker(B, generation=1, stage="trains", position=START)) == [(A, "abort"), (B, "abort")]


def test_t17_a_verdict_that_one_has_heard_stands(three: Driver) -> None:
    step = Position(epoch=0, offset=10, step=1)
    come_back(three, A, B)
    three.node(C)
    three.exits(C)
    three.worker(A, generation=1, stage="free", position=step)
    orders = three.worker(B, generation=1, stage="aborted", position=START)
    assert (B, "verdict") in words(orders)
    assert {form.position.step for form in forms(orders).values()} == {1}


def test_t17_a_survivor_that_missed_the_verdict_hears_it_when_the_next_generation_is_taken_back(three: Driver) -> None:
    """It waits inside the void step: without the verdict it would never take the order to form."""
    step = Position(epoch=0, offset=10, step=1)
    three.exits(C)
    for name in (A, B):
        three.do("step_status", name, StepStatus(generation=1, phase="held", position=step, answered=0))
    come_back(three, A, B)
    three.node(C)
    three.worker(A, generation=2, stage="prepares")
    orders = three.worker(B, generation=1, stage="aborted", position=START)
    assert words(orders)[0] == (B, "verdict")
    assert set(forms(orders)) == {A, B}


def test_t17_who_formed_and_missed_the_word_to_step_hears_it_from_the_coordinator_that_came_back(
    driver: Driver,
) -> None:
    come_back(driver, A, B)
    driver.worker(B, generation=1, stage="formed")
    assert words(driver.do("worker_formed", B, Formed(generation=1, digest="same"))) == [], (
        "nobody knows yet how far the others are"
    )
    assert words(driver.worker(A, generation=1, stage="trains", position=START)) == [(B, "proceed")]


def test_t17_nothing_is_decided_while_a_member_that_came_back_is_without_a_connection(driver: Driver) -> None:
    come_back(driver, A, B)
    driver.worker(A, generation=1, stage="formed")
    driver.do("worker_disconnected", A, 0xA)
    assert words(driver.worker(B, generation=1, stage="trains", position=START)) == []
    assert driver.session.job.phase is Phase.RECOVERING, "A would miss the word to step on"


def test_t17_a_host_of_servers_that_connects_after_its_worker_is_waited_for(driver: Driver) -> None:
    """Taken for lost, it would cost everybody a restart."""
    come_back(driver, A)
    for name in (A, B):
        orders = driver.worker(name, generation=1, stage="trains", position=START)
    assert (restarted(orders), driver.session.job.phase) == (set(), Phase.RECOVERING)
    driver.node(B, worker_pid=0xB)
    assert driver.session.job.phase is Phase.TRAINING


def test_t17_a_worker_lost_while_the_coordinator_was_away_costs_one_step(three: Driver) -> None:
    come_back(three, A, B)
    three.worker(A, generation=1, stage="trains", position=START)
    three.worker(B, generation=1, stage="trains", position=START)
    three.node(C, worker_pid=99)
    assert {(name, word) for name, word in words(three.orders[-4:])} == {(A, "abort"), (B, "abort")}, (
        "its node runs another process"
    )


def test_t17_a_coordinator_to_which_nobody_comes_back_starts_from_the_commit(driver: Driver) -> None:
    come_back(driver, A, B)
    driver.now += driver.options.clocks.patience + 1
    driver.do("tick")
    assert driver.session.job.phase is Phase.WAITING


def test_t20_a_resume_does_not_wait_for_processes_that_are_gone(driver: Driver) -> None:
    driver.do("commit_written", A, Committed(generation=1, position=ONE, name="c1"))
    come_back(driver)
    for name in (A, B):
        driver.node(name)  # without a worker
    for name, pid in ((A, 31), (B, 32)):
        orders = driver.worker(name, pid=pid)
    assert {(form.position.step, form.commit) for form in forms(orders).values()} == {(2, "c1"), (2, None)}


def test_the_order_to_form_is_said_again_to_whom_it_did_not_reach(driver: Driver) -> None:
    settled(driver)
    driver.do("worker_disconnected", B, 0xB)
    driver.do("worker_disconnected", C, 0xC)
    assert set(forms(driver.worker(B, generation=1, stage="waits", position=START))) == {B}
    assert set(forms(driver.worker(C))) == {C}
    assert forms(driver.worker(A, generation=2, stage="prepares")) == {}, "A has it"
    assert [word for _, word in words(driver.prepare(A, B, C))] == ["go"] * 3


def test_a_word_to_go_that_was_lost_is_said_again(driver: Driver) -> None:
    settled(driver)
    driver.prepare(A, B, C)
    assert words(driver.prepare(B)) == [(B, "go")]


def test_a_worker_of_a_generation_that_went_on_without_it_starts_afresh(driver: Driver) -> None:
    driver.node(C, base=False)
    orders = driver.worker(C, pid=99, generation=1, stage="trains", position=START)
    assert any(isinstance(order, DropWorker) for order in orders)
    assert restarted(orders) == {C}


def test_a_word_lost_with_a_connection_is_said_again(driver: Driver) -> None:
    assert words(driver.check_in(A, B)) == [(A, "proceed"), (B, "proceed")]
    assert words(driver.check_in(A)) == [(A, "proceed")]


def test_a_worker_that_formed_and_did_not_hear_the_word_to_step_hears_it_again(driver: Driver) -> None:
    assert words(driver.do("worker_formed", B, Formed(generation=1, digest="same"))) == [(B, "proceed")]


def test_no_decision_is_taken_while_a_member_is_without_a_connection(driver: Driver) -> None:
    driver.check_in(A)
    driver.do("worker_disconnected", A, 0xA)
    assert driver.check_in(B) == [], "A would miss it"
    assert words(driver.worker(A, generation=1, stage="waits")) == [(A, "proceed"), (B, "proceed")]


def test_the_connection_of_a_new_worker_is_not_dropped_in_place_of_the_old_one(driver: Driver) -> None:
    driver.node(C, base=False)
    driver.worker(C, pid=50)
    assert not any(isinstance(order, DropWorker) for order in driver.worker(C, pid=51))
    assert driver.session.job.roster.pid_of(C) == 51


def test_a_survivor_whose_verdict_was_lost_hears_it_with_the_next_order(three: Driver) -> None:
    """Without it its training thread would wait inside the void step, and be left behind as one that does not
    prepare.
    """
    three.exits(C)
    at = Position(epoch=0, offset=10, step=1)
    for name in (A, B):
        orders = three.do("step_status", name, StepStatus(generation=1, phase="held", position=at, answered=0))
    assert set(forms(orders)) == {A, B}
    three.do("worker_disconnected", B, 0xB)
    assert words(three.worker(B, generation=1, stage="aborted", position=START)) == [(B, "verdict"), (B, "form")]


def test_a_survivor_that_missed_the_word_to_abort_is_asked_again(three: Driver) -> None:
    three.exits(C)
    three.do("worker_disconnected", B, 0xB)
    assert words(three.worker(B, generation=1, stage="trains", position=START)) == [(A, "abort"), (B, "abort")]


def test_t6_a_node_whose_worker_left_is_called_back_by_a_coordinator_that_does_not_know_of_it(driver: Driver) -> None:
    come_back(driver, A, B)
    driver.node(C, base=False)
    assert restarted(driver.want(A, B, C)) == {C}, "its supervisor starts a worker unless one runs"


def leaving_c(three: Driver) -> None:
    three.want(A, B)
    assert (C, "leave") in words(three.check_in(A, B, C))


def test_t6_a_node_that_is_wanted_again_before_its_worker_has_left_gets_another_when_it_has(three: Driver) -> None:
    leaving_c(three)
    assert restarted(three.want(A, B, C)) == set(), "its worker is there"
    assert restarted(three.do("worker_left", C)) == {C}


def test_t6_a_wanted_node_that_connects_without_a_worker_is_told_to_start_one(driver: Driver) -> None:
    driver.want(A, B, C)
    before = len(driver.orders)
    driver.node(C, base=False)
    assert restarted(driver.orders[before:]) == {C}


def test_after_the_end_nobody_is_called_back(three: Driver) -> None:
    leaving_c(three)
    three.do("worker_left", C)
    three.form(A, B)
    three.check_in(A, B, epoch=3)
    assert three.session.job.phase is Phase.OVER
    assert restarted(three.want(A, B, C)) == set()
