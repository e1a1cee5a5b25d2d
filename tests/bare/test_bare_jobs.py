"""A job's user data, as it stands, on machines of which nothing is ours: the whole way from `dyntrain job submit` to
machines that switch themselves off. Needs what `make bare` needs.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path

import boto3
import pytest
from dyntrain.controller.local.cloud.embedded import Cloud
from dyntrain.controller.local.machines.bare import image
from dyntrain.controller.local.options import Options
from dyntrain.controller.local.pace import Deadline, patient
from dyntrain.controller.local.stack import template_text

pytestmark = [pytest.mark.bare, pytest.mark.timeout(1800)]
BUCKET = "anybodys-jobs"
JOB_SECONDS = 600

TRAIN = """
import getpass, os, socket, sys
import cronsim
rank, nodes = int(os.environ["NODE_RANK"]), int(os.environ["NUM_NODES"])
address = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
print(f"rank {rank} of {nodes} at {address[0]} as {getpass.getuser()} in {os.getcwd()}", flush=True)
if rank == 0:
    server = socket.create_server(address)
    for _ in range(nodes - 1):
        peer, _ = server.accept()
        peer.sendall(b"hello")
else:
    while True:
        try:
            peer = socket.create_connection(address, 60)
            break
        except ConnectionRefusedError:
            pass
    print(peer.recv(5).decode(), flush=True)
with open(f"artifacts/rank-{rank}", "w") as file:
    file.write("trained")
"""


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    root = image.build_root(Path("build/bare"), template_text())
    folder = tmp_path_factory.mktemp("bare-jobs")
    options = Options(namespaces=True, bare=root, machine_stop=30.0)
    with Cloud(resync_seconds=30.0, state_dir=folder, options=options) as up:
        up.client("s3").create_bucket(Bucket=BUCKET)
        up.client("iam").create_instance_profile(InstanceProfileName="job-node")
        yield up
    shutil.rmtree(folder / "machines", ignore_errors=True)


def consoles(cloud: Cloud) -> str:
    files = sorted((cloud.state_dir / "machines").glob("*/var/log/console.log"))
    return "\n".join(f"{path.parts[-4]}: {path.read_text('utf-8', 'replace')[-4000:]}" for path in files)


def all_terminated(cloud: Cloud) -> bool:
    return {cloud.instance_state(name) for name in cloud.instances.known_ids()} == {"terminated"}


def test_user_data_runs_the_command_without_rights_and_the_machine_switches_itself_off(
    cloud: Cloud, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text(TRAIN)
    (tmp_path / "requirements.txt").write_text("cronsim\n")
    words = ["submit", "bare", "--code", str(tmp_path), "--nodes", "2", "--instance-type", "m5.large"]
    words += ["--bucket", BUCKET, "--profile", "job-node", "--yes", "--wait", "--", "python3", "train.py"]
    argv = [sys.executable, "-m", "dyntrain", "job"]
    done = subprocess.run(
        [*argv, *words],
        env=cloud.program_environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=patient(JOB_SECONDS),
    )
    assert done.returncode == 0, f"{done.stdout}{done.stderr}\n{consoles(cloud)}"
    s3 = cloud.client("s3")
    for rank in (0, 1):
        assert s3.get_object(Bucket=BUCKET, Key=f"bare/artifacts/rank-{rank}")["Body"].read() == b"trained"
    shown = subprocess.run(
        [*argv, "logs", "bare"],
        env=cloud.program_environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=patient(60.0),
    )
    assert shown.returncode == 0, shown.stderr
    logs = shown.stdout
    for rank in (0, 1):
        assert f"rank {rank} of 2 at 198." in logs
    assert logs.count("as dyntrain-job in /opt/dyntrain-job/code") == 2
    assert "1  hello" in logs
    deadline = Deadline(60.0)
    while not all_terminated(cloud):
        assert not deadline.passed(), consoles(cloud)
        time.sleep(0.2)


# What the author of such a script takes for granted of a Deep Learning AMI, before the script's own first line.
OF_THE_AMI = """#!/bin/bash
exec > /root/user-data.log 2>&1
cd /root
apt-get update -q
apt-get install -y -q python3-venv
python3 -m venv /opt/conda
/opt/conda/bin/pip install -q awscli
ln -s /opt/conda/bin/aws /opt/conda/bin/pip /usr/local/bin/
"""
# By hand, as people did before there was a command for it: launched by boto3, version 1 of the metadata service, tags
# that come after the launch, the CLI for everything, and its own end by TerminateInstances.
BY_HAND = """
MD=http://169.254.169.254/latest/meta-data
ID=$(curl -s $MD/instance-id)
REGION=$(curl -s $MD/placement/region)
JOB_ID=$(curl -s $MD/tags/instance/JOB_ID)
export NODE_RANK=$(curl -s $MD/ami-launch-index)
export NUM_NODES=$(curl -s $MD/tags/instance/NUM_NODES)
export MASTER_PORT=$(curl -s $MD/tags/instance/MASTER_PORT)
aws s3 cp s3://anybodys-jobs/$JOB_ID/my-code.tar .
tar -xvf my-code.tar
/opt/conda/bin/python -m pip install -r requirements.txt 2>&1 | tee -a output.log
until export MASTER_ADDR=$(curl -s $MD/tags/instance/MASTER_ADDR); [[ $MASTER_ADDR != "<?xml"* ]]; do
  echo no master yet | tee -a output.log
  sleep 1
done
/opt/conda/bin/python train.py 2>&1 | tee -a output.log
cp output.log artifacts/output-$NODE_RANK.log
aws s3 sync artifacts s3://anybodys-jobs/$JOB_ID/artifacts
aws ec2 terminate-instances --instance-ids $ID --region $REGION
"""


def test_a_script_of_ones_own_launched_by_boto3_runs_as_its_author_would_run_it(cloud: Cloud, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAIN)
    (tmp_path / "requirements.txt").write_text("cronsim\n")
    (tmp_path / "artifacts").mkdir()
    with tarfile.open(tmp_path / "my-code.tar", "w") as tar:
        for name in ("train.py", "requirements.txt", "artifacts"):
            tar.add(tmp_path / name, name)
    cloud.client("s3").upload_file(str(tmp_path / "my-code.tar"), BUCKET, "by-hand/my-code.tar")
    cloud.client("ec2").create_placement_group(GroupName="close", Strategy="cluster")
    session = boto3.Session(aws_access_key_id="local", aws_secret_access_key="local", region_name="us-east-1")
    tags = {"NAME": "test-vm", "JOB_ID": "by-hand", "MASTER_PORT": "7777", "NUM_NODES": "2"}
    instances = session.resource("ec2", endpoint_url=cloud.endpoint).create_instances(
        MinCount=2,
        MaxCount=2,
        ImageId="ami-12345678",
        InstanceType="g5.xlarge",
        UserData=OF_THE_AMI + BY_HAND,
        MetadataOptions={"InstanceMetadataTags": "enabled"},
        TagSpecifications=[
            {"ResourceType": "instance", "Tags": [{"Key": key, "Value": value} for key, value in tags.items()]}
        ],
        Placement={"GroupName": "close"},
    )
    master = next(one for one in instances if one.ami_launch_index == 0)
    address = master.network_interfaces_attribute[0]["PrivateIpAddress"]
    for one in instances:
        named = {"NAME": f"test-vm-{one.ami_launch_index}", "MASTER_ADDR": address}
        one.create_tags(Tags=[{"Key": key, "Value": value} for key, value in named.items()])
    deadline = Deadline(float(JOB_SECONDS))
    while {cloud.instance_state(one.id) for one in instances} != {"terminated"}:
        assert not deadline.passed(), consoles(cloud)
        time.sleep(0.5)
    for rank in (0, 1):
        key = f"by-hand/artifacts/output-{rank}.log"
        output = cloud.client("s3").get_object(Bucket=BUCKET, Key=key)["Body"].read().decode()
        assert f"rank {rank} of 2 at {address} as root" in output
