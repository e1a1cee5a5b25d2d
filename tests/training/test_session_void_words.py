"""Words that are void: of another generation, or by somebody who is no member any more. What would break for a user is
one old word, said again over a new connection, that is taken for news of the present generation.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest
from dyntrain.training.events import Pause
from dyntrain.training.protocol.messages import (
    Broken,
    CheckIn,
    CommitUnreadable,
    Fetching,
    FirstStep,
    Formed,
    Position,
    Prepared,
    Progress,
    Pumped,
    ScriptFailed,
    StepStatus,
)
from dyntrain.training.session.job.state import Phase
from session_driver import A, B, C, D, Driver, announced, decided, words

AT = Position(epoch=0, offset=10, step=1)
WORDS: dict[str, Callable[[int], Any]] = {
    "worker_prepared": lambda number: Prepared(generation=number),
    "worker_fetching": lambda number: Fetching(generation=number, received=1, size=2),
    "worker_formed": lambda number: Formed(generation=number, digest="other"),
    "first_step": lambda number: FirstStep(generation=number, pause=1.0),
    "worker_progressed": lambda number: Progress(generation=number, position=AT, samples_per_second=1.0),
    "check_in": lambda number: CheckIn(generation=number, position=AT, pid=1),
    "step_status": lambda number: StepStatus(generation=number, phase="out", position=AT, answered=0),
    "zeros_pushed": lambda number: Pumped(generation=number, rounds=1, seconds=0.1),
    "summation_failed": lambda number: Broken(generation=number, reason="a connection is closed"),
    "script_failed": lambda number: ScriptFailed(
        generation=number, position=AT, error="no", traceback="no", past_help=True
    ),
    "commit_unreadable": lambda number: CommitUnreadable(generation=number, name="c1", reason="damaged"),
}


def second(three: Driver) -> None:
    """Generation 2 of A and B is ordered; C has left, D stands by."""
    three.node(D, base=False)
    three.worker(D)
    three.want(A, B)
    three.check_in(A, B, C)
    three.do("worker_left", C)


def trains(three: Driver) -> None:
    second(three)
    three.form(A, B)
    three.blanks(A)


def forms_group(three: Driver) -> None:
    second(three)
    three.prepare(A, B)


def frees(three: Driver) -> None:
    trains(three)
    three.do("summation_failed", A, Broken(generation=2, reason="a connection is closed"))


PHASES = {Phase.PREPARING: second, Phase.FORMING: forms_group, Phase.TRAINING: trains, Phase.RELEASING: frees}


@pytest.mark.parametrize("phase", PHASES, ids=lambda phase: phase.value)
@pytest.mark.parametrize("method", WORDS)
def test_a_word_of_another_generation_or_of_somebody_else_changes_nothing(
    three: Driver, method: str, phase: Phase
) -> None:
    PHASES[phase](three)
    job = three.session.job
    assert (job.phase, job.number) == (phase, 2)
    for name, number in ((A, 1), (A, 3), (C, 2), (D, 2), ("i-nobody", 2)):
        before = deepcopy(job)
        assert three.do(method, name, WORDS[method](number)) == [], (name, number)
        assert job == before, (name, number)


@pytest.mark.parametrize("method", ["first_step", "worker_progressed", "check_in"])
def test_each_word_of_one_that_gets_on_sets_the_progress_clock_anew(driver: Driver, method: str) -> None:
    bound = driver.options.clocks.progress
    for _ in range(3):
        driver.now += bound
        assert words(decided(driver.do("tick"))) == []
        driver.do(method, A, WORDS[method](1))
        if method == "check_in":
            break  # from here on the boundary's bound holds
    assert driver.session.job.round.progress_at == driver.now


def test_the_boundarys_bound_runs_from_the_first_who_came_to_it(three: Driver) -> None:
    three.now += 5.0
    three.check_in(A)
    since = three.session.job.since
    assert since == three.now
    three.now += 5.0
    three.check_in(B)
    assert three.session.job.since == since, "the second one's coming gives the third no more time"


def test_a_change_is_told_to_have_taken_what_the_slowest_took_once_all_have_said_so(driver: Driver) -> None:
    driver.want(A)
    driver.blanks(A)
    driver.check_in(A, B)
    driver.want(A)
    driver.prepare(A)
    driver.do("worker_formed", A, Formed(generation=2, digest="same"))
    orders = driver.do("first_step", A, FirstStep(generation=2, pause=2.0, phases={"create": 1.5}))
    assert [(pause.generation, pause.seconds) for pause in announced(orders, Pause)] == [(2, 2.0)]
    other = Driver(workers=3)
    for name in (A, B, C):
        other.node(name)
        other.worker(name)
    other.want(A, B, C)
    other.prepare(A, B, C)
    for name in (A, B, C):
        other.do("worker_formed", name, Formed(generation=1, digest="same"))
    assert announced(other.do("first_step", A, FirstStep(generation=1, pause=1.0)), Pause) == []
    assert announced(other.do("first_step", A, FirstStep(generation=1, pause=1.0)), Pause) == [], "said again"
    assert announced(other.do("first_step", B, FirstStep(generation=1, pause=3.0)), Pause) == []
    orders = other.do("first_step", C, FirstStep(generation=1))
    assert [pause.seconds for pause in announced(orders, Pause)] == [3.0]


def test_a_job_that_nobody_paused_for_tells_of_no_pause(driver: Driver) -> None:
    assert announced(driver.orders, Pause) == []


def test_a_script_that_is_past_help_ends_the_job_once(driver: Driver) -> None:
    driver.do("script_failed", B, WORDS["script_failed"](1))
    assert (driver.session.job.phase, driver.session.job.outcome) == (Phase.OVER, "failed")
    reason = driver.session.job.failure
    driver.do("script_failed", A, WORDS["script_failed"](1))
    assert driver.session.job.failure == reason
    assert [order for order in driver.orders if "JobFailed" in repr(order)][1:] == []


@pytest.mark.parametrize("phase", [Phase.PREPARING, Phase.FORMING, Phase.RELEASING], ids=lambda phase: phase.value)
def test_a_boundary_that_is_past_is_not_come_to(three: Driver, phase: Phase) -> None:
    """The word was under way when the others were told to free themselves, or to form: it would count as waiting."""
    PHASES[phase](three)
    before = deepcopy(three.session.job)
    assert three.do("check_in", A, WORDS["check_in"](2)) == []
    assert three.session.job == before
