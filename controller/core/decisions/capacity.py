"""The response to failed launches: lower a group's desired capacity to its running members, and raise the capacity
again after a cool-down. The cool-down grows with each failure.

Otherwise a group for which AWS has no capacity retries for ever. AWS suspends such a group after a day, and the group
never recovers by itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from dyntrain.controller.contract.messages import ClusterPolicy
from dyntrain.controller.core.records.groups import Capacity, GroupFacts, GroupSize, LaunchFailure

FAILURE_VALID_SECONDS = 900.0  # older failures, such as those replayed from an archive, are ignored
LONGEST_COOLDOWN = 7200.0


@dataclass(frozen=True)
class CapacityPlan:
    """A change of a group's desired capacity. `memory` is stored before `desired` is set. With `desired` None, only
    `memory` is stored.
    """

    memory: Capacity
    desired: int | None
    why: Literal["LOWERED", "FILLED_BACK", "REPEATED", "NOTHING_TO_LOWER", "CHANGED_BY_OTHERS"]


def cooldown(times: int, policy: ClusterPolicy) -> float:
    return float(
        min(
            policy.launch_cooldown_seconds * 2 ** min(times - 1, 20),
            max(LONGEST_COOLDOWN, policy.launch_cooldown_seconds),
        )
    )


def needs_size(facts: GroupFacts, policy: ClusterPolicy, now: float) -> bool:
    """Whether a decision needs the group's present size."""
    memory = facts.capacity
    if _unanswered_failure(facts, now) is not None:
        return True
    if memory is None:
        return False
    return not memory.done or (memory.wanted > memory.desired and now >= memory.at + cooldown(memory.times, policy))


def plan_capacity(
    facts: GroupFacts, size: GroupSize, policy: ClusterPolicy, now: float, lowered: int = 0
) -> CapacityPlan | None:
    """The change of the group's capacity; None: no change. `size` was just read.

    `lowered` counts the places that the controller itself has removed since its last response, because people asked
    members to leave. This reduction is not taken for a change by others.
    """
    memory = _lowered_memory(facts.capacity, lowered)
    if memory is not None and not memory.done:
        desired = min(max(memory.desired, size.minimum), size.maximum)  # the limits may have changed since
        return CapacityPlan(memory.model_copy(update={"at": now, "desired": desired}), desired, "REPEATED")
    failure = _unanswered_failure(facts, now)
    if failure is not None:
        return _lowering_plan(failure, memory, facts.capacity, size, policy, now)
    if memory is None or memory.wanted <= memory.desired or now < memory.at + cooldown(memory.times, policy):
        return None
    if size.desired != memory.desired:  # keep a later change by a person or the pool
        settled = memory.model_copy(update={"at": now, "wanted": size.desired, "desired": size.desired})
        return CapacityPlan(settled, None, "CHANGED_BY_OTHERS")
    wanted = min(memory.wanted, size.maximum)
    return CapacityPlan(
        memory.model_copy(update={"at": now, "wanted": wanted, "desired": wanted, "done": False}), wanted, "FILLED_BACK"
    )


def _unanswered_failure(facts: GroupFacts, now: float) -> LaunchFailure | None:
    """The failed launch that still needs a response. A decision after the failure counts as the response, even when the
    failure's event arrives late. Lowering the capacity again would terminate members that were launched since.
    """
    failure, memory = facts.failed, facts.capacity
    answered_until = (
        now - FAILURE_VALID_SECONDS if memory is None else max(now - FAILURE_VALID_SECONDS, memory.failure, memory.at)
    )
    return None if failure is None or failure.at <= answered_until else failure


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
    repeated = memory is not None and now - memory.at < 2 * cooldown(memory.times + 1, policy)
    times = memory.times + 1 if memory is not None and repeated else 1
    lowered_size = max(size.running, size.minimum)
    if lowered_size >= size.desired:
        awaits_raise = memory is not None and memory.wanted > memory.desired
        kept = (
            stored  # keeps its time, since when the controller's own reductions are counted
            if awaits_raise and stored is not None
            else Capacity(at=now, failure=0.0, wanted=0, desired=0, times=times - 1, done=True)
        )
        return CapacityPlan(kept.model_copy(update={"failure": failure.at}), None, "NOTHING_TO_LOWER")
    wanted = max(
        size.desired, memory.wanted if memory is not None and repeated and size.desired == memory.desired else 0
    )
    return CapacityPlan(
        Capacity(at=now, failure=failure.at, wanted=wanted, desired=lowered_size, times=times, done=False),
        lowered_size,
        "LOWERED",
    )
