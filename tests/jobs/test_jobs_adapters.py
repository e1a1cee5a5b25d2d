"""What AWS answers about jobs, as botocore gives it, and what becomes of it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from aws_types import aws_types
from botocore.exceptions import ClientError
from dyntrain.controller.adapters.jobs import TableJobRecords
from dyntrain.controller.adapters.submission import AwsLauncher
from dyntrain.controller.contract.errors import GiveUp, Refused, RetryLater
from dyntrain.controller.jobs.ports import StoredJob
from dyntrain.controller.jobs.submission.ports import NoCapacity, RootVolume
from job_world import World


class Aws:
    """Clients and all of their services. `error` is what each call is refused with."""

    def __init__(self, error: str = "") -> None:
        self.error = error
        self.items: list[dict[str, Any]] = []
        self.request: dict[str, Any] = {}
        self.keys: list[str] = []

    def ec2(self) -> Any:
        return self

    dynamodb = s3 = ssm = ec2

    @property
    def meta(self) -> Any:
        return type("Meta", (), {"region_name": "us-east-1"})

    def _call(self, method: str) -> None:
        if self.error:
            raise ClientError({"Error": {"Code": self.error, "Message": "i-0123456789abcdef0"}}, method)

    def create_tags(self, **_request: Any) -> None:
        self._call("CreateTags")

    def run_instances(self, **_request: Any) -> None:
        self._call("RunInstances")

    def describe_spot_price_history(self, **request: Any) -> dict[str, Any]:
        self.request = request
        return {"SpotPriceHistory": [{"SpotPrice": "0.30"}, {"SpotPrice": "0.90"}]}

    def describe_instance_types(self, InstanceTypes: list[str]) -> dict[str, Any]:  # noqa: N803
        return {"InstanceTypes": [aws_types()[name] for name in InstanceTypes]}

    def get_parameter(self, Name: str) -> dict[str, Any]:  # noqa: N803
        return {"Parameter": {"Value": Name}}

    def describe_images(self, ImageIds: list[str]) -> dict[str, Any]:  # noqa: N803
        volumes = [{"DeviceName": "/dev/sdb", "VirtualName": "ephemeral0"}]
        if ImageIds == ["ami-1"]:
            volumes.append({"DeviceName": "/dev/sda1", "Ebs": {"VolumeSize": 75}})  # type: ignore[dict-item]
        return {"Images": [{"RootDeviceName": "/dev/sda1", "BlockDeviceMappings": volumes}]}

    def put_item(self, Item: dict[str, Any], **_request: Any) -> None:  # noqa: N803
        self.items.append(Item)

    def get_paginator(self, method: str) -> Any:
        return self

    def paginate(self, **_request: Any) -> Iterator[dict[str, Any]]:
        yield {"Items": self.items, "Contents": [{"Key": key} for key in self.keys]}


def launcher(error: str = "") -> AwsLauncher:
    clients: Any = Aws(error)
    return AwsLauncher(clients)


def test_an_instance_that_ec2_does_not_show_yet_is_tagged_later_and_one_that_may_not_be_never() -> None:
    with pytest.raises(RetryLater):
        launcher("InvalidInstanceID.NotFound").tag(["i-0123456789abcdef0"], {"A": "b"})
    with pytest.raises(Refused):
        launcher("UnauthorizedOperation").tag(["i-0123456789abcdef0"], {"A": "b"})


def test_a_launch_without_room_is_told_from_one_that_is_not_allowed() -> None:
    fields = {"MaxCount": 2, "InstanceType": "g5.xlarge"}
    with pytest.raises(NoCapacity, match="not all 2"):
        launcher("InsufficientInstanceCapacity").launch(fields)
    with pytest.raises(Refused) as refusal:
        launcher("UnauthorizedOperation").launch(fields)
    assert not isinstance(refusal.value, NoCapacity)


PLAIN = "/aws/service/canonical/ubuntu/server/24.04/stable/current/{}/hvm/ebs-gp3/ami-id"
DRIVER = "/aws/service/deeplearning/ami/{}/base-oss-nvidia-driver-gpu-ubuntu-24.04/latest/ami-id"


@pytest.mark.parametrize(
    ("kind", "parameter"),
    [
        ("c6i.xlarge", PLAIN.format("amd64")),
        ("c7g.xlarge", PLAIN.format("arm64")),
        ("g5.xlarge", DRIVER.format("x86_64")),
        ("p5.48xlarge", DRIVER.format("x86_64")),
        ("g5g.xlarge", DRIVER.format("arm64")),
    ],
)
def test_the_image_is_taken_by_hardware(kind: str, parameter: str) -> None:
    """Plain Ubuntu has no driver: the command would find no GPU on a machine that is paid for it."""
    clients: Any = Aws()
    assert AwsLauncher(clients).image_for(kind) == parameter


@pytest.mark.parametrize("kind", ["p3dn.24xlarge", "g6f.large"])
def test_gpus_that_the_image_has_no_driver_for_want_an_image_of_ones_own(kind: str) -> None:
    with pytest.raises(GiveUp, match=r"take g4dn, .*; or name an image .* by --image"):
        launcher().image_for(kind)


def test_the_root_volume_is_the_images_own_and_not_another_of_its_volumes() -> None:
    assert launcher().root_volume_of("ami-1") == RootVolume("/dev/sda1", 75)
    assert launcher().root_volume_of("ami-2") is None, "instance store"


def test_at_most_so_many_dollars_is_the_dearest_zones_price_as_it_is_now() -> None:
    clients: Any = Aws()
    before = datetime.now(UTC)
    assert AwsLauncher(clients).price("g5.xlarge", spot=True) == 0.90
    assert before <= clients.request["StartTime"] <= datetime.now(UTC)


def test_nodes_that_were_heard_of_are_counted_by_one_list() -> None:
    world = World()
    world.submit()
    clients: Any = Aws()
    run = f"mnist/runs/{world.record().run}"
    clients.keys = [f"{run}/1/alive", f"{run}/1/exit.json", f"{run}/exit.json", f"{run}/77/alive", f"{run}/plan.json"]
    assert AwsLauncher(clients).alive_count(world.record()) == 1


def test_a_record_that_cannot_be_read_keeps_no_other_job_from_being_looked_at() -> None:
    world = World()
    world.submit()
    clients: Any = Aws()
    records = TableJobRecords(clients, "table")
    for change in ({}, {"run": {"S": "[1]"}}, {"format": {"N": "99"}}):
        records.put(StoredJob(world.record(), 0), over=False)
        clients.items[-1].update(change)
    assert [stored.record.name for stored in records.live_jobs()] == ["mnist"]
