"""The job's command: its code and packages, and the unprivileged process that runs it."""

from __future__ import annotations

import contextlib
import ctypes
import os
import pwd
import signal
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dyntrain.node_bootstrap.job.output import Output

INSTALL_SECONDS = 1800.0
DRAIN_SECONDS = 5.0
PR_SET_PDEATHSIG = 1


class CommandFailed(Exception):
    """The command could not be prepared or started."""


def unpack(archive: Path, folder: Path) -> None:
    """Unpack the archive, and write nothing outside of the folder. Raises CommandFailed."""
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with tarfile.open(archive, "r:*") as tar:
            if hasattr(tarfile, "data_filter"):
                tar.extractall(folder, filter="data")
                return
            unpack_without_filter(tar, folder)
    except (tarfile.TarError, OSError, EOFError) as error:
        raise CommandFailed(f"the code cannot be unpacked: {error}") from error


def unpack_without_filter(tar: tarfile.TarFile, folder: Path) -> None:
    """Check as tarfile's filter, which early releases of Python 3.9 lack, and unpack."""
    for member in tar.getmembers():
        target = (folder / member.name).resolve()
        if not (member.isfile() or member.isdir()) or folder.resolve() not in (target, *target.parents):
            raise CommandFailed(f"the code has {member.name!r}, a link or outside path, which is not allowed")
    tar.extractall(folder)  # noqa: S202


class Account:
    """The user that runs the command; None: the current user."""

    def __init__(self, user: str | None) -> None:
        self.user = user
        entry = None if user is None else pwd.getpwnam(user)
        self.home = os.environ.get("HOME", "/") if entry is None else entry.pw_dir
        self._ids = None if entry is None else (entry.pw_uid, entry.pw_gid)

    def set_owner(self, folder: Path) -> None:
        """Change the owner of the folder and its content."""
        if self._ids is not None:
            for path in [folder, *folder.rglob("*")]:
                os.chown(path, *self._ids, follow_symlinks=False)

    def options(self) -> dict[str, Any]:
        if self._ids is None:
            return {}
        return {"user": self._ids[0], "group": self._ids[1], "extra_groups": ()}


def install(
    python: str, environment: Path, requirements: Path, env: Mapping[str, str], account: Account, output: Output
) -> None:
    """Install packages besides the image's, as the command's user. Raises CommandFailed."""
    venv = [python, "-m", "venv", "--system-site-packages", str(environment)]
    pip = [str(environment / "bin" / "python"), "-m", "pip", "install", "--quiet", "-r", str(requirements)]
    for argv in (venv, pip):
        output.say(" ".join(argv))
        try:
            result = subprocess.run(
                argv,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=INSTALL_SECONDS,
                check=False,
                cwd=str(requirements.parent),
                env={**os.environ, **env, "HOME": account.home},
                **account.options(),
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise CommandFailed(f"{' '.join(argv)}: {error}") from error
        for line in result.stdout.splitlines():
            output.line(line)
        if result.returncode:
            raise CommandFailed(f"the packages of {requirements.name} cannot be installed")


class Command:
    """A process that is killed when this program dies. Raises CommandFailed."""

    def __init__(
        self,
        argv: list[str],
        folder: Path,
        env: Mapping[str, str],
        account: Account,
        output: Output,
    ) -> None:
        parent = os.getpid()
        libc = ctypes.CDLL(None)

        def die_with_parent() -> None:
            libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != parent:
                os.kill(os.getpid(), signal.SIGKILL)

        try:
            self._process = subprocess.Popen(
                argv,
                cwd=str(folder),
                env=dict(env),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=die_with_parent,
                **account.options(),
            )
        except OSError as error:
            raise CommandFailed(f"the command cannot be started: {error}") from error
        self._reader = threading.Thread(target=output.copy, args=(self._process.stdout,), daemon=True)
        self._reader.start()

    def code(self) -> int | None:
        """Exit code; None while the command runs."""
        return self._process.poll()

    def end(self, patience: float) -> None:
        """Send SIGTERM, then SIGKILL after `patience` seconds, to all processes of the command; read its output."""
        with contextlib.suppress(OSError):
            os.killpg(self._process.pid, signal.SIGTERM)
        deadline = time.monotonic() + patience
        while self._process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.05)
        with contextlib.suppress(OSError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._reader.join(DRAIN_SECONDS)
        if self._process.stdout is not None and not self._reader.is_alive():
            self._process.stdout.close()


def python_of(path: str) -> str:
    """Path of the `python3` that the command would run."""
    for folder in path.split(os.pathsep):
        if os.access(os.path.join(folder, "python3"), os.X_OK):
            return os.path.join(folder, "python3")
    return sys.executable
