"""A process that goes on as this one would: what it says comes back, and nothing else does."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from dyntrain.controller.local.pace import patient
from dyntrain.training.host.parentage import ended

PREFACE = """
import os, sys, time
import dyntrain.training.numpy_aliases
import mxnet as mx
from dyntrain.training.worker.probe import child
from dyntrain.training.worker.probe.child import ParentPipe, fork
child.IDLE_SECONDS = 3600  # a busy machine may leave a child without a processor
"""
GOES_ON = """
net = mx.gluon.nn.Dense(3); net.initialize(); net(mx.nd.ones((2, 4)))
came = fork(3600)
if isinstance(came, ParentPipe):
    print("nobody reads this")
    came.send_and_end({"norm": float(net(mx.nd.ones((2, 4))).norm().asscalar())})
assert came == {"norm": float(net(mx.nd.ones((2, 4))).norm().asscalar())}
"""
FAILS = """
def script():
    came = fork(3600)
    if isinstance(came, ParentPipe):
        came.end_at_errors(sys._getframe())
        for _ in iter(list, None):
            raise KeyError("absent")
    return came

try:
    came = script()
finally:
    open(sys.argv[1], "a").write("cleaned up\\n")
assert came == {"failed": "KeyError: 'absent'"}, came
"""
NO_CHILD_IS_LEFT = """
try:
    os.waitpid(-1, os.WNOHANG)
except ChildProcessError:
    print("no child is left")
"""
WAITS = """
child.IDLE_SECONDS = 1
came = fork(3600)
if isinstance(came, ParentPipe):
    time.sleep(3600)
assert "the child was idle" in came["failed"], came
"""
COMPUTES = """
came = fork(1)
while isinstance(came, ParentPipe):
    pass
assert "too long" in came["failed"], came
"""
CRASHES = """
came = fork(3600)
if isinstance(came, ParentPipe):
    os.write(came._pipe, b"half a wo")
    os.abort()
assert "crashed" in came["failed"], came
"""
REFUSED = """
def none():
    raise BlockingIOError(11, "Resource temporarily unavailable")

os.fork, before = none, len(os.listdir("/proc/self/fd"))
came = fork(3600)
assert "Resource temporarily unavailable" in came["failed"], came
assert len(os.listdir("/proc/self/fd")) == before
"""
HAS_A_CHILD = """
came = fork(3600)
if isinstance(came, ParentPipe):
    if not (grandchild := os.fork()):
        time.sleep(3600)
    came.send_and_end({"grandchild": grandchild})
print(came["grandchild"])
"""
MANY_FILES = """
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, (2048, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
files = [open(os.devnull) for _ in range(1100)]
came = fork(3600)
if isinstance(came, ParentPipe):
    came.send_and_end({"norm": 1.0})
assert came == {"norm": 1.0}
"""
ORPHANED = """
came = fork(3600)
if isinstance(came, ParentPipe):
    open(sys.argv[1], "w").write(str(os.getpid()))
    os.kill(os.getppid(), 9)
    time.sleep(3600)
"""


def run(code: str, *args: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-W", "ignore", "-c", PREFACE + code, *args]
    return subprocess.run(argv, capture_output=True, text=True, timeout=patient(60), check=False)


def test_a_child_computes_as_its_parent_and_prints_nothing() -> None:
    done = run(GOES_ON)
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""


def test_an_error_in_a_child_leaves_what_is_its_parents_to_clean_up(tmp_path: Path) -> None:
    done = run(FAILS, str(tmp_path / "log"))
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "log").read_text() == "cleaned up\n"


@pytest.mark.parametrize(
    "code",
    [WAITS, COMPUTES, CRASHES, REFUSED, MANY_FILES],
    ids=["waits", "computes", "crashes", "refused", "many files"],
)
def test_whatever_becomes_of_a_child_its_parent_goes_on_and_has_none(code: str) -> None:
    done = run(code + NO_CHILD_IS_LEFT)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "no child is left\n"


def test_what_a_child_has_started_ends_with_it() -> None:
    done = run(HAS_A_CHILD)
    assert done.returncode == 0, done.stderr
    assert ended(int(done.stdout), patient(30)), "it has the other end of all that its parents have open"


def test_a_child_dies_with_its_parent(tmp_path: Path) -> None:
    assert run(ORPHANED, str(tmp_path / "pid")).returncode == -9
    assert ended(int((tmp_path / "pid").read_text()), patient(30)), "it would compute for nobody"
    assert os.listdir(tmp_path) == ["pid"]
