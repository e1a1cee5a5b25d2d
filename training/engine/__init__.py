"""What the job needs of a communication engine; ps-lite is the one there is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol


class Store(Protocol):
    """The store of one generation. Hold no reference over a boundary: it would keep the old group alive."""

    def pushpull(self, key: Any, value: Any, out: Any = None, priority: int = 0) -> None:
        """Sum `value` over all workers into `out`; an array, or a list of one for each context. Need not wait for the sum."""

    def parts_between(self, first: int, last: int) -> Sequence[Any]:
        """What the keys from number `first` to the one before `last` are pushed as, in their order; each has `length` and `dtype`."""

    def pushpull_part(self, part: Any, flat: Any) -> None:
        """Push `flat` for one of these parts, in the place of a worker that is gone."""


class Engine(Protocol):
    """Sums gradients over the workers of one generation at a time."""

    @property
    def kvstore(self) -> Store: ...

    def form(self, environment: Mapping[str, str], keys: Sequence[tuple[str, tuple[int, ...], str]]) -> dict[str, float]:
        """Join the generation that `environment` describes, with a key of (name, shape, dtype) for all that is summed; returns seconds of its phases.

        Blocks until all its workers are in, without a bound of its own.
        """

    def dissolve(self) -> None:
        """Leave the generation without waiting for the others. Call it at a boundary only: nothing may be in flight."""

    def abandon(self) -> None:
        """After this the process can only end, with its own exit code and without waiting for the generation's others, whatever is still in flight.
        Nothing to do outside a generation."""
