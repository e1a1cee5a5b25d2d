"""Carries out the controller's planned actions one after the other, and reports the effects of the actions. This module
decides nothing itself.

This module carries out all actions of the controller: actions that `converge` decided, actions after failed launches,
and actions for the pool of reserved capacity.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import assert_never

from dyntrain.controller.contract.errors import ControllerError, DisputedTarget, Refused
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
    acks_of_effect,
    acks_of_refusal,
    acks_of_stale_action,
    instances,
)
from dyntrain.controller.core.history.trail import ActionDone, ActionRefused, CapacitySet, Entry, TargetPublished
from dyntrain.controller.core.records.acks import NO_ACKS, Acks
from dyntrain.controller.loops.ports import ALL_DONE, Batch, Ports
from dyntrain.controller.loops.publish import publish

log = logging.getLogger("dyntrain.execute")

# effects that an instance needs before the other actions
_PREREQUISITE_ACTIONS = (StampOwner, SetStatusTag, StartInstances, SuspendReplacement)
_DEPENDENT_ACTIONS = (Terminate, TerminateInGroup, CompleteLifecycle, TagElastic, StopBase)


@dataclass
class ActionResults:
    """The results of carrying out a list of actions. Failed actions (`failures`) may succeed in a retry. Refused
    actions (`refused`) cannot succeed in a retry.
    """

    acks: dict[str, Acks] = field(default_factory=dict)  # acknowledgements to store, by instance
    trail: list[Entry] = field(default_factory=list)  # entries for the audit trail
    failures: list[str] = field(default_factory=list)  # messages of failed actions
    refused: list[ActionRefused] = field(default_factory=list)  # trail entries of refused actions
    done: list[Action] = field(default_factory=list)  # actions that took effect
    blocked_instances: set[str] = field(default_factory=set)  # instances that get no dependent actions

    def remember_acks(self, instance: str, acks: Acks) -> None:
        if acks != NO_ACKS:
            self.acks[instance] = self.acks.get(instance, NO_ACKS).join(acks)


@dataclass(frozen=True)
class _Effect:
    """The result of one action. The action took effect on `instances`, and the acknowledgements `acks` are stored for
    each instance in `instances`.
    """

    instances: tuple[str, ...] = ()  # the instances on which the action took effect
    acks: Acks = NO_ACKS  # acknowledgements to store for each instance
    entries: tuple[Entry, ...] = ()  # entries for the audit trail
    refused: Mapping[str, str] = field(default_factory=dict)  # the reason of each refusal, by instance


def perform(
    ports: Ports, cluster: str, actions: Sequence[Action], why: str = "", until: float | None = None
) -> ActionResults:
    """Carry out the actions, one after the other. A failed action stops only the actions that depend on the failed
    action. For example, an instance whose status tag was not written is not ended. `why` is the reason to write into
    the audit trail. After the time `until`, no status tag is written.
    """
    results = ActionResults()
    for planned_action in actions:
        action = _drop_blocked_instances(planned_action, results.blocked_instances)
        if action is not None:
            _perform_action(ports, cluster, action, why, until, results)
    return results


def _drop_blocked_instances(action: Action, blocked_instances: set[str]) -> Action | None:
    if not blocked_instances or not isinstance(action, _DEPENDENT_ACTIONS):
        return action
    remaining_instances = tuple(instance for instance in instances(action) if instance not in blocked_instances)
    if not remaining_instances:
        return None
    return (
        replace(action, instances=remaining_instances)
        if isinstance(action, Terminate | TagElastic | StopBase)
        else action
    )


def _perform_action(
    ports: Ports, cluster: str, action: Action, why: str, until: float | None, results: ActionResults
) -> None:
    action_kind = type(action).__name__
    log_fields = {"cluster": cluster, "action": repr(action)}
    try:
        effect = _execute(ports, cluster, action, why, until)
    except (Refused, DisputedTarget) as error:
        log.error("action refused", extra={**log_fields, "problem": str(error)})
        results.refused.append(ActionRefused(kind=action_kind, detail=str(error)))
        if isinstance(action, StartInstances | SuspendReplacement):
            results.blocked_instances.update(action.instances)
        for instance_id in instances(action):
            results.remember_acks(instance_id, acks_of_refusal(action, str(error), ports.clock()))
        return
    except ControllerError as error:
        results.failures.append(f"{action_kind}: {error}")
        results.blocked_instances.update(instances(action) if isinstance(action, _PREREQUISITE_ACTIONS) else ())
        return
    if isinstance(action, StartInstances):
        results.blocked_instances.update(set(action.instances) - set(effect.instances))
    for instance_id, problem in effect.refused.items():
        log.error(
            "action refused",
            extra={"cluster": cluster, "action": action_kind, "instance": instance_id, "problem": problem},
        )
        results.refused.append(ActionRefused(kind=action_kind, instance=instance_id, detail=problem))
        results.remember_acks(instance_id, acks_of_refusal(action, problem, ports.clock()))
    for instance_id in effect.instances:
        results.remember_acks(instance_id, effect.acks)
    results.trail += effect.entries
    results.done.append(action)
    log.info("done", extra=log_fields)


def _execute(ports: Ports, cluster: str, action: Action, why: str, until: float | None) -> _Effect:
    """Carry out one action. Raises the errors that the ports (the interfaces to AWS) raise."""
    match action:
        case PublishTarget():
            return _publish_target(ports, cluster, action)
        case SetDesiredCapacity():
            ports.groups.set_desired(action.group, action.desired)
            trail_entry = CapacitySet(group=action.group, value=action.desired, why=action.why, detail=action.detail)
            return _Effect(entries=(trail_entry,))
        case HoldLaunches():
            ports.groups.suspend_launches(action.group)
            return _Effect(entries=(ActionDone(kind="HoldLaunches", value=action.group, why=action.why),))
        case ReleaseLaunches():
            ports.groups.resume_launches(action.group)
            return _Effect(entries=(ActionDone(kind="ReleaseLaunches", value=action.group, why=action.why),))
        case StampOwner():
            return _make_effect(ports, action, why, ports.instances.tag(action.instances, OWNER_TAG, action.cluster))
        case SetStatusTag():
            call_started = (
                ports.clock()
            )  # acknowledge with the time before the call: after a hang, the newer write of another run counts
            tag_result = ports.instances.tag(action.instances, STATUS_TAG, action.status, until)
            tag_result = replace(tag_result, missing=frozenset()) if action.gone else tag_result
            return _make_effect(ports, action, why, tag_result, call_started)
        case Protect():
            ports.groups.protect(action.instances, action.group)
        case CompleteLifecycle():
            if not ports.groups.complete_action(
                action.instance, action.group, action.hook, action.token, action.result
            ):
                return _make_stale_effect(ports, action)
        case HeartbeatLifecycle():
            if not ports.groups.heartbeat(action.instance, action.group, action.hook, action.token):
                return _make_stale_effect(ports, action)
        case TerminateInGroup():
            if not ports.groups.terminate(action.instance, action.group, decrement=action.decrement):
                # The instance left the group: the next reading of groups shows whether it ended or was detached.
                return _Effect()
        case Terminate():
            return _make_effect(ports, action, why, ports.instances.terminate(action.instances))
        case StopBase():
            return _make_effect(ports, action, why, ports.instances.stop(action.instances))
        case SuspendReplacement():
            ports.groups.suspend_replacement(action.group)
        case ResumeReplacement():
            ports.groups.resume_replacement(action.group)
        case StartInstances():
            return _make_effect(ports, action, why, ports.instances.start(action.instances))
        case StopInstances():
            return _make_effect(ports, action, why, ports.instances.stop(action.instances))
        case TagElastic():
            return _make_effect(ports, action, why, ports.instances.tag(action.instances, action.key, ""))
        case UntagElastic():
            return _make_effect(ports, action, why, ports.instances.untag(action.instances, action.key))
        case _:
            assert_never(action)
    return _make_effect(ports, action, why)


def _publish_target(ports: Ports, cluster: str, action: PublishTarget) -> _Effect:
    try:
        published_membership = publish(ports, cluster, action.membership.revision)
    except Refused as error:  # publishing is repeated until the target is readable
        raise ControllerError(str(error)) from error
    if published_membership is None:
        return _Effect()
    trail_entry = TargetPublished(
        revision=published_membership.revision, members=" ".join(published_membership.members)
    )
    return _Effect(entries=(trail_entry,))


def _make_effect(ports: Ports, action: Action, why: str, batch: Batch = ALL_DONE, at: float | None = None) -> _Effect:
    unaffected_instances = batch.missing | set(batch.refused)
    affected_instances = tuple(instance for instance in instances(action) if instance not in unaffected_instances)
    entry_value: str = action.status if isinstance(action, SetStatusTag) else ""
    entry_value = action.result if isinstance(action, CompleteLifecycle) else entry_value
    action_kind = type(action).__name__
    trail_entries = tuple(
        ActionDone(kind=action_kind, instance=instance, value=entry_value, why=why) for instance in affected_instances
    )
    return _Effect(
        affected_instances, acks_of_effect(action, ports.clock() if at is None else at), trail_entries, batch.refused
    )


def _make_stale_effect(ports: Ports, action: CompleteLifecycle | HeartbeatLifecycle) -> _Effect:
    trail_entry = ActionDone(kind=type(action).__name__, instance=action.instance, value="stale")
    return _Effect((action.instance,), acks_of_stale_action(action, ports.clock()), (trail_entry,))
