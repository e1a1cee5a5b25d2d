"""Compare the values that must be equal in all workers' updates: learning rate, decay, momentum, loss scale.

If a script computes its learning rate from variables of its own, a worker that joins may have another rate than the
other workers, and the weights diverge. So each sum of gradients includes a few numbers that show whether the learning
rates and similar values are equal on all workers.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from dyntrain.training.protocol.messages import Position
from dyntrain.training.worker.loop.agreed.reduction import sum_up
from dyntrain.training.worker.loop.batch.consensus import LARGEST_MARK, marks_of
from dyntrain.training.worker.membership.membership import Membership
from dyntrain.training.worker.refused import Unrecoverable
from dyntrain.training.worker.state.attributes import capture

OPTIMIZER_VALUES = ("wd", "momentum", "beta1", "beta2")  # attributes that an optimizer may have
MULTIPLIERS, SCHEDULE, OPTIMIZER = "lr_mult or wd_mult", "what the scheduler keeps", "the optimizer's kind"
TRAINED = "which parameters train (grad_req)"
DIVISOR = "what step(n) divides by"
FACTORS = "numbers by which losses, or gradients before their sum, are multiplied"


class UnequalRates(RuntimeError, Unrecoverable):
    """The workers' updates would differ, so no worker has made the step's update."""


def update_values(trainer: Any, divisor_value: float | None) -> dict[str, float]:
    """Return the values that the trainer's next update depends on.

    The dict has the same names on all workers, and 0 for a value that the trainer does not have. `divisor_value`: the
    divisor of the summed gradients, None if not known yet. The scheduler's attributes are read, but the scheduler is
    not called, because some schedulers count their calls.
    """
    optimizer = trainer._optimizer
    scheduler = optimizer.lr_scheduler
    learning_rate = getattr(scheduler, "base_lr", None) if scheduler is not None else optimizer.lr
    loss_scaler = getattr(trainer, "_amp_loss_scaler", None)
    values = {
        "learning_rate": learning_rate,
        **{name: getattr(optimizer, name, None) for name in OPTIMIZER_VALUES},
        "loss scale": getattr(loss_scaler, "loss_scale", None),
        DIVISOR: divisor_value,
    }
    multipliers = [
        (index, float(param.lr_mult), float(param.wd_mult))
        for index, param in enumerate(trainer._params)
        if (param.lr_mult, param.wd_mult) != (1, 1)
    ]
    values[MULTIPLIERS] = _digest(multipliers) if multipliers else 0
    values[SCHEDULE] = 0 if scheduler is None else _digest([type(scheduler).__name__, capture(scheduler)])
    values[TRAINED] = _digest([param.grad_req for param in trainer._params])
    values[OPTIMIZER] = _digest(type(optimizer).__name__)
    # A joined worker received a plain number with the state in place of a NumPy number.
    return {name: float(value) if isinstance(value, int | float | np.number) else 0.0 for name, value in values.items()}


def _digest(value: Any) -> int:
    return zlib.crc32(repr(value).encode()) % 2**20  # a number that survives a sum of floats


def tags_of(step: int, values: Mapping[str, float]) -> list[float]:
    """Return numbers whose sums over the workers show whether all workers' values are equal.

    Tags depend on the step, so different values that have equal tags in one step have different tags in the next step.
    """
    digest = zlib.crc32(repr((step, sorted(values.items()))).encode())
    return [*marks_of(digest), *marks_of(digest // LARGEST_MARK)]


def unequal_rates(
    membership: Membership, anchor: Position, trainer: int, values: Mapping[str, float], fingerprint: Sequence[float]
) -> UnequalRates:
    """Return the error that lists the differing values, with the same text on all workers.

    All workers must call this function in the same step, because the function sums numbers over all workers.
    """
    values = {**values, FACTORS: float(_digest(fingerprint) if any(fingerprint) else 0)}
    text_by_name = {name: _difference_text(membership, anchor, name, value) for name, value in sorted(values.items())}
    differences = {name: difference for name, difference in text_by_name.items() if difference is not None}
    difference_text = (
        "; ".join(differences.values()) or "rates, decay, momentum, loss scale, what trains, or what step(n) divides by"
    )
    trainer_text = f" (trainer {trainer})" if trainer else ""
    rule_code = "DT411" if DIVISOR in differences else "DT412" if FACTORS in differences else "DT413"
    return UnequalRates(membership.findings.find(rule_code, what=f"{difference_text}{trainer_text}"))


def _difference_text(membership: Membership, anchor: Position, name: str, value: float) -> str | None:
    """Describe how the workers' values differ; returns None if the values are equal, or if a worker is lost meanwhile.

    The sums may be rounded to float32, so values that agree to six digits count as equal.
    """
    first_sums = sum_up(membership, anchor, f"{name} of worker 0", 0.0 if membership.kvstore.rank else value, 0.0)
    if first_sums is None:
        return None
    differs = not math.isclose(value, first_sums[0], rel_tol=1e-6)
    differing_sums = sum_up(membership, anchor, f"{name} of others", value if differs else 0.0, float(differs))
    if differing_sums is None or not differing_sums[1]:
        return None
    workers_text = f"{differing_sums[1]:.0f} of {membership.kvstore.num_workers} workers"
    if name in (MULTIPLIERS, SCHEDULE, OPTIMIZER, TRAINED, FACTORS):
        return f"{name} on {workers_text}"
    return f"{name} is {first_sums[0]:g} on worker 0, and {differing_sums[0] / differing_sums[1]:g} on {workers_text}"
