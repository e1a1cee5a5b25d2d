"""What a worker raises where to start it again would not help. Pure."""

from __future__ import annotations

from types import TracebackType


class Unrecoverable(Exception):
    """Beside what a script raises: to start the workers again would lead to the same, or would hide it."""


class Refused(ValueError):
    """What the script does is not right over several workers, as one of them has seen. Before a loop's first step that
    is past help. Later the others have made steps of the same script, so it may be of this worker alone.
    """


class RefusedByAll(Refused, Unrecoverable):
    """By every worker at once."""


OURS = "dyntrain."
ROOMS = ("loop", "script", "data", "state")
FACE = ("dyntrain.training.job", *(f"dyntrain.training.worker.{room}" for room in ROOMS))


def by_the_job(error: BaseException) -> bool:
    """Whether it was raised where the job looks at what a script asks for, and not by the script's own lines."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    raised_in = "" if trace is None else str(trace.tb_frame.f_globals.get("__name__"))
    return isinstance(error, ValueError | RuntimeError) and raised_in.startswith(FACE)


def trace_for_people(error: BaseException) -> TracebackType | None:
    """Of what the job refuses or says in an error of its own, the lines of the script without those of the job; of any
    other error the whole.
    """
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
    """`before_steps`: the loop at hand has made none."""
    return isinstance(error, Unrecoverable) or (before_steps and isinstance(error, Refused))
