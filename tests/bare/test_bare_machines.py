"""The cluster template's user data, as it stands, on machines of which nothing is ours: a Debian root, its apt, pip and
systemd.

The tests share one cloud and run in order: each begins where the one before left it. They need root, mmdebstrap,
systemd-nspawn and slirp4netns: `make bare`.
"""

from __future__ import annotations

import base64
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from bare_up import TINY, UNIT, BareUp
from dyntrain.controller.local.machines.bare.stand_ins import LOGIN_USER
from dyntrain.controller.local.pace import patient
from dyntrain.training.audit import audit_directory
from dyntrain.training.host.parentage import descendants
from waiting import wait_for

pytestmark = [pytest.mark.bare, pytest.mark.timeout(1200)]
TAG = "demo-aws-dl-cfn-elastic-worker"
USER_DATA_SECONDS = 400
IS_ACTIVE = ("systemctl", "is-active", UNIT)


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BareUp]:
    bare_up = BareUp(tmp_path_factory.mktemp("bare"))
    try:
        yield bare_up
    finally:
        if bare_up.process.poll() is None:
            bare_up.interrupt()
        shutil.rmtree(bare_up.folder / "cloud" / "machines", ignore_errors=True)  # their disks: a gigabyte


@pytest.fixture(scope="module")
def elastic(up: BareUp) -> str:
    """The second machine, launched from the stack's template."""
    answer = up.aws("ec2", "run-instances", "--launch-template", f"LaunchTemplateName={up.template}")
    return str(answer["Instances"][0]["InstanceId"])


def members(up: BareUp) -> list[str]:
    """Of the latest generation."""
    formed = up.job_events("formed")
    return list(formed[-1]["members"]) if formed else []


def trains_on(up: BareUp) -> None:
    ends = len(up.job_events("segment"))
    up.wait_for(lambda: len(up.job_events("segment")) > ends + 1, 120, "the training goes on")


def test_the_user_data_comes_to_a_unit_that_systemd_runs_and_will_run_again(up: BareUp, elastic: str) -> None:
    command = ["ec2", "describe-launch-template-versions", "--launch-template-name", up.template]
    data = up.aws(*command)["LaunchTemplateVersions"][0]["LaunchTemplateData"]
    for machine in (up.master, elastic):
        up.wait_inside(machine, "active", *IS_ACTIVE, seconds=USER_DATA_SECONDS)
        assert up.inside(machine, "systemctl", "is-enabled", UNIT) == "enabled"
        assert (
            up.inside(machine, "cat", "/var/lib/user-data/script")
            == base64.b64decode(data["UserData"]).decode().strip()
        )
        assert up.inside(machine, "stat", "--format=%F", "/opt/dyntrain/bin/python") != ""
    up.wait_inside(up.master, "active", "systemctl", "is-active", "user-data.service", seconds=60)


def test_both_machines_are_prepared_and_train_together(up: BareUp, elastic: str) -> None:
    up.wait_for(lambda: set(members(up)) == {up.master, elastic}, 240, "both are in", pause=1.0)
    trains_on(up)
    up.wait_for(lambda: up.status_tag(elastic) == "ADDED", 60, f"{elastic} is ADDED")
    assert set(members(up)) == {up.master, elastic}


def main_pid(up: BareUp, machine: str) -> str:
    return up.inside(machine, "systemctl", "show", "--property=MainPID", "--value", UNIT)


def test_what_people_wrote_runs_as_a_user_who_may_do_little(up: BareUp, elastic: str) -> None:
    """And people who log in share the volume with it, without sudo."""
    listed = [up.inside(machine, "ps", "-e", "-o", "user=", "-o", "args=") for machine in (up.master, elastic)]
    run_by = {tuple(line.split(maxsplit=1)) for one in listed for line in one.splitlines()}
    for program in (Path(TINY).name, "training.engine.blank", "training.coordinator"):
        assert {user for user, argv in run_by if program in argv and "exec_child" not in argv} == {"dyntrain"}, program
    worker = up.inside(elastic, "pgrep", "--newest", "--uid", "dyntrain", "--full", Path(TINY).name)
    state = up.inside(elastic, "grep", "--extended-regexp", "^(CapEff|NoNewPrivs):", f"/proc/{worker}/status").split()
    assert state == ["CapEff:", "0" * 16, "NoNewPrivs:", "1"]
    profile = up.inside(elastic, "stat", "--format=%a %U:%G", "/etc/profile.d/deeplearning.sh")
    assert profile == "640 root:dyntrain"
    log_in = ["runuser", "-u", LOGIN_USER, "--"]
    url = "file:///etc/os-release"
    assert up.inside(elastic, *log_in, "curl", "-fsS", "-o", "/myEFSvolume/mine", url) == ""
    assert up.inside(elastic, "stat", "--format=%U", "/myEFSvolume/mine") == LOGIN_USER
    assert "EFS_MOUNT=/myEFSvolume" in up.inside(elastic, *log_in, "sh", "-lc", "env")


def test_the_unit_leaves_a_broken_program_little_to_reach(up: BareUp, elastic: str) -> None:
    """systemd's own judgement, on its scale from 0 to 10; without the unit's settings it is 9.6."""
    verdict = up.inside(elastic, "systemd-analyze", "security", "--no-pager", UNIT).splitlines()[-1]
    assert float(verdict.rpartition(": ")[2].split()[0]) < 4.0, verdict


def test_a_supervisor_that_hangs_is_started_again_and_mounts_what_is_missing(up: BareUp, elastic: str) -> None:
    """Nobody logs in to find a node whose program stands still. The mount is made by systemd on the program's word."""
    before = main_pid(up, elastic)
    program = up.inside(elastic, "pgrep", "--parent", before)
    up.inside(elastic, "kill", "-STOP", program)
    up.wait_for(lambda: main_pid(up, elastic) not in ("0", before), 240, "systemd has started it again", pause=1.0)
    assert "Watchdog timeout" in up.inside(elastic, "journalctl", "--no-pager", "--unit", UNIT)
    up.wait_for(lambda: set(members(up)) == {up.master, elastic}, 240, "both are in again", pause=1.0)
    up.inside(elastic, "systemctl", "stop", UNIT)
    up.inside(elastic, "umount", "/myEFSvolume")
    up.inside(elastic, "systemctl", "start", UNIT)
    up.wait_inside(elastic, "/myEFSvolume", "findmnt", "--noheadings", "--output", "TARGET", "/myEFSvolume", seconds=60)
    up.wait_for(lambda: set(members(up)) == {up.master, elastic}, 240, "both are in again", pause=1.0)
    trains_on(up)


def test_a_machine_that_reboots_comes_back_by_its_systemd_alone(up: BareUp, elastic: str) -> None:
    before = up.init(elastic)
    up.inside(elastic, "systemctl", "reboot")
    up.wait_for(lambda: up.init(elastic) not in (None, before), 180, "another systemd runs on the machine", pause=1.0)
    up.wait_inside(elastic, "active", *IS_ACTIVE, seconds=120)
    assert up.inside(elastic, "systemctl", "is-active", "user-data.service") == "inactive", "it ran once"
    assert up.inside(elastic, "findmnt", "--noheadings", "--output", "TARGET", "/myEFSvolume") == "/myEFSvolume"
    up.wait_for(lambda: set(members(up)) == {up.master, elastic}, 240, "both are in again", pause=1.0)
    trains_on(up)
    assert up.state(elastic) == "running"


def test_a_machine_leaves_the_job_and_is_terminated_with_all_that_it_was(up: BareUp, elastic: str) -> None:
    up.aws("ec2", "delete-tags", "--resources", elastic, "--tags", f"Key={TAG}")
    up.wait_for(lambda: up.state(elastic) == "terminated", 240, f"{elastic} is terminated", pause=1.0)
    assert up.status_tag(elastic) == "REMOVED"
    assert members(up) == [up.master]
    assert up.init(elastic) is None
    links = {line["instance"]: line["link"] for line in up.trace("machine")}
    left = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout.split()
    assert links[up.master] in left
    assert links[elastic] not in left
    trains_on(up)


def left_behind(up: BareUp, links: set[str]) -> list[str]:
    """Processes, mounts, links, namespaces and control groups."""
    folder = str(up.folder / "cloud")
    leftovers = [f"process {pid}" for pid in up.processes()]
    leftovers += [line for line in Path("/proc/self/mounts").read_text().splitlines() if folder in line]
    for command in (["ip", "netns", "list"], ["ip", "-brief", "link"]):
        lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
        leftovers += [line for line in lines if any(link in line for link in links)]
    boots = {str(line["pid"]) for line in up.trace("machine")}
    # A walk, unlike a glob, passes over control groups that go away while it looks.
    groups = [Path(parent, name) for parent, names, _ in os.walk("/sys/fs/cgroup") for name in names]
    ours = [group for group in groups if group.name.startswith("dyntrain-bare-")]
    return leftovers + [str(group) for group in ours if group.name.rpartition("-")[2] in boots]


def test_a_cloud_that_is_killed_leaves_nothing_of_its_machines(up: BareUp, elastic: str) -> None:
    links = {str(line["link"]) for line in up.trace("machine")}
    network = next(iter(links)).rpartition("v")[0]
    ledger = next(iter(up.mount.glob("dyntrain/*/*/ledger")))
    running = [pid for line in up.trace("machine") for pid in descendants(line["pid"])]
    assert len(running) > 10
    assert left_behind(up, {network})
    up.process.send_signal(signal.SIGKILL)
    up.process.wait(patient(10))
    wait_for(lambda: not left_behind(up, {network}), 120, lambda: f"{left_behind(up, {network})}", pause=0.2)
    assert [pid for pid in running if Path(f"/proc/{pid}").exists()] == []
    audit = audit_directory(ledger)
    assert audit.doubled == 0
