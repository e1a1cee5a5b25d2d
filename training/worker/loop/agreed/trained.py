"""Choose the parameters whose gradients a step sums. Pure.

All workers must push the same keys, because a worker that pushes more keys waits forever. A script may freeze or
unfreeze parameters (`grad_req`) at any step, by a counter of its own that restarts on a worker that joins. So the first
sum of a step contains the *known* parameters: all workers sum them, with zeros for parameters frozen since. Beside that
sum, each worker reports its parameters of this step. New parameters are summed afterwards, if they are the same on all
workers.

The known parameters are part of the job's own state, which joiners receive and void steps restore. So the first step of
a joiner needs only one sum.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dyntrain.training.worker.state.equal import SUMMED


def known_parameters(job_state: Mapping[str, Any], trainer: int) -> frozenset[int]:
    """Return the numbers of the parameters that every worker pushes in its next sum, even if frozen by then.

    The job's state contains these parameters beside the parameters of the last step.
    """
    return frozenset(job_state.get(SUMMED, {}).get(str(trainer), ((), ()))[0])


def store_trained(job_state: dict[str, Any], trainer: int, trained: frozenset[int]) -> None:
    """Store the parameters that all workers have summed in this step.

    Only parameters that were also summed in the last step become known, so a parameter that trains only in some steps
    is not pushed as zeros.
    """
    known_by_trainer = job_state.get(SUMMED, {})
    _, last_trained = known_by_trainer.get(str(trainer), ((), trained))
    job_state[SUMMED] = {
        **known_by_trainer,
        str(trainer): [sorted(trained.intersection(last_trained)), sorted(trained)],
    }
