"""What the demo's report says of statuses: what the controller told, not what somebody happened to see."""

from __future__ import annotations

from dyntrain.controller.core.history.trail import ActionDone, Entry, StatusChanged
from dyntrain.controller.local.demo.told import once_removed, statuses_told
from dyntrain.controller.local.pace import slowness
from dyntrain.controller.loops.ports import TrailEntry

ONE, TWO = "i-00000001", "i-00000002"


def tagged(instance: str, value: str) -> Entry:
    return ActionDone(kind="SetStatusTag", instance=instance, value=value)


def written(*entries: Entry) -> list[TrailEntry]:
    return [TrailEntry(at, entry) for at, entry in enumerate(entries)]


def test_statuses_are_the_tags_that_were_written_each_once_and_nothing_else() -> None:
    """A pass that is overtaken writes a tag once more; one that stood for a moment was told all the same."""
    told = statuses_told(
        written(
            StatusChanged(instance=ONE, before="", after="WAITING PREPARING"),
            tagged(ONE, "ADD_QUEUED"),
            tagged(TWO, "ADD_QUEUED"),
            tagged(ONE, "ADD_QUEUED"),
            ActionDone(kind="CompleteLifecycle", instance=ONE, value="CONTINUE"),
            tagged(ONE, "ADDED"),
        )
    )
    assert told == {ONE: ["ADD_QUEUED", "ADDED"], TWO: ["ADD_QUEUED"]}


def test_the_end_is_waited_for_since_the_trail_is_written_after_what_it_tells() -> None:
    answers = [written(tagged(ONE, "ADDED")), written(tagged(ONE, "ADDED"), tagged(ONE, "REMOVED"))]
    assert once_removed(lambda: answers.pop(0), {ONE}, 30.0) == {ONE: ["ADDED", "REMOVED"]}
    slowness()  # measured before the short wait
    assert once_removed(lambda: written(tagged(ONE, "ADDED")), {ONE}, 0.01) == {ONE: ["ADDED"]}
