"""Fails if processes or network links of this checkout still exist after a while: killed ones take a moment to go.

    python .ci/left_over.py [SECONDS]

Others may work on the same machine. A process belongs to this checkout if make started it, or one of its ancestors,
from here: make marks the environment of all that it starts (CHECKOUTS). If make started none of them, it belongs to
this checkout if its working folder or a file of its command is in it. A link belongs to the process whose number is in
its name. If that process is gone, the owner is unknown: then links count that did not exist when .ci/run or verify
began (BEFORE).
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
import time
from pathlib import Path

ROOT = str(Path(__file__).resolve().parents[1])
CHECKOUTS = "DYNTRAIN_CHECKOUTS"
BEFORE = "LINKS_BEFORE"
OURS = re.compile(
    r"dyntrain\.(node_bootstrap (run|launched)|training\.(coordinator|engine|examples|launch|report\.uploads)"
    r"|controller\.local\.)"
)
LINK = re.compile(r"dt([0-9a-f]+)-")
LINKS = Path("/sys/class/net")


def content(process: Path, name: str) -> list[str]:
    """Content of a file in /proc; empty if the process has just ended, or belongs to another user."""
    try:
        return (process / name).read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return []


def of_this_checkout(process: Path) -> bool:
    """Whether the process belongs to this checkout."""
    for entry in content(process, "environ"):
        if entry.startswith(f"{CHECKOUTS}="):
            return ROOT in entry.removeprefix(f"{CHECKOUTS}=").split(":")
    places = content(process, "cmdline")
    with contextlib.suppress(OSError):
        places.append(os.readlink(process / "cwd"))
    return any(place == ROOT or place.startswith(f"{ROOT}/") for place in places)


def left_over() -> list[str]:
    """What is left over, a line each."""
    lines = []
    for process in Path("/proc").glob("[0-9]*"):
        line = " ".join(content(process, "cmdline")).strip()
        if OURS.search(line) and of_this_checkout(process):
            lines.append(f"process {process.name}: {line}")
    for path in LINKS.glob("*"):
        if owner := LINK.match(path.name):
            process = Path("/proc", str(int(owner[1], 16)))
            if of_this_checkout(process) if process.exists() else path.name not in os.environ.get(BEFORE, "").split():
                lines.append(f"link {path.name}" + ("" if process.exists() else ", whose owner is gone"))
    return lines


def main(seconds: float) -> int:
    """Wait up to `seconds` until nothing is left over; returns the exit code."""
    deadline = time.monotonic() + seconds
    while (lines := left_over()) and time.monotonic() < deadline:
        time.sleep(0.2)
    sys.stderr.write("".join(f"left over: {line}\n" for line in lines))
    return int(bool(lines))


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]) if len(sys.argv) > 1 else 20.0))
