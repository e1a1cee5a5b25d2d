"""What people type on a cluster's master, in a shell that read the node's profile: the launch is the cluster's, a
second one follows the first, and no terminal holds the job.
"""

from __future__ import annotations

import contextlib
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from dyntrain.controller.local.cloud.embedded import Cloud
from dyntrain.controller.local.options import Options
from dyntrain.controller.local.pace import paced
from dyntrain.controller.local.stack import Cluster, create_stack
from dyntrain.training.examples.cifar10_data import generate
from terminal import Terminal
from waiting import wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]
TINY = (Path(__file__).parents[1] / "training" / "tiny_job.py").read_text()
# as the predecessor's manual has it, with the script in the place of its example
LAUNCH = (
    "$OPT/launch.py -n $DEEPLEARNING_WORKERS_COUNT -H $DEEPLEARNING_WORKERS_PATH --elastic-training-enabled True "
    "python train.py --epochs {epochs} --step-seconds {step} --hold {hold}"
)
# theirs is a script of Dynamic Training, which says `import mxnet as mx`
LAUNCH_THEIRS = (
    "$OPT/launch.py --dt-scripts -n $DEEPLEARNING_WORKERS_COUNT -H $DEEPLEARNING_WORKERS_PATH "
    "--elastic-training-enabled True python theirs/train_cifar10.py --kv-store dist_device_sync --num-epochs 1 "
    "--num-examples 16 --batch-size 4 --data-train cifar10_train.rec --data-val cifar10_val.rec"
)
THEIRS = Path(__file__).parents[1] / "training" / "dt_style"
SECONDS = 120.0
QUESTION = "End the job on all nodes? [y/N]"


def terminal(root: Path, folder: Path, line: str) -> Terminal:
    """On the machine of this root, by a shell that has read its profile."""
    line = f'. {root}/etc/profile.d/deeplearning.sh; OPT={root}/opt/dyntrain; cd "$1" && exec {line}'
    return Terminal(["bash", "-c", line, "bash", str(folder)], SECONDS)


@pytest.fixture
def cloud(tmp_path: Path) -> Iterator[Cloud]:
    with Cloud(state_dir=tmp_path / "cloud", resync_seconds=3.0, options=Options(boot_delay=0.05)) as up:
        yield up


@pytest.fixture
def cluster(cloud: Cloud) -> Cluster:
    shared = cloud.state_dir / "shared"
    (shared / "prepare-data.py").touch()
    (shared / "mine").mkdir()
    (shared / "mine" / "train.py").write_text(TINY)
    given = {"WorkerCount": "1", "TrainingCommand": "", "BoundaryPolicy": "epoch"}
    return create_stack(cloud, "demo", (), given)


def test_launches_on_the_master_follow_one_another_and_are_the_clusters(cloud: Cloud, cluster: Cluster) -> None:
    assert cluster.master is not None
    shared, machines = cloud.state_dir / "shared", cloud.state_dir / "machines"
    folder, hold = shared / "mine", shared / "hold"
    master, base = machines / cluster.master, machines / cluster.workers[0]
    hold.touch()

    def workers(root: Path) -> list[str]:
        path = root / "opt" / "deeplearning" / "workers"
        return path.read_text().split() if path.exists() else []

    def logged() -> list[tuple[str, ...]]:
        path = folder / "host_worker_log"
        return [tuple(line.split()[:3]) for line in path.read_text().splitlines()] if path.exists() else []

    wait_for(lambda: len(workers(master)) == 2 and workers(base) == workers(master), SECONDS, "all know all nodes")
    own = cloud.client("ec2").describe_instances(InstanceIds=[cluster.master])["Reservations"][0]["Instances"][0]
    assert workers(master)[-1] == own["PrivateIpAddress"], "the master's address comes last"

    first = terminal(master, folder, LAUNCH.format(epochs=150, step=paced(0.3), hold=hold))
    first.wait_for(f"Created worker host log file {folder}/host_worker_log")
    first.wait_for("epoch 0 ")
    first.close()
    second = terminal(master, folder, LAUNCH.format(epochs=1, step=0, hold=hold))
    second.wait_for("trains already")
    assert second.ends() == 2
    elsewhere = terminal(base, folder, "dyntrain launch python train.py --epochs 1")
    elsewhere.wait_for("trains already")

    cloud.client("autoscaling").set_desired_capacity(AutoScalingGroupName=cluster.group, DesiredCapacity=1)
    wait_for(lambda: len(logged()) == 3, SECONDS, "the log says that a third has joined")
    assert [entry[:2] for entry in logged()] == [("0", "ADDED"), ("1", "ADDED"), ("2", "ADDED")]
    assert sorted((folder / "host_worker").read_text().split()) == sorted(entry[2] for entry in logged())
    wait_for(lambda: len(workers(base)) == 3, SECONDS, "people's loops reach it, too")
    cloud.client("autoscaling").set_desired_capacity(AutoScalingGroupName=cluster.group, DesiredCapacity=0)
    wait_for(lambda: logged()[-1][:2] == ("3", "REMOVED"), SECONDS, "and that it has left")

    hold.unlink()
    wait_for(lambda: "finished" in ended_jobs(shared), SECONDS, "the first comes to its end without its terminal")
    hold.touch()
    shutil.copytree(THEIRS, folder / "theirs")
    generate(folder, 16, 8)
    theirs = terminal(master, folder, LAUNCH_THEIRS)
    assert theirs.ends() == 0
    assert theirs.shows("job finished at step")
    logs = [(root / "var" / "log" / "dyntrain" / "worker.log").read_text() for root in (master, base)]
    assert sorted(re.findall(r"worker (\d of \d):", log)[-1] for log in logs) == ["0 of 2", "1 of 2"]

    (folder / "other.py").write_text(TINY)
    last = terminal(
        base, shared.parent, LAUNCH.format(epochs=150, step=paced(0.3), hold=hold).replace("train.py", "mine/other.py")
    )
    last.wait_for(f"is not on the shared volume: the job runs in {shared}")
    last.wait_for("epoch 0 ")
    last.interrupt()
    last.wait_for(QUESTION)
    last.type("y")
    assert last.ends() == 1
    assert last.shows("job failed: a person ended it")
    wait_for(lambda: not processes("other.py"), SECONDS, "its workers have ended on all nodes")
    assert len(ended_jobs(shared)) == 3


def ended_jobs(shared: Path) -> list[str]:
    events = [json.loads(line) for file in shared.glob("dyntrain/demo/job-*/events.jsonl") for line in file.open()]
    return [event["event"] for event in events if event["event"] in ("finished", "failed")]


def processes(script: str) -> list[str]:
    pids = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            command = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
            pids += [entry.name] if any(word.endswith(script) for word in command[1:3]) else []
    return pids
