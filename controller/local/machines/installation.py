"""Build the virtual environment from which machines run their programs. In the virtual environment, dyntrain is
installed from a wheel, as on EC2.

Because of the wheel, a module that is missing in the wheel is also missing on the emulated machines. Programs on
machines find no modules in the user's folders. Third-party packages come from this process's site-packages folder,
where links of editable installs have no effect for machines.
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

UV_COMMAND_SECONDS = 300.0  # limit for a command of uv
UNUSED_SECONDS = 24 * 3600.0  # an environment unused for so long belongs to sources that have changed
SOURCE_NAMES = ("controller", "node_bootstrap", "training", ".chalice", "app.py", "pyproject.toml")
COMPLETE_MARKER = ".complete"


def repository_root() -> Path | None:
    """The root of the repository from which dyntrain is imported, or None if dyntrain is an installed wheel."""
    package_dir = Path(dyntrain.__file__).resolve().parent
    return package_dir.parents[1] if (package_dir.parent.name, package_dir.name) == ("training", "face") else None


def node_python() -> str:
    """The path of the Python interpreter for nodes. If dyntrain runs from its repository, the interpreter is in an
    environment below `build/nodes`, which is built again when the sources change. If dyntrain is an installed wheel,
    the result is this process's interpreter. Raises InstallationFailed.
    """
    root = repository_root()
    return sys.executable if root is None else str(build_environment(root) / "bin" / "python")


def unit_command() -> tuple[str, ...]:
    """The command of the node's systemd unit, with this host's Python interpreter for nodes. The option --user is
    removed, because only real user data creates the user that the option names. Raises InstallationFailed.
    """
    unit_file = RawConfigParser(strict=False)
    unit_file.read_string(
        files("dyntrain.node_bootstrap").joinpath("dyntrain-node.service").read_text(encoding="utf-8")
    )
    unit_arguments = shlex.split(unit_file["Service"]["ExecStart"])[1:]
    if "--user" in unit_arguments:
        option_index = unit_arguments.index("--user")
        del unit_arguments[option_index : option_index + 2]
    return (node_python(), *unit_arguments)


def build_environment(root: Path) -> Path:
    """Build the nodes' virtual environment if it does not exist, and return the environment's folder. If several
    processes call this function at once, one process builds the environment and every other process waits.
    """
    environments_folder = root / "build" / "nodes"
    environments_folder.mkdir(parents=True, exist_ok=True)
    with _exclusive_lock(environments_folder / ".lock"):
        environment_folder = environments_folder / _source_digest(root)
        if not (environment_folder / COMPLETE_MARKER).exists():
            _remove_unused_environments(environments_folder)
            _install_wheel(root, environment_folder)
        (environment_folder / COMPLETE_MARKER).touch()
        return environment_folder


def _source_digest(root: Path) -> str:
    """A digest of the source files, the Python version and the folder of this process's environment."""
    digest = hashlib.sha256(f"{sys.version}\n{sys.prefix}\n".encode())
    for source_name in SOURCE_NAMES:
        source_path = root / source_name
        for path in [source_path] if source_path.is_file() else sorted(source_path.rglob("*")):
            if path.is_file() and path.parent.name != "__pycache__":
                source_bytes = path.read_bytes()
                digest.update(f"{path.relative_to(root)} {len(source_bytes)}\n".encode() + source_bytes)
    return digest.hexdigest()[:16]


def _install_wheel(root: Path, environment: Path) -> None:
    uv_path = root / "build" / "tools" / "uv" / "bin" / "uv"
    if not uv_path.exists():
        raise InstallationFailed(f"embedded nodes need {uv_path} to build and install their wheel; run `make setup`")
    with tempfile.TemporaryDirectory(prefix="wheel-", dir=environment.parent) as wheel_folder:
        _run_uv(
            uv_path,
            "build",
            "--wheel",
            "--no-build-isolation",
            "--python",
            sys.executable,
            "--out-dir",
            wheel_folder,
            str(root),
        )
        wheel = next(Path(wheel_folder).glob("*.whl"))
        _run_uv(uv_path, "venv", "--clear", "--python", sys.executable, str(environment))
        _run_uv(uv_path, "pip", "install", "--no-deps", "--compile-bytecode", "--python", str(environment), str(wheel))
    site_packages = next(environment.glob("lib/python*/site-packages"))
    # Python reads no .pth files in a folder that a .pth file names, so the checkout's editable install is not found.
    (site_packages / "third_party.pth").write_text(
        f"{sysconfig.get_path('purelib')}\n{sysconfig.get_path('platlib')}\n"
    )


def _run_uv(uv_path: Path, *arguments: str) -> None:
    clean_variables = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    try:
        process = subprocess.run(
            [uv_path, "--quiet", *arguments],
            env=clean_variables,
            capture_output=True,
            text=True,
            timeout=UV_COMMAND_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InstallationFailed(f"the embedded nodes' wheel could not be installed: {error}") from error
    if process.returncode:
        raise InstallationFailed(f"the embedded nodes' wheel could not be installed: {process.stderr.strip()}")


def _remove_unused_environments(environments_folder: Path) -> None:
    for environment_folder in environments_folder.iterdir():
        complete_marker = environment_folder / COMPLETE_MARKER
        if complete_marker.exists() and complete_marker.stat().st_mtime < time.time() - UNUSED_SECONDS:
            shutil.rmtree(environment_folder, ignore_errors=True)


@contextmanager
def _exclusive_lock(path: Path) -> Iterator[None]:
    with path.open("w") as lock_file:
        fcntl.flock(lock_file, fcntl.LOCK_EX)
        yield
