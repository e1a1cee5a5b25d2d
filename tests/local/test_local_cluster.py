"""A cluster's stack in the embedded cloud, and the command line around it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from dyntrain.controller.cli.main import main
from dyntrain.controller.contract.messages import ClusterPolicy
from dyntrain.controller.local.errors import PortInUse, ProvisionFailed
from dyntrain.controller.local.guide import guide_text
from dyntrain.controller.local.listening import check_ports_are_free, listen
from dyntrain.controller.local.pace import patient
from dyntrain.controller.local.signals import EndedBySignal
from dyntrain.controller.local.stack import (
    BUCKET_PATTERN,
    EMPTY_WHEEL_NAME,
    create_jobs_stack,
    create_stack,
    write_prepare_script,
)
from dyntrain.controller.local.up import UpOptions, print_events_until_ended, template_parameters
from dyntrain.node_bootstrap.reports.config import parse_node_config, with_volume_at, working_folder
from local_toycloud import ToyCloud
from waiting import wait_for


def tags_of(toy: ToyCloud, instance_id: str) -> dict[str, str]:
    return {
        key: value for key, value in toy.cloud.account.instance_tags(instance_id).items() if not key.startswith("aws:")
    }


def test_the_stack_of_a_cluster_launches_its_base_and_takes_more_of_the_policy(toy: ToyCloud) -> None:
    more = {"rebalance": "ignore", "terminate_orphans": True}
    cluster = create_stack(toy.cloud, "demo", ("true",), {"WorkerCount": "2"}, more)
    read = toy.cloud.client("ssm").get_parameter(Name="/dyntrain/demo/policy")["Parameter"]["Value"]
    policy = ClusterPolicy.model_validate_json(read)
    assert (policy.stage, policy.rebalance, policy.terminate_orphans) == ("local", "ignore", True)
    assert set(policy.groups) == {"demo-master", "demo-base", "demo-workers"}
    assert cluster.master is not None
    base = {"dyntrain:base": "true", "dyntrain:cluster": "demo"}
    assert tags_of(toy, cluster.master) == {**base, "NodeType": "Master", "Name": "demo-Master"}
    assert [tags_of(toy, one)["NodeType"] for one in cluster.workers] == ["Worker", "Worker"]


def test_instances_of_the_launch_template_ask_to_join_however_they_are_launched(toy: ToyCloud) -> None:
    cluster = create_stack(toy.cloud, "demo", ("true",), {"WorkerCount": "0"})
    wanted = {
        "demo-aws-dl-cfn-elastic-worker": "",
        "NodeType": "Worker",
        "dyntrain:cluster": "demo",
        "Name": "demo-worker",
    }
    ec2, autoscaling = toy.cloud.client("ec2"), toy.cloud.client("autoscaling")
    by_hand = ec2.run_instances(LaunchTemplate={"LaunchTemplateName": cluster.launch_template}, MinCount=1, MaxCount=1)[
        "Instances"
    ][0]
    autoscaling.set_desired_capacity(AutoScalingGroupName=cluster.group, DesiredCapacity=1)

    def members() -> list[str]:
        (group,) = autoscaling.describe_auto_scaling_groups(AutoScalingGroupNames=[cluster.group])["AutoScalingGroups"]
        return [one["InstanceId"] for one in group["Instances"]]

    for instance_id in (by_hand["InstanceId"], wait_for(members)[0]):
        described = ec2.describe_instances(InstanceIds=[instance_id])["Reservations"][0]["Instances"][0]
        assert tags_of(toy, instance_id) == wanted
        assert (described["MetadataOptions"]["HttpTokens"], described["MetadataOptions"]["InstanceMetadataTags"]) == (
            "required",
            "enabled",
        )


def test_jobs_can_be_submitted_at_once_and_the_wheel_is_where_it_is_looked_for(toy: ToyCloud) -> None:
    """As the README has it: without a bucket, a role or a security group of one's own."""
    create_stack(toy.cloud, "demo", ("true",), {"WorkerCount": "0"})
    create_jobs_stack(toy.cloud)
    path = "/dyntrain/-jobs-/"
    entries = toy.cloud.client("ssm").get_parameters_by_path(Path=path)["Parameters"]
    parameters = {entry["Name"].removeprefix(path): entry["Value"] for entry in entries}
    assert set(parameters) == {"bucket", "profile", "security-group"}
    for bucket in (BUCKET_PATTERN.format(toy.cloud.account.number), parameters["bucket"]):
        assert [one["Key"] for one in toy.cloud.client("s3").list_objects_v2(Bucket=bucket)["Contents"]] == [
            EMPTY_WHEEL_NAME
        ]


def test_a_second_cluster_of_a_name_is_refused_with_the_words_of_aws(toy: ToyCloud) -> None:
    create_stack(toy.cloud, "demo", ("true",))
    with pytest.raises(ProvisionFailed, match=r"cluster demo .* already exists"):
        create_stack(toy.cloud, "demo", ("true",))


def test_the_prepare_script_writes_the_digits_once_and_repairs_a_damaged_file(tmp_path: Path) -> None:
    script = write_prepare_script(tmp_path)

    def prepare() -> str:
        return subprocess.run(
            [sys.executable, str(script)], capture_output=True, text=True, check=True, timeout=patient(60)
        ).stdout

    assert "wrote" in prepare()
    assert "exists" in prepare()
    (tmp_path / "digits.npz").write_bytes(b"PK half")
    assert "wrote" in prepare()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["digits.npz", "prepare-data.py"]


def test_the_guide_has_lines_that_can_be_pasted(toy: ToyCloud) -> None:
    text = guide_text(toy.cloud, create_stack(toy.cloud, "demo", ("true",)), "python train.py, in /home/me")
    pasted = text.partition("\n\ncluster")[0]
    assert "export PATH=" in pasted, "whose shell has no dyntrain pastes it too"
    assert f"export DYNTRAIN_LOCAL_DIRECTORY={toy.cloud.state_dir}\n" in pasted, (
        "so that status and logs find the files"
    )
    assert f"export AWS_ENDPOINT_URL={toy.cloud.endpoint}\n" in text
    assert "export AWS_ACCESS_KEY_ID=local AWS_SECRET_ACCESS_KEY=local AWS_DEFAULT_REGION=us-east-1\n" in text
    for wanted in (
        "demo-aws-dl-cfn-worker-ec2-launch-template",
        "demo-workers",
        "Key=demo-aws-dl-cfn-elastic-worker",
        "dyntrain status",
        "python train.py, in /home/me",
    ):
        assert wanted in text


def test_a_command_of_a_persons_folder_is_told_to_the_nodes_with_it(toy: ToyCloud, tmp_path: Path) -> None:
    """It ran in the shared volume, where there is no train.py."""
    folder = tmp_path / 'my "own" ${Folder} ä'
    create_stack(toy.cloud, "demo", ("python", "train.py"), template_parameters(folder))
    read = toy.cloud.client("ssm").get_parameter(Name="/dyntrain/demo/node")["Parameter"]["Value"]
    node = parse_node_config("demo", read)
    assert working_folder(node) == str(folder)
    assert working_folder(with_volume_at(node, tmp_path / "shared")) == str(folder)


@pytest.mark.parametrize("quiet", [False, True])
def test_what_becomes_of_the_job_is_told_below_the_lines_to_paste_unless_nobody_wants_it(
    toy: ToyCloud, quiet: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """Among them it would be pasted too, and they would scroll away before they are read."""
    cluster = create_stack(toy.cloud, "demo", ("true",), {"WorkerCount": "0"})
    chosen = UpOptions(0, "demo", 0, None, None, 5.0, False, "plain", None, False, 0, False, quiet, ())
    master = str(cluster.master)

    class Ending:
        def wait(self) -> None:
            if not quiet:
                wait_for(lambda: f"{master}  running" in heard(), 20)
            raise EndedBySignal(signal.SIGINT)

    text = list[str]()

    def heard() -> str:
        text.append(capsys.readouterr().out)
        return "".join(text)

    with pytest.raises(EndedBySignal):
        print_events_until_ended(chosen, toy.cloud, cluster, Ending())
    pasted, _, story = heard().partition("leaves nothing behind.\n")
    assert "export PATH" in pasted
    assert "Events of the cluster" not in pasted
    assert (f"{master}  running" in story, "Events of the cluster" in story) == (not quiet, not quiet)


@pytest.mark.parametrize(
    ("options", "option"),
    [
        (["--port", "{}"], "--port"),
        (["--port", "0", "--dashboard", "--dashboard-port", "{}"], "--dashboard-port"),
    ],
)
def test_up_on_a_port_in_use_is_one_line_and_fails_before_anything_slow(
    toy: ToyCloud, options: list[str], option: str
) -> None:
    """A dashboard that cannot be shown would end the cluster that was set up for it, half a minute later."""
    port = toy.cloud.endpoint.rpartition(":")[2]
    result = CliRunner().invoke(main, ["local", "up", *(text.format(port) for text in options)])
    assert result.exit_code == 1
    assert result.output.strip().splitlines() == [
        f"Error: port {port} on 127.0.0.1 is in use; stop what listens there or choose another with {option}"
    ]


def test_two_options_cannot_have_one_port() -> None:
    with listen("127.0.0.1", 0) as other:
        free = other.getsockname()[1]
    with pytest.raises(PortInUse, match=f"port {free} .* choose another with --dashboard-port"):
        check_ports_are_free("127.0.0.1", {"--port": free, "--dashboard-port": free})
    check_ports_are_free("127.0.0.1", {"--port": 0, "--dashboard-port": 0})


def test_calls_are_counted_at_the_endpoint(toy: ToyCloud) -> None:
    toy.cloud.calls.clear()
    toy.cloud.client("ssm").put_parameter(Name="/a", Value=json.dumps({}), Type="String")
    assert dict(toy.cloud.calls) == {("ssm", "PutParameter"): 1}
