"""The response to failed launches: lower a group's desired capacity to its running members, and raise the capacity
again after a cool-down. The cool-down grows with each failure.

Without this response, a group for which AWS has no capacity retries its launches for ever. AWS suspends such a group
after a day, and the group never recovers by itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from dyntrain.controller.contract.messages import ClusterPolicy
from dyntrain.controller.core.records.groups import Capacity, GroupFacts, GroupSize, LaunchFailure

FAILURE_VALID_SECONDS = 900.0  # older failures, such as those replayed from an archive, are ignored
LONGEST_COOLDOWN_SECONDS = 7200.0  # seconds


@dataclass(frozen=True)
class CapacityPlan:
    """A change of a group's desired capacity. The controller stores `memory`, and then sets the group's capacity to
    `desired`. If `desired` is None, the controller only stores `memory`.
    """

    memory: Capacity  # the response as stored in the group's facts
    desired: int | None  # the new desired capacity
    why: Literal["LOWERED", "FILLED_BACK", "REPEATED", "NOTHING_TO_LOWER", "CHANGED_BY_OTHERS"]


def cooldown_seconds(times: int, policy: ClusterPolicy) -> float:
    return float(
        min(
            policy.launch_cooldown_seconds * 2 ** min(times - 1, 20),
            max(LONGEST_COOLDOWN_SECONDS, policy.launch_cooldown_seconds),
        )
    )


def needs_size(facts: GroupFacts, policy: ClusterPolicy, now: float) -> bool:
    """Whether the decision on the group's capacity needs the group's present size."""
    memory = facts.capacity
    if _unanswered_failure(facts, now) is not None:
        return True
    if memory is None:
        return False
    return not memory.done or (
        memory.wanted > memory.desired and now >= memory.at + cooldown_seconds(memory.times, policy)
    )


def plan_capacity(
    facts: GroupFacts, size: GroupSize, policy: ClusterPolicy, now: float, lowered: int = 0
) -> CapacityPlan | None:
    """The change of the group's capacity. Returns None if nothing is to change. `size` is the group's size as just
    read.

    `lowered` is the number by which the controller has lowered the capacity since its last response, because people
    asked members to leave. So this reduction does not count as a change by a person or the pool.
    """
    memory = _lowered_memory(facts.capacity, lowered)
    if memory is not None and not memory.done:
        desired = min(max(memory.desired, size.minimum), size.maximum)  # the limits may have changed since
        return CapacityPlan(memory.model_copy(update={"at": now, "desired": desired}), desired, "REPEATED")
    failure = _unanswered_failure(facts, now)
    if failure is not None:
        return _lowering_plan(failure, memory, facts.capacity, size, policy, now)
    if memory is None or memory.wanted <= memory.desired or now < memory.at + cooldown_seconds(memory.times, policy):
        return None
    if size.desired != memory.desired:  # keep a later change by a person or the pool
        settled_memory = memory.model_copy(update={"at": now, "wanted": size.desired, "desired": size.desired})
        return CapacityPlan(settled_memory, None, "CHANGED_BY_OTHERS")
    raised_size = min(memory.wanted, size.maximum)
    return CapacityPlan(
        memory.model_copy(update={"at": now, "wanted": raised_size, "desired": raised_size, "done": False}),
        raised_size,
        "FILLED_BACK",
    )


def _unanswered_failure(facts: GroupFacts, now: float) -> LaunchFailure | None:
    """The failed launch to which the controller has not responded yet. A decision after the time of the failure counts
    as the response, even if the event about the failure arrives later. Lowering the capacity again would terminate
    members that were launched since.
    """
    failure, memory = facts.failed, facts.capacity
    answered_until_at = (
        now - FAILURE_VALID_SECONDS if memory is None else max(now - FAILURE_VALID_SECONDS, memory.failure, memory.at)
    )
    return None if failure is None or failure.at <= answered_until_at else failure


def _lowered_memory(memory: Capacity | None, lowered: int) -> Capacity | None:
    if memory is None or not lowered:
        return memory
    desired, wanted = max(memory.desired - lowered, 0), max(memory.wanted - lowered, 0)
    return memory.model_copy(update={"desired": desired, "wanted": wanted})


def _lowering_plan(
    failure: LaunchFailure,
    memory: Capacity | None,
    stored: Capacity | None,
    size: GroupSize,
    policy: ClusterPolicy,
    now: float,
) -> CapacityPlan:
    failed_again = memory is not None and now - memory.at < 2 * cooldown_seconds(memory.times + 1, policy)
    times = memory.times + 1 if memory is not None and failed_again else 1
    lowered_size = max(size.running, size.minimum)
    if lowered_size >= size.desired:
        awaits_raise = memory is not None and memory.wanted > memory.desired
        kept_memory = (
            stored  # keeps its time, since when the controller's own reductions are counted
            if awaits_raise and stored is not None
            else Capacity(at=now, failure=0.0, wanted=0, desired=0, times=times - 1, done=True)
        )
        return CapacityPlan(kept_memory.model_copy(update={"failure": failure.at}), None, "NOTHING_TO_LOWER")
    wanted = max(
        size.desired, memory.wanted if memory is not None and failed_again and size.desired == memory.desired else 0
    )
    return CapacityPlan(
        Capacity(at=now, failure=failure.at, wanted=wanted, desired=lowered_size, times=times, done=False),
        lowered_size,
        "LOWERED",
    )
