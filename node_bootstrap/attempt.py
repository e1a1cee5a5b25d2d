"""The number of this bootstrap's life: grows with each start of the node, also over reboots."""

from __future__ import annotations

from pathlib import Path

from node_bootstrap.files import write_atomically


def following(recorded: str | None, now: float) -> int:
    """The attempt after the recorded one.

    A record that is no number restarts at the present second: that is above any count a node can have reached, and
    the controller ignores attempts below the highest it knows.
    """
    if recorded is None:
        return 1
    text = recorded.strip()
    return int(text) + 1 if text.isascii() and text.isdigit() else int(now)


def next_attempt(path: Path, now: float) -> int:
    """Count this life, on disk before it is used. Raises OSError."""
    recorded = path.read_text(encoding="utf-8", errors="replace") if path.exists() else None
    attempt = following(recorded, now)
    write_atomically(path, f"{attempt}\n")
    return attempt
