"""Which commits stay: what would break for a user is a job that cannot go on, as what its ledger names was deleted.

Law: whatever dies, hangs or comes late, what a coordinator that came back would go back to is on disk. `World` checks
it at each commit that is written, journaled or started from; commits are written beside the training, also by
processes that were given up.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from dyntrain.training.protocol.messages import COMMITS_KEPT, Proceed
from dyntrain.training.session.orders import Order, ToWorker
from dyntrain.training.session.recovery.from_journal import restore_job
from hypothesis import given, settings
from hypothesis import strategies as st
from session_driver import A, B, C, Driver, come_back
from session_world import World
from test_session_schedules import calm
from test_session_void_commits import again, commits, written

EXAMPLES = int(os.environ.get("DYNTRAIN_SCHEDULES", "100"))


def faults(world: World) -> list[Callable[[], Any]]:
    running = [node.worker for node in world.nodes.values() if node.worker.alive]

    def hang(worker: Any) -> None:
        worker.hung = True
        world.cut(worker)

    def forget(node: Any) -> None:
        node.safe = None

    return [
        *(lambda worker=worker: worker.exit(-9) for worker in running),
        *(lambda worker=worker: hang(worker) for worker in running if worker.link and worker.link.greeted),
        *(lambda node=node: forget(node) for node in world.nodes.values() if node.safe),
        world.crash,
        *(lambda names=names: world.want(names) for names in ("ab", "abc", "ac", "bc", "b")),
        *(lambda seconds=seconds: world.pass_time(seconds) for seconds in (3.5, 25.0)),
    ]


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.lists(st.tuples(st.integers(20, 90), st.integers(0, 1000), st.integers(1, 12)), max_size=12))
def test_what_the_journal_names_is_on_disk_whatever_dies_hangs_or_comes_late(
    schedule: list[tuple[int, int, int]],
) -> None:
    world = World("ab", "c", epochs=6)
    for moves, choice, stride in schedule:
        for step in range(moves):
            if possible := world.moves():
                possible[(choice + step * stride) % len(possible)]()
        possible = faults(world)
        possible[choice % len(possible)]()
        world.pass_time(0.1)
    calm(world, "abc")
    assert world.over == "finished"
    named = restore_job(world.options, lambda: "token", world.journal, world.now).kept_commits
    unheard = set(world.commits) - set(named)
    assert len(unheard) <= COMMITS_KEPT, "what nobody knows goes, too, but for the last few of who writes"


def kept(orders: list[Order]) -> dict[str, tuple[str, ...] | None]:
    """By the worker that is to commit: what it is to keep."""
    words = {order.instance_id: order.message for order in orders if isinstance(order, ToWorker)}
    return {name: word.keep for name, word in words.items() if isinstance(word, Proceed) and word.commit}


def test_who_commits_keeps_the_last_three_that_were_heard_of(driver: Driver) -> None:
    assert COMMITS_KEPT == 3
    for step in range(1, 6):
        commits(driver, 1, step)
    assert kept(driver.check_in(A, B, epoch=2)) == {A: ("c3", "c4", "c5")}


def test_the_commit_that_the_job_started_from_stays_until_it_starts_from_another() -> None:
    driver = Driver(recovery="restart")
    driver.train(A, B)
    commits(driver, 1, 0, "first")
    driver.exits(B)
    again(driver)
    driver.form(A, B)
    for step in range(1, 5):
        commits(driver, 2, step)
    assert kept(driver.check_in(A, B)) == {A: ("first", "c2", "c3", "c4")}
    come_back(driver, A, B)
    assert driver.session.job.kept_commits == ("first", "c2", "c3", "c4")
    driver.exits(B, pid=101)
    again(driver)
    assert driver.session.job.kept_commits == ("c2", "c3", "c4"), "it started from the last of them"


def test_what_another_still_writes_does_not_count_once_somebody_else_commits(driver: Driver) -> None:
    """It is deleted with the old ones: who deletes them did not know of it."""
    driver.node(C, base=False)
    driver.worker(C)
    driver.want(A, B, C)
    driver.blanks(A)
    driver.check_in(A, B)
    driver.form(A, B, C)
    driver.want(B, C)
    driver.blanks(A)
    driver.check_in(A, B, C, epoch=2)
    assert written(commits(driver, 2, 4, "late")) != []
    orders = driver.form(B, C)
    assert set(kept(orders)) == {B}
    assert commits(driver, 2, 4, "too-late") == []
    come_back(driver, B, C)
    assert commits(driver, 2, 4, "too-late") == []
    assert driver.session.job.kept_commits[-1] == "late"
