"""Interfaces to AWS for submitting a job, with the errors of `loops.ports`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from dyntrain.controller.contract.errors import Refused
from dyntrain.controller.jobs.record import JobRecord
from dyntrain.controller.jobs.verdict import Machine


class NoRoom(Refused):
    """AWS lacks capacity for all machines now, and has launched none."""


@dataclass(frozen=True)
class Root:
    """The root volume of an image; a volume made from it cannot be smaller."""

    device: str
    gib: int


class Launcher(Protocol):
    region: str

    def pause(self, seconds: float) -> None: ...

    def image_for(self, instance_type: str) -> str:
        """The newest public image for the type, with the driver for NVIDIA's GPUs. Raises Refused for an unknown type,
        GiveUp for GPUs without such an image.
        """

    def root_of(self, image: str) -> Root | None:
        """The image's root volume; None when it has none. Raises Refused for an image that does not exist."""

    def check_bucket(self, bucket: str) -> None:
        """Raise Refused when the bucket does not exist, or may not be used."""

    def check_launch(self, fields: Mapping[str, Any]) -> None:
        """Raise Refused when EC2 would not accept the call; launches nothing."""

    def launch(self, fields: Mapping[str, Any]) -> Sequence[Machine]:
        """Launch all machines, or raise Refused and launch none. After RetryLater the outcome is unknown, and
        the same call can be repeated. Raises Refused also if a different call with this token has launched machines.
        """

    def tag(self, instances: Sequence[str], tags: Mapping[str, str]) -> None:
        """Tag the instances. Raises RetryLater when EC2 does not know its own instances yet."""

    def put(self, bucket: str, key: str, content: bytes) -> None: ...

    def get(self, bucket: str, key: str) -> bytes | None:
        """The object's content; None when it does not exist."""

    def size(self, bucket: str, key: str) -> int:
        """The object's size in bytes. Raises Refused when it does not exist."""

    def copy(self, source: tuple[str, str], bucket: str, key: str) -> None: ...

    def delete(self, bucket: str, keys: Sequence[str]) -> None: ...

    def alive_count(self, record: JobRecord) -> int:
        """How many nodes of the run have given a sign of life."""

    def price(self, instance_type: str, *, spot: bool) -> float | None:
        """Dollars an hour for one machine; None when unknown."""


@dataclass(frozen=True)
class Stack:
    """A CloudFormation stack. `submission` names the job that it was created for, "" for any other stack; `reason` is
    CloudFormation's explanation of a failure.
    """

    id: str
    status: str
    submission: str = ""
    reason: str = ""
    file_system: str = ""


@dataclass(frozen=True)
class Hardware:
    """The properties of an instance type that decide which image and which MXNet it takes."""

    x86: bool
    nvidia: bool


class Stacks(Protocol):
    """Ports for creating and ending a cluster, besides `Launcher`."""

    def hardware(self, instance_type: str) -> Hardware:
        """The hardware of the type. Raises Refused for a type that does not exist."""

    def key_pairs(self) -> Sequence[str]: ...

    def stack(self, name: str) -> Stack | None:
        """The stack of that name; None if it does not exist."""

    def create(self, name: str, parameters: Mapping[str, str], submission: str) -> str:
        """Create the cluster's stack and return its id. Raises Refused, also if a stack of that name exists."""

    def delete(self, name: str) -> None:
        """Request the deletion. Safe to repeat."""

    def end_machines(self, name: str) -> int:
        """Delete the cluster's groups with their instances, and the instances that people launched from its templates.
        Returns how many machines have not ended yet. Safe to repeat.
        """
