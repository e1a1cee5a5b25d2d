"""Replaces small files on the shared volume."""

from __future__ import annotations

import os
from pathlib import Path

from dyntrain.training.host.durable import sync


def write_whole(path: Path, content: bytes) -> None:
    """Replace a file atomically: readers on any node see the old content or the new, never a part.

    On return the new content is on disk under its name. If two coordinators write at once, the later content stays.
    Raises OSError.
    """
    partial = path.with_name(f".{path.name}.{os.uname().nodename}.{os.getpid()}")
    try:
        with partial.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        partial.rename(path)
    except OSError:
        partial.unlink(missing_ok=True)
        raise
    sync(path.parent)
