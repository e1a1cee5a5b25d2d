"""Interfaces to AWS for submitting a job, which raise the same errors as the interfaces in `loops.ports`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from dyntrain.controller.contract.errors import Refused
from dyntrain.controller.jobs.record import JobRecord
from dyntrain.controller.jobs.verdict import Machine


class NoCapacity(Refused):
    """AWS lacks capacity for all the machines now, and has launched no machine."""


@dataclass(frozen=True)
class RootVolume:
    """The root volume of a machine image. A volume made from the image cannot be smaller."""

    device: str  # device name
    gib: int  # size in GiB


class Launcher(Protocol):
    region: str

    def pause(self, seconds: float) -> None: ...

    def image_for(self, instance_type: str) -> str:
        """The newest public image for the instance type, which contains the driver for NVIDIA GPUs if the type has
        them. Raises Refused for an unknown type, and GiveUp if no image has a driver for the GPUs.
        """

    def root_volume_of(self, image: str) -> RootVolume | None:
        """The image's root volume, or None if it has no root volume. Raises Refused for an image that does not
        exist.
        """

    def check_bucket(self, bucket: str) -> None:
        """Raise Refused when the bucket does not exist, or may not be used."""

    def check_launch(self, fields: Mapping[str, Any]) -> None:
        """Raise Refused when EC2 would not accept the launch. This check launches nothing."""

    def launch(self, fields: Mapping[str, Any]) -> Sequence[Machine]:
        """Launch all machines, or raise Refused and launch no machine. After RetryLater the outcome is unknown, and the
        same call can be repeated. Also raises Refused if a different call with the same client token has launched
        machines.
        """

    def tag(self, instances: Sequence[str], tags: Mapping[str, str]) -> None:
        """Tag the instances. Raises RetryLater when EC2 does not know the new instances yet."""

    def put(self, bucket: str, key: str, content: bytes) -> None: ...

    def get(self, bucket: str, key: str) -> bytes | None:
        """The object's content, or None if the object does not exist."""

    def size(self, bucket: str, key: str) -> int:
        """The object's size in bytes. Raises Refused when the object does not exist."""

    def copy(self, source: tuple[str, str], bucket: str, key: str) -> None: ...

    def delete(self, bucket: str, keys: Sequence[str]) -> None: ...

    def alive_count(self, record: JobRecord) -> int:
        """How many nodes of the run have given a sign of life."""

    def price(self, instance_type: str, *, spot: bool) -> float | None:
        """The price of one machine in dollars per hour, or None if it is unknown."""


@dataclass(frozen=True)
class Stack:
    """A CloudFormation stack."""

    id: str
    status: str  # CloudFormation's status of the stack
    submission: str = ""  # the job submission for which the stack was created; "" for other stacks
    reason: str = ""  # CloudFormation's explanation of a failure
    file_system: str = ""  # id of the stack's EFS file system


@dataclass(frozen=True)
class Hardware:
    """The properties of an instance type that decide which image and which build of MXNet it needs."""

    x86: bool  # the processor is x86_64
    nvidia: bool  # the type has NVIDIA GPUs


class Stacks(Protocol):
    """The interface for creating and ending a cluster, which is used together with `Launcher`."""

    def hardware(self, instance_type: str) -> Hardware:
        """The hardware of the instance type. Raises Refused for a type that does not exist."""

    def key_pairs(self) -> Sequence[str]: ...

    def stack(self, name: str) -> Stack | None:
        """The stack with this name, or None if there is no such stack."""

    def create(self, name: str, parameters: Mapping[str, str], submission: str) -> str:
        """Create the cluster's stack and return its id. Raises Refused, also if a stack with this name exists."""

    def delete(self, name: str) -> None:
        """Request the stack's deletion. The request can safely be repeated."""

    def end_machines(self, name: str) -> int:
        """Delete the cluster's groups with their instances, and the instances that people launched from its templates.
        Returns how many machines have not ended yet. The call can safely be repeated.
        """
