"""Watch a cluster from outside, as a user would: tags and instances through the AWS API, the job through the files on
its volume.
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

POLL_SECONDS = 0.15
E = TypeVar("E", bound=Event)
LOOK_SECONDS = 1.0


@dataclass
class Observations:
    """Everything that was observed. Times are in seconds since the Unix epoch."""

    statuses: Statuses = field(default_factory=dict)
    states: dict[str, str] = field(default_factory=dict)
    addresses: dict[str, str] = field(default_factory=dict)
    base: set[str] = field(default_factory=set)
    terminated_at: dict[str, float] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)

    def status(self, instance: str) -> str | None:
        """The value of the instance's status tag, or None without a tag."""
        return self.statuses[instance][-1][1] if instance in self.statuses else None

    def of_type(self, kind: type[E]) -> list[E]:
        return [event for event in self.events if isinstance(event, kind)]

    def left_running(self) -> list[str]:
        """Elastic instances that still cost money."""
        return sorted(
            instance
            for instance, state in self.states.items()
            if instance not in self.base and state not in ("terminated", "stopped")
        )


class Observer:
    """Observe the cluster every `every` seconds on a separate thread, from `start` to `stop`. The thread calls
    `show_line` with a line for each change.
    """

    def __init__(
        self, ec2: Any, cluster: str, mount: Path, show_line: Callable[[str], None], every: float = POLL_SECONDS
    ) -> None:
        self._ec2, self._cluster, self._show_line = ec2, cluster, show_line
        self._mount, self._every = mount, every
        self._log, self._offset = Path(), 0
        self._stop = threading.Event()
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="observer", daemon=True)
        self.observations = Observations()
        self.on_event: Callable[[Event], None] = lambda event: None

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop after one more observation, so that the last change is included."""
        self._stop.set()
        self._thread.join(10)
        self._observe()

    def end(self) -> None:
        """Stop without another observation, so that the end of the cluster itself is not shown."""
        self._stop.set()
        self._thread.join(10)

    def wait_for(self, condition: Callable[[Observations], bool], seconds: float, description: str) -> None:
        """Wait for a condition. `seconds` is the limit on an idle host. Raises TimeoutError, which names
        `description`.
        """
        deadline = Deadline(seconds)
        while True:
            with self._changed:
                if condition(self.observations) or (self._changed.wait(LOOK_SECONDS) and condition(self.observations)):
                    return
            if deadline.passed():
                raise TimeoutError(f"this did not happen within {deadline.bound:.0f} s: {description}")

    @property
    def ledger(self) -> Path:
        """The ledger of the present job. Raises OSError before the first job."""
        return self._job().ledger

    def _job(self) -> JobFolder:
        current = read_current_job(current_job_file(self._mount, self._cluster))
        return JobFolder.of(self._mount, self._cluster, current.job)

    def _run(self) -> None:
        while not self._stop.wait(self._every):
            try:
                self._observe()
            except (BotoCoreError, ClientError, Unreadable) as error:
                self._show_line(f"the cluster could not be observed, and is observed again: {error}")

    def _observe(self) -> None:
        instances, statuses = self._instances(), self._statuses()
        events = self._new_events()
        with self._changed:
            self._note_instances(instances)
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

    def _instances(self) -> list[dict[str, Any]]:
        pages = self._ec2.get_paginator("describe_instances").paginate(
            Filters=[{"Name": f"tag:{OWNER_TAG}", "Values": [self._cluster]}]
        )
        return [
            instance for page in pages for reservation in page["Reservations"] for instance in reservation["Instances"]
        ]

    def _statuses(self) -> dict[str, str]:
        pages = self._ec2.get_paginator("describe_tags").paginate(Filters=[{"Name": "key", "Values": [STATUS_TAG]}])
        return {tag["ResourceId"]: tag["Value"] for page in pages for tag in page["Tags"]}

    def _note_instances(self, instances: list[dict[str, Any]]) -> None:
        for instance in instances:
            name, state = instance["InstanceId"], instance["State"]["Name"]
            if any(tag["Key"] == BASE_TAG for tag in instance.get("Tags", [])):
                self.observations.base.add(name)
            self.observations.addresses.setdefault(name, instance.get("PrivateIpAddress", ""))
            if self.observations.states.get(name) != state:
                self._show_line(f"{name}  {state}")
                if state == "terminated":
                    self.observations.terminated_at[name] = time.time()
            self.observations.states[name] = state

    def _new_events(self) -> list[Event]:
        """New events of the present job, after the unread events of the job before. A half-written line is read the
        next time.
        """
        try:
            path = self._job().events
        except OSError:
            return []
        earlier_events = self._unread_events() if path != self._log else []
        if path != self._log != Path():
            self._show_line(f"another job begins: {path.parent.name}")
        self._log, self._offset = path, self._offset if path == self._log else 0
        return [*earlier_events, *self._unread_events()]

    def _unread_events(self) -> list[Event]:
        try:
            with self._log.open("rb") as file:
                file.seek(self._offset)
                complete_lines = file.read().rpartition(b"\n")[0]
        except OSError:
            return []
        self._offset += len(complete_lines) + 1 if complete_lines else 0
        return [parse(json.loads(line), self._log) for line in complete_lines.splitlines() if line]
