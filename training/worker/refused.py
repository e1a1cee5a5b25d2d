"""Errors that restarting the worker would not fix. Pure."""

from __future__ import annotations

from types import TracebackType


class Unrecoverable(Exception):
    """Mixed into an error for which a restart of the workers would lead to the same error, or would hide it."""


class Refused(ValueError):
    """One worker has found that what the script does is not right over several workers.

    Before a loop's first step a restart does not help. Later the other workers have made steps of the same script, so
    the fault may be this worker's alone.
    """


class RefusedByAll(Refused, Unrecoverable):
    """An error that every worker finds at once."""


OURS = "dyntrain."
ROOMS = ("loop", "script", "data", "state")
FACE = ("dyntrain.training.job", *(f"dyntrain.training.worker.{room}" for room in ROOMS))


def by_the_job(error: BaseException) -> bool:
    """Whether the code that checks what a script asks of the job raised it, and not the script's own lines."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    raised_in = "" if trace is None else str(trace.tb_frame.f_globals.get("__name__"))
    return isinstance(error, ValueError | RuntimeError) and raised_in.startswith(FACE)


def trace_for_people(error: BaseException) -> TracebackType | None:
    """Return the traceback to show: for the job's own errors and refusals only the script's lines, otherwise all."""
    ours = type(error).__module__.startswith(OURS)
    if not (ours or isinstance(error, Unrecoverable) or by_the_job(error)):
        return error.__traceback__
    lines: list[TracebackType] = []
    trace = error.__traceback__
    while trace is not None:
        if not str(trace.tb_frame.f_globals.get("__name__")).startswith(OURS):
            lines.append(trace)
        trace = trace.tb_next
    following = None
    for line in reversed(lines):
        following = TracebackType(following, line.tb_frame, line.tb_lasti, line.tb_lineno)
    return following or error.__traceback__


def past_help(error: BaseException, *, before_steps: bool) -> bool:
    """Whether a restart cannot fix it; `before_steps` says that the current loop has made no step yet."""
    return isinstance(error, Unrecoverable) or (before_steps and isinstance(error, Refused))
