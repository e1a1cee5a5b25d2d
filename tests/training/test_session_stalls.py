"""A worker that keeps the others waiting is told of, by its instance and by what is waited for, before it counts as
lost; once, and once more when it is over. Without that people see a job whose step does not move.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from dyntrain.training import events
from dyntrain.training.coordinator.progress import describe
from dyntrain.training.protocol.clocks import Clocks
from dyntrain.training.protocol.messages import Position, Progress, Whereabouts
from dyntrain.training.session.chronicle import Chronicle
from dyntrain.training.session.generation.generation import Limits
from dyntrain.training.session.orders import Order, ToWorker
from session_driver import A, B, C, Driver, announced

WITHIN = 60  # seconds from the first that waits to the sentence
LONG_WORDS = 30


class Stalled:
    """Three that train, and time that passes in ticks of a second."""

    def __init__(self, driver: Driver | None = None) -> None:
        self.driver = driver or Driver(3, clocks=Clocks(progress=600.0))
        if driver is None:
            self.driver.train(A, B, C)
        self.where: dict[str, bool] = {}  # who answers, and whether it waits for sums
        self.asked_nodes: list[str] = []

    def passes(self, seconds: int) -> list[Order]:
        orders: list[Order] = []
        for _ in range(seconds):
            self.driver.now += 1
            orders += (new_orders := self.driver.do("tick"))
            for order in new_orders:
                if isinstance(order, ToWorker) and order.message.type == "where":
                    self.asked_nodes.append(order.instance_id)
                    orders += self.answer(order.instance_id)
        return orders

    def answer(self, name: str) -> list[Order]:
        if name not in self.where:
            return []
        whereabouts = Whereabouts(generation=self.driver.session.job.number, waits=self.where[name], position=self.at)
        return self.driver.do("whereabouts", name, whereabouts)

    @property
    def at(self) -> Position:
        return Position(epoch=0, offset=20, step=1)

    def steps(self, name: str = A) -> list[Order]:
        progress = Progress(generation=self.driver.session.job.number, position=self.at, samples_per_second=5.0)
        return self.driver.do("worker_progressed", name, progress)


@pytest.fixture
def job() -> Stalled:
    return Stalled()


def announced_stalls(orders: list[Order]) -> list[events.Stalled]:
    stalls = announced(orders, events.Stalled)
    assert all(len(one.reason.split()) <= LONG_WORDS for one in stalls)
    return stalls


def test_who_keeps_the_others_waiting_inside_a_step_is_named(job: Stalled) -> None:
    job.steps()
    job.where = {A: True, B: False, C: True}

    [stall] = announced_stalls(job.passes(WITHIN))

    assert stall.stalled == (B,)
    assert stall.waiting == (A, C)
    assert f"2 of 3 workers wait for the sums of step 2: {B} is in its script" in stall.reason
    assert B in describe(stall)


def test_a_worker_that_does_not_answer_is_named_too(job: Stalled) -> None:
    job.where = {A: True, C: True}

    [stall] = announced_stalls(job.passes(WITHIN))

    assert stall.stalled == (B,)
    assert f"{B} does not answer" in stall.reason


def test_who_does_not_come_to_the_boundary_is_named(job: Stalled) -> None:
    job.driver.check_in(A, C)

    [stall] = announced_stalls(job.passes(WITHIN))

    assert (stall.stalled, stall.waiting) == ((B,), (A, C))
    assert f"2 of 3 workers wait at the end of epoch 0: {B} has not arrived" in stall.reason


def test_it_is_told_once_and_once_more_when_it_is_over(job: Stalled) -> None:
    job.where = {A: True, B: False, C: True}
    assert len(announced_stalls(job.passes(300))) == 1

    job.steps(B)
    [over] = announced(job.passes(2), events.StallOver)

    assert over.stalled == (B,)
    assert 295 < over.seconds < 305
    assert not announced(job.passes(10), events.StallOver)


def test_the_next_stall_is_told_again(job: Stalled) -> None:
    job.where = {A: True, B: False, C: True}
    job.passes(WITHIN)
    job.steps(B)
    job.passes(2)
    job.where = {A: False, B: True, C: True}

    [stall] = announced_stalls(job.passes(WITHIN))

    assert stall.stalled == (A,)


def test_a_job_that_steps_asks_nobody(job: Stalled) -> None:
    orders: list[Order] = []
    for _ in range(20):
        orders += job.passes(10) + job.steps()

    assert not job.asked_nodes
    assert not announced_stalls(orders)


def test_where_all_are_in_their_scripts_nobody_waits(job: Stalled) -> None:
    """As in a validation on all of them, or a step over a large batch: one after another is done, nobody is late."""
    job.where = {A: False, B: False, C: False}

    assert not announced_stalls(job.passes(120))


def test_where_all_wait_inside_the_step_nobody_is_blamed(job: Stalled) -> None:
    """A server of ps-lite that hangs, a link that is cut one way."""
    job.where = {A: True, B: True, C: True}

    [stall] = announced_stalls(job.passes(WITHIN))

    assert stall.stalled == ()
    assert "all 3 workers are inside step" in stall.reason


def test_who_is_not_prepared_for_the_next_generation_is_named(job: Stalled) -> None:
    job.driver.check_in(A, B, C)
    job.driver.want(A, B)
    job.driver.blanks(A)
    job.driver.check_in(A, B, C, epoch=2)
    job.driver.prepare(A)

    [stall] = announced_stalls(job.passes(45))

    assert stall.stalled == (B,)
    assert f"1 of 2 workers wait to form generation 2: {B} is not ready" in stall.reason


def test_a_loss_ends_the_stall_without_another_word(job: Stalled) -> None:
    """What is told then is the loss."""
    job.where = {A: True, B: False, C: True}
    job.passes(WITHIN)
    orders = job.driver.exits(B) + job.passes(1)

    assert len(announced(orders, events.StallOver)) == 1
    assert len(announced(orders, events.Releasing)) == 1


def test_many_names_do_not_make_a_long_sentence() -> None:
    names = [f"i-{number:017x}" for number in range(64)]
    driver = Driver(64, clocks=Clocks(progress=600.0))
    driver.session.job.options = replace(driver.options, limits=Limits(1, 64))
    for name in names:
        driver.node(name)
        driver.worker(name, pid=int(name[2:], 16) + 1)
    driver.want(*names)
    driver.form(*names)
    job = Stalled(driver)
    job.where = {name: number < 32 for number, name in enumerate(names) if number < 48}

    [stall] = announced_stalls(job.passes(WITHIN))

    assert len(stall.stalled) == 32
    assert "and 13 more" in stall.reason


def test_the_report_says_it_as_long_as_it_lasts(job: Stalled) -> None:
    job.where = {A: True, B: False, C: True}
    chronicle = Chronicle()
    for event in announced(job.passes(WITHIN), events.Stalled):
        chronicle.record_event(event)
    progress = chronicle.progress(0.5, job.driver.now)
    assert B in progress.stalled

    job.steps(B)
    for event in announced(job.passes(2), events.StallOver):
        chronicle.record_event(event)
    assert not chronicle.progress(0.5, job.driver.now).stalled


def test_a_coordinator_that_comes_back_does_not_tell_a_stall_of_before_for_ever() -> None:
    stall = events.Stalled(generation=2, step=7, stalled=(B,), waiting=(A,), reason="1 of 2 waits", at=1.0)
    back = events.Recovered(generation=2, stages={}, lost=(), at=2.0)

    assert Chronicle.from_events([stall]).stalled
    assert not Chronicle.from_events([stall, back]).stalled
