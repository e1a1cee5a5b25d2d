"""What making a job needs of the world, besides `jobs.ports`. Errors are those of `loops.ports`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from dyntrain.controller.contract.errors import Refused
from dyntrain.controller.jobs.record import JobRecord
from dyntrain.controller.jobs.verdict import Machine


class NoRoom(Refused):
    """AWS has not all the machines now, and has launched none."""


@dataclass(frozen=True)
class Root:
    """The root volume of an image, which no volume made of it may be smaller than."""

    device: str
    gib: int


class Launcher(Protocol):
    region: str

    def pause(self, seconds: float) -> None: ...

    def image_for(self, instance_type: str) -> str:
        """The newest public image for the type, on NVIDIA's GPUs with the driver. Raises Refused for a type that does
        not exist, GiveUp for GPUs that no such image has a driver for.
        """

    def root_of(self, image: str) -> Root | None:
        """None: it has no root volume. Raises Refused for an image that is not there."""

    def check_bucket(self, bucket: str) -> None:
        """Raises Refused when it is not there, or not to be used."""

    def check_launch(self, fields: Mapping[str, Any]) -> None:
        """Raises Refused when EC2 would not take the call; launches nothing."""

    def launch(self, fields: Mapping[str, Any]) -> Sequence[Machine]:
        """All of them, or Refused and none. After RetryLater nobody knows; the same call again settles it. Refused, if
        the token has launched something already by another call.
        """

    def tag(self, instances: Sequence[str], tags: Mapping[str, str]) -> None:
        """Raises RetryLater when EC2 does not know its own instances yet."""

    def put(self, bucket: str, key: str, content: bytes) -> None: ...

    def get(self, bucket: str, key: str) -> bytes | None:
        """None: there is no such object."""

    def size(self, bucket: str, key: str) -> int:
        """Raises Refused when there is no such object."""

    def copy(self, source: tuple[str, str], bucket: str, key: str) -> None: ...

    def delete(self, bucket: str, keys: Sequence[str]) -> None: ...

    def heard(self, record: JobRecord) -> int:
        """How many nodes of the run have given a sign of life."""

    def price(self, instance_type: str, *, spot: bool) -> float | None:
        """Dollars an hour for one; None where it cannot be known."""


@dataclass(frozen=True)
class Stack:
    """A stack of CloudFormation's. `submission` is that of the job that it was made for, "" for any other stack;
    `reason` what CloudFormation says of a status that is a failure.
    """

    id: str
    status: str
    submission: str = ""
    reason: str = ""
    file_system: str = ""


@dataclass(frozen=True)
class Hardware:
    """Of an instance type: what decides which image and which MXNet it takes."""

    x86: bool
    nvidia: bool


class Stacks(Protocol):
    """What making and ending a cluster needs besides `Launcher`."""

    def hardware(self, instance_type: str) -> Hardware:
        """Raises Refused for a type that does not exist."""

    def key_pairs(self) -> Sequence[str]: ...

    def stack(self, name: str) -> Stack | None:
        """None: there is none, or no more."""

    def create(self, name: str, parameters: Mapping[str, str], submission: str) -> str:
        """Of the cluster's template; returns the stack's id. Raises Refused, also when there is one of the name."""

    def delete(self, name: str) -> None:
        """Asks for it. Safe to repeat."""

    def end_machines(self, name: str) -> int:
        """The cluster's groups are deleted with their instances, and what people launched from its templates is
        terminated; returns how many machines are left to end. Safe to repeat.
        """
