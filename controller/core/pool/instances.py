"""Pools without an Auto Scaling group: which listed instances to start and tag, or untag and stop, for a given pool
size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from dyntrain.controller.core.pool.inputs import Claim


@dataclass(frozen=True)
class Listed:
    """A listed instance. `allowed`: it carries the pool's tag for this cluster and is of the pool's kind. `left`: the
    job no longer has it, nor will.
    """

    instance: str
    state: Literal["pending", "running", "stopping", "stopped", "shutting-down", "terminated"]
    tagged: bool
    allowed: bool
    left: bool = True


@dataclass(frozen=True)
class InstancePlan:
    """The steps for a pool. `held` and `releasing` are stored before the effects; each effect is repeated until it
    shows.
    """

    held: tuple[str, ...]
    releasing: tuple[str, ...]
    start: tuple[str, ...] = ()
    tag: tuple[str, ...] = ()
    untag: tuple[str, ...] = ()
    stop: tuple[str, ...] = ()


def wanted_now(claim: Claim | None) -> int:
    """How many of the listed instances the pool has and keeps."""
    return len([one for one in claim.held if one not in claim.releasing]) if claim is not None else 0


def at_most(listed: Sequence[Listed], claim: Claim | None) -> int:
    """The largest possible size: instances that it keeps, stopped ones, and released ones that still run."""
    held = claim.held if claim is not None else ()
    releasing = claim.releasing if claim is not None else ()
    free = [one for one in listed if one.allowed and (_startable(one, held) or _reclaimable(one, releasing))]
    return wanted_now(claim) + len(free)


def plan_instances(listed: Sequence[Listed], claim: Claim | None, target: int) -> InstancePlan:
    """Plan the steps. An instance that somebody else started is never touched: the pool stops only what it holds, and
    only after the job has released it. One that is held but no longer listed or allowed is released as well.
    """
    by_id = {one.instance: one for one in listed}
    old_held, old_releasing = (claim.held, claim.releasing) if claim is not None else ((), ())
    held = [one for one in old_held if one in by_id and not _over(by_id[one], one in old_releasing)]
    releasing = [one for one in held if one in old_releasing or not by_id[one].allowed]
    keeps = [one for one in held if one not in releasing]
    for one in (
        *(
            name
            for name in held
            if name in old_releasing and by_id[name].allowed and _reclaimable(by_id[name], old_releasing)
        ),
    ):
        if len(keeps) < target:
            releasing.remove(one)
            keeps.append(one)
    for candidate in listed:
        if len(keeps) < target and candidate.allowed and _startable(candidate, held):
            held.append(candidate.instance)
            keeps.append(candidate.instance)
    while len(keeps) > max(target, 0):
        releasing.append(keeps.pop())
    return InstancePlan(
        held=tuple(held),
        releasing=tuple(releasing),
        start=tuple(one for one in keeps if by_id[one].state == "stopped"),
        tag=tuple(one for one in keeps if not by_id[one].tagged),
        untag=tuple(one for one in releasing if by_id[one].tagged),
        stop=tuple(
            one
            for one in releasing
            if not by_id[one].tagged and by_id[one].left and by_id[one].state in ("pending", "running")
        ),
    )


def _startable(one: Listed, held: Sequence[str]) -> bool:
    return one.state == "stopped" and one.instance not in held


def _reclaimable(one: Listed, releasing: Sequence[str]) -> bool:
    return one.instance in releasing and one.state in ("pending", "running")


def _over(one: Listed, releasing: bool) -> bool:
    """Whether the instance is given back, or gone."""
    return one.state in ("shutting-down", "terminated") or (releasing and one.state == "stopped" and not one.tagged)
