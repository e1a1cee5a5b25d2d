"""Fixtures of the embedded cloud's tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from local_template import GIVEN, create
from local_toycloud import ToyCloud, toy_cloud


@pytest.fixture
def toy(tmp_path: Path) -> Iterator[ToyCloud]:
    """A cloud without duplicates, disorder, lag and machines."""
    folder = tmp_path / "notes"
    folder.mkdir()
    with toy_cloud(folder) as cloud:
        yield ToyCloud(cloud, folder)


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ToyCloud]:
    """The cluster `demo` of the template in a cloud of its own; no machine starts."""
    folder = tmp_path_factory.mktemp("notes")
    with toy_cloud(folder) as cloud:
        toy = ToyCloud(cloud, folder)
        toy.cloud.client("ssm").put_parameter(Name="/images/any", Type="String", Value="ami-0a1b2c3d4e5f60718")
        create(toy, "demo", GIVEN)
        yield toy
