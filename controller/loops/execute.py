"""Carries out planned actions one after the other, and reports their effects. Decides nothing.

All actions of the controller are carried out here: by converge, after failed launches, and for the reserved pool.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import assert_never

from dyntrain.controller.contract.errors import ControllerError, Disputed, Refused
from dyntrain.controller.contract.messages import OWNER_TAG, STATUS_TAG
from dyntrain.controller.core.decisions.actions import (
    Action,
    CompleteLifecycle,
    HeartbeatLifecycle,
    HoldLaunches,
    Protect,
    PublishTarget,
    ReleaseLaunches,
    ResumeReplacement,
    SetDesiredCapacity,
    SetStatusTag,
    StampOwner,
    StartInstances,
    StopBase,
    StopInstances,
    SuspendReplacement,
    TagElastic,
    Terminate,
    TerminateInGroup,
    UntagElastic,
    acknowledgement,
    instances,
    refusal,
    stale_answer,
)
from dyntrain.controller.core.history.trail import ActionDone, ActionRefused, CapacitySet, Entry, TargetPublished
from dyntrain.controller.core.records.acks import NO_ACKS, Acks
from dyntrain.controller.loops.ports import ALL_DONE, Batch, Ports
from dyntrain.controller.loops.publish import publish

log = logging.getLogger("dyntrain.execute")

# effects that an instance needs before the other actions
_CONDITIONS = (StampOwner, SetStatusTag, StartInstances, SuspendReplacement)
_CONDITIONAL = (Terminate, TerminateInGroup, CompleteLifecycle, TagElastic, StopBase)


@dataclass
class Performed:
    """The results of all actions. `acks` by instance; `trail` for the audit; `failures` may succeed in a
    retry, `refused` actions cannot; `done` actions took effect.
    """

    acks: dict[str, Acks] = field(default_factory=dict)
    trail: list[Entry] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    refused: list[ActionRefused] = field(default_factory=list)
    done: list[Action] = field(default_factory=list)
    held_back: set[str] = field(default_factory=set)

    def remember(self, instance: str, acks: Acks) -> None:
        if acks != NO_ACKS:
            self.acks[instance] = self.acks.get(instance, NO_ACKS).join(acks)


@dataclass(frozen=True)
class _Effect:
    """The result of one action: the `instances` on which it took effect, `acks` for each of them, `entries` for the
    audit trail.
    """

    instances: tuple[str, ...] = ()
    acks: Acks = NO_ACKS
    entries: tuple[Entry, ...] = ()
    refused: Mapping[str, str] = field(default_factory=dict)


def perform(
    ports: Ports, cluster: str, actions: Sequence[Action], why: str = "", until: float | None = None
) -> Performed:
    """Carry out the actions. A failure stops only dependent actions: an instance without its status tag is not
    ended, and an instance that did not start is not tagged to join. `why` is written into the audit trail. No status
    tag is written after `until`.
    """
    performed = Performed()
    for planned in actions:
        action = _without_held_back(planned, performed.held_back)
        if action is not None:
            _perform_one(ports, cluster, action, why, until, performed)
    return performed


def _without_held_back(action: Action, held_back: set[str]) -> Action | None:
    if not held_back or not isinstance(action, _CONDITIONAL):
        return action
    remaining = tuple(instance for instance in instances(action) if instance not in held_back)
    if not remaining:
        return None
    return replace(action, instances=remaining) if isinstance(action, Terminate | TagElastic | StopBase) else action


def _perform_one(
    ports: Ports, cluster: str, action: Action, why: str, until: float | None, performed: Performed
) -> None:
    kind = type(action).__name__
    fields = {"cluster": cluster, "action": repr(action)}
    try:
        effect = _execute(ports, cluster, action, why, until)
    except (Refused, Disputed) as error:
        log.error("action refused", extra={**fields, "problem": str(error)})
        performed.refused.append(ActionRefused(kind=kind, detail=str(error)))
        if isinstance(action, StartInstances | SuspendReplacement):
            performed.held_back.update(action.instances)
        for instance in instances(action):
            performed.remember(instance, refusal(action, str(error), ports.clock()))
        return
    except ControllerError as error:
        performed.failures.append(f"{kind}: {error}")
        performed.held_back.update(instances(action) if isinstance(action, _CONDITIONS) else ())
        return
    if isinstance(action, StartInstances):
        performed.held_back.update(set(action.instances) - set(effect.instances))
    for instance, problem in effect.refused.items():
        log.error(
            "action refused", extra={"cluster": cluster, "action": kind, "instance": instance, "problem": problem}
        )
        performed.refused.append(ActionRefused(kind=kind, instance=instance, detail=problem))
        performed.remember(instance, refusal(action, problem, ports.clock()))
    for instance in effect.instances:
        performed.remember(instance, effect.acks)
    performed.trail += effect.entries
    performed.done.append(action)
    log.info("done", extra=fields)


def _execute(ports: Ports, cluster: str, action: Action, why: str, until: float | None) -> _Effect:
    """Carry out one action. Raises the errors of the ports."""
    match action:
        case PublishTarget():
            return _publish_target(ports, cluster, action)
        case SetDesiredCapacity():
            ports.groups.set_desired(action.group, action.desired)
            entry = CapacitySet(group=action.group, value=action.desired, why=action.why, detail=action.detail)
            return _Effect(entries=(entry,))
        case HoldLaunches():
            ports.groups.suspend_launches(action.group)
            return _Effect(entries=(ActionDone(kind="HoldLaunches", value=action.group, why=action.why),))
        case ReleaseLaunches():
            ports.groups.resume_launches(action.group)
            return _Effect(entries=(ActionDone(kind="ReleaseLaunches", value=action.group, why=action.why),))
        case StampOwner():
            return _effect(ports, action, why, ports.instances.tag(action.instances, OWNER_TAG, action.cluster))
        case SetStatusTag():
            began = (
                ports.clock()
            )  # acknowledge with the time before the call: after a hang, the newer write of another run counts
            tagged = ports.instances.tag(action.instances, STATUS_TAG, action.status, until)
            tagged = replace(tagged, missing=frozenset()) if action.gone else tagged
            return _effect(ports, action, why, tagged, began)
        case Protect():
            ports.groups.protect(action.instances, action.group)
        case CompleteLifecycle():
            if not ports.groups.complete(action.instance, action.group, action.hook, action.token, action.result):
                return _overdue_effect(ports, action)
        case HeartbeatLifecycle():
            if not ports.groups.heartbeat(action.instance, action.group, action.hook, action.token):
                return _overdue_effect(ports, action)
        case TerminateInGroup():
            if not ports.groups.terminate(action.instance, action.group, decrement=action.decrement):
                # The instance left the group: the next reading of groups shows whether it ended or was detached.
                return _Effect()
        case Terminate():
            return _effect(ports, action, why, ports.instances.terminate(action.instances))
        case StopBase():
            return _effect(ports, action, why, ports.instances.stop(action.instances))
        case SuspendReplacement():
            ports.groups.suspend_replacement(action.group)
        case ResumeReplacement():
            ports.groups.resume_replacement(action.group)
        case StartInstances():
            return _effect(ports, action, why, ports.instances.start(action.instances))
        case StopInstances():
            return _effect(ports, action, why, ports.instances.stop(action.instances))
        case TagElastic():
            return _effect(ports, action, why, ports.instances.tag(action.instances, action.key, ""))
        case UntagElastic():
            return _effect(ports, action, why, ports.instances.untag(action.instances, action.key))
        case _:
            assert_never(action)
    return _effect(ports, action, why)


def _publish_target(ports: Ports, cluster: str, action: PublishTarget) -> _Effect:
    try:
        membership = publish(ports, cluster, action.membership.revision)
    except Refused as error:  # publishing is repeated until the target is readable
        raise ControllerError(str(error)) from error
    if membership is None:
        return _Effect()
    entry = TargetPublished(revision=membership.revision, members=" ".join(membership.members))
    return _Effect(entries=(entry,))


def _effect(ports: Ports, action: Action, why: str, batch: Batch = ALL_DONE, at: float | None = None) -> _Effect:
    unaffected = batch.missing | set(batch.refused)
    affected = tuple(instance for instance in instances(action) if instance not in unaffected)
    value: str = action.status if isinstance(action, SetStatusTag) else ""
    value = action.result if isinstance(action, CompleteLifecycle) else value
    kind = type(action).__name__
    entries = tuple(ActionDone(kind=kind, instance=instance, value=value, why=why) for instance in affected)
    return _Effect(affected, acknowledgement(action, ports.clock() if at is None else at), entries, batch.refused)


def _overdue_effect(ports: Ports, action: CompleteLifecycle | HeartbeatLifecycle) -> _Effect:
    entry = ActionDone(kind=type(action).__name__, instance=action.instance, value="stale")
    return _Effect((action.instance,), stale_answer(action, ports.clock()), (entry,))
