"""Sum a number over all workers, for a script that decides by the sum or divides its gradients by the sum."""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable
from typing import Any

from dyntrain.training.protocol.messages import Position
from dyntrain.training.worker.arrays import float64_array, numbers_of
from dyntrain.training.worker.loop.batch.consensus import LARGEST_MARK, marks_of
from dyntrain.training.worker.membership.membership import Membership

REDUCE = ("reduce", (7,), "float64")  # key, shape, dtype; the engine may sum it as floats


class Total(float):
    """A sum over all workers, equal on each worker, by which `trainer.step` divides the gradients.

    The results of `total + x`, `total - x`, `total * x` and `total / x` are Totals, too.
    """


def _total_operator(name: str) -> Callable[[Total, Any], Any]:
    operation = getattr(float, name)

    def total_operation(self: Total, other: Any) -> Any:
        result = operation(self, other)
        return result if result is NotImplemented else Total(result)

    return total_operation


for _name in ("add", "radd", "sub", "mul", "rmul", "truediv"):
    setattr(Total, f"__{_name}__", _total_operator(f"__{_name}__"))


def reduce(
    membership: Membership, anchor: Position, name: str, total: float, count: float | None, spectates: bool
) -> float:
    """Return the sum of `total` over all workers; with `count`, the sum of `total` divided by the sum of `count`.

    Returns NaN on all workers if a worker is lost meanwhile. `spectates`: whether this worker has only a copy of
    another worker's sample, so that its own count is 0.
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
    """Return the sums of `total` and `count` over all workers, without moving the job's position `anchor`.

    Returns None on all workers if a worker is lost meanwhile, which makes the rest of the step void. Raises
    RuntimeError if the workers pass different `name`s.
    """
    tags = _tags_of_name(name)
    own_numbers = [1.0, *tags, total, count]
    sums, workers = own_numbers, membership.kvstore.num_workers
    if membership.shared:
        own_array = float64_array(own_numbers)
        received_sums: list[float] = []
        sum_key = REDUCE[0]

        def exchange(done: Callable[[], None]) -> bool:
            was_pushed = membership.exchange(
                [sum_key], lambda: membership.kvstore.pushpull(sum_key, own_array), [own_array], aside=True
            )
            return was_pushed and membership.apply(anchor, done)

        if exchange(lambda: received_sums.extend(numbers_of(own_array).tolist())):
            sums = received_sums if membership.all_have_sums(lambda: exchange(lambda: None)) else []
        else:
            sums = []
        if not sums or sums[0] != workers:  # the sums are equal on all survivors
            return None
        if sums[1:5] != [workers * tag for tag in tags]:
            raise RuntimeError(
                f"epoch.reduce({name!r}) or epoch.sum() failed, because other workers sum another name: sum at the "
                "same places on all workers"
            )
    return sums[5], sums[6]


def _tags_of_name(name: str) -> list[float]:
    """Return numbers whose sums over the workers show whether all workers sum under the same name."""
    digest = zlib.crc32(name.encode())
    return [*marks_of(digest), *marks_of(digest // LARGEST_MARK)]
