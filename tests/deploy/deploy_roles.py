"""A story in which the controller makes every call it can make, recorded by role."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from deploy_iam import STAGE, Recording
from deploy_packages import ROOT
from dyntrain.controller.adapters.aws import Clients
from dyntrain.controller.adapters.items import wake_of
from dyntrain.controller.adapters.jobs import job_ports
from dyntrain.controller.adapters.on_aws import aws_notify_ports, aws_pool_ports
from dyntrain.controller.contract.elastic_tag import ELASTIC_TAG
from dyntrain.controller.contract.job_files import JOB_TAG
from dyntrain.controller.contract.messages import BASE_TAG, OWNER_TAG
from dyntrain.controller.contract.pool_policy import POOL_TAG
from dyntrain.controller.contract.reports import NodeReport
from dyntrain.controller.contract.webhook import Webhook, webhook_parameter
from dyntrain.controller.jobs.ports import StoredJob
from dyntrain.controller.jobs.record import JobRecord
from dyntrain.controller.jobs.watch import watch_jobs
from dyntrain.controller.local import events
from dyntrain.controller.local.cloud.embedded import Cloud
from dyntrain.controller.local.options import Options
from dyntrain.controller.local.stack import create_stack
from dyntrain.controller.loops.converge import converge
from dyntrain.controller.loops.intake import take_in
from dyntrain.controller.loops.notify import notify
from dyntrain.controller.loops.registry import Registry
from dyntrain.controller.loops.resync import resync
from dyntrain.controller.pool.ports import PoolPorts
from dyntrain.controller.pool.rebalance import rebalance
from waiting import wait_for

PATIENCE = 20.0


class Controller:
    """The functions as their roles run them, on a clock that the story moves, and the stream between them played by the
    story.
    """

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self.ahead = 0.0
        clients = Clients()
        clients.session.register("before-parameter-build", recording.note)
        world = aws_pool_ports(recording.cloud.table, clients=clients)
        self.world = PoolPorts(replace(world.ports, clock=self.now), world.reservations, world.ledger)
        self.seen: dict[str, str] = {}
        self.jobs = job_ports(clients, recording.cloud.table, self.now)
        self.notified = replace(aws_notify_ports(recording.cloud.table, clients=clients, stage=STAGE), sender=Posted())

    def now(self) -> float:
        return time.time() + self.ahead

    def registry(self) -> Registry:
        return Registry(self.world.ports.parameters, self.now)

    def take_in(self, source: str, kind: str, detail: dict[str, Any], *resources: str) -> None:
        origin = events.EventOrigin("1", "us-east-1", self.now(), "e")
        with self.recording.acting("intake"):
            assert (
                take_in(
                    self.world.ports, events.event_envelope(origin, source, kind, list(resources), detail), ELASTIC_TAG
                ).kind
                == "applied"
            )
        self.stream()

    def prepared(self, cluster: str, *instances: str, outcome: Literal["prepared", "alive"] = "prepared") -> None:
        for instance in instances:
            report = NodeReport(
                cluster=cluster,
                instance_id=instance,
                private_ip="10.0.0.9",
                attempt=1,
                outcome=outcome,
                at=self.now(),
            )
            self.take_in("dyntrain.node", report.detail_type, report.model_dump(mode="json"))

    def resync(self, later: float = 61.0) -> None:
        self.ahead += later
        with self.recording.acting("resync"):
            assert resync(self.world.ports, self.registry(), ELASTIC_TAG).complete
        self.stream()

    def rebalance(self) -> tuple[str, ...]:
        self.ahead += 301.0
        with self.recording.acting("rebalance"):
            done = rebalance(self.world, self.registry(), ELASTIC_TAG)
        assert done.complete
        self.stream()
        return done.changed

    def stream(self) -> None:
        """Everything that wakes and has not been converged on."""
        for _ in range(10):
            items = {
                json.dumps([item["pk"], item["sk"]]): item
                for item in self.recording.cloud.client("dynamodb").scan(TableName=self.recording.cloud.table)["Items"]
            }
            new = [
                item for key, item in items.items() if self.seen.get(key) != json.dumps(item) and item["wake"]["BOOL"]
            ]
            self.seen = {key: json.dumps(item) for key, item in items.items()}
            if not new:
                return
            with self.recording.acting("converge"):
                converge(self.world.ports, self.registry(), wake_of([{"NewImage": item} for item in new]), ELASTIC_TAG)
        raise AssertionError("converge keeps waking itself")


class Posted:
    """What is posted is seen by `tests/controller/test_controller_webhook.py`."""

    def post(self, webhook: Webhook, payload: Mapping[str, Any]) -> None:
        """Taken."""


def story(folder: Path, setenv: Callable[[str, str], None]) -> Recording:
    """On a cloud of its own, whose handlers are a toy's."""
    options = Options(
        machines=False,
        describe_lag=0.0,
        behind=0.0,
        duplicate_fraction=0.0,
        boot_delay=0.05,
        handler_processes=1,
        handler_environment={"TOY_DIRECTORY": str(folder)},
    )
    toy = ROOT / "tests" / "local" / "toy"
    with Cloud(app="toy_app:app", app_directory=toy, state_dir=folder / "state", options=options) as cloud:
        for name, value in cloud.environment.items():
            setenv(name, value)
        recording = Recording(cloud)
        controller = Controller(recording)
        policy = {
            "pool": {
                "instance_type": "c5.large",
                "group": "demo-workers",
                "readings": 1,
                "reading_seconds": 0.0,
                "dry_run": False,
            },
            "settling_seconds": 0.0,
        }
        cluster = create_stack(cloud, "demo", ("true",), {"WorkerCount": "0"}, policy)
        assert cluster.master is not None
        controller.resync()
        controller.prepared("demo", cluster.master)
        _a_group_that_the_policy_names(controller, cloud)
        _the_registered_group(controller, cloud, cluster.group)
        _an_instance_alone(controller, cloud, cluster.launch_template)
        _the_pools(controller, cloud, cluster.group)
        _a_job(controller, cloud)
        _the_end(controller, cloud, cluster.master)
        _an_alarm(controller, cloud)
        return recording


def _members(cloud: Cloud, group: str) -> dict[str, str]:
    answer = cloud.client("autoscaling").describe_auto_scaling_groups(AutoScalingGroupNames=[group])[
        "AutoScalingGroups"
    ][0]
    return {member["InstanceId"]: member["LifecycleState"] for member in answer["Instances"]}


def _a_group_that_the_policy_names(controller: Controller, cloud: Cloud) -> None:
    """Its instances come without tags: they are stamped; one is made a base node, and protected."""
    ssm, name = cloud.client("ssm"), "/dyntrain/demo/policy"
    policy = json.loads(ssm.get_parameter(Name=name)["Parameter"]["Value"])
    policy["groups"].append("extra")
    ssm.put_parameter(Name=name, Value=json.dumps(policy), Type="String", Overwrite=True)
    autoscaling, ec2 = cloud.client("autoscaling"), cloud.client("ec2")
    ec2.create_launch_template(
        LaunchTemplateName="bare", LaunchTemplateData={"ImageId": "ami-12345678", "InstanceType": "m5.large"}
    )
    tag = {
        "Key": OWNER_TAG,
        "Value": "demo",
        "PropagateAtLaunch": False,
        "ResourceId": "extra",
        "ResourceType": "auto-scaling-group",
    }
    sizes = {"MinSize": 0, "MaxSize": 1, "DesiredCapacity": 1}
    template = {"LaunchTemplateName": "bare"}
    autoscaling.create_auto_scaling_group(
        AutoScalingGroupName="extra", LaunchTemplate=template, AvailabilityZones=["us-east-1a"], Tags=[tag], **sizes
    )
    wait_for(lambda: "InService" in _members(cloud, "extra").values(), PATIENCE)
    (member,) = _members(cloud, "extra")
    ec2.create_tags(Resources=[member], Tags=[{"Key": BASE_TAG, "Value": "true"}])
    controller.resync()
    assert cloud.account.instance_tags(member)[OWNER_TAG] == "demo"


def _the_registered_group(controller: Controller, cloud: Cloud, group: str) -> None:
    """Up through the hook, which is kept alive meanwhile; no capacity for a second one; down by the lost tag."""
    autoscaling = cloud.client("autoscaling")
    autoscaling.set_desired_capacity(AutoScalingGroupName=group, DesiredCapacity=1)
    (member,) = wait_for(
        lambda: [name for name, state in _members(cloud, group).items() if state == "Pending:Wait"], PATIENCE
    )
    detail = {
        "LifecycleHookName": "demo-workers-launch",
        "AutoScalingGroupName": group,
        "EC2InstanceId": member,
        "LifecycleTransition": events.LAUNCHING,
    }
    controller.take_in("aws.autoscaling", "EC2 Instance-launch Lifecycle Action", detail)
    controller.prepared("demo", member, outcome="alive")
    controller.resync()
    controller.prepared("demo", member)
    wait_for(lambda: _members(cloud, group).get(member) == "InService", PATIENCE)
    cloud.groups.refuse_launches(group, ["no capacity"] * 100)
    autoscaling.set_desired_capacity(AutoScalingGroupName=group, DesiredCapacity=2)
    controller.take_in(
        "aws.autoscaling", "EC2 Instance Launch Unsuccessful", {"AutoScalingGroupName": group, "EC2InstanceId": ""}
    )
    controller.resync()
    cloud.client("ec2").delete_tags(Resources=[member], Tags=[{"Key": ELASTIC_TAG.of("demo")}])
    controller.resync()
    wait_for(lambda: _members(cloud, group).get(member) == "Terminating:Wait", PATIENCE)
    controller.resync()
    wait_for(lambda: member not in _members(cloud, group), PATIENCE)


def _an_instance_alone(controller: Controller, cloud: Cloud, template: str) -> None:
    ec2 = cloud.client("ec2")
    answer = ec2.run_instances(
        LaunchTemplate={"LaunchTemplateName": template}, MinCount=1, MaxCount=1, InstanceType="m5.large"
    )
    instance = answer["Instances"][0]["InstanceId"]
    controller.resync()
    controller.prepared("demo", instance)
    ec2.delete_tags(Resources=[instance], Tags=[{"Key": ELASTIC_TAG.of("demo")}])
    controller.resync()
    wait_for(lambda: cloud.instance_state(instance) == "terminated", PATIENCE)


def _the_pools(controller: Controller, cloud: Cloud, group: str) -> None:
    """One reservation for a group, one of another type for a listed machine; then the listed one's owner needs it
    back.
    """
    ec2 = cloud.client("ec2")
    machine = ec2.run_instances(ImageId="ami-12345678", MinCount=1, MaxCount=1, InstanceType="g5.xlarge")["Instances"][
        0
    ]["InstanceId"]
    ec2.create_tags(Resources=[machine], Tags=[{"Key": POOL_TAG, "Value": "listed"}])
    wait_for(lambda: cloud.instance_state(machine) == "running", PATIENCE)
    ec2.stop_instances(InstanceIds=[machine])
    wait_for(lambda: cloud.instance_state(machine) == "stopped", PATIENCE)
    pool = {
        "instance_type": "g5.xlarge",
        "instances": [machine],
        "readings": 1,
        "reading_seconds": 0.0,
        "dry_run": False,
    }
    policy = json.dumps({"cluster": "listed", "pool": pool, "settling_seconds": 0.0})
    cloud.client("ssm").put_parameter(Name="/dyntrain/listed/policy", Type="String", Value=policy)
    reserved = cloud.reservations.reserve_instances("g5.xlarge", 1)
    cloud.reservations.reserve_instances("c5.large", 20)
    assert set(controller.rebalance()) == {"demo", "listed"}
    wait_for(lambda: cloud.instance_state(machine) == "running", PATIENCE)
    controller.resync()
    cloud.reservations.end_reservation(reserved)
    for _ in range(3):  # untagged, known to have left, stopped
        controller.rebalance()
        controller.resync()
    wait_for(lambda: cloud.instance_state(machine) == "stopped", PATIENCE)
    assert _members(cloud, group) is not None


def _a_job(controller: Controller, cloud: Cloud) -> None:
    """A machine that hangs: its job is long over its hours, and nobody has said how it ended."""
    now = controller.now()
    cloud.client("s3").create_bucket(Bucket="anybodys")
    record = JobRecord(
        name="hung",
        submission="0123456789ab",
        digest="d",
        bucket="anybodys",
        nodes=2,
        instance_type="m5.large",
        max_hours=1.0,
        since=now - 7200.0,
        changed=now - 7200.0,
        state="RUNNING",
    )
    controller.jobs.records.put(StoredJob(record, 0), over=False)
    machine = cloud.client("ec2").run_instances(
        ImageId="ami-12345678",
        MinCount=1,
        MaxCount=1,
        ClientToken=record.token,
        TagSpecifications=[{"ResourceType": "instance", "Tags": [{"Key": JOB_TAG, "Value": "hung"}]}],
    )["Instances"][0]["InstanceId"]
    with controller.recording.acting("resync"):
        assert watch_jobs(controller.jobs) == {"jobs": 1, "terminated": 1}
    wait_for(lambda: cloud.instance_state(machine) == "terminated", PATIENCE)


def _the_end(controller: Controller, cloud: Cloud, master: str) -> None:
    """The cluster is over its hours, and somebody starts it again."""
    ssm, name = cloud.client("ssm"), "/dyntrain/demo/policy"
    kept = json.loads(ssm.get_parameter(Name=name)["Parameter"]["Value"])
    for more in ({"after_job": "stop", "max_hours": 0.001}, {}):
        ssm.put_parameter(Name=name, Type="String", Value=json.dumps({**kept, **more}), Overwrite=True)
        if not more:
            cloud.client("ec2").start_instances(InstanceIds=[master])
            # the story's clock is ahead of the cloud's
            cloud.account.ec2.get_instance(master).launch_time = datetime.fromtimestamp(controller.now() + 1.0, UTC)
        wait_for(lambda: cloud.instance_state(master) == "running", PATIENCE)
        controller.resync()
        controller.resync()
        wait_for(lambda more=more: cloud.instance_state(master) == ("stopped" if more else "running"), PATIENCE)


def _an_alarm(controller: Controller, cloud: Cloud) -> None:
    """Delivered twice: before anybody has written down where to, and after."""
    ssm, event = cloud.client("ssm"), {"Records": [{"Sns": {"MessageId": "m-1", "Message": "mend it"}}]}
    with controller.recording.acting("notify"):
        assert notify(controller.notified, event, STAGE).skipped
    ssm.put_parameter(Name=webhook_parameter(STAGE), Type="SecureString", Value="https://hooks.example.org/secret")
    with controller.recording.acting("notify"):
        assert [notify(controller.notified, event, STAGE).sent for _ in range(2)] == [1, 0]
