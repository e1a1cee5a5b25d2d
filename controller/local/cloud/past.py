"""Keep earlier states of tags and Auto Scaling groups, so that describe calls lag as in AWS.

A describe call may show an old state, omit a new instance, or show only some tags of a new instance:
https://docs.aws.amazon.com/ec2/latest/devguide/eventual-consistency.html
AWS gives no upper bound for the lag of describe calls; the controller's policy assumes the bound `settling_seconds`.
Callers of this module must hold the account's lock.

Describe calls show each change after a random lag of at most `behind_seconds`, and show no older state after this lag.
Only the fault-injection hunt makes describe calls return answers of a given age, which may show an older state than an
earlier answer.
"""

from __future__ import annotations

import copy
import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from dyntrain.controller.local.account import Account
from dyntrain.controller.local.calls import ApiCall

HISTORY_SECONDS = 60.0  # age at which recorded states are deleted
INSTANCE_CALLS = frozenset({"DescribeInstances", "DescribeInstanceStatus", "DescribeTags"})
GROUP_CALLS = frozenset({"DescribeAutoScalingGroups", "DescribeAutoScalingInstances"})

Tags = dict[str, str]


@dataclass(frozen=True)
class PastGroup:
    """A recorded state of an Auto Scaling group, for later describe calls."""

    since: float  # by the clock; describe calls show the state from this time on
    desired: int | None  # the desired capacity
    states: tuple[Any, ...]  # copies of moto's objects for the members


def _comparable_state(desired_capacity: int | None, member_states: Sequence[Any]) -> tuple[Any, ...]:
    members = [(state.instance.id, state.lifecycle_state, state.protected_from_scale_in) for state in member_states]
    return (desired_capacity, *members)


class PastStates:
    def __init__(
        self, account: Account, seed: int, behind_seconds: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._account = account
        self._behind_seconds = behind_seconds
        self._clock = clock
        self._randomness = random.Random(f"past {seed}")
        # (time until which describe calls show the tags, tags); None: describe calls show no instance
        self._tags: dict[str, list[tuple[float, Tags | None]]] = {}
        self._groups: dict[str, list[PastGroup]] = {}

    def record_launch(self, instance_id: str) -> None:
        self._tags[instance_id] = [(self._visibility_time(), None)]

    def record_former_tags(self, instance_id: str) -> None:
        history = self._tags.get(instance_id, [])
        shown_until = self._visibility_time(earliest=history[-1][0] if history else 0.0)
        kept_entries = [entry for entry in history if entry[0] > self._clock() - HISTORY_SECONDS]
        self._tags[instance_id] = [*kept_entries, (shown_until, self._account.instance_tags(instance_id))]

    def record_group_states(self) -> None:
        """Record the current states of all Auto Scaling groups. A state that begins and ends between two calls is not
        recorded, so callers should call this method often.
        """
        now = self._clock()
        for name, group in self._account.autoscaling.autoscaling_groups.items():
            desired_capacity, member_states = group.desired_capacity, group.instance_states
            history = self._groups.get(name, [])
            if history and _comparable_state(history[-1].desired, history[-1].states) == _comparable_state(
                desired_capacity, member_states
            ):
                continue
            kept_history = [
                past_group for past_group in history[:-1] if past_group.since > now - HISTORY_SECONDS
            ] + history[-1:]
            shown_from = self._visibility_time(earliest=history[-1].since) if history else now
            self._groups[name] = [
                *kept_history,
                PastGroup(shown_from, desired_capacity, tuple(copy.copy(state) for state in member_states)),
            ]

    def _visibility_time(self, earliest: float = 0.0) -> float:
        """A random time from which describe calls show a change that happens now. The result is `earliest` or
        later; `earliest` is the time from which describe calls show the preceding change.
        """
        return max(earliest, self._clock() + self._randomness.uniform(0.0, self._behind_seconds))

    @contextmanager
    def show_past_state(self, call: ApiCall, age_seconds: float) -> Iterator[None]:
        """A context in which moto's answers to describe calls show the state that describe calls showed `age_seconds`
        ago.
        """
        shown_at, lag_seconds = self._clock() - age_seconds, age_seconds or self._behind_seconds
        if call.service == "autoscaling":
            self.record_group_states()  # record what the call may change
        if lag_seconds and call.service == "ec2" and call.action in INSTANCE_CALLS:
            with self._show_instances_at(shown_at):
                yield
        elif lag_seconds and call.service == "autoscaling" and call.action in GROUP_CALLS:
            with self._show_groups_at(shown_at):
                yield
        else:
            yield

    @contextmanager
    def _show_instances_at(self, shown_at: float) -> Iterator[None]:
        ec2 = self._account.ec2
        original_tags: dict[str, Tags] = {}
        hidden_instances: set[str] = set()
        for instance_id, history in self._tags.items():
            shown_tags = [tags for shown_until, tags in history if shown_until > shown_at]
            if not shown_tags:
                continue
            original_tags[instance_id] = ec2.tags[instance_id]
            if shown_tags[0] is not None:
                ec2.tags[instance_id] = shown_tags[0]
            elif self._randomness.random() < 0.5:
                hidden_instances.add(instance_id)
                ec2.tags[instance_id] = {}
            else:
                ec2.tags[instance_id] = self._random_tags(
                    shown_tags[1] if len(shown_tags) > 1 else original_tags[instance_id]
                )
        original_instances = (
            [(reservation, reservation.instances) for reservation in ec2.reservations.values()]
            if hidden_instances
            else []
        )
        for reservation, instances in original_instances:
            reservation.instances = [instance for instance in instances if instance.id not in hidden_instances]
        try:
            yield
        finally:
            ec2.tags.update(original_tags)
            for reservation, instances in original_instances:
                reservation.instances = instances

    def _random_tags(self, tags: Tags | None) -> Tags:
        return (
            {}
            if tags is None
            else {
                key: value for key, value in tags.items() if key.startswith("aws:") or self._randomness.random() < 0.5
            }
        )

    @contextmanager
    def _show_groups_at(self, shown_at: float) -> Iterator[None]:
        groups = self._account.autoscaling.autoscaling_groups
        original_groups = {name: (group.desired_capacity, group.instance_states) for name, group in groups.items()}
        for name, group in groups.items():
            history = self._groups[name]
            shown_group = next(
                (past_group for past_group in reversed(history) if past_group.since <= shown_at), history[0]
            )
            group.desired_capacity, group.instance_states = shown_group.desired, list(shown_group.states)
        try:
            yield
        finally:
            for name, (desired_capacity, member_states) in original_groups.items():
                groups[name].desired_capacity, groups[name].instance_states = desired_capacity, member_states
