"""A virtual environment as a person has it, and uv, which makes it."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from dyntrain.controller.local.pace import patient

ROOT = Path(__file__).parents[2]
UV = ROOT / "build" / "tools" / "uv" / "bin" / "uv"
HIDDEN = ("PYTHONPATH", "VIRTUAL_ENV", "PYTHONDONTWRITEBYTECODE")


@dataclass(frozen=True)
class Environment:
    """`place` is the folder of a virtual environment."""

    place: Path

    @property
    def python(self) -> Path:
        return self.place / "bin" / "python"

    @property
    def variables(self) -> dict[str, str]:
        """Of a shell in which it is activated: nothing of this checkout, nothing of AWS."""
        kept = {name: text for name, text in os.environ.items() if name not in HIDDEN and not name.startswith("AWS_")}
        return {
            **kept,
            "PATH": os.pathsep.join([str(self.place / "bin"), os.environ["PATH"]]),
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_CONFIG_FILE": "/nonexistent",
            "AWS_SHARED_CREDENTIALS_FILE": "/nonexistent",
        }

    def run(self, *command: str | Path, here: Path, **more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(self.place / "bin" / command[0]), *map(str, command[1:])],
            env={**self.variables, **more},
            cwd=here,
            capture_output=True,
            text=True,
            timeout=patient(30),
            check=False,
        )


@dataclass(frozen=True)
class Distributions:
    """`wheel` was built from `sdist`; `direct` from the checkout."""

    sdist: Path
    wheel: Path
    direct: Path


def uv(*arguments: str | Path) -> str:
    done = subprocess.run(
        [UV, "--quiet", *map(str, arguments)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=patient(60),
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
