"""The end of a job: everybody hears of it, nobody is waited for in vain, and only those who took part keep the
result.
"""

from __future__ import annotations

import pytest
from dyntrain.training.protocol.messages import ENDLESS, CheckIn, Leave, Position, StepStatus
from dyntrain.training.session.orders import Order, StopCoordinator, ToWorker
from session_driver import A, B, Driver, come_back, words


def test_t17_after_the_end_whoever_missed_it_hears_it_and_no_new_job_begins(driver: Driver) -> None:
    driver.check_in(A, B, epoch=3)
    come_back(driver)
    assert words(driver.worker(A, generation=1, stage="waits")) == [(A, "leave")]
    driver.node(B)  # its worker has left
    assert not any(isinstance(order, StopCoordinator) for order in driver.orders)
    assert any(isinstance(order, StopCoordinator) for order in driver.do("worker_left", A))


def told_to_leave(orders: list[Order]) -> list[int]:
    """Of which generation those who may keep what they have as the job's result."""
    return [
        order.message.generation for order in orders if isinstance(order, ToWorker) and isinstance(order.message, Leave)
    ]


def test_t17_who_came_to_the_end_of_a_past_that_was_undone_does_not_take_its_weights_for_the_jobs(
    driver: Driver,
) -> None:
    """Both had trained all epochs when the coordinator died, and it gave up waiting for them: the last epochs are
    trained again without a.
    """
    come_back(driver)
    driver.now += driver.options.clocks.patience + 1
    driver.do("tick")
    driver.want(B)
    for _ in range(2):  # the word is lost with a connection, and said again
        assert told_to_leave(driver.worker(A, generation=1, stage="waits")) == [0]
    driver.do("worker_left", A)
    driver.node(B)
    driver.worker(B, pid=32)
    driver.form(B)
    assert told_to_leave(driver.check_in(B, epoch=3)) == [2]
    assert told_to_leave(driver.worker(A, generation=1, stage="waits")) == [2], "not the generation that it was in"


def test_t17_after_the_end_nobody_is_waited_for_for_ever(driver: Driver) -> None:
    driver.check_in(A, B, epoch=3)
    come_back(driver)
    driver.now += driver.options.clocks.patience + 1
    assert any(isinstance(order, StopCoordinator) for order in driver.do("tick"))


def test_a_worker_at_the_last_sample_of_a_job_that_failed_has_no_result(driver: Driver) -> None:
    driver.check_in(A, epoch=3)
    driver.check_in(B, epoch=2)
    assert driver.session.job.outcome == "failed", "they stand at different positions"
    assert told_to_leave(driver.worker(A, generation=1, stage="waits")) == [0]


def test_a_stop_at_the_end_of_an_epoch_whose_last_step_was_lost_ends_the_job_there(driver: Driver) -> None:
    """The generation that follows the loss is formed before the script's own end of the epoch: b is in the next epoch's
    first step by then.
    """
    driver.check_in(A, B)
    here, number = Position(epoch=1, offset=0, step=2), driver.session.job.number
    orders = driver.do("check_in", A, CheckIn(generation=number, position=here, pid=1, stop=True))
    assert words(orders) == [(A, "abort"), (B, "abort")]
    driver.do("step_status", A, StepStatus(generation=number, phase="out", position=here, answered=0))
    freed = driver.do("step_status", B, StepStatus(generation=number, phase="held", position=here, answered=2))
    assert words(freed) == [(A, "verdict"), (B, "verdict"), (A, "leave"), (B, "leave")]
    assert driver.session.job.outcome == "finished"
    assert driver.session.job.position == here


def test_a_stop_is_kept_when_another_worker_is_lost_before_it_comes_to_the_same_boundary(driver: Driver) -> None:
    """Else the job trains another epoch, from which the script had stopped it."""
    here, number = Position(epoch=1, offset=0, step=2), driver.session.job.number
    driver.do("check_in", A, CheckIn(generation=number, position=here, pid=1, stop=True))
    driver.exits(B)
    driver.do("step_status", A, StepStatus(generation=number, phase="out", position=here, answered=0))
    assert driver.session.job.outcome == "finished"
    assert driver.session.job.position == here


@pytest.mark.parametrize(("epochs", "reported", "fraction"), [(4, 4, 0.25), (ENDLESS, 0, None), (ENDLESS + 7, 0, None)])
def test_a_job_without_an_end_has_no_share_done_and_nothing_left(epochs: int, reported: int, fraction: float) -> None:
    """The playground's own goes on until Ctrl-C: "0.0 % done, about 50 years left" would tell nobody that."""
    driver = Driver(2)
    for name in (A, B):
        driver.node(name)
        driver.worker(name, epochs=epochs)
    driver.want(A, B)
    driver.form(A, B)
    driver.check_in(A, B, epoch=1)
    report = driver.session.report(driver.now)
    assert (report.state, report.epoch, report.epochs) == ("running", 1, reported)
    assert driver.session.job.done_fraction == fraction
