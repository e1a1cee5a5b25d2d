"""The node of a hand-made launch as a process, under the real coordinator: nothing outlives it, and nothing in it waits
for ever.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from dyntrain.controller.contract.messages import CoordinatorEndpoint
from dyntrain.controller.local.pace import Deadline, paced, patient
from dyntrain.node_bootstrap.host.errors import TRY_AGAIN
from dyntrain.training.host.parentage import descendants, kill_all, with_environment
from dyntrain.training.protocol.certificate import make_certificate
from dyntrain.training.protocol.clocks import Clocks
from dyntrain.training.protocol.node_spec import NodeSpec
from job_bed import JobBed, instance
from pydantic import SecretStr

pytestmark = pytest.mark.jobs

LOADS = "setsid sleep 1000 & exec sleep 1001"  # a worker and, in a group and session of its own, what loads its data


class Node:
    def __init__(
        self, folder: Path, endpoint: CoordinatorEndpoint, token: str, clocks: Clocks, script: str = LOADS
    ) -> None:
        self.folder, self.mark = folder, f"DYNTRAIN_TEST_FOLDER={folder}"
        folder.mkdir(exist_ok=True)
        name, _, value = self.mark.partition("=")
        spec = NodeSpec(
            instance_id=instance("A"), private_ip="127.0.0.1", endpoint=endpoint, token=SecretStr(token),
            mount=str(folder), base=False, liveness_seconds=clocks.liveness, progress_seconds=clocks.progress,
            command=("sh", "-c", script), worker_environment={name: value},
        )  # fmt: skip
        command = [sys.executable, "-m", "dyntrain.node_bootstrap", "launched"]
        environment = {**os.environ, "TMPDIR": str(folder)}
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
            start_new_session=True,
        )
        assert self.process.stdin is not None
        self.process.stdin.write(spec.to_json() + "\n")
        self.process.stdin.flush()  # and stays open

    def running(self) -> list[int]:
        """The worker and what it started."""
        return with_environment(self.mark)

    def close(self) -> None:
        if self.process.poll() is None:
            kill_all([self.process.pid, *descendants(self.process.pid)])
        kill_all(self.running())
        for pipe in (self.process.stdin, self.process.stderr):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()
        self.process.wait(patient(10))


@pytest.fixture
def clocks() -> Clocks:
    """Short, but such that this machine keeps them today."""
    return Clocks(liveness=paced(2.0), progress=paced(6.0))


@pytest.fixture
def bed(tmp_path: Path, clocks: Clocks) -> Iterator[JobBed]:
    bed = JobBed(tmp_path, [], clocks=clocks)
    bed.wait_for(lambda: bed.hosts.endpoint, 20, "the coordinator listens")
    yield bed
    bed.close()


@pytest.fixture
def node(bed: JobBed, tmp_path: Path) -> Iterator[Node]:
    assert bed.hosts.endpoint is not None
    node = Node(tmp_path / "node", bed.hosts.endpoint, bed.hosts.token, bed.clocks)
    yield node
    node.close()


def launcher_gone(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.close()


def node_killed(process: subprocess.Popen[str]) -> None:
    os.kill(descendants(process.pid)[0], signal.SIGKILL)


def process_above_killed(process: subprocess.Popen[str]) -> None:
    process.kill()


def host_stopped(process: subprocess.Popen[str]) -> None:
    process.terminate()


@pytest.mark.parametrize("end", [launcher_gone, node_killed, process_above_killed, host_stopped])
def test_launch_nothing_that_a_node_started_outlives_it(
    bed: JobBed, node: Node, end: Callable[[subprocess.Popen[str]], None]
) -> None:
    """What a worker started in a session of its own would keep the host's memory and GPUs for ever; the file with the
    token would lie about.
    """
    bed.wait_for(lambda: len(node.running()) == 2, 20, "the worker and its loader run")
    end(node.process)
    bed.wait_for(lambda: not node.running(), 20, "both are gone")
    node.process.wait(patient(20))
    bed.wait_for(lambda: not list(node.folder.iterdir()), 5, "so is the node's folder")
    assert node.running() == []


def test_launch_a_worker_that_hangs_before_its_first_connection_is_killed_with_all_it_started_and_started_again(
    bed: JobBed, node: Node
) -> None:
    """Stuck in an import it says nothing: without a bound its host would never train, and nobody would know why."""
    first = bed.wait_for(lambda: (pids := node.running())[1:] and pids, 20, "the worker and its loader run")
    bed.wait_for(lambda: bed.events("worker_started")[1:], 30, "another is started")
    bed.wait_for(lambda: len(node.running()) == 2, 20, "with a loader of its own")
    assert set(first) & set(node.running()) == set()
    [lost] = bed.events("worker_lost")
    assert lost["pid"] in first
    waited = re.match(r"started, and not connected to the coordinator within (\d+) s: ", lost["reason"])
    assert waited is not None, lost["reason"]
    assert int(waited[1]) >= int(bed.clocks.start_limit)


def test_launch_a_node_whose_launcher_is_cut_off_for_good_ends_by_itself(tmp_path: Path, clocks: Clocks) -> None:
    """The end of its input may never come: a half-open connection of a machine that lost its power looks like a
    launcher that is busy.
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        dead = f"wss://127.0.0.1:{probe.getsockname()[1]}"
    certificate = make_certificate("127.0.0.1", dt.datetime.now(dt.UTC)).pem
    endpoint = CoordinatorEndpoint(
        cluster="bed", job="job-1", instance_id=instance("A"), url=dead, certificate=certificate, published_at=0.0
    )
    node = Node(tmp_path / "node", endpoint, "t", clocks)
    try:
        deadline = Deadline(40)
        while node.process.poll() is None and not deadline.passed():
            time.sleep(0.05)
        assert node.process.poll() == TRY_AGAIN, "its launcher, if it is there, counts it as a failure"
        assert node.process.stderr is not None
        assert f"no coordinator at {dead} for {clocks.progress:.0f} s" in node.process.stderr.read()
    finally:
        node.close()
