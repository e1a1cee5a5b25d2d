"""A story in which the controller makes every call it can make, recorded by role, and a judge that reads policies as IAM does."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from deploy_packages import ROOT

from controller.adapters.aws import Clients
from controller.adapters.items import wake_of
from controller.contract import BASE_TAG, ELASTIC_TAG_SUFFIX, OWNER_TAG, NodeReport, elastic_tag
from controller.converge import converge
from controller.intake import take_in
from controller.local import events
from controller.local.cloud import Cloud
from controller.local.cluster import ClusterPlan, provision
from controller.local.options import Options
from controller.pool_policy import POOL_TAG
from controller.rebalance import rebalance
from controller.registry import Registry
from controller.reserved_ports import PoolPorts
from controller.resync import resync
from controller.wiring import aws_pool_ports

ROLES = ("intake", "converge", "resync", "rebalance")
PATIENCE = 20.0
SUFFIX = ELASTIC_TAG_SUFFIX


def statements(role: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((ROOT / ".chalice" / f"policy-{role}.json").read_text())["Statement"]
    return found


@dataclass(frozen=True)
class Call:
    """`resource`: one of those that the call is about; `tags`: what it carried when the call was made."""

    role: str
    action: str
    resource: str
    tag_keys: tuple[str, ...]
    tags: Mapping[str, str]

    @property
    def passes(self) -> bool:
        return self.passes_with(self.tags)

    def passes_with(self, tags: Mapping[str, str]) -> bool:
        return any(self.action in entry["Action"] and self._covered(entry) and self._met(entry, tags) for entry in statements(self.role))

    def _covered(self, entry: Mapping[str, Any]) -> bool:
        named = entry["Resource"] if isinstance(entry["Resource"], list) else [entry["Resource"]]
        return any(fnmatchcase(self.resource, one) if isinstance(one, str) else self.resource == json.dumps(one) for one in named)

    def _met(self, entry: Mapping[str, Any], tags: Mapping[str, str]) -> bool:
        return all(
            _holds(operator, key, wanted, self.tag_keys, tags)
            for operator, tests in entry.get("Condition", {}).items()
            for key, wanted in tests.items()
        )


def _holds(operator: str, key: str, wanted: Any, tag_keys: tuple[str, ...], tags: Mapping[str, str]) -> bool:
    """One line of a condition: the operators that the policies use."""
    present = list(tag_keys) if key == "aws:TagKeys" else [tags[name] for name in (key.removeprefix("aws:ResourceTag/"),) if name in tags]
    patterns = wanted if isinstance(wanted, list) else [wanted]
    match operator:
        case "Null":
            return (not present) == (wanted == "true")
        case "StringLike":
            return any(fnmatchcase(value, pattern) for value in present for pattern in patterns)
        case "ForAllValues:StringLike":
            return all(any(fnmatchcase(value, pattern) for pattern in patterns) for value in present)
        case "ForAllValues:StringEquals":
            return set(present) <= set(patterns)
    raise AssertionError(f"say here what {operator} means")


@dataclass
class Recording:
    cloud: Cloud
    role: str = ""
    calls: list[Call] = field(default_factory=list)

    @contextmanager
    def acting(self, role: str) -> Iterator[None]:
        self.role = role
        yield
        self.role = ""

    def note(self, params: dict[str, Any], model: Any, **_: Any) -> None:
        """botocore's `before-parameter-build`: the operation with its parameters, before anything is sent."""
        if not self.role:
            return
        service = {"auto scaling": "autoscaling"}.get(model.service_model.service_id.lower(), model.service_model.service_id.lower())
        keys = tuple(tag["Key"] for tag in params.get("Tags", ()))
        for resource, tags in self._about(service, params):
            self.calls.append(Call(self.role, f"{service}:{model.name}", resource, keys, tags))

    def _about(self, service: str, params: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, str]]]:
        if service == "dynamodb":
            yield (
                json.dumps(
                    {"Fn::Sub": f"${{FactsTable.Arn}}/index/{params['IndexName']}"}
                    if "IndexName" in params
                    else {"Fn::GetAtt": ["FactsTable", "Arn"]}
                ),
                {},
            )
        elif service == "ssm":
            yield f"arn:aws:ssm:us-east-1:1:parameter{params.get('Name', params.get('Path', '')).rstrip('/')}", {}
        elif service == "ec2":
            for instance in params.get("Resources", params.get("InstanceIds", [""])):
                yield f"arn:aws:ec2:us-east-1:1:instance/{instance}", self.cloud.account.instance_tags(instance)
        else:
            group = params.get("AutoScalingGroupName") or self._group_of(params.get("InstanceId", ""))
            yield f"arn:aws:autoscaling:us-east-1:1:autoScalingGroup:1:autoScalingGroupName/{group}", self._group_tags(group)

    def _group_of(self, instance: str) -> str:
        return self.cloud.account.instance_tags(instance).get("aws:autoscaling:groupName", "")

    def _group_tags(self, name: str) -> dict[str, str]:
        group = self.cloud.account.autoscaling.autoscaling_groups.get(name)
        return {tag["key" if "key" in tag else "Key"]: tag.get("value", tag.get("Value", "")) for tag in group.tags} if group is not None else {}


class Controller:
    """The functions as their roles run them, on a clock that the story moves, and the stream between them played by the story."""

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self.ahead = 0.0
        clients = Clients()
        clients.session.register("before-parameter-build", recording.note)
        world = aws_pool_ports("dyntrain", clients=clients)
        self.world = PoolPorts(replace(world.ports, clock=self.now), world.reservations, world.ledger)
        self.seen: dict[str, str] = {}

    def now(self) -> float:
        return time.time() + self.ahead

    def registry(self) -> Registry:
        return Registry(self.world.ports.parameters, self.now)

    def take_in(self, source: str, kind: str, detail: dict[str, Any], *resources: str) -> None:
        origin = events.Origin("1", "us-east-1", self.now(), "e")
        with self.recording.acting("intake"):
            assert take_in(self.world.ports, events.envelope(origin, source, kind, list(resources), detail), SUFFIX).kind == "applied"
        self.stream()

    def prepared(self, cluster: str, *instances: str) -> None:
        for instance in instances:
            report = NodeReport(cluster=cluster, instance_id=instance, private_ip="10.0.0.9", attempt=1, outcome="prepared", at=self.now())
            self.take_in("dyntrain.node", report.detail_type, report.model_dump(mode="json"))

    def resync(self, later: float = 61.0) -> None:
        self.ahead += later
        with self.recording.acting("resync"):
            assert resync(self.world.ports, self.registry(), SUFFIX).complete
        self.stream()

    def rebalance(self) -> tuple[str, ...]:
        self.ahead += 301.0
        with self.recording.acting("rebalance"):
            done = rebalance(self.world, self.registry(), SUFFIX)
        assert done.complete
        self.stream()
        return done.changed

    def stream(self) -> None:
        """Everything that wakes and has not been converged on."""
        for _ in range(10):
            items = {
                json.dumps([item["pk"], item["sk"]]): item for item in self.recording.cloud.client("dynamodb").scan(TableName="dyntrain")["Items"]
            }
            new = [item for key, item in items.items() if self.seen.get(key) != json.dumps(item) and item["wake"]["BOOL"]]
            self.seen = {key: json.dumps(item) for key, item in items.items()}
            if not new:
                return
            with self.recording.acting("converge"):
                converge(self.world.ports, self.registry(), wake_of([{"NewImage": item} for item in new]), SUFFIX)
        raise AssertionError("converge keeps waking itself")


def wait_for(look: Callable[[], Any]) -> Any:
    until = time.monotonic() + PATIENCE
    while not (found := look()):
        assert time.monotonic() < until, "the embedded cloud did not come to it"
        time.sleep(0.02)
    return found


def story(folder: Path, setenv: Callable[[str, str], None]) -> Recording:
    """On a cloud of its own, whose handlers are a toy's."""
    options = Options(
        machines=False,
        describe_lag=0.0,
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
        policy = {"pool": {"instance_type": "c5.large", "readings": 1, "reading_seconds": 0.0, "dry_run": False}, "settling_seconds": 0.0}
        cluster = provision(cloud.environment, ClusterPlan("demo", folder, ("true",), base_workers=0, policy=policy))
        assert cluster.master is not None
        controller.resync()
        controller.prepared("demo", cluster.master)
        _a_group_found_by_its_tag(controller, cloud)
        _the_registered_group(controller, cloud, cluster.group)
        _an_instance_alone(controller, cloud, cluster.launch_template)
        _the_pools(controller, cloud, cluster.group)
        return recording


def _members(cloud: Cloud, group: str) -> dict[str, str]:
    answer = cloud.client("autoscaling").describe_auto_scaling_groups(AutoScalingGroupNames=[group])["AutoScalingGroups"][0]
    return {member["InstanceId"]: member["LifecycleState"] for member in answer["Instances"]}


def _a_group_found_by_its_tag(controller: Controller, cloud: Cloud) -> None:
    """Its instances come without tags: they are stamped; one is made a base node, and protected."""
    autoscaling, ec2 = cloud.client("autoscaling"), cloud.client("ec2")
    ec2.create_launch_template(LaunchTemplateName="bare", LaunchTemplateData={"ImageId": "ami-12345678", "InstanceType": "m5.large"})
    tag = {"Key": OWNER_TAG, "Value": "demo", "PropagateAtLaunch": False, "ResourceId": "extra", "ResourceType": "auto-scaling-group"}
    sizes = {"MinSize": 0, "MaxSize": 1, "DesiredCapacity": 1}
    template = {"LaunchTemplateName": "bare"}
    autoscaling.create_auto_scaling_group(
        AutoScalingGroupName="extra", LaunchTemplate=template, AvailabilityZones=["us-east-1a"], Tags=[tag], **sizes
    )
    wait_for(lambda: "InService" in _members(cloud, "extra").values())
    (member,) = _members(cloud, "extra")
    ec2.create_tags(Resources=[member], Tags=[{"Key": BASE_TAG, "Value": "true"}])
    controller.resync()
    assert cloud.account.instance_tags(member)[OWNER_TAG] == "demo"


def _the_registered_group(controller: Controller, cloud: Cloud, group: str) -> None:
    """Up through the hook, which is kept alive meanwhile; no capacity for a second one; down by the lost tag."""
    autoscaling = cloud.client("autoscaling")
    autoscaling.set_desired_capacity(AutoScalingGroupName=group, DesiredCapacity=1)
    (member,) = wait_for(lambda: [name for name, state in _members(cloud, group).items() if state == "Pending:Wait"])
    detail = {"LifecycleHookName": "demo-launch", "AutoScalingGroupName": group, "EC2InstanceId": member, "LifecycleTransition": events.LAUNCHING}
    controller.take_in("aws.autoscaling", "EC2 Instance-launch Lifecycle Action", detail)
    controller.resync()
    controller.prepared("demo", member)
    wait_for(lambda: _members(cloud, group).get(member) == "InService")
    cloud.groups.refuse_launches(group, ["no capacity"] * 100)
    autoscaling.set_desired_capacity(AutoScalingGroupName=group, DesiredCapacity=2)
    controller.take_in("aws.autoscaling", "EC2 Instance Launch Unsuccessful", {"AutoScalingGroupName": group, "EC2InstanceId": ""})
    controller.resync()
    cloud.client("ec2").delete_tags(Resources=[member], Tags=[{"Key": elastic_tag("demo")}])
    controller.resync()
    wait_for(lambda: _members(cloud, group).get(member) == "Terminating:Wait")
    controller.resync()
    wait_for(lambda: member not in _members(cloud, group))


def _an_instance_alone(controller: Controller, cloud: Cloud, template: str) -> None:
    ec2 = cloud.client("ec2")
    answer = ec2.run_instances(LaunchTemplate={"LaunchTemplateName": template}, MinCount=1, MaxCount=1, InstanceType="m5.large")
    instance = answer["Instances"][0]["InstanceId"]
    controller.resync()
    controller.prepared("demo", instance)
    ec2.delete_tags(Resources=[instance], Tags=[{"Key": elastic_tag("demo")}])
    controller.resync()
    wait_for(lambda: cloud.instance_state(instance) == "terminated")


def _the_pools(controller: Controller, cloud: Cloud, group: str) -> None:
    """One reservation for a group, one of another type for a listed machine; then the listed one's owner needs it back."""
    ec2 = cloud.client("ec2")
    machine = ec2.run_instances(ImageId="ami-12345678", MinCount=1, MaxCount=1, InstanceType="g5.xlarge")["Instances"][0]["InstanceId"]
    ec2.create_tags(Resources=[machine], Tags=[{"Key": POOL_TAG, "Value": "listed"}])
    wait_for(lambda: cloud.instance_state(machine) == "running")
    ec2.stop_instances(InstanceIds=[machine])
    wait_for(lambda: cloud.instance_state(machine) == "stopped")
    pool = {"instance_type": "g5.xlarge", "instances": [machine], "readings": 1, "reading_seconds": 0.0, "dry_run": False}
    policy = json.dumps({"cluster": "listed", "pool": pool, "settling_seconds": 0.0})
    cloud.client("ssm").put_parameter(Name="/dyntrain/listed/policy", Type="String", Value=policy)
    reserved = cloud.reservations.reserve("g5.xlarge", 1)
    cloud.reservations.reserve("c5.large", 20)
    assert set(controller.rebalance()) == {"demo", "listed"}
    wait_for(lambda: cloud.instance_state(machine) == "running")
    controller.resync()
    cloud.reservations.end(reserved)
    for _ in range(3):  # untagged, known to have left, stopped
        controller.rebalance()
        controller.resync()
    wait_for(lambda: cloud.instance_state(machine) == "stopped")
    assert _members(cloud, group) is not None
