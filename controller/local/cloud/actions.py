"""Auto Scaling API calls that the embedded cloud answers without the AWS emulator moto. The emulator moto lacks the API
calls for lifecycle actions. For TerminateInstanceInAutoScalingGroup, moto ignores lifecycle hooks.
"""

from __future__ import annotations

import time
import uuid

from dyntrain.controller.local.calls import ApiAnswer, ApiCall, auto_scaling_answer
from dyntrain.controller.local.cloud.groups import AutoScalingGroups
from dyntrain.controller.local.errors import ApiError
from dyntrain.controller.local.events import timestamp


def answer_own_action(groups: AutoScalingGroups, call: ApiCall) -> ApiAnswer | None:
    """The embedded cloud's own answer to an API call, or None if the emulator moto should answer the call. Raises
    ApiError when the call is refused.
    """
    if call.service != "autoscaling":
        return None
    if call.action == "CompleteLifecycleAction":
        return _answer_complete_action(groups, call)
    if call.action == "RecordLifecycleActionHeartbeat":
        groups.extend_action(
            _required_parameter(call, "AutoScalingGroupName"),
            _required_parameter(call, "LifecycleHookName"),
            *_token_or_instance(call),
        )
        return auto_scaling_answer(call.action)
    if call.action == "TerminateInstanceInAutoScalingGroup":
        return _answer_terminate_instance(groups, call)
    return None


def _required_parameter(call: ApiCall, name: str) -> str:
    value = call.form.get(name)
    if not value:
        raise ApiError(
            "ValidationError",
            f"1 validation error detected: Value null at '{name}' failed to satisfy constraint: Member must not be "
            "null",
        )
    return value


def _token_or_instance(call: ApiCall) -> tuple[str | None, str | None]:
    token, instance_id = call.form.get("LifecycleActionToken"), call.form.get("InstanceId")
    if token is None and instance_id is None:
        raise ApiError("ValidationError", "Either InstanceId or LifecycleActionToken must be specified")
    return token, instance_id


def _answer_complete_action(groups: AutoScalingGroups, call: ApiCall) -> ApiAnswer:
    group, hook = _required_parameter(call, "AutoScalingGroupName"), _required_parameter(call, "LifecycleHookName")
    result = _required_parameter(call, "LifecycleActionResult")
    if result not in ("CONTINUE", "ABANDON"):
        raise ApiError("ValidationError", f"Invalid lifecycle action result {result}")
    groups.complete_action(group, hook, "CONTINUE" if result == "CONTINUE" else "ABANDON", *_token_or_instance(call))
    return auto_scaling_answer(call.action)


def _answer_terminate_instance(groups: AutoScalingGroups, call: ApiCall) -> ApiAnswer:
    instance_id = _required_parameter(call, "InstanceId")
    decrement_capacity = _required_parameter(call, "ShouldDecrementDesiredCapacity").lower() == "true"
    group = groups.terminate_member(instance_id, decrement_capacity=decrement_capacity)
    now = timestamp(time.time())
    activity_fields = {
        "ActivityId": str(uuid.uuid4()),
        "AutoScalingGroupName": group,
        "Description": f"Terminating EC2 instance: {instance_id}",
        "Cause": f"At {now} instance {instance_id} was taken out of service in response to a user request.",
        "StartTime": now,
        "StatusCode": "InProgress",
        "Progress": "0",
    }
    return auto_scaling_answer(call.action, activity_fields, "Activity")
