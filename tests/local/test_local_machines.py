"""Machines are processes: they boot, have a metadata service, and die with their instance and with the cloud."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.utils import InstanceMetadataFetcher
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from dyntrain.controller.local.errors import AppNotLoaded, PortInUse
from dyntrain.controller.local.pace import MACHINE_NICENESS, patient
from local_toycloud import QUIET, ToyCloud, toy_cloud
from waiting import wait_for

HERE = Path(__file__).parent
PROGRAM = str(HERE / "local_machine_program.py")
BOOTSTRAP = "#!/bin/sh\nexec python3 -m dyntrain.node_bootstrap run\n"
OPTIONS = replace(QUIET, machines=True, machine_command=(sys.executable, PROGRAM), machine_stop=0.5)


def alive(pid: int) -> bool:
    """Whether the process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_gone(pids: list[int]) -> list[int]:
    """The processes that are left, once none is."""
    wait_for(lambda: not any(alive(pid) for pid in pids))
    return [pid for pid in pids if alive(pid)]


def root_of(toy: ToyCloud, instance_id: str) -> Path:
    return toy.cloud.state_dir / "machines" / instance_id


def pids_of(toy: ToyCloud, instance_id: str) -> list[int]:
    """The machine's program, its child and its child without an environment, once all run."""
    path = root_of(toy, instance_id) / "pids"
    return [int(pid) for pid in wait_for(lambda: path.exists() and path.read_text().split())]


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[ToyCloud]:
    with toy_cloud(tmp_path, OPTIONS) as cloud:
        yield ToyCloud(cloud, tmp_path)


class Metadata:
    """A client of one machine's metadata service."""

    def __init__(self, toy: ToyCloud, instance_id: str) -> None:
        machine = wait_for(lambda: toy.cloud.instances.machine(instance_id))
        self.base = machine._environment_mark.partition("=")[2]

    def ask(self, path: str, method: str = "GET", **headers: str) -> tuple[int, str]:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        # an http address of our own
        request = urllib.request.Request(self.base + path, method=method, headers=named)  # noqa: S310
        try:
            with urllib.request.urlopen(request, timeout=patient(5)) as answer:  # noqa: S310
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, ""

    def token(self, seconds: str = "60") -> str:
        return self.ask("/latest/api/token", "PUT", X_aws_ec2_metadata_token_ttl_seconds=seconds)[1]

    def get(self, path: str) -> tuple[int, str]:
        return self.ask(path, X_aws_ec2_metadata_token=self.token())


def tagged(toy: ToyCloud) -> str:
    return toy.run_instance(
        MetadataOptions={"HttpTokens": "required", "InstanceMetadataTags": "enabled"},
        TagSpecifications=[{"ResourceType": "instance", "Tags": [{"Key": "dyntrain:cluster", "Value": "demo"}]}],
    )


def test_what_runs_on_machines_does_not_hold_up_the_cloud(machines: ToyCloud) -> None:
    """Many workers on few processors would delay the handlers until the controller took a job that trains for a silent
    one.
    """
    pids = pids_of(machines, machines.run_instance(UserData=BOOTSTRAP))
    assert {os.getpriority(os.PRIO_PROCESS, pid) for pid in pids} == {
        min(19, os.getpriority(os.PRIO_PROCESS, 0) + MACHINE_NICENESS)
    }


def test_metadata_needs_a_token_with_a_valid_time_to_live(machines: ToyCloud) -> None:
    """Version 1 must not work here, or a node that forgets the token would pass."""
    metadata = Metadata(machines, tagged(machines))
    assert metadata.ask("/latest/meta-data/instance-id")[0] == 401
    assert metadata.ask("/latest/meta-data/instance-id", X_aws_ec2_metadata_token="made-up")[0] == 401
    assert metadata.ask("/latest/api/token", "PUT")[0] == 400
    assert metadata.ask("/latest/api/token", "PUT", X_aws_ec2_metadata_token_ttl_seconds="21601")[0] == 400
    assert (
        metadata.ask("/latest/api/token", "PUT", X_aws_ec2_metadata_token_ttl_seconds="60", X_Forwarded_For="1.2.3.4")[
            0
        ]
        == 403
    )
    assert metadata.get("/latest/meta-data/nothing")[0] == 404


def test_metadata_says_who_the_instance_is_and_its_tags_live(machines: ToyCloud) -> None:
    instance_id = tagged(machines)
    metadata = Metadata(machines, instance_id)
    ec2 = machines.cloud.client("ec2")
    address = ec2.describe_instances(InstanceIds=[instance_id])["Reservations"][0]["Instances"][0]["PrivateIpAddress"]
    assert metadata.get("/latest/meta-data/instance-id") == (200, instance_id)
    assert metadata.get("/latest/meta-data/local-ipv4") == (200, address)
    assert metadata.get("/latest/meta-data/placement/region") == (200, "us-east-1")
    assert metadata.get("/latest/meta-data/tags/instance/dyntrain:cluster") == (200, "demo")
    ec2.create_tags(Resources=[instance_id], Tags=[{"Key": "new", "Value": "tag"}])
    assert metadata.get("/latest/meta-data/tags/instance")[1].split() == ["dyntrain:cluster", "new"]
    assert metadata.get("/latest/meta-data/autoscaling/target-lifecycle-state")[0] == 404


def test_tags_are_not_in_the_metadata_of_an_instance_that_does_not_allow_them(machines: ToyCloud) -> None:
    instance_id = machines.run_instance()
    assert Metadata(machines, instance_id).get("/latest/meta-data/tags/instance")[0] == 404


def test_a_spot_interruption_gives_notice_before_it_takes_the_instance(machines: ToyCloud) -> None:
    instance_id = tagged(machines)
    metadata = Metadata(machines, instance_id)
    assert metadata.get("/latest/meta-data/spot/instance-action")[0] == 404
    machines.cloud.interrupt_spot(instance_id, 0.8)
    machines.cloud.instances.recommend_rebalance(instance_id)
    assert json.loads(metadata.get("/latest/meta-data/spot/instance-action")[1])["action"] == "terminate"
    assert "noticeTime" in metadata.get("/latest/meta-data/events/recommendations/rebalance")[1]
    kinds = {line["event"]["detail-type"] for line in machines.trace("event")}
    assert {"EC2 Spot Instance Interruption Warning", "EC2 Instance Rebalance Recommendation"} <= kinds
    assert machines.cloud.instance_state(instance_id) == "running"
    wait_for(lambda: machines.cloud.instance_state(instance_id) == "terminated")


def test_boto3_takes_its_credentials_from_the_metadata_service(machines: ToyCloud) -> None:
    metadata = Metadata(machines, tagged(machines))
    fetched = InstanceMetadataFetcher(base_url=metadata.base + "/").retrieve_iam_role_credentials()
    keys = {
        "aws_access_key_id": fetched["access_key"],
        "aws_secret_access_key": fetched["secret_key"],
        "aws_session_token": fetched["token"],
    }
    ssm = boto3.client("ssm", endpoint_url=machines.cloud.endpoint, region_name="us-east-1", **keys)
    assert ssm.put_parameter(Name="/from/a/node", Value="x", Type="String")["Version"] == 1


def test_the_identity_document_is_signed_with_the_clouds_key(machines: ToyCloud) -> None:
    instance_id = tagged(machines)
    metadata = Metadata(machines, instance_id)
    document = metadata.get("/latest/dynamic/instance-identity/document")[1]
    signature = base64.b64decode(metadata.get("/latest/dynamic/instance-identity/signature")[1])
    key: Any = serialization.load_pem_public_key(machines.cloud.identity_keys.encode())
    assert isinstance(key, rsa.RSAPublicKey)
    key.verify(signature, document.encode(), padding.PKCS1v15(), hashes.SHA256())
    assert json.loads(document)["instanceId"] == instance_id


def test_a_machine_has_no_keys_and_an_address_that_it_can_bind(
    machines: ToyCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on EC2: what the person who started the cloud has in the environment must not reach the nodes."""
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "the person's own")
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    instance_id = machines.run_instance(UserData=BOOTSTRAP)
    pids_of(machines, instance_id)
    path = root_of(machines, instance_id) / "environment"
    names = set(wait_for(lambda: path.exists() and path.read_text().split()))
    assert {"AWS_ENDPOINT_URL", "AWS_EC2_METADATA_SERVICE_ENDPOINT", "OMP_NUM_THREADS", "DYNTRAIN_MACHINE"} <= names
    assert not {name for name in names if "KEY" in name or "REGION" in name}
    address = Metadata(machines, instance_id).get("/latest/meta-data/local-ipv4")[1]
    with (
        socket.create_server((address, 0)) as server,
        socket.create_connection(server.getsockname(), timeout=patient(5)) as client,
    ):
        assert client.getpeername()[0] == address


def test_terminate_instances_ends_every_process_of_the_machine(machines: ToyCloud) -> None:
    """Also those that ignore SIGTERM, left their parent's session, and have an empty environment."""
    instance_id = machines.run_instance(UserData=BOOTSTRAP)
    pids = pids_of(machines, instance_id)
    machines.cloud.client("ec2").terminate_instances(InstanceIds=[instance_id])
    wait_for(lambda: machines.cloud.instance_state(instance_id) == "terminated")
    assert [pid for pid in pids if alive(pid)] == []


def test_a_program_that_is_killed_is_started_again(machines: ToyCloud) -> None:
    instance_id = machines.run_instance(UserData=BOOTSTRAP)
    program, *children = pids_of(machines, instance_id)
    os.kill(program, signal.SIGKILL)
    wait_for(lambda: pids_of(machines, instance_id)[0] != program)
    assert (root_of(machines, instance_id) / "lives").read_text().count("life") == 2
    assert machines.cloud.instance_state(instance_id) == "running"
    for child in children:
        os.kill(child, signal.SIGKILL)


def test_a_machine_whose_init_is_killed_boots_again_and_leaves_no_process(machines: ToyCloud) -> None:
    """But for one that hid its environment: nothing on the host tells whose it was."""
    instance_id = machines.run_instance(UserData=BOOTSTRAP)
    *pids, hidden = pids_of(machines, instance_id)
    init = machines.cloud.machine_pid(instance_id)
    assert init is not None
    os.kill(init, signal.SIGKILL)
    assert wait_gone([init, *pids]) == []
    os.kill(hidden, signal.SIGKILL)
    wait_for(lambda: pids_of(machines, instance_id) != [*pids, hidden])
    assert machines.cloud.instance_state(instance_id) == "running"


def test_a_program_that_retires_is_not_started_again(tmp_path: Path) -> None:
    with toy_cloud(tmp_path, replace(OPTIONS, machine_command=(sys.executable, PROGRAM, "--retire"))) as cloud:
        toy = ToyCloud(cloud, tmp_path)
        instance_id = toy.run_instance(UserData=BOOTSTRAP)
        console = cloud.logs / f"machine-{instance_id}.log"
        wait_for(lambda: console.exists() and "is not restarted" in console.read_text())
        assert (root_of(toy, instance_id) / "lives").read_text().count("life") == 1
        assert cloud.instance_state(instance_id) == "running"


def test_an_instance_that_is_rebooted_begins_a_new_life_on_its_disk_and_runs_all_the_while(tmp_path: Path) -> None:
    """Else the nodes of a cluster whose job is over, which have retired, could not be had back."""
    with toy_cloud(tmp_path, replace(OPTIONS, machine_command=(sys.executable, PROGRAM, "--retire"))) as cloud:
        toy = ToyCloud(cloud, tmp_path)
        instance_id = toy.run_instance(UserData=BOOTSTRAP)
        lives = root_of(toy, instance_id) / "lives"
        console = cloud.logs / f"machine-{instance_id}.log"
        wait_for(lambda: console.exists() and "is not restarted" in console.read_text())
        launched = cloud.client("ec2").describe_instances()["Reservations"][0]["Instances"][0]["LaunchTime"]
        cloud.client("ec2").reboot_instances(InstanceIds=[instance_id])
        wait_for(lambda: lives.read_text().count("life") == 2)
        shown = cloud.client("ec2").describe_instances()["Reservations"][0]["Instances"][0]
        assert (shown["State"]["Name"], shown["LaunchTime"]) == ("running", launched)
        assert [line["instance"] for line in toy.trace("machine-reboots")] == [instance_id]
        assert toy.trace("machine-died") == []


def test_an_instance_whose_user_data_asks_for_nothing_runs_nothing(machines: ToyCloud) -> None:
    """C33: tagged by hand, without bootstrap."""
    instance_id = machines.run_instance()
    wait_for(lambda: machines.cloud.instances.machine(instance_id))
    wait_for(lambda: machines.trace("machine"))
    assert machines.trace("machine")[0]["command"] == []
    assert not (root_of(machines, instance_id) / "lives").exists()


def test_leaving_the_cloud_leaves_no_process_no_port_and_no_file(tmp_path: Path) -> None:
    with toy_cloud(tmp_path, OPTIONS) as cloud:
        toy = ToyCloud(cloud, tmp_path)
        instance_id = toy.run_instance(UserData=BOOTSTRAP)
        pids = [*pids_of(toy, instance_id), *cloud.handler_pids, cloud.machine_pid(instance_id) or 0]
        ports = [int(cloud.endpoint.rpartition(":")[2]), int(Metadata(toy, instance_id).base.rpartition(":")[2])]
        state_dir = cloud.state_dir
    assert [pid for pid in pids if pid and alive(pid)] == []
    assert not state_dir.exists()
    for port in ports:
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port), timeout=patient(1))


@contextlib.contextmanager
def cloud_process(folder: Path, port: int = 0) -> Iterator[tuple[subprocess.Popen[str], dict[str, Any]]]:
    argv = [sys.executable, str(HERE / "local_cloud_process.py"), str(folder), str(port)]
    temporary = folder / "temporary"
    temporary.mkdir()
    environment = {**os.environ, "TMPDIR": str(temporary)}
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, start_new_session=True, env=environment)
    try:
        assert process.stdout is not None
        yield process, json.loads(process.stdout.readline())
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def test_sigkill_of_the_cloud_takes_machines_and_handlers_along(tmp_path: Path) -> None:
    with cloud_process(tmp_path) as (process, started):
        assert all(alive(pid) for pid in started["pids"])
        process.kill()
        process.wait()
        assert wait_gone(started["pids"]) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_ending_signals_clean_up(tmp_path: Path, number: signal.Signals) -> None:
    with cloud_process(tmp_path) as (process, started):
        process.send_signal(number)
        process.wait(patient(15))
        assert wait_gone(started["pids"]) == []
        assert not Path(started["state_dir"]).exists()
        assert process.returncode == 0


def test_two_clouds_at_once_do_not_see_each_other(tmp_path: Path) -> None:
    """Neither two in one process nor in two."""
    first_notes, second_notes = tmp_path / "1", tmp_path / "2"
    first_notes.mkdir()
    second_notes.mkdir()
    with cloud_process(tmp_path) as (_, other), toy_cloud(first_notes) as one, toy_cloud(second_notes) as two:
        first, second = ToyCloud(one, first_notes), ToyCloud(two, second_notes)
        instance_id = first.run_instance()
        first.put(word="mine")
        wait_for(lambda: first.payloads("on_toy"))
        assert two.client("ec2").describe_instances()["Reservations"] == []
        assert second.payloads("on_toy") == []
        assert len({one.endpoint, two.endpoint, other["endpoint"]}) == 3
        assert one.instance_state(instance_id) is not None


def test_a_port_in_use_is_one_clear_error_and_leaves_nothing(tmp_path: Path) -> None:
    with toy_cloud(tmp_path) as cloud:
        port = int(cloud.endpoint.rpartition(":")[2])
        late = toy_cloud(tmp_path, port=port, state_dir=tmp_path / "late")
        with pytest.raises(PortInUse, match=f"port {port} "):
            late.start()
        assert cloud.client("sts").get_caller_identity()["Account"] == cloud.account.number


def test_a_given_state_directory_is_kept(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    with toy_cloud(tmp_path, state_dir=kept) as cloud:
        assert cloud.state_dir == kept
    assert (kept / "logs" / "trace.jsonl").exists()


def test_a_failed_start_ends_what_it_started(tmp_path: Path) -> None:
    cloud = toy_cloud(tmp_path)
    cloud._app = "absent:app"
    with pytest.raises(AppNotLoaded):
        cloud.start()
    assert cloud.handler_pids == []
    assert not cloud.state_dir.exists()
