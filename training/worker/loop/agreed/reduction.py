"""Sum of a number over the workers, for the script's decisions or as a divisor of its gradients."""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable
from typing import Any

from dyntrain.training.protocol.messages import Position
from dyntrain.training.worker.arrays import doubles, numbers_of
from dyntrain.training.worker.loop.batch.consensus import ROUND, mark
from dyntrain.training.worker.membership.membership import Membership

REDUCE = ("reduce", (7,), "float64")  # a key of the engine; its sum is only as exact as one of floats


class Total(float):
    """Sum over all workers, the same on each, which `step` may take as a divisor as it is.

    The results of `total + x`, `total - x`, `total * x` and `total / x` are Totals, too.
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
    """Sum over all workers, or quotient of both sums if there is a `count`. NaN on all workers if
    one was lost in it.
    """
    sums = sum_up(membership, anchor, name, total, 0.0 if spectates else 1.0 if count is None else count)
    if sums is None:
        return math.nan
    if count is None:
        return sums[0]
    return sums[0] / sums[1] if sums[1] else math.nan


def sum_up(
    membership: Membership, anchor: Position, name: str, total: float, count: float
) -> tuple[float, float] | None:
    """Sums of `total` and `count` over the workers, as a step of its own that ends where it begins, at `anchor`.

    None on all workers if one was lost in it: then the rest of the step is void. Raises RuntimeError if the workers'
    names differ.
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
            sums = received if membership.all_have_sums(lambda: exchange(lambda: None)) else []
        else:
            sums = []
        if not sums or sums[0] != workers:  # equal on all survivors
            return None
        if sums[1:5] != [workers * tag for tag in tags]:
            raise RuntimeError(f"{name!r}: the other workers sum up something else at the same time")
    return sums[5], sums[6]


def _tags(name: str) -> list[float]:
    """Numbers whose sums show whether all workers have the same name."""
    digest = zlib.crc32(name.encode())
    return [*mark(digest), *mark(digest // ROUND)]
