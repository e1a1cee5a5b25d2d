"""Small files that a coordinator replaces on the shared volume."""

from __future__ import annotations

import os
from pathlib import Path

from dyntrain.training.host.durable import sync


def write_whole(path: Path, content: bytes) -> None:
    """Readers on any node see the old content or the new, never a part; on return the new one is on disk under its
    name. Of two coordinators that write at once, the later one's stands. Raises OSError.
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
