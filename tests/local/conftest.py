"""Fixtures of the embedded cloud's tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from local_toycloud import ToyCloud, toy_cloud


@pytest.fixture
def toy(tmp_path: Path) -> Iterator[ToyCloud]:
    """A cloud without duplicates, disorder, lag and machines."""
    folder = tmp_path / "notes"
    folder.mkdir()
    with toy_cloud(folder) as cloud:
        yield ToyCloud(cloud, folder)
