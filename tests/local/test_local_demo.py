"""What the demo's report says of statuses: what the controller told, what a person saw, and whether one went back."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from dyntrain.controller.core.history.trail import ActionDone, Entry, StatusChanged
from dyntrain.controller.local.demo.observer import Observations
from dyntrain.controller.local.demo.report import DemoRequest, build_report, shortcomings
from dyntrain.controller.local.demo.statuses import announced_statuses, wait_until_removed
from dyntrain.controller.local.pace import slowness
from dyntrain.controller.loops.ports import TrailEntry
from dyntrain.training.audit import Audit

ONE, TWO = "i-00000001", "i-00000002"


def tagged(instance: str, value: str) -> Entry:
    return ActionDone(kind="SetStatusTag", instance=instance, value=value)


def written(*entries: Entry) -> list[TrailEntry]:
    return [TrailEntry(at, entry) for at, entry in enumerate(entries)]


def test_statuses_are_the_tags_that_were_written_each_once_and_nothing_else() -> None:
    """A pass that is overtaken writes a tag once more; one that stood for a moment was told all the same."""
    statuses = announced_statuses(
        written(
            StatusChanged(instance=ONE, before="", after="WAITING PREPARING"),
            tagged(ONE, "ADD_QUEUED"),
            tagged(TWO, "ADD_QUEUED"),
            tagged(ONE, "ADD_QUEUED"),
            ActionDone(kind="CompleteLifecycle", instance=ONE, value="CONTINUE"),
            tagged(ONE, "ADDED"),
        )
    )
    assert statuses == {ONE: [(1, "ADD_QUEUED"), (5, "ADDED")], TWO: [(2, "ADD_QUEUED")]}


def test_the_end_is_waited_for_since_the_trail_is_written_after_what_it_tells() -> None:
    answers = [written(tagged(ONE, "ADDED")), written(tagged(ONE, "ADDED"), tagged(ONE, "REMOVED"))]
    assert wait_until_removed(lambda: answers.pop(0), {ONE}, 30.0) == {ONE: [(0, "ADDED"), (1, "REMOVED")]}
    slowness()  # measured before the short wait
    assert wait_until_removed(lambda: written(tagged(ONE, "ADDED")), {ONE}, 0.01) == {ONE: [(0, "ADDED")]}


LIFE = ("ADD_QUEUED", "ADDED", "REMOVAL_QUEUED", "REMOVED")


def problems_of(announced: Sequence[str], seen: Sequence[str]) -> list[str]:
    """Of a demo in which ONE was asked to join before its first status, and to leave just before REMOVAL_QUEUED."""
    looked = Observations(statuses={ONE: [(10.0 * at, status) for at, status in enumerate(seen, 1)]})
    looked.terminated_at[ONE] = 99.0
    leave = 10.0 * min(statuses.index("REMOVAL_QUEUED") for statuses in (announced, seen)) + 5.0
    written = {ONE: [(10.0 * at, status) for at, status in enumerate(announced, 1)]}
    report = build_report(
        looked, written, Audit(0), [DemoRequest(ONE, 1.0)], [DemoRequest(ONE, leave)], Path("nowhere")
    )
    return [line for line in shortcomings(report) if ONE in line and "never joined" not in line]


def test_a_demo_is_all_right_when_each_status_follows_from_what_was_asked() -> None:
    assert problems_of(LIFE, LIFE) == []
    assert problems_of(LIFE, ("ADDED", "REMOVAL_QUEUED", "REMOVED")) == [], "a look may miss one"


@pytest.mark.parametrize(
    ("seen", "change"),
    [
        (("ADD_QUEUED", "ADDED", "ADD_QUEUED", "ADDED", *LIFE[2:]), "ADDED was followed by ADD_QUEUED"),
        (("ADD_QUEUED", "ADDED", "REMOVAL_QUEUED", "ADDED", *LIFE[2:]), "REMOVAL_QUEUED was followed by ADDED"),
        ((*LIFE, "REMOVAL_QUEUED", "REMOVED"), "REMOVED was followed by REMOVAL_QUEUED"),
    ],
)
def test_a_demo_is_not_all_right_when_a_person_saw_a_status_go_back(seen: tuple[str, ...], change: str) -> None:
    (problem, *_) = problems_of(LIFE, seen)
    assert problem.startswith(f"{ONE}, statuses_seen: {change}, without its cause")
