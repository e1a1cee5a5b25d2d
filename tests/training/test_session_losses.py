"""What a loss costs, decision by decision: who goes on in its process, who is restarted, and that nothing waits for
ever.
"""

from __future__ import annotations

import pytest
from dyntrain.training.events import Failed, Joined, Released
from dyntrain.training.protocol.messages import (
    START,
    Committed,
    Position,
    Pump,
    Pumped,
    StepStatus,
    StepVerdict,
)
from dyntrain.training.protocol.node_messages import GroupFailed, NodeHello, WorkerExited
from dyntrain.training.session.job.state import Phase
from dyntrain.training.session.orders import Order, ToWorker
from session_driver import A, B, C, Driver, announced, decided, forms, restarted, words


def test_t9_a_joiner_that_dies_while_it_waits_disturbs_nobody(driver: Driver) -> None:
    driver.node(C, base=False)
    driver.worker(C, pid=77)
    driver.want(A, B, C)
    driver.blanks(A)
    orders = driver.do("worker_exited", C, WorkerExited(pid=77, code=-9, reason="killed"))
    assert restarted(orders) == {C}
    assert forms(driver.check_in(A, B)) == {}, "the others step on"


def test_t7_in_mode_restart_a_worker_killed_in_mid_epoch_restarts_all_from_the_last_commit() -> None:
    driver = Driver(recovery="restart")
    driver.train(A, B)
    driver.check_in(A, B)
    driver.do("commit_written", A, Committed(generation=1, position=Position(epoch=1, offset=0, step=2), name="c1"))
    orders = driver.exits(B)
    assert restarted(orders) == {A, B}
    driver.blanks(A)
    driver.worker(A, pid=21)
    again = forms(driver.worker(B, pid=22))
    assert {order.position.step for order in again.values()} == {2}
    assert again[A].commit == "c1"
    assert again[B].fetch


def test_a_worker_that_dies_after_its_check_in_costs_nothing(driver: Driver) -> None:
    driver.check_in(B)
    orders = driver.exits(B)
    assert restarted(orders) == {B}
    driver.blanks(A)
    assert set(forms(driver.check_in(A))) == {A}, "A re-forms without it, in the same process"


def test_news_of_an_earlier_process_changes_nothing(driver: Driver) -> None:
    assert driver.do("worker_exited", B, WorkerExited(pid=999, code=1, reason="long ago")) == []
    assert driver.session.job.phase is Phase.TRAINING


@pytest.fixture
def preparing(driver: Driver) -> Driver:
    """C was settled in; nobody has begun to form."""
    driver.node(C, base=False)
    driver.worker(C)
    driver.want(A, B, C)
    for name in (A, B):
        driver.blanks(name)
    assert set(forms(driver.check_in(A, B))) == {A, B, C}
    return driver


def test_t9_a_joiner_that_dies_before_the_word_to_go_costs_the_others_nothing(preparing: Driver) -> None:
    preparing.prepare(A, B)
    for name in (A, B):
        preparing.blanks(name)
    orders = preparing.exits(C)
    assert restarted(orders) == {C}, "the survivors keep their processes"
    again = forms(orders)
    assert {name: (form.generation, form.fetch, form.position.step) for name, form in again.items()} == {
        A: (3, False, 2),
        B: (3, False, 2),
    }


def test_t9_a_joiner_that_dies_after_the_word_to_go_restarts_all(preparing: Driver) -> None:
    assert words(preparing.prepare(A, B, C)) == [(A, "go"), (B, "go"), (C, "go")]
    assert restarted(preparing.exits(C)) == {A, B, C}


def test_t9_a_joiner_that_never_prepares_is_left_behind(preparing: Driver) -> None:
    preparing.prepare(A, B)
    for name in (A, B):
        preparing.blanks(name)
    preparing.now += preparing.options.clocks.formation_limit + 1
    orders = preparing.do("tick")
    assert restarted(orders) == {C}
    assert set(forms(orders)) == {A, B}


def test_ps_lite_processes_that_die_before_the_word_to_go_are_replaced(preparing: Driver) -> None:
    preparing.prepare(A, B)
    for name in (A, B):
        preparing.blanks(name)
    orders = preparing.do("group_failed", A, GroupFailed(generation=2, reason="port taken"))
    assert restarted(orders) == set()
    assert set(forms(orders)) == {A, B, C}


def test_a_group_that_fails_again_and_again_ends_the_job_with_a_reason(preparing: Driver) -> None:
    for _ in range(12):
        for name in (A, B):
            preparing.blanks(name)
        preparing.do("group_failed", A, GroupFailed(generation=preparing.session.job.number, reason="port taken"))
        preparing.now += 31
    assert [event.reason for event in announced(preparing.orders, Failed)] == [
        "10 generations in a row could not be formed; the last: ps-lite process on i-0000000a: port taken"
    ]


def test_a_formation_that_hangs_is_given_up(driver: Driver) -> None:
    driver.want(B)
    driver.blanks(A)
    driver.check_in(A, B)
    driver.prepare(B)
    driver.now += driver.options.clocks.formation_limit + 1
    assert restarted(driver.do("tick")) == {A, B}


def blocked(driver: Driver, name: str, step: int, answered: int = 0, phase: str = "wait") -> list[Order]:
    position = Position(epoch=0, offset=10 * step, step=step)
    status = StepStatus(
        generation=1, phase=phase, position=position, answered=answered, exchanges=step, keys=(4, 5), windows=2
    )
    return driver.do("step_status", name, status)


def pumped(driver: Driver, name: str, number: int) -> list[Order]:
    return driver.do("zeros_pushed", name, Pumped(generation=1, number=number, rounds=0, seconds=0.1))


def pumps(orders: list[Order]) -> dict[str, Pump]:
    messages = [(order.instance_id, order.message) for order in orders if isinstance(order, ToWorker)]
    return {name: message for name, message in messages if isinstance(message, Pump)}


def lose_c(driver: Driver) -> list[Order]:
    return driver.exits(C)


def test_t7_survivors_of_a_killed_worker_are_freed_and_go_on_in_their_processes(three: Driver) -> None:
    lost = lose_c(three)
    assert words(lost) == [(A, "abort"), (B, "abort")]
    assert restarted(lost) == {C}
    blocked(three, A, step=1, answered=4)
    assert words(blocked(three, B, step=1, answered=2)) == [(A, "pump"), (B, "pump")], "each has its share"
    assert pumped(three, A, number=1) == []
    assert words(pumped(three, B, number=1)) == [(A, "abort"), (B, "abort")]
    blocked(three, A, step=1, phase="held")
    three.now += 2.5
    orders = blocked(three, B, step=1, phase="held")
    assert words(orders)[:2] == [(A, "verdict"), (B, "verdict")]
    assert [(event.seconds, event.at) for event in announced(orders, Released)] == [(2.5, three.now)]
    assert {name: (form.fetch, form.position.step) for name, form in forms(orders).items()} == {
        A: (False, 1),
        B: (False, 1),
    }


def test_t7_who_has_not_come_to_the_step_fills_it_before_anybody_pushes_for_the_lost_one(three: Driver) -> None:
    """C is lost, B is out of the step and will not begin another, and A waits for both. What is not answered once A's
    and B's requests are there is what C owes; zeros that are pushed sooner may be too many.
    """
    lose_c(three)
    blocked(three, B, step=1, phase="out")
    for number, window in ((1, 0), (3, 1)):
        orders = blocked(three, A, step=1, answered=3) if window == 0 else pumped(three, B, number=2)
        assert words(orders) == [(B, "pump")]
        assert (pumps(orders)[B].fills, pumps(orders)[B].window, pumps(orders)[B].keys) == (True, window, (4, 5))
        assert pumped(three, B, number=number - 1) == [], "about an earlier order"
        mend = pumps(pumped(three, B, number=number))
        assert {name: (pump.share, pump.shares, pump.count) for name, pump in mend.items()} == {
            A: (0, 2, 1),
            B: (1, 2, 1),
        }
        assert not any(pump.fills or pump.window != window for pump in mend.values())
        assert pumped(three, A, number=number + 1) == []
    assert words(pumped(three, B, number=4)) == [(A, "abort"), (B, "abort")]


def test_t7_answers_to_a_worker_that_is_a_step_behind_are_on_their_way(three: Driver) -> None:
    """That A is at the next step says that all sums of the one before were sent: zeros would begin it anew."""
    lose_c(three)
    blocked(three, B, step=1, answered=0)
    assert words(blocked(three, A, step=2, answered=3)) == [(A, "abort"), (B, "abort")]
    blocked(three, B, step=1, answered=0)
    orders = blocked(three, A, step=2, answered=3)
    assert words(orders) == [(B, "pump")], "they did not come: C lives, and pushed what others had pushed for it"
    assert words(pumped(three, B, number=1)) == [(A, "abort"), (B, "abort")]


def test_t7_the_furthest_applied_step_stands_for_everybody(three: Driver) -> None:
    lose_c(three)
    blocked(three, A, step=2, phase="out")
    orders = blocked(three, B, step=1, phase="held")
    assert {
        order.message.position.step
        for order in orders
        if isinstance(order, ToWorker) and isinstance(order.message, StepVerdict)
    } == {2}


def test_t7_a_second_death_while_the_others_are_freed_is_taken_along(three: Driver) -> None:
    lose_c(three)
    blocked(three, A, step=1)
    blocked(three, B, step=1)
    orders = three.exits(A)
    assert words(orders) == [(B, "abort")]
    assert words(orders := blocked(three, B, step=1)) == [(B, "pump")]
    assert pumps(orders)[B].count == 2


def test_t7_survivors_that_do_not_come_free_are_restarted(three: Driver) -> None:
    lose_c(three)
    three.now += three.options.clocks.release_limit + 1
    assert restarted(three.do("tick")) == {A, B}


def test_t7_a_lost_server_is_no_case_for_a_release(three: Driver) -> None:
    three.do("node_lost", C)
    assert restarted(lose_c(three)) == {A, B}


def test_a_release_waits_for_blank_processes_without_restarting_anybody() -> None:
    driver = Driver(workers=3)
    driver.train(A, B, C)
    lose_c(driver)
    blocked(driver, A, step=1, phase="held")
    assert words(blocked(driver, B, step=1, phase="held")) == [(A, "verdict"), (B, "verdict")]
    orders = driver.blanks(A)
    assert set(forms(orders)) == {A, B}


def test_a_living_worker_that_keeps_the_others_waiting_is_found_by_the_progress_clock(three: Driver) -> None:
    three.now += three.options.clocks.progress + 1
    assert words(three.do("tick")) == [(A, "abort"), (B, "abort"), (C, "abort")], "those who wait in the step are freed"
    for name, phase in ((A, "held"), (B, "held"), (C, "out")):
        orders = blocked(three, name, step=1, phase=phase)
    assert set(forms(orders)) == {A, B, C}
    three.prepare(A, B)
    three.blanks(A)
    three.now += three.options.clocks.formation_limit + 1
    orders = three.do("tick")
    assert restarted(orders) == {C}, "only the one that computes for ever"
    assert set(forms(orders)) == {A, B}


def test_a_job_whose_workers_do_not_even_come_free_is_restarted(driver: Driver) -> None:
    driver.now += driver.options.clocks.progress + 1
    driver.do("tick")
    driver.now += driver.options.clocks.release_limit + 1
    assert restarted(driver.do("tick")) == {A, B}


def test_t18_a_slow_loader_is_not_evicted_while_it_answers_pings(driver: Driver) -> None:
    driver.now += driver.options.clocks.progress - 1
    assert decided(driver.do("tick")) == []


def test_who_comes_too_late_to_a_boundary_is_lost_and_the_others_go_on(three: Driver) -> None:
    at_first_boundary = [order for name in (A, B) for order in three.check_in(name)]
    assert words(at_first_boundary) == []
    three.now += three.options.clocks.boundary_limit + 1
    orders = three.do("tick")
    assert restarted(orders) == {C}
    assert words(orders) == [(A, "abort"), (B, "abort")]


def test_a_host_of_servers_that_stays_away_restarts_the_job(driver: Driver) -> None:
    driver.do("node_lost", B)
    driver.now += driver.options.clocks.liveness + 1
    assert A in restarted(driver.do("tick"))


def test_a_host_that_started_again_has_lost_its_servers(driver: Driver) -> None:
    driver.do("node_lost", B)
    again = NodeHello(cluster="c", instance_id=B, private_ip="10.0.0.11", attempt=2, base=True)
    assert A in restarted(driver.do("node_connected", again))


def test_the_order_to_restart_a_worker_is_repeated_but_its_loss_counted_once(driver: Driver) -> None:
    driver.node(C, base=False)
    driver.worker(C, pid=50)
    gone = WorkerExited(pid=50, code=1, reason="crash")
    again = [restarted(driver.do("worker_exited", C, gone)) for _ in range(8)]
    assert again == [{C}] * 8


def test_a_loss_in_the_last_moments_does_not_train_a_finished_job_again(three: Driver) -> None:
    lose_c(three)
    end = Position(epoch=3, offset=0, step=6)
    for name in (A, B):
        orders = three.do("step_status", name, StepStatus(generation=1, phase="held", position=end, answered=0))
    assert words(orders)[-2:] == [(A, "leave"), (B, "leave")]


def test_a_fresh_process_counts_as_training_only_once_it_trains(driver: Driver) -> None:
    """The only holder of the state is lost before the word to go: the controller must not hear that its next process
    trains already, and whoever reads the events hears of it when it does.
    """
    driver.exits(B)
    driver.do("step_status", A, StepStatus(generation=1, phase="out", position=START, answered=0))
    driver.worker(B, pid=22)
    assert set(forms(driver.blanks(A))) == {A, B}
    driver.exits(A)
    assert driver.session.job.phase is Phase.WAITING
    driver.worker(A, pid=21)
    assert set(forms(driver.blanks(A))) == {A, B}
    members = driver.session.report(driver.now).members
    assert {member.instance_id: member.active for member in members} == {A: False, B: False}
    joined = announced(driver.form(A, B), Joined)
    assert [(event.instance, event.pid) for event in joined] == [(A, 21), (B, 22)]


def test_after_a_restart_nobody_is_reported_as_a_member_until_the_next_generation() -> None:
    """What was known of the generation dies with it: the controller may end a machine whose worker is none any more."""
    driver = Driver(recovery="restart")
    driver.train(A, B)
    driver.check_in(A)
    driver.exits(B)
    assert driver.session.job.phase is Phase.WAITING
    assert driver.session.report(driver.now).members == ()
    driver.blanks(A)
    for name, pid in ((A, 21), (B, 22)):
        driver.worker(name, pid=pid)
    assert driver.session.job.phase is Phase.PREPARING
    assert not any(member.active for member in driver.session.report(driver.now).members)
