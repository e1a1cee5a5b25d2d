"""Replaces small files on the shared volume atomically."""

from __future__ import annotations

import os
from pathlib import Path

from dyntrain.training.host.durable import sync


def write_whole(path: Path, content: bytes) -> None:
    """Replace a file atomically: readers on any node see the whole old content or the whole new content.

    When this function returns, the new content is on disk under the file's name. If two coordinators write the same
    file at once, the content that was written last remains. Raises OSError.
    """
    partial_file = path.with_name(f".{path.name}.{os.uname().nodename}.{os.getpid()}")
    try:
        with partial_file.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        partial_file.rename(path)
    except OSError:
        partial_file.unlink(missing_ok=True)
        raise
    sync(path.parent)
