"""Learning rate schedules that count samples, so that they do not drift when the number of workers changes."""

from __future__ import annotations

from typing import Any

import training.numpy_aliases  # noqa: F401  # before mxnet

from mxnet.lr_scheduler import LRScheduler  # isort: skip


class SampleSchedule(LRScheduler):  # type: ignore[misc]  # mxnet has no types
    """`inner` was made to count updates of `unit` samples; it is asked with the samples trained on so far in such units.

    `samples` is part of the training state. `inner` must follow from the count alone, as all of MXNet's do: a joiner asks its own fresh one.
    """

    def __init__(self, inner: Any, unit: int) -> None:
        if unit < 1:
            raise ValueError(f"a unit of {unit} samples: must be at least 1")
        self._inner, self._unit = inner, unit
        self.samples = 0

    @property
    def base_lr(self) -> float:
        return float(self._inner.base_lr)

    @base_lr.setter
    def base_lr(self, value: float) -> None:
        self._inner.base_lr = value

    def advance(self, samples: int) -> None:
        """Before the update that takes so many samples over all workers."""
        self.samples += samples

    def __call__(self, num_update: int) -> float:
        return float(self._inner(-(-self.samples // self._unit)))
