"""Observations about a node: a record of fields, each with a join of its own.

Merging two records is commutative, associative and idempotent, so neither the order nor the number of deliveries of an
event can matter. Values from events and from reads stay apart (`*_event`, `*_read`): which of them counts depends on
the time and is decided in `view`. Times are seconds since the epoch.
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
Market = Literal["on-demand", "spot", "reserved", "capacity-block"]  # reserved: in a capacity reservation

_STATES: tuple[InstanceState, ...] = ("pending", "running", "stopping", "stopped", "shutting-down", "terminated")
_PHASES: tuple[Phase, ...] = ("warm", "launching", "in_service", "terminating", "left")


class ClusterStatement(Fact):
    """A statement, at `at`, that the node belongs to `cluster`."""

    at: float
    cluster: str

    @property
    def order(self) -> tuple[Any, ...]:
        return (self.at, self.cluster)


class BaseTag(Fact):
    """A sight of the base tag on the node, with that value."""

    at: float
    value: str

    @property
    def order(self) -> tuple[Any, ...]:
        return (self.at, self.value)


def base_tag(tags: Mapping[str, str], at: float) -> BaseTag | None:
    value = tags.get(BASE_TAG)
    return BaseTag(at=at, value=value) if value is not None and is_base_value(value) else None


class TagsEvent(Fact):
    """The tags of the instance after its tag change number `version`."""

    version: float
    at: float
    tags: dict[str, str]

    @property
    def order(self) -> tuple[Any, ...]:
        return (self.version, self.at, sorted(self.tags.items()))


class TagsRead(Fact):
    """The tags as a describe call that began at `started` returned them."""

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
        # event times have whole seconds: within one, EC2's own order decides
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
    """What EC2 bills the instance as, by a describe call that began at `started`. `market` is the visible way of
    paying: discounts by Reserved Instances or Savings Plans are invisible.
    """

    started: float
    type: str
    market: Market = "on-demand"

    @property
    def order(self) -> tuple[Any, ...]:
        return (self.started, self.type, self.market)


class GroupEvent(Fact):
    """The instance's place in an Auto Scaling group, by an event."""

    at: float
    group: str
    phase: Phase

    @property
    def order(self) -> tuple[Any, ...]:
        return (self.at, _PHASES.index(self.phase), self.group)


class GroupRead(Fact):
    """The instance's place by a describe call; `group` None: in none of the registered groups."""

    started: float
    group: str | None
    phase: Phase | None
    protected: bool | None = None

    @property
    def order(self) -> tuple[Any, ...]:
        return (self.started, self.group is not None, self.group or "", self.phase or "", str(self.protected))


class Hook(Fact):
    """A lifecycle action that waits for an answer. `token` None: seen by a read, to be answered by instance id."""

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
    """The node's own latest report. Within an hour a later attempt overrides every report of an earlier one, however
    late that one arrives and whatever the node's clock did; a report of a later hour overrides all, so that a wrong
    attempt number does not count for ever.
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
    """A sign of life: `doing` is what the node does, `script` the digest of the prepare-data that it sees."""

    at: float
    doing: str = ""
    script: str = ""

    @property
    def order(self) -> tuple[Any, ...]:
        return (self.at, self.doing, self.script)


class Notice(Fact):
    """A notice that the machine will be taken at `deadline`. Of notices with one `ref` the latest counts, and `closed`
    cancels them.
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
    """All that is known of one instance. Every field starts empty, which is the identity of its join."""

    instance: str
    named: ClusterStatement | None = None
    template: ClusterStatement | None = Field(
        None, description="the cluster from whose launch template it was launched, which no tag can change"
    )
    based: BaseTag | None = Field(
        None, description="the last base tag that was seen: to take the tag away ends nothing"
    )
    wished: ClusterStatement | None = Field(
        None, description="the cluster whose elastic tag was last seen on it: to take the tag away does not undo that"
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
    acks: Acks = Field(default_factory=lambda: NO_ACKS)  # a plain default is copied deeply for each node

    def join(self, other: NodeFacts) -> NodeFacts:
        """The facts of both. Raises ValueError for two different instances."""
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
            terminated=self.terminated or other.terminated,  # the only tombstone: EC2 never brings an instance id back
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
        """Whether something in `news` is older than what is known here, rather than a mere repetition."""
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
