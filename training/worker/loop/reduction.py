"""A number that is summed over the workers for the script to decide by."""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet

import mxnet as mx  # isort: skip

from dyntrain.training.protocol.messages import Position
from dyntrain.training.worker.loop.hand import ROUND, mark
from dyntrain.training.worker.membership.membership import Membership

REDUCE = ("reduce", (7,), "float64")  # a key of the engine's; its sum is no more exact than one of floats


def reduce(
    membership: Membership, anchor: Position, name: str, total: float, count: float | None, spectates: bool
) -> float:
    """As a step of its own that ends where it begins, at `anchor`. NaN on all workers when one was lost in it."""
    tags = _tags(name)
    mine = [1.0, *tags, total, 0.0 if spectates else 1.0 if count is None else count]
    sums, workers = mine, membership.kvstore.num_workers
    if membership.shared:
        vote = mx.nd.array(mine, dtype="float64")
        found: list[float] = []
        key = REDUCE[0]

        def exchange(done: Callable[[], None]) -> bool:
            pushed = membership.exchange([key], lambda: membership.kvstore.pushpull(key, vote), [vote])
            return pushed and membership.apply(anchor, done)

        if exchange(lambda: found.extend(vote.asnumpy().tolist())):
            sums = found if membership.all_have_it(lambda: exchange(lambda: None)) else []
        else:
            sums = []
        if not sums or sums[0] != workers:  # the same for all survivors
            return math.nan
        if sums[1:5] != [workers * tag for tag in tags]:
            raise RuntimeError(f"epoch.reduce({name!r}, ...): other workers reduce something else at the same time")
    if count is None:
        return sums[5]
    return sums[5] / sums[6] if sums[6] else math.nan


def _tags(name: str) -> list[float]:
    """Whose sums show whether all workers named the same."""
    digest = zlib.crc32(name.encode())
    return [*mark(digest), *mark(digest // ROUND)]
