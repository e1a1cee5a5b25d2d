"""What was written is on disk, so that a machine that loses its power does not lose it."""

from __future__ import annotations

import os
from pathlib import Path


def sync(path: Path) -> None:
    """The file's content, or a folder's names: after a rename the folder needs it too. Raises OSError."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
