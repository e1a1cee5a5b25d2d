"""What reaches a ps-lite server from the network: ps-lite asks nobody who they are, so a server obeys nobody."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from dyntrain.controller.local.pace import patient
from job_bed import free_port

SERVER = """
import sys
import dyntrain.training.numpy_aliases
import mxnet
from dyntrain.training.engine.blank import become
become(sys.argv[1], {})
"""
WORKER = """
import sys, os
import dyntrain.training.numpy_aliases
import mxnet as mx
store = mx.kv.create("dist_sync")
store.init("gradient", mx.nd.zeros((4,)))
for number, body in ((0, open(sys.argv[1], "rb").read()), (0, b"open the door")):
    store._send_command_to_servers(number, body.decode("latin-1"))
out = mx.nd.zeros((4,))
store.pushpull("gradient", mx.nd.ones((4,)) * 3, out=out)
mx.nd.waitall()
print("SUM", out.asnumpy().tolist(), flush=True)
os._exit(0)
"""
PAIR = """
import os, sys, time
from dyntrain.training.engine.pslite import PsLite
from dyntrain.training.worker.membership.zeros import Zeros
import mxnet as mx
engine, first = PsLite(), sys.argv[1] == "first"
engine.form({}, [("gradient", (4,), "float32"), ("doubles", (1,), "float64")])
doubles = mx.nd.array([2.0**24 if first else 1.0], dtype="float64")
engine.kvstore.pushpull("doubles", doubles)
print("DOUBLES", doubles.asscalar(), flush=True)
if not first:
    time.sleep(3600)
zeros = Zeros(engine.kvstore)
zeros.push(engine.kvstore.parts_of([0]), 3)
print("ROUNDS", zeros.settle(0.1) > 0, flush=True)
engine.dissolve()
print("LEFT", flush=True)
os._exit(0)
"""
Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Processes of one ps-lite group, which end with the test."""
    group = {
        "DMLC_PS_ROOT_URI": "127.0.0.1",
        "DMLC_NODE_HOST": "127.0.0.1",
        "DMLC_PS_ROOT_PORT": str(free_port("127.0.0.1")),
        "DMLC_NUM_WORKER": "1",
        "DMLC_NUM_SERVER": "1",
    }
    with ExitStack() as undo:

        def started(role: str, *arguments: str, **more: str) -> subprocess.Popen[str]:
            process = subprocess.Popen(
                [sys.executable, "-c", *arguments],
                env={**os.environ, **group, **more},
                stdout=subprocess.PIPE,
                stderr=(tmp_path / f"{role}.err").open("w"),
                text=True,
            )
            undo.callback(process.wait, patient(20))
            undo.callback(process.kill)
            return process

        yield started


class Payload:
    """Unpickling it makes a file: what an attacker would have the server run."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return Path.write_text, (self.mark, "owned")


def test_a_command_with_a_pickle_runs_nothing_on_a_server_which_goes_on_to_serve(start: Start, tmp_path: Path) -> None:
    mark, body = tmp_path / "owned", tmp_path / "body"
    body.write_bytes(pickle.dumps(Payload(mark), protocol=0))
    assert b"\0" not in body.read_bytes(), "what reaches the server would be cut there"
    for role in ("scheduler", "server"):
        start(role, SERVER, role)
    worker = start("worker", WORKER, str(body), DMLC_ROLE="worker")
    out, _ = worker.communicate(timeout=patient(90))
    refusals = (tmp_path / "server.err").read_text()
    assert not mark.exists(), "the server has unpickled what a stranger sent"
    assert out.strip() == "SUM [3.0, 3.0, 3.0, 3.0]", "the server still adds up"
    assert [line.split(" from")[0] for line in refusals.splitlines() if "refused" in line] == [
        "refused command 0",
        "refused command 0",
    ]
    assert "open the door" not in refusals


def test_t7_the_group_can_be_left_after_more_zeros_than_were_owed(start: Start) -> None:
    """Of two workers one pushes nothing: three zeros are one round and the beginning of another, which nobody else
    fills. What is under way there would keep a survivor in the broken group for ever.

    Doubles are added up as floats by most servers, and as doubles by some (seen of the same program, now and then): so
    nothing may be built on their being exact, and the marks of steps stay below 2**24.
    """
    for role in ("scheduler", "server"):
        start(role, SERVER, role, DMLC_NUM_WORKER="2")
    start("second", PAIR, "second", DMLC_ROLE="worker", DMLC_NUM_WORKER="2")
    first = start("first", PAIR, "first", DMLC_ROLE="worker", DMLC_NUM_WORKER="2")
    out, _ = first.communicate(timeout=patient(90))
    added, *rest = out.splitlines()
    assert added in ("DOUBLES 16777216.0", "DOUBLES 16777217.0")
    assert rest == ["ROUNDS True", "LEFT"]
