"""Pools without an Auto Scaling group: decide which of the instances that the policy lists are to be started and
tagged, or untagged and stopped, so that the pool gets its target size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from dyntrain.controller.core.pool.inputs import Claim


@dataclass(frozen=True)
class ListedInstance:
    """An instance that the policy lists. `allowed` says that the instance carries the pool's tag for this cluster and
    has the properties of the pool's instances. `left_job` says that the job does not use the instance and will not use
    the instance later.
    """

    instance: str
    state: Literal["pending", "running", "stopping", "stopped", "shutting-down", "terminated"]
    tagged: bool  # carries the elastic tag
    allowed: bool  # the pool may use the instance
    left_job: bool = True  # the job does not use the instance


@dataclass(frozen=True)
class InstancePlan:
    """The steps that bring a pool of listed instances to its target size. The controller stores `held` and `releasing`
    before the steps, and repeats each step until the effect of the step is visible.
    """

    held: tuple[str, ...]  # ids of instances that the pool started
    releasing: tuple[str, ...]  # held instances that are being released
    start: tuple[str, ...] = ()  # instances to start
    tag: tuple[str, ...] = ()  # instances that get the elastic tag
    untag: tuple[str, ...] = ()  # instances that lose the elastic tag
    stop: tuple[str, ...] = ()  # instances to stop


def kept_count(claim: Claim | None) -> int:
    """The number of instances that the pool holds, without the instances that the pool is releasing."""
    return len([instance for instance in claim.held if instance not in claim.releasing]) if claim is not None else 0


def largest_size(listed: Sequence[ListedInstance], claim: Claim | None) -> int:
    """The largest size that the pool can have. The size includes the instances that the pool holds, even instances that
    are being released but still run. The size also includes the stopped instances that the pool may start.
    """
    held = claim.held if claim is not None else ()
    releasing = claim.releasing if claim is not None else ()
    available_instances = [
        candidate
        for candidate in listed
        if candidate.allowed and (_startable(candidate, held) or _reclaimable(candidate, releasing))
    ]
    return kept_count(claim) + len(available_instances)


def plan_instances(listed: Sequence[ListedInstance], claim: Claim | None, target: int) -> InstancePlan:
    """Plan the steps for the pool's instances. The pool changes no instance that somebody else started. The pool stops
    an instance only after the job has released the instance. If the policy no longer lists or allows a held instance,
    the pool releases the instance.
    """
    by_id = {candidate.instance: candidate for candidate in listed}
    old_held, old_releasing = (claim.held, claim.releasing) if claim is not None else ((), ())
    new_held = [
        instance
        for instance in old_held
        if instance in by_id and not _is_released(by_id[instance], instance in old_releasing)
    ]
    new_releasing = [instance for instance in new_held if instance in old_releasing or not by_id[instance].allowed]
    kept_instances = [instance for instance in new_held if instance not in new_releasing]
    for instance in new_held:
        may_be_reclaimed = (
            instance in old_releasing and by_id[instance].allowed and _reclaimable(by_id[instance], old_releasing)
        )
        if may_be_reclaimed and len(kept_instances) < target:
            new_releasing.remove(instance)
            kept_instances.append(instance)
    for candidate in listed:
        if len(kept_instances) < target and candidate.allowed and _startable(candidate, new_held):
            new_held.append(candidate.instance)
            kept_instances.append(candidate.instance)
    while len(kept_instances) > max(target, 0):
        new_releasing.append(kept_instances.pop())
    return InstancePlan(
        held=tuple(new_held),
        releasing=tuple(new_releasing),
        start=tuple(instance for instance in kept_instances if by_id[instance].state == "stopped"),
        tag=tuple(instance for instance in kept_instances if not by_id[instance].tagged),
        untag=tuple(instance for instance in new_releasing if by_id[instance].tagged),
        stop=tuple(
            instance
            for instance in new_releasing
            if not by_id[instance].tagged
            and by_id[instance].left_job
            and by_id[instance].state in ("pending", "running")
        ),
    )


def _startable(candidate: ListedInstance, held: Sequence[str]) -> bool:
    return candidate.state == "stopped" and candidate.instance not in held


def _reclaimable(candidate: ListedInstance, releasing: Sequence[str]) -> bool:
    return candidate.instance in releasing and candidate.state in ("pending", "running")


def _is_released(candidate: ListedInstance, releasing: bool) -> bool:
    """Whether the pool no longer holds the instance, because the instance was terminated, or was stopped after its
    release.
    """
    return candidate.state in ("shutting-down", "terminated") or (
        releasing and candidate.state == "stopped" and not candidate.tagged
    )
