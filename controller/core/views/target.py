"""Plan the target: a list of the nodes that should take part in the job, with a revision number."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from dyntrain.controller.contract.messages import Target
from dyntrain.controller.core.records.job import JobFacts
from dyntrain.controller.core.records.registers import Fact
from dyntrain.controller.core.views.reasons import Reason
from dyntrain.controller.core.views.view import Rules, View
from pydantic import Field

PARAMETER_BYTES = 4096  # of a standard SSM parameter
MAX_CAUSES = 12  # in one target
_LEAVE_CAUSES = {  # texts for people
    Reason.GROUP_TERMINATES: "ended by its group",
    Reason.INTERRUPTED: "interrupted by AWS",
    Reason.STOPPED: "stopped",
    Reason.WORKER_FAILED: "its worker failed again and again",
    Reason.PREPARE_FAILED: "its preparation failed",
}


class Membership(Fact):
    """The cluster's target as stored in the DynamoDB table. `leaving` maps each dropped instance to the target revision
    that dropped the instance. `back` maps each instance that was dropped and is now listed again to the target revision
    that lists the instance again.

    The fields `coordinator`, `term` and `replacing` have the same meaning as in `Target`. If `coordinator` is None in a
    term above 0, no base node is left that could run the coordinator. `rebuilt_at` is the time when the lost DynamoDB
    table was rebuilt from the published target. `listed` is False if the lost DynamoDB table was rebuilt from a target
    that did not contain the list of its members. `finished_at` is the time since when the target has been `finished`,
    if known.
    """

    revision: int = 0  # grows with each change of the target
    members: tuple[str, ...] = ()  # instance ids, in order
    leave_by: dict[str, float] = Field(default_factory=dict)  # instance id -> time when it must have left
    leaving: dict[str, int] = Field(default_factory=dict)  # instance id -> revision that dropped it
    back: dict[str, int] = Field(default_factory=dict)  # instance id -> revision that lists it again
    finished: bool = False  # the job is over
    coordinator: str | None = None  # id of the nominated instance
    term: int = 0  # number of the nomination
    replacing: dict[str, str] = Field(default_factory=dict)  # replaced base node -> its successor
    rebuilt_at: float | None = None  # when the lost table was rebuilt
    listed: bool = True  # the members are known
    finished_at: float | None = None  # since when the job has been over
    causes: dict[str, str] = Field(default_factory=dict)  # instance id -> why it joined or left

    @property
    def target(self) -> Target:
        target_fields = {
            "finished": self.finished,
            "coordinator": self.coordinator,
            "term": self.term,
            "replacing": self.replacing,
            "causes": self.causes,
        }
        return Target.of(self.revision, self.members, self.leave_by).model_copy(update=target_fields)


def rebuilt_membership(target: Target, nodes: Iterable[str], now: float) -> Membership:
    """The membership of a controller that lost its DynamoDB table, rebuilt from the published target. Nodes of the
    cluster (`nodes`) that are not in the target are recorded as dropped by the target's revision.
    """
    members = target.members or ()
    return Membership(
        revision=target.revision,
        members=members,
        leaving={instance_id: target.revision for instance_id in nodes if instance_id not in members},
        leave_by=target.leave_by,
        finished=target.finished,
        coordinator=target.coordinator,
        term=target.term,
        replacing=target.replacing,
        rebuilt_at=now,
        finished_at=now if target.finished else None,
        listed=target.members is not None,
    )


def membership_above(membership: Membership, published: Target) -> Membership:
    """The membership with which this controller continues after another controller has published the target
    `published`. If `published` contains a later nomination, this nomination is kept. The coordinator of the later
    nomination may already run the job, and would be refused if the target named an earlier coordinator.
    """
    changed_fields: dict[str, object] = {"revision": published.revision + 1}
    if published.term > membership.term:
        changed_fields |= {"coordinator": published.coordinator, "term": published.term}
    return membership.model_copy(update=changed_fields)


def with_reported_members(membership: Membership, job_facts: JobFacts | None, wished: Iterable[str]) -> Membership:
    """The membership with a new revision and with the members that the job reports.

    If the job has not reported, the instances whose tags ask to join the cluster become members. The list of members
    must not be empty by mistake, because a running coordinator would obey an empty list. The revision grows because the
    members in the published target are unknown.
    """
    members_by_rank = sorted(job_facts.report.members, key=lambda member: member.rank) if job_facts is not None else []
    member_ids = tuple(member.instance_id for member in members_by_rank) or tuple(wished)
    return membership.model_copy(update={"members": member_ids, "listed": True, "revision": membership.revision + 1})


def with_end_time(old: Membership, new: Membership, now: float) -> Membership:
    """The membership `new`, with the time `now` as `finished_at` if the job has just ended."""
    if new.finished == old.finished:
        return new
    return new.model_copy(update={"finished_at": now if new.finished else None})


@dataclass(frozen=True)
class TargetPlan:
    """A planned target. If the target does not change, `membership` is the same object as the old membership. `reasons`
    says why a node that should leave is still in the target, or why a node that should join is not in the target yet.
    """

    membership: Membership  # the new target
    reasons: dict[str, Reason]  # by instance id


def plan_target(
    old: Membership,
    views: Iterable[View],
    rules: Rules,
    over: bool,
    replacing: Mapping[str, str] = MappingProxyType({}),
    pending_waits: Collection[str] = (),
) -> TargetPlan:
    """Plan the members of the target: first the base nodes, beginning with the master, then the elastic nodes in order
    of joining. The number of members is between the minimum and the maximum of the cluster's policy if possible.

    `replacing` maps each replaced base node to its successor. The `views` must no longer show replaced nodes as base
    nodes. `pending_waits` are the members that wait for a leave window.
    """
    nodes_by_id = {node.instance: node for node in views}
    reasons: dict[str, Reason] = {}
    ready_nodes = [node for node in nodes_by_id.values() if node.wanted and node.prepared]
    old_positions = {instance_id: index for index, instance_id in enumerate(old.members)}
    base_members = sorted(
        (node for node in ready_nodes if node.base),
        key=lambda node: (not node.master, *_seniority(node, old_positions)),
    )
    elastic_members = (
        []
        if over
        else sorted((node for node in ready_nodes if not node.base), key=lambda node: _seniority(node, old_positions))
    )
    if not over:
        waiting_members = [nodes_by_id[instance_id] for instance_id in old.members if instance_id in pending_waits]
        shortage = rules.policy.min_workers - len(base_members) - len(elastic_members) - len(waiting_members)
        held_members = [*waiting_members, *_kept_members(old, nodes_by_id, shortage, pending_waits)]
        reasons.update({node.instance: _held_reason(node, pending_waits) for node in held_members})
        elastic_members = sorted([*elastic_members, *held_members], key=lambda node: _seniority(node, old_positions))
    elastic_places = max(rules.policy.max_workers - len(base_members), 0)
    reasons.update(dict.fromkeys((node.instance for node in elastic_members[elastic_places:]), Reason.ABOVE_MAXIMUM))
    members = tuple(node.instance for node in [*base_members, *elastic_members[:elastic_places]])
    return TargetPlan(_next_membership(old, members, nodes_by_id, over, replacing), reasons)


def as_parameter(target: Target, pointer: str) -> str:
    """The target as JSON that fits into a standard SSM parameter. If the list of members is too long, the JSON contains
    `pointer` instead, which names the DynamoDB item with the list.
    """
    for target_variant in (target, target.model_copy(update={"causes": {}})):
        text = target_variant.model_dump_json()
        if len(text.encode()) <= PARAMETER_BYTES:
            return text
    short_target = target.model_copy(update={"members": None, "pointer": pointer, "causes": {}})
    text = short_target.model_dump_json()
    if len(text.encode()) <= PARAMETER_BYTES:
        return text
    return short_target.model_copy(update={"leave_by": {}}).model_dump_json()  # the item also contains the deadlines


def _seniority(node: View, old_positions: dict[str, int]) -> tuple[float, float, str]:
    """The sort key of a node: members of the old target keep their order, and new nodes follow in the order of their
    preparation.
    """
    prepared_at = node.preparation.at if node.preparation is not None else 0.0
    return (old_positions.get(node.instance, float("inf")), prepared_at, node.instance)


def _held_reason(node: View, pending_waits: Collection[str]) -> Reason:
    return Reason.WAITS_FOR_WINDOW if node.instance in pending_waits else Reason.HELD_BY_MINIMUM


def _kept_members(
    old: Membership, nodes: dict[str, View], shortage: int, pending_waits: Collection[str]
) -> Sequence[View]:
    """The members without an elastic tag that stay because of the minimum number of workers in the cluster's policy, in
    the order of the target. A node that AWS or its group terminates cannot stay.
    """
    leaving_members = [nodes[instance] for instance in old.members if instance in nodes and not nodes[instance].wanted]
    stay_candidates = [
        node
        for node in leaving_members
        if node.prepared
        and node.leave_reason is None
        and not node.terminated
        and node.tags is not None
        and node.instance not in pending_waits
    ]
    return stay_candidates[: max(shortage, 0)]


def _next_membership(
    old: Membership, members: tuple[str, ...], nodes: dict[str, View], over: bool, replacing: Mapping[str, str]
) -> Membership:
    dropped_members = [instance for instance in old.members if instance not in set(members)]
    leaving_instances = {*dropped_members, *old.leaving}
    living_nodes = {instance: node for instance, node in nodes.items() if not node.terminated}
    deadlines = {
        node.instance: node.leave_by
        for node in living_nodes.values()
        if node.leave_by is not None and node.instance in leaving_instances
    }
    deadlines_changed = any(old.leave_by.get(instance) != deadline for instance, deadline in deadlines.items())
    is_finished = over and (old.revision > 0 or bool(members))
    if members == old.members and not deadlines_changed and is_finished == old.finished and replacing == old.replacing:
        return old
    revision = old.revision + 1
    drop_revisions = {
        instance: drop_revision
        for instance, drop_revision in old.leaving.items()
        if instance not in members and instance in living_nodes
    }
    drop_revisions.update(dict.fromkeys(dropped_members, revision))
    relist_revisions = {instance: number for instance, number in old.back.items() if instance in members}
    relist_revisions.update(dict.fromkeys((instance for instance in members if instance in old.leaving), revision))
    leave_by = {instance: deadline for instance, deadline in deadlines.items() if instance not in members}
    membership_changes = {
        "revision": revision,
        "members": members,
        "leave_by": leave_by,
        "leaving": drop_revisions,
        "back": relist_revisions,
        "finished": is_finished,
        "causes": {} if over else _causes(old.members, members, nodes),
    }
    return old.model_copy(update={**membership_changes, "replacing": dict(replacing)})


def _causes(old: Sequence[str], new: Sequence[str], nodes: Mapping[str, View]) -> dict[str, str]:
    """A text that tells users why each instance joined or left the target. The result covers only the first MAX_CAUSES
    instances.
    """
    join_causes = {instance_id: _join_cause(nodes[instance_id]) for instance_id in new if instance_id not in old}
    leave_causes = {instance_id: _leave_cause(nodes.get(instance_id)) for instance_id in old if instance_id not in new}
    return dict([*join_causes.items(), *leave_causes.items()][:MAX_CAUSES])


def _join_cause(node: View) -> str:
    if node.base:
        return "a base node is ready"
    if node.group is not None:
        return f"launched by {node.group[:60]}"
    return "launched" if node.launched else "tagged"


def _leave_cause(node: View | None) -> str:
    if node is None or node.terminated:
        return "terminated"
    if node.leave_reason is not None:
        return _LEAVE_CAUSES.get(
            node.leave_reason, node.leave_reason.sentence.removeprefix("its ").removeprefix("the ")
        )
    return "above the maximum" if node.elastic else "untagged"
