"""Ctrl-C ends a cloud whatever the kernel and Python do with the signal; a signal that is lost leaves a person with a
terminal that nothing but SIGKILL frees.
"""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest
from dyntrain.controller.local.pace import patient

WAITS = """
import os, signal, sys, threading, time
from pathlib import Path
from dyntrain.controller.local.signals import EndedBySignal, raise_on_signals

number, how = int(sys.argv[1]), sys.argv[2]
signal.signal(signal.SIGHUP, signal.SIG_IGN if how == "nohup" else signal.SIG_DFL)

def in_another_thread():
    main = Path(f"/proc/self/task/{os.getpid()}/stat")
    asleep = 0
    while asleep < 20:  # in a row: it waits, and not for the interpreter's lock
        asleep = asleep + 1 if main.read_text().rpartition(")")[2].split()[0] == "S" else 0
        time.sleep(0.005)
    signal.pthread_kill(threading.get_ident(), number)

class Dropped:
    def __del__(self):  # whatever is raised here is printed and forgotten
        os.kill(os.getpid(), number)
        time.sleep(0)

try:
    with raise_on_signals() as ending:
        if how == "another thread":
            threading.Thread(target=in_another_thread, daemon=True).start()
        elif how == "dropped":
            Dropped()
        else:
            os.kill(os.getpid(), signal.SIGHUP)
            os.kill(os.getpid(), number)
        ending.wait()
except EndedBySignal as end:
    print("ended by", end.number)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("how", ["another thread", "dropped"])
def test_a_signal_ends_the_wait_also_where_it_came_to_another_thread_or_its_exception_was_dropped(
    number: signal.Signals, how: str
) -> None:
    assert ended_by(number, how) == number


def test_a_cloud_that_was_started_with_nohup_does_not_end_with_its_terminal() -> None:
    assert ended_by(signal.SIGTERM, "nohup") == signal.SIGTERM


def ended_by(number: signal.Signals, how: str) -> int:
    done = subprocess.run(
        [sys.executable, "-c", WAITS, str(int(number)), how],
        capture_output=True,
        text=True,
        timeout=patient(20),
        check=False,
    )
    assert done.stdout.startswith("ended by "), done.stderr
    return int(done.stdout.split()[-1])
