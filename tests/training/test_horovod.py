"""Jobs on Horovod: what its all-reduce sums, and that whoever survives is freed, whomever it waits for."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from dyntrain.controller.local.pace import patient
from job_bed import JobBed, free_port, instance
from launched_job import Launched

pytestmark = [pytest.mark.horovod, pytest.mark.timeout(240)]

Make = Callable[..., JobBed]
RENDEZVOUS = """
import sys
from dyntrain.training.engine.rendezvous import ADDRESS, PORT, serve_rendezvous
serve_rendezvous({ADDRESS: "127.0.0.1", PORT: sys.argv[1]})
"""
WORKER = """
import sys
import dyntrain.training.numpy_aliases
from dyntrain.training.engine import SumsLost, make_engine
import mxnet as mx
port, rank = sys.argv[1], int(sys.argv[2])
engine = make_engine("horovod", "dist_sync", "127.0.0.1")
engine.form({
    "HOROVOD_GLOO_RENDEZVOUS_ADDR": "127.0.0.1", "HOROVOD_GLOO_RENDEZVOUS_PORT": port, "HOROVOD_RANK": str(rank),
    "HOROVOD_SIZE": "2", "HOROVOD_LOCAL_RANK": "0", "HOROVOD_LOCAL_SIZE": "1", "HOROVOD_CROSS_RANK": str(rank),
    "HOROVOD_CROSS_SIZE": "2", "HOROVOD_HOSTNAME": f"host{rank}",
}, [])
store, mine = engine.kvstore, rank + 1.0
for dtype in ("float16", "float32", "float64"):
    value = mx.nd.array([2.0**24 if dtype == "float64" else 64.0, mine], dtype=dtype)
    out = mx.nd.zeros((2,), dtype=dtype)
    store.pushpull(dtype, value, out=out)
    engine.wait(out)
    print(dtype, out.asnumpy().tolist(), value.asnumpy().tolist(), flush=True)
parts = [mx.nd.array([mine], ctx=mx.cpu(0)), mx.nd.array([10 * mine], ctx=mx.cpu(1))]
store.pushpull("parts", parts)
print("contexts", [one.asscalar() for one in parts], [str(one.context) for one in parts], flush=True)
if rank == 1:
    sys.stdin.read()
try:
    engine.wait(mx.nd.random.normal(0, -1, (2,)))
except mx.base.MXNetError as error:
    print("the script's", type(error).__name__, flush=True)
lost = mx.nd.ones((2,))
store.pushpull("lost", lost)
print("waits", flush=True)
try:
    engine.wait(lost)
except SumsLost as error:
    print("lost", bool(str(error)), flush=True)
engine.dissolve()
"""


@contextmanager
def process(*arguments: str, errors: Path) -> Iterator[subprocess.Popen[str]]:
    with (
        errors.open("w") as err,
        subprocess.Popen(
            [sys.executable, "-c", *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=err, text=True
        ) as started,
    ):
        try:
            yield started
        finally:
            started.kill()


def test_sums_are_those_of_all_workers_and_contexts_and_are_lost_with_a_worker(tmp_path: Path) -> None:
    port = str(free_port("127.0.0.1"))
    with (
        process(RENDEZVOUS, port, errors=tmp_path / "rendezvous.err"),
        process(WORKER, port, "0", errors=tmp_path / "first.err") as first,
        process(WORKER, port, "1", errors=tmp_path / "second.err") as second,
    ):
        assert first.stdout is not None
        assert second.stdout is not None
        lines = [first.stdout.readline().strip() for _ in range(6)]
        assert lines == [
            "float16 [128.0, 3.0] [64.0, 1.0]",
            "float32 [128.0, 3.0] [64.0, 1.0]",
            "float64 [33554432.0, 3.0] [16777216.0, 1.0]",
            "contexts [33.0, 33.0] ['cpu(0)', 'cpu(1)']",
            "the script's MXNetError",
            "waits",
        ]
        for _ in range(4):
            second.stdout.readline()
        second.kill()
        rest, _ = first.communicate(timeout=patient(60))
        assert (rest.strip(), first.returncode) == ("lost True", 0)


def test_t7_survivors_that_wait_for_each_other_are_freed_in_their_processes(make_bed: Make) -> None:
    """Of four, two may wait for each other and for none that is gone: Horovod alone would leave them there."""
    bed = make_bed("--samples", "193", "--step-seconds", "0.05")
    bed.begin("ABCD")
    for number in range(1, 5):
        bed.wait_for_epoch(bed.events("segment")[-1]["to"]["epoch"] + 1 if bed.events("segment") else 1)
        bed.kill_worker("D")
        bed.wait_for(lambda number=number: len(bed.events("released")) == number, 60, "the survivors are free")
        bed.wait_for(
            lambda number=number: sum(e["instance"] == instance("D") for e in bed.events("joined")) == number + 1,
            60,
            "D is back",
        )
    bed.finish()
    assert (bed.events("restart"), bed.events("taken_back")) == ([], [])
    assert [len(bed.supervisors[instance(letter)].pids) for letter in "ABCD"] == [1, 1, 1, 5]
    assert bed.audit().exact


def test_t8_the_machine_where_they_met_is_lost_like_any_other(make_bed: Make) -> None:
    """With ps-lite it takes a server along, and all are restarted."""
    bed = make_bed()
    bed.begin("AB")
    bed.add_node("C")
    bed.want("ABC")
    bed.wait_for(bed.saw("joined", "C"), 60, "C joins")
    met = max(bed.supervisors.values(), key=lambda node: max(node.groups, default=0))
    assert met.name == instance("A")
    bed.lose_node("A")
    bed.wait_for(lambda: bed.events("released"), 60, "B and C are free")
    bed.want("BC")
    bed.finish()
    assert bed.events("restart") == []
    assert [len(bed.supervisors[instance(letter)].pids) for letter in "BC"] == [1, 1]
    assert bed.audit().exact


def test_launch_engine_horovod_is_what_hosts_join_and_leave(launched: Callable[..., Launched]) -> None:
    job = launched("-n", "1", "--launcher", "local", "--engine", "horovod", environment={"DYNTRAIN_ENGINE": "pslite"})
    job.wait_for(r"epoch 0 .* workers 1")
    loaded = [Path(f"/proc/{pid}/maps").read_text() for pid in job.pids("tiny_job")]
    assert any("/horovod/mxnet/mpi_lib" in maps for maps in loaded)
    job.edit("127.0.0.1", "127.0.0.9")
    job.wait_for(r"epoch \d+ .* workers 2")
    job.edit("127.0.0.1")
    job.wait_for(r"workers 2(.*\n)+.* workers 1 ")
    assert job.go() == 0
    assert job.ended() == []


def test_launch_of_a_process_a_slot_gives_horovods_own_ranks_and_outlives_one_of_them(
    launched: Callable[..., Launched], tmp_path: Path
) -> None:
    """What each of them says of its place is compared with Horovod's own word in the script."""
    (tmp_path / "hosts").write_text("127.0.0.1 slots=2\n")
    options = ("-n", "1", "-H", str(tmp_path / "hosts"), "--launcher", "local", "--engine", "horovod")
    job = launched(*options, "--segment-steps", "3", "--events", "events.jsonl", script=("--places",))
    job.wait_for(r"PLACE .* 1 1 2 0 2\n")
    job.edit("127.0.0.1", "127.0.0.9 slots=2")
    job.wait_for(r"PLACE .* 3 1 2 1 4\n")
    victim = next(place for place in re.findall(r"PLACE \d+ (\d+) 3 1 2 1 4$", job.log, re.MULTILINE))
    os.kill(int(victim), signal.SIGKILL)
    job.wait_for_formed(2, 4, 2, 4)
    assert job.go() == 0
    assert job.ended() == []
