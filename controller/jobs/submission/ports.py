"""Interfaces to AWS for submitting a job, whose methods raise the same errors as the interfaces in `loops.ports`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from dyntrain.controller.contract.errors import Refused
from dyntrain.controller.jobs.record import JobRecord
from dyntrain.controller.jobs.verdict import Machine


class NoCapacity(Refused):
    """Raised when AWS lacks capacity for all requested machines at present, and has launched no machine."""


@dataclass(frozen=True)
class RootVolume:
    """The root volume of a machine image. A volume that is created from the image cannot be smaller than `gib`."""

    device: str  # name of the device, such as /dev/sda1
    gib: int  # size in GiB


class Launcher(Protocol):
    region: str

    def pause(self, seconds: float) -> None: ...

    def image_for(self, instance_type: str) -> str:
        """The newest public machine image for the instance type. The image contains the NVIDIA driver if the instance
        type has NVIDIA GPUs. Raises Refused for an unknown instance type, and GiveUp if no image has a driver for the
        GPUs of the instance type.
        """

    def root_volume_of(self, image: str) -> RootVolume | None:
        """The root volume of the machine image, or None if the image has no root volume. Raises Refused for an image
        that does not exist.
        """

    def check_bucket(self, bucket: str) -> None:
        """Raise Refused when the S3 bucket does not exist, is in another region than the machines, or may not be
        used.
        """

    def check_launch(self, fields: Mapping[str, Any]) -> None:
        """Raise Refused when EC2 would not accept a launch with these fields. The check launches no machine."""

    def launch(self, fields: Mapping[str, Any]) -> Sequence[Machine]:
        """Launch all requested machines, or raise Refused and launch no machine. If RetryLater is raised, the outcome
        is unknown, and the same call can be repeated. Also raises Refused if a call with the same client token but
        different fields has launched machines.
        """

    def tag(self, instances: Sequence[str], tags: Mapping[str, str]) -> None:
        """Tag the instances. Raises RetryLater when EC2 does not know the new instances yet."""

    def put(self, bucket: str, key: str, content: bytes) -> None: ...

    def get(self, bucket: str, key: str) -> bytes | None:
        """The content of the S3 object, or None if the object does not exist."""

    def size(self, bucket: str, key: str) -> int:
        """The size of the S3 object in bytes. Raises Refused when the object does not exist."""

    def copy(self, source: tuple[str, str], bucket: str, key: str) -> None: ...

    def delete(self, bucket: str, keys: Sequence[str]) -> None: ...

    def alive_count(self, record: JobRecord) -> int:
        """The number of nodes of the job's run that have given a sign of life."""

    def price(self, instance_type: str, *, spot: bool) -> float | None:
        """The price of one machine in dollars per hour, or None if the price is unknown."""


@dataclass(frozen=True)
class Stack:  # of CloudFormation
    """A CloudFormation stack."""

    id: str  # CloudFormation's id of the stack
    status: str  # CloudFormation's status of the stack
    submission: str = ""  # the job submission for which the stack was created; "" for other stacks
    reason: str = ""  # CloudFormation's explanation of a failure
    file_system: str = ""  # id of the stack's EFS file system


@dataclass(frozen=True)
class Hardware:  # of an instance type
    """The properties of an instance type that decide which image and which build of MXNet it needs."""

    x86: bool  # the processor is x86_64
    nvidia: bool  # the type has NVIDIA GPUs


class Stacks(Protocol):
    """The interface for creating and ending the CloudFormation stack of a cluster. A cluster is submitted with the
    interfaces `Stacks` and `Launcher` together.
    """

    def hardware(self, instance_type: str) -> Hardware:
        """The hardware properties of the instance type. Raises Refused for an instance type that does not exist."""

    def key_pairs(self) -> Sequence[str]: ...

    def stack(self, name: str) -> Stack | None:
        """The CloudFormation stack with the name `name`, or None if no stack has this name."""

    def create(self, name: str, parameters: Mapping[str, str], submission: str) -> str:
        """Create the cluster's CloudFormation stack and return the id of the stack. Raises Refused, for example if a
        stack with the same name exists.
        """

    def delete(self, name: str) -> None:
        """Request the deletion of the CloudFormation stack. The deletion request can safely be repeated."""

    def end_machines(self, name: str) -> int:
        """Delete the cluster's Auto Scaling groups with their instances, and terminate the instances that users
        launched from the cluster's launch templates. Returns the number of machines that were not yet terminated.
        `end_machines` can safely be called again.
        """
