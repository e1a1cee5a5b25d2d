"""The cluster's CloudFormation template: created in the embedded cloud, and held against what nodes and controller look for.

What moto's CloudFormation cannot do: it waits for nothing and makes no wait condition or placement group, leaves out a group's lifecycle hooks and
its preference for reservations, has no parameter of Canonical's, and runs no user data. So hooks are read from the template, and bash only parses
the user data.
`make lint-template` lints it.
"""

from __future__ import annotations

import ast
import base64
import json
import re
import subprocess
import time
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from local_toycloud import ToyCloud, toy_cloud

from controller.cli import main
from controller.contract import (
    BASE_TAG,
    OWNER_TAG,
    ClusterPolicy,
    CoordinatorEndpoint,
    JobReport,
    NodeReport,
    Target,
    elastic_tag,
    launch_template_name,
    parameter,
)
from controller.instance_identity import parse_keys
from node_bootstrap.config import SsmParameters, parse_node_config
from node_bootstrap.identity import is_base, is_master
from node_bootstrap.report import EventBridgeReports
from node_bootstrap.volume import fstab_with
from training.hosts import AwsHosts

UBUNTU = "/aws/service/canonical/ubuntu/server/24.04/stable/current/amd64/hvm/ebs-gp3/ami-id"
GIVEN = {"PackageSource": "s3://wheels/dyntrain-0.1.0-py3-none-any.whl", "WorkerCount": "2", "MaxWorkers": "8", "BoundaryPolicy": "segment"}
CIDRS = {"PublicCidr": "10.21.0.0/24", "PrivateCidr": "10.21.16.0/20"}
MASTER = "i-0123456789abcdef0"
OF_PROGRAMS_AROUND = {"logs:CreateLogStream", "logs:DescribeLogStreams", "logs:PutLogEvents", "s3:GetObject"}  # the log agent, and user data


def template_text() -> str:
    done = CliRunner().invoke(main, ["cluster", "template"])
    assert done.exit_code == 0, done.output
    return done.output


class Tagged(yaml.SafeLoader):
    """Reads `!Ref x` and its like as `{"Ref": x}`."""


def _tagged(loader: Tagged, suffix: str, node: Any) -> Any:
    if isinstance(node, yaml.ScalarNode):
        return {suffix: loader.construct_scalar(node)}
    made = loader.construct_sequence(node, deep=True) if isinstance(node, yaml.SequenceNode) else loader.construct_mapping(node, deep=True)
    return {suffix: made}


Tagged.add_multi_constructor("!", _tagged)


def template() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.load(template_text(), Loader=Tagged)  # noqa: S506  # a SafeLoader
    return loaded


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ToyCloud]:
    folder = tmp_path_factory.mktemp("notes")
    with toy_cloud(folder) as cloud:
        toy = ToyCloud(cloud, folder)
        toy.cloud.client("ssm").put_parameter(Name="/images/any", Type="String", Value="ami-0a1b2c3d4e5f60718")
        create(toy, "demo", GIVEN)
        yield toy


def create(toy: ToyCloud, name: str, given: dict[str, str]) -> None:
    values = {**given, "AmazonLinuxImage": "/images/any", "UbuntuImage": "/images/any"}
    toy.cloud.client("cloudformation").create_stack(
        StackName=name,
        TemplateBody=template_text().replace(UBUNTU, "/images/any"),
        Capabilities=["CAPABILITY_IAM"],
        Parameters=[{"ParameterKey": key, "ParameterValue": value} for key, value in values.items()],
    )


def value_of(stack: ToyCloud, name: str) -> str:
    return str(stack.cloud.client("ssm").get_parameter(Name=name)["Parameter"]["Value"])


def launch_templates(stack: ToyCloud, cluster: str = "demo") -> dict[str, dict[str, Any]]:
    ec2 = stack.cloud.client("ec2")
    names = [entry["LaunchTemplateName"] for entry in ec2.describe_launch_templates()["LaunchTemplates"]]
    names = [name for name in names if name.startswith(f"{cluster}-")]
    versions = {name: ec2.describe_launch_template_versions(LaunchTemplateName=name)["LaunchTemplateVersions"][0] for name in names}
    return {name: version["LaunchTemplateData"] for name, version in versions.items()}


def groups(stack: ToyCloud, cluster: str = "demo") -> dict[str, dict[str, Any]]:
    found = stack.cloud.client("autoscaling").describe_auto_scaling_groups()["AutoScalingGroups"]
    return {group["AutoScalingGroupName"]: group for group in found if group["AutoScalingGroupName"].startswith(f"{cluster}-")}


def test_the_parameters_are_what_nodes_and_controller_read(stack: ToyCloud) -> None:
    node = parse_node_config("demo", value_of(stack, parameter("demo", "node")))
    assert (node.identity_keys, node.segment_steps) == ("", 100)
    assert (node.workers, node.mount, node.prepare_script) == (3, "/myEFSvolume", "/myEFSvolume/prepare-data.py")
    assert (node.training_cmd, node.boundary, node.max_workers) == (("/opt/dyntrain/bin/python", "train.py"), "segment", 8)
    policy = ClusterPolicy.model_validate_json(value_of(stack, parameter("demo", "policy")))
    assert (set(policy.groups), policy.max_workers, policy.boundary) == (set(groups(stack)), 8, "segment")


def test_instances_that_people_launch_ask_to_join_and_all_are_encrypted_and_behind_imdsv2(stack: ToyCloud) -> None:
    templates = launch_templates(stack)
    worker = templates[launch_template_name("demo")]
    tags = {tag["Key"]: tag["Value"] for spec in worker["TagSpecifications"] if spec["ResourceType"] == "instance" for tag in spec["Tags"]}
    assert tags == {elastic_tag("demo"): "", "NodeType": "Worker", OWNER_TAG: "demo", "Name": "demo-worker"}
    assert len(templates) == 2
    for data in templates.values():
        assert (data["MetadataOptions"]["HttpTokens"], data["MetadataOptions"]["InstanceMetadataTags"]) == ("required", "enabled")
        assert all(device["Ebs"]["Encrypted"] for device in data["BlockDeviceMappings"])
    volumes = [one for one in stack.cloud.client("efs").describe_file_systems()["FileSystems"] if one.get("Name") == "demo"]
    assert [(volume["Encrypted"], volume["NumberOfMountTargets"]) for volume in volumes] == [(True, 1)]
    node = parse_node_config("demo", value_of(stack, parameter("demo", "node")))
    assert node.volume == volumes[0]["FileSystemId"], "a node that reboots while it cannot be mounted would train onto its own disk"


def test_the_groups_make_one_master_the_base_and_room_for_elastic_workers(stack: ToyCloud) -> None:
    made = groups(stack)
    sizes = {name: (group["MinSize"], group["DesiredCapacity"], group["MaxSize"]) for name, group in made.items()}
    assert sizes == {"demo-master": (1, 1, 1), "demo-base": (0, 2, 2), "demo-workers": (0, 0, 8)}
    tags = {name: {tag["Key"]: tag["Value"] for tag in group["Tags"] if tag["PropagateAtLaunch"]} for name, group in made.items()}
    assert [(name, is_master(of), is_base(of)) for name, of in sorted(tags.items())] == [
        ("demo-base", False, True),
        ("demo-master", True, True),
        ("demo-workers", False, False),
    ]
    assert all(of[OWNER_TAG] == "demo" for of in tags.values())
    assert elastic_tag("demo") in tags["demo-workers"]
    assert BASE_TAG not in tags["demo-workers"]
    assert {name: group["NewInstancesProtectedFromScaleIn"] for name, group in made.items()} == {
        "demo-master": True,
        "demo-base": True,
        "demo-workers": False,
    }


def test_options_change_what_they_name_and_stacks_do_not_share_names(stack: ToyCloud) -> None:
    volume = stack.cloud.client("efs").create_file_system(CreationToken="mine")["FileSystemId"]
    create(stack, "spot", {**GIVEN, "PurchaseOption": "Spot", "EFSFileSystemId": volume, "VpcCidr": "10.21.0.0/16", **CIDRS})
    create(stack, "fixed", {**GIVEN, "EnableElasticTraining": "false", "ImageType": "Ubuntu", "WorkerCount": "0"})
    made = groups(stack) | groups(stack, "spot") | groups(stack, "fixed")
    shares = {name: group["MixedInstancesPolicy"]["InstancesDistribution"] for name, group in made.items() if name.endswith("-workers")}
    assert {name: share["OnDemandPercentageAboveBaseCapacity"] for name, share in shares.items()} == {"demo-workers": 100, "spot-workers": 0}
    assert f"FILE_SYSTEM={volume}" in base64.b64decode(launch_templates(stack, "spot")["spot-node"]["UserData"]).decode()
    assert "fixed-workers" not in made
    assert set(launch_templates(stack, "fixed")) == {"fixed-node"}
    policy = ClusterPolicy.model_validate_json(value_of(stack, parameter("fixed", "policy")))
    assert policy.groups == ("fixed-master", "fixed-base")
    assert parse_node_config("fixed", value_of(stack, parameter("fixed", "node"))).workers == 1
    assert len(stack.cloud.client("efs").describe_file_systems()["FileSystems"]) == 3, "one was given, one made for each of the others"


@pytest.mark.parametrize("line_break", ["\n", "\r\n", " "])
def test_keys_are_taken_as_openssl_prints_them(stack: ToyCloud, line_break: str) -> None:
    """A line break inside the parameter's JSON would keep every node of the cluster from starting."""
    given = line_break.join([*stack.cloud.identity_keys.splitlines(), ""])
    name = f"keys{ord(line_break[0])}x{len(line_break)}"
    create(stack, name, {**GIVEN, "IdentityKeys": given, "EnableElasticTraining": "false", "WorkerCount": "0"})
    read = parse_node_config(name, value_of(stack, parameter(name, "node")))
    assert parse_keys(read.identity_keys) == parse_keys(stack.cloud.identity_keys)
    assert re.fullmatch(template()["Parameters"]["IdentityKeys"]["AllowedPattern"], given)


def test_every_group_has_both_hooks_from_its_first_instance_on() -> None:
    """A hook that is added after the group is made misses the instances that were launched meanwhile."""
    found = {name: one["Properties"] for name, one in template()["Resources"].items() if one["Type"] == "AWS::AutoScaling::AutoScalingGroup"}
    hooks = {
        name: {hook["LifecycleTransition"]: hook["DefaultResult"] for hook in group["LifecycleHookSpecificationList"]}
        for name, group in found.items()
    }
    both = {"autoscaling:EC2_INSTANCE_LAUNCHING": "ABANDON", "autoscaling:EC2_INSTANCE_TERMINATING": "CONTINUE"}
    assert hooks == {"MasterGroup": both, "BaseGroup": both, "WorkerGroup": both}


def test_the_network_lets_in_only_nodes_and_ssh_from_where_it_was_allowed() -> None:
    resources = template()["Resources"]
    rules = [rule for one in resources.values() for rule in one.get("Properties", {}).get("SecurityGroupIngress", ())]
    rules += [one["Properties"] for one in resources.values() if one["Type"] == "AWS::EC2::SecurityGroupIngress"]
    open_to = [rule["CidrIp"] for rule in rules if "CidrIp" in rule]
    assert open_to == [{"Ref": "SSHLocation"}]
    assert all(rule["SourceSecurityGroupId"] == {"GetAtt": "NodeSecurityGroup.GroupId"} for rule in rules if "CidrIp" not in rule)


@pytest.mark.parametrize("image", ["AmazonLinux", "Ubuntu"])
def test_the_user_data_is_a_script_that_bash_can_read(stack: ToyCloud, image: str) -> None:
    script = base64.b64decode(launch_templates(stack)["demo-node"]["UserData"]).decode()
    install = {name: made["Install"] for name, made in template()["Mappings"]["Image"].items()}
    assert install["AmazonLinux"] in script
    text = script.replace(install["AmazonLinux"], install[image])
    done = subprocess.run(["bash", "-n"], input=text, capture_output=True, text=True, timeout=20, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def role_statements(stack: ToyCloud) -> list[dict[str, Any]]:
    iam = stack.cloud.client("iam")
    role = next(role["RoleName"] for role in iam.list_roles()["Roles"] if role["RoleName"].startswith("demo-NodeRole"))
    document = iam.get_role_policy(RoleName=role, PolicyName="node")["PolicyDocument"]
    parsed: dict[str, Any] = ast.literal_eval(str(document))  # moto keeps what a stack gives as Python would print it
    statements: list[dict[str, Any]] = parsed["Statement"]
    return statements


def test_user_data_and_bootstrap_mount_the_volume_alike(stack: ToyCloud) -> None:
    """Two entries that differ would be two mounts over one another, or a reboot that takes the other one."""
    script = base64.b64decode(launch_templates(stack)["demo-node"]["UserData"]).decode()
    entry = fstab_with("", "fs-1", "/data").strip()
    assert entry.replace("fs-1", "$FILE_SYSTEM").replace("/data", "$MOUNT") in script


def actions(statement: dict[str, Any]) -> list[str]:
    return statement["Action"] if isinstance(statement["Action"], list) else [statement["Action"]]


def every_call_of_a_node(stack: ToyCloud) -> set[str]:
    """What node_bootstrap and training send to AWS, as the endpoint counts it."""
    pointer = Target.of(1, (MASTER,)).model_copy(update={"members": None, "pointer": "cluster#demo/target"})
    stack.cloud.client("ssm").put_parameter(Name=parameter("demo", "target"), Value=pointer.model_dump_json(), Type="String", Overwrite=True)
    report = NodeReport(cluster="demo", instance_id=MASTER, private_ip="10.0.0.1", attempt=1, outcome="prepared", at=time.time())
    job = JobReport(cluster="demo", job="j", state="running", started_at=1.0, sequence=1, generation=1, revision=1, members=())
    endpoint = CoordinatorEndpoint(cluster="demo", job="j", instance_id=MASTER, url="wss://10.0.0.1:1", certificate="c", published_at=1.0)
    stack.cloud.client("dynamodb").put_item(
        TableName="dyntrain", Item={"pk": {"S": "cluster#demo"}, "sk": {"S": "target"}, "members": {"L": [{"S": MASTER}]}}
    )
    stack.cloud.calls.clear()
    parameters, hosts = SsmParameters("us-east-1"), AwsHosts("demo")
    assert parameters.get(parameter("demo", "node")) is not None
    hosts.publish(endpoint, "a token")
    assert hosts.published() == endpoint
    assert parameters.get(parameter("demo", "token"), secret=True) == "a token"
    target = hosts.read_target()
    assert target is not None
    assert target.members == (MASTER,)
    EventBridgeReports("us-east-1").put(report)
    hosts.report(job)
    return {f"{service}:{operation}" for service, operation in stack.cloud.calls}


def test_the_nodes_role_may_make_the_calls_that_nodes_make_and_no_other(stack: ToyCloud, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in stack.cloud.environment.items():
        monkeypatch.setenv(name, value)
    statements = role_statements(stack)
    allowed = {action for statement in statements for action in actions(statement)} - OF_PROGRAMS_AROUND
    assert allowed == every_call_of_a_node(stack)


def test_the_nodes_role_reaches_its_own_cluster_and_nothing_else(stack: ToyCloud) -> None:
    """A node that was broken into must not read another cluster's token, nor publish a coordinator for it."""
    statements = role_statements(stack)
    reach = {action: statement["Resource"] for statement in statements for action in actions(statement)}
    leaves = {action: sorted(one.rpartition(":")[2] for one in reach[action]) for action in ("ssm:GetParameter", "ssm:PutParameter")}
    assert leaves == {
        "ssm:GetParameter": [f"parameter{parameter('demo', leaf)}" for leaf in ("coordinator", "node", "target", "token")],  # type: ignore[arg-type]
        "ssm:PutParameter": [f"parameter{parameter('demo', leaf)}" for leaf in ("coordinator", "token")],  # type: ignore[arg-type]
    }
    assert "*" not in json.dumps([value for action, value in reach.items() if not action.startswith("logs:")])
    conditions = {action: statement.get("Condition") for statement in statements for action in actions(statement)}
    assert conditions["dynamodb:GetItem"] == {"ForAllValues:StringEquals": {"dynamodb:LeadingKeys": ["cluster#demo"]}}
    assert conditions["events:PutEvents"] == {"ForAllValues:StringEquals": {"events:source": ["dyntrain.node", "dyntrain.coordinator"]}}
