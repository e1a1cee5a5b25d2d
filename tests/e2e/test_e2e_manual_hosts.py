"""Manual mode over three hosts: a launcher, a real sshd on each, real addresses, and a file that people edit. Needs
root, iproute2 and OpenSSH.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from dyntrain.controller.local.pace import paced, patient
from dyntrain.training.host.parentage import with_environment
from ssh_hosts import ManualJob, SshHosts
from waiting import wait_for

ROOT = Path(__file__).parents[2]
TINY = str(ROOT / "tests" / "training" / "tiny_job.py")
pytestmark = [pytest.mark.e2e, pytest.mark.hosts, pytest.mark.openssh, pytest.mark.timeout(240)]


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[SshHosts]:
    folder = tmp_path / "keys"
    folder.mkdir()
    with SshHosts(folder, 3) as running:
        yield running


def test_m1_m2_a_job_on_two_hosts_takes_a_third_and_lets_it_go_by_edits_of_host_worker(
    hosts: SshHosts, tmp_path: Path
) -> None:
    folder = tmp_path / "job"
    folder.mkdir()
    hold, mark = folder / "hold", f"DYNTRAIN_TEST_FOLDER={folder}"
    hold.touch()
    # as DT's chapter has it: the master, where it is launched, is the last; the other by a name that ssh knows
    (folder / "hosts").write_text(f"node-1 slots=1\n{hosts.addresses[0]}\n")
    environment = ["--env", "OMP_NUM_THREADS:1", "--env", f"PYTHONPATH:{ROOT}", "--env", mark.replace("=", ":", 1)]
    # On a slow host a third one takes longer to come: the job must not be over before it does.
    training = [sys.executable, TINY, "--epochs", "80", "--hold", str(hold), "--step-seconds", str(paced(0.2))]
    launch = [
        sys.executable,
        "-m",
        "dyntrain.training.launch",
        "-n",
        "2",
        "-H",
        "hosts",
        "--launcher",
        "ssh",
        *environment,
        *training,
    ]
    job = ManualJob(hosts, folder, launch)
    job.wait_for(r"epoch \d+ .* workers 2")

    job.edit(["node-2", *hosts.addresses[:2]])
    at = job.wait_for(f"Launching worker node at ip: {hosts.addresses[2]}")
    at = job.wait_for(r"epoch \d+ .* workers 3", after=at)
    assert [hosts.logins(number) for number in range(3)] == [1, 1, 1], "each host was reached over its own sshd"

    job.edit(hosts.addresses[:2])
    at = job.wait_for(r"i-\w+ left", after=at)
    job.wait_for(r"epoch \d+ .* workers 2", after=at)
    hold.unlink()
    assert job.process.wait(patient(90)) == 0, job.log[-3000:]
    changes = [line.split()[1:3] for line in (folder / "host_worker_log").read_text().splitlines()]
    assert sorted(changes[:2]) == [["ADDED", address] for address in hosts.addresses[:2]], "as each made its first step"
    assert changes[2:] == [["ADDED", hosts.addresses[2]], ["REMOVED", hosts.addresses[2]]]
    wait_for(lambda: not with_environment(mark), 20, "the last process on any host has ended")
