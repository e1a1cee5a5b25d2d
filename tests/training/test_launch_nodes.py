"""The node of a hand-made launch as a process, under the real coordinator: nothing outlives it, and nothing in it waits for ever."""

from __future__ import annotations

import contextlib
import datetime as dt
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from job_bed import JobBed, instance
from pydantic import SecretStr

from node_bootstrap.parentage import descendants, kill_all, with_environment
from training.certificate import make_certificate
from training.clocks import Clocks
from training.nodes import NodePost

CLOCKS = Clocks(liveness=2.0, progress=6.0)
LOADS = "setsid sleep 1000 & exec sleep 1001"  # a worker and, in a group and session of its own, what loads its data


class Node:
    def __init__(self, folder: Path, url: str, certificate: str, token: str) -> None:
        self.folder, self.mark = folder, f"DYNTRAIN_TEST_FOLDER={folder}"
        folder.mkdir(exist_ok=True)
        who = {"cluster": "bed", "job": "job-1", "instance_id": instance("A"), "ip": "127.0.0.1", "mount": str(folder)}
        bounds = {"liveness_seconds": CLOCKS.liveness, "progress_seconds": CLOCKS.progress}
        name, _, value = self.mark.partition("=")
        post = NodePost(
            **who, **bounds, url=url, certificate=certificate, token=SecretStr(token), base=False, serves=False,
            command=("sh", "-c", LOADS), worker_environment={name: value},
        )  # fmt: skip
        command, environment = [sys.executable, "-m", "training.nodes"], {**os.environ, "TMPDIR": str(folder)}
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
            start_new_session=True,
        )
        assert self.process.stdin is not None
        self.process.stdin.write(post.to_json() + "\n")
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
        self.process.wait(10)


@pytest.fixture
def bed(tmp_path: Path) -> Iterator[JobBed]:
    bed = JobBed(tmp_path, [], clocks=CLOCKS)
    bed.wait_for(lambda: bed.hosts.endpoint, 20, "the coordinator listens")
    yield bed
    bed.close()


@pytest.fixture
def node(bed: JobBed, tmp_path: Path) -> Iterator[Node]:
    assert bed.hosts.endpoint is not None
    node = Node(tmp_path / "node", bed.hosts.endpoint.url, bed.hosts.endpoint.certificate, bed.hosts.token)
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
def test_launch_nothing_that_a_node_started_outlives_it(bed: JobBed, node: Node, end: Callable[[subprocess.Popen[str]], None]) -> None:
    """What a worker started in a session of its own would keep the host's memory and GPUs for ever; the file with the token would lie about."""
    bed.wait_for(lambda: len(node.running()) == 2, 20, "the worker and its loader run")
    end(node.process)
    bed.wait_for(lambda: not node.running(), 20, "both are gone")
    node.process.wait(20)
    bed.wait_for(lambda: not list(node.folder.iterdir()), 5, "so is the node's folder")
    assert node.running() == []


def test_launch_a_worker_that_hangs_before_its_first_connection_is_killed_with_all_it_started_and_started_again(bed: JobBed, node: Node) -> None:
    """Stuck in an import it says nothing: without a bound its host would never train, and nobody would know why."""
    first = bed.wait_for(lambda: (found := node.running())[1:] and found, 20, "the worker and its loader run")
    bed.wait_for(lambda: bed.events("worker_started")[1:], 30, "another is started")
    bed.wait_for(lambda: len(node.running()) == 2, 20, "with a loader of its own")
    assert set(first) & set(node.running()) == set()
    [lost] = bed.events("worker_lost")
    assert lost["pid"] in first
    assert lost["reason"].startswith("started, and not connected to the coordinator within 6 s")


def test_launch_a_node_whose_launcher_is_cut_off_for_good_ends_by_itself(tmp_path: Path) -> None:
    """The end of its input may never come: a half-open connection of a machine that lost its power looks like a launcher that is busy."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        dead = f"wss://127.0.0.1:{probe.getsockname()[1]}"
    node = Node(tmp_path / "node", dead, make_certificate("127.0.0.1", dt.datetime.now(dt.UTC)).pem, "t")
    try:
        deadline = time.monotonic() + 40
        while node.process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.05)
        assert node.process.poll() == 0
        assert node.process.stderr is not None
        assert f"no coordinator at {dead} for 6 s" in node.process.stderr.read()
    finally:
        node.close()
