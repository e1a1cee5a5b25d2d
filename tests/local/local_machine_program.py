"""What test machines run instead of node_bootstrap: two children that ignore SIGTERM, in sessions of their own, and a
file with all pids.

The second child has an empty environment, so that only its descent tells which machine it belongs to.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

STUBBORN = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('stubborn', flush=True); time.sleep(600)"
)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--root", type=Path, required=True)
    parser.add_argument("--retire", action="store_true")
    arguments = parser.parse_args()
    lives = arguments.root / "lives"
    with lives.open("a") as file:
        file.write("life\n")
    if arguments.retire:
        return
    children = [
        subprocess.Popen(
            [sys.executable, "-c", STUBBORN], start_new_session=True, stdout=subprocess.PIPE, env=environment
        )
        for environment in (None, {})
    ]
    for child in children:
        assert child.stdout is not None
        child.stdout.readline()
    written = arguments.root / ".pids"
    written.write_text(" ".join(str(pid) for pid in (os.getpid(), *(child.pid for child in children))))
    written.rename(arguments.root / "pids")
    environment = arguments.root / "environment"
    environment.write_text("\n".join(sorted(os.environ)))
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(143))
    time.sleep(600)


if __name__ == "__main__":
    main()
