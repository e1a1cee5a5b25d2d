"""Watch a cluster with what users have: tags and instances through the AWS API, and the job through the files on the
cluster's shared volume.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from botocore.exceptions import BotoCoreError, ClientError
from dyntrain.controller.contract.messages import BASE_TAG, OWNER_TAG, STATUS_TAG
from dyntrain.controller.local.demo.statuses import Statuses
from dyntrain.controller.local.pace import Deadline
from dyntrain.training.events import Event, parse
from dyntrain.training.layout import JobFolder, current_job_file, read_current_job
from dyntrain.training.records import Unreadable

POLL_SECONDS = 0.15  # between two observations of the cluster
EventType = TypeVar("EventType", bound=Event)
SECONDS_BETWEEN_CHECKS = 1.0  # of a condition for which the demo waits


@dataclass
class Observations:
    """Everything that was observed of a cluster: statuses, instances and the job's events. Times are in seconds since
    the Unix epoch.
    """

    statuses: Statuses = field(default_factory=dict)  # values of each instance's status tag
    states: dict[str, str] = field(default_factory=dict)  # the EC2 state of each instance
    addresses: dict[str, str] = field(default_factory=dict)  # the private address of each instance
    base: set[str] = field(default_factory=set)  # the instances that are base nodes
    terminated_at: dict[str, float] = field(default_factory=dict)  # the time of each instance's termination
    events: list[Event] = field(default_factory=list)  # of the job

    def status(self, instance: str) -> str | None:
        """The last observed value of the instance's status tag, or None if no status tag was observed."""
        return self.statuses[instance][-1][1] if instance in self.statuses else None

    def of_type(self, event_type: type[EventType]) -> list[EventType]:
        return [event for event in self.events if isinstance(event, event_type)]

    def running_ids(self) -> list[str]:
        """The ids of elastic instances that still run, and therefore would cost money in AWS."""
        return sorted(
            instance
            for instance, state in self.states.items()
            if instance not in self.base and state not in ("terminated", "stopped")
        )


class Observer:
    """Observe the cluster every `poll_seconds` on a separate thread, from `start` to `stop`. The thread calls
    `show_line` with a line for each change of the cluster.
    """

    def __init__(
        self, ec2: Any, cluster: str, mount: Path, show_line: Callable[[str], None], poll_seconds: float = POLL_SECONDS
    ) -> None:
        self._ec2, self._cluster, self._show_line = ec2, cluster, show_line
        self._mount, self._poll_seconds = mount, poll_seconds
        self._events_path, self._read_byte_count = Path(), 0
        self._stop = threading.Event()
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._observe_repeatedly, name="observer", daemon=True)
        self.observations = Observations()
        self.on_event: Callable[[Event], None] = lambda event: None

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop observing after one more observation, so that the last change is included."""
        self._stop.set()
        self._thread.join(10)
        self._observe()

    def stop_at_once(self) -> None:
        """Stop observing at once, so that the shutdown of the whole cluster is not shown as a change."""
        self._stop.set()
        self._thread.join(10)

    def wait_for(self, condition: Callable[[Observations], bool], seconds: float, description: str) -> None:
        """Wait until `condition` is true for the observations. `seconds` is the time limit on an idle host, and a busy
        host gets more time. Raises TimeoutError, whose message contains `description`, after the time limit.
        """
        deadline = Deadline(seconds)
        while True:
            with self._changed:
                if condition(self.observations) or (
                    self._changed.wait(SECONDS_BETWEEN_CHECKS) and condition(self.observations)
                ):
                    return
            if deadline.passed():
                raise TimeoutError(
                    f"the wait timed out after {deadline.bound:.0f} s, without this result: {description}"
                )

    @property
    def ledger_folder(self) -> Path:
        """The ledger folder of the cluster's current job. Raises OSError before the first job has begun."""
        return self._job_folder().ledger

    def _job_folder(self) -> JobFolder:
        current_job = read_current_job(current_job_file(self._mount, self._cluster))
        return JobFolder.of(self._mount, self._cluster, current_job.job)

    def _observe_repeatedly(self) -> None:
        while not self._stop.wait(self._poll_seconds):
            try:
                self._observe()
            except (BotoCoreError, ClientError, Unreadable) as error:
                self._show_line(f"the cluster could not be observed, and is observed again: {error}")

    def _observe(self) -> None:
        instances, statuses = self._read_instances(), self._read_statuses()
        events = self._new_events()
        with self._changed:
            self._record_instances(instances)
            for instance, status in statuses.items():
                history = self.observations.statuses.setdefault(instance, [])
                if not history or history[-1][1] != status:
                    history.append((time.time(), status))
                    hint = f"; `dyntrain explain {instance}` says why" if status == "PREPARE_FAILED" else ""
                    self._show_line(f"{instance}  {STATUS_TAG} = {status}{hint}")
            self.observations.events += events
            self._changed.notify_all()
        for event in events:
            self.on_event(event)

    def _read_instances(self) -> list[dict[str, Any]]:
        pages = self._ec2.get_paginator("describe_instances").paginate(
            Filters=[{"Name": f"tag:{OWNER_TAG}", "Values": [self._cluster]}]
        )
        return [
            instance for page in pages for reservation in page["Reservations"] for instance in reservation["Instances"]
        ]

    def _read_statuses(self) -> dict[str, str]:
        pages = self._ec2.get_paginator("describe_tags").paginate(Filters=[{"Name": "key", "Values": [STATUS_TAG]}])
        return {tag["ResourceId"]: tag["Value"] for page in pages for tag in page["Tags"]}

    def _record_instances(self, instances: list[dict[str, Any]]) -> None:
        for instance in instances:
            instance_id, state = instance["InstanceId"], instance["State"]["Name"]
            if any(tag["Key"] == BASE_TAG for tag in instance.get("Tags", [])):
                self.observations.base.add(instance_id)
            self.observations.addresses.setdefault(instance_id, instance.get("PrivateIpAddress", ""))
            if self.observations.states.get(instance_id) != state:
                self._show_line(f"{instance_id}  {state}")
                if state == "terminated":
                    self.observations.terminated_at[instance_id] = time.time()
            self.observations.states[instance_id] = state

    def _new_events(self) -> list[Event]:
        """The unread events of the previous job, then the new events of the current job. A half-written line of the
        events file is left for a later call.
        """
        try:
            events_path = self._job_folder().events
        except OSError:
            return []
        earlier_events = self._unread_events() if events_path != self._events_path else []
        if events_path != self._events_path != Path():
            self._show_line(f"another job begins: {events_path.parent.name}")
        self._events_path, self._read_byte_count = (
            events_path,
            self._read_byte_count if events_path == self._events_path else 0,
        )
        return [*earlier_events, *self._unread_events()]

    def _unread_events(self) -> list[Event]:
        try:
            with self._events_path.open("rb") as events_file:
                events_file.seek(self._read_byte_count)
                complete_lines = events_file.read().rpartition(b"\n")[0]
        except OSError:
            return []
        self._read_byte_count += len(complete_lines) + 1 if complete_lines else 0
        return [parse(json.loads(line), self._events_path) for line in complete_lines.splitlines() if line]
