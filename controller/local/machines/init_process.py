"""The init process of one machine of the embedded cloud, which starts and restarts the node's program and powers the
machine off.

The embedded cloud starts one init process for each instance. SIGTERM requests a shutdown, as for terminate-instances or
stop-instances. In a shutdown, the node's program gets SIGTERM and has some seconds to exit, after which all descendants
of the init process are killed. SIGUSR1 emulates a power cut: all descendants of the init process are killed at once.
SIGUSR2 reports that the embedded cloud has died, and also kills all descendants at once. A node's program that exits
with code 0 is not restarted. After an exit code other than 0, the node's program is restarted with a growing delay.
With --off-with-program the machine switches itself off when the node's program ends, and the init process exits with
OFF_BY_ITSELF_EXIT_CODE.
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

FIRST_RESTART_DELAY = 0.5  # seconds
LONGEST_RESTART_DELAY = 10.0  # seconds
STEADY_SECONDS = 30.0  # after this time without a failure, the restart delay is short again
KILL_SECONDS = 5.0  # limit for the kill of all descendants
OFF_BY_ITSELF_EXIT_CODE = 77  # of the init process when the machine switched itself off
CLOUD_DIED_SIGNAL = signal.SIGUSR2
POWER_CUT_SIGNALS = {signal.SIGUSR1, CLOUD_DIED_SIGNAL}
HANDLED_SIGNALS = {signal.SIGTERM, signal.SIGINT, signal.SIGCHLD, *POWER_CUT_SIGNALS}


class InitProcess:
    """The init process of a machine. The function `switches_off` gets the exit code of the node's program, and returns
    whether the machine has switched itself off.
    """

    def __init__(
        self, command: list[str], stop_seconds: float, switches_off: Callable[[int], bool] = lambda exit_code: False
    ) -> None:
        self._command = command
        self._switches_off = switches_off
        self._is_off = False
        self.cloud_gone = False
        self._stop_seconds = stop_seconds
        self._program: subprocess.Popen[bytes] | None = None
        self._started_at = 0.0
        self._next_start_at = time.monotonic()
        self._restart_delay = FIRST_RESTART_DELAY
        self._program_is_over = not command
        self._stopping = False

    def run(self) -> int:
        """Run the machine's program until the machine is off, and return this process's exit code."""
        while True:
            now = time.monotonic()
            if self._program is None and not self._program_is_over and now >= self._next_start_at:
                self._start_program(now)
            wait_seconds = 60.0 if self._program is not None or self._program_is_over else self._next_start_at - now
            received_signal = signal.sigtimedwait(HANDLED_SIGNALS, max(0.01, wait_seconds))
            if received_signal is not None and received_signal.si_signo in (signal.SIGTERM, signal.SIGINT):
                self._shut_down()
                return 0
            if received_signal is not None and received_signal.si_signo in POWER_CUT_SIGNALS:
                self.cloud_gone = received_signal.si_signo == CLOUD_DIED_SIGNAL
                power_off()
                return 0
            self._reap_children()
            if self._is_off:
                power_off()
                return OFF_BY_ITSELF_EXIT_CODE

    def _start_program(self, now: float) -> None:
        init_pid = os.getpid()

        def prepare_child() -> None:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, HANDLED_SIGNALS)
            die_with_parent(init_pid)

        print(f"init: starting {' '.join(self._command)}", flush=True)
        # This process has one thread, so running Python between fork and exec is safe.
        self._program = subprocess.Popen(
            self._command, start_new_session=True, preexec_fn=prepare_child, stdin=subprocess.DEVNULL
        )
        self._started_at = now

    def _reap_children(self) -> None:
        for pid, exit_code in reap_children():
            if self._program is not None and pid == self._program.pid:
                self._program.returncode = exit_code
                self._program = None
                self._on_program_end(exit_code, time.monotonic())

    def _on_program_end(self, exit_code: int, now: float) -> None:
        if not self._stopping and self._switches_off(exit_code):
            print(
                f"init: the program ended with exit code {exit_code}, and the machine switches itself off", flush=True
            )
            self._program_is_over = self._is_off = True
            return
        if exit_code == 0 or self._stopping:
            print(
                f"init: the program {'stopped' if self._stopping else 'ended with exit code 0, and is not restarted'}",
                flush=True,
            )
            self._program_is_over = True
            return
        if now - self._started_at > STEADY_SECONDS:
            self._restart_delay = FIRST_RESTART_DELAY
        print(f"init: the program ended with exit code {exit_code}; restart in {self._restart_delay:.1f} s", flush=True)
        self._next_start_at = now + self._restart_delay
        self._restart_delay = min(LONGEST_RESTART_DELAY, self._restart_delay * 2)

    def _shut_down(self) -> None:
        self._stopping = True
        if self._program is not None:
            print("init: shutting down", flush=True)
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._program.pid, signal.SIGTERM)
            deadline = time.monotonic() + self._stop_seconds
            while self._program is not None and (seconds_left := deadline - time.monotonic()) > 0:
                received_signal = signal.sigtimedwait({signal.SIGCHLD, *POWER_CUT_SIGNALS}, seconds_left)
                if received_signal is not None and received_signal.si_signo in POWER_CUT_SIGNALS:
                    self.cloud_gone = received_signal.si_signo == CLOUD_DIED_SIGNAL
                    break
                self._reap_children()
        power_off()


def reap_children() -> list[tuple[int, int]]:
    """Collect all ended child processes, including adopted processes, as pairs (process id, exit code). The exit code
    of a process that a signal killed is the negative signal number.
    """
    ended_children = []
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, wait_status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                break
            ended_children.append((pid, os.waitstatus_to_exitcode(wait_status)))
    return ended_children


def power_off() -> None:
    """Kill all descendants of this process. The kill is repeated for some seconds until no descendant is left, because
    a process may fork before the kill.
    """
    deadline = time.monotonic() + KILL_SECONDS
    while (remaining_pids := descendants(os.getpid())) and time.monotonic() < deadline:
        kill_all(remaining_pids)
        reap_children()
        time.sleep(0.005)
    print("init: off", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(prog="dyntrain.controller.local.machines.init_process")
    parser.add_argument("--parent", type=int, required=True)
    parser.add_argument("--command", required=True, help="JSON list; empty: a machine that runs nothing")
    parser.add_argument("--stop-seconds", type=float, required=True)
    parser.add_argument("--off-with-program", action="store_true")
    arguments = parser.parse_args()
    signal.pthread_sigmask(signal.SIG_BLOCK, HANDLED_SIGNALS)
    os.nice(MACHINE_NICENESS)
    adopt_orphans()
    die_with_parent(arguments.parent, CLOUD_DIED_SIGNAL)
    off_with_program = bool(arguments.off_with_program)
    sys.exit(
        InitProcess(json.loads(arguments.command), arguments.stop_seconds, lambda exit_code: off_with_program).run()
    )


if __name__ == "__main__":
    main()
