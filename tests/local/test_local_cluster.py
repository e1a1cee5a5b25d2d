"""A cluster set up in the embedded cloud, and the command line around it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from local_toycloud import ToyCloud, wait_for

from controller.contract import ClusterPolicy, NodeConfig
from controller.local.cluster import ClusterPlan, digits_command, provision, write_prepare_script
from controller.local.command import guide, local, require_packages
from controller.local.errors import MotoMissing, ProvisionFailed


def plan(toy: ToyCloud, **more: Any) -> ClusterPlan:
    mount = toy.cloud.state_dir / "shared"
    return ClusterPlan(**{"cluster": "demo", "mount": mount, "training_cmd": digits_command(mount, 3), **more})


def tags_of(toy: ToyCloud, instance_id: str) -> dict[str, str]:
    return {key: value for key, value in toy.cloud.account.instance_tags(instance_id).items() if not key.startswith("aws:")}


def test_a_provisioned_cluster_has_what_nodes_and_controller_look_for(toy: ToyCloud) -> None:
    cluster = provision(toy.cloud.environment, plan(toy, base_workers=2, segment_steps=7))
    ssm, autoscaling = toy.cloud.client("ssm"), toy.cloud.client("autoscaling")
    policy = ClusterPolicy.model_validate_json(ssm.get_parameter(Name="/dyntrain/demo/policy")["Parameter"]["Value"])
    node = NodeConfig.model_validate_json(ssm.get_parameter(Name="/dyntrain/demo/node")["Parameter"]["Value"])
    assert (policy.groups, node.segment_steps, node.training_cmd[1:3]) == (("demo-workers",), 7, ("-m", "training.examples.digits"))
    hooks = autoscaling.describe_lifecycle_hooks(AutoScalingGroupName=cluster.group)["LifecycleHooks"]
    assert {hook["LifecycleHookName"]: hook["DefaultResult"] for hook in hooks} == {"demo-launch": "ABANDON", "demo-terminate": "CONTINUE"}
    group = autoscaling.describe_auto_scaling_groups()["AutoScalingGroups"][0]
    assert (group["MinSize"], group["DesiredCapacity"], group["AutoScalingGroupName"]) == (0, 0, "demo-workers")
    assert cluster.master is not None
    base = {"dyntrain:base": "true", "dyntrain:cluster": "demo"}
    assert tags_of(toy, cluster.master) == {**base, "NodeType": "Master", "Name": "demo-master"}
    assert [tags_of(toy, one)["NodeType"] for one in cluster.workers] == ["Worker", "Worker"]


def test_instances_of_the_launch_template_ask_to_join_however_they_are_launched(toy: ToyCloud) -> None:
    cluster = provision(toy.cloud.environment, plan(toy, job=False))
    wanted = {"demo-aws-dl-cfn-elastic-worker": "", "NodeType": "Worker", "dyntrain:cluster": "demo", "Name": "demo-worker"}
    ec2, autoscaling = toy.cloud.client("ec2"), toy.cloud.client("autoscaling")
    by_hand = ec2.run_instances(LaunchTemplate={"LaunchTemplateName": cluster.launch_template}, MinCount=1, MaxCount=1)["Instances"][0]
    autoscaling.set_desired_capacity(AutoScalingGroupName=cluster.group, DesiredCapacity=1)
    by_group = wait_for(lambda: autoscaling.describe_auto_scaling_instances()["AutoScalingInstances"])[0]
    for instance_id in (by_hand["InstanceId"], by_group["InstanceId"]):
        described = ec2.describe_instances(InstanceIds=[instance_id])["Reservations"][0]["Instances"][0]
        assert tags_of(toy, instance_id) == wanted
        assert (described["MetadataOptions"]["HttpTokens"], described["MetadataOptions"]["InstanceMetadataTags"]) == ("required", "enabled")


def test_a_bad_cluster_name_is_refused_with_the_field(toy: ToyCloud) -> None:
    with pytest.raises(ProvisionFailed, match="cluster: "):
        provision(toy.cloud.environment, plan(toy, cluster="1bad"))
    provision(toy.cloud.environment, plan(toy, job=False))
    with pytest.raises(ProvisionFailed, match="already"):
        provision(toy.cloud.environment, plan(toy, job=False))


def test_the_prepare_script_writes_the_digits_once_and_repairs_a_damaged_file(tmp_path: Path) -> None:
    script = write_prepare_script(tmp_path)

    def prepare() -> str:
        return subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=True, timeout=60).stdout

    assert "wrote" in prepare()
    assert "is there" in prepare()
    (tmp_path / "digits.npz").write_bytes(b"PK half")
    assert "wrote" in prepare()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["digits.npz", "prepare-data.py"]


def test_the_guide_has_lines_that_can_be_pasted(toy: ToyCloud) -> None:
    text = guide(toy.cloud, provision(toy.cloud.environment, plan(toy)))
    assert f"export AWS_ENDPOINT_URL={toy.cloud.endpoint}\n" in text
    assert "export AWS_ACCESS_KEY_ID=local AWS_SECRET_ACCESS_KEY=local AWS_DEFAULT_REGION=us-east-1\n" in text
    for wanted in ("demo-aws-dl-cfn-worker-ec2-launch-template", "demo-workers", "Key=demo-aws-dl-cfn-elastic-worker", "dyntrain status"):
        assert wanted in text


def test_a_missing_package_is_one_line_that_names_the_extra() -> None:
    with pytest.raises(MotoMissing, match=r"there_is_no_such.*install dyntrain\[local\]"):
        require_packages(("json", "there_is_no_such"))


def test_up_on_a_port_in_use_is_one_line_and_fails(toy: ToyCloud) -> None:
    port = toy.cloud.endpoint.rpartition(":")[2]
    result = CliRunner().invoke(local, ["up", "--port", port])
    assert result.exit_code == 1
    assert result.output.strip().splitlines() == [f"Error: port {port} on 127.0.0.1 is in use; stop what listens there or choose another with --port"]


def test_calls_are_counted_at_the_endpoint(toy: ToyCloud) -> None:
    toy.cloud.calls.clear()
    toy.cloud.client("ssm").put_parameter(Name="/a", Value=json.dumps({}), Type="String")
    assert dict(toy.cloud.calls) == {("ssm", "PutParameter"): 1}
