"""One package for all tests: building takes seconds."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from deploy_packages import build, snapshot, translate


@pytest.fixture(scope="session")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return snapshot(tmp_path_factory.mktemp("tree"))


@pytest.fixture(scope="session")
def package(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """prod for x86_64, with its translated template."""
    out = build(tree, "prod", "x86_64", tmp_path_factory.mktemp("package") / "prod-x86_64")
    translate(out)
    return out
