"""Which nodes the job should consist of: the target, its revision, and who was dropped from it at which revision."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from pydantic import Field

from controller.contract import Target
from controller.facts import Fact
from controller.reasons import Reason
from controller.view import Rules, View

PARAMETER_BYTES = 4096  # of a standard SSM parameter


class Membership(Fact):
    """The cluster's own record of its target; `leaving` maps an instance to the revision that dropped it.

    `coordinator`, `term` and `replacing` are as in the target: None in a term above 0 means that no base node is left.
    """

    revision: int = 0
    members: tuple[str, ...] = ()
    leave_by: dict[str, float] = Field(default_factory=dict)
    leaving: dict[str, int] = Field(default_factory=dict)
    finished: bool = False
    coordinator: str | None = None
    term: int = 0
    replacing: dict[str, str] = Field(default_factory=dict)

    @property
    def target(self) -> Target:
        more = {"finished": self.finished, "coordinator": self.coordinator, "term": self.term, "replacing": self.replacing}
        return Target.of(self.revision, self.members, self.leave_by).model_copy(update=more)


@dataclass(frozen=True)
class TargetPlan:
    """`membership` is the old object itself when nothing changed. `reasons` says why a node is in or out against its wish."""

    membership: Membership
    reasons: dict[str, Reason]


def plan_target(old: Membership, views: Iterable[View], rules: Rules, over: bool, replacing: Mapping[str, str] = MappingProxyType({})) -> TargetPlan:
    """Members first come, first served: base nodes (master first), then elastic ones in order of joining, between minimum and maximum.

    `replacing`: base nodes that were given up, with their successors; the views say so already.
    """
    nodes = {node.instance: node for node in views}
    reasons: dict[str, Reason] = {}
    ready = [node for node in nodes.values() if node.wanted and node.prepared]
    place = {instance: index for index, instance in enumerate(old.members)}
    base = sorted((node for node in ready if node.base), key=lambda node: (not node.master, *_seniority(node, place)))
    elastic = [] if over else sorted((node for node in ready if not node.base), key=lambda node: _seniority(node, place))
    if not over:
        held = _held(old, nodes, rules.policy.min_workers - len(base) - len(elastic))
        reasons.update(dict.fromkeys((node.instance for node in held), Reason.HELD_BY_MINIMUM))
        elastic = sorted([*elastic, *held], key=lambda node: _seniority(node, place))
    room = max(rules.policy.max_workers - len(base), 0)
    reasons.update(dict.fromkeys((node.instance for node in elastic[room:]), Reason.ABOVE_MAXIMUM))
    members = tuple(node.instance for node in [*base, *elastic[:room]])
    return TargetPlan(_next(old, members, nodes, over, replacing), reasons)


def as_parameter(target: Target, pointer: str) -> str:
    """JSON of at most one standard parameter; when the list does not fit, `pointer` names the item that holds it."""
    text = target.model_dump_json()
    if len(text.encode()) <= PARAMETER_BYTES:
        return text
    short = target.model_copy(update={"members": None, "pointer": pointer})
    text = short.model_dump_json()
    if len(text.encode()) <= PARAMETER_BYTES:
        return text
    return short.model_copy(update={"leave_by": {}}).model_dump_json()  # deadlines that many are in the item as well


def _seniority(node: View, place: dict[str, int]) -> tuple[float, float, str]:
    """Members keep their order; newcomers queue behind them by the time they were prepared."""
    prepared_at = node.preparation.at if node.preparation is not None else 0.0
    return (place.get(node.instance, float("inf")), prepared_at, node.instance)


def _held(old: Membership, nodes: dict[str, View], shortage: int) -> Sequence[View]:
    """Members that only lost their tag, longest standing first. What AWS or the group takes away cannot be held."""
    leavers = [nodes[instance] for instance in old.members if instance in nodes and not nodes[instance].wanted]
    voluntary = [node for node in leavers if node.prepared and node.going is None and not node.terminated and node.tags is not None]
    return voluntary[: max(shortage, 0)]


def _next(old: Membership, members: tuple[str, ...], nodes: dict[str, View], over: bool, replacing: Mapping[str, str]) -> Membership:
    dropped = [instance for instance in old.members if instance not in set(members)]
    tracked = {*dropped, *old.leaving}
    living = {instance: node for instance, node in nodes.items() if not node.terminated}
    deadlines = {node.instance: node.leave_by for node in living.values() if node.leave_by is not None and node.instance in tracked}
    news = any(old.leave_by.get(instance) != deadline for instance, deadline in deadlines.items())
    finished = over and (old.revision > 0 or bool(members))
    if members == old.members and not news and finished == old.finished and replacing == old.replacing:
        return old
    revision = old.revision + 1
    leaving = {instance: at for instance, at in old.leaving.items() if instance not in members and instance in living}
    leaving.update(dict.fromkeys(dropped, revision))
    leave_by = {instance: deadline for instance, deadline in deadlines.items() if instance not in members}
    news_of_members = {"revision": revision, "members": members, "leave_by": leave_by, "leaving": leaving, "finished": finished}
    return old.model_copy(update={**news_of_members, "replacing": dict(replacing)})
