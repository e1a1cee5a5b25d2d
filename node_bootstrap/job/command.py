"""The person's command: its code and packages, and the process that runs it without rights."""

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
    """It could not be made ready."""


def unpack(archive: Path, folder: Path) -> None:
    """Raises CommandFailed; nothing is written outside of the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with tarfile.open(archive, "r:*") as tar:
            if hasattr(tarfile, "data_filter"):
                tar.extractall(folder, filter="data")
                return
            unfiltered(tar, folder)
    except (tarfile.TarError, OSError, EOFError) as error:
        raise CommandFailed(f"the code cannot be unpacked: {error}") from error


def unfiltered(tar: tarfile.TarFile, folder: Path) -> None:
    """As by the filter, which the first patch releases of 3.9 lack."""
    for member in tar.getmembers():
        inside = (folder / member.name).resolve()
        if not (member.isfile() or member.isdir()) or folder.resolve() not in (inside, *inside.parents):
            raise CommandFailed(f"the code has {member.name!r}, which is not taken")
    tar.extractall(folder)  # noqa: S202


class Account:
    """Who runs the command; `user` None: whoever runs this program."""

    def __init__(self, user: str | None) -> None:
        self.user = user
        found = None if user is None else pwd.getpwnam(user)
        self.home = os.environ.get("HOME", "/") if found is None else found.pw_dir
        self._ids = None if found is None else (found.pw_uid, found.pw_gid)

    def give(self, folder: Path) -> None:
        """The folder and what is in it."""
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
    """Packages beside those of the image, as the user who runs the command; `env` may name pip's index.
    Raises CommandFailed.
    """
    words = [python, "-m", "venv", "--system-site-packages", str(environment)]
    pip = [str(environment / "bin" / "python"), "-m", "pip", "install", "--quiet", "-r", str(requirements)]
    for argv in (words, pip):
        output.say(" ".join(argv))
        try:
            done = subprocess.run(
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
        for line in done.stdout.splitlines():
            output.line(line)
        if done.returncode:
            raise CommandFailed(f"the packages of {requirements.name} cannot be installed")


class Command:
    """Runs in a session of its own, and dies with this program."""

    def __init__(
        self,
        argv: list[str],
        folder: Path,
        env: Mapping[str, str],
        account: Account,
        output: Output,
    ) -> None:
        """Raises CommandFailed."""
        parent = os.getpid()
        libc = ctypes.CDLL(None)

        def in_child() -> None:
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
                preexec_fn=in_child,
                **account.options(),
            )
        except OSError as error:
            raise CommandFailed(f"the command cannot be started: {error}") from error
        self._reader = threading.Thread(target=output.copy, args=(self._process.stdout,), daemon=True)
        self._reader.start()

    def code(self) -> int | None:
        """None while it runs."""
        return self._process.poll()

    def end(self, patience: float) -> None:
        """SIGTERM, after `patience` SIGKILL, to all that it started; then its last output is read."""
        with contextlib.suppress(OSError):
            os.killpg(self._process.pid, signal.SIGTERM)
        until = time.monotonic() + patience
        while self._process.poll() is None and time.monotonic() < until:
            time.sleep(0.05)
        with contextlib.suppress(OSError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._reader.join(DRAIN_SECONDS)
        if self._process.stdout is not None and not self._reader.is_alive():
            self._process.stdout.close()


def python_of(path: str) -> str:
    """The `python3` that the command would find."""
    for folder in path.split(os.pathsep):
        if os.access(os.path.join(folder, "python3"), os.X_OK):
            return os.path.join(folder, "python3")
    return sys.executable
