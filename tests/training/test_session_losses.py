"""What a loss costs, decision by decision: who goes on in its process, who is restarted, and that nothing waits for ever."""

from __future__ import annotations

import pytest
from session_driver import A, B, C, Driver, forms, restarted, words

from training.knowledge import Phase
from training.orders import Announce, Order, ToNode, ToWorker
from training.protocol import (
    Committed,
    CoolDown,
    GroupFailed,
    NodeHello,
    NodeNotice,
    Position,
    Progress,
    Pumped,
    StepStatus,
    Verdict,
    WorkerExited,
    WorkerStarted,
)
from training.roster import Budget


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
    driver.do("committed", A, Committed(generation=1, position=Position(epoch=1, offset=0, step=2), name="c1"))
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
    assert driver.session.phase is Phase.TRAINING


def crash(driver: Driver, name: str, pid: int) -> list[Order]:
    driver.worker(name, pid=pid)
    return driver.do("worker_exited", name, WorkerExited(pid=pid, code=1, reason="crash"))


def cool_downs(driver: Driver) -> list[float]:
    return [order.fields["seconds"] for order in driver.orders if isinstance(order, Announce) and order.event == "cooling_down"]


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
    """Its bootstrap would take the silence for a lost order, give the worker up, and the controller would release the node."""
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
    said: list[CoolDown] = []
    for pid in range(60, 66):
        said += told_to_cool(crash(driver, C, pid))
        driver.now += said[-1].seconds + 1
        driver.session.heard = driver.now
        assert restarted(driver.do("tick")) == {C}, "a base node has nobody to take its place, and is tried again"
    assert [(one.seconds, one.given_up) for one in said] == [(60, False), (120, False), (240, False), (480, False), (960, True), (1920, True)]


def test_t10_t12_a_job_without_enough_workers_waits_no_longer_than_a_first_cool_down() -> None:
    """A cool-down spares the others; where too few are left to train, it would only keep the job from going on."""
    driver = Driver(workers=1, budget=Budget(restarts=0))
    driver.train(A)
    for pid in (50, 51):
        driver.exits(A, pid=driver.session.roster.members[A].pid)
        driver.blanks(A)
        driver.now += 61
        assert restarted([*driver.do("tick"), *driver.do("tick")]) == {A}
        driver.worker(A, pid=pid)
        driver.form(A)
    assert cool_downs(driver) == [60.0, 120.0]
    assert driver.session.phase is Phase.TRAINING


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
    failed = [order.fields["reason"] for order in driver.orders if isinstance(order, Announce) and order.event == "failed"]
    assert "no module named train" in failed[0]


def test_t8_restarts_without_a_new_commit_come_to_an_end() -> None:
    driver = Driver(recovery="restart", budget=Budget(restarts=1000))
    driver.train(A, B)
    for round_ in range(1, 25):
        if driver.session.phase is Phase.OVER:
            break
        driver.exits(B, pid=driver.session.roster.members[B].pid)
        driver.now += 31
        for name in (A, B):
            driver.blanks(name)
            driver.worker(name, pid=100 * round_ + int(name[-1], 16))
        driver.form(A, B)
    assert driver.session.outcome == "failed"


def lost(driver: Driver, name: str) -> list[str]:
    found = [order.fields for order in driver.orders if isinstance(order, Announce) and order.event == "worker_lost"]
    return [fields["reason"] for fields in found if fields["instance"] == name]


def test_a_worker_that_hangs_before_its_first_connection_is_started_again_and_cools_down_in_the_end(driver: Driver) -> None:
    """Stuck in its imports it would keep its node out of the job for ever, and nobody would say why."""
    driver.node(C, base=False)
    start, within = driver.options.clocks.start, []
    for pid in range(50, 56):
        driver.do("worker_started", C, WorkerStarted(pid=pid))
        driver.now += start - 1
        steps = Progress(generation=driver.session.number, position=Position(epoch=0, offset=0, step=1), samples_per_second=1.0)
        driver.do("progressed", A, steps)  # the others train
        within += driver.do("tick")
        driver.do("node_lost", C)
        driver.node(C, base=False, worker_pid=pid)  # told again, it has no more time
        driver.now += 2
        driver.do("tick")
    assert not restarted(within)
    assert [reason.split(":")[0] for reason in lost(driver, C)] == [f"started, and not connected to the coordinator within {start + 1:.0f} s"] * 6
    assert [order.message.pid for order in driver.orders if restarted([order]) == {C}] == [50, 51, 52, 53, 54]
    assert cool_downs(driver) == [60.0], "they count together, however long each took"


def test_a_worker_that_connects_in_time_or_has_left_is_not_waited_for(driver: Driver) -> None:
    driver.node(C, base=False)
    driver.do("worker_started", C, WorkerStarted(pid=50, spare=True))
    driver.now += 2
    ready = [order.fields for order in driver.worker(C, pid=50) if isinstance(order, Announce) and order.event == "worker_ready"]
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
    driver.now += driver.options.clocks.start + 1
    driver.check_in(A, B, epoch=3)
    driver.do("tick")
    assert ready == [{"instance": C, "pid": 50, "seconds": 2.0, "spare": True}]
    assert lost(driver, C) == []


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
    assert {name: (form.generation, form.fetch, form.position.step) for name, form in again.items()} == {A: (3, False, 2), B: (3, False, 2)}


def test_t9_a_joiner_that_dies_after_the_word_to_go_restarts_all(preparing: Driver) -> None:
    assert words(preparing.prepare(A, B, C)) == [(A, "go"), (B, "go"), (C, "go")]
    assert restarted(preparing.exits(C)) == {A, B, C}


def test_t9_a_joiner_that_never_prepares_is_left_behind(preparing: Driver) -> None:
    preparing.prepare(A, B)
    for name in (A, B):
        preparing.blanks(name)
    preparing.now += preparing.options.clocks.formation + 1
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
        preparing.do("group_failed", A, GroupFailed(generation=preparing.session.number, reason="port taken"))
        preparing.now += 31
    failed = [order.fields["reason"] for order in preparing.orders if isinstance(order, Announce) and order.event == "failed"]
    assert failed == ["10 generations in a row could not be formed; the last: ps-lite process on i-0000000a: port taken"]


def test_a_formation_that_hangs_is_given_up(driver: Driver) -> None:
    driver.want(B)
    driver.blanks(A)
    driver.check_in(A, B)
    driver.prepare(B)
    driver.now += driver.options.clocks.formation + 1
    assert restarted(driver.do("tick")) == {A, B}


def blocked(driver: Driver, name: str, step: int, answered: int = 0, phase: str = "wait") -> list[Order]:
    position = Position(epoch=0, offset=10 * step, step=step)
    return driver.do("step_status", name, StepStatus(generation=1, phase=phase, position=position, answered=answered))


def lose_c(driver: Driver) -> list[Order]:
    return driver.exits(C)


def test_t7_survivors_of_a_killed_worker_are_freed_and_go_on_in_their_processes(three: Driver) -> None:
    lost = lose_c(three)
    assert words(lost) == [(A, "abort"), (B, "abort")]
    assert restarted(lost) == {C}
    blocked(three, A, step=1, answered=4)
    assert words(blocked(three, B, step=1, answered=2)) == [(A, "pump")], "one of the blocked pushes zeros"
    assert words(three.do("pumped", A, Pumped(generation=1, rounds=2, seconds=0.1))) == [(A, "abort"), (B, "abort")]
    blocked(three, A, step=1, phase="held")
    orders = blocked(three, B, step=1, phase="held")
    assert words(orders)[:2] == [(A, "verdict"), (B, "verdict")]
    assert {name: (form.fetch, form.position.step) for name, form in forms(orders).items()} == {A: (False, 1), B: (False, 1)}


def test_t7_the_furthest_applied_step_stands_for_everybody(three: Driver) -> None:
    lose_c(three)
    blocked(three, A, step=2, phase="out")
    orders = blocked(three, B, step=1, phase="held")
    assert {order.message.position.step for order in orders if isinstance(order, ToWorker) and isinstance(order.message, Verdict)} == {2}


def test_t7_a_second_death_while_the_others_are_freed_is_taken_along(three: Driver) -> None:
    lose_c(three)
    blocked(three, A, step=1)
    blocked(three, B, step=1)
    orders = three.exits(A)
    assert words(orders) == [(B, "abort")]
    assert words(blocked(three, B, step=1)) == [(B, "pump")]


def test_t7_survivors_that_do_not_come_free_are_restarted(three: Driver) -> None:
    lose_c(three)
    three.now += three.options.clocks.release + 1
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
    three.now += three.options.clocks.formation + 1
    orders = three.do("tick")
    assert restarted(orders) == {C}, "only the one that computes for ever"
    assert set(forms(orders)) == {A, B}


def test_a_job_whose_workers_do_not_even_come_free_is_restarted(driver: Driver) -> None:
    driver.now += driver.options.clocks.progress + 1
    driver.do("tick")
    driver.now += driver.options.clocks.release + 1
    assert restarted(driver.do("tick")) == {A, B}


def test_t18_a_slow_loader_is_not_evicted_while_it_answers_pings(driver: Driver) -> None:
    driver.now += driver.options.clocks.progress - 1
    assert driver.do("tick") == []


def test_who_comes_too_late_to_a_boundary_is_lost_and_the_others_go_on(three: Driver) -> None:
    at_first_boundary = [order for name in (A, B) for order in three.check_in(name)]
    assert words(at_first_boundary) == []
    three.now += three.options.clocks.boundary + 1
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
