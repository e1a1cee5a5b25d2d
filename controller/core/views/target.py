"""Plan the target, that is, the nodes of which the job should consist, and its revision."""

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
_LEAVE_CAUSES = {
    Reason.GROUP_TERMINATES: "ended by its group",
    Reason.INTERRUPTED: "interrupted by AWS",
    Reason.STOPPED: "stopped",
    Reason.WORKER_FAILED: "its worker failed again and again",
    Reason.PREPARE_FAILED: "its preparation failed",
}


class Membership(Fact):
    """The cluster's stored target. `leaving` maps an instance to the revision that dropped it. `back` maps an instance
    that was dropped before to the revision that lists it again.

    `coordinator`, `term` and `replacing` are as in `Target`. `coordinator` None in a term above 0 means that no base
    node is left. `rebuilt_at` is the time when an empty table was rebuilt from the published target. `listed` False:
    the published target did not contain the members. `finished_at` is the time since when the target is `finished`, if
    known.
    """

    revision: int = 0
    members: tuple[str, ...] = ()
    leave_by: dict[str, float] = Field(default_factory=dict)
    leaving: dict[str, int] = Field(default_factory=dict)
    back: dict[str, int] = Field(default_factory=dict)
    finished: bool = False
    coordinator: str | None = None
    term: int = 0
    replacing: dict[str, str] = Field(default_factory=dict)
    rebuilt_at: float | None = None
    listed: bool = True
    finished_at: float | None = None
    causes: dict[str, str] = Field(default_factory=dict)

    @property
    def target(self) -> Target:
        fields = {
            "finished": self.finished,
            "coordinator": self.coordinator,
            "term": self.term,
            "replacing": self.replacing,
            "causes": self.causes,
        }
        return Target.of(self.revision, self.members, self.leave_by).model_copy(update=fields)


def rebuilt_membership(target: Target, nodes: Iterable[str], now: float) -> Membership:
    """The membership of a controller that lost its table, rebuilt from the published target. The cluster's `nodes` that
    are not in the target count as dropped last.
    """
    members = target.members or ()
    return Membership(
        revision=target.revision,
        members=members,
        leaving={instance: target.revision for instance in nodes if instance not in members},
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
    """The membership with which to continue when another controller has published the target `published`. A later
    nomination in `published` stays. The later coordinator may hold the job, and would be refused if the target named an
    earlier coordinator.
    """
    changes: dict[str, object] = {"revision": published.revision + 1}
    if published.term > membership.term:
        changes |= {"coordinator": published.coordinator, "term": published.term}
    return membership.model_copy(update=changes)


def with_reported_members(membership: Membership, job_facts: JobFacts | None, wished: Iterable[str]) -> Membership:
    """The membership with the members that the job reports, at a new revision.

    Without a report, the instances whose tags ask for the cluster become members. The list is never empty, because a
    living coordinator would obey an empty list. The revision grows because the published members are unknown.
    """
    ranked = sorted(job_facts.report.members, key=lambda member: member.rank) if job_facts is not None else []
    members = tuple(member.instance_id for member in ranked) or tuple(wished)
    return membership.model_copy(update={"members": members, "listed": True, "revision": membership.revision + 1})


def with_end_time(old: Membership, new: Membership, now: float) -> Membership:
    """`new` with the time at which the job ended, if the job has ended."""
    if new.finished == old.finished:
        return new
    return new.model_copy(update={"finished_at": now if new.finished else None})


@dataclass(frozen=True)
class TargetPlan:
    """A new target. `membership` is the same object as before when nothing changed. `reasons` says why a node is in the
    target although it should leave, or outside although it should join.
    """

    membership: Membership
    reasons: dict[str, Reason]


def plan_target(
    old: Membership,
    views: Iterable[View],
    rules: Rules,
    over: bool,
    replacing: Mapping[str, str] = MappingProxyType({}),
    pending_waits: Collection[str] = (),
) -> TargetPlan:
    """Plan the members: base nodes (master first), then elastic nodes in order of joining, between minimum and maximum.

    `replacing` maps replaced base nodes to their successors; in the views replaced nodes are no base nodes any more.
    `pending_waits` are members that wait for a window before they leave.
    """
    nodes = {node.instance: node for node in views}
    reasons: dict[str, Reason] = {}
    ready_nodes = [node for node in nodes.values() if node.wanted and node.prepared]
    old_positions = {instance: index for index, instance in enumerate(old.members)}
    base = sorted(
        (node for node in ready_nodes if node.base),
        key=lambda node: (not node.master, *_seniority(node, old_positions)),
    )
    elastic = (
        []
        if over
        else sorted((node for node in ready_nodes if not node.base), key=lambda node: _seniority(node, old_positions))
    )
    if not over:
        waiting = [nodes[instance] for instance in old.members if instance in pending_waits]
        shortage = rules.policy.min_workers - len(base) - len(elastic) - len(waiting)
        held_nodes = [*waiting, *_kept_leavers(old, nodes, shortage, pending_waits)]
        reasons.update({node.instance: _held_reason(node, pending_waits) for node in held_nodes})
        elastic = sorted([*elastic, *held_nodes], key=lambda node: _seniority(node, old_positions))
    places = max(rules.policy.max_workers - len(base), 0)
    reasons.update(dict.fromkeys((node.instance for node in elastic[places:]), Reason.ABOVE_MAXIMUM))
    members = tuple(node.instance for node in [*base, *elastic[:places]])
    return TargetPlan(_next_membership(old, members, nodes, over, replacing), reasons)


def as_parameter(target: Target, pointer: str) -> str:
    """The target as JSON that fits into a standard SSM parameter. If the list of members does not fit, `pointer` names
    the item that holds the list.
    """
    for candidate in (target, target.model_copy(update={"causes": {}})):
        text = candidate.model_dump_json()
        if len(text.encode()) <= PARAMETER_BYTES:
            return text
    shortened = target.model_copy(update={"members": None, "pointer": pointer, "causes": {}})
    text = shortened.model_dump_json()
    if len(text.encode()) <= PARAMETER_BYTES:
        return text
    return shortened.model_copy(update={"leave_by": {}}).model_dump_json()  # the item also contains the deadlines


def _seniority(node: View, old_positions: dict[str, int]) -> tuple[float, float, str]:
    """Sort key: members keep their order, and new nodes follow by the time of their preparation."""
    prepared_at = node.preparation.at if node.preparation is not None else 0.0
    return (old_positions.get(node.instance, float("inf")), prepared_at, node.instance)


def _held_reason(node: View, pending_waits: Collection[str]) -> Reason:
    return Reason.WAITS_FOR_WINDOW if node.instance in pending_waits else Reason.HELD_BY_MINIMUM


def _kept_leavers(
    old: Membership, nodes: dict[str, View], shortage: int, pending_waits: Collection[str]
) -> Sequence[View]:
    """Members that lost their elastic tag but are kept because of the minimum, in the order of the target. A node that
    AWS or its group takes cannot be kept.
    """
    leavers = [nodes[instance] for instance in old.members if instance in nodes and not nodes[instance].wanted]
    voluntary = [
        node
        for node in leavers
        if node.prepared
        and node.leave_reason is None
        and not node.terminated
        and node.tags is not None
        and node.instance not in pending_waits
    ]
    return voluntary[: max(shortage, 0)]


def _next_membership(
    old: Membership, members: tuple[str, ...], nodes: dict[str, View], over: bool, replacing: Mapping[str, str]
) -> Membership:
    dropped = [instance for instance in old.members if instance not in set(members)]
    tracked = {*dropped, *old.leaving}
    living_nodes = {instance: node for instance, node in nodes.items() if not node.terminated}
    deadlines = {
        node.instance: node.leave_by
        for node in living_nodes.values()
        if node.leave_by is not None and node.instance in tracked
    }
    deadlines_changed = any(old.leave_by.get(instance) != deadline for instance, deadline in deadlines.items())
    finished = over and (old.revision > 0 or bool(members))
    if members == old.members and not deadlines_changed and finished == old.finished and replacing == old.replacing:
        return old
    revision = old.revision + 1
    leaving = {
        instance: at for instance, at in old.leaving.items() if instance not in members and instance in living_nodes
    }
    leaving.update(dict.fromkeys(dropped, revision))
    back = {instance: at for instance, at in old.back.items() if instance in members}
    back.update(dict.fromkeys((instance for instance in members if instance in old.leaving), revision))
    leave_by = {instance: deadline for instance, deadline in deadlines.items() if instance not in members}
    membership_changes = {
        "revision": revision,
        "members": members,
        "leave_by": leave_by,
        "leaving": leaving,
        "back": back,
        "finished": finished,
        "causes": {} if over else _causes(old.members, members, nodes),
    }
    return old.model_copy(update={**membership_changes, "replacing": dict(replacing)})


def _causes(old: Sequence[str], new: Sequence[str], nodes: Mapping[str, View]) -> dict[str, str]:
    """Why each instance joined or left, for people. Only the first MAX_CAUSES instances are listed."""
    joined = {instance: _join_cause(nodes[instance]) for instance in new if instance not in old}
    left = {instance: _leave_cause(nodes.get(instance)) for instance in old if instance not in new}
    return dict([*joined.items(), *left.items()][:MAX_CAUSES])


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
