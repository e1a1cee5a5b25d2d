"""The arrows between statuses, and what a list of statuses says of whoever wrote it."""

from __future__ import annotations

from typing import get_args

import pytest
from dyntrain.controller.contract.messages import Status
from dyntrain.controller.core.decisions.arrows import TRANSITION_CAUSES, Cause, unexplained_statuses
from dyntrain.controller.core.planning import TAGGED_STATUSES

IN, OUT, ANEW, LOST = Cause.JOIN_REQUESTED, Cause.MUST_LEAVE, Cause.RESTARTED, Cause.LOST_BY_JOB


def statuses(*steps: str) -> list[tuple[float, Status]]:
    """A status a second."""
    return [(float(at), status) for at, status in enumerate(steps, 1)]  # type: ignore[misc]


def test_every_status_of_the_tag_can_be_reached_and_no_other_is_in_the_table() -> None:
    assert {after for _, after in TRANSITION_CAUSES} == set(TAGGED_STATUSES) < set(get_args(Status))
    assert {before for before, _ in TRANSITION_CAUSES} == {None, *TAGGED_STATUSES}
    assert all(causes for causes in TRANSITION_CAUSES.values())


def test_only_what_goes_on_needs_no_cause() -> None:
    course = {arrow for arrow, causes in TRANSITION_CAUSES.items() if Cause.CONTINUATION in causes}
    assert course == {("ADD_QUEUED", "ADDED"), ("REMOVAL_QUEUED", "REMOVED")}


@pytest.mark.parametrize(
    ("steps", "happened"),
    [
        (["ADD_QUEUED", "ADDED", "REMOVAL_QUEUED", "REMOVED"], [(0.5, IN), (2.5, OUT)]),
        (["ADD_QUEUED", "REMOVED", "ADD_QUEUED", "ADDED"], [(0.5, IN), (1.5, OUT), (2.5, IN)]),
        (["ADDED", "ADDED", "ADD_QUEUED", "ADDED"], [(0.5, IN), (2.5, LOST)]),
        (["PREPARE_FAILED", "ADD_QUEUED"], [(0.5, ANEW), (1.5, ANEW)]),
        (["ADDED", "ADD_QUEUED"], [(0.5, IN), (1.2, OUT), (1.4, IN)]),
    ],
    ids=["a life", "asked again", "the job lost it", "mended", "asked again before anybody was told that it goes"],
)
def test_what_follows_its_causes_is_explained(steps: list[str], happened: list[tuple[float, Cause]]) -> None:
    assert unexplained_statuses(statuses(*steps), happened) == []


@pytest.mark.parametrize(
    ("steps", "happened", "line"),
    [
        (["ADD_QUEUED", "ADDED", "ADD_QUEUED"], [(0.5, IN)], "ADDED was followed by ADD_QUEUED"),
        (["ADDED", "REMOVAL_QUEUED", "ADDED"], [(0.5, IN), (1.5, OUT)], "REMOVAL_QUEUED was followed by ADDED"),
        (["ADDED", "REMOVAL_QUEUED"], [(0.5, IN), (2.5, OUT)], "ADDED was followed by REMOVAL_QUEUED"),
        (
            ["ADDED", "REMOVAL_QUEUED", "ADDED", "REMOVAL_QUEUED"],
            [(0.5, IN), (1.5, OUT), (2.5, IN)],
            "ADDED was followed by REMOVAL_QUEUED",
        ),
        (["GONE"], [(0.5, IN)], "no status was followed by GONE"),
    ],
    ids=["back", "back out of leaving", "before its cause", "a cause counts once", "no status of a tag"],
)
def test_what_has_no_cause_is_told(steps: list[str], happened: list[tuple[float, Cause]], line: str) -> None:
    (problem,) = unexplained_statuses(statuses(*steps), happened)
    assert problem.startswith(f"{line}, without its cause: ")
