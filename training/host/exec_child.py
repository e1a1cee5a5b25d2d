"""Becomes the program given, after arranging that it dies with the supervisor that started it. Run as a script by its
path, so it imports the standard library alone; the one place that asks the kernel for the death signal.

argv: PARENT_PID NICE [--cwd=DIRECTORY] [--user=NAME] PROGRAM [ARGUMENT...]. It is a program of its own, not a hook
between fork and exec, because the supervisor has threads: code that runs between fork and exec in such a process may
hang on a lock nobody will release. Exit codes when the program cannot be run are the shell's: 126 not executable, 127
not found.

`PR_SET_PDEATHSIG` fires when the *thread* that forked ends, not the process. So whoever starts such children does it
from a thread that lives as long as they may (as `dyntrain.controller.local.spawner` does).
"""

from __future__ import annotations

import ctypes
import os
import pwd
import signal
import sys
from collections.abc import Mapping

PR_SET_PDEATHSIG = 1
LATER = "DYNTRAIN_LATER_"  # before the name of a variable that only PROGRAM may see
LOADED = ("GCONV_PATH", "GLIBC_TUNABLES", "LOCPATH")  # beside LD_*: what makes the C library load files
_libc = ctypes.CDLL(None, use_errno=True)


def prctl(option: int, value: int) -> None:
    """prctl(2). Raises OSError."""
    if _libc.prctl(option, value, 0, 0, 0) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def die_with_parent(parent: int, number: signal.Signals = signal.SIGKILL) -> None:
    """From now on the end of the parent sends `number` to this process. Raises SystemExit when the parent is no longer
    `parent`, and OSError.
    """
    prctl(PR_SET_PDEATHSIG, number)
    if os.getppid() != parent:  # it died before the line above
        raise SystemExit(1)


def become(name: str) -> bool:
    """Give up this process's rights for those of `name`; says why not."""
    try:
        user = pwd.getpwnam(name)
        if user.pw_uid != os.getuid():
            os.initgroups(name, user.pw_gid)
            os.setgid(user.pw_gid)
            os.setuid(user.pw_uid)
    except (KeyError, OSError) as error:
        reason = "there is no such user" if isinstance(error, KeyError) else error.strerror
        print(f"cannot run as {name}: {reason}", file=sys.stderr)  # noqa: T201
        return False
    os.environ.update(HOME=user.pw_dir, USER=name, LOGNAME=name)
    return True


def withheld(given: Mapping[str, str], own: Mapping[str, str]) -> dict[str, str]:
    """`given`, with the variables under another name that would make this program, which may still be root, load what
    somebody wrote: LD_PRELOAD and its like. Those of the supervisor's `own` may be what its interpreter needs.
    """
    return {
        f"{LATER}{name}" if (name.startswith("LD_") or name in LOADED) and value != own.get(name) else name: value
        for name, value in given.items()
    }


def hand_over() -> None:
    """The opposite, once the rights are given up."""
    for name in [name for name in os.environ if name.startswith(LATER)]:
        os.environ[name.removeprefix(LATER)] = os.environ.pop(name)


def main(parent: int, nice: int, command: list[str]) -> int:
    if nice:
        os.nice(nice)
    if command[0].startswith("--cwd="):
        directory = command.pop(0).removeprefix("--cwd=")
        try:  # here and not by the supervisor, which would stand still with a volume that stalls
            os.chdir(directory)
        except OSError as error:
            print(f"cannot work in {directory}: {error.strerror}", file=sys.stderr)  # noqa: T201
            return 126
    if command[0].startswith("--user=") and not become(command.pop(0).removeprefix("--user=")):
        return 126
    try:
        die_with_parent(parent)  # after the change of user, which would undo it (prctl(2))
    except OSError as error:
        print(f"it would outlive its supervisor: {error}", file=sys.stderr)  # noqa: T201  # this is the child's own log
        return 126
    hand_over()
    for ignored in (signal.SIGPIPE, signal.SIGXFSZ):  # this interpreter ignores them, and exec would pass that on
        signal.signal(ignored, signal.SIG_DFL)
    try:
        os.execvp(command[0], command)  # noqa: S606  # the whole purpose
    except FileNotFoundError as error:
        print(f"{command[0]}: {error.strerror}", file=sys.stderr)  # noqa: T201
        return 127
    except OSError as error:
        print(f"{command[0]}: {error.strerror}", file=sys.stderr)  # noqa: T201
        return 126


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]))
