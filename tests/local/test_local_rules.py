"""What the controller does by itself, on the embedded cloud with real handlers, rules and table; machines are switched off.

Launches that fail (C17), a group that is the cluster's by its tag alone (C26), orphans, and events about capacity.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from local_toycloud import QUIET, wait_for

from controller.contract import NODE_DETAIL_TYPES, NodeReport, SignedDocument, elastic_tag
from controller.local.cloud import Cloud
from controller.local.cluster import Cluster, ClusterPlan, provision
from controller.local.identity import InstanceFacts, document

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
        items = self.cloud.client("dynamodb").scan(TableName="dyntrain")["Items"]
        return [entry for item in items if item["pk"]["S"] == "audit#demo" for entry in json.loads(item["entries"]["S"])]

    def say(self, source: str, kind: str, detail: dict[str, Any]) -> None:
        self.cloud.client("events").put_events(Entries=[{"Source": source, "DetailType": kind, "Detail": json.dumps(detail)}])

    def prepared(self, instance: str) -> None:
        said = document(InstanceFacts(instance, "ami-1", "c5.large", "10.0.0.9", "us-east-1a", "us-east-1", self.cloud.account.number, 0.0, None))
        identity = SignedDocument(document=said, signature=self.cloud.signer.sign(said))
        report = NodeReport(
            cluster="demo", instance_id=instance, private_ip="10.0.0.9", attempt=1, outcome="prepared", at=time.time(), identity=identity
        )
        self.say("dyntrain.node", NODE_DETAIL_TYPES["prepared"], report.model_dump(mode="json"))

    def invocations(self, function: str) -> list[dict[str, Any]]:
        lines = [json.loads(line) for line in self.cloud.trace.path.read_text().splitlines()]
        return [line for line in lines if line["kind"] == "invocation" and line["function"] == function]


@pytest.fixture
def account(tmp_path: Path) -> Iterator[Account]:
    policy = {"settling_seconds": 0.2, "launch_cooldown_seconds": 2.0, "orphan_grace_seconds": 2.0, "terminate_orphans": True}
    with Cloud(app_directory=ROOT, options=replace(QUIET, handler_processes=2), state_dir=tmp_path / "cloud", resync_seconds=0.5) as cloud:
        plan = ClusterPlan("demo", tmp_path / "cloud" / "shared", ("true",), job=False, policy=policy)
        yield Account(cloud, provision(cloud.environment, plan))


def test_c17_a_group_without_capacity_is_lowered_to_what_runs_and_filled_back(account: Account) -> None:
    group = account.cluster.group
    account.autoscaling.set_desired_capacity(AutoScalingGroupName=group, DesiredCapacity=1)
    (running,) = wait_for(lambda: account.states(group))
    account.cloud.groups.refuse_launches(group, ["We currently do not have sufficient c5.large capacity"] * 10)
    account.autoscaling.set_desired_capacity(AutoScalingGroupName=group, DesiredCapacity=3)
    wait_for(lambda: any(entry.get("why") == "LOWERED" for entry in account.trail()), PATIENCE)
    lowered = next(entry for entry in account.trail() if entry.get("why") == "LOWERED")
    assert (lowered["value"], lowered["detail"]) == ("1", "InsufficientInstanceCapacity: We currently do not have sufficient c5.large capacity")
    account.prepared(running)
    wait_for(lambda: account.states(group).get(running) == "InService", PATIENCE)  # nobody else waits for the missing ones
    wait_for(lambda: account.group(group)["DesiredCapacity"] == 3 and len(account.states(group)) == 3, PATIENCE)
    assert any(entry.get("why") == "FILLED_BACK" for entry in account.trail())


def test_c26_a_group_that_only_carries_the_clusters_tag_is_looked_after_like_a_registered_one(account: Account) -> None:
    """Its member is stamped, answers its hook by the controller's hand, and is let go through the group when it loses its tag."""
    bare = {"ImageId": "ami-12345678", "InstanceType": "c5.large"}
    account.ec2.create_launch_template(LaunchTemplateName="bare", LaunchTemplateData=bare)
    owner = {"Key": "dyntrain:cluster", "Value": "demo", "PropagateAtLaunch": False, "ResourceId": "extra", "ResourceType": "auto-scaling-group"}
    account.autoscaling.create_auto_scaling_group(
        AutoScalingGroupName="extra",
        LaunchTemplate={"LaunchTemplateName": "bare"},
        AvailabilityZones=["us-east-1a"],
        MinSize=0,
        MaxSize=2,
        DesiredCapacity=0,
        Tags=[owner],
    )
    account.autoscaling.put_lifecycle_hook(
        AutoScalingGroupName="extra",
        LifecycleHookName="extra-launch",
        LifecycleTransition="autoscaling:EC2_INSTANCE_LAUNCHING",
        HeartbeatTimeout=300,
        DefaultResult="ABANDON",
    )
    account.autoscaling.set_desired_capacity(AutoScalingGroupName="extra", DesiredCapacity=1)
    (member,) = wait_for(lambda: account.states("extra"))
    account.ec2.create_tags(Resources=[member], Tags=[{"Key": elastic_tag("demo"), "Value": ""}])
    wait_for(lambda: account.tags(member).get("dyntrain:cluster") == "demo", PATIENCE)
    account.prepared(member)
    wait_for(lambda: account.states("extra").get(member) == "InService", PATIENCE)
    wait_for(lambda: account.tags(member).get("elastic_worker_status") == "ADD_QUEUED", PATIENCE)
    other = account.ec2.run_instances(LaunchTemplate={"LaunchTemplateName": account.cluster.launch_template}, MinCount=1, MaxCount=1)
    account.prepared(other["Instances"][0]["InstanceId"])  # so that the minimum does not hold the member
    wait_for(lambda: account.tags(other["Instances"][0]["InstanceId"]).get("elastic_worker_status") == "ADD_QUEUED", PATIENCE)
    account.ec2.delete_tags(Resources=[member], Tags=[{"Key": elastic_tag("demo")}])
    wait_for(lambda: account.cloud.instance_state(member) == "terminated", PATIENCE)
    assert account.group("extra")["DesiredCapacity"] == 0


def test_orphans_are_found_by_tag_and_by_launch_template_and_only_the_clusters_own_is_ended(account: Account) -> None:
    template = {"LaunchTemplateName": account.cluster.launch_template}
    ours, stripped = (one["InstanceId"] for one in account.ec2.run_instances(LaunchTemplate=template, MinCount=2, MaxCount=2)["Instances"])
    gone = [{"Key": key} for key in (elastic_tag("demo"), "dyntrain:cluster", "NodeType", "Name")]
    account.ec2.delete_tags(Resources=[stripped], Tags=gone)
    foreign = account.ec2.run_instances(ImageId="ami-12345678", MinCount=1, MaxCount=1)["Instances"][0]["InstanceId"]
    account.ec2.create_tags(Resources=[foreign], Tags=[{"Key": elastic_tag("demo"), "Value": ""}])
    wait_for(lambda: {ours, stripped, foreign} <= {entry["instance"] for entry in account.trail() if entry["kind"] == "Orphan"}, PATIENCE)
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
    account_with_pool.say("aws.ec2", kind, detail)
    (told,) = wait_for(lambda: account_with_pool.invocations("on_capacity_change")[before:], PATIENCE)
    assert (told["outcome"], told["result"]["pools"]) == ("ok", 1)


def test_c23_an_interruption_of_capacity_reaches_the_node_with_its_deadline(account_with_pool: Account) -> None:
    account, node = account_with_pool, "i-0123456789abcdef0"
    for kind in ("EC2 Capacity Reservation Instance Interruption Warning", "EC2 Interruptible Capacity Reservation Instance Interruption Warning"):
        account.say("aws.ec2", kind, {"instance-id": node, "instance-action": "terminate", "instance-termination-time": "2037-01-01T00:00:00Z"})
    wait_for(lambda: len(account.invocations("on_interruption")) >= 2, PATIENCE)
    assert {told["result"]["kind"] for told in account.invocations("on_interruption")} == {"applied", "unchanged"}
    assert {told["result"]["instance"] for told in account.invocations("on_interruption")} == {node}


@pytest.fixture(scope="module")
def account_with_pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Account]:
    """Its schedules hardly ever run: what the pool looks at, an event made it look at."""
    folder = tmp_path_factory.mktemp("pool")
    options = replace(QUIET, handler_processes=2)
    with Cloud(app_directory=ROOT, options=options, state_dir=folder / "cloud", resync_seconds=600.0) as cloud:
        pool = {"instance_type": "c5.large", "dry_run": True}
        yield Account(cloud, provision(cloud.environment, ClusterPlan("demo", folder, ("true",), job=False, policy={"pool": pool})))
