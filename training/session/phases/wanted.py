"""Determines which nodes the target wants in the next generation, and which nodes may run ps-lite servers. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from dyntrain.controller.contract.messages import Target
from dyntrain.training import events
from dyntrain.training.session.generation.ps_group import ConnectedNode
from dyntrain.training.session.job.state import JobState
from dyntrain.training.session.orders import Announce, Order


def wanted_instances(job: JobState) -> Sequence[str] | None:
    """Return the instances that the controller's target wants as members, or None before the first target."""
    return None if job.target is None else (job.target.members or ())


def refuse_target(job: JobState, target: Target, now: float) -> list[Order]:
    """Announce that a target is refused, only once even if the same target is read repeatedly."""
    if target == job.refused:
        return []
    job.refused = target
    member_count = len(job.target.members or ()) if job.target is not None else 0
    reason = (
        f"revision {target.revision} with {target.count} members came after the same revision with {member_count}: two "
        "controllers write this target, or somebody changed it by hand; the first target stays in force"
    )
    return [Announce(events.TargetRefused(revision=target.revision, stage=target.stage, reason=reason, at=now))]


def next_wanted_instances(job: JobState) -> Sequence[str] | None:
    """Return the wanted instances.

    A base node remains wanted until its successor can replace the base node at a boundary.
    """
    wanted_names = wanted_instances(job)
    if wanted_names is None or job.target is None:
        return None
    replaced_nodes = _replaced_nodes(job)
    kept_nodes = {node: successor for node, successor in job.target.replacing.items() if node not in replaced_nodes}
    waiting_successors = {successor for successor in kept_nodes.values() if successor not in job.roster.members}
    return [
        *(instance_id for instance_id in wanted_names if instance_id not in waiting_successors),
        *(node for node in kept_nodes if node not in wanted_names),
    ]


def server_nodes(job: JobState, members: Collection[str] = ()) -> dict[str, ConnectedNode]:
    """Return the nodes on which the ps-lite processes of a generation with the given `members` may run.

    By default ps-lite runs only on base nodes, so that no server is lost when an elastic node leaves. If all members
    run servers, the loss of any machine means a lost server and a restart of all workers.
    """
    replaced_nodes, all_members_serve = _replaced_nodes(job), job.options.servers == "all"
    return {
        instance_id: node
        for instance_id, node in job.roster.nodes.items()
        if instance_id not in replaced_nodes and (node.hello.base or (all_members_serve and instance_id in members))
    }


def _replaced_nodes(job: JobState) -> set[str]:
    """Return the base nodes that will be replaced by their successors at the next formation.

    A base node is replaced when its successor can run a server, or when the base node does not train any more.
    """
    successors = job.target.replacing if job.target is not None else {}
    return {node for node, successor in successors.items() if not _is_kept(job, node) or _can_serve(job, successor)}


def _is_kept(job: JobState, instance: str) -> bool:
    """Whether the node stays a member at the next formation; a node that lacks one of its processes leaves."""
    members = job.roster.members
    return instance in members and instance in job.roster.ready_nodes(job.loop, besides=members)


def _can_serve(job: JobState, instance: str) -> bool:
    node = job.roster.nodes.get(instance)
    is_ready = instance in job.roster.members or instance in job.roster.ready_nodes()
    return is_ready and instance in (wanted_instances(job) or ()) and node is not None and node.can_schedule
