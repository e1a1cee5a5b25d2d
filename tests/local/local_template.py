"""The cluster's template read, and stacks of it in the embedded cloud: what the tests of it look at."""

from __future__ import annotations

import ast
import time
from typing import Any

import yaml
from click.testing import CliRunner
from dyntrain.controller.cli.main import main
from dyntrain.controller.contract.messages import (
    CoordinatorEndpoint,
    Target,
    parameter,
)
from dyntrain.controller.contract.reports import (
    JobReport,
    NodeReport,
)
from dyntrain.node_bootstrap.reports.aws import EventBridgeReports, SsmParameters
from dyntrain.training.coordinator.hosts import AwsHosts
from local_toycloud import ToyCloud

UBUNTU = "/aws/service/canonical/ubuntu/server/24.04/stable/current/amd64/hvm/ebs-gp3/ami-id"
GIVEN = {
    "KeyName": "mine",
    "PackageSource": "s3://wheels/dyntrain-0.1.0-py3-none-any.whl",
    "Stage": "local",
    "WorkerCount": "2",
    "MaxWorkers": "8",
    "BoundaryPolicy": "segment",
}
MASTER = "i-0123456789abcdef0"


def prepared() -> NodeReport:
    return NodeReport(
        cluster="demo", instance_id=MASTER, private_ip="10.0.0.1", attempt=1, outcome="prepared", at=time.time()
    )


def template_text() -> str:
    done = CliRunner().invoke(main, ["cluster", "template"])
    assert done.exit_code == 0, done.output
    return done.output


class Tagged(yaml.SafeLoader):
    """Reads `!Ref x` and its like as `{"Ref": x}`."""


def _tagged(loader: Tagged, suffix: str, node: Any) -> Any:
    if isinstance(node, yaml.ScalarNode):
        return {suffix: loader.construct_scalar(node)}
    content = (
        loader.construct_sequence(node, deep=True)
        if isinstance(node, yaml.SequenceNode)
        else loader.construct_mapping(node, deep=True)
    )
    return {suffix: content}


Tagged.add_multi_constructor("!", _tagged)


def template() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.load(template_text(), Loader=Tagged)  # noqa: S506  # a SafeLoader
    return loaded


def create(toy: ToyCloud, name: str, given: dict[str, str], text: str | None = None) -> None:
    values = {**given, "AmazonLinuxImage": "/images/any", "UbuntuImage": "/images/any"}
    toy.cloud.client("cloudformation").create_stack(
        StackName=name,
        TemplateBody=(text or template_text()).replace(UBUNTU, "/images/any"),
        Capabilities=["CAPABILITY_IAM"],
        Parameters=[{"ParameterKey": key, "ParameterValue": value} for key, value in values.items()],
    )


def value_of(stack: ToyCloud, name: str) -> str:
    return str(stack.cloud.client("ssm").get_parameter(Name=name)["Parameter"]["Value"])


def launch_templates(stack: ToyCloud, cluster: str = "demo") -> dict[str, dict[str, Any]]:
    ec2 = stack.cloud.client("ec2")
    names = [entry["LaunchTemplateName"] for entry in ec2.describe_launch_templates()["LaunchTemplates"]]
    names = [name for name in names if name.startswith(f"{cluster}-")]
    versions = {
        name: ec2.describe_launch_template_versions(LaunchTemplateName=name)["LaunchTemplateVersions"][0]
        for name in names
    }
    return {name: version["LaunchTemplateData"] for name, version in versions.items()}


def groups(stack: ToyCloud, cluster: str = "demo") -> dict[str, dict[str, Any]]:
    described = stack.cloud.client("autoscaling").describe_auto_scaling_groups()["AutoScalingGroups"]
    return {
        group["AutoScalingGroupName"]: group
        for group in described
        if group["AutoScalingGroupName"].startswith(f"{cluster}-")
    }


def role_statements(stack: ToyCloud, cluster: str = "demo", role: str = "NodeRole") -> list[dict[str, Any]]:
    """Of all policies of the role, its own and those that are attached."""
    iam = stack.cloud.client("iam")
    names = [one["RoleName"] for one in iam.list_roles()["Roles"]]
    name = next(name for name in names if name.startswith(f"{cluster}-{role}"))
    documents = [
        iam.get_role_policy(RoleName=name, PolicyName=own)["PolicyDocument"]
        for own in iam.list_role_policies(RoleName=name)["PolicyNames"]
    ]
    for attached in iam.list_attached_role_policies(RoleName=name)["AttachedPolicies"]:
        version = iam.get_policy(PolicyArn=attached["PolicyArn"])["Policy"]["DefaultVersionId"]
        shown = iam.get_policy_version(PolicyArn=attached["PolicyArn"], VersionId=version)["PolicyVersion"]
        documents.append(shown["Document"])
    # moto keeps what a stack gives as Python would print it
    return [
        statement
        for document in documents
        for statement in (document if isinstance(document, dict) else ast.literal_eval(str(document)))["Statement"]
    ]


def actions(statement: dict[str, Any]) -> list[str]:
    return statement["Action"] if isinstance(statement["Action"], list) else [statement["Action"]]


def every_call_of_a_worker(stack: ToyCloud) -> set[str]:
    """What a node sends to AWS that does not run the coordinator, as the endpoint counts it."""
    stack.cloud.calls.clear()
    parameters = SsmParameters("us-east-1")
    parameters.get(parameter("demo", "node"))
    parameters.get(*(parameter("demo", leaf) for leaf in ("coordinator", "token", "target")))
    EventBridgeReports("us-east-1").put(prepared())
    return {f"{service}:{operation}" for service, operation in stack.cloud.calls}


def every_call_of_a_base_node(stack: ToyCloud) -> set[str]:
    """As `every_call_of_a_worker`, with those of the coordinator."""
    pointer = Target.of(1, (MASTER,)).model_copy(update={"members": None, "pointer": "cluster#demo/target"})
    stack.cloud.client("ssm").put_parameter(
        Name=parameter("demo", "target"), Value=pointer.model_dump_json(), Type="String", Overwrite=True
    )
    job = JobReport(
        cluster="demo", job="j", state="running", started_at=1.0, sequence=1, generation=1, revision=1, members=()
    )
    endpoint = CoordinatorEndpoint(
        cluster="demo", job="j", instance_id=MASTER, url="wss://10.0.0.1:1", certificate="c", published_at=1.0
    )
    stack.cloud.client("dynamodb").put_item(
        TableName=stack.cloud.table,
        Item={"pk": {"S": "cluster#demo"}, "sk": {"S": "target"}, "members": {"L": [{"S": MASTER}]}},
    )
    stack.cloud.calls.clear()
    parameters, hosts = SsmParameters("us-east-1"), AwsHosts("demo", "local")
    assert parameters.get(parameter("demo", "node"))
    hosts.publish(endpoint, "a token")
    assert hosts.read_endpoint() == endpoint
    assert parameters.get(parameter("demo", "token")) == {parameter("demo", "token"): "a token"}
    target = hosts.read_target()
    assert target is not None
    assert target.members == (MASTER,)
    EventBridgeReports("us-east-1").put(prepared())
    hosts.report(job)
    return {f"{service}:{operation}" for service, operation in stack.cloud.calls}
