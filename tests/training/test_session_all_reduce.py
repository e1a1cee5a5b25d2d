"""What is different for a job whose workers sum by all-reduce, decision by decision: no servers that can be lost, and
survivors of whom some may have ended the step in which others failed.
"""

from __future__ import annotations

from dyntrain.training.events import WorkerRefused
from dyntrain.training.protocol.messages import Broken, Leave, Position, StepStatus
from dyntrain.training.protocol.node_messages import GroupFailed, StartGroup
from dyntrain.training.session.job.state import Phase
from dyntrain.training.session.orders import Order, ToNode, ToWorker
from session_driver import A, B, C, D, Driver, announced, forms, restarted, words

BEFORE, AFTER = Position(epoch=0, offset=10, step=1), Position(epoch=1, offset=0, step=2)


def trains(*names: str, spares: bool = True) -> Driver:
    driver = Driver(workers=len(names))
    for name in names:
        driver.node(name)
        driver.worker(name, engine="horovod")
    driver.want(*names)
    driver.form(*names)
    if spares:
        driver.blanks(names[0])
    assert driver.session.job.phase is Phase.TRAINING
    return driver


def says(driver: Driver, name: str, phase: str, position: Position) -> list[Order]:
    status = StepStatus.model_validate({"generation": 1, "phase": phase, "position": position, "answered": 0})
    return driver.do("step_status", name, status)


def test_one_node_has_the_rendezvous_and_each_worker_its_rank() -> None:
    driver = trains(A, B, C)
    messages = [(order.instance_id, order.message) for order in driver.orders if isinstance(order, ToNode)]
    started = [(name, [p.role for p in group.processes]) for name, group in messages if isinstance(group, StartGroup)]
    assert started == [(A, ["rendezvous"])]
    environments = {name: form.environment for name, form in forms(driver.orders).items()}
    assert {name: one["HOROVOD_RANK"] for name, one in environments.items()} == {A: "0", B: "1", C: "2"}
    assert {one["HOROVOD_SIZE"] for one in environments.values()} == {"3"}
    assert {one["HOROVOD_GLOO_RENDEZVOUS_PORT"] for one in environments.values()} == {"10000"}
    assert len({one["HOROVOD_HOSTNAME"] for one in environments.values()}) == 3, "Gloo counts local ranks by it"


def test_t8_the_node_of_the_rendezvous_is_not_missed_once_they_train() -> None:
    """With ps-lite the end of a base node sends everybody back to the last commit."""
    driver = trains(A, B, C)
    driver.do("group_failed", A, GroupFailed(generation=1, reason="killed"))
    driver.do("node_lost", A)
    assert driver.session.job.phase is Phase.TRAINING
    driver.blanks(B)
    driver.exits(A)
    orders = says(driver, B, "out", BEFORE) + says(driver, C, "failed", BEFORE)
    assert restarted(orders) == set()
    assert set(forms(orders)) == {B, C}, "as when any worker is lost"


def test_the_end_of_the_rendezvous_while_they_form_is_told_as_any_groups() -> None:
    driver = Driver()
    for name in (A, B):
        driver.node(name)
        driver.worker(name, engine="horovod")
    driver.want(A, B)
    driver.prepare(A, B)
    assert restarted(driver.do("group_failed", A, GroupFailed(generation=1, reason="killed"))) == {A, B}


def test_t7_who_failed_in_a_step_that_another_has_ended_fetches_its_state_in_its_process() -> None:
    driver = trains(A, B, C)
    orders = driver.exits(C)
    assert {word for _, word in words(orders)} == {"abort"}
    says(driver, A, "failed", BEFORE)
    formed = forms(says(driver, B, "out", AFTER))
    assert {form.position for form in formed.values()} == {AFTER}
    assert {name: form.fetch for name, form in formed.items()} == {A: True, B: False}
    assert {form.source for form in formed.values()} == {B}
    assert restarted(driver.orders) == {C}


def test_t7_a_step_that_nobody_has_applied_is_void_though_one_has_its_sums() -> None:
    driver = trains(A, B, C)
    driver.exits(C)
    says(driver, A, "held", BEFORE)
    formed = forms(says(driver, B, "failed", BEFORE))
    assert {form.position for form in formed.values()} == {BEFORE}
    assert not any(form.fetch for form in formed.values())


def test_a_worker_whose_sums_are_lost_is_believed_and_who_is_gone_is_waited_for() -> None:
    """It may know before the dead one's supervisor has said a word."""
    driver = trains(A, B, C)
    assert {word for _, word in words(driver.do("summation_failed", A, Broken(generation=1, reason="closed")))} == {
        "abort"
    }
    says(driver, A, "failed", BEFORE)
    assert forms(says(driver, B, "failed", BEFORE)) == {}, "C has not answered, and is not known to be lost"
    assert {word for _, word in words(driver.exits(C))} == {"abort"}, "what was said before is old"
    says(driver, A, "failed", BEFORE)
    assert set(forms(says(driver, B, "failed", BEFORE))) == {A, B}
    assert driver.do("summation_failed", A, Broken(generation=1, reason="closed")) == [], "it is over"


def test_a_worker_that_lacks_the_jobs_last_step_leaves_without_ending_the_job() -> None:
    """It would save a model that is a step short."""
    driver = trains(A, B, C)
    driver.session.job.round.checked_in = {}
    driver.exits(C)
    release = driver.session.job.round.release
    assert release is not None
    release.stops = True
    says(driver, A, "failed", BEFORE)
    orders = says(driver, B, "out", AFTER)
    left = {
        o.instance_id: o.message.finished for o in orders if isinstance(o, ToWorker) and isinstance(o.message, Leave)
    }
    assert left == {A: False, B: True}


def test_workers_of_two_engines_do_not_train_together() -> None:
    driver = trains(A, B)
    driver.node(D, base=False)
    (refused,) = announced(driver.worker(D, pid=7, engine="pslite"), WorkerRefused)
    assert "engine is pslite here and horovod on" in refused.reason


def test_t7_who_is_behind_does_not_go_on_alone() -> None:
    """The step that it lacks was in the memory of one that is lost too: all goes on from what is safe."""
    driver = trains(A, B, C)
    driver.exits(C)
    says(driver, A, "failed", BEFORE)
    assert set(forms(says(driver, B, "out", AFTER))) == {A, B}
    driver.exits(B)
    assert driver.session.job.phase is Phase.WAITING
    assert driver.session.job.round.holders == frozenset()
