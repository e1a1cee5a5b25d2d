"""What reaches a ps-lite server from the network: ps-lite asks nobody who they are, so a server obeys nobody."""

from __future__ import annotations

import os
import pickle
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from dyntrain.controller.local.pace import patient
from dyntrain.training.protocol.engines import SERVER_MEMORY
from job_bed import free_port
from waiting import wait_for

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
from dyntrain.training.worker.membership.window import Key
from dyntrain.training.worker.membership.zeros import Zeros
import mxnet as mx
engine, first = PsLite(), sys.argv[1] == "first"
shapes = [("pushed", (4,)), ("owed", (3000000,)), ("half", (2000000,)), ("doubles", (1,))]
engine.form({}, [(name, shape, "float64" if name == "doubles" else "float32") for name, shape in shapes])
store = engine.kvstore
doubles = mx.nd.array([2.0**24 if first else 1.0], dtype="float64")
store.pushpull("doubles", doubles)
print("DOUBLES", doubles.asscalar(), flush=True)
keys = [Key(n, tuple(store.parts_of([n]))) for n in range(3)]
if not first:
    store.pushpull("pushed", mx.nd.ones((4,)))
    half = mx.nd.ones((1000000,))
    half.wait_to_read()
    store.pushpull_part(keys[2].parts[0], half)
    store.flush()
    print("PUSHED", flush=True)
    time.sleep(3600)
sys.stdin.readline()
arrays = [mx.nd.ones(shape) for name, shape in shapes[:3]]
for (name, _), array in zip(shapes, arrays):
    store.pushpull(name, array)
watches = [store.watch(array) for array in arrays]
store.flush()
print("THERE", [there() for there in watches], flush=True)
paused = []
has = lambda key, part: watches[key.number]() or (len(key.parts) > 1 and store.has_answer(part))
paused.append(Zeros(store).push_until_answered(keys, 1, 2, has, lambda: time.sleep(0.01), 1000))
print("MENDED", [there() for there in watches], paused, flush=True)
engine.dissolve()
print("LEFT", flush=True)
os._exit(0)
"""
STEPS = """
import os, sys
from dyntrain.training.engine.pslite import PsLite
import mxnet as mx
engine = PsLite()
print("STANDS", flush=True)
sys.stdin.readline()
keys = [(str(n), (1000000,), "float32") for n in range(KEYS)]
engine.form({}, keys)
arrays = [mx.nd.ones((1000000,)) for _ in keys]
mx.nd.waitall()
print("FORMED", flush=True)
for line in sys.stdin:
    for (name, _, _), array in zip(keys, arrays):
        engine.kvstore.pushpull(name, array)
    mx.nd.waitall()
    print("SUMMED", flush=True)
os._exit(0)
"""
KEYS = 12
PAGES = KEYS * 4_000_000 // resource.getpagesize()  # of what a worker sends in a step
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
                stdin=subprocess.PIPE,
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


def test_t7_zeros_free_a_survivor_wherever_the_lost_worker_was_in_its_pushes(start: Start) -> None:
    """Of two workers one has pushed a key, one of another key's two parts, and not a third key. The other one sees what
    is owed, frees itself without waiting for any time, and leaves the group: also after zeros for the part that was
    pushed, which are the beginning of a round that nobody else fills. What is under way there would keep a survivor in
    the broken group for ever.

    Doubles are added up as floats by most servers, and as doubles by some (seen of the same program, now and then): so
    nothing may be built on their being exact, and the marks of steps stay below 2**24.
    """
    for role in ("scheduler", "server"):
        start(role, SERVER, role, DMLC_NUM_WORKER="2")
    second = start("second", PAIR, "second", DMLC_ROLE="worker", DMLC_NUM_WORKER="2")
    first = start("first", PAIR, "first", DMLC_ROLE="worker", DMLC_NUM_WORKER="2")
    assert second.stdout is not None
    while second.stdout.readline().strip() != "PUSHED":
        assert second.poll() is None
    out, _ = first.communicate("\n", timeout=patient(90))
    added, *rest = out.splitlines()
    assert added in ("DOUBLES 16777216.0", "DOUBLES 16777217.0")
    assert rest == ["THERE [True, False, False]", "MENDED [True, True, True] [0]", "LEFT"]


def given(process: subprocess.Popen[str]) -> int:
    """Pages that the kernel has handed out to it so far."""
    return int(Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[7])


def ask(process: subprocess.Popen[str], line: str = "") -> str:
    """What it answers to `line`."""
    assert process.stdin is not None
    assert process.stdout is not None
    if line:
        process.stdin.write(line + "\n")
        process.stdin.flush()
    return process.stdout.readline().strip()


def test_a_server_adds_up_in_the_memory_of_the_step_before(start: Start) -> None:
    """To be given it page by page, again in each step, takes as long as adding up."""
    start("scheduler", SERVER, "scheduler")
    server = start("server", SERVER, "server")
    worker = start("worker", STEPS.replace("KEYS", str(KEYS)), DMLC_ROLE="worker")
    assert [ask(worker), ask(worker, "form")] == ["STANDS", "FORMED"]
    seen = []
    for _ in range(12):
        assert ask(worker, "step") == "SUMMED"
        seen.append(given(server))
    assert seen[-1] - seen[3] < PAGES / 2, "in eight steps less than half of what one takes"


def test_a_server_is_given_its_memory_before_the_first_step(start: Start) -> None:
    start("scheduler", SERVER, "scheduler")
    server = start("server", SERVER, "server", **{SERVER_MEMORY: str(3 * KEYS * 4_000_000)})
    wait_for(lambda: given(server) > 3 * PAGES, 30, "it is given what it was told")
    worker = start("worker", STEPS.replace("KEYS", str(KEYS)), DMLC_ROLE="worker")
    assert [ask(worker), ask(worker, "form")] == ["STANDS", "FORMED"]
    before = given(server)
    assert ask(worker, "step") == "SUMMED"
    assert given(server) - before < PAGES / 2
