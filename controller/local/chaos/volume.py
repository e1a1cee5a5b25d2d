"""A volume that hangs on command: a file system in a file, whose writers the kernel makes wait, as those of a network
file system with an unreachable server. Linux, root, mkfs.ext4 and util-linux only. Linux, root, mkfs.ext4 and
util-linux only.

It must be mounted where nobody outside sees it (`in_a_mount_namespace`): what a killed hunt leaves goes with its last
process.
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

SIZE = 8 << 30  # at most; the file takes what is used
SECONDS = 60.0
INSIDE = "DYNTRAIN_MOUNT_NAMESPACE"
ALONE = ("unshare", "--mount", "--propagation", "private", "--")  # a command after it has a mount namespace of its own
# Says a line once nobody can write. Thaws after the time, and as soon as its input ends: with whoever froze it. `read`
# knows no time limit in sh. Whoever should read the line may be gone by then, and that must not end it before it thaws.
HANG = (
    'trap "" PIPE; fsfreeze --freeze "$1" || exit 1; echo frozen; timeout "$2" cat >/dev/null; fsfreeze --unfreeze "$1"'
)


class VolumeUnavailable(LocalCloudError):
    """Raised when this host or user cannot create file systems."""


def in_a_mount_namespace(arguments: Sequence[str]) -> None:
    """Restart this program inside a mount namespace, in the same process, unless it is in one already."""
    if not _inside() and shutil.which("unshare"):
        note_inside()
        os.execvp(ALONE[0], [*ALONE, sys.executable, "-m", "dyntrain", *arguments])  # noqa: S606


def note_inside() -> None:
    """Note that this process is in such a namespace: it was started by `ALONE`, or enters it now."""
    os.environ[INSIDE] = str(os.getpid())


def _inside() -> bool:
    return os.environ.get(INSIDE) == str(os.getpid())


class HangingVolume:
    """A volume at `mount`, which need not exist. `close` makes it a folder again."""

    def __init__(self, mount: Path) -> None:
        self._mount, self._image = mount, mount.with_suffix(".image")
        self._hangs: subprocess.Popen[bytes] | None = None

    def make(self) -> None:
        """Create and mount it. Raises VolumeUnavailable."""
        if not _inside():
            raise VolumeUnavailable("a volume that hangs wants a mount namespace of its own")
        self._mount.mkdir(parents=True, exist_ok=True)
        with self._image.open("wb") as image:
            image.truncate(SIZE)
        _run("mkfs.ext4", "-q", str(self._image))
        _run("mount", "-o", "loop", str(self._image), str(self._mount))

    def hang(self, seconds: float) -> bool:
        """Make writers wait, for at most so long; False when they did already. Reading still works."""
        if self._hangs is not None and self._hangs.poll() is None:
            return False
        self.go_on()
        command = ["sh", "-c", HANG, "sh", str(self._mount), f"{seconds:.1f}"]
        self._hangs = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C must not end it between the two
        )
        assert self._hangs.stdout is not None
        answered, _, _ = select.select([self._hangs.stdout], [], [], SECONDS)
        if answered and self._hangs.stdout.readline():
            return True
        self.go_on()
        return False

    def go_on(self) -> bool:
        """Let writers go on; returns whether the volume was hanging."""
        if self._hangs is None:
            return False
        assert self._hangs.stdin is not None
        assert self._hangs.stdout is not None
        self._hangs.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):  # a freeze that waits itself: it thaws when it is through
            self._hangs.wait(SECONDS)
        self._hangs.stdout.close()
        self._hangs = None
        return True

    def close(self, keep: bool = False) -> None:
        """Unmount. `keep`: the folder has the content afterwards."""
        self.go_on()
        aside = self._mount.with_suffix(".kept")
        if keep:
            # what is written meanwhile may go while it is copied
            subprocess.run(["cp", "-a", str(self._mount), str(aside)], check=False, capture_output=True)
        subprocess.run(["umount", "--lazy", str(self._mount)], check=False, capture_output=True, timeout=SECONDS)
        if aside.exists():
            shutil.rmtree(self._mount, ignore_errors=True)
            aside.rename(self._mount)
        self._image.unlink(missing_ok=True)


def _run(*command: str) -> None:
    try:
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=SECONDS)
    except FileNotFoundError as error:
        raise VolumeUnavailable(f"{command[0]} is not there (packages e2fsprogs, mount)") from error
    except subprocess.SubprocessError as error:
        output = getattr(error, "stderr", "") or str(error)
        raise VolumeUnavailable(f"{' '.join(command)}: {' '.join(str(output).split())}") from error
