"""A number that is summed over the workers, for the script to decide by or to divide its gradients by."""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable
from typing import Any

from dyntrain.training.protocol.messages import Position
from dyntrain.training.worker.arrays import doubles, numbers_of
from dyntrain.training.worker.loop.batch.consensus import ROUND, mark
from dyntrain.training.worker.membership.membership import Membership

REDUCE = ("reduce", (7,), "float64")  # a key of the engine's; its sum is no more exact than one of floats


class Total(float):
    """A sum over all workers, the same on each: what `step` may divide by as it is. What a script makes of it by adding
    and multiplying is one, too.
    """


def _total(name: str) -> Callable[[Total, Any], Any]:
    operation = getattr(float, name)

    def derived(self: Total, other: Any) -> Any:
        result = operation(self, other)
        return result if result is NotImplemented else Total(result)

    return derived


for _name in ("add", "radd", "sub", "mul", "rmul", "truediv"):
    setattr(Total, f"__{_name}__", _total(f"__{_name}__"))


def reduce(
    membership: Membership, anchor: Position, name: str, total: float, count: float | None, spectates: bool
) -> float:
    """NaN on all workers when one was lost in it."""
    sums = sum_up(membership, anchor, name, total, 0.0 if spectates else 1.0 if count is None else count)
    if sums is None:
        return math.nan
    if count is None:
        return sums[0]
    return sums[0] / sums[1] if sums[1] else math.nan


def sum_up(
    membership: Membership, anchor: Position, name: str, total: float, count: float
) -> tuple[float, float] | None:
    """Of both, as a step of its own that ends where it begins, at `anchor`. None on all workers when one was lost in
    it: what follows in that step is void. Raises RuntimeError where not all mean the same `name`.
    """
    tags = _tags(name)
    mine = [1.0, *tags, total, count]
    sums, workers = mine, membership.kvstore.num_workers
    if membership.shared:
        vote = doubles(mine)
        received: list[float] = []
        key = REDUCE[0]

        def exchange(done: Callable[[], None]) -> bool:
            pushed = membership.exchange([key], lambda: membership.kvstore.pushpull(key, vote), [vote], aside=True)
            return pushed and membership.apply(anchor, done)

        if exchange(lambda: received.extend(numbers_of(vote).tolist())):
            sums = received if membership.all_have_it(lambda: exchange(lambda: None)) else []
        else:
            sums = []
        if not sums or sums[0] != workers:  # the same for all survivors
            return None
        if sums[1:5] != [workers * tag for tag in tags]:
            raise RuntimeError(f"{name!r}: the other workers sum up something else at the same time")
    return sums[5], sums[6]


def _tags(name: str) -> list[float]:
    """Whose sums show whether all workers named the same."""
    digest = zlib.crc32(name.encode())
    return [*mark(digest), *mark(digest // ROUND)]
