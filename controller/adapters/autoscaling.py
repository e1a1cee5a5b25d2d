"""Read and change AWS Auto Scaling groups: members, lifecycle actions, terminations, scale-in protection and sizes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from botocore.exceptions import ClientError
from dyntrain.controller.adapters.aws import Clients, error_code, translated_errors
from dyntrain.controller.contract.messages import BASE_TAG, is_base_value
from dyntrain.controller.core.records.facts import Phase, Transition
from dyntrain.controller.core.records.groups import GroupSize
from dyntrain.controller.loops.ports import SeenMember

if TYPE_CHECKING:
    from mypy_boto3_autoscaling.type_defs import AutoScalingGroupTypeDef, InstanceTypeDef

GROUPS_PER_CALL = 50
# The processes that replace members: without HealthCheck, stopped members are not marked as unhealthy; without
# ReplaceUnhealthy, marked members are not replaced. The controller still needs Launch and Terminate.
# https://docs.aws.amazon.com/autoscaling/ec2/userguide/understand-how-suspending-processes-affects-other-processes.html
REPLACEMENT_PROCESSES = ["HealthCheck", "ReplaceUnhealthy"]
LAUNCH_PROCESSES = ["Launch"]  # a group whose launches are resumed launches its missing members
# A tag of exactly the groups that CloudFormation makes: people cannot set tags with the prefix `aws:`.
# https://docs.aws.amazon.com/AWSCloudFormation/latest/UserGuide/aws-properties-autoscaling-autoscalinggroup-tagproperty.html
STACK_TAG = "aws:cloudformation:stack-name"
INSTANCES_PER_CALL = 50  # ids in one call of SetInstanceProtection


class AutoScalingGroups:
    def __init__(self, clients: Clients) -> None:
        self._clients = clients

    def members(self, groups: Iterable[str]) -> Sequence[SeenMember]:
        group_names = sorted(set(groups))
        members: list[SeenMember | None] = []
        with translated_errors("describing Auto Scaling groups"):
            for start in range(0, len(group_names), GROUPS_PER_CALL):
                paginator = self._clients.autoscaling().get_paginator("describe_auto_scaling_groups")
                for page in paginator.paginate(AutoScalingGroupNames=group_names[start : start + GROUPS_PER_CALL]):
                    for group in page["AutoScalingGroups"]:
                        group_name = group["AutoScalingGroupName"]
                        members.extend(_member_of_group(entry, group_name) for entry in group.get("Instances", []))
        return [member for member in members if member is not None]

    def hooks(self, group: str) -> Mapping[str, Transition]:
        with translated_errors(f"describing the hooks of {group}"):
            hooks = self._clients.autoscaling().describe_lifecycle_hooks(AutoScalingGroupName=group)["LifecycleHooks"]
        transitions: dict[str, Transition] = {
            "autoscaling:EC2_INSTANCE_LAUNCHING": "launch",
            "autoscaling:EC2_INSTANCE_TERMINATING": "terminate",
        }
        return {hook["LifecycleHookName"]: transitions[hook["LifecycleTransition"]] for hook in hooks}

    def complete_action(
        self, instance: str, group: str, hook: str, token: str | None, result: Literal["CONTINUE", "ABANDON"]
    ) -> bool:
        with translated_errors(f"completing hook {hook} of {instance} in {group}"):
            try:
                self._clients.autoscaling().complete_lifecycle_action(
                    LifecycleHookName=hook,
                    AutoScalingGroupName=group,
                    LifecycleActionResult=result,
                    **_action_key(instance, token),
                )
            except ClientError as error:
                return _false_if_action_ended(error)
        return True

    def heartbeat(self, instance: str, group: str, hook: str, token: str | None) -> bool:
        with translated_errors(f"heartbeat of hook {hook} of {instance} in {group}"):
            try:
                self._clients.autoscaling().record_lifecycle_action_heartbeat(
                    LifecycleHookName=hook, AutoScalingGroupName=group, **_action_key(instance, token)
                )
            except ClientError as error:
                return _false_if_action_ended(error)
        return True

    def terminate(self, instance: str, group: str, *, decrement: bool) -> bool:
        with translated_errors(f"terminating {instance} in {group}"):
            try:
                self._clients.autoscaling().terminate_instance_in_auto_scaling_group(
                    InstanceId=instance, ShouldDecrementDesiredCapacity=decrement
                )
            except ClientError as error:
                if error_code(error) == "ValidationError" and "not found" in str(error).lower():
                    return False
                raise
        return True

    def protect(self, instances: Sequence[str], group: str) -> None:  # from scale-in
        with translated_errors(f"protecting instances in {group}"):
            for start in range(0, len(instances), INSTANCES_PER_CALL):
                self._clients.autoscaling().set_instance_protection(
                    InstanceIds=list(instances[start : start + INSTANCES_PER_CALL]),
                    AutoScalingGroupName=group,
                    ProtectedFromScaleIn=True,
                )

    def tagged(self, key: str) -> Mapping[str, str]:  # the tag's value, by group name
        return {group: tags[key] for group, tags in self._group_tags(key).items()}

    def of_own_stacks(self, key: str) -> Mapping[str, str]:  # groups made by the stack that the tag names
        return {group: tags[key] for group, tags in self._group_tags(key).items() if tags.get(STACK_TAG) == tags[key]}

    def _group_tags(self, key: str) -> Mapping[str, Mapping[str, str]]:
        """All tags of each Auto Scaling group that has a tag with the key `key`, by group name."""
        tags_by_group: dict[str, dict[str, str]] = {}
        with translated_errors(f"describing the groups tagged {key}"):
            paginator = self._clients.autoscaling().get_paginator("describe_auto_scaling_groups")
            for page in paginator.paginate(Filters=[{"Name": "tag-key", "Values": [key]}]):
                for group in page["AutoScalingGroups"]:
                    tags = {tag["Key"]: tag.get("Value", "") for tag in group.get("Tags", [])}
                    if key in tags:
                        tags_by_group[group["AutoScalingGroupName"]] = tags
        return tags_by_group

    def sizes(self, groups: Iterable[str]) -> Mapping[str, GroupSize]:
        group_names = sorted(set(groups))
        sizes: dict[str, GroupSize] = {}
        with translated_errors("describing the sizes of Auto Scaling groups"):
            for start in range(0, len(group_names), GROUPS_PER_CALL):
                paginator = self._clients.autoscaling().get_paginator("describe_auto_scaling_groups")
                for page in paginator.paginate(AutoScalingGroupNames=group_names[start : start + GROUPS_PER_CALL]):
                    sizes.update(
                        {group["AutoScalingGroupName"]: _group_size(group) for group in page["AutoScalingGroups"]}
                    )
        return sizes

    def suspend_replacement(self, group: str) -> None:
        with translated_errors(f"suspending the replacement of members of {group}"):
            self._clients.autoscaling().suspend_processes(
                AutoScalingGroupName=group, ScalingProcesses=REPLACEMENT_PROCESSES
            )

    def resume_replacement(self, group: str) -> None:
        with translated_errors(f"resuming the replacement of members of {group}"):
            self._clients.autoscaling().resume_processes(
                AutoScalingGroupName=group, ScalingProcesses=REPLACEMENT_PROCESSES
            )

    def suspend_launches(self, group: str) -> None:
        with translated_errors(f"suspending the launches of {group}"):
            self._clients.autoscaling().suspend_processes(AutoScalingGroupName=group, ScalingProcesses=LAUNCH_PROCESSES)

    def resume_launches(self, group: str) -> None:
        with translated_errors(f"resuming the launches of {group}"):
            self._clients.autoscaling().resume_processes(AutoScalingGroupName=group, ScalingProcesses=LAUNCH_PROCESSES)

    def set_desired(self, group: str, desired: int) -> None:  # capacity
        with translated_errors(f"setting the desired capacity of {group} to {desired}"):
            self._clients.autoscaling().set_desired_capacity(
                AutoScalingGroupName=group, DesiredCapacity=desired, HonorCooldown=False
            )


def _group_size(group: AutoScalingGroupTypeDef) -> GroupSize:
    not_running_states = ("Terminating", "Terminated", "Detach", "Warmed", "Standby")
    running_count = sum(
        not entry["LifecycleState"].startswith(not_running_states) for entry in group.get("Instances", [])
    )
    tags = {tag["Key"]: tag.get("Value", "") for tag in group.get("Tags", [])}
    is_base_group = is_base_value(tags.get(BASE_TAG))
    launches_enabled = all(process.get("ProcessName") != "Launch" for process in group.get("SuspendedProcesses", []))
    return GroupSize(
        group["MinSize"], group["MaxSize"], group["DesiredCapacity"], running_count, is_base_group, launches_enabled
    )


def _action_key(instance: str, token: str | None) -> dict[str, Any]:
    return {"InstanceId": instance, "LifecycleActionToken": token} if token is not None else {"InstanceId": instance}


def _false_if_action_ended(error: ClientError) -> bool:
    if error_code(error) == "ValidationError" and "no active lifecycle action" in str(error).lower():
        return False
    raise error


def _member_of_group(entry: InstanceTypeDef, group: str) -> SeenMember | None:
    """Parse an instance entry of an Auto Scaling group. Returns None for an instance that is being detached, because a
    detached instance no longer belongs to the group.
    """
    lifecycle_state: str = entry["LifecycleState"]
    waiting_hook: Transition | None = None
    if lifecycle_state.startswith("Warmed"):
        phase: Phase = "warm"
    elif lifecycle_state.startswith("Pending"):
        phase, waiting_hook = "launching", "launch" if lifecycle_state == "Pending:Wait" else None
    elif lifecycle_state.startswith("Terminating"):
        phase, waiting_hook = "terminating", "terminate" if lifecycle_state == "Terminating:Wait" else None
    elif lifecycle_state == "Terminated":
        phase = "left"
    elif lifecycle_state.startswith("Detach"):
        return None
    else:
        phase = "in_service"
    return SeenMember(entry["InstanceId"], group, phase, waiting_hook, entry.get("ProtectedFromScaleIn"))
