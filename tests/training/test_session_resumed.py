"""A job that a person goes on with: what would break for a user is a job that trains something else than before, or
tries for ever, where a sentence would have said what to do.
"""

from __future__ import annotations

from typing import Any

import pytest
from dyntrain.training.events import Failed, WorkerRefused
from dyntrain.training.journal import JobBegun, JobResumed
from dyntrain.training.protocol.messages import MODULE
from dyntrain.training.protocol.node_messages import WorkerExited
from dyntrain.training.session.job.state import Phase
from dyntrain.training.session.orders import Journal, Order
from dyntrain.training.session.session import Session
from session_driver import A, B, Driver, announced, forms
from test_session_void_commits import commits


def resumed(driver: Driver) -> None:
    """Another coordinator, as a person launches the job again: no process of before is left."""
    journal = [order.entry for order in driver.orders if isinstance(order, Journal)]
    driver.session = Session.restore(
        driver.options, lambda: "transfer", [*journal, JobResumed(at=driver.now)], driver.now
    )
    driver.revision = 0
    for name in (A, B):
        driver.node(name)
    driver.want(A, B)


@pytest.fixture
def interrupted(driver: Driver) -> Driver:
    """After its second epoch of three, of which there is a commit."""
    driver.check_in(A, B, epoch=2)
    commits(driver, 1, 4)
    return driver


def begun(orders: list[Order]) -> list[JobBegun]:
    return [order.entry for order in orders if isinstance(order, Journal) and isinstance(order.entry, JobBegun)]


def stand(driver: Driver, pid: int = 50, **fields: Any) -> list[Order]:
    return [order for name in (A, B) for order in driver.worker(name, pid=pid + (name == B), **fields)]


def test_it_goes_on_from_its_last_commit_at_once_and_waits_for_nobody_of_before(interrupted: Driver) -> None:
    resumed(interrupted)
    orders = forms(stand(interrupted))
    assert {(form.position.step, form.commit) for form in orders.values()} == {(4, "c4"), (4, None)}


def test_a_job_that_has_failed_goes_on_too(interrupted: Driver) -> None:
    raised = interrupted.session.job.trouble
    raised.restarts = 99
    interrupted.exits(B)
    interrupted.exits(A)
    assert interrupted.session.job.phase is Phase.OVER
    resumed(interrupted)
    assert {form.position.step for form in forms(stand(interrupted)).values()} == {4}
    assert interrupted.session.report(interrupted.now).reason == ""


CHANGES = {
    "samples": (21, "samples is 21, and was 20 when the job began"),
    "drawn_from": (22, "drawn_from is 22, and was None when the job began"),
    "global_batch": (5, "global_batch is 5, and was 10 when the job began"),
    "seed": (1, "seed is 1, and was 0 when the job began"),
    "batching": ("64 each", "batching is 64 each, and was fixed-global when the job began"),
    "layout": ("y", "the script's model is another one than when the job began"),
    "epochs": (1, "the script trains 1 epochs, the job has done 2"),
}


@pytest.mark.parametrize("changed", CHANGES)
def test_what_the_script_wants_otherwise_than_before_is_named_and_ends_the_job_before_a_step(
    interrupted: Driver, changed: str
) -> None:
    value, sentence = CHANGES[changed]
    resumed(interrupted)
    orders = stand(interrupted, **{changed: value})
    assert forms(orders) == {}
    assert all(refused.reason.startswith(sentence) for refused in announced(orders, WorkerRefused))
    (failed,) = announced(orders, Failed)
    assert sentence in failed.reason
    assert failed.reason.endswith("or begin a new job")


def test_one_node_that_differs_does_not_end_the_job(interrupted: Driver) -> None:
    """Its data may be damaged: the others say what the script is."""
    resumed(interrupted)
    interrupted.worker(A, pid=50, samples=3)
    assert interrupted.session.job.phase is Phase.WAITING
    interrupted.worker(B, pid=51)
    interrupted.now += interrupted.options.clocks.patience + 1
    assert interrupted.session.job.phase is Phase.WAITING
    orders = interrupted.worker(A, pid=52)
    assert {form.position.step for form in forms(orders).values()} == {4}


def test_more_epochs_than_before_are_trained_and_journaled(interrupted: Driver) -> None:
    resumed(interrupted)
    orders = stand(interrupted, epochs=30)
    assert forms(orders) != {}
    assert [entry.epochs for entry in begun(orders)] == [30]
    assert interrupted.session.report(interrupted.now).epochs == 30


def test_fewer_epochs_that_are_not_done_yet_are_no_mistake(interrupted: Driver) -> None:
    resumed(interrupted)
    assert forms(stand(interrupted, epochs=2)) != {}


def test_a_module_script_may_say_another_batch_for_another_number_of_workers() -> None:
    driver = Driver()
    for name in (A, B):
        driver.node(name)
        driver.worker(name, batching=MODULE)
    driver.want(A, B)
    driver.form(A, B)
    commits(driver, 1, 4)
    resumed(driver)
    assert forms(stand(driver, batching=MODULE, global_batch=77)) != {}


def test_a_journal_of_before_that_names_no_model_takes_any(interrupted: Driver) -> None:
    interrupted.orders = [
        Journal(order.entry.model_copy(update={"layout": None}))
        if isinstance(order, Journal) and isinstance(order.entry, JobBegun)
        else order
        for order in interrupted.orders
    ]
    resumed(interrupted)
    assert forms(stand(interrupted, layout="y")) != {}


def ends(driver: Driver, name: str) -> list[Order]:
    pid = driver.session.job.roster.pid_of(name)
    assert pid is not None
    return driver.do("worker_exited", name, WorkerExited(pid=pid, code=0, reason="the script has ended"))


def test_a_script_that_ends_of_itself_in_mid_job_on_every_worker_ends_the_job_the_second_time(driver: Driver) -> None:
    driver.check_in(A, B)
    commits(driver, 1, 2)
    assert announced([*ends(driver, A), *ends(driver, B)], Failed) == [], "it may have been an accident"
    assert driver.session.job.phase is Phase.WAITING
    for name in (A, B):
        driver.blanks(name)
    stand(driver)
    driver.form(A, B)
    assert announced(ends(driver, B), Failed) == []
    (failed,) = announced(ends(driver, A), Failed)
    assert failed.reason == "the script ends in epoch 1 of 3, by itself: on every worker, for the second time"


def test_where_one_worker_alone_ends_early_the_others_train_on(driver: Driver) -> None:
    for pid in (90, 91, 92):
        ends(driver, B)
        driver.blanks(A)
        assert driver.session.job.outcome == ""
        driver.worker(B, pid=pid)
        assert A in driver.session.job.roster.members
