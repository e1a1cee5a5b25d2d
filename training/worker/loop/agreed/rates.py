"""What every worker's update must have in common besides the gradients: rates, decay, momentum, loss scale.

If a script computes them from variables of its own, a worker that joins has others, and the weights diverge. So each
sum of gradients contains a few numbers that show whether all workers agree; no message is added.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from dyntrain.training.protocol.messages import Position
from dyntrain.training.worker.loop.agreed.reduction import sum_up
from dyntrain.training.worker.loop.batch.consensus import ROUND, mark
from dyntrain.training.worker.membership.membership import Membership
from dyntrain.training.worker.refused import Unrecoverable
from dyntrain.training.worker.state.attributes import capture

KNOWN = ("wd", "momentum", "beta1", "beta2")  # of an optimizer
MULTIPLIERS, SCHEDULE, OPTIMIZER = "lr_mult or wd_mult", "what the scheduler keeps", "the optimizer's kind"
TRAINED = "which parameters train (grad_req)"
DIVISOR = "what step(n) divides by"
FACTORS = "numbers by which losses, or gradients before their sum, are multiplied"


class UnequalRates(RuntimeError, Unrecoverable):
    """The workers' updates would differ; the step was not applied anywhere."""


def rates(trainer: Any, divides: float | None) -> dict[str, float]:
    """Values that the trainer's next update depends on: the same names on every worker, 0 for what is absent.

    `divides`: the divisor, None if not known yet. The scheduler is not called, as some count their calls; its
    attributes are compared instead.
    """
    optimizer = trainer._optimizer
    scheduler = optimizer.lr_scheduler
    rate = getattr(scheduler, "base_lr", None) if scheduler is not None else optimizer.lr
    scaler = getattr(trainer, "_amp_loss_scaler", None)
    values = {
        "learning_rate": rate,
        **{name: getattr(optimizer, name, None) for name in KNOWN},
        "loss scale": getattr(scaler, "loss_scale", None),
        DIVISOR: divides,
    }
    multipliers = [
        (i, float(p.lr_mult), float(p.wd_mult))
        for i, p in enumerate(trainer._params)
        if (p.lr_mult, p.wd_mult) != (1, 1)
    ]
    values[MULTIPLIERS] = _digest(multipliers) if multipliers else 0
    values[SCHEDULE] = 0 if scheduler is None else _digest([type(scheduler).__name__, capture(scheduler)])
    values[TRAINED] = _digest([p.grad_req for p in trainer._params])
    values[OPTIMIZER] = _digest(type(optimizer).__name__)
    # A NumPy number is a plain one on a worker that received it with the state.
    return {name: float(value) if isinstance(value, int | float | np.number) else 0.0 for name, value in values.items()}


def _digest(value: Any) -> int:
    return zlib.crc32(repr(value).encode()) % 2**20  # a number that survives a sum of floats


def tags(step: int, values: Mapping[str, float]) -> list[float]:
    """Numbers whose sums show whether all workers' values are equal. Values that collide at one step do not at the
    next.
    """
    digest = zlib.crc32(repr((step, sorted(values.items()))).encode())
    return [*mark(digest), *mark(digest // ROUND)]


def unequal(
    membership: Membership, anchor: Position, trainer: int, values: Mapping[str, float], fingerprint: Sequence[float]
) -> UnequalRates:
    """Error that tells which values differ, and how, in the same words on every worker. All must call it at once."""
    values = {**values, FACTORS: float(_digest(fingerprint) if any(fingerprint) else 0)}
    compared = {name: _difference(membership, anchor, name, value) for name, value in sorted(values.items())}
    unequal_ones = {name: difference for name, difference in compared.items() if difference is not None}
    what = (
        "; ".join(unequal_ones.values())
        or "rates, decay, momentum, loss scale, what trains, or what step(n) divides by"
    )
    of = f" (trainer {trainer})" if trainer else ""
    code = "DT411" if DIVISOR in unequal_ones else "DT412" if FACTORS in unequal_ones else "DT413"
    return UnequalRates(membership.findings.find(code, what=f"{what}{of}"))


def _difference(membership: Membership, anchor: Position, name: str, value: float) -> str | None:
    """How the workers' values differ; None if they do not, or a worker is lost meanwhile.

    Sums may be of floats, so values are compared to their digits.
    """
    first = sum_up(membership, anchor, f"{name} of worker 0", 0.0 if membership.kvstore.rank else value, 0.0)
    if first is None:
        return None
    differs = not math.isclose(value, first[0], rel_tol=1e-6)
    others = sum_up(membership, anchor, f"{name} of others", value if differs else 0.0, float(differs))
    if others is None or not others[1]:
        return None
    count = f"{others[1]:.0f} of {membership.kvstore.num_workers} workers"
    if name in (MULTIPLIERS, SCHEDULE, OPTIMIZER, TRAINED, FACTORS):
        return f"{name} on {count}"
    return f"{name} is {first[0]:g} on worker 0, and {others[0] / others[1]:g} on {count}"
