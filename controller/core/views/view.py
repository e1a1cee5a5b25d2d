"""A node's present state. The module `arbitration` decides which value counts when events and reads of the node
disagree.
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
from dyntrain.controller.core.views.arbitration import RUNNING, reads_that_count
from dyntrain.controller.core.views.reasons import Reason

GROUP_TAG = "aws:autoscaling:groupName"
OUTLIVED_SECONDS = 900.0  # a machine that still runs so long after its deadline will not be taken
LONGEST_DESCRIBE_PAUSE = 3600.0
MAX_UNSEEN_CALLS = 7  # in about an hour; then the node leaves, but may return, because NotFound is not final


@dataclass(frozen=True)
class Rules:
    """The policy and the tags on which the decisions about one cluster depend."""

    policy: ClusterPolicy
    elastic: ElasticTag = ELASTIC_TAG
    stack_groups: tuple[str, ...] = ()

    @property
    def groups(self) -> tuple[str, ...]:
        """The cluster's Auto Scaling groups: those in its policy, then those that its own stack made (`stack_groups`).
        No tag that people can set adds a group.
        """
        return (*self.policy.groups, *(group for group in self.stack_groups if group not in self.policy.groups))

    @property
    def elastic_tag(self) -> str:
        return self.elastic.of(self.policy.cluster)


@dataclass(frozen=True)
class View:
    """A node's present state. `tags` None: the tags are unknown. `leave_reason` None: nothing makes the node leave.
    `unseen` is the number of consecutive describe calls that did not show the node. `changes_at` is the time when the
    view changes by itself.

    `launched`: the node came from the cluster's launch template. `proven`: the launch template, a group of the cluster
    or a part in its job shows that the node is the cluster's; tags prove nothing, because people can set tags.
    `requested`: the node carries or carried the cluster's elastic tag, or took part in its job.
    """

    instance: str
    facts: NodeFacts
    tags: Mapping[str, str] | None
    elastic: bool
    base: bool
    master: bool
    owned: bool
    requested: bool
    state: InstanceState | None
    terminated: bool
    group: str | None
    phase: Phase | None
    preparation: Preparation | None
    heard: SignOfLife | None
    leave_by: float | None
    leave_reason: Reason | None
    status_tag: str | None
    settles_at: float | None
    unseen: int = 0
    changes_at: float | None = None
    launched: bool = False
    base_tagged: bool = False
    proven: bool = False

    @property
    def prepared(self) -> bool:
        return self.preparation is not None and self.preparation.outcome == "prepared" and self.phase != "warm"

    @property
    def wanted(self) -> bool:
        closed_and_stopped = self.closed is not None and self.state not in RUNNING
        return not self.terminated and (
            (self.base and not closed_and_stopped) or (self.elastic and self.leave_reason is None)
        )

    @property
    def started(self) -> float | None:
        """The time of the machine's last start; None when unknown."""
        return _life_began(self.facts) or None

    @property
    def closed(self) -> Reason | None:
        """Why the controller has stopped or terminated the node as a base node of a closed cluster; The result is None
        after somebody started the node again.
        """
        mark = self.facts.acks.closed
        if mark is None or not self.base or (self.started or 0.0) > mark.at:
            return None
        return (
            Reason(mark.value) if mark.value in set(Reason) else Reason.STOPPED
        )  # a later version may have stored a new reason

    @property
    def alive(self) -> bool:
        """Whether the node has reported since the machine's last start."""
        return self.heard is not None or self.preparation is not None

    @property
    def terminate_issued(self) -> bool:
        return self.facts.acks.terminate is not None

    def waiting_hooks(self, transition: str) -> list[tuple[str, Hook]]:
        """The lifecycle actions of this transition that wait for completion, oldest first."""
        hooks = [
            (key, hook)
            for key, hook in self.facts.hooks.items()
            if hook.transition == transition and not self._answered(key)
        ]
        return sorted(hooks, key=lambda item: item[1].order)

    def _answered(self, key: str) -> bool:
        answer = self.facts.acks.answers.get(key)
        return answer is not None and answer.result != NO_HEARTBEAT


def view(facts: NodeFacts, rules: Rules, now: float) -> View:
    """Derive the view of a node. Pure: the same facts, rules and time give the same view."""
    settling = rules.policy.settling_seconds
    reads = reads_that_count(facts, settling, rules.elastic_tag)
    tags, state = _tags(facts, "tags" in reads), _state(facts, "state" in reads)
    group, phase = _group(facts, "group" in reads, tags)
    preparation = _preparation(facts)
    cluster = rules.policy.cluster
    owned = (tags or {}).get(OWNER_TAG) == cluster or cluster in facts.acks.stamps
    elastic, settles_at = _elastic(facts, rules, tags, "tags" in reads, owned or group is not None, now)
    leave_by, changes_at = _leave_by(facts, rules.policy, now)
    unseen = unseen_times(facts)
    base_tagged = is_base_value((tags or {}).get(BASE_TAG))
    launched = facts.template is not None and facts.template.cluster == cluster
    return View(
        instance=facts.instance,
        facts=facts,
        tags=tags,
        elastic=elastic,
        base=base_tagged or facts.based is not None,
        master=(tags or {}).get(NODE_TYPE_TAG) == "Master",
        owned=owned,
        requested=elastic or _requested(facts, rules),
        state=state,
        terminated=facts.terminated,
        group=group,
        phase=phase,
        preparation=preparation,
        heard=facts.heard if facts.heard is not None and facts.heard.at >= _life_began(facts) else None,
        leave_by=leave_by,
        leave_reason=_leave_reason(facts, state, phase, preparation, leave_by, unseen),
        status_tag=_current_status_tag(facts, settling),
        settles_at=settles_at,
        unseen=unseen,
        changes_at=changes_at,
        launched=launched,
        base_tagged=base_tagged,
        proven=launched or cluster in facts.acks.stamps or cluster in facts.acks.joined or _in_group(facts, rules),
    )


def _requested(facts: NodeFacts, rules: Rules) -> bool:
    registers = (facts.tags_event, facts.tags_read)  # facts that an earlier version stored have no `wished`
    tagged = any(register is not None and rules.elastic_tag in register.tags for register in registers)
    wished = facts.wished is not None and facts.wished.cluster == rules.policy.cluster
    return tagged or wished or rules.policy.cluster in facts.acks.joined


def _in_group(facts: NodeFacts, rules: Rules) -> bool:
    """Whether the node is, or was, a member of one of the cluster's groups, by Auto Scaling or by its tag."""
    readings = [facts.group_event, facts.group_read]
    tags = [register.tags.get(GROUP_TAG) for register in (facts.tags_event, facts.tags_read) if register is not None]
    groups = {register.group for register in readings if register is not None} | set(tags)
    return any(group in rules.groups for group in groups)


def _tags(facts: NodeFacts, read: bool) -> Mapping[str, str] | None:
    if read and facts.tags_read is not None:
        return facts.tags_read.tags
    return facts.tags_event.tags if facts.tags_event is not None else None


def _state(facts: NodeFacts, read: bool) -> InstanceState | None:
    if facts.terminated:
        return "terminated"
    if read and facts.state_read is not None:
        return facts.state_read.state
    return facts.state_event.state if facts.state_event is not None else None


def _group(facts: NodeFacts, read: bool, tags: Mapping[str, str] | None) -> tuple[str | None, Phase | None]:
    if read and facts.group_read is not None:
        return facts.group_read.group, facts.group_read.phase
    if facts.group_event is not None:
        return facts.group_event.group, facts.group_event.phase
    return (tags or {}).get(GROUP_TAG), None


def _preparation(facts: NodeFacts) -> Preparation | None:
    """The node's preparation. A report from before the machine's last start is ignored."""
    start = _life_began(facts)
    return facts.preparation if facts.preparation is not None and facts.preparation.at >= start else None


def _life_began(facts: NodeFacts) -> float:
    launched = facts.state_read.launched_at if facts.state_read is not None else None
    return max(facts.started_at, launched or 0.0)


def _elastic(
    facts: NodeFacts,
    rules: Rules,
    tags: Mapping[str, str] | None,
    from_read: bool,
    launched_for_cluster: bool,
    now: float,
) -> tuple[bool, float | None]:
    """Whether the node is elastic, and when this answer settles. A read soon after the launch may not show all tags
    yet, and never proves that a tag is missing. Until a later read, an instance that was launched for the cluster
    counts as tagged.
    """
    if tags is None or rules.elastic_tag in tags:
        return (tags is not None), None
    launched = facts.state_read.launched_at if facts.state_read is not None else None
    based = facts.based is not None or is_base_value(tags.get(BASE_TAG))
    if from_read and launched_for_cluster and not based and launched is not None and facts.tags_read is not None:
        settled_at = launched + rules.policy.settling_seconds
        if facts.tags_read.started < settled_at:
            return True, settled_at if now < settled_at else None
    return False, None


def _leave_by(facts: NodeFacts, policy: ClusterPolicy, now: float) -> tuple[float | None, float | None]:
    """The earliest deadline that concerns the running machine, and the time when this answer changes by itself.

    A machine that runs past its deadline was not taken, so an old or archived notice is no reason to leave. Scheduled
    maintenance is no reason to leave before its lead time.
    """
    lead = policy.notice_lead_seconds
    by_ref: dict[str, Notice] = {}
    for notice in facts.notices:
        if notice.ref:
            by_ref[notice.ref] = max(
                notice, by_ref.get(notice.ref, notice), key=lambda n: (n.said_at, n.closed, n.order)
            )
    rebalance_rule = Rebalance(policy.rebalance, policy.rebalance_grace_seconds)
    open_notices = [
        notice.model_copy(update={"deadline": deadline})
        for notice in (*(n for n in facts.notices if not n.ref), *by_ref.values())
        if not notice.closed
        and not (
            notice.kind == GROUP_ENDS and policy.leave_windows
        )  # the group's lifecycle hook limits how long the node stays
        and (deadline := rebalance_rule.deadline(notice.kind, notice.deadline)) is not None
    ]
    near_deadlines = [
        n.deadline
        for n in open_notices
        if n.deadline >= facts.started_at
        and n.deadline - _lead_seconds(n, lead) <= now <= n.deadline + OUTLIVED_SECONDS
    ]
    later_starts = [
        n.deadline - _lead_seconds(n, lead) for n in open_notices if n.deadline - _lead_seconds(n, lead) > now
    ]
    ends = [deadline + OUTLIVED_SECONDS for deadline in near_deadlines]
    return min(near_deadlines, default=None), min([*later_starts, *ends], default=None)


def _lead_seconds(notice: Notice, lead: float) -> float:
    return lead if notice.kind == "health" else float("inf")


def unseen_times(facts: NodeFacts) -> int:
    """The number of consecutive describe calls that did not show the instance."""
    unseen = facts.acks.unseen
    return unseen.times if unseen is not None else 0


def ask_again_at(facts: NodeFacts, period: float) -> float:
    """When to describe again an instance that EC2 does not show. The pause doubles each time, up to an hour."""
    unseen = facts.acks.unseen
    if unseen is None or not unseen.times:
        return 0.0
    pause: float = min(period * 2 ** min(unseen.times - 1, 16), max(LONGEST_DESCRIBE_PAUSE, period))
    return unseen.at + pause


def launch_abandoned(facts: NodeFacts) -> bool:
    """Whether a launch of this instance was answered with ABANDON. The group then terminates the instance, whatever the
    instance reports later.
    """
    answers = [facts.acks.answers.get(key) for key, hook in facts.hooks.items() if hook.transition == "launch"]
    return any(answer is not None and answer.result == "ABANDON" for answer in answers)


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
    """The status tag as the controller wrote it, or as a later settled read found it."""
    written, read = facts.acks.mirror, facts.tags_read
    if read is not None and (written is None or read.started > written.at + settling):
        return read.tags.get(STATUS_TAG)
    return written.value if written is not None else None
