"""From one of a script's loops over epochs to the next: who goes on, who goes past, and what a loss costs."""

from __future__ import annotations

from typing import Any

import pytest
from dyntrain.training import events, journal
from dyntrain.training.protocol.messages import CheckIn, Committed, Entered, Form, LoopOver, Position, SafeCopy
from dyntrain.training.protocol.node_messages import GroupFailed, WorkerExited
from dyntrain.training.session.job.state import Phase
from dyntrain.training.session.orders import DropWorker, Journal, Order, StopCoordinator, ToWorker
from dyntrain.training.worker.membership.dialogue import Dialogue
from session_driver import A, B, C, Driver, announced, come_back, decided, forms, restarted, words

END = Position(epoch=3, offset=0, step=6)
TERMS: dict[str, Any] = {"epochs": 5, "samples": 20, "global_batch": 10, "seed": 0, "layout": "y", "another": True}


def passed(orders: list[Order]) -> dict[str, LoopOver]:
    return {
        order.instance_id: order.message
        for order in orders
        if isinstance(order, ToWorker) and isinstance(order.message, LoopOver)
    }


def formed(driver: Driver, *names: str) -> None:
    """And their nodes offer ps-lite processes for the next one."""
    driver.form(*names)
    for name in names:
        driver.blanks(name)


def enter(driver: Driver, *names: str, generation: int | None = 1, **terms: Any) -> list[Order]:
    return [
        order
        for name in names
        for order in driver.do("loop_entered", name, Entered(generation=generation, **{"loop": 1, **TERMS, **terms}))
    ]


def ended(driver: Driver, *names: str) -> list[Order]:
    return [order for name in names for order in driver.do("script_ended", name)]


def trains(*names: str) -> Driver:
    """Of a script with several loops, in the first of three epochs."""
    driver = Driver(workers=len(names))
    for name in names:
        driver.node(name)
        driver.worker(name, another=True)
    driver.want(*names)
    formed(driver, *names)
    assert driver.session.job.phase is Phase.TRAINING
    return driver


def between(*names: str) -> Driver:
    driver = trains(*names)
    driver.check_in(*names, epoch=3)
    assert driver.session.job.between_loops
    return driver


def test_the_loops_end_is_not_the_jobs_and_all_go_on_with_the_state() -> None:
    driver = trains(A, B)
    orders = driver.check_in(A, B, epoch=3)
    assert passed(orders) == {
        A: LoopOver(generation=1, loop=1, position=END, holds=True, writes=True),
        B: LoopOver(generation=1, loop=1, position=END, holds=True),
    }
    assert [event.loop for event in announced(orders, events.LoopFinished)] == [1]
    assert not any(isinstance(order, StopCoordinator) for order in orders)
    assert forms(enter(driver, A)) == {}, "B is not there yet"
    sent = forms(enter(driver, B))
    assert {name: (form.position, form.sources, form.generation) for name, form in sent.items()} == {
        A: (END, (), 2),
        B: (END, (), 2),
    }
    assert driver.session.job.epochs == 5


def test_a_loop_that_was_stopped_within_an_epoch_is_followed_by_one_that_begins_with_its_own() -> None:
    driver = trains(A)
    at = Position(epoch=1, offset=10, step=3)
    orders = driver.do("check_in", A, CheckIn(generation=1, position=at, pid=1, stop=True))
    assert passed(orders)[A].position == Position(epoch=2, offset=0, step=3)


def test_the_job_is_over_when_the_scripts_of_all_have_ended() -> None:
    driver = between(A, B)
    assert words(ended(driver, A)) == []
    assert words(ended(driver, B)) == [(A, "leave"), (B, "leave")]
    assert driver.session.job.outcome == "finished"


def test_a_script_that_ends_without_a_word_has_ended_well_when_its_node_says_so() -> None:
    driver = between(A, B)
    ended(driver, A)
    driver.do("worker_disconnected", B, int(B[-1], 16))
    assert driver.session.job.outcome == ""
    driver.do("worker_exited", B, WorkerExited(pid=int(B[-1], 16), code=0, reason="ended"))
    assert driver.session.job.outcome == "finished"


def test_that_a_worker_left_is_no_news_from_its_node() -> None:
    driver = trains(A, B)
    driver.want(A)
    driver.check_in(A, B, epoch=1)
    driver.do("worker_left", B)
    assert driver.do("worker_exited", B, WorkerExited(pid=int(B[-1], 16), code=0, reason="ended")) == []


def test_a_script_that_goes_on_here_and_ends_there_fails_the_job() -> None:
    driver = between(A, B)
    ended(driver, A)
    enter(driver, B)
    assert driver.session.job.failure == (
        f"the script ended on {A} and goes on to another loop over epochs on {B}: all workers must go through the same "
        "loops"
    )


def test_who_stands_by_goes_past_the_loop_and_joins_in_the_next() -> None:
    driver = trains(A, B)
    driver.node(C)
    driver.worker(C, another=True)
    driver.want(A, B, C)
    sent = passed(driver.check_in(A, B, epoch=3))
    assert sent[C] == LoopOver(generation=1, loop=1, position=END, holds=False)
    enter(driver, A, B)
    enter(driver, C, generation=None)
    formed(driver, A, B)
    assert driver.session.job.phase is Phase.TRAINING
    sent = forms(driver.check_in(A, B, epoch=4))
    assert set(sent) == {A, B, C}
    assert sent[C].sources, "the state is fetched"


def test_who_comes_in_a_later_loop_goes_past_those_before_it_also_after_its_connection_was_lost() -> None:
    driver = between(A, B)
    enter(driver, A, B)
    formed(driver, A, B)
    driver.node(C)
    first = passed(driver.worker(C, another=True))[C]
    driver.do("worker_disconnected", C, int(C[-1], 16))
    assert passed(driver.worker(C, another=True))[C] == first
    assert (first.loop, first.position, first.holds) == (1, END, False)
    driver.want(A, B, C)
    assert announced(enter(driver, C, generation=None), events.WorkerReady)
    assert set(forms(driver.check_in(A, B, epoch=4))) == {A, B, C}


def test_what_the_next_loop_wants_is_compared_with_others_in_it_only() -> None:
    driver = between(A, B)
    enter(driver, A)
    orders = enter(driver, B, samples=30)
    (refused,) = announced(orders, events.WorkerRefused)
    assert refused.instance == B
    assert refused.reason.startswith(f"samples is 30 here and 20 on {A}")


def test_a_loss_between_two_loops_costs_nobody_else_anything() -> None:
    driver = between(A, B)
    enter(driver, A)
    orders = driver.exits(B)
    assert restarted(orders) == {B}
    assert set(forms(orders)) == {A}
    assert passed(driver.worker(B, pid=77, another=True))[B].holds is False


def test_who_keeps_the_others_waiting_at_the_next_loop_is_lost_and_nobody_while_none_has_come() -> None:
    driver = between(A, B)
    driver.now += 10 * driver.options.clocks.boundary_limit
    assert decided(driver.do("tick")) == [], "the script may have much to do after its loop"
    enter(driver, A)
    driver.now += driver.options.clocks.boundary_limit - 1
    assert decided(driver.do("tick")) == []
    driver.now += 2
    orders = driver.do("tick")
    assert restarted(orders) == {B}
    assert set(forms(orders)) == {A}


def test_all_lost_on_the_way_to_a_loop_go_back_to_a_state_of_the_loop_before() -> None:
    driver = trains(A, B)
    step = Position(epoch=2, offset=0, step=4)
    driver.check_in(A, B, epoch=2)
    driver.do("commit_written", A, Committed(generation=1, position=step, name="commit-2"))
    driver.check_in(A, B, epoch=3)
    driver.exits(A)
    driver.exits(B)
    driver.worker(A, pid=70, another=True)
    sent = forms(driver.worker(B, pid=71, another=True))
    assert {name: form.commit for name, form in sent.items()} == {A: "commit-2", B: None}
    assert driver.session.job.loop == 0


def test_all_lost_in_a_later_loop_come_to_it_again_before_its_state_is_read() -> None:
    driver = between(A, B)
    enter(driver, A, B)
    formed(driver, A, B)
    driver.check_in(A, B, epoch=4)
    at = Position(epoch=4, offset=0, step=8)
    driver.do("commit_written", A, Committed(generation=2, position=at, name="commit-4"))
    driver.do("group_failed", A, GroupFailed(generation=2, reason="killed"))
    driver.worker(A, pid=70, another=True)
    orders = driver.worker(B, pid=71, another=True)
    assert forms(orders) == {}
    assert {name: (over.loop, over.position) for name, over in passed(orders).items()} == {A: (1, END), B: (1, END)}
    enter(driver, A, generation=None)
    sent = forms(enter(driver, B, generation=None))
    assert sent[A].position == at
    assert sent[A].commit == "commit-4"


def test_a_safe_state_of_a_later_loop_is_worth_more_than_the_commit_before_it() -> None:
    driver = trains(A, B)
    driver.check_in(A, B, epoch=2)
    driver.do(
        "commit_written", A, Committed(generation=1, position=Position(epoch=2, offset=0, step=4), name="commit-2")
    )
    driver.check_in(A, B, epoch=3)
    enter(driver, A, B)
    formed(driver, A, B)
    driver.do("group_failed", A, GroupFailed(generation=2, reason="killed"))
    safe = SafeCopy(generation=2, position=END, name="safe")
    driver.worker(A, pid=70, another=True)
    assert set(passed(driver.worker(B, pid=71, another=True, safe=safe))) == {A, B}
    enter(driver, A, generation=None)
    sent = forms(enter(driver, B, generation=None))
    assert sent[B].safe == "safe"


def test_a_process_that_is_further_than_the_state_that_is_left_starts_afresh() -> None:
    driver = between(A, B)
    driver.exits(A)
    driver.exits(B)
    orders = [*driver.worker(A, pid=70, another=True), *driver.worker(B, pid=71, another=True, loop=1)]
    assert [order.instance_id for order in orders if isinstance(order, DropWorker)] == [B]
    assert restarted(orders) == {B}


def test_a_coordinator_that_comes_back_between_two_loops_says_again_that_the_one_is_over() -> None:
    driver = between(A, B)
    driver.orders = [order for order in driver.orders if isinstance(order, Journal)]
    come_back(driver, A, B)
    driver.worker(A, another=True, generation=1, stage="waits", position=END)
    orders = driver.worker(B, generation=1, stage="free", position=END, loop=1, **TERMS)
    assert passed(orders)[A] == LoopOver(generation=1, loop=1, position=END, holds=True, writes=True)
    assert B not in passed(orders)
    assert set(forms(enter(driver, A))) == {A, B}


def test_a_coordinator_that_comes_back_in_a_later_loop_knows_which() -> None:
    driver = between(A, B)
    enter(driver, A, B)
    formed(driver, A, B)
    come_back(driver, A, B)
    for name in (A, B):
        driver.worker(name, generation=2, stage="trains", position=END, loop=1, **TERMS)
    assert driver.session.job.phase is Phase.TRAINING
    driver.node(C)
    assert passed(driver.worker(C, another=True))[C].position == END


def in_the_third(*names: str) -> Driver:
    driver = between(*names)
    enter(driver, *names)
    formed(driver, *names)
    driver.check_in(*names, epoch=5)
    enter(driver, *names, generation=2, loop=2, epochs=7)
    formed(driver, *names)
    assert (driver.session.job.loop, driver.session.job.phase) == (2, Phase.TRAINING)
    return driver


def test_who_comes_in_the_third_loop_goes_past_one_after_another() -> None:
    """Its script counts loops, too: told of the third at once, it would take its second for that."""
    driver = in_the_third(A, B)
    driver.node(C)
    first = passed(driver.worker(C, another=True))[C]
    assert (first.loop, first.position.epoch) == (1, 3)
    second = passed(enter(driver, C, generation=None))[C]
    assert (second.loop, second.position.epoch) == (2, 5)
    assert announced(enter(driver, C, generation=None, loop=2, epochs=7), events.WorkerReady)


def test_a_worker_on_its_way_to_a_loop_is_none_of_the_loop_before_when_its_connection_was_lost() -> None:
    driver = trains(A, B)
    driver.node(C)
    driver.worker(C, another=True)
    driver.check_in(A, B, epoch=3)
    driver.do("worker_disconnected", C, int(C[-1], 16))
    for name in (A, B):
        driver.exits(name)
    driver.want(A, B, C)
    assert words(driver.worker(C, another=True, passed=1)) == []
    driver.worker(A, pid=70, another=True)
    driver.worker(B, pid=71, another=True)
    driver.now += driver.options.clocks.patience + 1
    assert set(forms(driver.do("tick"))) == {A, B}, "of the first loop, in which C cannot be any more"
    assert restarted(enter(driver, C, generation=None)) == {C}


def test_a_word_repeated_from_before_the_order_to_go_past_a_loop_does_not_lead_back_to_it() -> None:
    """It stands in no earlier loop any more, although the job goes back to that loop's state."""
    driver = between(A)
    enter(driver, A)
    formed(driver, A)
    driver.node(C)
    driver.worker(C, another=True)
    enter(driver, C, generation=None)
    driver.want(A, C)
    assert passed(driver.check_in(A, epoch=5))[C].loop == 2
    driver.exits(A)
    assert driver.session.job.phase is Phase.WAITING
    assert enter(driver, C, generation=None) == [], "over a new connection"
    driver.worker(A, pid=70, another=True)
    enter(driver, A, generation=None)
    driver.now += driver.options.clocks.patience + 1
    assert C not in forms(driver.do("tick"))
    assert restarted(ended(driver, C)) == {C}


def test_who_still_works_when_another_script_has_ended_is_waited_for() -> None:
    driver = between(A, B)
    ended(driver, A)
    driver.now += 10 * driver.options.clocks.boundary_limit
    assert decided(driver.do("tick")) == [], "an export at the end takes as long as it takes"
    ended(driver, B)
    assert driver.session.job.outcome == "finished"


def test_one_that_stands_by_with_another_script_is_refused_and_not_the_members() -> None:
    driver = between(A, B)
    driver.node(C)
    driver.worker(C, another=True)
    enter(driver, C, generation=None, samples=30)
    orders = enter(driver, A, B)
    assert [event.instance for event in announced(orders, events.WorkerRefused)] == [C]
    assert set(forms(orders)) == {A, B}


def test_a_member_that_comes_to_the_loop_by_a_new_connection_is_compared_too() -> None:
    driver = between(A, B)
    enter(driver, A)
    terms = {**TERMS, "samples": 30}
    orders = driver.worker(B, generation=1, stage="free", position=END, loop=1, passed=1, **terms)
    assert [event.instance for event in announced(orders, events.WorkerRefused)] == [B]


def test_a_verdict_that_was_lost_with_a_connection_comes_before_the_loops_end() -> None:
    """The worker waits for it inside its step, and takes none after the other."""
    driver = between(A, B)
    spoken = words(driver.worker(B, another=True, generation=1, stage="aborted", position=END))
    assert spoken == [(B, "verdict"), (B, "loop_over")]
    come_back(driver, A, B)
    orders = [driver.worker(name, another=True, generation=1, stage="aborted", position=END) for name in (A, B)]
    assert words(orders[-1]) == [(name, word) for name in (A, B) for word in ("verdict", "loop_over")]


@pytest.mark.parametrize("holds", [True, False])
def test_a_worker_goes_past_a_loop_once_however_often_it_is_told(holds: bool) -> None:
    dialogue = Dialogue()
    dialogue.accept(Form.model_construct(generation=1))
    over = LoopOver(generation=1, loop=1, position=END, holds=holds)
    assert dialogue.accept(over)
    assert not dialogue.accept(over)
    where = dialogue.hello_fields()
    assert (where["stage"], where["generation"]) == (("free", 1) if holds else ("stands", None))
    assert dialogue.accept(over.model_copy(update={"loop": 2}))
    dialogue.sent(Entered(generation=1 if holds else None, loop=2, **TERMS))
    assert dialogue.pending is not None, "said again on the next connection"
    assert dialogue.accept(Form.model_construct(generation=2))


def test_the_journal_says_how_long_the_epochs_of_each_loop_are() -> None:
    driver = between(A, B)
    enter(driver, A, samples=30)
    enter(driver, B, samples=30)
    begun = [order.entry for order in driver.orders if isinstance(order, Journal)]
    lengths = [(entry.from_epoch, entry.samples) for entry in begun if isinstance(entry, journal.JobBegun)]
    assert lengths == [(0, 20), (3, 30)]
