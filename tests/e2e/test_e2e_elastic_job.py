"""A job that is a cluster, by the real command line: submitted, scaled while it trains, looked at, stopped."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from dyntrain.controller.local.cloud.embedded import Cloud
from dyntrain.controller.local.options import Options
from dyntrain.controller.local.pace import patient
from waiting import wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]  # many starts of the command line, each slow on a busy machine
BUCKET = "anybodys-jobs"
NAME = "digits"
SECONDS = 120.0
TINY = (Path(__file__).parents[1] / "training" / "tiny_job.py").read_text()
# Saves a model after its last epoch, for longer than a coordinator that uploads nothing waits for anybody.
LAST_LINES = f"""
    time.sleep(17.0)
    (job,) = Path("../dyntrain/{NAME}").glob("job-*")
    (job / "output").mkdir(exist_ok=True)
    (job / "output" / f"{{os.getpid()}}.model").write_text("trained")
"""
PREPARE = """
import os, pathlib
pathlib.Path(f"prepared-{os.environ['DEEPLEARNING_WORKERS_COUNT']}").write_text(os.environ["JOB_ID"])
"""


@pytest.fixture
def cloud(tmp_path: Path) -> Iterator[Cloud]:
    with Cloud(state_dir=tmp_path / "cloud", resync_seconds=3.0, options=Options(boot_delay=0.05)) as up:
        up.client("s3").create_bucket(Bucket=BUCKET)
        up.client("ec2").create_key_pair(KeyName="anybody")
        yield up


def dyntrain(cloud: Cloud, *words: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "dyntrain", *words]
    return subprocess.run(
        argv, env=cloud.program_environment, capture_output=True, text=True, check=False, timeout=patient(SECONDS)
    )


def submit(cloud: Cloud, code: Path, hold: Path, *more: str) -> subprocess.CompletedProcess[str]:
    words = ["job", "submit", NAME, "--code", str(code), "--nodes", "2", "--instance-type", "c6i.xlarge"]
    words += ["--bucket", BUCKET, "--yes", "--elastic", "--env", "COLOUR=red", *more]
    return dyntrain(
        cloud, *words, "--", "python3", "train.py", "--epochs", "400", "--hold", str(hold), "--step-seconds", "0.3"
    )


def test_an_elastic_job_is_a_cluster_that_trains_grows_and_leaves_nothing_behind(cloud: Cloud, tmp_path: Path) -> None:
    code, hold = tmp_path / "code", tmp_path / "hold"
    code.mkdir()
    hold.touch()
    (code / "train.py").write_text(TINY + LAST_LINES)
    (code / "prepare-data.py").write_text(PREPARE)
    ec2, before = cloud.client("ec2"), left(cloud)

    refused = submit(cloud, code, hold, "--spot")
    assert (refused.returncode, "--spot does not go with --elastic" in refused.stderr) == (1, True)
    refused = submit(cloud, code, hold)
    assert (refused.returncode, "--package" in refused.stderr) == (1, True), refused.stderr
    assert left(cloud) == before, "what is refused has made nothing"

    cloud.client("s3").put_object(Bucket=BUCKET, Key="dyntrain-0.1.0-py3-none-any.whl", Body=b"")
    done = submit(cloud, code, hold)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "stack arn:aws:cloudformation:" in done.stdout
    shared = cloud.state_dir / "shared"
    assert (shared / "code" / "prepared-2").read_text() == NAME
    again = submit(cloud, code, hold)
    assert (again.returncode, "in use" in again.stderr) == (1, True)

    assert dyntrain(cloud, "scale", NAME, "1").returncode == 0
    wait_for(
        lambda: statuses(cloud) == ["ADDED"] * 3, SECONDS, "the added worker trains beside the two base nodes", 1.0
    )
    state = status(cloud)
    assert (state["phase"], state["cluster"]["job"]["workers"]) == ("RUNNING", 3)

    assert listed(cloud) == ("RUNNING", "RUNNING")
    hold.unlink()
    wait_for(
        lambda: listed(cloud)[1] == "SUCCEEDED", SECONDS, "what has trained is listed as such before its stop", 1.0
    )

    there, volume = uploaded(cloud), shared / "dyntrain" / NAME
    last = max(name for name in there if name.endswith(".commit"))
    assert there[last] == (volume / last).read_bytes()
    models = {str(path.relative_to(volume)): path.read_bytes() for path in volume.glob("*/output/*")}
    assert len(models) == 3
    assert {name: there[name] for name in models} == models, "also what the scripts saved after their last epoch"
    assert len([name for name in there if "/tensorboard/" in name]) == 1, there.keys()

    byhand = ec2.run_instances(
        LaunchTemplate={"LaunchTemplateName": f"{NAME}-aws-dl-cfn-worker-ec2-launch-template"}, MinCount=1, MaxCount=1
    )["Instances"][0]["InstanceId"]
    stopped = dyntrain(cloud, "job", "stop", NAME)
    assert stopped.returncode == 0, stopped.stdout + stopped.stderr
    assert "aws efs delete-file-system" in stopped.stdout, "what is kept, and billed, is said"
    assert {cloud.instance_state(one) for one in cloud.instances.known_ids()} == {"terminated"}
    assert byhand in cloud.instances.known_ids()
    assert left(cloud) == before
    assert status(cloud)["phase"] == "STOPPED"
    cost = dyntrain(cloud, "cost", NAME).stdout
    assert (f"cluster {NAME} " in cost, f"job {NAME} " in cost) == (True, False), cost
    assert dyntrain(cloud, "job", "stop", NAME).returncode == 0, "once more, when all is done"


def uploaded(cloud: Cloud) -> dict[str, bytes]:
    """Name and content of what is in the bucket of the results, below the job's folder."""
    s3, place = cloud.client("s3"), f"{NAME}/artifacts/"
    keys = [one["Key"] for one in s3.list_objects_v2(Bucket=BUCKET, Prefix=place)["Contents"]]
    return {key.removeprefix(place): s3.get_object(Bucket=BUCKET, Key=key)["Body"].read() for key in keys}


def status(cloud: Cloud) -> Any:
    return json.loads(dyntrain(cloud, "job", "status", NAME, "--json").stdout)


def listed(cloud: Cloud) -> tuple[str, str]:
    """What is recorded of the job, and how it stands."""
    (job,) = json.loads(dyntrain(cloud, "job", "list", "--json").stdout)
    return job["state"], job["phase"]


def statuses(cloud: Cloud) -> list[str]:
    return [node["status"] for node in status(cloud)["cluster"]["nodes"]]


def left(cloud: Cloud) -> dict[str, list[str]]:
    """Whatever a cluster's stack has that could bill, or be in somebody's way."""
    ec2, groups = cloud.client("ec2"), cloud.client("autoscaling").describe_auto_scaling_groups()
    parameters = cloud.client("ssm").get_parameters_by_path(Path="/dyntrain/", Recursive=True)["Parameters"]
    return {
        "stacks": [one["StackName"] for one in cloud.client("cloudformation").describe_stacks()["Stacks"]],
        "groups": [one["AutoScalingGroupName"] for one in groups["AutoScalingGroups"]],
        "networks": [one["VpcId"] for one in ec2.describe_vpcs()["Vpcs"]],
        "addresses": [one["AllocationId"] for one in ec2.describe_addresses()["Addresses"]],
        "templates": [one["LaunchTemplateName"] for one in ec2.describe_launch_templates()["LaunchTemplates"]],
        "parameters": sorted(one["Name"] for one in parameters),
        "logs": [one["logGroupName"] for one in cloud.client("logs").describe_log_groups()["logGroups"]],
    }
