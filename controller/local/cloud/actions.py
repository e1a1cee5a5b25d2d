"""Auto Scaling calls that the cloud answers without moto. moto lacks some calls, and ignores lifecycle hooks when it
terminates an instance.
"""

from __future__ import annotations

import time
import uuid

from dyntrain.controller.local.calls import Answer, Call, auto_scaling_answer
from dyntrain.controller.local.cloud.groups import Groups
from dyntrain.controller.local.errors import ApiError
from dyntrain.controller.local.events import timestamp


def own_action(groups: Groups, call: Call) -> Answer | None:
    """The cloud's own answer to a call, or None when moto should answer. Raises ApiError."""
    if call.service != "autoscaling":
        return None
    if call.action == "CompleteLifecycleAction":
        return _complete(groups, call)
    if call.action == "RecordLifecycleActionHeartbeat":
        groups.heartbeat(
            _required(call, "AutoScalingGroupName"), _required(call, "LifecycleHookName"), *_token_or_instance(call)
        )
        return auto_scaling_answer(call.action)
    if call.action == "TerminateInstanceInAutoScalingGroup":
        return _terminate(groups, call)
    return None


def _required(call: Call, name: str) -> str:
    value = call.form.get(name)
    if not value:
        raise ApiError(
            "ValidationError",
            f"1 validation error detected: Value null at '{name}' failed to satisfy constraint: Member must not be "
            "null",
        )
    return value


def _token_or_instance(call: Call) -> tuple[str | None, str | None]:
    token, instance_id = call.form.get("LifecycleActionToken"), call.form.get("InstanceId")
    if token is None and instance_id is None:
        raise ApiError("ValidationError", "Either InstanceId or LifecycleActionToken must be specified")
    return token, instance_id


def _complete(groups: Groups, call: Call) -> Answer:
    group, hook = _required(call, "AutoScalingGroupName"), _required(call, "LifecycleHookName")
    result = _required(call, "LifecycleActionResult")
    if result not in ("CONTINUE", "ABANDON"):
        raise ApiError("ValidationError", f"Invalid lifecycle action result {result}")
    groups.complete(group, hook, "CONTINUE" if result == "CONTINUE" else "ABANDON", *_token_or_instance(call))
    return auto_scaling_answer(call.action)


def _terminate(groups: Groups, call: Call) -> Answer:
    instance_id = _required(call, "InstanceId")
    decrement = _required(call, "ShouldDecrementDesiredCapacity").lower() == "true"
    group = groups.terminate(instance_id, decrement=decrement)
    now = timestamp(time.time())
    activity = {
        "ActivityId": str(uuid.uuid4()),
        "AutoScalingGroupName": group,
        "Description": f"Terminating EC2 instance: {instance_id}",
        "Cause": f"At {now} instance {instance_id} was taken out of service in response to a user request.",
        "StartTime": now,
        "StatusCode": "InProgress",
        "Progress": "0",
    }
    return auto_scaling_answer(call.action, activity, "Activity")
