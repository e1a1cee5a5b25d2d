"""E3 on the embedded cloud, with real handlers, rules and table but machines switched off; and the reservations that
the cloud shows.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from dyntrain.controller.adapters.aws import Clients
from dyntrain.controller.adapters.ec2 import Ec2Instances
from dyntrain.controller.adapters.reservations import Ec2Reservations, TableLedger
from dyntrain.controller.contract.errors import Conflict
from dyntrain.controller.contract.messages import Target
from dyntrain.controller.contract.reports import JobMember, JobReport
from dyntrain.controller.core.pool.inputs import Claim
from dyntrain.controller.local.cloud.embedded import Cloud
from dyntrain.controller.local.pace import patient
from dyntrain.controller.local.stack import Cluster, create_stack
from dyntrain.controller.pool.ports import StoredLedger
from local_toycloud import PRIVATE_IP, QUIET, ToyCloud, say, say_prepared, signed_identity
from waiting import wait_for

ROOT = Path(__file__).parents[2]


class Account:
    """A cluster of a master and a base worker in a cloud whose rules run; nodes and coordinator are played by the
    test.
    """

    def __init__(self, cloud: Cloud, cluster: Cluster, mount: Path) -> None:
        self.cloud, self.cluster, self.mount = cloud, cluster, mount
        self._sequence = 0
        self._started = time.time()

    @property
    def base(self) -> tuple[str, ...]:
        assert self.cluster.master is not None
        return (self.cluster.master, *self.cluster.workers)

    def group(self) -> dict[str, Any]:
        answer = self.cloud.client("autoscaling").describe_auto_scaling_groups(
            AutoScalingGroupNames=[self.cluster.group]
        )
        return dict(answer["AutoScalingGroups"][0])

    def prepared(self, instance: str) -> None:
        say_prepared(self.cloud, instance)

    def trains(self, *instances: str) -> None:
        """The coordinator's word, obeying the target that is published now."""
        self._sequence += 1
        members = tuple(
            JobMember(instance_id=one, rank=n, active=True, joined_epoch=0, joined_at=time.time())
            for n, one in enumerate(instances)
        )
        report = JobReport(
            cluster="demo",
            job="job",
            state="running",
            started_at=self._started,
            sequence=self._sequence,
            generation=1,
            revision=self.target().revision,
            members=members,
            instance_id=self.base[0],
            private_ip=PRIVATE_IP,
            identity=signed_identity(self.cloud, self.base[0]),
        )
        say(self.cloud, "dyntrain.coordinator", report.detail_type, report.model_dump(mode="json"))

    def target(self) -> Target:
        return Target.model_validate_json(
            self.cloud.client("ssm").get_parameter(Name="/dyntrain/demo/target")["Parameter"]["Value"]
        )

    def status(self, instance: str) -> str | None:
        return self.cloud.account.instance_tags(instance).get("elastic_worker_status")

    def dyntrain(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        clean = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
        command = [sys.executable, "-m", "dyntrain", *arguments]
        return subprocess.run(
            command,
            env={**clean, **self.cloud.environment},
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=patient(60),
            check=False,
        )

    def keep_saying(self, word: Callable[[], None], until: Callable[[], Any], seconds: float = 25.0) -> None:
        """Reports are level: repeated until they had their effect."""

        def look() -> Any:
            if not (effect := until()):
                word()
            return effect

        wait_for(look, seconds, "the report had no effect", pause=0.3)


@pytest.fixture
def account(tmp_path: Path) -> Iterator[Account]:
    options = replace(QUIET, handler_processes=2)
    with Cloud(app_directory=ROOT, options=options, state_dir=tmp_path / "cloud", resync_seconds=0.5) as cloud:
        pool = {"instance_type": "c5.large", "group": "demo-workers", "readings": 2, "reading_seconds": 1.0}
        policy = {"pool": {**pool, "dry_run": False}, "settling_seconds": 0.2}
        cluster = create_stack(cloud, "demo", ("true",), {"InstanceType": "c5.large"}, policy)
        yield Account(cloud, cluster, cloud.state_dir / "shared")


def in_group(account: Account) -> list[str]:
    return [member["InstanceId"] for member in account.group()["Instances"]]


@pytest.mark.jobs
def test_e3_an_idle_reserved_instance_becomes_a_worker_and_is_given_back_when_the_demand_returns(
    account: Account,
) -> None:
    """Three are reserved; the two base nodes use two of them. Nobody touches the group: the pool's rule does."""
    account.cloud.reservations.reserve_instances("c5.large", 3)
    (worker,) = wait_for(lambda: in_group(account), 25)
    assert account.group()["DesiredCapacity"] == 1

    for one in account.base:
        account.prepared(one)
    account.keep_saying(lambda: account.prepared(worker), lambda: account.status(worker) == "ADD_QUEUED")
    wait_for(lambda: {worker, *account.base} == set(account.target().members or ()), 15)
    account.keep_saying(lambda: account.trains(*account.base, worker), lambda: account.status(worker) == "ADDED")

    plan = json.loads(account.dyntrain("pool", "plan", "--json").stdout)
    assert (plan["pools"][0]["spare"], plan["pools"][0]["target"], plan["pools"][0]["held"]) == (1, 1, 1)

    # the demand returns
    account.cloud.client("ec2").run_instances(ImageId="ami-12345678", MinCount=1, MaxCount=1, InstanceType="c5.large")
    wait_for(lambda: account.group()["DesiredCapacity"] == 0, 25)
    account.keep_saying(
        lambda: account.trains(*account.base, worker), lambda: account.status(worker) == "REMOVAL_QUEUED"
    )
    assert account.cloud.instance_state(worker) == "running", "it leaves at a boundary, not before"
    account.keep_saying(
        lambda: account.trains(*account.base), lambda: account.cloud.instance_state(worker) == "terminated"
    )
    assert account.status(worker) == "REMOVED"
    assert set(account.target().members or ()) == set(account.base)
    plan = json.loads(account.dyntrain("pool", "plan", "--json").stdout)
    assert (plan["pools"][0]["held"], plan["pools"][0]["spare"], plan["pools"][0]["current"]) == (0, 0, 0), (
        "the reservation is free for its owner"
    )


def test_reservations_are_shown_as_aws_shows_them(toy: ToyCloud, monkeypatch: pytest.MonkeyPatch) -> None:
    """Through the real adapter: regional ones have no zone, filters apply, capacity has what is available."""
    reservations = toy.cloud.reservations
    regional, zonal = (
        reservations.reserve_instances("c5.large", 3),
        reservations.reserve_instances("g5.xlarge", 1, zone="us-east-1a", tenancy="dedicated", seconds=600),
    )
    reservations.end_reservation(reservations.reserve_instances("c5.large", 7))
    room = reservations.reserve_capacity(
        "p3.2xlarge", 4, "us-east-1b", criteria="targeted", kind="capacity-block", seconds=900
    )
    reservations.set_used_count(room, 1)
    reservations.end_reservation(reservations.reserve_capacity("p3.2xlarge", 9, "us-east-1b"))
    for name, value in toy.cloud.environment.items():
        monkeypatch.setenv(name, value)
    seen = Ec2Reservations(Clients())
    reserved = {one.id: one for one in seen.reserved_instances()}
    assert set(reserved) == {regional, zonal}
    assert (reserved[regional].zone, reserved[regional].count, reserved[regional].platform) == (None, 3, "Linux/UNIX")
    assert (reserved[zonal].zone, reserved[zonal].tenancy) == ("us-east-1a", "dedicated")
    assert reserved[zonal].end == pytest.approx(time.time() + 600, abs=30)
    (capacity,) = seen.capacity_reservations()
    assert (capacity.id, capacity.total, capacity.available, capacity.targeted, capacity.block) == (
        room,
        4,
        3,
        True,
        True,
    )


def test_instances_are_started_stopped_and_untagged_and_the_ledger_takes_one_of_two_writers(
    account: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in account.cloud.environment.items():
        monkeypatch.setenv(name, value)
    seen = Ec2Reservations(Clients())
    (launched,) = account.cloud.client("ec2").run_instances(
        ImageId="ami-12345678", MinCount=1, MaxCount=1, InstanceType="c5.large"
    )["Instances"]
    instance = launched["InstanceId"]
    key = {"Key": "demo-aws-dl-cfn-elastic-worker", "Value": ""}
    account.cloud.client("ec2").create_tags(Resources=[instance], Tags=[key])
    acting = Ec2Instances(Clients())
    assert acting.untag([instance], key["Key"]).refused == {}
    wait_for(lambda: account.cloud.instance_state(instance) == "running")
    assert acting.stop([instance]).refused == {}
    wait_for(lambda: account.cloud.instance_state(instance) == "stopped")
    machine = next(one for one in seen.machines() if one.instance == instance)
    assert (machine.state, machine.instance_type, machine.lifecycle, key["Key"] in machine.tags) == (
        "stopped",
        "c5.large",
        "on-demand",
        False,
    )
    assert acting.start([instance]).refused == {}
    wait_for(lambda: account.cloud.instance_state(instance) == "running")

    ledger = TableLedger(Clients(), account.cloud.table)

    def written() -> StoredLedger | None:
        """None where the cloud's own pass wrote it between the two."""
        claim = Claim(count=2, instance_type="c5.large", since=1.0, expires=4e9)
        mine = StoredLedger({"other": claim}, at=1.0, version=ledger.get().version)
        try:
            ledger.put(mine)
        except Conflict:
            return None
        return mine

    mine = wait_for(written)
    with pytest.raises(Conflict):
        ledger.put(mine)
    assert ledger.get().claims["other"] == mine.claims["other"]
