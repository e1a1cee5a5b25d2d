"""What a report cannot truly say is refused, and what it can say wrongly does not count for ever."""

from __future__ import annotations

from typing import Any

import pytest
from dyntrain.controller.core.incoming.bounds import CLOCK_SECONDS, FORMER_ATTEMPTS
from fakes import World, running_cluster


def trained() -> tuple[World, str]:
    world, _, (worker,) = running_cluster(1)
    world.wait(3600)
    world.resync()
    return world, worker


def forged(world: World, worker: str, outcome: str, **more: Any) -> dict[str, Any]:
    """The bus itself writes when it was sent."""
    event = world.report(worker, outcome)
    return {**event, "detail": {**event["detail"], **more}}


def unmoved(world: World, worker: str, event: dict[str, Any]) -> str:
    """What is refused of an event that changes nothing."""
    before = world.status(worker), world.target()
    (heard,) = world.hear(event)
    world.resync()
    assert (world.status(worker), world.target()) == before
    assert (heard.kind, heard.instance) == ("quarantined", worker)
    return heard.reason.partition(":")[0]


@pytest.mark.parametrize("outcome", ["prepare_failed", "worker_failed"])
@pytest.mark.parametrize("attempt", [10**9, 2**62, FORMER_ATTEMPTS + 7200])
def test_an_attempt_that_this_machine_cannot_have_come_to_changes_nothing(outcome: str, attempt: int) -> None:
    world, worker = trained()
    assert unmoved(world, worker, forged(world, worker, outcome, attempt=attempt)) == "attempt"


@pytest.mark.parametrize("outcome", ["prepared", "prepare_failed", "worker_failed", "interrupted"])
@pytest.mark.parametrize("ahead", [CLOCK_SECONDS + 1.0, 1e12])
def test_a_word_from_the_future_changes_nothing(outcome: str, ahead: float) -> None:
    """It would have said for ever to which cluster the instance belongs, too."""
    world, worker = trained()
    assert unmoved(world, worker, forged(world, worker, outcome, at=world.now + ahead)) == "at"


def test_a_notice_lies_not_so_far_ahead_that_the_node_would_leave_for_ever() -> None:
    world, worker = trained()
    assert unmoved(world, worker, forged(world, worker, "interrupted", deadline=world.now + 1e6)) == "deadline"


@pytest.mark.parametrize("attempt", [1, 2, 900, FORMER_ATTEMPTS + 3000])
def test_as_many_attempts_as_a_machine_can_have_had_are_believed(attempt: int) -> None:
    world, worker = trained()
    (heard,) = world.hear(world.report(worker, "prepare_failed", attempt=attempt, at=world.now))
    assert heard.kind == "applied"
    assert worker not in world.target().members


def test_a_node_whose_count_was_lost_goes_on_from_the_time_of_day() -> None:
    """As `node.following` does, with a clock that may be a little ahead."""
    world, worker = trained()
    (heard,) = world.hear(world.report(worker, attempt=int(world.now) + 60))
    assert heard.kind == "applied"


def test_a_machine_that_was_started_again_keeps_its_count() -> None:
    world, worker = trained()
    world.hear(world.report(worker, attempt=700))
    world.wait(60)
    world.machines[worker].launched_at = world.now
    world.resync()
    world.wait(20)
    (heard,) = world.hear(world.report(worker, attempt=701))
    assert heard.kind == "applied"


def test_a_forged_number_that_could_be_true_is_over_once_the_node_has_begun_anew() -> None:
    """Where identities are not verified: a reboot heals it, within an hour at the latest."""
    world, worker = trained()
    world.hear(world.report(worker, "prepare_failed", attempt=FORMER_ATTEMPTS + 3000, reason="forged"))
    assert worker not in world.target().members
    world.wait(3600)
    world.hear(world.tag(worker), world.report(worker, attempt=2))
    assert worker in world.target().members
