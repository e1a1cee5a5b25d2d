"""Several workers a host, as with one for each GPU: real processes, which come and go by host.

What would break for a user: a machine whose GPUs are used in part, ranks that do not fit the GPUs, a job that goes on
with a part of a machine, or one that stops for a validation on rank 0.
"""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable
from typing import NamedTuple

import pytest
from dyntrain.training.audit import audit
from dyntrain.training.coordinator.terms import read_journal
from dyntrain.training.launch.host_file import instance_of
from dyntrain.training.ledger import read_intents
from launched_job import Launched

pytestmark = pytest.mark.jobs


class Place(NamedTuple):
    epoch: int
    pid: int
    rank: int
    local_rank: int
    local_size: int
    cross_rank: int
    workers: int


def places(job: Launched) -> list[Place]:
    return [Place(*map(int, line.split())) for line in re.findall(r"PLACE ([0-9 ]+)$", job.log, re.MULTILINE)]


def last(job: Launched) -> dict[int, Place]:
    """By rank, what was said last by those of as many workers as the last said."""
    all_places = places(job)
    return {place.rank: place for place in all_places if place.workers == all_places[-1].workers}


@pytest.mark.pslite
def test_launch_hosts_of_two_workers_each_join_die_and_leave_as_one(launched: Callable[..., Launched]) -> None:
    more = ("--events", "events.jsonl", "--segment-steps", "3", "--workers-per-node", "2")
    job = launched("-n", "1", "--launcher", "local", *more, script=("--places", "--validate", "0.3"))
    job.wait_for(r"epoch 0 .* workers 2")
    job.edit("127.0.0.1", "127.0.0.9")
    for rank in range(4):  # each prints its place when it comes to it
        job.wait_for(rf"PLACE .* {rank} {rank % 2} 2 {rank // 2} 4\n")
    seen = last(job)
    assert sorted(seen) == [0, 1, 2, 3]
    assert len({place.pid for place in seen.values()}) == 4

    os.kill(seen[3].pid, signal.SIGKILL)
    joined = instance_of("127.0.0.9")
    job.wait_for(f"{joined}:1 worker lost")
    job.wait_for_formed(2, 4, 2, 4)
    job.wait_for(rf"PLACE \d+ (?!{seen[3].pid} )\d+ 3 1 2 1 4\n")
    again = last(job)
    assert {place.pid for place in again.values()} >= {seen[0].pid, seen[1].pid}, "of the other host nobody was ended"

    job.edit("127.0.0.1")
    job.wait_for(f"{joined}:1 left")
    job.wait_for_formed(2, 4, 2, 4, 2)
    assert job.go() == 0
    assert job.ended() == []
    assert not job.events("restart"), "the others go on in their processes"
    assert not job.events("stalled"), "a validation on rank 0 alone is waited for, and is no stall"
    (ledger,) = {path.parent for path in (job.folder / "dyntrain").rglob("journal.jsonl")}
    result = audit(read_journal(ledger), read_intents(ledger), 97)
    assert (result.lost, result.doubled, len(result.epochs)) == (0, 0, 80)
    changes = [line.split()[1:3] for line in (job.folder / "host_worker_log").read_text().splitlines()]
    assert changes[:2] == [["ADDED", "127.0.0.1"], ["ADDED", "127.0.0.9"]]
    assert changes[-1] == ["REMOVED", "127.0.0.9"]


@pytest.mark.pslite
def test_a_worker_that_keeps_the_others_is_named_while_they_wait(launched: Callable[..., Launched]) -> None:
    """It is inside the script, as with slow data, and answers: nothing but this would say why no step is made."""
    orders = ("--orders", ".")
    more = ("--events", "events.jsonl", "--workers-per-node", "2")
    job = launched("-n", "1", "--launcher", "local", *more, script=orders)
    job.wait_for(r"epoch 0 .* workers 2")
    (job.folder / "keep").touch()
    job.wait_for(r"stalled: 1 of 2 workers wait for the sums of step \d+: i-\w+(:1)? is in its script", 120)
    (stall,) = job.events("stalled")
    node = instance_of("127.0.0.1")
    assert sorted([*stall["stalled"], *stall["waiting"]]) == [node, f"{node}:1"]

    (job.folder / "keep.taken").unlink()
    job.wait_for(r"the stall is over after \d+ s")
    assert job.events("stall_over")[0]["stalled"] == stall["stalled"]
    assert job.go() == 0
    assert not job.events("worker_lost")
