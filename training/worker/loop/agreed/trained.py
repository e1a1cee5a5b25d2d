"""Which of a trainer's parameters a step sums: all workers must push the same keys, or those who push more wait for
ever.

A script may freeze or free parameters (`grad_req`) at any step, by a counter of its own that begins anew on a worker
that joins. So the first sum of a step is of what all are known to sum, with zeros for what is frozen since, and says
beside it what this worker sums now. What is new is summed after that, where all say the same. Pure.
"""

from __future__ import annotations

from collections.abc import Hashable


class TrainableSet:
    """By trainer. After a formation nothing is known, as a joiner knows nothing."""

    def __init__(self) -> None:
        self._known: dict[Hashable, frozenset[int]] = {}
        self._last: dict[Hashable, frozenset[int]] = {}

    def formed(self) -> None:
        self._known.clear()
        self._last.clear()

    def known(self, trainer: Hashable) -> frozenset[int]:
        """Numbers of the parameters that every worker pushes in its next sum, whatever it has frozen by then."""
        return self._known.get(trainer, frozenset())

    def agreed(self, trainer: Hashable, now: frozenset[int]) -> None:
        """All workers have summed these. What comes and goes from step to step is not pushed as zeros."""
        self._known[trainer] = now & self._last.get(trainer, now)
        self._last[trainer] = now
