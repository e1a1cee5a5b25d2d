"""When a process has ended: with the last of its threads, whether or not its parent has asked, and not with its first
one, which is when those that die with it are told.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading

from dyntrain.controller.local.pace import patient
from dyntrain.training.host.parentage import ended

WITHOUT_ITS_FIRST_THREAD = """
import ctypes, sys, threading
def last():
    first.join(0.0)
    sys.stdout.write("x")
    sys.stdout.flush()
    sys.stdin.read()
first = threading.main_thread()
threading.Thread(target=last).start()
ctypes.CDLL(None).pthread_exit(None)
"""


def state(pid: int) -> str:
    with open(f"/proc/{pid}/stat", encoding="utf-8") as stat:
        return stat.read().rpartition(")")[2].split()[0]


def test_a_killed_process_that_nobody_has_asked_for_has_ended() -> None:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    assert not ended(process.pid)
    assert not ended(process.pid, 0.01)
    threading.Timer(0.05, process.kill).start()
    assert ended(process.pid, patient(20))
    assert state(process.pid) == "Z"
    assert ended(process.pid)
    process.communicate()
    assert ended(process.pid), "no such process any more"


def test_a_process_has_not_ended_while_one_of_its_threads_runs() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", WITHOUT_ITS_FIRST_THREAD], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stdout.read(1) == b"x"
    while state(process.pid) != "Z":
        os.sched_yield()
    assert not ended(process.pid)
    process.kill()
    assert ended(process.pid, patient(20))
    process.communicate()
