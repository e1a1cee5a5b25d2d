"""Auto Scaling groups that launch, replace and terminate instances with lifecycle hooks and time-outs, as in AWS.

moto stores the groups and answers describe calls. This module writes the members and their lifecycle states into moto's
objects. All methods hold the account's lock. `scaling` decides which instances to launch and to end; `hooks` computes
deadlines.
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
from dyntrain.controller.local.cloud.hooks import LifecycleAction, Result
from dyntrain.controller.local.cloud.instances import Instances
from dyntrain.controller.local.cloud.past import Past
from dyntrain.controller.local.errors import ApiError
from dyntrain.controller.local.lambdas.bus import Bus
from dyntrain.controller.local.options import Options
from moto.autoscaling.models import FakeAutoScalingGroup

TICK_SECONDS = 0.1


class QuietGroup(FakeAutoScalingGroup):
    """A group of moto without moto's instant launches and terminations. The group only stores the desired capacity, and
    `Groups` acts on it.
    """

    def set_desired_capacity(self, new_capacity: int | None) -> None:
        self.desired_capacity = self.min_size if new_capacity is None else new_capacity

    def replace_autoscaling_group_instances(self, count_needed: int, propagated_tags: dict[str, str]) -> None:
        """Do nothing: moto calls this method when a member was terminated from outside, but `Groups` replaces the
        member.
        """


@dataclass
class Member:
    """A member of a group. `ending`: the group has decided to end the instance. `replaced`: the instance ends once its
    replacement is in service.
    """

    instance_id: str
    group: str
    order: int
    actions: dict[str, LifecycleAction] = field(default_factory=dict)
    ending: bool = False
    replaced: bool = False


@dataclass
class Launches:
    """The state of a group's launches. Failures in a row delay the next launch. Each message in `refusals` makes one
    launch fail.
    """

    failures: int = 0
    not_before: float = 0.0
    refusals: list[str] = field(default_factory=list)


class Groups:
    def __init__(
        self,
        account: Account,
        agenda: Agenda,
        bus: Bus,
        instances: Instances,
        options: Options,
        past: Past,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._account = account
        self._agenda = agenda
        self._bus = bus
        self._instances = instances
        self._options = options
        self._past = past
        self._clock = clock
        self._members: dict[str, Member] = {}
        self._launches: dict[str, Launches] = {}
        self._order = itertools.count()
        instances.on_state = self._on_state
        instances.on_recommendation = self._on_recommendation
        instances.target_state = self._target_state

    def start(self) -> None:
        self._tick()

    # ---- calls

    def reconcile(self) -> None:
        """Launch missing members and end surplus members. Called after any call that may have changed a group."""
        with self._account.lock:
            for group in list(self._account.autoscaling.autoscaling_groups.values()):
                group.__class__ = QuietGroup
                self._sync_members(group)
                views = self._views(group)
                suspended = self._suspended(group.name)
                launches = self._launches.setdefault(group.name, Launches())
                if "Launch" not in suspended and self._clock() >= launches.not_before:
                    for _ in range(scaling.missing_count(views, group.desired_capacity)):
                        self._launch(group, launches)
                if "Terminate" not in suspended:
                    ending_ids = scaling.surplus(views, group.desired_capacity)
                    for instance_id in ending_ids + scaling.replaceable(views, group.desired_capacity):
                        self._begin_end(self._members[instance_id])

    def complete(self, group: str, hook: str, result: Result, token: str | None, instance_id: str | None) -> None:
        """Handle CompleteLifecycleAction. Raises ApiError for a token or instance without a waiting action."""
        with self._account.lock:
            self._conclude(self._waiting_action(group, hook, token, instance_id), result)

    def heartbeat(self, group: str, hook: str, token: str | None, instance_id: str | None) -> None:
        """Handle RecordLifecycleActionHeartbeat, which extends the deadline up to the global cap. Raises ApiError as
        `complete` does.
        """
        with self._account.lock:
            action = self._waiting_action(group, hook, token, instance_id)
            self._members[action.instance_id].actions[hook] = action.with_heartbeat(self._clock())

    def terminate(self, instance_id: str, *, decrement: bool) -> str:
        """Handle TerminateInstanceInAutoScalingGroup and return the group's name. A repeated call for an ending
        instance has no effect.
        """
        with self._account.lock:
            member = self._members.get(instance_id)
            if member is None:
                raise ApiError(
                    "ValidationError",
                    f"Instance Id not found - No managed instance found for instance ID: {instance_id}",
                )
            group = self._group(member.group)
            if decrement and not member.ending:
                if group.desired_capacity <= group.min_size:
                    raise ApiError(
                        "ValidationError",
                        f"Currently, desiredSize equals minSize ({group.min_size}). Terminating instance without "
                        "replacement will violate group's "
                        "min size constraint. Either set shouldDecrement flag to false or lower group's min size.",
                    )
                group.desired_capacity -= 1
            self._begin_end(member)
            self.reconcile()
            return member.group

    def announce_hook(self, group: str, hook: str) -> None:
        """Publish a test notification, as AWS does for a new lifecycle hook."""
        with self._account.lock:
            stored = self._account.autoscaling.describe_lifecycle_hooks(group)
            new_hook = next(stored_hook for stored_hook in stored if stored_hook.name == hook)
            scaling_group = self._group(group)
            self._bus.publish(
                events.test_notification(
                    self._bus.origin(), scaling_group.arn, scaling_group.name, new_hook.lifecycle_transition
                )
            )

    def end_all(self, instance_ids: list[str]) -> None:
        """Terminate the instances without lifecycle hooks, because their group was deleted by force."""
        with self._account.lock:
            for instance_id in instance_ids:
                self._members.pop(instance_id, None)
                self._account.ec2.terminate_instances([instance_id])
                self._instances.on_terminate(instance_id)

    def refuse_launches(self, group: str, messages: list[str]) -> None:
        """Make the next launches fail, one launch for each message, as in a zone without capacity."""
        with self._account.lock:
            self._launches.setdefault(group, Launches()).refusals.extend(messages)

    # ---- launch

    def _launch(self, group: Any, launches: Launches) -> None:
        former_ids = {state.instance.id for state in group.instance_states}
        try:
            if launches.refusals:
                raise ApiError("InsufficientInstanceCapacity", launches.refusals.pop(0))
            FakeAutoScalingGroup.replace_autoscaling_group_instances(group, 1, group.get_propagated_tags())
        # a bad template makes moto raise many kinds of errors; each is a failed launch
        except Exception as error:  # noqa: BLE001
            self._launch_failed(group, launches, "", str(error))
            return
        for state in group.instance_states:
            if state.instance.id not in former_ids:
                state.lifecycle_state = "Pending"
                self._members[state.instance.id] = Member(state.instance.id, group.name, next(self._order))
                self._instances.on_launch(state.instance.id)

    def _launch_failed(self, group: Any, launches: Launches, instance_id: str, message: str) -> None:
        launches.failures += 1
        delay = scaling.relaunch_delay(launches.failures, self._options.relaunch_delay)
        launches.not_before = self._clock() + delay
        self._report(group, instance_id, "Launch", ok=False, message=message)

    def _enter_service(self, member: Member) -> None:
        group = self._group(member.group)
        self._set_state(member, "InService")
        self._launches[group.name].failures = 0
        self._report(group, member.instance_id, "Launch", ok=True)
        self.reconcile()

    def _abandon(self, member: Member) -> None:
        group = self._group(member.group)
        self._launch_failed(group, self._launches[group.name], member.instance_id, "Lifecycle action result ABANDON")
        member.actions.clear()
        member.ending = True
        self._end(member)

    # ---- end

    def _begin_end(self, member: Member) -> None:
        if member.ending:
            return
        member.ending = True
        member.actions.clear()
        self._wait_for_hooks(member, events.TERMINATING, "Terminating:Wait", self._end)

    def _end(self, member: Member) -> None:
        member.actions.clear()
        self._set_state(member, "Terminating:Proceed")
        if self._instances.state(member.instance_id) not in ("shutting-down", "terminated"):
            self._account.ec2.terminate_instances([member.instance_id])
            self._instances.on_terminate(member.instance_id)

    def _on_state(self, instance_id: str, state: InstanceState) -> None:
        member = self._members.get(instance_id)
        if member is None:
            return
        if state == "running" and not member.ending and not self._is_in_service(member):
            self._wait_for_hooks(member, events.LAUNCHING, "Pending:Wait", self._enter_service)
        elif state == "stopped":
            if not {"HealthCheck", "ReplaceUnhealthy"} & self._suspended(member.group):
                self._begin_end(member)
        elif state == "shutting-down" and not member.ending:
            self._on_outside_termination(member)
        elif state == "terminated":
            del self._members[instance_id]
            group = self._account.autoscaling.autoscaling_groups.get(member.group)
            if group is not None:
                group.instance_states = [entry for entry in group.instance_states if entry.instance.id != instance_id]
                self._report(group, instance_id, "Terminate", ok=True)
            self.reconcile()

    def _on_recommendation(self, instance_id: str) -> None:
        member = self._members.get(instance_id)
        if member is not None and self._group(member.group).capacity_rebalance:
            member.replaced = True
            self.reconcile()

    def _on_outside_termination(self, member: Member) -> None:
        """Handle a member that was terminated from outside. The group notices this at its next health check, and runs
        no hooks.
        """
        member.ending = True
        member.actions.clear()
        launches = self._launches[member.group]
        launches.not_before = max(launches.not_before, self._clock() + self._options.replacement_delay)

    # ---- hooks

    def _wait_for_hooks(
        self, member: Member, transition: events.Transition, waiting_state: str, proceed: Callable[[Member], None]
    ) -> None:
        stored = self._account.autoscaling.describe_lifecycle_hooks(member.group)
        matching = [hook for hook in stored if hook.lifecycle_transition == transition]
        if not matching:
            proceed(member)
            return
        group = self._group(member.group)
        self._set_state(member, waiting_state)
        for hook in matching:
            seconds = float(hook.heartbeat_timeout) * self._options.hook_scale
            action = hooks.begin(
                str(uuid.uuid4()),
                group.name,
                hook.name,
                transition,
                member.instance_id,
                seconds,
                hook.default_result,
                self._clock(),
            )
            member.actions[hook.name] = action
            origin = self._bus.origin()
            self._bus.publish(
                events.lifecycle_action(
                    origin, group.arn, group.name, hook.name, action.token, member.instance_id, transition
                )
            )

    def _waiting_action(self, group: str, hook: str, token: str | None, instance_id: str | None) -> LifecycleAction:
        for member in self._members.values():
            action = member.actions.get(hook)
            matches = action is not None and (
                action.token == token if token is not None else action.instance_id == instance_id
            )
            if action is not None and matches and member.group == group:
                return action
        search_key = f"token {token}" if token is not None else f"instance ID {instance_id}"
        raise ApiError("ValidationError", f"No active Lifecycle Action found with {search_key}")

    def _conclude(self, action: LifecycleAction, result: Result) -> None:
        member = self._members[action.instance_id]
        del member.actions[action.hook]
        if action.transition == events.LAUNCHING and result == "ABANDON":
            self._abandon(member)
        elif not member.actions or result == "ABANDON":
            if action.transition == events.LAUNCHING:
                self._set_state(member, "Pending:Proceed")
                self._enter_service(member)
            else:
                self._end(member)

    def _tick(self) -> None:
        with self._account.lock:
            now = self._clock()
            for member in list(self._members.values()):
                for action in list(member.actions.values()):
                    if action.timed_out(now) and member.actions.get(action.hook) is action:
                        self._conclude(action, action.default)
            self.reconcile()
            self._past.note_groups()
        self._agenda.after(TICK_SECONDS, self._tick)

    # ---- moto's objects

    def _group(self, name: str) -> Any:
        return self._account.autoscaling.autoscaling_groups[name]

    def _is_in_service(self, member: Member) -> bool:
        """Whether the member is in service already: a stopped instance that starts again is no launch."""
        states = {state.instance.id: state.lifecycle_state for state in self._group(member.group).instance_states}
        return states.get(member.instance_id) == "InService"

    def _suspended(self, name: str) -> set[str]:
        return {entry["ProcessName"] for entry in self._group(name).suspended_processes}

    def _sync_members(self, group: Any) -> None:
        """Take over members that moto attached, and forget members that moto detached."""
        ids = {state.instance.id for state in group.instance_states}
        for instance_id in ids - set(self._members):
            member = self._members[instance_id] = Member(instance_id, group.name, next(self._order))
            if instance_id not in self._instances.known_ids():  # moto launched the instance itself, for a stack's group
                self._set_state(member, "Pending")
                self._instances.on_launch(instance_id)
        for member in list(self._members.values()):
            if member.group == group.name and member.instance_id not in ids and not member.ending:
                del self._members[member.instance_id]

    def _views(self, group: Any) -> list[scaling.MemberView]:
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

    def _set_state(self, member: Member, lifecycle_state: str) -> None:
        for state in self._group(member.group).instance_states:
            if state.instance.id == member.instance_id:
                state.lifecycle_state = lifecycle_state

    def _target_state(self, instance_id: str) -> str | None:
        member = self._members.get(instance_id)
        if member is None:
            return None
        return "Terminated" if member.ending else "InService"

    def _report(
        self, group: Any, instance_id: str, activity: Literal["Launch", "Terminate"], *, ok: bool, message: str = ""
    ) -> None:
        zone = group.availability_zones[0]
        self._bus.publish(
            events.activity_result(
                self._bus.origin(), group.arn, group.name, instance_id, activity, ok=ok, zone=zone, message=message
            )
        )
