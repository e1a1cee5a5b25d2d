"""The wheel and the sdist, built once, and fresh environments with one of the installs."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from made_once import made_once
from packaging_environment import Distributions, Environment, uv


@pytest.fixture(scope="session")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> Distributions:
    def make(folder: Path) -> None:
        uv("build", "--no-build-isolation", "--python", sys.executable, "--out-dir", folder / "dist")
        uv("build", "--wheel", "--no-build-isolation", "--python", sys.executable, "--out-dir", folder / "direct")

    built = made_once(tmp_path_factory, "distributions", make)
    out, direct = built / "dist", built / "direct"
    return Distributions(next(out.glob("*.tar.gz")), next(out.glob("*.whl")), next(direct.glob("*.whl")))


@pytest.fixture(scope="session")
def fresh(distributions: Distributions, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Environment]:
    """Makes an environment with `dyntrain` or `dyntrain[EXTRAS]`, each once. The versions are those of uv.lock, which
    are here already.
    """
    environments: dict[str, Environment] = {}
    constraints = tmp_path_factory.mktemp("constraints") / "constraints.txt"
    uv(
        "export",
        "--frozen",
        "--all-extras",
        "--no-dev",
        "--no-emit-project",
        "--no-hashes",
        "--output-file",
        constraints,
    )

    def environment(extras: str = "") -> Environment:
        if extras not in environments:
            place = tmp_path_factory.mktemp("environment")
            wanted = f"dyntrain[{extras}] @ {distributions.wheel.as_uri()}"
            uv("venv", "--clear", "--python", sys.executable, place)
            uv("pip", "install", "--python", place, "--constraint", constraints, wanted)
            environments[extras] = Environment(place)
        return environments[extras]

    return environment
