"""Executes the given program, which then dies with the supervisor that started it.

This file runs as a script by its path, so it imports only the standard library. Only this file sets the death signal.

argv: PARENT_PID NICE [--cwd=DIRECTORY] [--user=NAME] PROGRAM [ARGUMENT...]. This is a program and not a hook between
fork and exec, because the supervisor has threads: such a hook may hang on a lock that no thread will release. If
PROGRAM cannot be run, the exit codes are the shell's: 126 not executable, 127 not found.

`PR_SET_PDEATHSIG` fires when the *thread* that forked ends, not the process. So such children are started from a thread
that lives as long as the children may (as `dyntrain.controller.local.spawner` does).
"""

from __future__ import annotations

import ctypes
import os
import pwd
import signal
import sys
from collections.abc import Mapping

PR_SET_PDEATHSIG = 1
LATER = "DYNTRAIN_LATER_"  # prefix of variables that only PROGRAM may see
LOADED = ("GCONV_PATH", "GLIBC_TUNABLES", "LOCPATH")  # like LD_*, these make the C library load files
_libc = ctypes.CDLL(None, use_errno=True)


def prctl(option: int, value: int) -> None:
    """Set an option of this process. Raises OSError."""
    if _libc.prctl(option, value, 0, 0, 0) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def die_with_parent(parent: int, number: signal.Signals = signal.SIGKILL) -> None:
    """Let the kernel send `number` to this process when its parent ends.

    Raises SystemExit if the parent is no longer `parent`, and OSError if the kernel refuses.
    """
    prctl(PR_SET_PDEATHSIG, number)
    if os.getppid() != parent:  # the parent died before the line above
        raise SystemExit(1)


def become(name: str) -> bool:
    """Switch to the user `name`. Returns whether that worked; otherwise prints the reason."""
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


def withhold_unsafe(environment: Mapping[str, str], supervisor_environment: Mapping[str, str]) -> dict[str, str]:
    """Rename variables such as LD_PRELOAD, which could make this program load foreign files while it is still root.

    Variables equal to the supervisor's stay, as the supervisor's interpreter may need them.
    """
    return {
        f"{LATER}{name}"
        if (name.startswith("LD_") or name in LOADED) and value != supervisor_environment.get(name)
        else name: value
        for name, value in environment.items()
    }


def restore_withheld() -> None:
    """Undo `withhold_unsafe`, once the user is switched."""
    for name in [name for name in os.environ if name.startswith(LATER)]:
        os.environ[name.removeprefix(LATER)] = os.environ.pop(name)


def main(parent: int, nice: int, command: list[str]) -> int:
    """Become the program; returns an exit code if that fails."""
    if nice:
        os.nice(nice)
    if command[0].startswith("--cwd="):
        directory = command.pop(0).removeprefix("--cwd=")
        try:  # here and not in the supervisor, which would hang if the volume hangs
            os.chdir(directory)
        except OSError as error:
            print(f"cannot work in {directory}: {error.strerror}", file=sys.stderr)  # noqa: T201
            return 126
    if command[0].startswith("--user=") and not become(command.pop(0).removeprefix("--user=")):
        return 126
    try:
        die_with_parent(parent)  # after the change of user, which would reset the signal (prctl(2))
    except OSError as error:
        print(f"cannot set the signal for the supervisor's death: {error}", file=sys.stderr)  # noqa: T201  # this is the child's own log
        return 126
    restore_withheld()
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them, and exec would keep that
        signal.signal(number, signal.SIG_DFL)
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
