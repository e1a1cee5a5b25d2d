"""Brings AWS in line with a pool's decision: desired capacity, or starting and tagging, untagging and stopping. Terminates nothing."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import assert_never

from controller.actions import SetDesiredCapacity
from controller.contract import ClusterPolicy, elastic_tag
from controller.errors import ControllerError, Refused
from controller.pool_actions import StartInstances, StopInstances, TagElastic, UntagElastic
from controller.pool_reading import group_of
from controller.reserved import PoolDecision
from controller.reserved_instances import InstancePlan
from controller.reserved_ports import PoolPorts

log = logging.getLogger("dyntrain.pools")

PoolAction = SetDesiredCapacity | StartInstances | TagElastic | UntagElastic | StopInstances


@dataclass
class Acted:
    """`failures` are worth a retry; what AWS refused is in the log and the audit trail, and is asked for again at the next run."""

    cluster: str
    changed: bool = False
    failures: list[str] = field(default_factory=list)
    trail: list[dict[str, str]] = field(default_factory=list)
    not_started: set[str] = field(default_factory=set)


def act(world: PoolPorts, policy: ClusterPolicy, decision: PoolDecision, chosen: InstancePlan | None, suffix: str) -> Acted:
    """One failing action does not keep the others from being done. Never raises for what AWS or the table answers."""
    done = Acted(policy.cluster)
    for action in _actions(policy, decision, chosen, suffix):
        if isinstance(action, TagElastic) and done.not_started:  # a stopped machine with the tag would look like one that broke down
            action = replace(action, instances=tuple(one for one in action.instances if one not in done.not_started))
        if isinstance(action, SetDesiredCapacity) or action.instances:
            _one(world, action, done)
    if done.trail:
        try:
            world.ports.clusters.record(policy.cluster, world.ports.clock(), done.trail)
        except ControllerError as error:
            log.error("not recorded", extra={"cluster": policy.cluster, "problem": str(error)})
    return done


def _actions(policy: ClusterPolicy, decision: PoolDecision, chosen: InstancePlan | None, suffix: str) -> list[PoolAction]:
    """Untagging before stopping, starting before tagging."""
    actions: list[PoolAction] = []
    group = group_of(policy)
    if group is not None and decision.acts:
        actions.append(SetDesiredCapacity(group, decision.target, f"POOL_{decision.reason}"))
    if chosen is not None:
        key = elastic_tag(policy.cluster, suffix)
        actions += [UntagElastic(chosen.untag, key)] if chosen.untag else []
        actions += [StopInstances(chosen.stop)] if chosen.stop else []
        actions += [StartInstances(chosen.start)] if chosen.start else []
        actions += [TagElastic(chosen.tag, key)] if chosen.tag else []
    return actions


def _one(world: PoolPorts, action: PoolAction, done: Acted) -> None:
    kind = type(action).__name__
    starting = set(action.instances) if isinstance(action, StartInstances) else set()
    done.not_started |= starting
    try:
        missing = _execute(world, action)
    except Refused as error:
        log.error("action refused", extra={"cluster": done.cluster, "action": repr(action), "problem": str(error)})
        done.trail.append({"kind": kind, "why": "REFUSED", "detail": str(error)})
        return
    except ControllerError as error:
        done.failures.append(f"{done.cluster}: {kind}: {error}")
        return
    done.changed = True
    done.not_started -= starting - set(missing)
    if isinstance(action, SetDesiredCapacity):
        done.trail.append({"kind": kind, "group": action.group, "value": str(action.desired), "why": action.why})
    else:
        done.trail += [{"kind": kind, "instance": one, "why": "POOL"} for one in action.instances if one not in missing]
    log.info("done", extra={"cluster": done.cluster, "action": repr(action)})


def _execute(world: PoolPorts, action: PoolAction) -> Sequence[str]:
    """Returns the instances that EC2 does not know."""
    match action:
        case SetDesiredCapacity():
            world.ports.groups.set_desired(action.group, action.desired)
            return ()
        case StartInstances():
            return world.reservations.start(action.instances)
        case TagElastic():
            return world.ports.instances.tag(action.instances, action.key, "")
        case UntagElastic():
            return world.reservations.untag(action.instances, action.key)
        case StopInstances():
            return world.reservations.stop(action.instances)
        case _:
            assert_never(action)
