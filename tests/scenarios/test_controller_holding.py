"""Elastic groups whose nodes fail alike: nobody rents the tenth machine for one mistake, and what is mended goes on."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from dyntrain.controller.contract.errors import Refused, RetryLater
from fakes import Member, World

GROUP = "demo-workers"
BROKEN, OTHER = "a" * 64, "b" * 64
EXIT = "prepare-data failed 3 times; the last: exit code 2; its last output:\nno such bucket, request {}"


class Failing:
    """A group of one that launches the next machine whenever a launch is given up, as long as it launches."""

    def __init__(self, **policy: object) -> None:
        self.world = World(**policy)
        self.world.limits[GROUP] = (0, 10, 1)
        self.base = self.world.launch(1000, base=True, NodeType="Master")
        self.world.hear(self.world.report(self.base))
        self.sees(BROKEN)
        self.launched = 0

    def sees(self, script: str) -> None:
        self.world.wait(1)
        self.world.hear(self.world.report(self.base, "alive", script=script))

    def launch(self, outcome: str = "prepare_failed", reason: str = EXIT, script: str = BROKEN) -> bool:
        """Whether there was a machine at all."""
        if GROUP in self.world.suspended:
            return False
        self.launched += 1
        instance = self.world.member(self.launched)
        self.world.hear(self.world.hook_event(instance, "launch", f"t-{self.launched}"))
        self.world.wait(5)
        text = reason.format(self.launched) if outcome != "prepared" else ""
        self.world.hear(self.world.report(instance, outcome, reason=text, script=script))
        if outcome == "prepare_failed":
            self.world.membership[instance] = Member(GROUP, "left")
            self.world.hear(self.world.state_event(instance, "terminated"))
        self.world.wait(5)
        return True

    def launches(self, most: int = 20, **how: str) -> int:
        return sum(self.launch(**how) for _ in range(most))

    def tick(self, times: int = 1) -> None:
        for _ in range(times):
            self.world.wait(60)
            self.world.resync()

    @property
    def done(self) -> Sequence[str]:
        return [call[0].partition(".")[2] for call in self.world.calls if call[0].endswith("_launches")]


def test_a_group_whose_nodes_fail_alike_stops_launching_is_told_and_goes_on_once_prepare_data_has_changed() -> None:
    """A mistake in prepare-data launched machine after machine for as long as nobody looked: 72 in a day."""
    group = Failing()
    assert group.launches() == 3
    assert ("LaunchesHeld", "demo", 1) in group.world.metrics
    (detail,) = [entry["detail"] for entry in group.world.trail if entry["kind"] == "LaunchesHeld"]
    assert detail.startswith("demo-workers: 3 alike: ")
    assert "no such bucket, request 3" in detail, "the last lines"
    group.tick(3)
    assert group.done == ["suspend_launches"], "and nothing goes on by itself while it is not mended"
    assert group.world.limits[GROUP][2] == 1, "what people want stays as they said it"
    group.sees(OTHER)
    group.tick()
    assert group.done == ["suspend_launches", "resume_launches"]
    assert group.launch("prepared", script=OTHER)
    group.tick(2)
    assert group.done == ["suspend_launches", "resume_launches"]


def test_the_group_is_held_before_the_launch_is_given_up_for_it_launches_the_next_one_at_once() -> None:
    group = Failing()
    group.launches()
    calls = [call[0] for call in group.world.calls if call[0] in ("groups.suspend_launches", "groups.complete")]
    assert calls[-2:] == ["groups.suspend_launches", "groups.complete"]


def test_what_was_mended_and_fails_again_is_held_again_after_as_many() -> None:
    group = Failing(alike_failures=2)
    assert group.launches() == 2
    group.sees(OTHER)
    group.tick()
    assert group.launches(script=OTHER) == 2
    assert group.done == ["suspend_launches", "resume_launches", "suspend_launches"]


def test_what_was_mended_while_the_last_ones_failed_is_not_held() -> None:
    group = Failing()
    assert group.launches(most=2) == 2
    group.sees(OTHER)
    assert group.launch()
    assert group.done == []


def test_failures_of_several_kinds_and_a_success_between_are_no_mistake_in_prepare_data() -> None:
    group = Failing()
    for code in (1, 2, 1, 2, 1):
        group.launch(
            reason=f"prepare-data failed 3 times; the last: {'killed by SIGKILL' if code == 1 else 'exit code 2'}"
        )
    assert group.launches(most=2, script=OTHER) == 2
    group.launch("prepared")
    assert group.launches(most=2) == 2
    assert group.done == []


def test_who_resumes_the_group_by_hand_is_believed_and_it_is_held_again_only_after_as_many_failures() -> None:
    group = Failing()
    assert group.launches() == 3
    group.world.suspended.clear()
    group.tick(2)
    assert group.done == ["suspend_launches"]
    assert group.launches() == 3


def test_what_somebody_else_has_suspended_is_not_resumed_by_us() -> None:
    group = Failing()
    assert group.launches(most=2) == 2
    group.world.suspended.add(GROUP)
    instance = group.world.member(99)
    group.world.hear(group.world.hook_event(instance, "launch", "t-99"))
    group.world.hear(group.world.report(instance, "prepare_failed", reason=EXIT, script=BROKEN))
    group.sees(OTHER)
    group.tick(2)
    assert group.done == []


def test_machines_of_which_nothing_is_heard_are_held_too_and_those_that_were_ended_at_once_are_not() -> None:
    """Their user data die before there is what could tell; a person who lowers the capacity is no failure."""
    group = Failing()
    for waited, held in ((60.0, False), (60.0, False), (60.0, False), (900.0, False), (900.0, False), (900.0, True)):
        group.launched += 1
        instance = group.world.member(group.launched)
        group.world.hear(group.world.hook_event(instance, "launch", f"t-{group.launched}"))
        group.world.wait(waited)
        group.world.membership[instance] = Member(GROUP, "left")
        group.world.hear(group.world.state_event(instance, "terminated"))
        assert (GROUP in group.world.suspended) == held, group.launched
        group.world.wait(5)


@pytest.mark.parametrize("error", [RetryLater("busy"), Refused("AccessDenied", "no")], ids=["busy", "refused"])
def test_a_hold_that_aws_did_not_take_is_made_good_at_the_next_look(error: Exception) -> None:
    group = Failing()
    assert group.launches(most=2) == 2
    group.world.failing["groups.suspend_launches"] = [error]
    try:
        group.launch()
    except RetryLater:
        assert isinstance(error, RetryLater)
    group.tick()
    assert GROUP in group.world.suspended
