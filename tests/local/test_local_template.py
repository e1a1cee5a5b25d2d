"""The cluster's CloudFormation template: created in the embedded cloud, and held against what nodes and controller look
for.

What moto's CloudFormation cannot do: it waits for nothing and makes no wait condition or placement group, leaves out a
group's preference for reservations, has no parameter of Canonical's, and runs no user data. So bash only parses the
user data here; `make bare` runs it. `make lint-template` lints the template.
"""

from __future__ import annotations

import ast
import base64
import json
import re
import subprocess
from fnmatch import fnmatchcase
from typing import Any

import pytest
from aws_types import aws_types
from click.testing import CliRunner
from dyntrain.controller.cli.main import main
from dyntrain.controller.contract.elastic_tag import ELASTIC_TAG, ElasticTag
from dyntrain.controller.contract.gpu_families import cannot_be_a_node, usable_families
from dyntrain.controller.contract.instance_identity import parse_keys
from dyntrain.controller.contract.messages import (
    BASE_TAG,
    OWNER_TAG,
    ClusterPolicy,
    NodeConfig,
    Target,
    launch_template_name,
    parameter,
)
from dyntrain.controller.contract.stage import stage_parameter
from dyntrain.controller.local.pace import patient
from dyntrain.node_bootstrap.instance.identity import is_base, is_master
from dyntrain.node_bootstrap.reports.config import parse_node_config
from dyntrain.node_bootstrap.steps.volume import fstab_with
from dyntrain.training.coordinator.hosts import AwsHosts, HostsError
from local_template import (
    GIVEN,
    MASTER,
    create,
    groups,
    launch_templates,
    role_statements,
    template,
    template_text,
    value_of,
)
from local_toycloud import ToyCloud

CIDRS = {"PublicCidr": "10.21.0.0/24", "PrivateCidr": "10.21.16.0/20"}


def test_the_parameters_are_what_nodes_and_controller_read(stack: ToyCloud) -> None:
    node = parse_node_config("demo", value_of(stack, parameter("demo", "node")))
    assert (node.identity_keys, node.segment_steps) == ("", 100)
    assert (node.workers, node.mount, node.prepare_script) == (3, "/myEFSvolume", "/myEFSvolume/prepare-data.py")
    assert (node.training_cmd, node.boundary, node.max_workers) == (
        ("/opt/dyntrain/bin/python", "train.py"),
        "segment",
        8,
    )
    policy = ClusterPolicy.model_validate_json(value_of(stack, parameter("demo", "policy")))
    assert (set(policy.groups), policy.max_workers, policy.boundary) == (set(groups(stack)), 8, "segment")


WINDOWS = '[{"schedule": "0 22 * * 1-5", "duration": "8h", "time_zone": "Europe/Berlin"}]'


@pytest.fixture(scope="module")
def advised(stack: ToyCloud) -> None:
    """A cluster that asked for everything that is not the default."""
    image = "/aws/service/deeplearning/ami/x86_64/base-oss-nvidia-driver-gpu-amazon-linux-2023/latest/ami-id"
    text = template_text().replace(image, "/images/any")
    given = {"VpcCidr": "10.22.0.0/16", "PublicCidr": "10.22.0.0/24", "PrivateCidr": "10.22.16.0/20"}
    given |= {"Accelerator": "Nvidia", "AvailabilityZone": "us-east-1c", "EnableElasticTraining": "True"}
    given |= {"Rebalance": "ignore", "RebalanceGraceSeconds": "900", "LeaveWindows": WINDOWS}
    given |= {"CodeSource": "s3://anybodys-jobs/advised/code.tar.gz"}
    given |= {
        "DataBucket": "anybodys-data",
        "DataPrefix": "sets/digits",
        "OutputLocation": "s3://anybodys-jobs/advised",
    }
    create(stack, "advised", {**GIVEN, **given}, text)


def test_both_sides_are_told_the_same_policy_for_advice_and_nodes_the_template_whose_instances_join(
    stack: ToyCloud, advised: None
) -> None:
    """Told by the controller alone, the node would still have the job let it go after two minutes."""
    node = parse_node_config("advised", value_of(stack, parameter("advised", "node")))
    policy = ClusterPolicy.model_validate_json(value_of(stack, parameter("advised", "policy")))
    assert (node.rebalance, node.rebalance_grace_seconds) == ("ignore", 900)
    assert (policy.rebalance, policy.rebalance_grace_seconds) == ("ignore", 900)
    assert [window.model_dump() for window in policy.leave_windows] == json.loads(WINDOWS)
    assert "advised-workers" in policy.groups
    (worker,) = stack.cloud.client("ec2").describe_launch_templates(
        LaunchTemplateNames=[launch_template_name("advised")]
    )["LaunchTemplates"]
    assert node.worker_launch_template == worker["LaunchTemplateId"]


def test_nodes_are_told_where_data_and_results_lie_and_may_read_the_one_and_write_the_other(
    stack: ToyCloud, advised: None
) -> None:
    node = parse_node_config("advised", value_of(stack, parameter("advised", "node")))
    assert (node.data_location, node.output_location) == (
        "s3://anybodys-data/sets/digits",
        "s3://anybodys-jobs/advised",
    )
    assert (parse_node_config("demo", value_of(stack, parameter("demo", "node")))).data_location is None
    for cluster in ("advised", "demo"):
        (extras,) = {
            base64.b64decode(data["UserData"]).decode().split("EXTRAS=")[1].split()[0]
            for data in launch_templates(stack, cluster).values()
        }
        assert extras == "node,tensorboard", "what writes the curves, and shows them on a node"
    iam, rights = stack.cloud.client("iam"), dict[str, set[str]]()
    for role in iam.list_roles()["Roles"]:
        documents = [
            iam.get_role_policy(RoleName=role["RoleName"], PolicyName=name)["PolicyDocument"]
            for name in iam.list_role_policies(RoleName=role["RoleName"])["PolicyNames"]
        ]
        documents += [
            iam.get_policy_version(PolicyArn=one["PolicyArn"], VersionId="v1")["PolicyVersion"]["Document"]
            for one in iam.list_attached_role_policies(RoleName=role["RoleName"])["AttachedPolicies"]
        ]
        for statement in [statement for document in documents for statement in _statements(document)]:
            if str(statement["Resource"]).startswith("arn:aws:s3:::anybodys"):
                actions = statement["Action"] if isinstance(statement["Action"], list) else [statement["Action"]]
                rights.setdefault(" ".join([*actions, statement["Resource"]]), set()).add(role["RoleName"])
    writers, readers = (
        rights["s3:PutObject s3:AbortMultipartUpload arn:aws:s3:::anybodys-jobs/advised/*"],
        rights["s3:GetObject arn:aws:s3:::anybodys-data/sets/digits/*"],
    )
    assert writers < readers, "all nodes read, base nodes alone write"
    assert rights["s3:ListBucket arn:aws:s3:::anybodys-data"] == readers


def _statements(document: Any) -> list[dict[str, Any]]:
    """Of a policy as moto has it: parsed, or as Python shows what CloudFormation passed on."""
    return list((ast.literal_eval(document) if isinstance(document, str) else document)["Statement"])


def test_people_find_what_dynamic_trainings_guide_sends_them_to(stack: ToyCloud) -> None:
    """A list of keys, the output MasterAutoScalingGroup, an instance STACK-Master, a security group STACK_SSH."""
    content = template()
    assert content["Parameters"]["KeyName"]["Type"] == "AWS::EC2::KeyPair::KeyName"
    assert "Default" not in content["Parameters"]["KeyName"], "the type takes no empty one"
    assert {"true", "True"} < set(content["Parameters"]["EnableElasticTraining"]["AllowedValues"])
    assert content["Outputs"]["MasterAutoScalingGroup"]["Value"] == {"Ref": "MasterAutoScalingGroup"}
    assert content["Outputs"]["Master"]["Value"] == {"Sub": "${Ready.Data}"}
    ssh = stack.cloud.client("ec2").describe_security_groups(Filters=[{"Name": "group-name", "Values": ["demo_SSH"]}])[
        "SecurityGroups"
    ]
    assert [rule["FromPort"] for one in ssh for rule in one["IpPermissions"]] == [22]
    tags = {tag["Key"]: tag["Value"] for tag in groups(stack)["demo-master"]["Tags"]}
    assert tags["Name"] == "demo-Master"


def test_a_zone_and_gpus_are_had_for_the_asking(stack: ToyCloud, advised: None) -> None:
    scripts = {base64.b64decode(data["UserData"]).decode() for data in launch_templates(stack, "advised").values()}
    assert all("MXNET='mxnet-cu112==1.9.1'" in script for script in scripts)
    plain = base64.b64decode(launch_templates(stack)["demo-node"]["UserData"]).decode()
    assert "MXNET='mxnet==1.9.1'" in plain
    assert groups(stack, "advised")["advised-master"]["AvailabilityZones"] == ["us-east-1c"]


def refused(content: dict[str, Any], **given: str) -> list[str]:
    """What the template's rules say against these parameters, as CloudFormation carries them out."""
    values = {name: str(one.get("Default", "")) for name, one in content["Parameters"].items()} | given

    def value(of: Any) -> Any:
        if not isinstance(of, dict):
            return [value(one) for one in of] if isinstance(of, list) else of
        ((function, arguments),) = of.items()
        parts = value(arguments)
        match function:
            case "Ref":
                return values[arguments]
            case "Not":
                return not parts[0]
            case "Equals":
                return parts[0] == parts[1]
            case "Fn::Contains":
                return parts[1] in parts[0]
        raise AssertionError(f"{function} is not carried out here")

    return [
        one["AssertDescription"]
        for rule in content["Rules"].values()
        if value(rule.get("RuleCondition", True))
        for one in rule["Assertions"]
        if not value(one["Assert"])
    ]


def test_a_stack_of_machines_that_cannot_train_is_refused_before_anything_is_made() -> None:
    """By the same table as everywhere: of AWS's list of types, and of what the rules name."""
    content = template()
    listed = set(re.findall(r"\b[gp]r?\d[a-z0-9-]*\.(?:metal|\d*x?large)\b", json.dumps(content["Rules"])))
    assert len(listed) > 40
    for name in sorted(listed | set(aws_types())):
        messages = refused(content, Accelerator="Nvidia", InstanceType=name)
        assert len(messages) == bool(cannot_be_a_node(name)), name
        assert all(f"Take {usable_families()}." in one for one in messages)
    assert refused(content, Accelerator="None", InstanceType="p5.48xlarge") == []
    assert "for processors" in refused(content, Accelerator="Nvidia", InstanceType="g5.xlarge", MXNet="mxnet==1.9.1")[0]


def test_a_minimum_above_the_maximum_is_refused_before_anything_is_made() -> None:
    """The controller would leave the whole cluster alone, and its launches would be abandoned again and again."""
    content = template()
    assert refused(content, MinWorkers="20") == ["MinWorkers is above MaxWorkers."], "16 is the maximum by default"
    for least in range(1, 40):
        for most in range(1, 17):
            messages = refused(content, MinWorkers=str(least), MaxWorkers=str(most))
            assert bool(messages) == (least > most), (least, most)
    assert refused(content, MinWorkers="20", MaxWorkers="64") == []


@pytest.mark.parametrize(("parameter", "model"), [("PolicyFields", ClusterPolicy), ("NodeFields", NodeConfig)])
def test_a_field_that_there_is_none_of_is_refused_before_anything_is_made(
    parameter: str, model: type[ClusterPolicy | NodeConfig]
) -> None:
    """A typo makes the whole policy invalid, and nobody looks after the cluster; or no node starts."""
    content = template()
    pattern = content["Parameters"][parameter]["AllowedPattern"]
    whole = str(content["Resources"][parameter.replace("Fields", "Parameter")]["Properties"]["Value"])
    of_their_own = {name for name in model.model_fields if f'"{name}": ' in whole}
    rest = set(model.model_fields) - of_their_own
    assert len(rest) > 10
    for name in model.model_fields:
        for value in ("3", "1.5", "true", "null", '"a, \\"b\\""', "[1, 2]", '{"a": "b", "c": {"d": 1}}'):
            one = f'"{name}": {value}'
            assert bool(re.fullmatch(pattern, one)) == (name in rest), one
    first, second = sorted(rest)[:2]
    for good in ("", f'"{first}":1,"{second}" : {{"a": [1]}}', f'"{first}": 1 , "{second}": "x"'):
        assert re.fullmatch(pattern, good), good
    for bad in (f'"{first}": 1, "{second}s": 1', f'"{first}": 1,', f'"{first}" 1', f"{first}: 1", f'"{first}": 1 2"'):
        assert not re.fullmatch(pattern, bad), bad


def test_the_template_fits_into_the_call_that_makes_a_stack_of_it() -> None:
    """`aws cloudformation deploy` would want a bucket for a longer one."""
    assert len(template_text().encode()) <= 51_200


def test_the_image_with_the_driver_has_room_and_a_size_of_ones_own_counts_more(stack: ToyCloud, advised: None) -> None:
    """EC2 launches nothing onto a volume that is smaller than the image's snapshot."""

    def sizes(cluster: str) -> list[int]:
        templates = launch_templates(stack, cluster).values()
        return [int(device["Ebs"]["VolumeSize"]) for data in templates for device in data["BlockDeviceMappings"]]

    assert (sizes("demo"), sizes("advised")) == ([50] * 3, [150] * 3)
    size = template()["Parameters"]["VolumeSize"]
    assert [
        bool(re.fullmatch(size["AllowedPattern"], text)) for text in ("", "20", "500", "16384", "19", "8", "5O")
    ] == [
        *[True] * 4,
        *[False] * 3,
    ]
    assert all(
        device["Ebs"]["VolumeSize"]["If"][:2] == ["OwnVolumeSize", {"Ref": "VolumeSize"}]
        for name in ("NodeTemplate", "GroupTemplate", "WorkerTemplate")
        for device in template()["Resources"][name]["Properties"]["LaunchTemplateData"]["BlockDeviceMappings"]
    )


def test_what_a_machine_is_does_not_depend_on_who_launches_it(stack: ToyCloud, advised: None) -> None:
    """The template has this three times, and a mend of one copy alone would be seen by nobody."""
    alike = ("UserData", "ImageId", "InstanceType", "MetadataOptions", "BlockDeviceMappings")
    for cluster in ("demo", "advised"):
        templates = launch_templates(stack, cluster)
        assert len(templates) == 3
        for name in alike:
            assert len({json.dumps(data[name], sort_keys=True) for data in templates.values()}) == 1, (cluster, name)


def test_instances_that_people_launch_ask_to_join_and_all_are_encrypted_and_behind_imdsv2(stack: ToyCloud) -> None:
    templates = launch_templates(stack)
    worker = templates[launch_template_name("demo")]
    tags = {
        tag["Key"]: tag["Value"]
        for spec in worker["TagSpecifications"]
        if spec["ResourceType"] == "instance"
        for tag in spec["Tags"]
    }
    assert tags == {ELASTIC_TAG.of("demo"): "", "NodeType": "Worker", OWNER_TAG: "demo", "Name": "demo-worker"}
    assert len(templates) == 3
    for data in templates.values():
        assert (data["MetadataOptions"]["HttpTokens"], data["MetadataOptions"]["InstanceMetadataTags"]) == (
            "required",
            "enabled",
        )
        assert all(device["Ebs"]["Encrypted"] for device in data["BlockDeviceMappings"])
    volumes = [
        one for one in stack.cloud.client("efs").describe_file_systems()["FileSystems"] if one.get("Name") == "demo"
    ]
    assert [(volume["Encrypted"], volume["NumberOfMountTargets"]) for volume in volumes] == [(True, 1)]
    node = parse_node_config("demo", value_of(stack, parameter("demo", "node")))
    assert node.volume == volumes[0]["FileSystemId"], (
        "a node that reboots while it cannot be mounted would train onto its own disk"
    )


def test_the_groups_make_one_master_the_base_and_room_for_elastic_workers(stack: ToyCloud) -> None:
    described = groups(stack)
    sizes = {name: (group["MinSize"], group["DesiredCapacity"], group["MaxSize"]) for name, group in described.items()}
    assert sizes == {"demo-master": (0, 1, 1), "demo-base": (0, 2, 2), "demo-workers": (0, 0, 8)}
    tags = {
        name: {tag["Key"]: tag["Value"] for tag in group["Tags"] if tag["PropagateAtLaunch"]}
        for name, group in described.items()
    }
    assert [(name, is_master(of), is_base(of)) for name, of in sorted(tags.items())] == [
        ("demo-base", False, True),
        ("demo-master", True, True),
        ("demo-workers", False, False),
    ]
    assert all(of[OWNER_TAG] == "demo" for of in tags.values())
    assert ELASTIC_TAG.of("demo") in tags["demo-workers"]
    assert BASE_TAG not in tags["demo-workers"]
    assert {name: group["NewInstancesProtectedFromScaleIn"] for name, group in described.items()} == {
        "demo-master": True,
        "demo-base": True,
        "demo-workers": False,
    }


def test_options_change_what_they_name_and_stacks_do_not_share_names(stack: ToyCloud) -> None:
    volume = stack.cloud.client("efs").create_file_system(CreationToken="mine")["FileSystemId"]
    create(
        stack,
        "spot",
        {**GIVEN, "PurchaseOption": "Spot", "EFSFileSystemId": volume, "VpcCidr": "10.21.0.0/16", **CIDRS},
    )
    fields = {"PolicyFields": '"terminate_orphans": true', "NodeFields": '"warm_spares": 1, "servers": "all"'}
    fixed = {"EnableElasticTraining": "false", "ImageType": "Ubuntu", "WorkerCount": "0"}
    create(stack, "fixed", {**GIVEN, **fixed, **fields})
    described = groups(stack) | groups(stack, "spot") | groups(stack, "fixed")
    shares = {
        name: group["MixedInstancesPolicy"]["InstancesDistribution"]
        for name, group in described.items()
        if name.endswith("-workers")
    }
    assert {name: share["OnDemandPercentageAboveBaseCapacity"] for name, share in shares.items()} == {
        "demo-workers": 100,
        "spot-workers": 0,
    }
    assert (described["demo-workers"]["CapacityRebalance"], described["spot-workers"]["CapacityRebalance"]) == (
        False,
        True,
    )
    assert (
        f"FILE_SYSTEM={volume}" in base64.b64decode(launch_templates(stack, "spot")["spot-node"]["UserData"]).decode()
    )
    for cluster, whose in (("demo", "of-the-stack"), ("spot", "given")):
        for data in launch_templates(stack, cluster).values():
            assert f"\nVOLUME={whose}\n" in base64.b64decode(data["UserData"]).decode()
    assert "fixed-workers" not in described
    assert set(launch_templates(stack, "fixed")) == {"fixed-node"}
    policy = ClusterPolicy.model_validate_json(value_of(stack, parameter("fixed", "policy")))
    assert (policy.groups, policy.terminate_orphans) == (("fixed-master", "fixed-base"), True)
    node = parse_node_config("fixed", value_of(stack, parameter("fixed", "node")))
    assert (node.workers, node.warm_spares, node.servers) == (1, 1, "all")
    names = {one.get("Name") for one in stack.cloud.client("efs").describe_file_systems()["FileSystems"]}
    assert "fixed" in names
    assert "spot" not in names, "it was given one"


def test_a_cluster_belongs_to_its_stage_whatever_that_stages_suffix_and_table_are(
    stack: ToyCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CloudFormation makes the table's name up: with any other, a target of many members could never be read."""
    ssm, table = stack.cloud.client("ssm"), "dyntrain-other-FactsTable-1ABCDEF"
    ssm.put_parameter(Name=stage_parameter("other", "table"), Type="String", Value=table)
    ssm.put_parameter(Name=stage_parameter("other", "tables"), Type="String", Value="dyntrain-other-FactsTable-*")
    ssm.put_parameter(Name=stage_parameter("other", "suffix"), Type="String", Value="-other-worker")
    create(stack, "second", {**GIVEN, "Stage": "other"})
    worker = launch_templates(stack, "second")[launch_template_name("second")]
    (tags,) = [spec["Tags"] for spec in worker["TagSpecifications"] if spec["ResourceType"] == "instance"]
    of_group = {tag["Key"] for tag in groups(stack, "second")["second-workers"]["Tags"]}
    assert ElasticTag("-other-worker").of("second") in {tag["Key"] for tag in tags} & of_group
    node = parse_node_config("second", value_of(stack, parameter("second", "node")))
    policy = ClusterPolicy.model_validate_json(value_of(stack, parameter("second", "policy")))
    assert (node.stage, policy.stage, node.elastic_suffix) == ("other", "other", "-other-worker")
    (facts,) = [one["Resource"] for one in role_statements(stack, "second") if one["Sid"] == "ReadLongTargets"]
    pattern = facts.rpartition(":")[2]
    assert fnmatchcase(f"table/{table}", pattern)
    assert fnmatchcase("table/dyntrain-other-FactsTable-9ZYXWVU", pattern), "a table that was replaced has another name"
    assert not fnmatchcase("table/dyntrain-another-FactsTable-1ABCDEF", pattern)
    keys = {"AttributeName": "pk", "KeyType": "HASH"}, {"AttributeName": "sk", "KeyType": "RANGE"}
    dynamodb = stack.cloud.client("dynamodb")
    dynamodb.create_table(
        TableName=table,
        KeySchema=list(keys),
        AttributeDefinitions=[{"AttributeName": key["AttributeName"], "AttributeType": "S"} for key in keys],
        BillingMode="PAY_PER_REQUEST",
    )
    members = {"L": [{"S": MASTER}]}
    dynamodb.put_item(TableName=table, Item={"pk": {"S": "cluster#second"}, "sk": {"S": "target"}, "members": members})
    for name, value in stack.cloud.environment.items():
        monkeypatch.setenv(name, value)
    hosts = AwsHosts("second", node.stage)

    def published(stage: str) -> None:
        target = Target.of(7, (MASTER,)).model_copy(
            update={"members": None, "pointer": "cluster#second/target", "stage": stage}
        )
        name = parameter("second", "target")
        ssm.put_parameter(Name=name, Value=target.model_dump_json(), Type="String", Overwrite=True)

    published("other")
    target = hosts.read_target()
    assert target is not None
    assert target.members == (MASTER,)
    published("local")
    with pytest.raises(HostsError, match="the controller of stage local wrote it, and the cluster belongs to other"):
        hosts.read_target()


@pytest.mark.parametrize("line_break", ["\n", "\r\n", " "])
def test_keys_are_taken_as_openssl_prints_them(stack: ToyCloud, line_break: str) -> None:
    """A line break inside the parameter's JSON would keep every node of the cluster from starting."""
    given = line_break.join([*stack.cloud.identity_keys.splitlines(), ""])
    name = f"keys{ord(line_break[0])}x{len(line_break)}"
    create(stack, name, {**GIVEN, "IdentityKeys": given, "EnableElasticTraining": "false", "WorkerCount": "0"})
    read = parse_node_config(name, value_of(stack, parameter(name, "node")))
    assert parse_keys(read.identity_keys) == parse_keys(stack.cloud.identity_keys)
    assert re.fullmatch(template()["Parameters"]["IdentityKeys"]["AllowedPattern"], given)


def test_the_embedded_cloud_gives_a_stacks_groups_their_hooks_and_machines(stack: ToyCloud) -> None:
    """moto's CloudFormation leaves the hooks out, and launches behind the cloud's back."""
    autoscaling = stack.cloud.client("autoscaling")
    for name in ("demo-master", "demo-base", "demo-workers"):
        hooks = autoscaling.describe_lifecycle_hooks(AutoScalingGroupName=name)["LifecycleHooks"]
        assert {(hook["LifecycleHookName"], hook["DefaultResult"]) for hook in hooks} == {
            (f"{name}-launch", "ABANDON" if name == "demo-workers" else "CONTINUE"),
            (f"{name}-terminate", "CONTINUE"),
        }
    members = [one["InstanceId"] for group in groups(stack).values() for one in group["Instances"]]
    assert len(members) == 3
    assert {stack.cloud.instance_state(instance) for instance in members} <= {"pending", "running"}


@pytest.mark.parametrize("image", ["AmazonLinux", "Ubuntu"])
def test_the_user_data_is_a_script_that_bash_can_read(stack: ToyCloud, image: str) -> None:
    script = base64.b64decode(launch_templates(stack)["demo-node"]["UserData"]).decode()
    install = {name: image_data["Install"] for name, image_data in template()["Mappings"]["Image"].items()}
    assert install["AmazonLinux"] in script
    text = script.replace(install["AmazonLinux"], install[image])
    done = subprocess.run(["bash", "-n"], input=text, capture_output=True, text=True, timeout=patient(20), check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_nodes_may_fetch_the_code_that_they_are_told_of_and_wait_for_nobody_to_bring_any(
    stack: ToyCloud, advised: None
) -> None:
    node = parse_node_config("advised", value_of(stack, parameter("advised", "node")))
    assert node.code == "s3://anybodys-jobs/advised/code.tar.gz"
    for role in ("NodeRole", "WorkerRole"):
        (allowed,) = [one for one in role_statements(stack, "advised", role) if one.get("Sid") == "FetchTheCode"]
        assert allowed["Resource"].endswith(":s3:::anybodys-jobs/advised/code.tar.gz")
    waits = {"demo": "PREPARE='/myEFSvolume/prepare-data.py'", "advised": "PREPARE='/opt/dyntrain'"}
    for cluster, wait in waits.items():
        for data in launch_templates(stack, cluster).values():
            assert wait in base64.b64decode(data["UserData"]).decode()
    assert "FetchTheCode" not in [one.get("Sid") for one in role_statements(stack)]


def test_user_data_and_bootstrap_mount_the_volume_alike(stack: ToyCloud) -> None:
    """Two entries that differ would be two mounts over one another, or a reboot that takes the other one."""
    script = base64.b64decode(launch_templates(stack)["demo-node"]["UserData"]).decode()
    entry = fstab_with("", "fs-1", "/data").strip()
    assert entry.replace("fs-1", "$FILE_SYSTEM").replace("/data", "$MOUNT") in script


def test_the_doctor_understands_what_the_template_made(stack: ToyCloud, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a cluster whose machines never start, only that is wrong, and what moto does not do is no verdict."""
    for name, value in stack.cloud.environment.items():
        monkeypatch.setenv(name, value)
    done = CliRunner().invoke(main, ["--stage", "local", "doctor", "--cluster", "demo", "--json"])
    lines = {one["what"]: one for one in map(json.loads, done.output.splitlines())}
    assert done.exit_code == 1, done.output
    fine = {what for what, one in lines.items() if one["verdict"] == "ok"}
    assert fine >= {"stage", "table", "demo: policy", "demo: node parameter", "demo: identity keys"}, done.output
    assert fine >= {"demo: stack", "demo: launch template", "demo: group demo-workers"}, done.output


def test_an_update_of_the_stack_sets_no_group_back_to_the_size_that_it_was_made_with() -> None:
    """Of what a template says of a group's size, each update that touches the group writes it again: raising MaxWorkers
    would end all workers, and bring base nodes back that `after_job: terminate` has ended.
    """
    groups = {
        name: resource
        for name, resource in template()["Resources"].items()
        if resource["Type"] == "AWS::AutoScaling::AutoScalingGroup"
    }
    assert set(groups) == {"MasterAutoScalingGroup", "BaseGroup", "WorkerGroup"}
    for resource in groups.values():
        policy = resource["UpdatePolicy"]
        assert set(policy) == {"AutoScalingScheduledAction"}, "nothing that replaces instances"
        assert policy["AutoScalingScheduledAction"] == {"IgnoreUnmodifiedGroupSizeProperties": True}
    sizes = {
        name: {key for key in ("DesiredCapacity",) if key in group["Properties"]} for name, group in groups.items()
    }
    assert sizes == {
        "MasterAutoScalingGroup": {"DesiredCapacity"},
        "BaseGroup": {"DesiredCapacity"},
        "WorkerGroup": set(),
    }
