"""One embedded cloud with a running job for the tests of a module."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from browsing import browser, page
from local_up import LocalUp

__all__ = ["browser", "page", "up"]


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalUp]:
    local_up = LocalUp(tmp_path_factory.mktemp("up"), "--resync-seconds", "5", "--dashboard", "--allow-changes")
    try:
        yield local_up
    finally:
        if local_up.process.poll() is None:
            local_up.interrupt()
