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


def past_help(error: BaseException, *, before_steps: bool) -> bool:
    """`before_steps`: the loop at hand has made none."""
    return isinstance(error, PastHelp) or (before_steps and isinstance(error, Refused))
