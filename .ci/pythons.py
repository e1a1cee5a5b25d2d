"""Installs a node as documented, with each Python that pyproject lists for MXNet, and runs a small job.

    python .ci/pythons.py

It builds the wheel, installs it into an environment of its own, and imports MXNet in an ordinary program. Exit code 0:
all of them train; 1: one does not, or is missing on this machine, as a line says.
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
VERSION_CLASSIFIER = re.compile(r'"Programming Language :: Python :: (3\.\d+)"')
SECONDS = 900


def main() -> int:
    """Try all versions; returns the exit code."""
    errors = {version: try_version(version) for version in versions((ROOT / "pyproject.toml").read_text())}
    for version, error in errors.items():
        sys.stdout.write(f"Python {version}: {error or 'trains'}\n")
    return 1 if any(errors.values()) else 0


def versions(project: str) -> list[str]:
    """The versions that MXNet is installed with."""
    without = re.search(r"mxnet==[^;]*; python_version < '3\.(\d+)'", project)
    assert without is not None, "pyproject says up to which Python MXNet is installed"
    return [
        version for version in VERSION_CLASSIFIER.findall(project) if int(version.partition(".")[2]) < int(without[1])
    ]


def try_version(version: str) -> str:
    """Error of this version; "" if it trains."""
    python = find_python(version)
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
            if error := run_command(command, place):
                return f"{name}: {error}"
        (wheel,) = (place / "dist").glob("*.whl")
        shutil.copy(ROOT / "tests" / "training" / "tiny_job.py", place / "train.py")
        job = ["-n", "1", "--launcher", "local", inside, "train.py", "--epochs", "2", "--step-seconds", "0"]
        steps = {
            "install": [inside, "-m", "pip", "install", "--quiet", f"dyntrain[node,cpu] @ {wheel.as_uri()}"],
            "import": [inside, "-c", "import mxnet; mxnet.nd.ones(1).asnumpy()"],
            "job": [inside, "-m", "dyntrain", "launch", *job],
        }
        for name, command in steps.items():
            if error := run_command(command, place):
                return f"{name}: {error}"
    return ""


def find_python(version: str) -> str | None:
    """Path of this Python: pyenv's own one first, since pyenv's program on PATH may only say how to activate it."""
    own = sorted(map(str, (Path.home() / ".pyenv" / "versions").glob(f"{version}.*/bin/python")))
    return own[-1] if own else shutil.which(f"python{version}")


def run_command(command: Iterable[str], folder: Path) -> str:
    """Run a command; returns the last line of its output if it failed, else ""."""
    result = subprocess.run(
        list(command),
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS,
        stdin=subprocess.DEVNULL,
    )
    lines = (result.stdout + result.stderr).strip().splitlines()
    return (
        "" if result.returncode == 0 else f"exit code {result.returncode}: {lines[-1] if lines else 'without a word'}"
    )


if __name__ == "__main__":
    sys.exit(main())
