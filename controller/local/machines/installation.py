"""The installation from which machines run their programs: a virtual environment in which dyntrain is installed as a
wheel, as on EC2.

Therefore a module that is missing in the wheel is missing on these machines, too, and modules of the user's folders are
not found. Third-party packages are found in this process's folder of packages, without the links of editable installs.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterator
from configparser import RawConfigParser
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path

import dyntrain
from dyntrain.controller.local.errors import InstallationFailed

BUILD_SECONDS = 300.0
KEEP_SECONDS = 24 * 3600.0  # an environment unused for so long belongs to sources that have changed
SOURCES = ("controller", "node_bootstrap", "training", ".chalice", "app.py", "pyproject.toml")
COMPLETE_MARKER = ".complete"


def checkout() -> Path | None:
    """The root of the repository from which dyntrain is imported, or None for an installed wheel."""
    face = Path(dyntrain.__file__).resolve().parent
    return face.parents[1] if (face.parent.name, face.name) == ("training", "face") else None


def node_python() -> str:
    """The Python interpreter for nodes. In a checkout, it belongs to an environment below `build/nodes`, built for each
    state of the sources; otherwise it is this process's interpreter. Raises InstallationFailed.
    """
    root = checkout()
    return sys.executable if root is None else str(installed(root) / "bin" / "python")


def unit_command() -> tuple[str, ...]:
    """The command of the node's systemd unit, with this host's interpreter for nodes, and without the unit's user,
    which only real user data creates. Raises InstallationFailed.
    """
    unit = RawConfigParser(strict=False)
    unit.read_string(files("dyntrain.node_bootstrap").joinpath("dyntrain-node.service").read_text(encoding="utf-8"))
    words = shlex.split(unit["Service"]["ExecStart"])[1:]
    if "--user" in words:
        position = words.index("--user")
        del words[position : position + 2]
    return (node_python(), *words)


def installed(root: Path) -> Path:
    """Build the environment if it does not exist, and return its folder. If several processes run this at once, one
    builds and the others wait.
    """
    environments = root / "build" / "nodes"
    environments.mkdir(parents=True, exist_ok=True)
    with _locked(environments / ".lock"):
        environment = environments / _digest(root)
        if not (environment / COMPLETE_MARKER).exists():
            _remove_old(environments)
            _install(root, environment)
        (environment / COMPLETE_MARKER).touch()
        return environment


def _digest(root: Path) -> str:
    """A digest of the sources, the Python version and the folder of this environment."""
    digest = hashlib.sha256(f"{sys.version}\n{sys.prefix}\n".encode())
    for name in SOURCES:
        source = root / name
        for path in [source] if source.is_file() else sorted(source.rglob("*")):
            if path.is_file() and path.parent.name != "__pycache__":
                content = path.read_bytes()
                digest.update(f"{path.relative_to(root)} {len(content)}\n".encode() + content)
    return digest.hexdigest()[:16]


def _install(root: Path, environment: Path) -> None:
    uv = root / "build" / "tools" / "uv" / "bin" / "uv"
    if not uv.exists():
        raise InstallationFailed(f"embedded nodes need {uv} to build and install their wheel; run `make setup`")
    with tempfile.TemporaryDirectory(prefix="wheel-", dir=environment.parent) as scratch:
        _run(
            uv, "build", "--wheel", "--no-build-isolation", "--python", sys.executable, "--out-dir", scratch, str(root)
        )
        wheel = next(Path(scratch).glob("*.whl"))
        _run(uv, "venv", "--clear", "--python", sys.executable, str(environment))
        _run(uv, "pip", "install", "--no-deps", "--compile-bytecode", "--python", str(environment), str(wheel))
    packages = next(environment.glob("lib/python*/site-packages"))
    # Python reads no .pth files in a folder that a .pth file names, so the checkout's editable install is not found.
    (packages / "third_party.pth").write_text(f"{sysconfig.get_path('purelib')}\n{sysconfig.get_path('platlib')}\n")


def _run(uv: Path, *arguments: str) -> None:
    clean = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    try:
        process = subprocess.run(
            [uv, "--quiet", *arguments], env=clean, capture_output=True, text=True, timeout=BUILD_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InstallationFailed(f"the embedded nodes' wheel could not be installed: {error}") from error
    if process.returncode:
        raise InstallationFailed(f"the embedded nodes' wheel could not be installed: {process.stderr.strip()}")


def _remove_old(environments: Path) -> None:
    for environment in environments.iterdir():
        complete = environment / COMPLETE_MARKER
        if complete.exists() and complete.stat().st_mtime < time.time() - KEEP_SECONDS:
            shutil.rmtree(environment, ignore_errors=True)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
