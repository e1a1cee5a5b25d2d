"""Which of a trainer's parameters a step sums: all workers must push the same keys, or those who push more wait for
ever.

A script may freeze or free parameters (`grad_req`) at any step, by a counter of its own that begins anew on a worker
that joins. So the first sum of a step is of what all are known to sum, with zeros for what is frozen since, and says
beside it what this worker sums now. What is new is summed after that, where all say the same.

What all are known to sum is part of what the job remembers (`own`), and so of the state that joiners receive: the first
step after a change sums at once, too. A step that is void takes it back with the rest. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dyntrain.training.worker.state.equal import SUMMED


def known(own: Mapping[str, Any], trainer: int) -> frozenset[int]:
    """Numbers of the parameters that every worker pushes in its next sum, whatever it has frozen by then. Beside them
    are those of the last step.
    """
    return frozenset(own.get(SUMMED, {}).get(str(trainer), ((), ()))[0])


def agree(own: dict[str, Any], trainer: int, now: frozenset[int]) -> None:
    """All workers have summed these. What comes and goes from step to step is not pushed as zeros."""
    before = own.get(SUMMED, {})
    _, last = before.get(str(trainer), ((), now))
    own[SUMMED] = {**before, str(trainer): [sorted(now.intersection(last)), sorted(now)]}
