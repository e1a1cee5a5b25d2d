"""What counts as done is what took effect, instance by instance; nothing is done whose condition could not be met."""

from __future__ import annotations

import pytest
from dyntrain.controller.contract.errors import Refused, RetryLater
from dyntrain.controller.core.decisions.actions import (
    Action,
    CompleteLifecycle,
    HeartbeatLifecycle,
    Protect,
    SetStatusTag,
    StampOwner,
    StartInstances,
    StopBase,
    SuspendReplacement,
    TagElastic,
    Terminate,
    TerminateInGroup,
    UntagElastic,
    instances,
)
from dyntrain.controller.core.records.acks import NO_ACKS, Acks
from dyntrain.controller.core.views.reasons import Reason
from dyntrain.controller.loops.execute import ActionResults, perform
from fakes import World, instance_id

HELD, FREE, GHOST = instance_id(1), instance_id(2), instance_id(99)
GROUP = "demo-workers"
# By what keeps them from happening: each must take effect on an instance before the others may be done to it.
CONDITIONS: dict[str, tuple[Action, str]] = {
    "owner": (StampOwner((HELD,), "demo"), "instances.tag"),
    "status": (SetStatusTag((HELD,), "REMOVED"), "instances.tag"),
    "start": (StartInstances((HELD,)), "instances.start"),
    "replacement": (SuspendReplacement((HELD,), GROUP), "groups.suspend_replacement"),
}
BOTH = (HELD, FREE)
CONDITIONAL: dict[str, tuple[Action, ...]] = {
    "terminate": (Terminate(BOTH),),
    "terminate in group": (TerminateInGroup(HELD, GROUP, True), TerminateInGroup(FREE, GROUP, True)),
    "complete": tuple(CompleteLifecycle(one, "t", GROUP, "h", "t", "CONTINUE") for one in BOTH),
    "tag": (TagElastic(BOTH, "k"),),
    "stop": (StopBase(BOTH, Reason.IDLE),),
}
UNCONDITIONAL: dict[str, tuple[Action, ...]] = {
    "protect": (Protect(BOTH, GROUP),),
    "heartbeat": tuple(HeartbeatLifecycle(one, "t", GROUP, "h", "t") for one in BOTH),
    "untag": (UntagElastic(BOTH, "k"),),
}


def world() -> World:
    new = World()
    for number in (1, 2):
        new.member(number, phase="in_service")
    return new


def done(performed: ActionResults, kind: type[Action]) -> set[str]:
    return {one for action in performed.done if type(action) is kind for one in instances(action)}


@pytest.mark.parametrize("condition", CONDITIONS.values(), ids=CONDITIONS)
@pytest.mark.parametrize("actions", CONDITIONAL.values(), ids=CONDITIONAL)
def test_what_could_not_be_prepared_is_not_done_to_that_instance_and_is_to_the_others(
    condition: tuple[Action, str], actions: tuple[Action, ...]
) -> None:
    here = world()
    here.failing[condition[1]] = [RetryLater("throttled")]
    performed = perform(here.ports, "demo", [condition[0], *actions])
    assert done(performed, type(actions[0])) == {FREE}
    assert len(performed.failures) == 1, "and it is tried again"


@pytest.mark.parametrize(
    ("condition", "waits"), [("start", True), ("replacement", True), ("owner", False), ("status", False)]
)
@pytest.mark.parametrize("actions", CONDITIONAL.values(), ids=CONDITIONAL)
def test_a_no_to_a_start_or_to_keeping_a_group_from_replacing_is_as_good_as_a_failure(
    condition: str, waits: bool, actions: tuple[Action, ...]
) -> None:
    """What may not be tagged is ended all the same: it costs money, and a tag tells people only."""
    here = world()
    action, operation = CONDITIONS[condition]
    here.failing[operation] = [Refused("UnauthorizedOperation", "no")]
    performed = perform(here.ports, "demo", [action, *actions])
    assert done(performed, type(actions[0])) == ({FREE} if waits else {HELD, FREE})
    assert performed.failures == [], "and it is not tried again at once"


@pytest.mark.parametrize("condition", CONDITIONS.values(), ids=CONDITIONS)
@pytest.mark.parametrize("actions", UNCONDITIONAL.values(), ids=UNCONDITIONAL)
def test_what_keeps_an_instance_alive_waits_for_nothing(
    condition: tuple[Action, str], actions: tuple[Action, ...]
) -> None:
    here = world()
    here.failing[condition[1]] = [RetryLater("throttled")]
    assert done(perform(here.ports, "demo", [condition[0], *actions]), type(actions[0])) == {HELD, FREE}


@pytest.mark.parametrize(
    "actions", [*CONDITIONAL.values(), *UNCONDITIONAL.values()], ids=[*CONDITIONAL, *UNCONDITIONAL]
)
def test_what_fails_itself_is_a_failure_and_counts_for_nobody(actions: tuple[Action, ...]) -> None:
    here = world()
    before = len(here.calls)
    perform(here.ports, "demo", actions[:1])
    operation = here.calls[before][0]
    here.failing[operation] = [RetryLater("throttled")]
    performed = perform(here.ports, "demo", actions[:1])
    assert (performed.done, performed.acks, performed.trail) == ([], {}, [])
    assert len(performed.failures) == 1


@pytest.mark.parametrize("action", [StampOwner, SetStatusTag, Terminate], ids=lambda kind: kind.__name__)
def test_what_ec2_does_not_know_yet_is_not_remembered_as_done(action: type[Action]) -> None:
    """Remembered, it would never be done: an instance whose end is taken for ordered runs for ever."""
    actions: dict[type[Action], Action] = {
        StampOwner: StampOwner((HELD, GHOST), "demo"),
        SetStatusTag: SetStatusTag((HELD, GHOST), "ADDED"),
        Terminate: Terminate((HELD, GHOST)),
    }
    performed = perform(world().ports, "demo", [actions[action]])
    assert set(performed.acks) == {HELD}
    assert {entry.instance for entry in performed.trail} == {HELD}
    assert performed.failures == []


@pytest.mark.parametrize("action", [SetStatusTag((HELD, FREE), "ADDED"), StopBase((HELD, FREE), Reason.IDLE)])
def test_what_is_refused_for_one_instance_is_told_of_it_and_done_to_the_other(action: Action) -> None:
    here = world()
    here.refusing[HELD] = "OperationNotPermitted: termination protection"
    performed = perform(here.ports, "demo", [action])
    assert [
        (entry.instance, "Protect" in entry.detail or "protection" in entry.detail) for entry in performed.refused
    ] == [(HELD, True)]
    assert {entry.instance for entry in performed.trail} == {FREE}
    acks = performed.acks.get(HELD, NO_ACKS)
    assert acks == Acks(refused=acks.refused), "at most the no is remembered"


def test_a_member_that_its_group_does_not_know_is_not_remembered_as_ended() -> None:
    """It may have been detached, and run on."""
    here = world()
    del here.membership[HELD]
    performed = perform(here.ports, "demo", [TerminateInGroup(HELD, GROUP, True), TerminateInGroup(FREE, GROUP, False)])
    assert set(performed.acks) == {FREE}
    ended = performed.acks[FREE].terminate
    assert ended is not None
    assert (ended.group, ended.lowered) == (GROUP, False)
