"""Lists the members for the job report, from which the controller decides when it may terminate an instance. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from dyntrain.controller.contract.reports import JobMember
from dyntrain.training.protocol.messages import Progress
from dyntrain.training.protocol.slots import node_of, nodes_of
from dyntrain.training.session.generation.generation import Generation, Member


def report_members(
    generation: Generation | None,
    active: Collection[str],
    leaving: Collection[str],
    progress: Mapping[str, Progress],
) -> tuple[JobMember, ...]:
    """Return the nodes that train, form a generation, or have not left yet.

    A node with several processes has the rank of its first process, and the step time of its slowest process.
    """
    node_processes: dict[str, list[tuple[int, Member]]] = {}
    for rank, member in enumerate(generation.members if generation else ()):
        node_processes.setdefault(node_of(member.instance_id), []).append((rank, member))
    members = [_node_member(node, ranked_members, active, progress) for node, ranked_members in node_processes.items()]
    listed_instances = {member.instance_id for member in members}
    for instance_id in sorted(set(nodes_of(leaving)) - listed_instances):
        leaving_fields = {"active": True, "leaving": True, "joined_epoch": 0, "joined_at": 0.0}
        members.append(JobMember.model_validate({"instance_id": instance_id, "rank": len(members), **leaving_fields}))
    return tuple(members)


def _node_member(
    node: str, processes: Sequence[tuple[int, Member]], active: Collection[str], progress: Mapping[str, Progress]
) -> JobMember:
    rank, first_member = processes[0]
    names = [member.instance_id for _, member in processes]
    reported_seconds = [progress[name].own_seconds for name in names if name in progress]
    step_seconds = [value for value in reported_seconds if value is not None]
    return JobMember(
        instance_id=node,
        rank=rank,
        active=all(name in active for name in names),
        processes=len(names),
        joined_epoch=first_member.joined_epoch,
        joined_at=first_member.joined_at,
        step_seconds=max(step_seconds) if step_seconds else None,
    )
