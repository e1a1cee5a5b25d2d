"""Derive a node's present state from its facts. The module `arbitration` decides which value is used if events and
describe calls show different states of the node.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dyntrain.controller.contract.elastic_tag import ELASTIC_TAG, ElasticTag
from dyntrain.controller.contract.messages import (
    BASE_TAG,
    NODE_TYPE_TAG,
    OWNER_TAG,
    STATUS_TAG,
    ClusterPolicy,
    is_base_value,
)
from dyntrain.controller.contract.notices import GROUP_ENDS, Rebalance
from dyntrain.controller.core.records.acks import NO_HEARTBEAT
from dyntrain.controller.core.records.facts import (
    Hook,
    InstanceState,
    NodeFacts,
    Notice,
    Phase,
    Preparation,
    SignOfLife,
)
from dyntrain.controller.core.views.arbitration import RUNNING, preferred_reads
from dyntrain.controller.core.views.reasons import Reason

GROUP_TAG = "aws:autoscaling:groupName"  # AWS's tag on the members of a group
OUTLIVED_SECONDS = 900.0  # a machine that still runs so long after its deadline will not be taken
LONGEST_DESCRIBE_PAUSE_SECONDS = 3600.0
MAX_UNSEEN_CALLS = 7  # in about an hour; then the node leaves, but may return, because NotFound is not final


@dataclass(frozen=True)
class Rules:
    """The policy, the elastic tag and the groups on which the decisions about one cluster depend."""

    policy: ClusterPolicy
    elastic: ElasticTag = ELASTIC_TAG  # the tag by which people ask instances to join
    stack_groups: tuple[str, ...] = ()  # groups that the cluster's own stack made

    @property
    def groups(self) -> tuple[str, ...]:
        """The cluster's Auto Scaling groups: first the groups in the cluster's policy, then the groups that the
        cluster's own CloudFormation stack made (`stack_groups`). Users cannot add a group by setting a tag.
        """
        return (*self.policy.groups, *(group for group in self.stack_groups if group not in self.policy.groups))

    @property
    def elastic_tag(self) -> str:
        return self.elastic.of(self.policy.cluster)


@dataclass(frozen=True)
class View:
    """A node's present state. `tags` is None while the tags are unknown. `leave_reason` is None if nothing makes the
    node leave. `unseen` is the number of consecutive describe calls that did not show the node. `changes_at` is the
    next time at which the node's state changes without new facts.

    `launched` says that the cluster's launch template launched the node. `proven` says that the launch template, a
    group of the cluster or the node's part in the job shows that the cluster owns the node. Tags alone do not prove
    that the cluster owns the node, because users can set tags. `requested` says that the node carries or carried the
    cluster's elastic tag, or took part in the cluster's job. While `elastic_assumed` is set, the node may turn out to
    be a base node.
    """

    instance: str  # EC2 instance id
    facts: NodeFacts
    tags: Mapping[str, str] | None  # None: unknown
    elastic: bool  # the elastic tag asks the node to join
    base: bool  # a base node
    master: bool  # tagged as master
    owned: bool  # carries the ownership tag
    requested: bool  # somebody asked it to join
    state: InstanceState | None
    terminated: bool  # the instance was terminated; final
    group: str | None  # the Auto Scaling group's name
    phase: Phase | None  # in the group
    preparation: Preparation | None  # the last report about it
    heard: SignOfLife | None  # the last sign of life
    leave_by: float | None  # when AWS takes the machine
    leave_reason: Reason | None  # None: nothing makes it leave
    status_tag: str | None  # value of the tag that shows the status
    settles_at: float | None  # until then `elastic` may be wrong
    unseen: int = 0  # consecutive describe calls without the node
    changes_at: float | None = None  # next change without new facts
    launched: bool = False  # by the cluster's launch template
    base_tagged: bool = False  # carries the base tag now
    proven: bool = False  # not only tags say that the cluster owns it
    elastic_assumed: bool = False  # `elastic` stands for an elastic tag that no describe call has shown

    @property
    def prepared(self) -> bool:
        return self.preparation is not None and self.preparation.outcome == "prepared" and self.phase != "warm"

    @property
    def wanted(self) -> bool:  # whether the job should have the node
        closed_and_stopped = self.closed is not None and self.state not in RUNNING
        return not self.terminated and (
            (self.base and not closed_and_stopped) or (self.elastic and self.leave_reason is None)
        )

    @property
    def may_be_base(self) -> bool:
        """Whether the node is a base node, or could turn out to be one when a describe call shows all its tags."""
        return self.base or self.elastic_assumed

    @property
    def started(self) -> float | None:  # when the machine last started
        """The time of the machine's last start. Returns None if the time is unknown."""
        return _start_time(self.facts) or None

    @property
    def closed(self) -> Reason | None:  # why it was stopped or terminated
        """Why the controller stopped or terminated this base node when it closed the cluster. Returns None if the
        closing did not affect this node, or if somebody has started the node again.
        """
        closed_ack = self.facts.acks.closed
        if closed_ack is None or not self.base or (self.started or 0.0) > closed_ack.at:
            return None
        return (
            Reason(closed_ack.value) if closed_ack.value in set(Reason) else Reason.STOPPED
        )  # a later version may have stored a new reason

    @property
    def alive(self) -> bool:  # whether the node reports
        """Whether the node has reported since the machine's last start."""
        return self.heard is not None or self.preparation is not None

    @property
    def terminate_issued(self) -> bool:
        return self.facts.acks.terminate is not None

    def waiting_hooks(self, transition: str) -> list[tuple[str, Hook]]:
        """The node's lifecycle actions of one transition (launch or terminate) that still wait, oldest first."""
        pending_hooks = [
            (key, hook)
            for key, hook in self.facts.hooks.items()
            if hook.transition == transition and not self._is_answered(key)
        ]
        return sorted(pending_hooks, key=lambda item: item[1].sort_key)

    def _is_answered(self, key: str) -> bool:
        lifecycle_result = self.facts.acks.answers.get(key)
        return lifecycle_result is not None and lifecycle_result.result != NO_HEARTBEAT


def view(facts: NodeFacts, rules: Rules, now: float) -> View:
    """Derive the present state of a node. Pure: the same facts, rules and time give the same result."""
    settling_seconds = rules.policy.settling_seconds
    used_reads = preferred_reads(facts, settling_seconds, rules.elastic_tag)
    tags, state = _tags(facts, "tags" in used_reads), _state(facts, "state" in used_reads)
    group, phase = _group(facts, "group" in used_reads, tags)
    preparation = _preparation(facts)
    cluster = rules.policy.cluster
    is_owned = (tags or {}).get(OWNER_TAG) == cluster or cluster in facts.acks.stamps
    elastic, settles_at = _elastic_state(facts, rules, tags, "tags" in used_reads, is_owned or group is not None, now)
    leave_by, changes_at = _leave_deadline(facts, rules.policy, now)
    missed_count = missed_read_count(facts)
    has_base_tag = is_base_value((tags or {}).get(BASE_TAG))
    was_launched = facts.template is not None and facts.template.cluster == cluster
    return View(
        instance=facts.instance,
        facts=facts,
        tags=tags,
        elastic=elastic,
        base=has_base_tag or facts.based is not None,
        master=(tags or {}).get(NODE_TYPE_TAG) == "Master",
        owned=is_owned,
        requested=elastic or _was_requested(facts, rules),
        state=state,
        terminated=facts.terminated,
        group=group,
        phase=phase,
        preparation=preparation,
        heard=facts.heard if facts.heard is not None and facts.heard.at >= _start_time(facts) else None,
        leave_by=leave_by,
        leave_reason=_leave_reason(facts, state, phase, preparation, leave_by, missed_count),
        status_tag=_current_status_tag(facts, settling_seconds),
        settles_at=settles_at,
        unseen=missed_count,
        changes_at=changes_at,
        launched=was_launched,
        base_tagged=has_base_tag,
        elastic_assumed=elastic and rules.elastic_tag not in (tags or {}),
        proven=was_launched or cluster in facts.acks.stamps or cluster in facts.acks.joined or _in_group(facts, rules),
    )


def _was_requested(facts: NodeFacts, rules: Rules) -> bool:
    tag_facts = (facts.tags_event, facts.tags_read)  # facts that an earlier version stored have no `wished`
    has_elastic_tag = any(register is not None and rules.elastic_tag in register.tags for register in tag_facts)
    had_elastic_tag = facts.wished is not None and facts.wished.cluster == rules.policy.cluster
    return has_elastic_tag or had_elastic_tag or rules.policy.cluster in facts.acks.joined


def _in_group(facts: NodeFacts, rules: Rules) -> bool:
    """Whether the node is, or was, a member of one of the cluster's groups, as shown by Auto Scaling or by the node's
    group tag.
    """
    group_facts = [facts.group_event, facts.group_read]
    group_tags = [
        observation.tags.get(GROUP_TAG)
        for observation in (facts.tags_event, facts.tags_read)
        if observation is not None
    ]
    group_names = {observation.group for observation in group_facts if observation is not None} | set(group_tags)
    return any(group in rules.groups for group in group_names)


def _tags(facts: NodeFacts, from_read: bool) -> Mapping[str, str] | None:
    if from_read and facts.tags_read is not None:
        return facts.tags_read.tags
    return facts.tags_event.tags if facts.tags_event is not None else None


def _state(facts: NodeFacts, from_read: bool) -> InstanceState | None:
    if facts.terminated:
        return "terminated"
    if from_read and facts.state_read is not None:
        return facts.state_read.state
    return facts.state_event.state if facts.state_event is not None else None


def _group(facts: NodeFacts, from_read: bool, tags: Mapping[str, str] | None) -> tuple[str | None, Phase | None]:
    if from_read and facts.group_read is not None:
        return facts.group_read.group, facts.group_read.phase
    if facts.group_event is not None:
        return facts.group_event.group, facts.group_event.phase
    return (tags or {}).get(GROUP_TAG), None


def _preparation(facts: NodeFacts) -> Preparation | None:
    """The node's latest report about its preparation. A report from before the machine's last start is ignored."""
    started_at = _start_time(facts)
    return facts.preparation if facts.preparation is not None and facts.preparation.at >= started_at else None


def _start_time(facts: NodeFacts) -> float:
    launched_at = facts.state_read.launched_at if facts.state_read is not None else None
    return max(facts.started_at, launched_at or 0.0)


def _elastic_state(
    facts: NodeFacts,
    rules: Rules,
    tags: Mapping[str, str] | None,
    from_read: bool,
    launched_for_cluster: bool,
    now: float,
) -> tuple[bool, float | None]:
    """Whether the node is elastic, and the time until which this answer may still be wrong. A describe call soon after
    the launch may not show all tags yet, so the call does not prove that a tag is missing. Until a later describe call,
    an instance that was launched for the cluster is treated as an instance with the elastic tag.
    """
    if tags is None or rules.elastic_tag in tags:
        return (tags is not None), None
    launched_at = facts.state_read.launched_at if facts.state_read is not None else None
    is_base = facts.based is not None or is_base_value(tags.get(BASE_TAG))
    if from_read and launched_for_cluster and not is_base and launched_at is not None and facts.tags_read is not None:
        settled_at = launched_at + rules.policy.settling_seconds
        if facts.tags_read.started < settled_at:
            return True, settled_at if now < settled_at else None
    return False, None


def _leave_deadline(facts: NodeFacts, policy: ClusterPolicy, now: float) -> tuple[float | None, float | None]:
    """The earliest time by which the running machine must leave the cluster, and the next time at which this deadline
    changes without new facts.

    A notice whose deadline passed long ago is no reason to leave, because AWS did not take the machine. Scheduled
    maintenance is a reason to leave only once the time before the maintenance is at most the `notice_lead_seconds` of
    the cluster's policy.
    """
    lead_seconds = policy.notice_lead_seconds
    latest_by_ref: dict[str, Notice] = {}
    for notice in facts.notices:
        if notice.ref:
            latest_by_ref[notice.ref] = max(
                notice,
                latest_by_ref.get(notice.ref, notice),
                key=lambda other: (other.said_at, other.closed, other.sort_key),
            )
    rebalance_rule = Rebalance(policy.rebalance, policy.rebalance_grace_seconds)
    open_notices = [
        notice.model_copy(update={"deadline": deadline})
        for notice in (*(notice for notice in facts.notices if not notice.ref), *latest_by_ref.values())
        if not notice.closed
        and not (
            notice.kind == GROUP_ENDS and policy.leave_windows
        )  # the group's lifecycle hook limits how long the node stays
        and (deadline := rebalance_rule.deadline(notice.kind, notice.deadline)) is not None
    ]
    near_deadlines = [
        notice.deadline
        for notice in open_notices
        if notice.deadline >= facts.started_at
        and notice.deadline - _lead_seconds(notice, lead_seconds) <= now <= notice.deadline + OUTLIVED_SECONDS
    ]
    lead_times = [notice.deadline - _lead_seconds(notice, lead_seconds) for notice in open_notices]
    later_lead_times = [lead_time for lead_time in lead_times if lead_time > now]
    expiry_times = [deadline + OUTLIVED_SECONDS for deadline in near_deadlines]
    return min(near_deadlines, default=None), min([*later_lead_times, *expiry_times], default=None)


def _lead_seconds(notice: Notice, maintenance_lead_seconds: float) -> float:
    return maintenance_lead_seconds if notice.kind == "health" else float("inf")


def missed_read_count(facts: NodeFacts) -> int:
    """The number of consecutive describe calls that did not show the instance."""
    missed_reads = facts.acks.unseen
    return missed_reads.times if missed_reads is not None else 0


def next_describe_at(facts: NodeFacts, period: float) -> float:
    """The time of the next describe call for an instance that EC2 did not show. The pause before the next describe call
    doubles with each call, up to an hour.
    """
    missed_reads = facts.acks.unseen
    if missed_reads is None or not missed_reads.times:
        return 0.0
    pause_seconds: float = min(
        period * 2 ** min(missed_reads.times - 1, 16), max(LONGEST_DESCRIBE_PAUSE_SECONDS, period)
    )
    return missed_reads.at + pause_seconds


def launch_abandoned(facts: NodeFacts) -> bool:
    """Whether the controller abandoned a launch of this instance. The Auto Scaling group terminates an instance with an
    abandoned launch, whatever the instance reports later.
    """
    launch_results = [facts.acks.answers.get(key) for key, hook in facts.hooks.items() if hook.transition == "launch"]
    return any(launch_result is not None and launch_result.result == "ABANDON" for launch_result in launch_results)


def _leave_reason(
    facts: NodeFacts,
    state: InstanceState | None,
    phase: Phase | None,
    preparation: Preparation | None,
    leave_by: float | None,
    unseen: int,
) -> Reason | None:
    if facts.acks.terminate is not None:
        return Reason.TERMINATE_ISSUED
    if launch_abandoned(facts):
        return Reason.ABANDONED
    if phase in ("terminating", "left"):
        return Reason.GROUP_TERMINATES
    if state in ("stopping", "stopped", "shutting-down", "terminated"):
        return Reason.STOPPED
    if leave_by is not None:
        return Reason.INTERRUPTED
    if preparation is not None and preparation.outcome == "worker_failed":
        return Reason.WORKER_FAILED
    if unseen >= MAX_UNSEEN_CALLS:
        return Reason.UNKNOWN_TO_EC2
    return None


def _current_status_tag(facts: NodeFacts, settling: float) -> str | None:
    """The value of the node's status tag. The value that the controller wrote last is used until a describe call begins
    later than the settling margin after the write. After a later describe call, the value that the call shows is used.
    """
    written_tag, tags_read = facts.acks.mirror, facts.tags_read
    if tags_read is not None and (written_tag is None or tags_read.started > written_tag.at + settling):
        return tags_read.tags.get(STATUS_TAG)
    return written_tag.value if written_tag is not None else None
