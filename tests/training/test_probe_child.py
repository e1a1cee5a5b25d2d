"""A process that goes on as this one would: what it says comes back, and nothing else does."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from dyntrain.controller.local.pace import patient
from dyntrain.training.host.parentage import ended

PREFACE = """
import os, sys, time
import dyntrain.training.numpy_aliases
import mxnet as mx
from dyntrain.training.worker.probe.child import Home, fork
"""
GOES_ON = """
net = mx.gluon.nn.Dense(3); net.initialize(); net(mx.nd.ones((2, 4)))
came = fork(60)
if isinstance(came, Home):
    print("nobody reads this")
    came.say({"norm": float(net(mx.nd.ones((2, 4))).norm().asscalar())})
assert came == {"norm": float(net(mx.nd.ones((2, 4))).norm().asscalar())}
"""
FAILS = """
def script():
    came = fork(60)
    if isinstance(came, Home):
        came.leave_at_errors(sys._getframe())
        for _ in iter(list, None):
            raise KeyError("absent")
    return came

try:
    came = script()
finally:
    open(sys.argv[1], "a").write("cleaned up\\n")
assert came == {"failed": "KeyError: 'absent'"}, came
"""
SILENT = """
came = fork(1)
if isinstance(came, Home):
    time.sleep(3600)
assert "within 1 s" in came["failed"]
try:
    os.waitpid(-1, os.WNOHANG)
except ChildProcessError:
    print("no child is left")
"""
ORPHANED = """
came = fork(3600)
if isinstance(came, Home):
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


def test_a_child_that_says_nothing_is_killed_and_reaped() -> None:
    done = run(SILENT)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "no child is left\n"


def test_a_child_dies_with_its_parent(tmp_path: Path) -> None:
    assert run(ORPHANED, str(tmp_path / "pid")).returncode == -9
    assert ended(int((tmp_path / "pid").read_text()), patient(30)), "it would compute for nobody"
    assert os.listdir(tmp_path) == ["pid"]
