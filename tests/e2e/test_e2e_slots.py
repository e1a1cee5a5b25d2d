"""A cluster on the embedded cloud whose nodes have two workers each: a machine comes with both, is made whole again
when one of them is killed, and goes with both.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest
from dyntrain.training.audit import audit_directory
from local_up import LocalUp

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]
EPOCHS = 120


@pytest.fixture
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalUp]:
    options = ("--resync-seconds", "3", "--base-workers", "0", "--workers-per-node", "2")
    local_up = LocalUp(tmp_path_factory.mktemp("slots"), *options, epochs=EPOCHS)
    try:
        yield local_up
    finally:
        if local_up.process.poll() is None:
            local_up.interrupt()


def test_machines_come_die_and_go_with_all_their_workers(up: LocalUp) -> None:
    def formed() -> list[list[str]]:
        return [event["members"] for event in up.job_events("formed")]

    up.wait_for(lambda: up.job_events("segment"), 90, "the master trains")
    (master,) = up.instances()
    first = [master, f"{master}:1"]
    assert formed() == [first]

    assert up.dyntrain("add", "demo").returncode == 0
    up.wait_for(lambda: len(up.instances()) == 2, 60, "a machine is launched")
    (new,) = up.instances() - {master}
    both = [*first, new, f"{new}:1"]
    up.wait_for(lambda: formed()[-1] == both, 120, "it trains with both workers")
    up.wait_for_status(new, "ADDED", seconds=60, description="the controller knows it")
    assert up.node(new)["rank"] == 2

    victim = next(pid for pid, machine in up.worker_pids().items() if machine == new)
    os.kill(victim, signal.SIGKILL)
    up.wait_for(lambda: formed()[-2:] == [first, both], 120, "the master goes on, and the machine comes again whole")
    assert victim not in up.worker_pids()

    assert up.dyntrain("remove", new).returncode == 0
    up.wait_for(lambda: formed()[-1] == first, 120, "it leaves with both")
    up.wait_for(lambda: up.state(new) == "terminated", 120, "the machine is released")
    up.let_it_finish()
    up.wait_for(lambda: up.job_events("finished"), 120, "the job finishes")
    audit = audit_directory(next(iter(up.mount.glob("dyntrain/*/*/ledger"))))
    assert (audit.lost, audit.doubled, len(audit.epochs)) == (0, 0, EPOCHS)
    assert not up.job_events("restart")
    assert up.interrupt() == 0
    assert up.processes() == []
