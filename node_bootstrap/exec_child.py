"""Becomes the program given, after arranging that it dies with the node bootstrap. Run as a script, needs nothing but the standard library.

argv: PARENT_PID NICE [--user=NAME] PROGRAM [ARGUMENT...]. It is a program of its own, not a hook between fork and exec, because the
bootstrap has threads: code that runs between fork and exec in such a process may hang on a lock nobody will release.
Exit codes when the program cannot be run are the shell's: 126 not executable, 127 not found.
"""

from __future__ import annotations

import ctypes
import os
import pwd
import signal
import sys

PR_SET_PDEATHSIG = 1


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


def main(parent: int, nice: int, command: list[str]) -> int:
    if nice:
        os.nice(nice)
    if command[0].startswith("--user=") and not become(command.pop(0).removeprefix("--user=")):
        return 126
    # after the change of user, which would undo it (prctl(2))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL) != 0:
        print(f"prctl failed with error {ctypes.get_errno()}", file=sys.stderr)  # noqa: T201  # this is the child's own log
        return 126
    if os.getppid() != parent:  # it died before the line above
        return 137
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
