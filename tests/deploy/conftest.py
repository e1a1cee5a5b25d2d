"""One package for all tests: building takes a quarter of a minute."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from made_once import made_once

sys.path.insert(0, str(Path(__file__).parent))

from deploy_packages import build, snapshot, translate


@pytest.fixture(scope="session")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made_once(tmp_path_factory, "tree", snapshot)


@pytest.fixture(scope="session")
def package(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """prod for x86_64, with its translated template."""
    return made_once(tmp_path_factory, "package", lambda out: translate(build(tree, "prod", "x86_64", out)))
