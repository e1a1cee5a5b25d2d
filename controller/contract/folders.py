"""Refuse addresses where a local path is expected. A program that takes the address `s3://x` for a local path would
create a folder named `s3:`.
"""

from __future__ import annotations

import re
from pathlib import Path

# At least two letters, because C:/ is a drive. A Path has turned `s3://x` into `s3:/x`.
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")  # the start of an address, such as s3:/


def not_local_problem(path: str | Path) -> str:
    """The second half of an error message, which says why the path is not local. Returns "" for a local path."""
    return "is an address, and a folder or file of this machine is wanted" if _SCHEME.match(str(path)) else ""
