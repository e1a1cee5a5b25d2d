"""Replace a base node on request: a user sets a tag on the successor that names the replaced node. Pure.

The tag `dyntrain:base=i-OLD` makes the tagged node a base node that replaces the instance i-OLD. A request for a
replacement consists of the single tag `dyntrain:base=i-OLD`, so that the request is never incomplete. The successor
starts its ps-lite processes, and the target names the replaced node and the successor. As soon as the successor's
ps-lite processes run, the coordinator exchanges the two nodes at an epoch or segment boundary. After the exchange, the
replaced node leaves the job like an elastic node.
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
    """Why a base node cannot be replaced, and what the user can do instead. The texts contain `{old}` and `{new}` in
    place of the two instance ids.
    """

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


def replacement_refusal(
    old: str, new: str, views: Iterable[View], membership: Membership, rules: Rules
) -> ReplacementRefusal | None:
    """Why the node `new` must not replace the base node `old`. Returns None if this replacement may be requested, or
    was already requested. `views` are the views of the cluster's nodes before `with_replacements` changes the views.
    """
    nodes_by_id = {node.instance: node for node in views}
    if old == new:
        return ReplacementRefusal.SAME
    if old not in nodes_by_id:
        return ReplacementRefusal.OLD_UNKNOWN
    if not nodes_by_id[old].base:
        return ReplacementRefusal.NOT_BASE
    old_terminated = nodes_by_id[old].terminated
    successor = nodes_by_id[new]
    if predecessor(successor) == old:
        return None
    if not old_terminated and _runs_coordinator(membership, nodes_by_id[old]):
        return ReplacementRefusal.RUNS_COORDINATOR
    if successor.terminated or successor.leave_reason is not None:
        return ReplacementRefusal.NEW_GONE
    if successor.base:
        return ReplacementRefusal.ALREADY_BASE
    if not successor.prepared:
        return ReplacementRefusal.NOT_PREPARED
    if any(predecessor(node) == old for node in nodes_by_id.values() if not node.terminated):
        return ReplacementRefusal.CLAIMED
    return None if old_terminated or _keeps_minimum(nodes_by_id, {old}, rules) else ReplacementRefusal.BELOW_MINIMUM


def predecessor(node: View) -> str | None:
    """The id of the base node that this node replaces. Returns None if this node replaces no base node."""
    seen_base_tag = node.facts.based
    base_tag_value = (node.tags or {}).get(BASE_TAG, seen_base_tag.value if seen_base_tag is not None else "")
    return base_tag_value if re.fullmatch(INSTANCE_ID, base_tag_value) else None


def planned_replacements(
    views: Sequence[View], old: Membership, job_facts: JobFacts | None, rules: Rules
) -> dict[str, str]:
    """A map from the instance id of each base node that is to be replaced to the instance id of its successor.

    A base node that is in the job is replaced only while its successor is prepared. A base node outside the job is
    replaced at once. The node that runs the coordinator is not replaced until another node is nominated to run the
    coordinator.
    """
    nodes_by_id = {node.instance: node for node in views}
    reported_members = {member.instance_id for member in job_facts.report.members} if job_facts is not None else set()
    successors: dict[str, str] = {}
    for successor in sorted(views, key=lambda node: node.instance):
        replaced_node = nodes_by_id.get(predecessor(successor) or "")
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
            and _keeps_minimum(nodes_by_id, {replaced_node.instance, *successors}, rules)
        )
        if successor_ready or replaced_node.instance not in reported_members.union(old.members):
            successors[replaced_node.instance] = successor.instance
    return {instance: successor for instance, successor in successors.items() if not _in_ring(instance, successors)}


def with_replacements(views: Iterable[View], replacing: Mapping[str, str]) -> list[View]:
    """The views, changed so that the replaced nodes are no longer base nodes and have a reason to leave."""
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
    """Whether the node `start` and other nodes replace each other in a ring. No node in a ring is replaced."""
    visited_ids: set[str] = set()
    instance_id = start
    while instance_id in successors and instance_id not in visited_ids:
        visited_ids.add(instance_id)
        instance_id = successors[instance_id]
    return instance_id in visited_ids
