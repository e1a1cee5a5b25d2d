"""Facts about a node: a record whose fields are merged separately.

Merging is commutative, associative and idempotent, so neither the order of events nor repeated deliveries matter.
Values from events and from reads are separate fields (`*_event`, `*_read`). `views/arbitration.py` decides which of the
two counts at a given time. Times are seconds since the epoch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

from dyntrain.controller.contract.messages import BASE_TAG, is_base_value
from dyntrain.controller.core.records.acks import NO_ACKS, Acks
from dyntrain.controller.core.records.registers import Fact, latest, union
from pydantic import Field

InstanceState = Literal["pending", "running", "stopping", "stopped", "shutting-down", "terminated"]
Phase = Literal["warm", "launching", "in_service", "terminating", "left"]
Transition = Literal["launch", "terminate"]
Market = Literal[
    "on-demand", "spot", "reserved", "capacity-block"
]  # `reserved`: the instance runs in a capacity reservation

_STATES: tuple[InstanceState, ...] = ("pending", "running", "stopping", "stopped", "shutting-down", "terminated")
_PHASES: tuple[Phase, ...] = ("warm", "launching", "in_service", "terminating", "left")


class ClusterStatement(Fact):
    """A statement, at the time `at`, that the node belongs to `cluster`."""

    at: float
    cluster: str

    @property
    def order(self) -> tuple[Any, ...]:
        return (self.at, self.cluster)


class BaseTag(Fact):
    """An observation of the base tag on the node, with the tag's value."""

    at: float
    value: str

    @property
    def order(self) -> tuple[Any, ...]:
        return (self.at, self.value)


def base_tag(tags: Mapping[str, str], at: float) -> BaseTag | None:
    value = tags.get(BASE_TAG)
    return BaseTag(at=at, value=value) if value is not None and is_base_value(value) else None


class TagsEvent(Fact):
    """The tags of the instance after the tag change with the number `version`."""

    version: float
    at: float
    tags: dict[str, str]

    @property
    def order(self) -> tuple[Any, ...]:
        return (self.version, self.at, sorted(self.tags.items()))


class TagsRead(Fact):
    """The tags of the instance, as returned by a describe call that began at `started`."""

    started: float
    tags: dict[str, str]

    @property
    def order(self) -> tuple[Any, ...]:
        return (self.started, sorted(self.tags.items()))


class StateEvent(Fact):
    at: float
    state: InstanceState

    @property
    def order(self) -> tuple[Any, ...]:
        # event times are whole seconds; within a second, the order of EC2's life cycle decides
        return (
            self.at,
            _STATES.index(self.state),
        )


class StateRead(Fact):
    started: float
    state: InstanceState
    launched_at: float | None = None
    private_ip: str | None = None

    @property
    def order(self) -> tuple[Any, ...]:
        launched, address = self.launched_at, self.private_ip
        return (
            self.started,
            _STATES.index(self.state),
            launched is not None,
            launched or 0.0,
            address is not None,
            address or "",
        )


class Machine(Fact):
    """How EC2 bills the instance, from a describe call that began at `started`. `market` is the visible purchase
    option. Discounts by Reserved Instances or Savings Plans are invisible.
    """

    started: float
    type: str
    market: Market = "on-demand"

    @property
    def order(self) -> tuple[Any, ...]:
        return (self.started, self.type, self.market)


class GroupEvent(Fact):
    """The instance's Auto Scaling group and its phase there, from an event."""

    at: float
    group: str
    phase: Phase

    @property
    def order(self) -> tuple[Any, ...]:
        return (self.at, _PHASES.index(self.phase), self.group)


class GroupRead(Fact):
    """The instance's group and phase, from a describe call. `group` None: the instance is in none of the registered
    groups.
    """

    started: float
    group: str | None
    phase: Phase | None
    protected: bool | None = None

    @property
    def order(self) -> tuple[Any, ...]:
        return (self.started, self.group is not None, self.group or "", self.phase or "", str(self.protected))


class Hook(Fact):
    """A lifecycle action that waits for completion. `token` None: the action was found by a read, and is completed by
    its instance id.
    """

    at: float
    group: str
    hook: str
    transition: Transition
    token: str | None
    warm: bool = False

    @property
    def order(self) -> tuple[Any, ...]:
        return (self.at, self.group, self.hook, self.transition, self.token is not None, self.token or "", self.warm)


class Preparation(Fact):
    """The node's latest report about its preparation.

    Within an hour, a report of a later attempt overrides all reports of earlier attempts, whatever the node's clock
    did. A report of a later hour overrides all earlier reports, so that a wrong attempt number does not count for ever.
    """

    attempt: int
    at: float
    outcome: Literal["prepared", "prepare_failed", "worker_failed"]
    reason: str = ""
    private_ip: str = ""
    script: str = ""

    @property
    def order(self) -> tuple[Any, ...]:
        return (self.at // 3600.0, self.attempt, self.at, self.outcome, self.reason, self.private_ip, self.script)


class SignOfLife(Fact):
    """A sign of life of the node. `doing` is the node's activity, and `script` is the digest of the prepare-data that
    the node sees.
    """

    at: float
    doing: str = ""
    script: str = ""

    @property
    def order(self) -> tuple[Any, ...]:
        return (self.at, self.doing, self.script)


class Notice(Fact):
    """A notice that the machine will be taken at `deadline`. Only the latest of the notices with one `ref` counts.
    `closed` cancels the notices with this `ref`.
    """

    kind: str
    deadline: float
    ref: str = ""
    said_at: float = 0.0
    closed: bool = False

    @property
    def order(self) -> tuple[Any, ...]:
        return (self.deadline, self.kind, self.ref, self.said_at, self.closed)


class NodeFacts(Fact):
    """All facts about one instance. Every field starts empty, and joining with an empty field changes nothing."""

    instance: str
    named: ClusterStatement | None = None
    template: ClusterStatement | None = Field(
        None, description="the cluster whose launch template launched the instance, which no tag can change"
    )
    based: BaseTag | None = Field(
        None, description="the last base tag that was seen; a base node stays when the tag is removed"
    )
    wished: ClusterStatement | None = Field(
        None, description="the cluster whose elastic tag was last seen on the instance, even if removed since"
    )
    tags_event: TagsEvent | None = None
    tags_read: TagsRead | None = None
    state_event: StateEvent | None = None
    state_read: StateRead | None = None
    machine: Machine | None = None
    terminated: bool = False
    started_at: float = 0.0
    group_event: GroupEvent | None = None
    group_read: GroupRead | None = None
    hooks: dict[str, Hook] = Field({})
    preparation: Preparation | None = None
    heard: SignOfLife | None = None
    notices: tuple[Notice, ...] = ()
    acks: Acks = Field(default_factory=lambda: NO_ACKS)  # pydantic would copy a plain default for each node

    def join(self, other: NodeFacts) -> NodeFacts:
        """The merged facts. Raises ValueError for two different instances."""
        if self.instance != other.instance:
            raise ValueError(f"facts of {self.instance} and {other.instance} do not merge")
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
        """Whether some value in `update` is older than the value here, rather than a repetition."""
        pairs = ((getattr(self, name), getattr(update, name)) for name in _REGISTERS)
        return any(new_value is not None and new_value != known_value for known_value, new_value in pairs)


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
    for facts in others:
        first = first.join(facts)
    return first


def _joined_notices(first: tuple[Notice, ...], second: tuple[Notice, ...]) -> tuple[Notice, ...]:
    if not second:
        return first
    return tuple(sorted({*first, *second}, key=lambda notice: notice.order))
