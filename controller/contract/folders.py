"""Refuse addresses where a local folder or file is wanted: the address `s3://x` would make a folder named `s3:`."""

from __future__ import annotations

import re
from pathlib import Path

# two letters at least: C:/ is a drive. Of a Path, `s3://x` is `s3:/x` by now
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")


def not_local_problem(path: str | Path) -> str:
    """What is wrong with the path, as the end of a sentence; "" when nothing is."""
    return "is an address, and a folder or file of this machine is wanted" if _SCHEME.match(str(path)) else ""
