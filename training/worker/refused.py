"""Errors that a restart of the worker would not fix. Pure."""

from __future__ import annotations

from types import TracebackType


class Unrecoverable(Exception):
    """Base class of errors that a restart of the workers would repeat or hide."""


class Refused(ValueError):
    """One worker has found that the script would not train correctly with several workers.

    Before the first step of the script's loop, a restart does not help. After the first step, the other workers have
    made steps with the same script, so the cause may be in the worker that raises the error.
    """


class RefusedByAll(Refused, Unrecoverable):
    """The script would not train correctly with several workers, and every worker raises this error."""


PACKAGE_PREFIX = "dyntrain."
CHECKING_FOLDERS = ("loop", "script", "data", "state")  # whose modules check the script
CHECKING_MODULES = ("dyntrain.training.job", *(f"dyntrain.training.worker.{folder}" for folder in CHECKING_FOLDERS))


def raised_by_checks(error: BaseException) -> bool:
    """Whether the error was raised by dyntrain's checks of the script, and not by the script's own code."""
    traceback = error.__traceback__
    while traceback is not None and traceback.tb_next is not None:
        traceback = traceback.tb_next
    raising_module = "" if traceback is None else str(traceback.tb_frame.f_globals.get("__name__"))
    return isinstance(error, ValueError | RuntimeError) and raising_module.startswith(CHECKING_MODULES)


def trace_for_people(error: BaseException) -> TracebackType | None:
    """Return the traceback to show the user: for dyntrain's own errors only the script's lines, otherwise all lines."""
    is_dyntrain_error = type(error).__module__.startswith(PACKAGE_PREFIX)
    if not (is_dyntrain_error or isinstance(error, Unrecoverable) or raised_by_checks(error)):
        return error.__traceback__
    script_traces: list[TracebackType] = []
    trace = error.__traceback__
    while trace is not None:
        if not str(trace.tb_frame.f_globals.get("__name__")).startswith(PACKAGE_PREFIX):
            script_traces.append(trace)
        trace = trace.tb_next
    shown_traceback = None
    for script_trace in reversed(script_traces):
        shown_traceback = TracebackType(
            shown_traceback, script_trace.tb_frame, script_trace.tb_lasti, script_trace.tb_lineno
        )
    return shown_traceback or error.__traceback__


def past_help(error: BaseException, *, before_steps: bool) -> bool:
    """Whether a restart of the worker cannot fix the error.

    `before_steps` says that the script's present loop has made no step yet.
    """
    return isinstance(error, Unrecoverable) or (before_steps and isinstance(error, Refused))
