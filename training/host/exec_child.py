"""Executes a program such that the kernel kills the program when the supervisor that started it dies.

This file is run as a script by its path, so it imports only the standard library.

The arguments are: PARENT_PID NICE [--cwd=DIRECTORY] [--user=NAME] PROGRAM [ARGUMENT...]. The death signal is set by a
program instead of a hook between fork and exec (`preexec_fn`), because the supervisor has threads: the hook might wait
for a lock that no thread releases. If PROGRAM cannot be run, the exit code is 126 (not executable) or 127 (not found),
as in a shell.

The kernel sends the signal of `PR_SET_PDEATHSIG` when the *thread* that forked the child ends, even if its process
continues. So children with a death signal must be started from a thread that outlives the children (as
`dyntrain.controller.local.spawner` does).
"""

from __future__ import annotations

import ctypes
import os
import pwd
import signal
import sys
from collections.abc import Mapping

PR_SET_PDEATHSIG = 1
WITHHELD_PREFIX = "DYNTRAIN_LATER_"  # of variables that only PROGRAM may see
LOADING_VARIABLES = ("GCONV_PATH", "GLIBC_TUNABLES", "LOCPATH")  # like LD_*, these make the C library load files
_libc = ctypes.CDLL(None, use_errno=True)


def prctl(option: int, value: int) -> None:
    """Set an attribute of this process by the system call prctl. Raises OSError."""
    if _libc.prctl(option, value, 0, 0, 0) != 0:
        error_number = ctypes.get_errno()
        raise OSError(error_number, os.strerror(error_number))


def die_with_parent(parent_pid: int, death_signal: signal.Signals = signal.SIGKILL) -> None:
    """Let the kernel send `death_signal` to this process when its parent ends.

    Raises SystemExit if the process `parent_pid` is no longer the parent, and OSError if prctl(2) fails.
    """
    prctl(PR_SET_PDEATHSIG, death_signal)
    if os.getppid() != parent_pid:  # the parent died before the line above
        raise SystemExit(1)


def switch_user(user_name: str) -> bool:
    """Change the user of this process to `user_name`. Returns whether the change worked.

    If the user cannot be changed, the reason is printed on stderr.
    """
    try:
        user_entry = pwd.getpwnam(user_name)
        if user_entry.pw_uid != os.getuid():
            os.initgroups(user_name, user_entry.pw_gid)
            os.setgid(user_entry.pw_gid)
            os.setuid(user_entry.pw_uid)
    except (KeyError, OSError) as error:
        reason = "there is no such user" if isinstance(error, KeyError) else error.strerror
        print(f"cannot run as {user_name}: {reason}", file=sys.stderr)  # noqa: T201
        return False
    os.environ.update(HOME=user_entry.pw_dir, USER=user_name, LOGNAME=user_name)
    return True


def hide_variables(environment: Mapping[str, str], supervisor_environment: Mapping[str, str]) -> dict[str, str]:
    """Rename variables such as LD_PRELOAD, which could make a process load another user's files while it runs as root.

    Variables with the supervisor's own values are not renamed, as the supervisor's interpreter may need them.
    """
    return {
        f"{WITHHELD_PREFIX}{variable_name}"
        if (variable_name.startswith("LD_") or variable_name in LOADING_VARIABLES)
        and variable_value != supervisor_environment.get(variable_name)
        else variable_name: variable_value
        for variable_name, variable_value in environment.items()
    }


def restore_variables() -> None:
    """Restore the variables that `hide_variables` renamed, once this process runs as its final user."""
    for variable_name in [variable_name for variable_name in os.environ if variable_name.startswith(WITHHELD_PREFIX)]:
        os.environ[variable_name.removeprefix(WITHHELD_PREFIX)] = os.environ.pop(variable_name)


def main(parent: int, nice: int, command: list[str]) -> int:
    """Replace this process by the program in `command`, which may begin with `--cwd=` and `--user=`.

    Returns an exit code if the program cannot be executed.
    """
    if nice:
        os.nice(nice)
    if command[0].startswith("--cwd="):
        working_directory = command.pop(0).removeprefix("--cwd=")
        try:  # here and not in the supervisor, which would hang if the volume hangs
            os.chdir(working_directory)
        except OSError as error:
            print(f"cannot work in {working_directory}: {error.strerror}", file=sys.stderr)  # noqa: T201
            return 126
    if command[0].startswith("--user=") and not switch_user(command.pop(0).removeprefix("--user=")):
        return 126
    try:
        die_with_parent(parent)  # after the change of user, which would reset the signal (prctl(2))
    except OSError as error:
        print(f"cannot set the signal for the supervisor's death: {error}", file=sys.stderr)  # noqa: T201  # this is the child's own log
        return 126
    restore_variables()
    for signal_number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them, and exec would keep that
        signal.signal(signal_number, signal.SIG_DFL)
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
