"""Becomes the program given, after arranging that it dies with the node bootstrap. Run as a script, needs nothing but the standard library.

argv: PARENT_PID NICE PROGRAM [ARGUMENT...]. It is a program of its own, not a hook between fork and exec, because the
bootstrap has threads: code that runs between fork and exec in such a process may hang on a lock nobody will release.
Exit codes when the program cannot be run are the shell's: 126 not executable, 127 not found.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main(parent: int, nice: int, command: list[str]) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL) != 0:
        print(f"prctl failed with error {ctypes.get_errno()}", file=sys.stderr)  # noqa: T201  # this is the child's own log
        return 126
    if os.getppid() != parent:  # it died before the line above
        return 137
    if nice:
        os.nice(nice)
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
