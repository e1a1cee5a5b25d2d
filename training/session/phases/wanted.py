"""The nodes that the target wants in the next generation, and the nodes that may run its servers. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from dyntrain.controller.contract.messages import Target
from dyntrain.training import events
from dyntrain.training.session.generation.ps_group import ConnectedNode
from dyntrain.training.session.job.state import JobState
from dyntrain.training.session.orders import Announce, Order


def wanted(job: JobState) -> Sequence[str] | None:
    """Return the instances that the target wants, or None before the first target."""
    return None if job.target is None else (job.target.members or ())


def refuse(job: JobState, target: Target, now: float) -> list[Order]:
    """Announce that a target is refused; only once, although the target is read repeatedly."""
    if target == job.refused:
        return []
    job.refused = target
    member_count = len(job.target.members or ()) if job.target is not None else 0
    reason = (
        f"revision {target.revision} with {target.count} members came after the same revision with {member_count}: two "
        "controllers write this target, or somebody changed it by hand; the first target stays in force"
    )
    return [Announce(events.TargetRefused(revision=target.revision, stage=target.stage, reason=reason, at=now))]


def wanted_next(job: JobState) -> Sequence[str] | None:
    """Return the wanted instances. A base node stays among them until its successor can replace it at a boundary."""
    names = wanted(job)
    if names is None or job.target is None:
        return None
    replaced = _replaced(job)
    kept = {node: successor for node, successor in job.target.replacing.items() if node not in replaced}
    waiting = {successor for successor in kept.values() if successor not in job.roster.members}
    return [
        *(instance for instance in names if instance not in waiting),
        *(node for node in kept if node not in names),
    ]


def servers(job: JobState, members: Collection[str] = ()) -> dict[str, ConnectedNode]:
    """The nodes on which the ps-lite processes of a generation of `members` may run.

    By default these are base nodes, so that a node that leaves takes no server along. If all members run servers,
    the loss of any machine means a lost server and a restart of all.
    """
    replaced, all_serve = _replaced(job), job.options.servers == "all"
    return {
        instance: node
        for instance, node in job.roster.nodes.items()
        if instance not in replaced and (node.hello.base or (all_serve and instance in members))
    }


def _replaced(job: JobState) -> set[str]:
    """Return the base nodes that their successors replace at the next formation.

    A base node is replaced once its successor can run a server, or if it does not train any more.
    """
    replacing = job.target.replacing if job.target is not None else {}
    return {node for node, successor in replacing.items() if not _trains_on(job, node) or _can_serve(job, successor)}


def _trains_on(job: JobState, instance: str) -> bool:
    """Whether the node stays at the next formation; a node that lacks a process leaves."""
    members = job.roster.members
    return instance in members and instance in job.roster.ready(job.loop, besides=members)


def _can_serve(job: JobState, instance: str) -> bool:
    node = job.roster.nodes.get(instance)
    is_ready = instance in job.roster.members or instance in job.roster.ready()
    return is_ready and instance in (wanted(job) or ()) and node is not None and node.can_schedule
