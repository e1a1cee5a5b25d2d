"""Pools without an Auto Scaling group: which listed instances to start and tag, or to untag and stop, for a pool's
target size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from dyntrain.controller.core.pool.inputs import Claim


@dataclass(frozen=True)
class ListedInstance:
    """A listed instance. `allowed`: the instance carries the pool's tag for this cluster and is of the pool's kind.
    `left_job`: the job does not have the instance and will not get it.
    """

    instance: str
    state: Literal["pending", "running", "stopping", "stopped", "shutting-down", "terminated"]
    tagged: bool
    allowed: bool
    left_job: bool = True


@dataclass(frozen=True)
class InstancePlan:
    """The steps for a pool of listed instances. `held` and `releasing` are stored before the steps. Each step is
    repeated until its effect is visible.
    """

    held: tuple[str, ...]
    releasing: tuple[str, ...]
    start: tuple[str, ...] = ()
    tag: tuple[str, ...] = ()
    untag: tuple[str, ...] = ()
    stop: tuple[str, ...] = ()


def kept_count(claim: Claim | None) -> int:
    """The number of listed instances that the pool holds and keeps."""
    return len([instance for instance in claim.held if instance not in claim.releasing]) if claim is not None else 0


def largest_size(listed: Sequence[ListedInstance], claim: Claim | None) -> int:
    """The largest possible size of the pool: kept instances, stopped instances, and running instances that are being
    released.
    """
    held = claim.held if claim is not None else ()
    releasing = claim.releasing if claim is not None else ()
    available = [
        candidate
        for candidate in listed
        if candidate.allowed and (_startable(candidate, held) or _reclaimable(candidate, releasing))
    ]
    return kept_count(claim) + len(available)


def plan_instances(listed: Sequence[ListedInstance], claim: Claim | None, target: int) -> InstancePlan:
    """Plan the steps. The pool never touches an instance that somebody else started. The pool stops only instances that
    it holds, after the job has released them. A held instance that is not listed or allowed any more is released.
    """
    by_id = {candidate.instance: candidate for candidate in listed}
    old_held, old_releasing = (claim.held, claim.releasing) if claim is not None else ((), ())
    held = [name for name in old_held if name in by_id and not _is_released(by_id[name], name in old_releasing)]
    releasing = [name for name in held if name in old_releasing or not by_id[name].allowed]
    kept = [name for name in held if name not in releasing]
    for name in held:
        reclaimed = name in old_releasing and by_id[name].allowed and _reclaimable(by_id[name], old_releasing)
        if reclaimed and len(kept) < target:
            releasing.remove(name)
            kept.append(name)
    for candidate in listed:
        if len(kept) < target and candidate.allowed and _startable(candidate, held):
            held.append(candidate.instance)
            kept.append(candidate.instance)
    while len(kept) > max(target, 0):
        releasing.append(kept.pop())
    return InstancePlan(
        held=tuple(held),
        releasing=tuple(releasing),
        start=tuple(name for name in kept if by_id[name].state == "stopped"),
        tag=tuple(name for name in kept if not by_id[name].tagged),
        untag=tuple(name for name in releasing if by_id[name].tagged),
        stop=tuple(
            name
            for name in releasing
            if not by_id[name].tagged and by_id[name].left_job and by_id[name].state in ("pending", "running")
        ),
    )


def _startable(candidate: ListedInstance, held: Sequence[str]) -> bool:
    return candidate.state == "stopped" and candidate.instance not in held


def _reclaimable(candidate: ListedInstance, releasing: Sequence[str]) -> bool:
    return candidate.instance in releasing and candidate.state in ("pending", "running")


def _is_released(candidate: ListedInstance, releasing: bool) -> bool:
    """Whether the instance was given back or terminated."""
    return candidate.state in ("shutting-down", "terminated") or (
        releasing and candidate.state == "stopped" and not candidate.tagged
    )
