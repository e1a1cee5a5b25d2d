"""Errors that restarting the worker would not fix. Pure."""

from __future__ import annotations

from types import TracebackType


class Unrecoverable(Exception):
    """Base class of errors that a restart of the workers would repeat or hide."""


class Refused(ValueError):
    """One worker has found that the script would not train correctly over several workers.

    Before a loop's first step, a restart does not help. Later, the other workers have made steps with the same script,
    so the fault may lie in this worker alone.
    """


class RefusedByAll(Refused, Unrecoverable):
    """A refusal that every worker raises, not only one."""


PACKAGE_PREFIX = "dyntrain."
CHECKING_FOLDERS = ("loop", "script", "data", "state")
CHECKING_MODULES = ("dyntrain.training.job", *(f"dyntrain.training.worker.{room}" for room in CHECKING_FOLDERS))


def raised_by_checks(error: BaseException) -> bool:
    """Whether dyntrain's checks of the script raised the error, and not the script's own code."""
    traceback = error.__traceback__
    while traceback is not None and traceback.tb_next is not None:
        traceback = traceback.tb_next
    raised_in = "" if traceback is None else str(traceback.tb_frame.f_globals.get("__name__"))
    return isinstance(error, ValueError | RuntimeError) and raised_in.startswith(CHECKING_MODULES)


def trace_for_people(error: BaseException) -> TracebackType | None:
    """Return the traceback to show: for dyntrain's own errors only the script's lines, otherwise all lines."""
    from_dyntrain = type(error).__module__.startswith(PACKAGE_PREFIX)
    if not (from_dyntrain or isinstance(error, Unrecoverable) or raised_by_checks(error)):
        return error.__traceback__
    script_lines: list[TracebackType] = []
    trace = error.__traceback__
    while trace is not None:
        if not str(trace.tb_frame.f_globals.get("__name__")).startswith(PACKAGE_PREFIX):
            script_lines.append(trace)
        trace = trace.tb_next
    shown_traceback = None
    for script_line in reversed(script_lines):
        shown_traceback = TracebackType(
            shown_traceback, script_line.tb_frame, script_line.tb_lasti, script_line.tb_lineno
        )
    return shown_traceback or error.__traceback__


def past_help(error: BaseException, *, before_steps: bool) -> bool:
    """Whether a restart cannot fix the error. `before_steps` says that the current loop has made no step yet."""
    return isinstance(error, Unrecoverable) or (before_steps and isinstance(error, Refused))
