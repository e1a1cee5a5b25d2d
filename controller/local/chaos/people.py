"""The simulated users of a fault-injection hunt, who launch, tag and untag instances and resize the group through the
AWS API. `UserRequests` records the last requests of the simulated users.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError
from dyntrain.controller.contract.elastic_tag import ELASTIC_TAG
from dyntrain.controller.local.chaos.plan import ChangeKind, ClusterChange
from dyntrain.controller.local.stack import Cluster

MOST_HAND_LAUNCHED = 3  # most instances launched by hand at a time: each instance trains on one core of this host
THREAD_JOIN_SECONDS = 60.0  # limit for the end of the users' thread


@dataclass
class UserRequests:
    """The last requests of the simulated users."""

    by_hand: dict[str, bool] = field(default_factory=dict)  # whether users still want each instance launched by hand
    once_untagged: set[str] = field(default_factory=set)  # instances whose elastic tag a user has ever deleted
    capacity: int = 0  # the group's desired capacity


class SimulatedUsers:
    """Make the planned changes of the cluster at their planned times, on a separate thread. `change_count` is the
    number of changes that were made, without changes that AWS refused and changes for which no suitable instance
    existed.
    """

    def __init__(
        self,
        ec2: Any,
        autoscaling: Any,
        cluster: Cluster,
        running: Callable[[str], bool],
        print_line: Callable[[str], None],
    ) -> None:
        self._ec2, self._autoscaling, self._cluster, self._running, self._print_line = (
            ec2,
            autoscaling,
            cluster,
            running,
            print_line,
        )
        self._stop = threading.Event()
        self._thread = threading.Thread(daemon=True)
        self.requests = UserRequests()
        self.change_count = 0

    def start(self, changes: Sequence[ClusterChange]) -> None:
        self._thread = threading.Thread(
            target=self._make_changes, args=(changes, time.monotonic()), name="people", daemon=True
        )
        self._thread.start()

    def finish_due_changes(self) -> None:
        """Wait until all changes whose planned time has passed are made, and drop all later changes."""
        self._stop.set()
        self._thread.join(THREAD_JOIN_SECONDS)

    def _make_changes(self, changes: Sequence[ClusterChange], began_at: float) -> None:
        for change in changes:
            seconds_left = began_at + change.at - time.monotonic()
            if seconds_left > 0 and self._stop.wait(seconds_left):
                return
            try:
                description = self._make_change(change)
            except (BotoCoreError, ClientError) as error:
                self._print_line(f"AWS refused the change {change.kind}: {error}")
                continue
            if description:
                self.change_count += 1
                self._print_line(f"simulated user: {change.kind} {description}")

    def _make_change(self, change: ClusterChange) -> str:
        match change.kind:
            case ChangeKind.LAUNCH:
                return self._launch_instance()
            case ChangeKind.UNTAG:
                return self._untag_instance(change.pick)
            case ChangeKind.RETAG:
                return self._retag_instance(change.pick)
            case ChangeKind.CAPACITY:
                return self._resize_group(change.size)

    def _launch_instance(self) -> str:
        if sum(self.requests.by_hand.values()) >= MOST_HAND_LAUNCHED:
            return ""
        launch_answer = self._ec2.run_instances(
            LaunchTemplate={"LaunchTemplateName": self._cluster.launch_template}, MinCount=1, MaxCount=1
        )
        instance_id = str(launch_answer["Instances"][0]["InstanceId"])
        self.requests.by_hand[instance_id] = True
        return instance_id

    def _untag_instance(self, pick: float) -> str:
        instance_id = _picked_instance(
            [instance_id for instance_id, is_wanted in self.requests.by_hand.items() if is_wanted], pick
        )
        if instance_id:
            self._ec2.delete_tags(Resources=[instance_id], Tags=[{"Key": ELASTIC_TAG.of(self._cluster.name)}])
            self.requests.by_hand[instance_id] = False
            self.requests.once_untagged.add(instance_id)
        return instance_id

    def _retag_instance(self, pick: float) -> str:
        instance = _picked_instance(
            [
                instance_id
                for instance_id, is_wanted in self.requests.by_hand.items()
                if not is_wanted and self._running(instance_id)
            ],
            pick,
        )
        if instance:
            self._ec2.create_tags(Resources=[instance], Tags=[{"Key": ELASTIC_TAG.of(self._cluster.name), "Value": ""}])
            self.requests.by_hand[instance] = True
        return instance

    def _resize_group(self, size: int) -> str:
        self._autoscaling.set_desired_capacity(AutoScalingGroupName=self._cluster.group, DesiredCapacity=size)
        self.requests.capacity = size
        return f"{self._cluster.group} {size}"

    def remove_elastic_nodes(self) -> None:
        """Request that all nodes except the base nodes leave the cluster. No simulated user changes the cluster after
        this request.
        """
        self._resize_group(0)
        for instance_id in [instance_id for instance_id, is_wanted in self.requests.by_hand.items() if is_wanted]:
            self._ec2.delete_tags(Resources=[instance_id], Tags=[{"Key": ELASTIC_TAG.of(self._cluster.name)}])
            self.requests.by_hand[instance_id] = False


def _picked_instance(candidates: list[str], fraction: float) -> str:
    return candidates[int(fraction * len(candidates))] if candidates else ""
