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

    instance: str  # instance id
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
    held_ids = claim.held if claim is not None else ()
    releasing_ids = claim.releasing if claim is not None else ()
    available_instances = [
        candidate
        for candidate in listed
        if candidate.allowed and (_can_start(candidate, held_ids) or _can_reclaim(candidate, releasing_ids))
    ]
    return kept_count(claim) + len(available_instances)


def plan_instances(listed: Sequence[ListedInstance], claim: Claim | None, target: int) -> InstancePlan:
    """Plan the steps for the pool's instances. The pool changes no instance that somebody else started. The pool stops
    an instance only after the job has released the instance. If the policy no longer lists or allows a held instance,
    the pool releases the instance.
    """
    by_id = {candidate.instance: candidate for candidate in listed}
    old_held_ids, old_releasing = (claim.held, claim.releasing) if claim is not None else ((), ())
    held_ids = [
        instance
        for instance in old_held_ids
        if instance in by_id and not _is_released(by_id[instance], instance in old_releasing)
    ]
    releasing_ids = [instance for instance in held_ids if instance in old_releasing or not by_id[instance].allowed]
    kept_ids = [instance for instance in held_ids if instance not in releasing_ids]
    for instance in held_ids:
        may_be_reclaimed = (
            instance in old_releasing and by_id[instance].allowed and _can_reclaim(by_id[instance], old_releasing)
        )
        if may_be_reclaimed and len(kept_ids) < target:
            releasing_ids.remove(instance)
            kept_ids.append(instance)
    for candidate in listed:
        if len(kept_ids) < target and candidate.allowed and _can_start(candidate, held_ids):
            held_ids.append(candidate.instance)
            kept_ids.append(candidate.instance)
    while len(kept_ids) > max(target, 0):
        releasing_ids.append(kept_ids.pop())
    return InstancePlan(
        held=tuple(held_ids),
        releasing=tuple(releasing_ids),
        start=tuple(instance for instance in kept_ids if by_id[instance].state == "stopped"),
        tag=tuple(instance for instance in kept_ids if not by_id[instance].tagged),
        untag=tuple(instance for instance in releasing_ids if by_id[instance].tagged),
        stop=tuple(
            instance
            for instance in releasing_ids
            if not by_id[instance].tagged
            and by_id[instance].left_job
            and by_id[instance].state in ("pending", "running")
        ),
    )


def _can_start(candidate: ListedInstance, held: Sequence[str]) -> bool:
    return candidate.state == "stopped" and candidate.instance not in held


def _can_reclaim(candidate: ListedInstance, releasing: Sequence[str]) -> bool:
    return candidate.instance in releasing and candidate.state in ("pending", "running")


def _is_released(candidate: ListedInstance, releasing: bool) -> bool:
    """Whether the pool no longer holds the instance, because the instance was terminated, or was stopped after its
    release.
    """
    return candidate.state in ("shutting-down", "terminated") or (
        releasing and candidate.state == "stopped" and not candidate.tagged
    )
