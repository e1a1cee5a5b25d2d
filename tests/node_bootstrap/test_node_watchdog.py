"""What systemd hears of the program: a hung one must not seem well, and nothing that a node runs may speak for it."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

from dyntrain.controller.local.pace import patient

PROGRAM = """
import json, os, sys
from dyntrain.node_bootstrap.host.watchdog import make_beat, take_notifier
from dyntrain.training.host.reaper import run_below

notify, above = take_notifier(os.environ), os.getpid()

def program():
    print(json.dumps([name for name in os.environ if "NOTIFY" in name or "WATCHDOG" in name]), flush=True)
    beat = make_beat(above)
    for line in sys.stdin:
        beat()
    return 7

sys.exit(run_below(program, notify))
"""


def test_each_beat_reaches_systemd_from_the_process_above_and_none_is_made_up(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(tmp_path / "notify"))
        systemd.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        systemd.settimeout(patient(20))
        environment = {**os.environ, "NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "60000000"}
        argv = [sys.executable, "-c", PROGRAM]
        with subprocess.Popen(
            argv, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            assert json.loads(process.stdout.readline()) == [], "the training script could speak for the program"
            for _ in range(2):
                process.stdin.write("beat\n")
                process.stdin.flush()
                state, told_by, _, _ = systemd.recvmsg(1024, socket.CMSG_SPACE(12))
                assert state == b"READY=1\nWATCHDOG=1"
                assert int.from_bytes(told_by[0][2][:4], sys.byteorder) == process.pid
            process.stdin.close()
            assert process.wait(patient(20)) == 7
        systemd.setblocking(False)
        try:
            state = systemd.recv(1024)
        except BlockingIOError:
            state = b""
        assert state == b"", "nobody beat"
