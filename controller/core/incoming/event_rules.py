"""The EventBridge patterns that select the events for each handler of `app.py`.

The function `matches` implements the part of EventBridge's pattern language that the patterns of this module use. By
means of `matches`, recorded events can be replayed without Chalice and without an emulation of AWS. The pattern
language is described at https://docs.aws.amazon.com/eventbridge/latest/userguide/eb-event-patterns.html
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dyntrain.controller.contract.elastic_tag import ElasticTag
from dyntrain.controller.contract.leave_windows import LEAVE_TAG

EventPattern = Mapping[str, Any]

_RESERVATION_STATES = (
    "Scheduled",
    "Active",
    "Delayed",
    "Unsupported",
    "Failed",
    "Expired",
    "Cancelled",
    "Interruptible Reclamation Complete",
)
CAPACITY_CHANGE_TYPES = (  # detail-types; AWS's own pages spell those of Capacity Blocks in two ways
    *(f"EC2 Capacity Reservation {word}" for word in _RESERVATION_STATES),
    *(
        f"Capacity Block {word}"
        for word in ("Delivered", "Reservation Delivered", "Expiration Warning", "Reservation Expiration Warning")
    ),
)
INTERRUPTION_TYPES = (  # detail-types of events about interrupted reservations
    "EC2 Capacity Reservation Instance Interruption Warning",
    "EC2 Interruptible Capacity Reservation Instance Interruption Warning",
)


def event_patterns(elastic: ElasticTag) -> dict[str, EventPattern]:
    return {
        "on_tag_change": {
            "source": ["aws.tag"],
            "detail-type": ["Tag Change on Resource"],
            "detail": {
                "service": ["ec2"],
                "resource-type": ["instance"],
                "changed-tag-keys": [{"suffix": elastic.suffix}, LEAVE_TAG],
            },
        },
        "on_lifecycle": {
            "source": ["aws.autoscaling"],
            "detail-type": ["EC2 Instance-launch Lifecycle Action", "EC2 Instance-terminate Lifecycle Action"],
        },
        "on_launch_result": {
            "source": ["aws.autoscaling"],
            "detail-type": [
                "EC2 Instance Launch Successful",
                "EC2 Instance Launch Unsuccessful",
                "EC2 Instance Terminate Successful",
                "EC2 Instance Terminate Unsuccessful",
            ],
        },
        "on_instance_state": {"source": ["aws.ec2"], "detail-type": ["EC2 Instance State-change Notification"]},
        "on_interruption": {
            "source": ["aws.ec2"],
            "detail-type": [
                "EC2 Spot Instance Interruption Warning",
                "EC2 Instance Rebalance Recommendation",
                *INTERRUPTION_TYPES,
            ],
        },
        "on_scheduled_change": {
            "source": ["aws.health"],
            "detail-type": ["AWS Health Event"],
            "detail": {"service": ["EC2"], "eventTypeCategory": ["scheduledChange"]},
        },
        "on_node_report": {"source": ["dyntrain.node", {"prefix": "dyntrain.node."}]},
        "on_job_report": {"source": ["dyntrain.coordinator", {"prefix": "dyntrain.coordinator."}]},
        "on_capacity_change": {"source": ["aws.ec2"], "detail-type": [*CAPACITY_CHANGE_TYPES]},
        "on_demand_change": {
            "source": ["aws.ec2"],
            "detail-type": ["EC2 Instance State-change Notification"],
            "detail": {"state": ["pending", "shutting-down", "stopping", "stopped"]},
        },
    }


def matching_handlers(elastic: ElasticTag, event: Mapping[str, Any]) -> list[str]:
    """The names of the handlers that EventBridge would invoke for the event."""
    return [handler for handler, pattern in event_patterns(elastic).items() if matches(pattern, event)]


def matches(pattern: EventPattern, event: Any) -> bool:
    """Whether the event matches the pattern. Raises NotImplementedError if the pattern contains another operator than
    `suffix` and `prefix`.
    """
    if not isinstance(event, Mapping):
        return False
    return all(
        matches(condition, event.get(name))
        if isinstance(condition, Mapping)
        else _any_matches(condition, event.get(name))
        for name, condition in pattern.items()
    )


def _any_matches(allowed: list[Any], actual: Any) -> bool:
    """Whether the value of an event's field is allowed. If the value is a list, one allowed element of the list is
    enough.
    """
    values = actual if isinstance(actual, list) else [actual]
    return any(_value_matches(rule, value) for rule in allowed for value in values)


def _value_matches(rule: Any, value: Any) -> bool:
    if not isinstance(rule, Mapping):
        return bool(rule == value)
    if set(rule) == {"suffix"}:
        return isinstance(value, str) and value.endswith(rule["suffix"])
    if set(rule) == {"prefix"}:
        return isinstance(value, str) and value.startswith(rule["prefix"])
    raise NotImplementedError(f"the operators {sorted(rule)} of event patterns are not supported")
