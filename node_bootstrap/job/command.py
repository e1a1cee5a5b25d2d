"""Prepares the code and packages of the job's command, and runs the command in an unprivileged process."""

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

INSTALL_SECONDS = 1800.0  # time limit of one command that installs packages
DRAIN_SECONDS = 5.0  # time limit for reading the command's last output
PR_SET_PDEATHSIG = 1  # option of prctl(2)


class CommandFailed(Exception):
    """The command could not be prepared or started."""


def unpack(archive: Path, folder: Path) -> None:
    """Unpack `archive` into `folder`, and write nothing outside of `folder`. Raises CommandFailed."""
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
    """Unpack an archive after checks like those of tarfile's filter "data", which Python 3.9 may lack."""
    for member in tar.getmembers():
        target_path = (folder / member.name).resolve()
        if not (member.isfile() or member.isdir()) or folder.resolve() not in (target_path, *target_path.parents):
            raise CommandFailed(f"the code cannot be unpacked: {member.name!r} is a link or outside path")
    tar.extractall(folder)  # noqa: S202


class UserAccount:
    """The account of the user that runs the job's command, where the user None is the current user."""

    def __init__(self, user: str | None) -> None:
        self.user = user
        passwd_entry = None if user is None else pwd.getpwnam(user)
        self.home = os.environ.get("HOME", "/") if passwd_entry is None else passwd_entry.pw_dir
        self._ids = None if passwd_entry is None else (passwd_entry.pw_uid, passwd_entry.pw_gid)

    def set_owner(self, folder: Path) -> None:
        """Make the account that runs the job's program the owner of the folder and of all files in the folder."""
        if self._ids is not None:
            for path in [folder, *folder.rglob("*")]:
                os.chown(path, *self._ids, follow_symlinks=False)

    def popen_options(self) -> dict[str, Any]:
        if self._ids is None:
            return {}
        return {"user": self._ids[0], "group": self._ids[1], "extra_groups": ()}


def install_packages(
    python: str, environment: Path, requirements: Path, env: Mapping[str, str], account: UserAccount, output: Output
) -> None:
    """Install the job's Python packages in `environment`, as the user that runs the job's command.

    Raises CommandFailed.
    """
    venv_argv = [python, "-m", "venv", "--system-site-packages", str(environment)]
    pip_argv = [str(environment / "bin" / "python"), "-m", "pip", "install", "--quiet", "-r", str(requirements)]
    for argv in (venv_argv, pip_argv):
        output.say(" ".join(argv))
        try:
            completed_process = subprocess.run(
                argv,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=INSTALL_SECONDS,
                check=False,
                cwd=str(requirements.parent),
                env={**os.environ, **env, "HOME": account.home},
                **account.popen_options(),
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise CommandFailed(f"{' '.join(argv)}: {error}") from error
        for line in completed_process.stdout.splitlines():
            output.write_line(line)
        if completed_process.returncode:
            raise CommandFailed(f"the packages of {requirements.name} cannot be installed")


class Command:
    """The process of the job's command, which the kernel kills when the node's program dies. Raises CommandFailed."""

    def __init__(
        self,
        argv: list[str],
        folder: Path,
        env: Mapping[str, str],
        account: UserAccount,
        output: Output,
    ) -> None:
        own_pid = os.getpid()
        libc = ctypes.CDLL(None)

        def die_with_parent() -> None:
            libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != own_pid:
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
                **account.popen_options(),
            )
        except OSError as error:
            raise CommandFailed(f"the command cannot be started: {error}") from error
        self._reader = threading.Thread(target=output.copy, args=(self._process.stdout,), daemon=True)
        self._reader.start()

    def exit_code(self) -> int | None:
        """Return the command's exit code, or None while the command runs."""
        return self._process.poll()

    def terminate(self, patience: float) -> None:
        """Send SIGTERM to all processes of the command, and SIGKILL after `patience` seconds.

        After the processes have ended, the command's remaining output is read.
        """
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
    """Return the first `python3` in the search path `path`, or this program's Python if there is none."""
    for folder in path.split(os.pathsep):
        if os.access(os.path.join(folder, "python3"), os.X_OK):
            return os.path.join(folder, "python3")
    return sys.executable
