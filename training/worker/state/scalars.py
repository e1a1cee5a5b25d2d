"""Captures and restores the parts of trainers' state that are no arrays: update counts, and values that scripts set.

The counts of updates follow from the number of steps. The values that a script may set are rates, decays, the choice of
the parameters that train, and a loss scale.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dyntrain.training.sampling.batching import WorkerRate
from dyntrain.training.worker.state.attributes import capture, restore
from dyntrain.training.worker.state.block import StateError

# Attributes of an optimizer that are not values: parameters, names, and the counts, which `set_counts` restores.
_EXCLUDED_ATTRIBUTES = frozenset(
    {"param_dict", "idx2name", "sym_info", "_index_update_count", "_all_index_update_counts", "num_update"}
)
OTHER_SCHEDULER_ERROR = (
    "the trainer had {received} at this step, but has {own} here: set the scheduler also on workers that join later "
    "(`if epoch >= 3:`, not `if epoch == 3:`)"
)


class Scalars:
    """The counts of updates and the settable values of all `trainers`, in a form that JSON can represent."""

    def __init__(self, trainers: Sequence[Any]) -> None:
        self._trainers = trainers
        self._mismatches: list[
            tuple[Any, Any, str]
        ] = []  # (trainer, its scheduler, the kind that was received instead)

    def capture(self) -> dict[str, Any]:
        """Return the update counts and the values of all trainers. Raises AttributeTooLarge if a value is too large."""
        return {
            "counts": [counts_of(trainer._optimizer) for trainer in self._trainers],
            "values": [values_of(trainer) for trainer in self._trainers],
        }

    def restore(self, scalars: dict[str, Any]) -> None:
        for trainer, counts in zip(self._trainers, scalars["counts"], strict=True):
            set_counts(trainer._optimizer, counts)
        self.restore_values(scalars)

    def restore_values(self, scalars: dict[str, Any]) -> None:
        """Set the trainers' values to those that another worker captured.

        If the received scheduler is of another class than this trainer's scheduler, the trainer keeps its scheduler.
        """
        for trainer, values in zip(self._trainers, scalars["values"], strict=True):
            own_scheduler, received_class = (
                trainer._optimizer.lr_scheduler,
                values.get("scheduler", _scheduler_class(trainer)),
            )
            if received_class != _scheduler_class(trainer):
                other_fields = {name: value for name, value in values["optimizer"].items() if name != "lr_scheduler"}
                values = {**values, "optimizer": other_fields}
                self._mismatches.append((trainer, own_scheduler, received_class))
            set_values(trainer, values)

    def scheduler_error(self) -> str | None:
        """Return an error message if a trainer still lacks a scheduler of the received class, otherwise None.

        Call `scheduler_error` at the first update after the values were restored. If all workers' rates are equal, the
        error is the same on all workers.
        """
        for trainer, own_scheduler, received_class in self._mismatches:
            if trainer._optimizer.lr_scheduler is own_scheduler and _scheduler_class(trainer) != received_class:
                return OTHER_SCHEDULER_ERROR.format(received=received_class, own=_scheduler_class(trainer))
        self._mismatches = []
        return None


def counts_of(optimizer: Any) -> list[Any]:
    counts_by_device = [
        [int(device), sorted(counts.items())] for device, counts in optimizer._all_index_update_counts.items()
    ]
    return [optimizer.num_update, counts_by_device]


def set_counts(optimizer: Any, counts: list[Any]) -> None:
    optimizer.num_update, counts_by_device = counts
    for device, parameter_counts in counts_by_device:
        device_counts = optimizer._all_index_update_counts.setdefault(device, {})
        device_counts.clear()
        device_counts.update(dict(parameter_counts))


def values_of(trainer: Any) -> dict[str, Any]:
    loss_scaler = getattr(trainer, "_amp_loss_scaler", None)
    return {
        "optimizer": capture(trainer._optimizer, _EXCLUDED_ATTRIBUTES),
        "scheduler": _scheduler_class(trainer),
        "worker rate": worker_rate.numbers
        if (worker_rate := getattr(trainer, "worker_rate", None)) is not None
        else None,
        "scale": None if getattr(trainer, "_scale", None) is None else float(trainer._scale),
        "amp": None if loss_scaler is None else [trainer._amp_original_scale, capture(loss_scaler)],
        # plain numbers, as JSON has no NumPy numbers
        "parameters": [
            [param.grad_req, float(getattr(param, "lr_mult", 1.0)), float(getattr(param, "wd_mult", 1.0))]
            for param in trainer._params
        ],
    }


def set_values(trainer: Any, values: dict[str, Any]) -> None:
    """Set the trainer's values.

    Raises StateError if `values` contains a loss scaler and the trainer has no loss scaler.
    """
    restore(trainer._optimizer, values["optimizer"])
    if values["scale"] is not None:
        trainer._scale = values["scale"]
    if values["worker rate"] is not None:
        trainer.worker_rate = WorkerRate.of_numbers(values["worker rate"])
    if values["amp"] is not None:
        if getattr(trainer, "_amp_loss_scaler", None) is None:
            raise StateError("the state is of a script with amp.init_trainer(trainer), which this script did not call")
        trainer._amp_original_scale = values["amp"][0]
        restore(trainer._amp_loss_scaler, values["amp"][1])
    for param, (grad_req, lr_mult, wd_mult) in zip(trainer._params, values["parameters"], strict=True):
        if param.grad_req != grad_req:
            param.grad_req = grad_req
        if hasattr(param, "lr_mult"):
            param.lr_mult, param.wd_mult = lr_mult, wd_mult


def _scheduler_class(trainer: Any) -> str:
    """Return the class name of the trainer's learning rate scheduler, or "no scheduler"."""
    scheduler = trainer._optimizer.lr_scheduler
    return "no scheduler" if scheduler is None else type(scheduler).__name__
