"""Keep earlier states of tags and groups, so that describe calls lag as in AWS.

A describe call may show an old state, omit a new instance, or show only a part of its tags:
https://docs.aws.amazon.com/ec2/latest/devguide/eventual-consistency.html
AWS gives no bound for this lag; the controller's policy has one (`settling_seconds`). The caller holds the account's
lock.

Describe calls show each change up to `behind` seconds later, and show no older state afterwards. Only the fault hunt
adds an `age` to an answer; such an answer may be older than the one before.
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
from dyntrain.controller.local.calls import Call

KEPT_SECONDS = 60.0
INSTANCE_CALLS = frozenset({"DescribeInstances", "DescribeInstanceStatus", "DescribeTags"})
GROUP_CALLS = frozenset({"DescribeAutoScalingGroups", "DescribeAutoScalingInstances"})

Tags = dict[str, str]


@dataclass(frozen=True)
class PastGroup:
    """A group's state that describe calls show from `since` on. `states` are copies of moto's objects."""

    since: float
    desired: int | None
    states: tuple[Any, ...]


def _content(desired: int | None, states: Sequence[Any]) -> tuple[Any, ...]:
    members = [(state.instance.id, state.lifecycle_state, state.protected_from_scale_in) for state in states]
    return (desired, *members)


class Past:
    def __init__(self, account: Account, seed: int, behind: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._account = account
        self._behind = behind
        self._clock = clock
        self._chance = random.Random(f"past {seed}")
        # (time until which describe calls show the tags, tags); None: describe calls show no instance
        self._tags: dict[str, list[tuple[float, Tags | None]]] = {}
        self._groups: dict[str, list[PastGroup]] = {}

    def launched(self, instance_id: str) -> None:
        self._tags[instance_id] = [(self._visible_from(), None)]

    def before_tags_change(self, instance_id: str) -> None:
        history = self._tags.get(instance_id, [])
        shown_until = self._visible_from(after=history[-1][0] if history else 0.0)
        kept = [entry for entry in history if entry[0] > self._clock() - KEPT_SECONDS]
        self._tags[instance_id] = [*kept, (shown_until, self._account.instance_tags(instance_id))]

    def note_groups(self) -> None:
        """Record the groups' present states. Called often, because states between two calls are never shown."""
        now = self._clock()
        for name, group in self._account.autoscaling.autoscaling_groups.items():
            desired, states = group.desired_capacity, group.instance_states
            history = self._groups.get(name, [])
            if history and _content(history[-1].desired, history[-1].states) == _content(desired, states):
                continue
            kept = [past_group for past_group in history[:-1] if past_group.since > now - KEPT_SECONDS] + history[-1:]
            since = self._visible_from(after=history[-1].since) if history else now
            self._groups[name] = [*kept, PastGroup(since, desired, tuple(copy.copy(state) for state in states))]

    def _visible_from(self, after: float = 0.0) -> float:
        """The time from which describe calls show a present change. Earlier changes are always visible first."""
        return max(after, self._clock() + self._chance.uniform(0.0, self._behind))

    @contextmanager
    def shown(self, call: Call, age: float) -> Iterator[None]:
        """A context in which moto's describe calls answer as they did `age` seconds ago."""
        at, lag = self._clock() - age, age or self._behind
        if call.service == "autoscaling":
            self.note_groups()  # record what the call may change
        if lag and call.service == "ec2" and call.action in INSTANCE_CALLS:
            with self._instances_at(at):
                yield
        elif lag and call.service == "autoscaling" and call.action in GROUP_CALLS:
            with self._groups_at(at):
                yield
        else:
            yield

    @contextmanager
    def _instances_at(self, at: float) -> Iterator[None]:
        ec2 = self._account.ec2
        kept_tags: dict[str, Tags] = {}
        hidden: set[str] = set()
        for instance_id, entries in self._tags.items():
            shown = [tags for shown_until, tags in entries if shown_until > at]
            if not shown:
                continue
            kept_tags[instance_id] = ec2.tags[instance_id]
            if shown[0] is not None:
                ec2.tags[instance_id] = shown[0]
            elif self._chance.random() < 0.5:
                hidden.add(instance_id)
                ec2.tags[instance_id] = {}
            else:
                ec2.tags[instance_id] = self._random_part(shown[1] if len(shown) > 1 else kept_tags[instance_id])
        kept_instances = (
            [(reservation, reservation.instances) for reservation in ec2.reservations.values()] if hidden else []
        )
        for reservation, instances in kept_instances:
            reservation.instances = [instance for instance in instances if instance.id not in hidden]
        try:
            yield
        finally:
            ec2.tags.update(kept_tags)
            for reservation, instances in kept_instances:
                reservation.instances = instances

    def _random_part(self, tags: Tags | None) -> Tags:
        return (
            {}
            if tags is None
            else {key: value for key, value in tags.items() if key.startswith("aws:") or self._chance.random() < 0.5}
        )

    @contextmanager
    def _groups_at(self, at: float) -> Iterator[None]:
        groups = self._account.autoscaling.autoscaling_groups
        kept = {name: (group.desired_capacity, group.instance_states) for name, group in groups.items()}
        for name, group in groups.items():
            history = self._groups[name]
            shown_group = next((past_group for past_group in reversed(history) if past_group.since <= at), history[0])
            group.desired_capacity, group.instance_states = shown_group.desired, list(shown_group.states)
        try:
            yield
        finally:
            for name, (desired, states) in kept.items():
                groups[name].desired_capacity, groups[name].instance_states = desired, states
