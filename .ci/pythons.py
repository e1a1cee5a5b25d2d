"""A node as the documents install it, with each Python that pyproject names for MXNet: the wheel into an environment of
its own, MXNet imported in a program of anybody's, and a small job.

    python .ci/pythons.py

Exit code 0: with each of them that trains; 1: one does not, or is not on this machine, which a line says.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parents[1]
UV = ROOT / "build" / "tools" / "uv" / "bin" / "uv"
NAMED = re.compile(r'"Programming Language :: Python :: (3\.\d+)"')
SECONDS = 900


def main() -> int:
    trained = {version: tried(version) for version in versions((ROOT / "pyproject.toml").read_text())}
    for version, said in trained.items():
        sys.stdout.write(f"Python {version}: {said or 'trains'}\n")
    return 1 if any(trained.values()) else 0


def versions(project: str) -> list[str]:
    """Those that MXNet is installed with."""
    without = re.search(r"mxnet==[^;]*; python_version < '3\.(\d+)'", project)
    assert without is not None, "pyproject says up to which Python MXNet is installed"
    return [version for version in NAMED.findall(project) if int(version.partition(".")[2]) < int(without[1])]


def tried(version: str) -> str:
    """What is wrong; "" where it trains."""
    python = found(version)
    if python is None:
        return "not on this machine"
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        inside = str(place / "node" / "bin" / "python")
        steps: dict[str, list[str]] = {
            "venv": [python, "-m", "venv", str(place / "node")],
            "wheel": [str(UV), "build", "--quiet", "--wheel", "--out-dir", str(place / "dist"), str(ROOT)],
        }
        for name, command in steps.items():
            if said := ran(command, place):
                return f"{name}: {said}"
        (wheel,) = (place / "dist").glob("*.whl")
        shutil.copy(ROOT / "tests" / "training" / "tiny_job.py", place / "train.py")
        job = ["-n", "1", "--launcher", "local", inside, "train.py", "--epochs", "2", "--step-seconds", "0"]
        steps = {
            "install": [inside, "-m", "pip", "install", "--quiet", f"dyntrain[node,cpu] @ {wheel.as_uri()}"],
            "import": [inside, "-c", "import mxnet; mxnet.nd.ones(1).asnumpy()"],
            "job": [inside, "-m", "dyntrain", "launch", *job],
        }
        for name, command in steps.items():
            if said := ran(command, place):
                return f"{name}: {said}"
    return ""


def found(version: str) -> str | None:
    """Where pyenv keeps its own, or on PATH: what pyenv has there may only say how to be switched on."""
    own = sorted(map(str, (Path.home() / ".pyenv" / "versions").glob(f"{version}.*/bin/python")))
    return own[-1] if own else shutil.which(f"python{version}")


def ran(command: Iterable[str], folder: Path) -> str:
    """The last line of what it said, where it failed."""
    done = subprocess.run(
        list(command),
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS,
        stdin=subprocess.DEVNULL,
    )
    lines = (done.stdout + done.stderr).strip().splitlines()
    return "" if done.returncode == 0 else f"exit code {done.returncode}: {lines[-1] if lines else 'without a word'}"


if __name__ == "__main__":
    sys.exit(main())
