"""The init process of one machine of the embedded cloud, which runs the node's program, restarts it, and powers the
machine off.

The cloud starts this process for each instance. SIGTERM is a shutdown (terminate-instances, stop-instances): the
program gets SIGTERM and some seconds, then all descendants of this process are killed. SIGUSR1 is a power cut: all
descendants are killed now. SIGUSR2 reports that the cloud died, and has the same effect. A program that exits with 0 is
not started again. After any other exit code, the program is restarted with a growing delay. With --off-with-program the
machine switches itself off when its program ends, and this process exits with OFF_BY_ITSELF.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable

from dyntrain.controller.local.pace import MACHINE_NICENESS
from dyntrain.training.host.parentage import adopt_orphans, descendants, die_with_parent, kill_all

FIRST_DELAY = 0.5
LAST_DELAY = 10.0
STEADY_SECONDS = 30.0
KILL_SECONDS = 5.0
OFF_BY_ITSELF = 77
CLOUD_GONE = signal.SIGUSR2
POWER_CUTS = {signal.SIGUSR1, CLOUD_GONE}
SIGNALS = {signal.SIGTERM, signal.SIGINT, signal.SIGCHLD, *POWER_CUTS}


class Init:
    """The init process. `switches_off` says from the program's exit code whether the machine has switched
    itself off.
    """

    def __init__(
        self, command: list[str], stop_seconds: float, switches_off: Callable[[int], bool] = lambda code: False
    ) -> None:
        self._command = command
        self._switches_off = switches_off
        self._off = False
        self.cloud_gone = False
        self._stop_seconds = stop_seconds
        self._child: subprocess.Popen[bytes] | None = None
        self._started_at = 0.0
        self._start_at = time.monotonic()
        self._delay = FIRST_DELAY
        self._done = not command
        self._stopping = False

    def run(self) -> int:
        """Run until the machine is off; returns this process's exit code."""
        while True:
            now = time.monotonic()
            if self._child is None and not self._done and now >= self._start_at:
                self._launch(now)
            wait = 60.0 if self._child is not None or self._done else self._start_at - now
            received = signal.sigtimedwait(SIGNALS, max(0.01, wait))
            if received is not None and received.si_signo in (signal.SIGTERM, signal.SIGINT):
                self._shut_down()
                return 0
            if received is not None and received.si_signo in POWER_CUTS:
                self.cloud_gone = received.si_signo == CLOUD_GONE
                power_off()
                return 0
            self._reap()
            if self._off:
                power_off()
                return OFF_BY_ITSELF

    def _launch(self, now: float) -> None:
        parent = os.getpid()

        def in_child() -> None:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
            die_with_parent(parent)

        print(f"init: starting {' '.join(self._command)}", flush=True)
        # This process has one thread, so running Python between fork and exec is safe.
        self._child = subprocess.Popen(
            self._command, start_new_session=True, preexec_fn=in_child, stdin=subprocess.DEVNULL
        )
        self._started_at = now

    def _reap(self) -> None:
        for pid, code in reap():
            if self._child is not None and pid == self._child.pid:
                self._child.returncode = code
                self._child = None
                self._on_program_end(code, time.monotonic())

    def _on_program_end(self, code: int, now: float) -> None:
        if not self._stopping and self._switches_off(code):
            print(f"init: the program ended with exit code {code}, and the machine switches itself off", flush=True)
            self._done = self._off = True
            return
        if code == 0 or self._stopping:
            print(
                f"init: the program {'stopped' if self._stopping else 'ended with exit code 0, and is not restarted'}",
                flush=True,
            )
            self._done = True
            return
        if now - self._started_at > STEADY_SECONDS:
            self._delay = FIRST_DELAY
        print(f"init: the program ended with exit code {code}; restart in {self._delay:.1f} s", flush=True)
        self._start_at = now + self._delay
        self._delay = min(LAST_DELAY, self._delay * 2)

    def _shut_down(self) -> None:
        self._stopping = True
        if self._child is not None:
            print("init: shutting down", flush=True)
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._child.pid, signal.SIGTERM)
            deadline = time.monotonic() + self._stop_seconds
            while self._child is not None and (seconds_left := deadline - time.monotonic()) > 0:
                received = signal.sigtimedwait({signal.SIGCHLD, *POWER_CUTS}, seconds_left)
                if received is not None and received.si_signo in POWER_CUTS:
                    self.cloud_gone = received.si_signo == CLOUD_GONE
                    break
                self._reap()
        power_off()


def reap() -> list[tuple[int, int]]:
    """Collect ended children, also adopted processes, as (pid, exit code or -signal)."""
    ended_children = []
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                break
            ended_children.append((pid, os.waitstatus_to_exitcode(status)))
    return ended_children


def power_off() -> None:
    """Kill all descendants repeatedly until none is left: a process may fork while it is being killed."""
    deadline = time.monotonic() + KILL_SECONDS
    while (remaining := descendants(os.getpid())) and time.monotonic() < deadline:
        kill_all(remaining)
        reap()
        time.sleep(0.005)
    print("init: off", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(prog="dyntrain.controller.local.machines.init_process")
    parser.add_argument("--parent", type=int, required=True)
    parser.add_argument("--command", required=True, help="JSON list; empty: a machine that runs nothing")
    parser.add_argument("--stop-seconds", type=float, required=True)
    parser.add_argument("--off-with-program", action="store_true")
    arguments = parser.parse_args()
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    os.nice(MACHINE_NICENESS)
    adopt_orphans()
    die_with_parent(arguments.parent, CLOUD_GONE)
    off_with_program = bool(arguments.off_with_program)
    sys.exit(Init(json.loads(arguments.command), arguments.stop_seconds, lambda code: off_with_program).run())


if __name__ == "__main__":
    main()
