"""Which of a trainer's parameters a step sums. All workers must push the same keys, or those that push more wait
forever.

A script may freeze or free parameters (`grad_req`) at any step, by a counter of its own that restarts on a worker that
joins. So the first sum of a step has the parameters that all workers are known to sum, with zeros for those frozen
since, and tells beside it which ones this worker sums now. New ones are summed after that, if all workers have the
same.

The known ones are part of what the job remembers (`own`), and so of the state that joiners receive: their first step
after a change needs one sum only. A void step restores them with the rest. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dyntrain.training.worker.state.equal import SUMMED


def known(own: Mapping[str, Any], trainer: int) -> frozenset[int]:
    """Numbers of the parameters that every worker pushes in its next sum, even if it has frozen some by then.

    The state also has those of the last step.
    """
    return frozenset(own.get(SUMMED, {}).get(str(trainer), ((), ()))[0])


def agree(own: dict[str, Any], trainer: int, now: frozenset[int]) -> None:
    """Remember what all workers have summed now. Only parameters also summed in the last step are known.

    So parameters that come and go from step to step are not pushed as zeros.
    """
    before = own.get(SUMMED, {})
    _, last = before.get(str(trainer), ((), now))
    own[SUMMED] = {**before, str(trainer): [sorted(now.intersection(last)), sorted(now)]}
