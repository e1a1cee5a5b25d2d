"""What a worker raises where to start it again would not help. Pure."""

from __future__ import annotations


class PastHelp(Exception):
    """Beside what a script raises: to start the workers again would lead to the same, or would hide it."""


class Refused(ValueError):
    """What the script does is not right over several workers, as one of them has seen. Before a loop's first step that
    is past help. Later the others have made steps of the same script, so it may be of this worker alone.
    """


class RefusedByAll(Refused, PastHelp):
    """By every worker at once."""


FACE = ("dyntrain.training.job", *(f"dyntrain.training.worker.{room}" for room in ("loop", "script", "data", "state")))


def by_the_job(error: BaseException) -> bool:
    """Whether it was raised where the job looks at what a script asks for, and not by the script's own lines."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    raised_in = "" if trace is None else str(trace.tb_frame.f_globals.get("__name__"))
    return isinstance(error, ValueError | RuntimeError) and raised_in.startswith(FACE)


def past_help(error: BaseException, *, before_steps: bool) -> bool:
    """`before_steps`: the loop at hand has made none."""
    return isinstance(error, PastHelp) or (before_steps and isinstance(error, Refused))
