"""Whom the job report names: the controller goes by it when it lets an instance go. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from dyntrain.controller.contract.reports import JobMember
from dyntrain.training.protocol.messages import Progress
from dyntrain.training.session.generation.generation import Generation


def report_members(
    generation: Generation | None,
    active: Collection[str],
    leaving: Collection[str],
    progress: Mapping[str, Progress],
) -> tuple[JobMember, ...]:
    """All that train, are being formed, or have not left yet."""
    members = [
        JobMember(
            instance_id=m.instance_id,
            rank=rank,
            active=m.instance_id in active,
            joined_epoch=m.joined_epoch,
            joined_at=m.joined_at,
            step_seconds=progress[m.instance_id].own_seconds if m.instance_id in progress else None,
        )
        for rank, m in enumerate(generation.members if generation else ())
    ]
    known = {member.instance_id for member in members}
    for instance in sorted(set(leaving) - known):
        left = {"active": True, "leaving": True, "joined_epoch": 0, "joined_at": 0.0}
        members.append(JobMember.model_validate({"instance_id": instance, "rank": len(members), **left}))
    return tuple(members)
