"""The response to failed launches: lower an Auto Scaling group's desired capacity to the number of its running members,
and raise the capacity again after a cool-down. Each further failure doubles the cool-down, up to a limit.

Without a lowered desired capacity, a group for which AWS has no instances would repeat its launches for ever. AWS
suspends a group whose launches fail for a day, and a suspended group never recovers by itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from dyntrain.controller.contract.messages import ClusterPolicy
from dyntrain.controller.core.records.groups import Capacity, GroupFacts, GroupSize, LaunchFailure

FAILURE_VALID_SECONDS = 900.0  # older failures, such as those replayed from an archive, are ignored
LONGEST_COOLDOWN_SECONDS = 7200.0


@dataclass(frozen=True)
class CapacityPlan:
    """A change of a group's desired capacity. The controller stores `memory`, its record of the change, and then sets
    the group's desired capacity to `desired`. If `desired` is None, the controller only stores `memory`.
    """

    memory: Capacity  # the response as stored in the group's facts
    desired: int | None  # the new desired capacity
    why: Literal["LOWERED", "FILLED_BACK", "REPEATED", "NOTHING_TO_LOWER", "CHANGED_BY_OTHERS"]


def cooldown_seconds(failure_count: int, policy: ClusterPolicy) -> float:
    return float(
        min(
            policy.launch_cooldown_seconds * 2 ** min(failure_count - 1, 20),
            max(LONGEST_COOLDOWN_SECONDS, policy.launch_cooldown_seconds),
        )
    )


def needs_size(facts: GroupFacts, policy: ClusterPolicy, now: float) -> bool:
    """Whether the decision on the group's desired capacity needs the group's present size, which the caller has to read
    from AWS.
    """
    past_response = facts.capacity
    if _unanswered_failure(facts, now) is not None:
        return True
    if past_response is None:
        return False
    return not past_response.done or (
        past_response.wanted > past_response.desired
        and now >= past_response.at + cooldown_seconds(past_response.times, policy)
    )


def plan_capacity(
    facts: GroupFacts, size: GroupSize, policy: ClusterPolicy, now: float, lowered: int = 0
) -> CapacityPlan | None:
    """The change of the group's desired capacity that is due now. Returns None if neither the capacity nor its record
    has to change. `size` is the group's size, which the caller has just read from AWS.

    `lowered` is the number by which the controller has lowered the capacity since its last response to failed launches,
    because users asked members to leave. Because `lowered` is known, the controller does not mistake its own reduction
    of the capacity for a change by a user or by the rules of the reserved pool.
    """
    past_response = _lowered_response(facts.capacity, lowered)
    if past_response is not None and not past_response.done:
        desired = min(max(past_response.desired, size.minimum), size.maximum)  # the limits may have changed since
        return CapacityPlan(past_response.model_copy(update={"at": now, "desired": desired}), desired, "REPEATED")
    failure = _unanswered_failure(facts, now)
    if failure is not None:
        return _lowering_plan(failure, past_response, facts.capacity, size, policy, now)
    if (
        past_response is None
        or past_response.wanted <= past_response.desired
        or now < past_response.at + cooldown_seconds(past_response.times, policy)
    ):
        return None
    if size.desired != past_response.desired:  # keep a later change by a person or the pool
        new_response = past_response.model_copy(update={"at": now, "wanted": size.desired, "desired": size.desired})
        return CapacityPlan(new_response, None, "CHANGED_BY_OTHERS")
    raised_size = min(past_response.wanted, size.maximum)
    return CapacityPlan(
        past_response.model_copy(update={"at": now, "wanted": raised_size, "desired": raised_size, "done": False}),
        raised_size,
        "FILLED_BACK",
    )


def _unanswered_failure(facts: GroupFacts, now: float) -> LaunchFailure | None:
    """The failed launch to which the controller has not responded yet. A decision that was made after a launch failed
    is the response to the failure, even if the event about the failure arrives later. A second response to one failure
    would lower the capacity again, and so terminate members that were launched after the first response.
    """
    failure, past_response = facts.failed, facts.capacity
    failures_answered_until = (
        now - FAILURE_VALID_SECONDS
        if past_response is None
        else max(now - FAILURE_VALID_SECONDS, past_response.failure, past_response.at)
    )
    return None if failure is None or failure.at <= failures_answered_until else failure


def _lowered_response(past_response: Capacity | None, lowered: int) -> Capacity | None:
    if past_response is None or not lowered:
        return past_response
    lowered_capacities = {
        "desired": max(past_response.desired - lowered, 0),
        "wanted": max(past_response.wanted - lowered, 0),
    }
    return past_response.model_copy(update=lowered_capacities)


def _lowering_plan(
    failure: LaunchFailure,
    past_response: Capacity | None,
    stored: Capacity | None,
    size: GroupSize,
    policy: ClusterPolicy,
    now: float,
) -> CapacityPlan:
    failed_again = past_response is not None and now - past_response.at < 2 * cooldown_seconds(
        past_response.times + 1, policy
    )
    failure_count = past_response.times + 1 if past_response is not None and failed_again else 1
    lowered_size = max(size.running, size.minimum)
    if lowered_size >= size.desired:
        awaits_increase = past_response is not None and past_response.wanted > past_response.desired
        kept_response = (
            stored  # keeps its time, since when the controller's own reductions are counted
            if awaits_increase and stored is not None
            else Capacity(at=now, failure=0.0, wanted=0, desired=0, times=failure_count - 1, done=True)
        )
        return CapacityPlan(kept_response.model_copy(update={"failure": failure.at}), None, "NOTHING_TO_LOWER")
    capacity_to_restore = max(
        size.desired,
        past_response.wanted
        if past_response is not None and failed_again and size.desired == past_response.desired
        else 0,
    )
    return CapacityPlan(
        Capacity(
            at=now,
            failure=failure.at,
            wanted=capacity_to_restore,
            desired=lowered_size,
            times=failure_count,
            done=False,
        ),
        lowered_size,
        "LOWERED",
    )
