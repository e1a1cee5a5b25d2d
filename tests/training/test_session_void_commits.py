"""Commits whose word comes late: what would break for a user is a job that goes on from a past that was undone, at a
position to which it has trained again since.

Law: the commit to go on from is the furthest of those that were written by a generation that nobody gave up, the latest
of them where several are as far.
"""

from __future__ import annotations

import pytest
from dyntrain.training.journal import CommitWritten, GenerationSettled, Restarted
from dyntrain.training.protocol.messages import Committed, Position
from dyntrain.training.session.job.state import Phase
from dyntrain.training.session.job.trouble import RESTARTS
from dyntrain.training.session.orders import Journal, Order
from hypothesis import given
from hypothesis import strategies as st
from session_driver import A, B, Driver, come_back, forms


def written(orders: list[Order]) -> list[str]:
    entries = [order.entry for order in orders if isinstance(order, Journal)]
    return [entry.name for entry in entries if isinstance(entry, CommitWritten)]


def commits(driver: Driver, generation: int, step: int, name: str = "") -> list[Order]:
    position = Position(epoch=step // 2, offset=10 * (step % 2), step=step)
    return driver.do("commit_written", A, Committed(generation=generation, position=position, name=name or f"c{step}"))


def given_up(**options: object) -> Driver:
    """Generation 1 was given up after epoch 1, of which there is a commit; new processes form generation 2 from it."""
    driver = Driver(recovery="restart", **options)
    driver.train(A, B)
    driver.check_in(A, B)
    commits(driver, 1, 2)
    driver.check_in(A, B, epoch=2)
    driver.exits(B)
    assert driver.session.job.phase is Phase.WAITING
    return driver


def again(driver: Driver) -> set[tuple[int, int]]:
    """New processes: the generation that they form, and the step that it begins at."""
    driver.blanks(A)
    for pid, name in enumerate((A, B), start=driver.session.job.number * 100):
        orders = driver.worker(name, pid=pid)
    return {(form.generation, form.position.step) for form in forms(orders).values()}


def test_a_late_commit_of_a_generation_that_was_given_up_does_not_count() -> None:
    driver = given_up()
    assert commits(driver, 1, 4) == [], "what follows step 2 is void"
    assert again(driver) == {(2, 2)}
    assert driver.session.job.commit == (Position(epoch=1, offset=0, step=2), "c2")


def test_it_does_not_count_when_the_next_generation_trains_either() -> None:
    driver = given_up()
    again(driver)
    driver.form(A, B)
    assert commits(driver, 1, 4) == []
    assert written(commits(driver, 2, 4, "mine")) == ["mine"], "its own do"


def test_it_does_not_count_for_a_coordinator_that_came_back_between() -> None:
    driver = given_up()
    come_back(driver, A, B)
    assert commits(driver, 1, 4) == []


def test_a_late_commit_of_an_earlier_generation_that_was_not_given_up_counts(driver: Driver) -> None:
    """Slow storage: the members change while it is being written."""
    driver.want(A)
    driver.blanks(A)
    driver.check_in(A, B)
    driver.form(A)
    assert driver.session.job.number == 2
    assert written(commits(driver, 1, 2)) == ["c2"]


def test_a_commit_behind_the_one_that_counts_is_none_and_one_as_far_is_newer(driver: Driver) -> None:
    commits(driver, 1, 4)
    assert written(commits(driver, 1, 3)) == []
    assert written(commits(driver, 1, 4, "newer")) == ["newer"]
    assert written(commits(driver, 1, 5)) == ["c5"]


@pytest.mark.parametrize(("generation", "goes_on"), [(2, True), (1, False)])
def test_a_commit_in_the_last_try_shows_that_a_job_got_further(generation: int, goes_on: bool) -> None:
    """Twenty restarts in a row that got no further end a job; a late word of an undone past is no progress."""
    driver = given_up()
    again(driver)
    driver.form(A, B)
    driver.session.job.trouble.restarts = RESTARTS - 1
    commits(driver, generation, 4)
    driver.exits(B, pid=driver.session.job.roster.pid_of(B) or 0)
    assert driver.session.job.phase is (Phase.WAITING if goes_on else Phase.OVER)


@given(st.lists(st.tuples(st.integers(1, 5), st.integers(1, 4)), max_size=12), st.integers(0, 5), st.booleans())
def test_the_commit_to_go_on_from_is_the_furthest_of_what_nobody_gave_up(
    history: list[tuple[int, int]], void: int, recovers: bool
) -> None:
    """Five generations were settled, and given up as far as `void`; commits are told in any order."""
    driver = Driver()
    at = Position(epoch=0, offset=0, step=0)
    entries = [
        GenerationSettled(number=n, members=(A,), position=at, commit=None, at=1.0, pids={A: 1}, holders=(A,), hosts={})
        for n in range(1, 6)
    ]
    gone = [Restarted(generation=void, reason="", at=1.0)] if void else []
    journal = [*entries[:void], *gone, *entries[void:]]
    driver.session = driver.session.restore(driver.options, lambda: "t", journal, driver.now)
    counts = None
    for number, (generation, step) in enumerate(history):
        orders = commits(driver, generation, step, f"c{number}")
        accepted = generation > void and (counts is None or step >= counts[0])
        assert bool(written(orders)) is accepted
        counts = (step, f"c{number}") if accepted else counts
        if recovers:
            journal += [order.entry for order in orders if isinstance(order, Journal)]
            driver.session = driver.session.restore(driver.options, lambda: "t", journal, driver.now)
    commit = driver.session.job.commit
    assert (commit and (commit[0].step, commit[1])) == counts
