"""What the controller does by itself, on the embedded cloud with real handlers, rules and table; machines are switched
off.

Launches that fail (C17), a group that is the cluster's by its stack alone (C26), orphans, and events about capacity.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError
from dyntrain.controller.contract.elastic_tag import ELASTIC_TAG
from dyntrain.controller.local.cloud.embedded import Cloud
from dyntrain.controller.local.pace import patient
from dyntrain.controller.local.stack import Cluster, create_stack
from local_toycloud import QUIET, say, say_prepared
from waiting import wait_for

ROOT = Path(__file__).parents[2]
PATIENCE = 50.0


class Account:
    def __init__(self, cloud: Cloud, cluster: Cluster) -> None:
        self.cloud, self.cluster = cloud, cluster
        self.ec2, self.autoscaling = cloud.client("ec2"), cloud.client("autoscaling")

    def group(self, name: str) -> dict[str, Any]:
        return dict(self.autoscaling.describe_auto_scaling_groups(AutoScalingGroupNames=[name])["AutoScalingGroups"][0])

    def states(self, name: str) -> dict[str, str]:
        return {member["InstanceId"]: member["LifecycleState"] for member in self.group(name)["Instances"]}

    def tags(self, instance: str) -> dict[str, str]:
        return self.cloud.account.instance_tags(instance)

    def trail(self) -> list[dict[str, str]]:
        items = self.cloud.client("dynamodb").scan(TableName=self.cloud.table)["Items"]
        return [
            entry for item in items if item["pk"]["S"] == "audit#demo" for entry in json.loads(item["entries"]["S"])
        ]

    def prepared(self, instance: str) -> None:
        say_prepared(self.cloud, instance)

    def invocations(self, function: str) -> list[dict[str, Any]]:
        lines = [json.loads(line) for line in self.cloud.trace.path.read_text().splitlines()]
        return [line for line in lines if line["kind"] == "invocation" and line["function"] == function]


@pytest.fixture
def account(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Account]:
    """A test's parameter is more of the policy."""
    policy = {"settling_seconds": 0.2, "launch_cooldown_seconds": 2.0, **getattr(request, "param", {})}
    with Cloud(
        app_directory=ROOT,
        options=replace(QUIET, handler_processes=2),
        state_dir=tmp_path / "cloud",
        resync_seconds=0.5,
    ) as cloud:
        yield Account(cloud, create_stack(cloud, "demo", ("true",), {"WorkerCount": "0"}, policy))


def test_c17_a_group_without_capacity_is_lowered_to_what_runs_and_filled_back(account: Account) -> None:
    group = account.cluster.group
    account.autoscaling.set_desired_capacity(AutoScalingGroupName=group, DesiredCapacity=1)
    (running,) = wait_for(lambda: account.states(group))
    account.cloud.groups.refuse_launches(group, ["We currently do not have sufficient c5.large capacity"] * 10)
    account.autoscaling.set_desired_capacity(AutoScalingGroupName=group, DesiredCapacity=3)
    wait_for(lambda: any(entry.get("why") == "LOWERED" for entry in account.trail()), PATIENCE)
    lowered = next(entry for entry in account.trail() if entry.get("why") == "LOWERED")
    assert (lowered["value"], lowered["detail"]) == (
        "1",
        "InsufficientInstanceCapacity: We currently do not have sufficient c5.large capacity",
    )
    account.prepared(running)
    # nobody else waits for the missing ones
    wait_for(lambda: account.states(group).get(running) == "InService", PATIENCE)
    wait_for(lambda: account.group(group)["DesiredCapacity"] == 3 and len(account.states(group)) == 3, PATIENCE)
    # the trail has it once the call has come back, which is after the group has it
    wait_for(lambda: any(entry.get("why") == "FILLED_BACK" for entry in account.trail()), PATIENCE)


@pytest.mark.parametrize("account", [{"groups": []}], indirect=True)
def test_c26_a_group_that_the_clusters_stack_made_is_looked_after_like_a_registered_one_and_no_other(
    account: Account,
) -> None:
    """Its member is stamped, answers its hook by the controller's hand, and is let go through the group when it loses
    its tag. A group that only carries the cluster's tag keeps its member, its size, and its members' tags.
    """
    bare = {"ImageId": "ami-12345678", "InstanceType": "c5.large"}
    account.ec2.create_launch_template(LaunchTemplateName="bare", LaunchTemplateData=bare)
    theirs = {"ResourceId": "theirs", "ResourceType": "auto-scaling-group", "PropagateAtLaunch": False}
    owner = {**theirs, "Key": "dyntrain:cluster", "Value": "demo"}
    account.autoscaling.create_auto_scaling_group(
        AutoScalingGroupName="theirs",
        LaunchTemplate={"LaunchTemplateName": "bare"},
        AvailabilityZones=["us-east-1a"],
        MinSize=0,
        MaxSize=2,
        DesiredCapacity=1,
        Tags=[owner],
    )
    with pytest.raises(ClientError, match="reserved for internal use"):
        account.autoscaling.create_or_update_tags(Tags=[{**owner, "Key": "aws:cloudformation:stack-name"}])
    (stranger,) = wait_for(lambda: account.states("theirs"))
    group = account.cluster.group
    account.autoscaling.set_desired_capacity(AutoScalingGroupName=group, DesiredCapacity=1)
    (member,) = wait_for(lambda: account.states(group))
    account.ec2.delete_tags(Resources=[member], Tags=[{"Key": "dyntrain:cluster"}])
    wait_for(lambda: account.tags(member).get("dyntrain:cluster") == "demo", PATIENCE)
    account.prepared(member)
    wait_for(lambda: account.states(group).get(member) == "InService", PATIENCE)
    wait_for(lambda: account.tags(member).get("elastic_worker_status") == "ADD_QUEUED", PATIENCE)
    other = account.ec2.run_instances(
        LaunchTemplate={"LaunchTemplateName": account.cluster.launch_template}, MinCount=1, MaxCount=1
    )
    account.prepared(other["Instances"][0]["InstanceId"])  # so that the minimum does not hold the member
    wait_for(
        lambda: account.tags(other["Instances"][0]["InstanceId"]).get("elastic_worker_status") == "ADD_QUEUED", PATIENCE
    )
    account.ec2.delete_tags(Resources=[member], Tags=[{"Key": ELASTIC_TAG.of("demo")}])
    wait_for(lambda: account.cloud.instance_state(member) == "terminated", PATIENCE)
    heard = account.invocations("on_lifecycle")
    assert ("ok", "applied") in {(one["outcome"], one["result"]["kind"]) for one in heard}
    assert account.group(group)["DesiredCapacity"] == 0
    assert (account.group("theirs")["DesiredCapacity"], account.states("theirs")) == (1, {stranger: "InService"})
    assert not [key for key in account.tags(stranger) if not key.startswith("aws:")]


def test_a_hook_that_is_put_sends_a_test_notification_that_means_nothing(account: Account) -> None:
    def notifications() -> set[str]:
        lines = [json.loads(line) for line in account.cloud.trace.path.read_text().splitlines()]
        sent = [line["event"] for line in lines if line["kind"] == "event"]
        return {event["id"] for event in sent if event["detail"].get("Event") == "autoscaling:TEST_NOTIFICATION"}

    of_the_stack = notifications()
    account.autoscaling.put_lifecycle_hook(
        AutoScalingGroupName=account.cluster.group,
        LifecycleHookName="another",
        LifecycleTransition="autoscaling:EC2_INSTANCE_LAUNCHING",
        HeartbeatTimeout=300,
        DefaultResult="ABANDON",
    )
    (sent,) = wait_for(lambda: notifications() - of_the_stack, PATIENCE)
    heard = wait_for(
        lambda: next((one for one in account.invocations("on_lifecycle") if one["event_id"] == sent), None), PATIENCE
    )
    assert (heard["outcome"], heard["result"]["kind"], heard["error"]) == ("ok", "ignored", "")


@pytest.mark.parametrize("account", [{"orphan_grace_seconds": 2.0, "terminate_orphans": True}], indirect=True)
def test_orphans_are_found_by_tag_and_by_launch_template_and_only_the_clusters_own_is_ended(account: Account) -> None:
    template = {"LaunchTemplateName": account.cluster.launch_template}
    ours, stripped = (
        one["InstanceId"]
        for one in account.ec2.run_instances(LaunchTemplate=template, MinCount=2, MaxCount=2)["Instances"]
    )
    gone = [{"Key": key} for key in (ELASTIC_TAG.of("demo"), "dyntrain:cluster", "NodeType", "Name")]
    account.ec2.delete_tags(Resources=[stripped], Tags=gone)
    foreign = account.ec2.run_instances(ImageId="ami-12345678", MinCount=1, MaxCount=1)["Instances"][0]["InstanceId"]
    account.ec2.create_tags(Resources=[foreign], Tags=[{"Key": ELASTIC_TAG.of("demo"), "Value": ""}])
    wait_for(
        lambda: (
            {ours, stripped, foreign} <= {entry["instance"] for entry in account.trail() if entry["kind"] == "Orphan"}
        ),
        PATIENCE,
    )
    wait_for(lambda: account.cloud.instance_state(ours) == "terminated", PATIENCE)
    assert [account.cloud.instance_state(one) for one in (stripped, foreign)] == ["running", "running"]


@pytest.mark.parametrize(
    ("kind", "detail"),
    [
        ("Capacity Block Delivered", {"capacity-reservation-id": "cr-0123456789abcdef0"}),
        ("Capacity Block Reservation Delivered", {"capacity-reservation-id": "cr-0123456789abcdef0"}),
        ("Capacity Block Expiration Warning", {"capacity-reservation-id": "cr-0123456789abcdef0"}),
        ("Capacity Block Reservation Expiration Warning", {"capacity-reservation-id": "cr-0123456789abcdef0"}),
        ("EC2 Capacity Reservation Active", {"capacity-reservation-id": "cr-0123456789abcdef0", "state": "active"}),
    ],
)
def test_c30_an_event_about_capacity_makes_the_pool_look_whichever_way_aws_spells_it(
    account_with_pool: Account, kind: str, detail: dict[str, str]
) -> None:
    before = len(account_with_pool.invocations("on_capacity_change"))
    say(account_with_pool.cloud, "aws.ec2", kind, detail)
    (invocation,) = wait_for(lambda: account_with_pool.invocations("on_capacity_change")[before:], PATIENCE)
    assert (invocation["outcome"], invocation["result"]["pools"]) == ("ok", 1)


def test_c23_an_interruption_of_capacity_reaches_the_node_with_its_deadline(account_with_pool: Account) -> None:
    account, node = account_with_pool, "i-0123456789abcdef0"
    for kind in (
        "EC2 Capacity Reservation Instance Interruption Warning",
        "EC2 Interruptible Capacity Reservation Instance Interruption Warning",
    ):
        say(
            account.cloud,
            "aws.ec2",
            kind,
            {"instance-id": node, "instance-action": "terminate", "instance-termination-time": "2037-01-01T00:00:00Z"},
        )
    wait_for(lambda: len(account.invocations("on_interruption")) >= 2, PATIENCE)
    assert {invocation["result"]["kind"] for invocation in account.invocations("on_interruption")} == {
        "applied",
        "unchanged",
    }
    assert {invocation["result"]["instance"] for invocation in account.invocations("on_interruption")} == {node}


@pytest.fixture(scope="module")
def account_with_pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Account]:
    """Its schedules hardly ever run: what the pool looks at, an event made it look at."""
    folder = tmp_path_factory.mktemp("pool")
    options = replace(QUIET, handler_processes=2)
    with Cloud(app_directory=ROOT, options=options, state_dir=folder / "cloud", resync_seconds=600.0) as cloud:
        pool = {"instance_type": "c5.large", "group": "demo-workers", "dry_run": True}
        yield Account(cloud, create_stack(cloud, "demo", ("true",), {"WorkerCount": "0"}, {"pool": pool}))


@pytest.mark.parametrize("account", [{"after_job": "stop", "max_hours": 0.003}], indirect=True)
def test_a_cluster_over_its_hours_is_stopped_or_ended_with_its_places_and_one_that_is_started_goes_on(
    account: Account,
) -> None:
    """Two clusters that differ in after_job. A group that would replace what does not run is kept from it until that
    runs again, and may launch all the same.
    """
    policy = {"settling_seconds": 0.2, "after_job": "terminate", "max_hours": 0.003}
    create_stack(account.cloud, "ended", ("true",), {"WorkerCount": "0"}, policy)
    (stopped,), (ended,) = (
        wait_for(lambda group=group: account.states(group), PATIENCE) for group in ("demo-master", "ended-master")
    )
    account.prepared(stopped)
    say_prepared(account.cloud, ended, "ended")

    def dyntrain(*words: str) -> str:
        command = [sys.executable, "-m", "dyntrain", *words]
        done = subprocess.run(
            command, env=account.cloud.program_environment, capture_output=True, text=True, timeout=patient(60)
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def suspended() -> set[str]:
        return {one["ProcessName"] for one in account.group("demo-master")["SuspendedProcesses"]}

    wait_for(lambda: account.cloud.instance_state(stopped) == "stopped", PATIENCE)
    assert account.states("demo-master") == {stopped: "InService"}
    assert suspended() == {"HealthCheck", "ReplaceUnhealthy"}
    wait_for(lambda: account.states("ended-master") == {}, PATIENCE)
    assert account.cloud.instance_state(ended) == "terminated"
    assert account.group("ended-master")["DesiredCapacity"] == 0
    output = dyntrain("status")
    assert f"to go on: aws ec2 start-instances --instance-ids {stopped}" in output
    assert "to go on: set the desired capacity of ended-master as it was" in output

    def resumed() -> bool:
        """Its hours are short: on a busy host they may be over again before it is seen to run."""
        if account.cloud.instance_state(stopped) == "stopped":
            account.ec2.start_instances(InstanceIds=[stopped])
        return any(entry["kind"] == "ResumeReplacement" for entry in account.trail())

    wait_for(resumed, PATIENCE)
    dyntrain("scale", "demo", "1")
    wait_for(lambda: account.states(account.cluster.group), PATIENCE)
    assert [entry for entry in account.trail() if entry["kind"] in ("BaseNodeAway", "GroupRefuses")] == []
    (costs,) = json.loads(dyntrain("cost", "ended", "--json"))
    (line,) = costs["lines"]
    assert (line["role"], line["instances"], line["running"], line["cost"]) == ("master", 1, 0, None)
    assert line["hours"] > 0
