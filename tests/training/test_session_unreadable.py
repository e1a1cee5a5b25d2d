"""A commit or a safe state that cannot be read, decision by decision. What would break for a user is a job that starts
again from its first sample without a word, tries the damaged file for ever, or ends though something readable is left.
"""

from __future__ import annotations

from typing import Any

import pytest
from dyntrain.training import events, journal
from dyntrain.training.protocol.messages import START, Committed, CommitUnreadable, Position, SafeCopy
from dyntrain.training.protocol.node_messages import GroupFailed
from dyntrain.training.session.job.state import Phase
from dyntrain.training.session.orders import Journal, Order
from session_driver import A, B, C, Driver, announced, come_back, forms

ONE, TWO = Position(epoch=1, offset=0, step=2), Position(epoch=2, offset=0, step=4)


def undone(*commits: Position, **fields: Any) -> Driver:
    """Generation 2 of A and B is ordered, from what the first one left; `fields` of B's new process."""
    driver = Driver()
    driver.train(A, B)
    for number, position in enumerate(commits, 1):
        driver.do("commit_written", A, Committed(generation=1, position=position, name=f"c{number}"))
    for name in (A, B):
        driver.blanks(name)
    driver.do("group_failed", A, GroupFailed(generation=1, reason="killed"))
    driver.worker(A, pid=20)
    driver.worker(B, pid=21, **fields)
    for name in (A, B):
        driver.blanks(name)
    assert (driver.session.job.phase, driver.session.job.number) == (Phase.PREPARING, 2)
    return driver


def damaged(driver: Driver, commit: str, instance: str = A) -> list[Order]:
    return driver.do("commit_unreadable", instance, CommitUnreadable(generation=2, name=commit, reason="cut short"))


def starts(orders: list[Order]) -> set[tuple[int, int, str | None, str | None]]:
    """Generation, step, and what its source reads."""
    starting = forms(orders).items()
    return {
        (form.generation, form.position.step, form.commit, form.safe) for name, form in starting if not form.sources
    }


def test_the_commit_before_a_damaged_one_takes_its_place_and_all_are_told() -> None:
    driver = undone(ONE, TWO)
    orders = damaged(driver, "c2")
    assert starts(orders) == {(3, 2, "c1", None)}
    written = [o.entry for o in orders if isinstance(o, Journal)]
    gone = [entry for entry in written if isinstance(entry, journal.CommitFoundUnreadable)]
    assert [(entry.name, entry.position, entry.instead) for entry in gone] == [("c2", TWO, ONE)]
    announcements = announced(orders, events.CommitUnreadable)
    assert [(event.name, event.position, event.instead) for event in announcements] == [("c2", TWO, ONE)]
    come_back(driver)
    assert driver.session.job.commit == (ONE, "c1"), "the next coordinator does not try it again"


@pytest.mark.parametrize("known", ["c0", "c1", "safe"])
def test_a_damaged_file_that_is_not_the_one_at_hand_costs_no_commit(known: str) -> None:
    driver = undone(ONE, TWO)
    orders = damaged(driver, known)
    assert (driver.session.job.commit, announced(orders, events.CommitUnreadable)) == ((TWO, "c2"), [])
    assert starts(orders) == {(3, 4, "c2", None)}


def test_once_all_have_read_it_nobody_says_that_it_is_damaged() -> None:
    driver = undone(ONE, TWO)
    driver.prepare(A, B)
    assert damaged(driver, "c2") == []
    assert (driver.session.job.commit, driver.session.job.phase) == ((TWO, "c2"), Phase.FORMING)


def test_without_any_other_commit_the_job_ends_and_says_why() -> None:
    """Rather than train again what somebody paid for, without a word."""
    driver = undone(TWO)
    damaged(driver, "c1")
    assert driver.session.job.failure == "no readable commit is left to go on from: cut short"


def test_the_commit_of_the_very_start_is_missed_by_nobody() -> None:
    driver = undone(START)
    orders = damaged(driver, "c1")
    assert driver.session.job.outcome == ""
    assert starts(orders) == {(3, 0, None, None)}


def test_a_safe_state_further_back_is_better_than_the_end() -> None:
    driver = undone(TWO, safe=SafeCopy(generation=1, position=ONE, name="safe"))
    orders = damaged(driver, "c1")
    assert driver.session.job.outcome == ""
    assert starts(orders) == {(3, 2, None, "safe")}


def test_a_safe_state_of_one_that_stands_by_counts_too() -> None:
    driver = undone(TWO)
    driver.node(C, base=False)
    driver.want(A, B, C)
    driver.worker(C, safe=SafeCopy(generation=1, position=ONE, name="safe"))
    orders = damaged(driver, "c1")
    assert driver.session.job.outcome == ""
    assert starts(orders) == {(3, 2, None, "safe")}


@pytest.mark.parametrize("name", ["safe", "c1"])
def test_a_safe_state_is_damaged_when_it_is_the_one_that_was_read(name: str) -> None:
    driver = undone(ONE, safe=SafeCopy(generation=1, position=TWO, name="safe"))
    assert driver.session.job.position == TWO
    announcements = announced(damaged(driver, name, B), events.SafeStateUnreadable)
    assert [(event.instance, event.step, event.reason) for event in announcements] == [(B, 4, "cut short")] * (
        name == "safe"
    )
    assert driver.session.job.unreadable_copies == ({(B, "safe")} if name == "safe" else set())


@pytest.mark.parametrize("commits", [(), (ONE,), (ONE, TWO)])
def test_people_are_told_from_which_commit_a_restarted_job_goes_on(commits: tuple[Position, ...]) -> None:
    announcements = announced(undone(*commits).orders, events.Restart)
    assert [event.commit for event in announcements] == [commits[-1] if commits else None]
