"""Jobs in the embedded cloud, by the real command line; their machines run the program of their user data."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from dyntrain.controller.local.cloud.embedded import Cloud
from dyntrain.controller.local.options import Options
from dyntrain.controller.local.pace import patient
from dyntrain.training.feed.crc import crc32c_by_table, masked_crc
from waiting import wait_for

pytestmark = pytest.mark.timeout(400)  # of a busy machine: each test starts the command line several times
BUCKET = "a-clouds-own-jobs"  # buckets have one namespace, also of the clouds that one process has had
SECONDS = 60.0

REDUCE = """
import os, socket, struct
rank, nodes = int(os.environ["NODE_RANK"]), int(os.environ["NUM_NODES"])
master, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
print(f"rank {rank} of {nodes}, master {master}", flush=True)
value = 10.0 ** rank
if rank == 0:
    server = socket.create_server((master, port))
    peers = [server.accept()[0] for _ in range(nodes - 1)]
    total = value + sum(struct.unpack("d", peer.recv(8, socket.MSG_WAITALL))[0] for peer in peers)
    for peer in peers:
        peer.sendall(struct.pack("d", total))
else:
    while True:
        try:
            peer = socket.create_connection((master, port), 30)
            break
        except ConnectionRefusedError:
            pass
    peer.sendall(struct.pack("d", value))
    total = struct.unpack("d", peer.recv(8, socket.MSG_WAITALL))[0]
print(f"sum {total}", flush=True)
open(f"artifacts/total-{rank}", "w").write(str(total))
"""
FAIL = """
import os, sys, time
if os.environ["NODE_RANK"] == "1":
    print("the loss is NaN")
    sys.exit(3)
time.sleep(600)
"""
RESUME = """
import os, pathlib, time
saved = pathlib.Path("artifacts/epoch")
print("resumed", os.environ.get("RESUMED"), saved.exists() and saved.read_text(), flush=True)
if "RESUMED" not in os.environ:
    saved.write_text("7")
    pathlib.Path("ready").write_text("")
    time.sleep(600)
"""


@pytest.fixture(scope="module")
def cloud() -> Iterator[Cloud]:
    with Cloud(resync_seconds=5.0, options=Options(boot_delay=0.05)) as up:
        up.client("s3").create_bucket(Bucket=BUCKET)
        up.client("iam").create_instance_profile(InstanceProfileName="job-node")
        yield up


def job(cloud: Cloud, *words: str, wait: bool = True) -> Any:
    argv = [sys.executable, "-m", "dyntrain", "job", *words]
    if not wait:
        return subprocess.Popen(argv, env=cloud.program_environment, stdout=subprocess.PIPE, text=True)
    return subprocess.run(
        argv, env=cloud.program_environment, capture_output=True, text=True, check=False, timeout=patient(SECONDS)
    )


def arguments(name: str, folder: Path, script: str, nodes: int, *more: str) -> list[str]:
    folder.mkdir(exist_ok=True)
    (folder / "train.py").write_text(script)
    words = ["submit", name, "--code", str(folder), "--nodes", str(nodes), "--instance-type", "m5.large"]
    words += ["--bucket", BUCKET, "--profile", "job-node", "--yes", "--wait", *more]
    return [*words, "--", "python3", "train.py"]


def all_ended(cloud: Cloud) -> bool:
    return {cloud.instance_state(instance) for instance in cloud.instances.known_ids()} == {"terminated"}


@pytest.mark.jobs
def test_two_nodes_find_each_other_reduce_and_are_gone_when_the_job_is(cloud: Cloud, tmp_path: Path) -> None:
    done = job(cloud, *arguments("reduce", tmp_path / "code", REDUCE, 2))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 machines of type m5.large" in done.stdout
    logs = job(cloud, "logs", "reduce").stdout
    lines = [line for line in logs.splitlines() if "  rank " in line and "master" in line]
    assert sorted(line[3:] for line in lines if "dyntrain" not in line) == sorted(
        f"rank {rank} of 2, master {lines[0].rpartition(' ')[2]}" for rank in (0, 1)
    )
    assert logs.count("sum 11.0") == 2
    s3 = cloud.client("s3")
    for rank in (0, 1):
        assert s3.get_object(Bucket=BUCKET, Key=f"reduce/artifacts/total-{rank}")["Body"].read() == b"11.0"
    wait_for(lambda: all_ended(cloud), SECONDS, "machines that switched themselves off are terminated")
    state = json.loads(job(cloud, "status", "reduce", "--json").stdout)
    assert (state["phase"], [machine["code"] for machine in state["machines"]]) == ("SUCCEEDED", [0, 0])
    again = job(cloud, *arguments("reduce", tmp_path / "code", REDUCE, 2))
    assert "in use" in again.stderr


def test_a_rank_that_fails_ends_the_job_with_its_last_lines_and_the_others_too(cloud: Cloud, tmp_path: Path) -> None:
    done = job(cloud, *arguments("broken", tmp_path / "code", FAIL, 2))
    assert done.returncode == 1
    assert "FAILED: the command of rank 1 ended with exit code 3" in done.stdout
    assert "the loss is NaN" in done.stdout
    wait_for(lambda: all_ended(cloud), SECONDS, "the other rank is told, and its machine ends")


@pytest.mark.jobs
def test_an_interrupted_job_is_launched_again_with_its_artifacts_back_in_place(cloud: Cloud, tmp_path: Path) -> None:
    words = arguments("taken", tmp_path / "code", RESUME, 1, "--spot", "--retries", "1")
    running = job(cloud, *words, wait=False)

    def trained() -> bool:
        return any((cloud.state_dir / "machines").glob("*/opt/dyntrain-job/code/ready"))

    wait_for(trained, SECONDS, "the first attempt has written its artifact")
    (instance,) = [name for name in cloud.instances.known_ids() if cloud.instance_state(name) == "running"]
    cloud.interrupt_spot(instance, patient(60.0))
    out, _ = running.communicate(timeout=patient(SECONDS))
    assert running.returncode == 0, out
    assert "INTERRUPTED" in out
    assert "resumed 1 7" in job(cloud, "logs", "taken").stdout
    wait_for(lambda: all_ended(cloud), SECONDS, "the second attempt's machine is gone")
    argv = [sys.executable, "-m", "dyntrain", "cost", "taken", "--json"]
    cost = subprocess.run(argv, env=cloud.program_environment, capture_output=True, text=True, timeout=patient(SECONDS))
    (costs,) = json.loads(cost.stdout or cost.stderr)
    ((line,), notes) = costs["lines"], costs["notes"]
    assert (line["role"], line["market"], line["instances"], line["running"]) == ("rank 0", "spot", 2, 0)
    assert (line["hours"] > 0, notes) == (True, []), "both attempts are counted"


@pytest.mark.jobs
def test_a_submit_that_is_killed_half_way_is_taken_up_by_the_same_command(cloud: Cloud, tmp_path: Path) -> None:
    words = arguments("half", tmp_path / "code", "print('done')", 2)
    before = cloud.instances.known_ids()
    broken = subprocess.Popen(
        [sys.executable, "-c", KILLED_AT_TAGS, *words], env=cloud.program_environment, stderr=subprocess.DEVNULL
    )
    assert broken.wait(patient(SECONDS)) == -9
    launched = cloud.instances.known_ids() - before
    assert len(launched) == 2
    done = job(cloud, *words)
    assert done.returncode == 0, done.stdout + done.stderr
    assert cloud.instances.known_ids() - before == launched


KILLED_AT_TAGS = """
import os, signal, sys
from dyntrain.controller.adapters.submission import AwsLauncher
AwsLauncher.tag = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
from dyntrain.controller.cli.main import main
main(["job", *sys.argv[1:]])
"""


def tf_record(data: bytes) -> bytes:
    length = struct.pack("<Q", len(data))
    return (
        length
        + struct.pack("<I", masked_crc(crc32c_by_table(length)))
        + data
        + struct.pack("<I", masked_crc(crc32c_by_table(data)))
    )


READ = """
import os, pathlib, struct
rank, root = int(os.environ["NODE_RANK"]), pathlib.Path(os.environ["SM_CHANNEL_FEW"]).parent

def tf_records(path):
    with open(path, "rb") as file:
        while header := file.read(12):
            yield file.read(struct.unpack("<Q", header[:8])[0])
            file.read(4)

for epoch in range(2):
    seen = b" ".join(tf_records(root / f"train_{rank}_{epoch}"))
    pathlib.Path(f"artifacts/{rank}-{epoch}").write_bytes(seen)
few = sorted(path.name for path in (root / "few").iterdir())
print("few", few, flush=True)
"""


def test_a_job_of_any_framework_reads_its_channels_as_sagemakers_programs_do(cloud: Cloud, tmp_path: Path) -> None:
    s3 = cloud.client("s3")
    for rank in range(2):
        content = b"".join(tf_record(f"{rank}-{number}".encode()) for number in range(3))
        s3.put_object(Bucket=BUCKET, Key=f"sets/train/{rank}/part-00000", Body=content)
    s3.put_object(Bucket=BUCKET, Key="sets/few/labels.csv", Body=b"1\n2\n")
    channels = [f"train=s3://{BUCKET}/sets/train/", f"few=s3://{BUCKET}/sets/few/,mode=file"]
    options = [word for channel in channels for word in ("--channel", channel)]
    done = job(cloud, *arguments("reads", tmp_path / "code", READ, 2, *options, "--data-root", "in/data"))
    logs = job(cloud, "logs", "reads").stdout
    assert done.returncode == 0, done.stdout + done.stderr + logs
    assert f"reads       {channels[0]}" in done.stdout
    assert logs.count("few ['labels.csv']") == 2
    assert "channel few: 1 objects in" in logs
    for rank in range(2):
        for epoch in range(2):
            artifact = s3.get_object(Bucket=BUCKET, Key=f"reads/artifacts/{rank}-{epoch}")["Body"].read()
            assert artifact == b" ".join(f"{rank}-{number}".encode() for number in range(3))
    missing = job(
        cloud,
        *arguments("lacks", tmp_path / "code", READ, 1, "--channel", f"few=s3://{BUCKET}/none/", "--data-root", "in"),
    )
    assert missing.returncode == 1
    assert f"feed: channel few: there is no object at s3://{BUCKET}/none/" in missing.stdout
