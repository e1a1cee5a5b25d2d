"""What the tests of the deployment share: packages built once, their templates translated, a cloud to deploy to."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

from dyntrain.controller.local.pace import patient

ROOT = Path(__file__).resolve().parents[2]
LINT = ROOT / "build" / "tools" / "lint" / "bin"


def run(*command: object, **more: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, timeout=patient(110), check=False, **more
    )


def snapshot(folder: Path) -> Path:
    """The files that packaging reads, so that nobody's edits come between two builds."""
    for name in ("controller", ".chalice", "training/face"):
        shutil.copytree(
            ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"), copy_function=shutil.copyfile
        )
    for name in ("app.py", "requirements.txt"):
        shutil.copyfile(ROOT / name, folder / name)
    return folder


def build(tree: Path, stage: str, arch: str, out: Path) -> Path:
    done = run(sys.executable, tree / ".chalice" / "package.py", "--stage", stage, "--arch", arch, "--out", out)
    assert done.returncode == 0, done.stderr
    return out


def translate(package: Path) -> Path:
    assert (LINT / "cfn-lint").exists(), "run make build/tools/lint/bin/cfn-lint (make test does)"
    out = package / "translated.json"
    done = run(LINT / "python", ROOT / ".chalice" / "translate.py", package / "sam.json", out)
    assert done.returncode == 0, done.stderr
    return out


def names(package: Path) -> list[str]:
    with zipfile.ZipFile(package / "deployment.zip") as archive:
        return archive.namelist()


def template(package: Path, name: str = "sam.json") -> dict[str, Any]:
    content: dict[str, Any] = json.loads((package / name).read_text())
    return content


def logical(function: str) -> str:
    """The name that Chalice gives a function in the template."""
    return "".join(part.capitalize() for part in function.split("_"))
