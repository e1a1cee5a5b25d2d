"""Choose the parameters whose gradients a step sums. Pure.

All workers must push the same keys, because a worker that pushes more keys waits forever. A script may freeze or
unfreeze parameters (`grad_req`) at any step. A script may choose the step by a counter of its own, which begins anew on
a worker that joins. So a step first sums the gradients of the *known* parameters, which are the same on all workers; a
frozen known parameter adds zeros. With the first sum of a step, each worker reports which parameters it trains in this
step. The gradients of newly trained parameters are summed in a second sum, if all workers train the same parameters.

The known parameters are part of the job's own state, which joiners receive and void steps restore. So the first step of
a joiner needs only one sum.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dyntrain.training.worker.state.equal import SUMMED


def known_parameters(job_state: Mapping[str, Any], trainer: int) -> frozenset[int]:
    """Return the numbers of the parameters whose gradients every worker pushes in its next sum, as zeros if frozen.

    The job's state contains two lists for each trainer: the known parameters, and the parameters of the last step.
    """
    return frozenset(job_state.get(SUMMED, {}).get(str(trainer), ((), ()))[0])


def store_trained_parameters(job_state: dict[str, Any], trainer: int, trained: frozenset[int]) -> None:
    """Store the numbers of the parameters whose gradients all workers have summed in this step.

    Only parameters that were also summed in the last step become known. So a parameter that trains only in every other
    step is not pushed as zeros.
    """
    lists_by_trainer = job_state.get(SUMMED, {})
    _, previous_numbers = lists_by_trainer.get(str(trainer), ((), trained))
    job_state[SUMMED] = {
        **lists_by_trainer,
        str(trainer): [sorted(trained.intersection(previous_numbers)), sorted(trained)],
    }
