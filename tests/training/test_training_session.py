"""The coordinator's decisions event by event, without processes: what it orders when things come late, twice, or not at all."""

from __future__ import annotations

from typing import Any

import pytest

from controller.contract import Target
from training.generation import Limits
from training.knowledge import Options, Phase
from training.orders import DropWorker, Journal, Order, Over, ToNode, ToWorker
from training.protocol import (
    CheckIn,
    Committed,
    FirstStep,
    Form,
    Formed,
    GroupReady,
    Leave,
    NodeHello,
    Position,
    Pumped,
    RestartWorker,
    StepStatus,
    Verdict,
    WorkerExited,
    WorkerHello,
)
from training.session import Session

A, B, C = "i-0000000a", "i-0000000b", "i-0000000c"


class Driver:
    """Feeds a session and keeps what it orders."""

    def __init__(self, workers: int = 2, **options: Any) -> None:
        self.now = 100.0
        self.options = Options(cluster="c", job="j", started_at=1.0, limits=Limits(1, 4), workers=workers, **options)
        self.session = Session.recovered(self.options, lambda: "transfer", [], self.now)
        self.orders: list[Order] = []
        self.revision = 0

    def do(self, method: str, *arguments: Any) -> list[Order]:
        orders = getattr(self.session, method)(*arguments, self.now)
        self.orders += orders
        return orders

    def node(self, name: str, base: bool = True) -> None:
        ip = f"10.0.0.{int(name[-1], 16)}"
        self.do("node_connected", NodeHello(cluster="c", instance_id=name, private_ip=ip, attempt=1, base=base))
        if base:
            self.do("group_ready", name, GroupReady(scheduler_port=10_000, blanks=2))

    def worker(self, name: str, pid: int = 0, **fields: Any) -> list[Order]:
        agreed = {"epochs": 3, "samples": 20, "global_batch": 10, "seed": 0, "layout": "x"}
        hello = WorkerHello(
            cluster="c", instance_id=name, private_ip="10.0.0.1", pid=pid or int(name[-1], 16), state_port=9000, **{**agreed, **fields}
        )
        return self.do("worker_connected", hello)

    def want(self, *names: str) -> list[Order]:
        self.revision += 1
        return self.do("new_target", Target.of(self.revision, names))

    def form(self, *names: str) -> list[Order]:
        orders = []
        for name in names:
            orders += self.do("worker_formed", name, Formed(generation=self.session.number, digest="same"))
        for name in names:
            orders += self.do("first_step", name, FirstStep(generation=self.session.number))
        return orders

    def check_in(self, *names: str, epoch: int = 1) -> list[Order]:
        orders = []
        for name in names:
            orders += self.do("check_in", name, CheckIn(generation=self.session.number, position=Position(epoch=epoch, offset=0, step=2 * epoch)))
        return orders

    def train(self, *names: str) -> None:
        for name in names:
            self.node(name)
            self.worker(name)
        self.want(*names)
        self.form(*names)
        assert self.session.phase is Phase.TRAINING


def forms(orders: list[Order]) -> dict[str, Form]:
    return {order.instance_id: order.message for order in orders if isinstance(order, ToWorker) and isinstance(order.message, Form)}


def restarted(orders: list[Order]) -> set[str]:
    return {order.instance_id for order in orders if isinstance(order, ToNode) and isinstance(order.message, RestartWorker)}


@pytest.fixture
def driver() -> Driver:
    driver = Driver()
    driver.train(A, B)
    return driver


def test_the_first_generation_waits_for_all_workers_of_the_start() -> None:
    driver = Driver(workers=2)
    driver.node(A)
    driver.worker(A)
    assert forms(driver.want(A)) == {}
    driver.node(B)
    driver.worker(B)
    assert set(forms(driver.want(A, B))) == {A, B}


def test_a_start_that_falls_short_goes_on_with_fewer_after_the_grace() -> None:
    driver = Driver(workers=2)
    driver.node(A)
    driver.worker(A)
    driver.want(A)
    driver.now += driver.options.start_grace + 1
    assert set(forms(driver.do("tick"))) == {A}


def test_t1_a_joiner_is_admitted_at_the_boundary_not_before(driver: Driver) -> None:
    driver.node(C, base=False)
    assert forms(driver.worker(C) + driver.want(A, B, C)) == {}
    driver.do("group_ready", A, GroupReady(scheduler_port=10_001, blanks=2))
    orders = forms(driver.check_in(A, B))
    assert {name: order.fetch for name, order in orders.items()} == {A: False, B: False, C: True}


def test_a_joiner_that_nobody_wants_yet_stays_outside(driver: Driver) -> None:
    driver.node(C, base=False)
    driver.worker(C)
    driver.do("group_ready", A, GroupReady(scheduler_port=10_001, blanks=2))
    assert forms(driver.check_in(A, B)) == {}


def test_t3_the_first_worker_may_leave_and_the_state_comes_from_a_survivor(driver: Driver) -> None:
    driver.node(C, base=False)
    driver.worker(C)
    driver.want(B, C)
    driver.do("group_ready", A, GroupReady(scheduler_port=10_001, blanks=2))
    orders = driver.check_in(A, B)
    assert {order.source for order in forms(orders).values()} == {B}
    assert any(isinstance(order, ToWorker) and order.instance_id == A and isinstance(order.message, Leave) for order in orders)


def test_a_leaver_counts_as_a_member_in_the_report_until_it_has_left(driver: Driver) -> None:
    driver.want(B)
    driver.do("group_ready", A, GroupReady(scheduler_port=10_001, blanks=2))
    driver.check_in(A, B)
    assert A in {member.instance_id for member in driver.session.report(driver.now).members}, "it may not be terminated yet"
    driver.do("worker_left", A)
    assert {member.instance_id for member in driver.session.report(driver.now).members} == {B}


def test_c37_a_lower_target_revision_is_refused(driver: Driver) -> None:
    driver.want(A, B, C)
    old = Target.of(1, (A,))
    driver.do("new_target", old)
    assert driver.session.report(driver.now).revision == 2


def test_t9_a_joiner_that_dies_while_it_waits_disturbs_nobody(driver: Driver) -> None:
    driver.node(C, base=False)
    driver.worker(C, pid=77)
    driver.want(A, B, C)
    driver.do("group_ready", A, GroupReady(scheduler_port=10_001, blanks=2))
    orders = driver.do("worker_exited", C, WorkerExited(pid=77, code=-9, reason="killed"))
    assert restarted(orders) == {C}
    assert forms(driver.check_in(A, B)) == {}, "the others step on"


def test_t7_in_mode_restart_a_worker_killed_in_mid_epoch_restarts_all_from_the_last_commit() -> None:
    driver = Driver(recovery="restart")
    driver.train(A, B)
    driver.check_in(A, B)
    driver.do("committed", A, Committed(generation=1, position=Position(epoch=1, offset=0, step=2), name="c1"))
    orders = driver.do("worker_exited", B, WorkerExited(pid=0xB, code=-9, reason="killed"))
    assert restarted(orders) == {A, B}
    driver.do("group_ready", A, GroupReady(scheduler_port=10_001, blanks=2))
    driver.worker(A, pid=21)
    again = forms(driver.worker(B, pid=22))
    assert {order.position.step for order in again.values()} == {2}
    assert again[A].commit == "c1"
    assert again[B].fetch


def test_a_worker_that_dies_after_its_check_in_costs_nothing(driver: Driver) -> None:
    driver.check_in(B)
    orders = driver.do("worker_exited", B, WorkerExited(pid=0xB, code=-9, reason="killed"))
    assert restarted(orders) == {B}
    driver.do("group_ready", A, GroupReady(scheduler_port=10_001, blanks=2))
    assert set(forms(driver.check_in(A))) == {A}, "A re-forms without it, in the same process"


def test_news_of_an_earlier_process_changes_nothing(driver: Driver) -> None:
    assert driver.do("worker_exited", B, WorkerExited(pid=999, code=1, reason="long ago")) == []
    assert driver.session.phase is Phase.TRAINING


def test_a_check_in_of_an_earlier_generation_is_void(driver: Driver) -> None:
    stale = CheckIn(generation=0, position=Position(epoch=1, offset=0, step=2))
    assert driver.do("check_in", A, stale) == []


def test_a_worker_with_other_arguments_is_refused_with_the_difference(driver: Driver) -> None:
    driver.node(C, base=False)
    orders = driver.worker(C, global_batch=11)
    assert any(isinstance(order, DropWorker) and "global_batch is 11 here and 10 on" in order.reason for order in orders)


def test_workers_that_differ_in_state_stop_the_job(driver: Driver) -> None:
    driver.node(C, base=False)
    driver.worker(C)
    driver.want(A, B, C)
    driver.do("group_ready", A, GroupReady(scheduler_port=10_001, blanks=2))
    driver.check_in(A, B)
    for name, digest in ((A, "one"), (B, "one"), (C, "two")):
        driver.do("worker_formed", name, Formed(generation=2, digest=digest))
    assert driver.session.report(driver.now).state == "failed"


def test_t10_below_the_minimum_the_job_waits_at_the_boundary(driver: Driver) -> None:
    driver.session.options = Options(cluster="c", job="j", started_at=1.0, limits=Limits(2, 4), workers=2)
    driver.want(A)
    driver.check_in(A, B)
    assert "minimum" in driver.session.report(driver.now).reason


def test_a_flapping_worker_is_given_up_after_its_budget(driver: Driver) -> None:
    driver.node(C, base=False)
    revived = []
    for pid in range(50, 58):
        driver.worker(C, pid=pid)
        revived.append(bool(restarted(driver.do("worker_exited", C, WorkerExited(pid=pid, code=1, reason="crash")))))
    assert revived == [True] * 5 + [False] * 3


def test_t17_a_coordinator_that_comes_back_takes_up_its_workers(driver: Driver) -> None:
    journal = [order.record for order in driver.orders if isinstance(order, Journal)]
    session = Session.recovered(driver.options, lambda: "transfer", journal, driver.now)
    driver.session = session
    driver.node(A)
    driver.node(B)
    driver.worker(A, generation=1)
    driver.worker(B, generation=1)
    driver.want(A, B)
    orders = driver.check_in(A, B)
    assert [order.message.type for order in orders if isinstance(order, ToWorker)] == ["proceed", "proceed"]


def test_the_job_ends_when_the_last_worker_has_left(driver: Driver) -> None:
    driver.check_in(A, B, epoch=3)
    assert not any(isinstance(order, Over) for order in driver.do("worker_left", A))
    assert any(isinstance(order, Over) for order in driver.do("worker_left", B))


def test_a_formation_that_hangs_is_given_up(driver: Driver) -> None:
    driver.want(B)
    driver.do("group_ready", A, GroupReady(scheduler_port=10_001, blanks=2))
    driver.check_in(A, B)
    driver.now += driver.options.formation_seconds + 1
    assert restarted(driver.do("tick")) == {A, B}


def test_t6_a_node_that_left_and_is_wanted_again_gets_a_new_worker(driver: Driver) -> None:
    driver.want(B)
    driver.do("group_ready", A, GroupReady(scheduler_port=10_001, blanks=2))
    driver.check_in(A, B)
    assert restarted(driver.do("worker_left", A)) == set()
    assert restarted(driver.want(A, B)) == {A}


def blocked(driver: Driver, name: str, step: int, answered: int = 0, phase: str = "wait") -> list[Order]:
    position = Position(epoch=0, offset=10 * step, step=step)
    return driver.do("step_status", name, StepStatus(generation=1, phase=phase, position=position, answered=answered))


def words(orders: list[Order]) -> list[tuple[str, str]]:
    return [(order.instance_id, order.message.type) for order in orders if isinstance(order, ToWorker)]


def lose_c(driver: Driver) -> list[Order]:
    return driver.do("worker_exited", C, WorkerExited(pid=0xC, code=-9, reason="killed"))


@pytest.fixture
def three() -> Driver:
    driver = Driver(workers=3)
    driver.train(A, B, C)
    for name in (A, B):
        driver.do("group_ready", name, GroupReady(scheduler_port=10_001, blanks=2))
    return driver


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
    orders = three.do("worker_exited", A, WorkerExited(pid=0xA, code=-9, reason="killed"))
    assert words(orders) == [(B, "abort")]
    assert words(blocked(three, B, step=1)) == [(B, "pump")]


def test_t7_survivors_that_do_not_come_free_are_restarted(three: Driver) -> None:
    lose_c(three)
    three.now += three.options.release_seconds + 1
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
    orders = driver.do("group_ready", A, GroupReady(scheduler_port=10_001, blanks=2))
    assert set(forms(orders)) == {A, B}


def at_segment(driver: Driver, *names: str) -> list[Order]:
    orders = []
    for name in names:
        orders += driver.do("check_in", name, CheckIn(generation=1, position=Position(epoch=0, offset=10, step=1)))
    return orders


def test_voluntary_changes_wait_for_the_end_of_the_epoch(three: Driver) -> None:
    three.want(A, B)
    assert {word for _, word in words(at_segment(three, A, B, C))} == {"proceed"}


def test_n7_a_worker_with_a_deadline_leaves_at_the_next_segment(three: Driver) -> None:
    three.do("new_target", Target.of(9, (A, B), leave_by={C: 500.0}))
    assert (C, "leave") in words(at_segment(three, A, B, C))


def test_t17_what_workers_said_while_the_coordinator_came_back_counts(driver: Driver) -> None:
    journal = [order.record for order in driver.orders if isinstance(order, Journal)]
    driver.session = Session.recovered(driver.options, lambda: "transfer", journal, driver.now)
    driver.worker(A, generation=1)
    driver.do("worker_formed", A, Formed(generation=1, digest="same"))
    assert (A, "proceed") in words(driver.worker(B, generation=1)), "nobody waits for a word that was said to the one before"


def test_a_word_lost_with_a_connection_is_said_again(driver: Driver) -> None:
    assert words(driver.check_in(A, B)) == [(A, "proceed"), (B, "proceed")]
    assert words(driver.check_in(A)) == [(A, "proceed")]


def test_no_decision_is_taken_while_a_member_is_without_a_connection(driver: Driver) -> None:
    driver.check_in(A)
    driver.do("worker_disconnected", A, 0xA)
    assert driver.check_in(B) == [], "A would miss it"
    assert words(driver.worker(A, generation=1)) == [(A, "proceed"), (B, "proceed")]


def test_a_job_in_which_nothing_moves_is_restarted(driver: Driver) -> None:
    driver.now += driver.options.progress_seconds + 1
    assert restarted(driver.do("tick")) == {A, B}


def test_a_host_of_servers_that_stays_away_restarts_the_job(driver: Driver) -> None:
    driver.do("node_lost", B)
    driver.now += driver.options.liveness_seconds + 1
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


def test_the_connection_of_a_new_worker_is_not_dropped_in_place_of_the_old_one(driver: Driver) -> None:
    driver.node(C, base=False)
    driver.worker(C, pid=50)
    assert not any(isinstance(order, DropWorker) for order in driver.worker(C, pid=51))
    assert driver.session.roster.pid(C) == 51


def test_a_loss_in_the_last_moments_does_not_train_a_finished_job_again(three: Driver) -> None:
    lose_c(three)
    end = Position(epoch=3, offset=0, step=6)
    for name in (A, B):
        orders = three.do("step_status", name, StepStatus(generation=1, phase="held", position=end, answered=0))
    assert words(orders)[-2:] == [(A, "leave"), (B, "leave")]


def test_t17_a_member_that_died_while_there_was_no_coordinator_is_not_waited_for(driver: Driver) -> None:
    """Its node started a new worker, which alone says so: the others would stand blocked until the grace is over."""
    journal = [order.record for order in driver.orders if isinstance(order, Journal)]
    driver.session = Session.recovered(driver.options, lambda: "transfer", journal, driver.now)
    driver.node(A)
    driver.node(B)
    driver.worker(A, generation=1)
    assert restarted(driver.worker(B, pid=77)) == {A}, "A is blocked; B's new worker stays"
    assert B in driver.session.roster.standing
