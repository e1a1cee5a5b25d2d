"""Who is taken in and who goes, decision by decision: if this is wrong, people's wishes are not carried out or a job
stops for nothing.
"""

from __future__ import annotations

from dyntrain.controller.contract.messages import Target
from dyntrain.training.events import Failed, TargetRefused
from dyntrain.training.protocol.messages import CheckIn, Leave, Position
from dyntrain.training.session.generation.generation import Limits
from dyntrain.training.session.job.options import Options
from dyntrain.training.session.job.state import Phase
from dyntrain.training.session.orders import DropWorker, Order, StopCoordinator, ToWorker
from session_driver import A, B, C, D, Driver, announced, come_back, forms, restarted, words


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
    driver.now += driver.options.clocks.patience + 1
    assert set(forms(driver.do("tick"))) == {A}


def test_t1_a_joiner_is_admitted_at_the_boundary_not_before(driver: Driver) -> None:
    driver.node(C, base=False)
    assert forms(driver.worker(C) + driver.want(A, B, C)) == {}
    driver.blanks(A)
    orders = forms(driver.check_in(A, B))
    assert {name: order.fetch for name, order in orders.items()} == {A: False, B: False, C: True}


def test_a_joiner_that_nobody_wants_yet_stays_outside(driver: Driver) -> None:
    driver.node(C, base=False)
    driver.worker(C)
    driver.blanks(A)
    assert forms(driver.check_in(A, B)) == {}


def test_t3_the_first_worker_may_leave_and_the_state_comes_from_a_survivor(driver: Driver) -> None:
    driver.node(C, base=False)
    driver.worker(C)
    driver.want(B, C)
    driver.blanks(A)
    orders = driver.check_in(A, B)
    assert {order.source for order in forms(orders).values()} == {B}
    assert any(
        isinstance(order, ToWorker) and order.instance_id == A and isinstance(order.message, Leave) for order in orders
    )


def test_a_leaver_counts_as_a_member_in_the_report_until_it_has_left(driver: Driver) -> None:
    driver.want(B)
    driver.blanks(A)
    driver.check_in(A, B)
    assert A in {member.instance_id for member in driver.session.report(driver.now).members}, (
        "it may not be terminated yet"
    )
    driver.do("worker_left", A)
    assert {member.instance_id for member in driver.session.report(driver.now).members} == {B}


def test_c37_a_lower_target_revision_is_refused(driver: Driver) -> None:
    driver.want(A, B, C)
    old = Target.of(1, (A,))
    driver.do("new_target", old)
    assert driver.session.report(driver.now).revision == 2


def test_the_same_revision_with_other_content_is_refused_and_said_once(driver: Driver) -> None:
    """Two controllers that write one parameter in turn would have every worker leave and join for ever."""
    driver.want(A, B, C)
    other = Target.of(2, (A,)).model_copy(update={"stage": "dev"})
    orders = [driver.do("new_target", target) for target in (other, other, Target.of(2, (A, B, C)), other)]
    assert [len(announced(each, TargetRefused)) for each in orders] == [1, 0, 0, 0]
    assert driver.session.job.target == Target.of(2, (A, B, C))
    driver.do("new_target", Target.of(3, (A,)))
    assert driver.session.report(driver.now).revision == 3


def test_a_worker_with_other_arguments_is_refused_with_the_difference(driver: Driver) -> None:
    driver.node(C, base=False)
    orders = driver.worker(C, global_batch=11)
    assert any(
        isinstance(order, DropWorker) and "global_batch is 11 here and 10 on" in order.reason for order in orders
    )


def test_t10_below_the_minimum_the_job_waits_at_the_boundary(driver: Driver) -> None:
    driver.session.job.options = Options(cluster="c", job="j", started_at=1.0, limits=Limits(2, 4), workers=2)
    driver.want(A)
    driver.check_in(A, B)
    assert "minimum" in driver.session.report(driver.now).reason


def test_the_job_ends_when_the_last_worker_has_left(driver: Driver) -> None:
    driver.check_in(A, B, epoch=3)
    assert not any(isinstance(order, StopCoordinator) for order in driver.do("worker_left", A))
    assert any(isinstance(order, StopCoordinator) for order in driver.do("worker_left", B))


def test_t6_a_node_that_left_and_is_wanted_again_gets_a_new_worker(driver: Driver) -> None:
    driver.want(B)
    driver.blanks(A)
    driver.check_in(A, B)
    assert restarted(driver.do("worker_left", A)) == set()
    assert restarted(driver.want(A, B)) == {A}


def at_segment(driver: Driver, *names: str) -> list[Order]:
    orders = []
    for name in names:
        orders += driver.do(
            "check_in", name, CheckIn(generation=1, position=Position(epoch=0, offset=10, step=1), pid=1)
        )
    return orders


def test_voluntary_changes_wait_for_the_end_of_the_epoch(three: Driver) -> None:
    three.want(A, B)
    assert {word for _, word in words(at_segment(three, A, B, C))} == {"proceed"}


def test_n7_a_worker_with_a_deadline_leaves_at_the_next_segment(three: Driver) -> None:
    three.do("new_target", Target.of(9, (A, B), leave_by={C: 500.0}))
    assert (C, "leave") in words(at_segment(three, A, B, C))


def test_t13_ten_joins_and_leaves_within_a_segment_are_one_reconfiguration(driver: Driver) -> None:
    driver.node(C, base=False)
    driver.worker(C)
    driver.node(D, base=False)
    driver.worker(D)
    driver.blanks(A)
    burst = [
        driver.want(*names)
        for names in ([A, B, C], [A, B], [A, B, D], [A, D], [A, C, D], [B, C], [A, B, C], [A, B], [A, D], [B, D])
    ]
    assert [words(orders) for orders in burst] == [[]] * 10
    orders = driver.check_in(A, B)
    assert set(forms(orders)) == {B, D}
    assert words(driver.prepare(B, D)) == [(B, "go"), (D, "go")]


def test_t10_a_job_that_stays_below_the_minimum_fails_and_says_why(driver: Driver) -> None:
    driver.session.job.options = Options(
        cluster="c", job="j", started_at=1.0, limits=Limits(2, 4), workers=2, pause_seconds=100.0
    )
    driver.want(A)
    driver.check_in(A, B)
    driver.now += 99
    driver.do("tick")
    assert driver.session.job.phase is Phase.TRAINING, "it waits at the boundary"
    driver.now += 2
    driver.do("tick")
    assert [event.reason for event in announced(driver.orders, Failed)] == [
        "fewer wanted workers are ready than the minimum, for 100 s"
    ]


def test_t10_workers_that_come_back_in_time_end_the_pause(driver: Driver) -> None:
    driver.session.job.options = Options(
        cluster="c", job="j", started_at=1.0, limits=Limits(2, 4), workers=2, pause_seconds=100.0
    )
    driver.want(A)
    driver.check_in(A, B)
    driver.now += 99
    assert [word for _, word in words(driver.want(A, B))] == ["proceed", "proceed"], (
        "the same members need no new generation"
    )
    driver.now += 200
    driver.do("tick")
    assert driver.session.job.phase is Phase.TRAINING


def test_a_start_waits_for_nodes_that_prepare_as_long_as_they_take() -> None:
    driver = Driver(workers=2, pause_seconds=10.0)
    driver.session.job.options = Options(
        cluster="c", job="j", started_at=1.0, limits=Limits(2, 4), workers=2, pause_seconds=10.0
    )
    driver.node(A)
    driver.worker(A)
    driver.want(A)
    driver.now += 5000
    driver.do("tick")
    assert driver.session.job.phase is Phase.WAITING


def test_a_leaver_whose_word_to_leave_was_lost_hears_it_again(driver: Driver) -> None:
    driver.want(B)
    driver.blanks(A)
    driver.check_in(A, B)
    driver.do("worker_disconnected", A, 0xA)
    assert words(driver.worker(A, generation=1, stage="waits")) == [(A, "leave")]


def test_people_are_told_the_targets_nodes_with_the_coordinators_last(driver: Driver) -> None:
    """They loop over them, and never take the master for one that may go."""
    driver.node(C, base=False)
    assert driver.session.addresses(A) == ("10.0.0.11", "10.0.0.10"), "the target does not list the third yet"
    driver.want(A, B, C)
    driver.do("node_lost", B)
    assert driver.session.addresses(A) == ("10.0.0.11", "10.0.0.12", "10.0.0.10"), "it may come back"
    driver.want(A, C)
    assert driver.session.addresses(A) == ("10.0.0.12", "10.0.0.10")


def test_a_coordinator_that_came_back_tells_no_addresses_before_its_nodes_told_theirs(driver: Driver) -> None:
    """Half a list would have people's commands run on half of the cluster."""
    assert Driver(workers=2).session.addresses(A) is None
    come_back(driver, A)
    driver.want(A, B)
    assert driver.session.addresses(A) is None
