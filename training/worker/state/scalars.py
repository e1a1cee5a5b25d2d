"""What of trainers is no array: counts that follow from the steps that were made, and values that a script may set by
itself at any time: rates, decays, what trains and what is frozen, a loss scale.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dyntrain.training.sampling.batching import WorkerRate
from dyntrain.training.worker.state.attributes import capture, restore
from dyntrain.training.worker.state.block import StateError

# Of an optimizer: what MXNet keeps there of parameters and names, and the counts, which are restored in place.
_NOT_VALUES = frozenset(
    {"param_dict", "idx2name", "sym_info", "_index_update_count", "_all_index_update_counts", "num_update"}
)
OTHER_SCHEDULER = (
    "the trainer had {received} by then, and here it has {own}: set it also on workers that join later (`if epoch >= "
    "3:`, not `if epoch == 3:`)"
)


class Scalars:
    """Of all `trainers`, as a document for JSON."""

    def __init__(self, trainers: Sequence[Any]) -> None:
        self._trainers = trainers
        self._others: list[tuple[Any, Any, str]] = []  # (trainer, its scheduler, the kind that was received instead)

    def captured(self) -> dict[str, Any]:
        """Raises StateError for what cannot travel."""
        return {
            "counts": [counts_of(trainer._optimizer) for trainer in self._trainers],
            "values": [values_of(trainer) for trainer in self._trainers],
        }

    def restore(self, scalars: dict[str, Any]) -> None:
        for trainer, counts in zip(self._trainers, scalars["counts"], strict=True):
            set_counts(trainer._optimizer, counts)
        self.restore_values(scalars)

    def restore_values(self, scalars: dict[str, Any]) -> None:
        """As they were on the worker that captured them."""
        for trainer, values in zip(self._trainers, scalars["values"], strict=True):
            own, received = trainer._optimizer.lr_scheduler, values.get("scheduler", _kind(trainer))
            if received != _kind(trainer):
                fields = {name: value for name, value in values["optimizer"].items() if name != "lr_scheduler"}
                values = {**values, "optimizer": fields}
                self._others.append((trainer, own, received))
            set_values(trainer, values)

    def lacks_scheduler(self) -> str | None:
        """What to say where the first update after a restoration is due, and the script has not set the scheduler that
        was received. The same on all workers whose rates are alike.
        """
        for trainer, own, received in self._others:
            if trainer._optimizer.lr_scheduler is own and _kind(trainer) != received:
                return OTHER_SCHEDULER.format(received=received, own=_kind(trainer))
        self._others = []
        return None


def counts_of(optimizer: Any) -> list[Any]:
    updates = [[int(device), sorted(counts.items())] for device, counts in optimizer._all_index_update_counts.items()]
    return [optimizer.num_update, updates]


def set_counts(optimizer: Any, counts: list[Any]) -> None:
    optimizer.num_update, updates = counts
    for device, each in updates:
        own = optimizer._all_index_update_counts.setdefault(device, {})
        own.clear()
        own.update(dict(each))


def values_of(trainer: Any) -> dict[str, Any]:
    scaler = getattr(trainer, "_amp_loss_scaler", None)
    return {
        "optimizer": capture(trainer._optimizer, _NOT_VALUES),
        "scheduler": _kind(trainer),
        "worker rate": rate.numbers if (rate := getattr(trainer, "worker_rate", None)) is not None else None,
        "scale": None if getattr(trainer, "_scale", None) is None else float(trainer._scale),
        "amp": None if scaler is None else [trainer._amp_original_scale, capture(scaler)],
        # as plain numbers: NumPy's are none to JSON
        "parameters": [
            [p.grad_req, float(getattr(p, "lr_mult", 1.0)), float(getattr(p, "wd_mult", 1.0))] for p in trainer._params
        ],
    }


def set_values(trainer: Any, values: dict[str, Any]) -> None:
    """Raises StateError where the trainer has no loss scale, and `values` has one."""
    restore(trainer._optimizer, values["optimizer"])
    if values["scale"] is not None:
        trainer._scale = values["scale"]
    if values["worker rate"] is not None:
        trainer.worker_rate = WorkerRate.of_numbers(values["worker rate"])
    if values["amp"] is not None:
        if getattr(trainer, "_amp_loss_scaler", None) is None:
            raise StateError("the state is of a script with amp.init_trainer(trainer), which this one did not call")
        trainer._amp_original_scale = values["amp"][0]
        restore(trainer._amp_loss_scaler, values["amp"][1])
    for param, (request, rate, decay) in zip(trainer._params, values["parameters"], strict=True):
        if param.grad_req != request:
            param.grad_req = request
        if hasattr(param, "lr_mult"):
            param.lr_mult, param.wd_mult = rate, decay


def _kind(trainer: Any) -> str:
    """Of the scheduler."""
    scheduler = trainer._optimizer.lr_scheduler
    return "no scheduler" if scheduler is None else type(scheduler).__name__
