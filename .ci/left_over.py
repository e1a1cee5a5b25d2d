"""Fails when processes or network links of this project are still there after a while: what was killed takes a moment
to go.
"""

from __future__ import annotations

import re
import sys
import time
from pathlib import Path

SECONDS = 20.0
OURS = re.compile(
    r"dyntrain\.(node_bootstrap (run|launched)|training\.(coordinator|engine|examples|launch|report\.uploads)"
    r"|controller\.local\.)"
)
LINK = re.compile(r"dt[0-9a-f]+-")


def command(process: Path) -> str:
    try:
        return (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:  # it has just ended
        return ""


def left_over() -> list[str]:
    processes = {path.name: command(path) for path in Path("/proc").glob("[0-9]*")}
    left = [f"process {number}: {line}" for number, line in processes.items() if OURS.search(line)]
    return left + [f"link {path.name}" for path in Path("/sys/class/net").glob("*") if LINK.match(path.name)]


until = time.monotonic() + SECONDS
while (left := left_over()) and time.monotonic() < until:
    time.sleep(0.2)
sys.stderr.write("".join(f"left over: {line}\n" for line in left))
sys.exit(bool(left))
