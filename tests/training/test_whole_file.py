"""What would break for a user: a full volume in the moment of a takeover leaves half a claim, which no coordinator can
read, and the job cannot be taken over any more.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from dyntrain.training.coordinator.whole_file import write_whole


def test_a_full_volume_leaves_the_old_content_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "claim.json"
    write_whole(path, b"old")

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "no space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="no space left"):
        write_whole(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]
