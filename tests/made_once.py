"""What takes seconds to make and is only read afterwards is made once for all processes of a test run."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from pathlib import Path

import pytest


def made_once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], object]) -> Path:
    """The folder `name` that `make` fills, by whichever process comes first; the others wait for it. What failed half
    way is made anew by the next, in a folder of its own.
    """
    run = factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        run = run.parent
    link = run / name
    with (run / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not link.exists():
            folder = factory.mktemp(name)
            make(folder)
            link.symlink_to(folder)
    return link.resolve()
