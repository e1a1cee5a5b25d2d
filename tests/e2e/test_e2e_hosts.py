"""E1 and partitions over three hosts: network namespaces with addresses and links of their own, so that a cut cable is
a cut cable.

The tests of this module share one cloud and run in order: each begins where the one before left it. They need root and
iproute2.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from dyntrain.controller.local.chaos.census import victim_processes
from dyntrain.controller.local.chaos.plan import Victim
from dyntrain.training.audit import audit_directory
from local_up import LocalUp

pytestmark = [pytest.mark.e2e, pytest.mark.hosts, pytest.mark.timeout(300)]
TAG = "demo-aws-dl-cfn-elastic-worker"
PARTITION_SECONDS = 30.0
START_SECONDS = 4.0  # in which a coordinator asks for its credentials


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalUp]:
    local_up = LocalUp(tmp_path_factory.mktemp("hosts"), "--namespaces", "--resync-seconds", "5")
    try:
        yield local_up
    finally:
        if local_up.process.poll() is None:
            local_up.interrupt()


@pytest.fixture(scope="module")
def elastic(up: LocalUp) -> str:
    """The third host, in training."""
    up.wait_for(lambda: up.job_events("segment"), 90, "the base nodes train")
    answer = up.aws("ec2", "run-instances", "--launch-template", f"LaunchTemplateName={up.template}")
    instance = str(answer["Instances"][0]["InstanceId"])
    up.wait_for(lambda: up.status_tag(instance) == "ADDED", 90, f"{instance} is ADDED")
    return instance


def links(up: LocalUp) -> dict[str, str]:
    """The link of each host, as the trace names it for people who want to cut one."""
    lines = [json.loads(line) for line in (up.folder / "cloud" / "logs" / "trace.jsonl").read_text().splitlines()]
    return {line["instance"]: line["link"] for line in lines if line["kind"] == "machine"}


@contextmanager
def cut(up: LocalUp, instance: str) -> Iterator[None]:
    link = links(up)[instance]
    subprocess.run(["ip", "link", "set", link, "down"], check=True)
    try:
        yield
    finally:
        subprocess.run(["ip", "link", "set", link, "up"], check=True)


def members(up: LocalUp) -> list[str]:
    """Of the latest generation."""
    return list(up.job_events("formed")[-1]["members"])


def trains_on(up: LocalUp, seconds: float = 60.0) -> None:
    ends = len(up.job_events("segment"))
    up.wait_for(lambda: len(up.job_events("segment")) > ends + 1, seconds, "the training goes on")


def coordinators(up: LocalUp) -> set[int]:
    return set(victim_processes(up.process.pid)[Victim.COORDINATOR])


def network(pid: int) -> str:
    return str(Path(f"/proc/{pid}/ns/net").readlink())


def test_e1_three_hosts_train_over_addresses_of_their_own(up: LocalUp, elastic: str) -> None:
    workers = up.worker_pids()
    assert elastic in workers.values()
    assert len({network(pid) for pid in workers}) == 3, "each worker is on a host of its own"
    assert network(next(iter(workers))) != str(Path("/proc/self/ns/net").readlink())
    reservations = up.aws("ec2", "describe-instances")["Reservations"]
    addresses = {instance["PrivateIpAddress"] for reservation in reservations for instance in reservation["Instances"]}
    assert len(addresses) == 3
    assert all(address.startswith("198.1") for address in addresses), "not on the loopback"
    assert elastic in members(up)


def test_a_worker_that_is_cut_off_for_half_a_minute_is_left_behind_and_comes_back(up: LocalUp, elastic: str) -> None:
    survivors = {pid for pid, instance in up.worker_pids().items() if instance != elastic}
    with cut(up, elastic):
        began = time.monotonic()
        up.wait_for(lambda: elastic not in members(up), 60, "the others go on without it")
        trains_on(up)
        up.wait_for(lambda: time.monotonic() - began > PARTITION_SECONDS, PARTITION_SECONDS, "the partition lasts")
    up.wait_for(lambda: elastic in members(up), 90, "it is back in")
    up.wait_for_status(elastic, "ADDED", seconds=60, description="and ADDED")
    assert survivors <= set(up.worker_pids()), "nobody else's process was touched"
    assert up.state(elastic) == "running"


def test_a_coordinator_that_is_cut_off_goes_on_with_everybody_afterwards(up: LocalUp, elastic: str) -> None:
    coordinator = json.loads(
        up.aws("ssm", "get-parameter", "--name", "/dyntrain/demo/coordinator")["Parameter"]["Value"]
    )["instance_id"]
    with cut(up, coordinator):
        began = time.monotonic()
        up.wait_for(lambda: time.monotonic() - began > PARTITION_SECONDS, PARTITION_SECONDS + 5, "the partition lasts")
    trains_on(up, 120)
    up.wait_for(lambda: len(members(up)) == 3, 120, "all three are in again")
    up.wait_for_status(elastic, "ADDED", seconds=60, description="and the controller knows")
    assert up.job_events("failed") == []


def test_a_coordinator_that_starts_while_the_metadata_service_is_out_of_reach_is_at_work_soon_after(
    up: LocalUp, elastic: str
) -> None:
    """It gets its credentials there; one that took their lack for final would never be found by its nodes again."""
    place = up.aws("ssm", "get-parameter", "--name", "/dyntrain/demo/coordinator")["Parameter"]["Value"]
    before = coordinators(up)
    for pid in before:
        os.kill(pid, signal.SIGKILL)
    up.wait_for(lambda: coordinators(up) - before, 60, "its successor starts")
    with cut(up, json.loads(place)["instance_id"]):
        began = time.monotonic()
        up.wait_for(lambda: time.monotonic() - began > START_SECONDS, START_SECONDS + 5, "it starts without")
    trains_on(up, 30)
    up.wait_for(lambda: len(members(up)) == 3, 120, "with all three")
    assert up.job_events("failed") == []


def test_a_host_leaves_and_the_end_leaves_no_host_behind(up: LocalUp, elastic: str) -> None:
    names = set(links(up).values())
    up.aws("ec2", "delete-tags", "--resources", elastic, "--tags", f"Key={TAG}")
    up.wait_for(lambda: up.state(elastic) == "terminated", 90, f"{elastic} is terminated")
    # it is written before the end, and shown a moment later
    up.wait_for(lambda: up.status_tag(elastic) == "REMOVED", 60, f"{elastic} says that it was removed")
    ledger = next(iter(up.mount.glob("dyntrain/*/*/ledger")))
    assert up.interrupt() == 0
    assert up.processes() == []
    left = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
    left += subprocess.run(["ip", "-brief", "link"], capture_output=True, text=True, check=True).stdout
    assert [name for name in names if name in left] == []
    audit = audit_directory(ledger)
    assert (audit.lost, audit.doubled) == (0, 0)
    assert audit.epochs
