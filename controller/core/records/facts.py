"""The facts about a node: one record, whose fields are merged separately.

Merging is commutative, associative and idempotent, so neither the order of events nor repeated deliveries matter.
Values from events and values from describe calls (reads) are stored in separate fields (`*_event`, `*_read`). If an
event and a read differ, `views/arbitration.py` decides which value is used. Times are seconds since the epoch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

from dyntrain.controller.contract.messages import BASE_TAG, is_base_value
from dyntrain.controller.core.records.acks import NO_ACKS, Acks
from dyntrain.controller.core.records.registers import Fact, latest, union
from pydantic import Field

InstanceState = Literal["pending", "running", "stopping", "stopped", "shutting-down", "terminated"]
Phase = Literal["warm", "launching", "in_service", "terminating", "left"]  # of an instance in its Auto Scaling group
Transition = Literal["launch", "terminate"]
Market = Literal[
    "on-demand", "spot", "reserved", "capacity-block"
]  # `reserved`: the instance runs in a capacity reservation

_STATES: tuple[InstanceState, ...] = ("pending", "running", "stopping", "stopped", "shutting-down", "terminated")
_PHASES: tuple[Phase, ...] = ("warm", "launching", "in_service", "terminating", "left")


class ClusterStatement(Fact):
    """An observation at the time `at` that the node belongs to `cluster`."""

    at: float  # seconds since the epoch
    cluster: str

    @property
    def sort_key(self) -> tuple[Any, ...]:
        return (self.at, self.cluster)


class BaseTag(Fact):
    """An observation that the node carries the tag `dyntrain:base`, with the tag's value."""

    at: float  # time of the observation
    value: str  # value of the base tag

    @property
    def sort_key(self) -> tuple[Any, ...]:
        return (self.at, self.value)


def base_tag(tags: Mapping[str, str], at: float) -> BaseTag | None:
    value = tags.get(BASE_TAG)
    return BaseTag(at=at, value=value) if value is not None and is_base_value(value) else None


class TagsEvent(Fact):
    """The tags of the instance after a tag change, to which EventBridge gave the number `version`."""

    version: float  # the number of the tag change
    at: float  # time of the tag change
    tags: dict[str, str]  # tag key -> value

    @property
    def sort_key(self) -> tuple[Any, ...]:
        return (self.version, self.at, sorted(self.tags.items()))


class TagsRead(Fact):
    """The tags of the instance, as returned by a describe call that began at `started`."""

    started: float  # when the describe call began
    tags: dict[str, str]  # tag key -> value

    @property
    def sort_key(self) -> tuple[Any, ...]:
        return (self.started, sorted(self.tags.items()))


class StateEvent(Fact):
    at: float  # time of the state change
    state: InstanceState

    @property
    def sort_key(self) -> tuple[Any, ...]:
        # event times are whole seconds; within a second, the order of EC2's life cycle decides
        return (
            self.at,
            _STATES.index(self.state),
        )


class StateRead(Fact):
    started: float  # when the describe call began
    state: InstanceState
    launched_at: float | None = None  # seconds since the epoch
    private_ip: str | None = None  # the instance's private address

    @property
    def sort_key(self) -> tuple[Any, ...]:
        launched_at, private_ip = self.launched_at, self.private_ip
        return (
            self.started,
            _STATES.index(self.state),
            launched_at is not None,
            launched_at or 0.0,
            private_ip is not None,
            private_ip or "",
        )


class Machine(Fact):
    """How EC2 bills the instance, as shown by a describe call that began at `started`. `market` is the purchase option
    that EC2 shows, which does not include discounts by Reserved Instances or Savings Plans.
    """

    started: float  # when the describe call began
    type: str  # the EC2 instance type
    market: Market = "on-demand"  # the purchase option

    @property
    def sort_key(self) -> tuple[Any, ...]:
        return (self.started, self.type, self.market)


class GroupEvent(Fact):
    """The instance's Auto Scaling group and the instance's phase in this group, from an event."""

    at: float  # time of the event
    group: str  # the Auto Scaling group's name
    phase: Phase  # phase of the instance in the group

    @property
    def sort_key(self) -> tuple[Any, ...]:
        return (self.at, _PHASES.index(self.phase), self.group)


class GroupRead(Fact):
    """The instance's Auto Scaling group and the instance's phase in this group, from a describe call that began at
    `started`. `group` is None if the instance is in no group of a cluster.
    """

    started: float  # when the describe call began
    group: str | None  # the Auto Scaling group's name
    phase: Phase | None  # phase of the instance in the group
    protected: bool | None = None  # from scale-in; None: unknown

    @property
    def sort_key(self) -> tuple[Any, ...]:
        return (self.started, self.group is not None, self.group or "", self.phase or "", str(self.protected))


class Hook(Fact):
    """A lifecycle action that waits for completion. If a describe call (and not an event) showed the action, `token` is
    None, and the action is completed by the instance id.
    """

    at: float  # when the lifecycle action was seen
    group: str  # the Auto Scaling group's name
    hook: str  # the lifecycle hook's name
    transition: Transition  # what the lifecycle action delays
    token: str | None  # None: found by a read
    warm: bool = False  # the instance goes to a warm pool

    @property
    def sort_key(self) -> tuple[Any, ...]:
        return (self.at, self.group, self.hook, self.transition, self.token is not None, self.token or "", self.warm)


class Preparation(Fact):
    """The node's latest report about its preparation.

    Of the reports of one hour, the report with the highest attempt number is the latest, whatever the node's clock
    shows. A report of a later hour always replaces a report of an earlier hour, so that a wrong attempt number does not
    stay for ever.
    """

    attempt: int  # number of the node's attempt to prepare
    at: float  # time of the report
    outcome: Literal["prepared", "prepare_failed", "worker_failed"]  # how the attempt ended
    reason: str = ""  # why the attempt failed
    private_ip: str = ""
    script: str = ""  # SHA-256 of prepare-data

    @property
    def sort_key(self) -> tuple[Any, ...]:
        return (self.at // 3600.0, self.attempt, self.at, self.outcome, self.reason, self.private_ip, self.script)


class SignOfLife(Fact):
    """A report that the node is alive. `doing` is the node's activity, and `script` is the digest of the script
    prepare-data that the node sees.
    """

    at: float  # time of the report
    doing: str = ""  # the node's present activity
    script: str = ""  # SHA-256 of prepare-data

    @property
    def sort_key(self) -> tuple[Any, ...]:
        return (self.at, self.doing, self.script)


class Notice(Fact):
    """A notice that AWS will take the machine at the time `deadline`. Of several notices with the same non-empty `ref`,
    only the latest is used. A notice with `closed` cancels the earlier notices with the same `ref`.
    """

    kind: str  # such as spot or health
    deadline: float  # when AWS takes the machine
    ref: str = ""  # identifies a scheduled change; "": none
    said_at: float = 0.0  # when the notice was given
    closed: bool = False  # the notice is cancelled

    @property
    def sort_key(self) -> tuple[Any, ...]:
        return (self.deadline, self.kind, self.ref, self.said_at, self.closed)


class NodeFacts(Fact):
    """All facts about one instance. Every field is empty at first, and merging an empty field changes nothing."""

    instance: str
    named: ClusterStatement | None = None  # the cluster to which the node belongs
    template: ClusterStatement | None = Field(  # the cluster that launched the instance
        None, description="the cluster whose launch template launched the instance, which no tag can change"
    )
    based: BaseTag | None = Field(  # the last base tag of the instance
        None, description="the last base tag that was seen; a base node stays when the tag is removed"
    )
    wished: ClusterStatement | None = Field(  # the cluster of the last elastic tag
        None, description="the cluster whose elastic tag was last seen on the instance, even if removed since"
    )
    tags_event: TagsEvent | None = None  # tags, from the last event
    tags_read: TagsRead | None = None  # tags, from the last read
    state_event: StateEvent | None = None  # EC2 state, from the last event
    state_read: StateRead | None = None  # EC2 state, from the last read
    machine: Machine | None = None  # how EC2 bills the instance
    terminated: bool = False  # the instance was terminated; final
    started_at: float = 0.0  # the machine's last start, as events show it
    group_event: GroupEvent | None = None  # group, from the last event
    group_read: GroupRead | None = None  # group, from the last read
    hooks: dict[str, Hook] = Field({})  # waiting lifecycle actions, by their key
    preparation: Preparation | None = None  # the last report about it
    heard: SignOfLife | None = None  # the last sign of life
    notices: tuple[Notice, ...] = ()  # that AWS will take the instance
    acks: Acks = Field(default_factory=lambda: NO_ACKS)  # pydantic would copy a plain default for each node

    def join(self, other: NodeFacts) -> NodeFacts:
        """The merged facts of `self` and `other`. Raises ValueError if `self` and `other` are facts of different
        instances.
        """
        if self.instance != other.instance:
            raise ValueError(f"facts of different instances cannot be merged: {self.instance} and {other.instance}")
        return NodeFacts.model_construct(
            instance=self.instance,
            named=latest(self.named, other.named),
            template=latest(self.template, other.template),
            based=latest(self.based, other.based),
            wished=latest(self.wished, other.wished),
            tags_event=latest(self.tags_event, other.tags_event),
            tags_read=latest(self.tags_read, other.tags_read),
            state_event=latest(self.state_event, other.state_event),
            state_read=latest(self.state_read, other.state_read),
            machine=latest(self.machine, other.machine),
            terminated=self.terminated or other.terminated,  # final, because EC2 never uses an instance id again
            started_at=max(self.started_at, other.started_at),
            group_event=latest(self.group_event, other.group_event),
            group_read=latest(self.group_read, other.group_read),
            hooks=union(self.hooks, other.hooks),
            preparation=latest(self.preparation, other.preparation),
            heard=latest(self.heard, other.heard),
            notices=_joined_notices(self.notices, other.notices),
            acks=self.acks.join(other.acks),
        )

    def supersedes(self, update: NodeFacts) -> bool:
        """Whether `update` contains a value that is older than the corresponding value in these facts, and differs from
        this value. The caller must have merged `update` into these facts before the call.
        """
        value_pairs = ((getattr(self, register), getattr(update, register)) for register in _REGISTERS)
        return any(new_value is not None and new_value != old_value for old_value, new_value in value_pairs)


_REGISTERS = (
    "tags_event",
    "tags_read",
    "state_event",
    "state_read",
    "group_event",
    "group_read",
    "preparation",
    "heard",
)


def join_all(first: NodeFacts, others: Iterable[NodeFacts]) -> NodeFacts:
    joined_facts = first
    for facts in others:
        joined_facts = joined_facts.join(facts)
    return joined_facts


def _joined_notices(first: tuple[Notice, ...], second: tuple[Notice, ...]) -> tuple[Notice, ...]:
    if not second:
        return first
    return tuple(sorted({*first, *second}, key=lambda notice: notice.sort_key))
