"""The success marker's file, `prepare_data_success_<private-ip>` on the shared volume, and the script that it vouches for."""

from __future__ import annotations

import hashlib
from pathlib import Path

from node_bootstrap.files import write_atomically
from node_bootstrap.marker import Marker


def marker_path(mount: str, private_ip: str) -> Path:
    return Path(mount) / f"prepare_data_success_{private_ip}"


def read_marker(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return None


def write_marker(path: Path, marker: Marker) -> None:
    """Raises OSError, and leaves the earlier marker or none then."""
    write_atomically(path, marker.model_dump_json() + "\n")


def drop_marker(path: Path) -> None:
    """A marker that does not count must not be seen by scripts that only look for the name."""
    path.unlink(missing_ok=True)


def script_digest(script: str) -> str:
    """Raises OSError when the script cannot be read."""
    return hashlib.sha256(Path(script).read_bytes()).hexdigest()
