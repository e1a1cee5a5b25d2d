"""Replace a base node on purpose: the successor's base tag names the replaced node. Pure.

`dyntrain:base=i-OLD` makes a node a base node in the place of i-OLD. A single tag cannot be half set. The successor
starts ps-lite processes, and the target names both nodes. The coordinator exchanges the two nodes at one boundary once
the successor can serve. Then the replaced node is released like an elastic node.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum

from dyntrain.controller.contract.messages import BASE_TAG, INSTANCE_ID
from dyntrain.controller.core.records.job import JobFacts
from dyntrain.controller.core.views.reasons import Reason
from dyntrain.controller.core.views.target import Membership
from dyntrain.controller.core.views.view import Rules, View


class ReplacementRefusal(StrEnum):
    """Why a base node cannot be replaced, and what to do. Each text has the fields `old` and `new`."""

    SAME = "{old} cannot replace itself; name another node that is prepared"
    OLD_UNKNOWN = "nothing is known of {old} in the cluster of {new}; `dyntrain status` lists its nodes"
    NOT_BASE = "{old} is no base node; an elastic node leaves when its elastic tag is removed"
    RUNS_COORDINATOR = (
        "{old} runs the coordinator; stop or terminate the instance, so that another base node takes over from the "
        "last commit, then repeat this command"
    )
    NEW_GONE = "{new} is terminated or being taken away; name another node that is prepared"
    ALREADY_BASE = "{new} is a base node already; name an elastic node, or launch one for this"
    NOT_PREPARED = "{new} is not prepared; `dyntrain explain {new}` says what is missing"
    CLAIMED = "{old} is being replaced by another node already; `dyntrain status` lists both"
    BELOW_MINIMUM = "without {old} the cluster would fall below min_workers; add a worker, or lower the minimum"


def refusal(
    old: str, new: str, views: Iterable[View], membership: Membership, rules: Rules
) -> ReplacementRefusal | None:
    """Why the replacement is refused; None: the replacement may be requested, even repeatedly. `views` are the
    cluster's nodes before any replacement.
    """
    nodes = {node.instance: node for node in views}
    if old == new:
        return ReplacementRefusal.SAME
    if old not in nodes:
        return ReplacementRefusal.OLD_UNKNOWN
    if not nodes[old].base:
        return ReplacementRefusal.NOT_BASE
    old_terminated = nodes[old].terminated
    successor = nodes[new]
    if predecessor(successor) == old:
        return None
    if not old_terminated and _runs_coordinator(membership, nodes[old]):
        return ReplacementRefusal.RUNS_COORDINATOR
    if successor.terminated or successor.leave_reason is not None:
        return ReplacementRefusal.NEW_GONE
    if successor.base:
        return ReplacementRefusal.ALREADY_BASE
    if not successor.prepared:
        return ReplacementRefusal.NOT_PREPARED
    if any(predecessor(node) == old for node in nodes.values() if not node.terminated):
        return ReplacementRefusal.CLAIMED
    return None if old_terminated or _keeps_minimum(nodes, {old}, rules) else ReplacementRefusal.BELOW_MINIMUM


def predecessor(node: View) -> str | None:
    """The instance that the node replaces as a base node."""
    based = node.facts.based
    value = (node.tags or {}).get(BASE_TAG, based.value if based is not None else "")
    return value if re.fullmatch(INSTANCE_ID, value) else None


def planned_replacements(
    views: Sequence[View], old: Membership, job_facts: JobFacts | None, rules: Rules
) -> dict[str, str]:
    """Base nodes that are to be replaced, with their successors.

    A base node outside the job is replaced at once. A base node in the job is replaced while its successor is prepared.
    The coordinator's node is not replaced before another node is nominated.
    """
    nodes = {node.instance: node for node in views}
    reported_members = {member.instance_id for member in job_facts.report.members} if job_facts is not None else set()
    successors: dict[str, str] = {}
    for successor in sorted(views, key=lambda node: node.instance):
        replaced_node = nodes.get(predecessor(successor) or "")
        if (
            replaced_node is None
            or not replaced_node.base
            or replaced_node.terminated
            or replaced_node.instance in successors
            or _runs_coordinator(old, replaced_node)
        ):
            continue
        successor_ready = (
            successor.prepared
            and successor.wanted
            and successor.leave_reason is None
            and _keeps_minimum(nodes, {replaced_node.instance, *successors}, rules)
        )
        if successor_ready or replaced_node.instance not in reported_members.union(old.members):
            successors[replaced_node.instance] = successor.instance
    return {instance: successor for instance, successor in successors.items() if not _in_ring(instance, successors)}


def with_replacements(views: Iterable[View], replacing: Mapping[str, str]) -> list[View]:
    """The views, in which replaced nodes are not base nodes any more, and leave."""
    return [
        replace(node, base=False, elastic=False, leave_reason=node.leave_reason or Reason.REPLACED)
        if node.instance in replacing
        else node
        for node in views
    ]


def _runs_coordinator(membership: Membership, node: View) -> bool:
    return node.master if membership.term == 0 else membership.coordinator == node.instance


def _keeps_minimum(nodes: Mapping[str, View], excluded: set[str], rules: Rules) -> bool:
    return (
        sum(node.wanted and node.prepared for node in nodes.values() if node.instance not in excluded)
        >= rules.policy.min_workers
    )


def _in_ring(start: str, successors: Mapping[str, str]) -> bool:
    """Whether nodes replace each other in a ring. Nodes in a ring are not replaced."""
    visited: set[str] = set()
    current = start
    while current in successors and current not in visited:
        visited.add(current)
        current = successors[current]
    return current in visited
