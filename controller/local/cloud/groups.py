"""Auto Scaling groups that launch, replace and terminate instances as in AWS, with lifecycle hooks and time-outs.

The AWS emulator moto stores the groups and answers describe calls. This module writes the groups' members and the
members' lifecycle states into moto's objects. All methods of `AutoScalingGroups` run with the account's lock held. The
module `scaling` decides which instances a group launches and terminates. The module `hooks` computes the deadlines of
lifecycle hooks.
"""

from __future__ import annotations

import itertools
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from dyntrain.controller.core.records.facts import InstanceState
from dyntrain.controller.local import events
from dyntrain.controller.local.account import Account
from dyntrain.controller.local.agenda import Agenda
from dyntrain.controller.local.cloud import hooks, scaling
from dyntrain.controller.local.cloud.hooks import ActionResult, LifecycleAction
from dyntrain.controller.local.cloud.instances import Instances
from dyntrain.controller.local.cloud.past import PastStates
from dyntrain.controller.local.errors import ApiError
from dyntrain.controller.local.lambdas.bus import EventBus
from dyntrain.controller.local.options import Options
from moto.autoscaling.models import FakeAutoScalingGroup

SECONDS_BETWEEN_CHECKS = 0.1  # of the groups and of the deadlines of lifecycle actions


class QuietGroup(FakeAutoScalingGroup):
    """An Auto Scaling group of moto, without moto's instant launches and terminations. The group only stores its
    desired capacity; the class `AutoScalingGroups` launches and terminates instances.
    """

    def set_desired_capacity(self, new_capacity: int | None) -> None:
        self.desired_capacity = self.min_size if new_capacity is None else new_capacity

    def replace_autoscaling_group_instances(self, count_needed: int, propagated_tags: dict[str, str]) -> None:
        """Do nothing, because the class `AutoScalingGroups` replaces members. The emulator moto calls this method when
        a member was terminated, but not by its group.
        """


@dataclass
class GroupMember:
    """An instance that is a member of an Auto Scaling group."""

    instance_id: str
    group: str  # name of the Auto Scaling group
    order: int  # grows with each launch
    actions: dict[str, LifecycleAction] = field(default_factory=dict)  # waiting actions, by hook
    ending: bool = False  # whether the group has decided to terminate the instance
    replaced: bool = False  # whether the instance ends once its replacement is in service


@dataclass
class GroupLaunches:
    """The failed and refused launches of a group, and the earliest time of the group's next launch."""

    failures: int = 0  # failed launches in a row, which delay the next launch
    not_before: float = 0.0  # the earliest time of the next launch, by the clock
    refusals: list[str] = field(default_factory=list)  # error messages; each makes one launch fail


class AutoScalingGroups:
    def __init__(
        self,
        account: Account,
        agenda: Agenda,
        bus: EventBus,
        instances: Instances,
        options: Options,
        past: PastStates,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._account = account
        self._agenda = agenda
        self._bus = bus
        self._instances = instances
        self._options = options
        self._past = past
        self._clock = clock
        self._members: dict[str, GroupMember] = {}
        self._launches: dict[str, GroupLaunches] = {}
        self._launch_numbers = itertools.count()
        instances.on_state_change = self._on_state_change
        instances.on_recommendation = self._on_rebalance_recommendation
        instances.lifecycle_target = self._target_state

    def start(self) -> None:
        self._conclude_timed_out_actions()

    # ---- calls

    def reconcile_groups(self) -> None:
        """Launch the missing members and terminate the surplus members of all groups. This method is called after any
        API call that may have changed a group.
        """
        with self._account.lock:
            for group in list(self._account.autoscaling.autoscaling_groups.values()):
                group.__class__ = QuietGroup
                self._sync_members(group)
                member_views = self._member_views(group)
                suspended_processes = self._suspended_process_names(group.name)
                launch_state = self._launches.setdefault(group.name, GroupLaunches())
                if "Launch" not in suspended_processes and self._clock() >= launch_state.not_before:
                    for _ in range(scaling.count_missing(member_views, group.desired_capacity)):
                        self._launch_instance(group, launch_state)
                if "Terminate" not in suspended_processes:
                    ending_ids = scaling.surplus_instances(member_views, group.desired_capacity)
                    for instance_id in ending_ids + scaling.replaceable_instances(member_views, group.desired_capacity):
                        self._begin_termination(self._members[instance_id])

    def complete_action(
        self, group: str, hook: str, result: ActionResult, token: str | None, instance_id: str | None
    ) -> None:
        """Handle the API call CompleteLifecycleAction. Raises ApiError if the group has no waiting lifecycle action for
        the token or instance.
        """
        with self._account.lock:
            self._conclude_action(self._waiting_action(group, hook, token, instance_id), result)

    def extend_action(self, group: str, hook: str, token: str | None, instance_id: str | None) -> None:
        """Handle the API call RecordLifecycleActionHeartbeat, which extends the deadline of a lifecycle action, up to a
        cap. Raises ApiError if the group has no waiting lifecycle action for the token or instance.
        """
        with self._account.lock:
            action = self._waiting_action(group, hook, token, instance_id)
            self._members[action.instance_id].actions[hook] = action.with_heartbeat(self._clock())

    def terminate_member(self, instance_id: str, *, decrement_capacity: bool) -> str:
        """Handle the API call TerminateInstanceInAutoScalingGroup, and return the group's name. A call for an instance
        whose termination has begun has no effect.
        """
        with self._account.lock:
            member = self._members.get(instance_id)
            if member is None:
                raise ApiError(
                    "ValidationError",
                    f"Instance Id not found - No managed instance found for instance ID: {instance_id}",
                )
            group = self._moto_group(member.group)
            if decrement_capacity and not member.ending:
                if group.desired_capacity <= group.min_size:
                    raise ApiError(
                        "ValidationError",
                        f"Currently, desiredSize equals minSize ({group.min_size}). Terminating instance without "
                        "replacement will violate group's "
                        "min size constraint. Either set shouldDecrement flag to false or lower group's min size.",
                    )
                group.desired_capacity -= 1
            self._begin_termination(member)
            self.reconcile_groups()
            return member.group

    def announce_hook(self, group: str, hook: str) -> None:
        """Publish a test notification for a new lifecycle hook, as AWS does."""
        with self._account.lock:
            stored_hooks = self._account.autoscaling.describe_lifecycle_hooks(group)
            new_hook = next(stored_hook for stored_hook in stored_hooks if stored_hook.name == hook)
            scaling_group = self._moto_group(group)
            self._bus.publish(
                events.test_notification(
                    self._bus.origin(), scaling_group.arn, scaling_group.name, new_hook.lifecycle_transition
                )
            )

    def terminate_deleted_members(self, instance_ids: list[str]) -> None:
        """Terminate, without lifecycle hooks, the instances of a group that was deleted by force."""
        with self._account.lock:
            for instance_id in instance_ids:
                self._members.pop(instance_id, None)
                self._account.ec2.terminate_instances([instance_id])
                self._instances.on_terminate(instance_id)

    def refuse_launches(self, group: str, messages: list[str]) -> None:
        """Make the group's next launches fail, one launch for each of the error messages `messages`, as in a zone
        without capacity.
        """
        with self._account.lock:
            self._launches.setdefault(group, GroupLaunches()).refusals.extend(messages)

    # ---- launch

    def _launch_instance(self, group: Any, launch_state: GroupLaunches) -> None:
        former_instance_ids = {instance_state.instance.id for instance_state in group.instance_states}
        try:
            if launch_state.refusals:
                raise ApiError("InsufficientInstanceCapacity", launch_state.refusals.pop(0))
            FakeAutoScalingGroup.replace_autoscaling_group_instances(group, 1, group.get_propagated_tags())
        # a bad template makes moto raise many kinds of errors; each is a failed launch
        except Exception as error:  # noqa: BLE001
            self._handle_failed_launch(group, launch_state, "", str(error))
            return
        for instance_state in group.instance_states:
            if instance_state.instance.id not in former_instance_ids:
                instance_state.lifecycle_state = "Pending"
                self._members[instance_state.instance.id] = GroupMember(
                    instance_state.instance.id, group.name, next(self._launch_numbers)
                )
                self._instances.on_launch(instance_state.instance.id)

    def _handle_failed_launch(
        self, group: Any, launch_state: GroupLaunches, instance_id: str, failure_message: str
    ) -> None:
        launch_state.failures += 1
        delay_seconds = scaling.relaunch_delay_seconds(launch_state.failures, self._options.relaunch_delay)
        launch_state.not_before = self._clock() + delay_seconds
        self._publish_activity(group, instance_id, "Launch", ok=False, message=failure_message)

    def _enter_service(self, member: GroupMember) -> None:
        group = self._moto_group(member.group)
        self._set_lifecycle_state(member, "InService")
        self._launches[group.name].failures = 0
        self._publish_activity(group, member.instance_id, "Launch", ok=True)
        self.reconcile_groups()

    def _abandon_launch(self, member: GroupMember) -> None:
        group = self._moto_group(member.group)
        self._handle_failed_launch(
            group, self._launches[group.name], member.instance_id, "Lifecycle action result ABANDON"
        )
        member.actions.clear()
        member.ending = True
        self._terminate_instance(member)

    # ---- end

    def _begin_termination(self, member: GroupMember) -> None:
        if member.ending:
            return
        member.ending = True
        member.actions.clear()
        self._wait_for_hooks(member, events.TERMINATING, "Terminating:Wait", self._terminate_instance)

    def _terminate_instance(self, member: GroupMember) -> None:
        member.actions.clear()
        self._set_lifecycle_state(member, "Terminating:Proceed")
        if self._instances.state(member.instance_id) not in ("shutting-down", "terminated"):
            self._account.ec2.terminate_instances([member.instance_id])
            self._instances.on_terminate(member.instance_id)

    def _on_state_change(self, instance_id: str, state: InstanceState) -> None:
        member = self._members.get(instance_id)
        if member is None:
            return
        if state == "running" and not member.ending and not self._is_member_in_service(member):
            self._wait_for_hooks(member, events.LAUNCHING, "Pending:Wait", self._enter_service)
        elif state == "stopped":
            if not {"HealthCheck", "ReplaceUnhealthy"} & self._suspended_process_names(member.group):
                self._begin_termination(member)
        elif state == "shutting-down" and not member.ending:
            self._on_outside_termination(member)
        elif state == "terminated":
            del self._members[instance_id]
            group = self._account.autoscaling.autoscaling_groups.get(member.group)
            if group is not None:
                group.instance_states = [entry for entry in group.instance_states if entry.instance.id != instance_id]
                self._publish_activity(group, instance_id, "Terminate", ok=True)
            self.reconcile_groups()

    def _on_rebalance_recommendation(self, instance_id: str) -> None:
        member = self._members.get(instance_id)
        if member is not None and self._moto_group(member.group).capacity_rebalance:
            member.replaced = True
            self.reconcile_groups()

    def _on_outside_termination(self, member: GroupMember) -> None:
        """Handle the termination of a member by something other than its group. The group runs no lifecycle hooks, and
        replaces the member only after a delay, as after AWS's next health check.
        """
        member.ending = True
        member.actions.clear()
        launch_state = self._launches[member.group]
        launch_state.not_before = max(launch_state.not_before, self._clock() + self._options.replacement_delay)

    # ---- hooks

    def _wait_for_hooks(
        self, member: GroupMember, transition: events.Transition, state: str, proceed: Callable[[GroupMember], None]
    ) -> None:
        stored_hooks = self._account.autoscaling.describe_lifecycle_hooks(member.group)
        matching_hooks = [hook for hook in stored_hooks if hook.lifecycle_transition == transition]
        if not matching_hooks:
            proceed(member)
            return
        group = self._moto_group(member.group)
        self._set_lifecycle_state(member, state)
        for hook in matching_hooks:
            timeout_seconds = float(hook.heartbeat_timeout) * self._options.hook_scale
            action = hooks.begin_action(
                str(uuid.uuid4()),
                group.name,
                hook.name,
                transition,
                member.instance_id,
                timeout_seconds,
                hook.default_result,
                self._clock(),
            )
            member.actions[hook.name] = action
            origin = self._bus.origin()
            self._bus.publish(
                events.lifecycle_event(
                    origin, group.arn, group.name, hook.name, action.token, member.instance_id, transition
                )
            )

    def _waiting_action(self, group: str, hook: str, token: str | None, instance_id: str | None) -> LifecycleAction:
        for member in self._members.values():
            action = member.actions.get(hook)
            is_match = action is not None and (
                action.token == token if token is not None else action.instance_id == instance_id
            )
            if action is not None and is_match and member.group == group:
                return action
        search_key = f"token {token}" if token is not None else f"instance ID {instance_id}"
        raise ApiError("ValidationError", f"No active Lifecycle Action found with {search_key}")

    def _conclude_action(self, action: LifecycleAction, result: ActionResult) -> None:
        member = self._members[action.instance_id]
        del member.actions[action.hook]
        if action.transition == events.LAUNCHING and result == "ABANDON":
            self._abandon_launch(member)
        elif not member.actions or result == "ABANDON":
            if action.transition == events.LAUNCHING:
                self._set_lifecycle_state(member, "Pending:Proceed")
                self._enter_service(member)
            else:
                self._terminate_instance(member)

    def _conclude_timed_out_actions(self) -> None:
        with self._account.lock:
            now = self._clock()
            for member in list(self._members.values()):
                for action in list(member.actions.values()):
                    if action.timed_out(now) and member.actions.get(action.hook) is action:
                        self._conclude_action(action, action.default)
            self.reconcile_groups()
            self._past.record_group_states()
        self._agenda.run_after(SECONDS_BETWEEN_CHECKS, self._conclude_timed_out_actions)

    # ---- moto's objects

    def _moto_group(self, name: str) -> Any:
        return self._account.autoscaling.autoscaling_groups[name]

    def _is_member_in_service(self, member: GroupMember) -> bool:
        """Whether the member has entered service before. A stopped instance that starts again has entered service
        before, so the start is not treated as a launch.
        """
        states = {state.instance.id: state.lifecycle_state for state in self._moto_group(member.group).instance_states}
        return states.get(member.instance_id) == "InService"

    def _suspended_process_names(self, name: str) -> set[str]:
        return {entry["ProcessName"] for entry in self._moto_group(name).suspended_processes}

    def _sync_members(self, group: Any) -> None:
        """Add members that moto attached to the group, and forget members that moto detached from the group."""
        instance_ids = {state.instance.id for state in group.instance_states}
        for instance_id in instance_ids - set(self._members):
            member = self._members[instance_id] = GroupMember(instance_id, group.name, next(self._launch_numbers))
            if instance_id not in self._instances.known_ids():  # moto launched the instance itself, for a stack's group
                self._set_lifecycle_state(member, "Pending")
                self._instances.on_launch(instance_id)
        for member in list(self._members.values()):
            if member.group == group.name and member.instance_id not in instance_ids and not member.ending:
                del self._members[member.instance_id]

    def _member_views(self, group: Any) -> list[scaling.MemberView]:
        return [
            scaling.MemberView(
                state.instance.id,
                state.lifecycle_state,
                bool(state.protected_from_scale_in),
                self._members[state.instance.id].order,
                self._members[state.instance.id].replaced,
            )
            for state in group.instance_states
        ]

    def _set_lifecycle_state(self, member: GroupMember, lifecycle_state: str) -> None:
        for state in self._moto_group(member.group).instance_states:
            if state.instance.id == member.instance_id:
                state.lifecycle_state = lifecycle_state

    def _target_state(self, instance_id: str) -> str | None:
        member = self._members.get(instance_id)
        if member is None:
            return None
        return "Terminated" if member.ending else "InService"

    def _publish_activity(
        self, group: Any, instance_id: str, activity: Literal["Launch", "Terminate"], *, ok: bool, message: str = ""
    ) -> None:
        zone = group.availability_zones[0]
        self._bus.publish(
            events.activity_event(
                self._bus.origin(), group.arn, group.name, instance_id, activity, ok=ok, zone=zone, message=message
            )
        )
