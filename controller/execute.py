"""Does planned actions one after the other, and says what took effect. Decides nothing."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import assert_never

from controller.actions import (
    Action,
    CompleteLifecycle,
    HeartbeatLifecycle,
    NodeAction,
    Protect,
    PublishTarget,
    SetDesiredCapacity,
    SetStatusTag,
    StampOwner,
    Terminate,
    TerminateInGroup,
    acknowledgement,
    instances,
)
from controller.contract import OWNER_TAG, STATUS_TAG
from controller.errors import ControllerError, Refused
from controller.facts import Ack
from controller.ports import Ports
from controller.publish import publish

log = logging.getLogger("dyntrain.execute")

STALE = "stale"  # the lifecycle action was over already
REFUSED = "refused"


@dataclass
class Performed:
    """`acks` by instance and key; `trail` for the audit; `failures` are worth a retry."""

    acks: dict[str, dict[str, Ack]] = field(default_factory=dict)
    trail: list[dict[str, str]] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    held_back: set[str] = field(default_factory=set)


def perform(ports: Ports, cluster: str, actions: Sequence[Action]) -> Performed:
    """One failing action does not keep the others from being done, except that nothing is ended whose tags could not be written first."""
    done = Performed()
    for action in actions:
        if isinstance(action, PublishTarget):
            _publish(ports, cluster, action, done)
            continue
        if isinstance(action, Terminate | TerminateInGroup | CompleteLifecycle) and done.held_back:
            remaining = tuple(instance for instance in instances(action) if instance not in done.held_back)
            if not remaining:
                continue
            action = replace(action, instances=remaining) if isinstance(action, Terminate) else action
        if not isinstance(action, SetDesiredCapacity):  # done by `scaling`, which remembers it in the group's facts
            _one(ports, cluster, action, done)
    return done


def _publish(ports: Ports, cluster: str, action: PublishTarget, done: Performed) -> None:
    try:
        membership = publish(ports, cluster, action.membership.revision)
    except ControllerError as error:
        done.failures.append(f"PublishTarget: {error}")
        return
    if membership is None:
        return
    done.trail.append({"kind": "PublishTarget", "revision": str(membership.revision), "members": " ".join(membership.members)})
    log.info("target published", extra={"cluster": cluster, "revision": membership.revision, "members": len(membership.members)})


def _one(ports: Ports, cluster: str, action: NodeAction, done: Performed) -> None:
    kind = type(action).__name__
    try:
        effective, key, value = _execute(ports, action)
    except Refused as error:
        log.error("action refused", extra={"cluster": cluster, "action": repr(action), "problem": str(error)})
        if isinstance(action, SetStatusTag) and action.gone:  # the tag that IAM goes by is gone too
            for instance in action.instances:
                done.acks.setdefault(instance, {})[acknowledgement(action)[0]] = Ack(at=ports.clock(), value=action.status)
        if isinstance(action, HeartbeatLifecycle):  # refused once is refused for ever: the hook's own timeout decides
            done.acks.setdefault(action.instance, {})[f"complete:{action.key}"] = Ack(at=ports.clock(), value=REFUSED)
        if isinstance(action, TerminateInGroup):
            done.acks.setdefault(action.instance, {})["refused"] = Ack(at=ports.clock(), value=str(error))
        return
    except ControllerError as error:
        done.failures.append(f"{kind}: {error}")
        done.held_back.update(instances(action) if isinstance(action, StampOwner | SetStatusTag) else ())
        return
    for instance in effective:
        done.acks.setdefault(instance, {})[key] = Ack(at=ports.clock(), value=value)
        done.trail.append({"kind": kind, "instance": instance, "value": value})


def _execute(ports: Ports, action: NodeAction) -> tuple[tuple[str, ...], str, str]:
    """Returns the instances for which the action took effect, and the key and value to remember it by."""
    key, value = acknowledgement(action)
    match action:
        case StampOwner():
            return _without(action.instances, ports.instances.tag(action.instances, OWNER_TAG, action.cluster)), key, value
        case SetStatusTag():
            missing = ports.instances.tag(action.instances, STATUS_TAG, action.status)
            return action.instances if action.gone else _without(action.instances, missing), key, value
        case Protect():
            ports.groups.protect(action.instances, action.group)
        case CompleteLifecycle():
            if not ports.groups.complete(action.instance, action.group, action.hook, action.token, action.result):
                value = STALE
        case HeartbeatLifecycle():
            if not ports.groups.heartbeat(action.instance, action.group, action.hook, action.token):
                key, value = f"complete:{action.key}", STALE  # there is nothing left to keep alive
        case TerminateInGroup():
            ports.groups.terminate(action.instance, action.group)
        case Terminate():
            return _without(action.instances, ports.instances.terminate(action.instances)), key, value
        case _:
            assert_never(action)
    return instances(action), key, value


def _without(all_of: tuple[str, ...], missing: Iterable[str]) -> tuple[str, ...]:
    absent = set(missing)
    return tuple(instance for instance in all_of if instance not in absent)
