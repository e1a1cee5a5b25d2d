"""The installation from which machines run their programs: an environment in which dyntrain is installed as a wheel, as
on EC2.

So what works here works on nodes: a module that is missing in the wheel is missing here too, and a person's own folders
do not mix with ours. Third-party packages are those of this process, by their folder and without the links of editable
installs.
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
KEEP_SECONDS = 24 * 3600.0  # an environment that nothing was started from for so long is of sources that are gone
SOURCES = ("controller", "node_bootstrap", "training", ".chalice", "app.py", "pyproject.toml")
COMPLETE = ".complete"


def checkout() -> Path | None:
    """The root of the repository that dyntrain is imported from; None where it is installed from a wheel."""
    face = Path(dyntrain.__file__).resolve().parent
    return face.parents[1] if (face.parent.name, face.name) == ("training", "face") else None


def node_python() -> str:
    """The interpreter of the installation: this one, or in a checkout that of an environment below `build/nodes`, which
    is built at the first use of each state of the sources. Raises InstallationFailed.
    """
    root = checkout()
    return sys.executable if root is None else str(installed(root) / "bin" / "python")


def unit_command() -> tuple[str, ...]:
    """The last part of a node's user data: the unit's command, with this host's interpreter for nodes, and without the
    user that the lines before it create. Raises InstallationFailed.
    """
    unit = RawConfigParser(strict=False)
    unit.read_string(files("dyntrain.node_bootstrap").joinpath("dyntrain-node.service").read_text(encoding="utf-8"))
    words = shlex.split(unit["Service"]["ExecStart"])[1:]
    if "--user" in words:
        at = words.index("--user")
        del words[at : at + 2]
    return (node_python(), *words)


def installed(root: Path) -> Path:
    """Build the installation once. Several processes may ask at once: one builds, the others wait for it."""
    environments = root / "build" / "nodes"
    environments.mkdir(parents=True, exist_ok=True)
    with _locked(environments / ".lock"):
        here = environments / _digest(root)
        if not (here / COMPLETE).exists():
            _forget_old(environments)
            _install(root, here)
        (here / COMPLETE).touch()
        return here


def _digest(root: Path) -> str:
    """A digest of the sources, and of what they are installed beside."""
    digest = hashlib.sha256(f"{sys.version}\n{sys.prefix}\n".encode())
    for name in SOURCES:
        place = root / name
        for path in [place] if place.is_file() else sorted(place.rglob("*")):
            if path.is_file() and path.parent.name != "__pycache__":
                content = path.read_bytes()
                digest.update(f"{path.relative_to(root)} {len(content)}\n".encode() + content)
    return digest.hexdigest()[:16]


def _install(root: Path, here: Path) -> None:
    uv = root / "build" / "tools" / "uv" / "bin" / "uv"
    if not uv.exists():
        raise InstallationFailed(f"embedded nodes run from an installed wheel, which {uv} makes: run `make setup`")
    with tempfile.TemporaryDirectory(prefix="wheel-", dir=here.parent) as scratch:
        _run(
            uv, "build", "--wheel", "--no-build-isolation", "--python", sys.executable, "--out-dir", scratch, str(root)
        )
        wheel = next(Path(scratch).glob("*.whl"))
        _run(uv, "venv", "--clear", "--python", sys.executable, str(here))
        _run(uv, "pip", "install", "--no-deps", "--compile-bytecode", "--python", str(here), str(wheel))
    packages = next(here.glob("lib/python*/site-packages"))
    # A folder that a .pth file names is not searched for more of them: the editable install of the checkout stays out.
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


def _forget_old(environments: Path) -> None:
    for other in environments.iterdir():
        complete = other / COMPLETE
        if complete.exists() and complete.stat().st_mtime < time.time() - KEEP_SECONDS:
            shutil.rmtree(other, ignore_errors=True)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
