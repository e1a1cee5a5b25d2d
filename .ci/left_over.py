"""Fails when processes or network links of this checkout are still there after a while: what was killed takes a moment
to go.

    python .ci/left_over.py [SECONDS]

Others may work on the same machine. A process is this checkout's when make started it or one that it comes from here,
which make writes into the environment of all that it starts (CHECKOUTS); where nothing of make is in its environment,
when it is run from a folder or with a file of this checkout. A link is its owner's, whose number is in its name. Whose
it is cannot be known once the owner is gone: those count that were not there when .ci/run or verify began (BEFORE).
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
    """Empty when it has just ended, or is another user's."""
    try:
        return (process / name).read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return []


def of_this_checkout(process: Path) -> bool:
    for entry in content(process, "environ"):
        if entry.startswith(f"{CHECKOUTS}="):
            return ROOT in entry.removeprefix(f"{CHECKOUTS}=").split(":")
    places = content(process, "cmdline")
    with contextlib.suppress(OSError):
        places.append(os.readlink(process / "cwd"))
    return any(place == ROOT or place.startswith(f"{ROOT}/") for place in places)


def left_over() -> list[str]:
    left = []
    for process in Path("/proc").glob("[0-9]*"):
        line = " ".join(content(process, "cmdline")).strip()
        if OURS.search(line) and of_this_checkout(process):
            left.append(f"process {process.name}: {line}")
    for path in LINKS.glob("*"):
        if owner := LINK.match(path.name):
            process = Path("/proc", str(int(owner[1], 16)))
            if of_this_checkout(process) if process.exists() else path.name not in os.environ.get(BEFORE, "").split():
                left.append(f"link {path.name}" + ("" if process.exists() else ", whose owner is gone"))
    return left


def main(seconds: float) -> int:
    until = time.monotonic() + seconds
    while (left := left_over()) and time.monotonic() < until:
        time.sleep(0.2)
    sys.stderr.write("".join(f"left over: {line}\n" for line in left))
    return int(bool(left))


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]) if len(sys.argv) > 1 else 20.0))
