"""A volume that can hang on request. The volume is a file system in a file; the kernel can make all writers of the file
system wait. Writers of a hanging volume wait like writers of a network file system whose server is unreachable. The
volume needs Linux, root, mkfs.ext4 and util-linux.

The volume must be mounted in a private mount namespace (`enter_mount_namespace`). Because of the private namespace, the
kernel removes the mount of a killed hunt as soon as the hunt's last process ends.
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from dyntrain.controller.local.errors import LocalCloudError

VOLUME_BYTES = 8 << 30  # bytes at most; the sparse file takes only the used space
COMMAND_SECONDS = 60.0  # limit for a command such as mount
NAMESPACE_VARIABLE = "DYNTRAIN_MOUNT_NAMESPACE"  # id of the process that has its own mount namespace
# the prefix that runs a command in a new mount namespace
UNSHARE_MOUNTS = ("unshare", "--mount", "--propagation", "private", "--")
# The script prints a line when the file system is frozen. It thaws the file system after the time limit, or when its
# input ends with the calling process. The script ignores SIGPIPE, because it must thaw even if nobody reads the line.
# `cat` waits for the input, because `read` of sh knows no time limit.
FREEZE_SCRIPT = (
    'trap "" PIPE; fsfreeze --freeze "$1" || exit 1; echo frozen; timeout "$2" cat >/dev/null; fsfreeze --unfreeze "$1"'
)


class VolumeUnavailable(LocalCloudError):
    """Raised when a file system cannot be created or mounted on this host, or by this user."""


def enter_mount_namespace(arguments: Sequence[str]) -> None:
    """Restart this program in a mount namespace of its own; the process id stays the same. Does nothing if the program
    already has its own mount namespace, or if the program `unshare` is not installed.
    """
    if not _in_own_namespace() and shutil.which("unshare"):
        record_own_namespace()
        os.execvp(UNSHARE_MOUNTS[0], [*UNSHARE_MOUNTS, sys.executable, "-m", "dyntrain", *arguments])  # noqa: S606


def record_own_namespace() -> None:
    """Record that this process has, or will have after its next exec, a mount namespace of its own."""
    os.environ[NAMESPACE_VARIABLE] = str(os.getpid())


def _in_own_namespace() -> bool:
    return os.environ.get(NAMESPACE_VARIABLE) == str(os.getpid())


class HangingVolume:
    """A volume that can hang, mounted at the folder `mount`, which is created if necessary. `close` unmounts the
    volume.
    """

    def __init__(self, mount: Path) -> None:
        self._mount, self._image = mount, mount.with_suffix(".image")
        self._freezer: subprocess.Popen[bytes] | None = None

    def create_and_mount(self) -> None:
        """Create the volume's file system, and mount the file system at `mount`. Raises VolumeUnavailable."""
        if not _in_own_namespace():
            raise VolumeUnavailable(
                "a volume that hangs needs a mount namespace of its own, from the program unshare (package util-linux)"
            )
        self._mount.mkdir(parents=True, exist_ok=True)
        with self._image.open("wb") as image_file:
            image_file.truncate(VOLUME_BYTES)
        _run_command("mkfs.ext4", "-q", str(self._image))
        _run_command("mount", "-o", "loop", str(self._image), str(self._mount))

    def hang(self, seconds: float) -> bool:
        """Make writers of the volume wait, for at most `seconds`, while reading still works. Returns False if the
        volume already hangs or if the file system cannot be frozen, otherwise True.
        """
        if self._freezer is not None and self._freezer.poll() is None:
            return False
        self.resume()
        command = ["sh", "-c", FREEZE_SCRIPT, "sh", str(self._mount), f"{seconds:.1f}"]
        self._freezer = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C must not end the script between freeze and thaw
        )
        assert self._freezer.stdout is not None
        readable_files, _, _ = select.select([self._freezer.stdout], [], [], COMMAND_SECONDS)
        if readable_files and self._freezer.stdout.readline():
            return True
        self.resume()
        return False

    def resume(self) -> bool:
        """Let writers of the volume continue. Returns whether the volume was hanging."""
        if self._freezer is None:
            return False
        assert self._freezer.stdin is not None
        assert self._freezer.stdout is not None
        self._freezer.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):  # a freeze that still waits thaws later
            self._freezer.wait(COMMAND_SECONDS)
        self._freezer.stdout.close()
        self._freezer = None
        return True

    def close(self, keep: bool = False) -> None:
        """Unmount the volume. With `keep`, copy the volume's files into the folder where the volume was mounted."""
        self.resume()
        kept_folder = self._mount.with_suffix(".kept")
        if keep:
            # files may vanish while they are copied
            subprocess.run(["cp", "-a", str(self._mount), str(kept_folder)], check=False, capture_output=True)
        subprocess.run(
            ["umount", "--lazy", str(self._mount)], check=False, capture_output=True, timeout=COMMAND_SECONDS
        )
        if kept_folder.exists():
            shutil.rmtree(self._mount, ignore_errors=True)
            kept_folder.rename(self._mount)
        self._image.unlink(missing_ok=True)


def _run_command(*command: str) -> None:
    try:
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=COMMAND_SECONDS)
    except FileNotFoundError as error:
        raise VolumeUnavailable(
            f"the program {command[0]} is missing; install the packages e2fsprogs and mount"
        ) from error
    except subprocess.SubprocessError as error:
        error_output = getattr(error, "stderr", "") or str(error)
        raise VolumeUnavailable(f"`{' '.join(command)}` failed: {' '.join(str(error_output).split())}") from error
