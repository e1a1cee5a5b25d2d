"""The job in a probe's child process, which reports gradients to the parent process instead of summing over workers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet
import numpy as np
from dyntrain.training.worker.loop.agreed.reduction import Total
from dyntrain.training.worker.loop.batch.current_batch import CurrentBatch, has_gradient
from dyntrain.training.worker.probe.child import ParentPipe
from dyntrain.training.worker.probe.draws import DrawCheck
from dyntrain.training.worker.probe.freeze_layers import Statistics
from dyntrain.training.worker.probe.sketches import Sketch, sketch
from dyntrain.training.worker.state.training_state import gradient_key

if TYPE_CHECKING:
    from dyntrain.training.worker.loop.training_loop import TrainingLoop


class ProbeChild:
    """State of a child process that computes the gradients of `batch`, which is the excerpt (all probed samples) or a
    part.

    `totals`: the results of `epoch.sum` in the child with the whole excerpt, in order, or None if this process is that
    child. `own`: see `DrawCheck`.
    """

    def __init__(
        self, parent: ParentPipe, batch: Any, totals: Sequence[float] | None, statistics: Statistics, own: Sequence[Any]
    ) -> None:
        self.batch = batch
        self._parent, self._given_totals, self._draws = parent, None if totals is None else iter(totals), DrawCheck(own)
        self._statistics = statistics
        self._totals: list[float] = []
        self._gradients: dict[str, Sketch] = {}
        self._summed = set[Any]()

    def add_total(self, value: float) -> Total:
        self._totals.append(value if self._given_totals is None else next(self._given_totals, math.nan))
        return Total(self._totals[-1])

    def record_gradients(self, loop: TrainingLoop, batch: CurrentBatch, trainer: Any) -> None:
        """Record sketches of the trainer's gradients, in place of a sum over the workers. After the last trainer,
        report and end the child process.
        """
        device_weights, trainer_number = batch.device_weights(trainer), loop.trainers.index(trainer)
        for index, param in enumerate(trainer._params):
            if has_gradient(param):
                self._gradients[gradient_key(trainer_number, index)] = _sketch_of(param, device_weights)
        self._summed.add(trainer)
        if len(self._summed) == len(loop.trainers):
            self.end(loop, batch)

    def end(self, loop: TrainingLoop, batch: CurrentBatch) -> NoReturn:
        """Report the gradients to the parent process and end the child process. The loop calls this method when the
        script in the child asks for the next batch.
        """
        for trainer in loop.trainers:
            if trainer not in self._summed and any(param.grad_req == "add" for param in trainer._params):
                self.record_gradients(loop, batch, trainer)
        gradients = {
            key: [gradient_sketch.norm, gradient_sketch.sums] for key, gradient_sketch in self._gradients.items()
        }
        single_number_draws, draws_digest = self._draws.single_number_draws, self._draws.digest()
        report_fields = {
            "totals": self._totals,
            "norms": self._statistics.seen,
            "drawn": draws_digest,
            "of_batch": single_number_draws,
        }
        self._parent.send_and_end({"gradients": gradients, **report_fields})


def _sketch_of(param: Any, device_weights: Sequence[float]) -> Sketch:
    """Return the sketch of a parameter's gradient, added up over all devices; a gradient that was not computed is
    zeros.
    """
    device_values = zip(param.list_data(), param.list_grad(), device_weights, strict=True)
    gradients = [
        gradient if device_weight == 1.0 else gradient * device_weight
        for data, gradient, device_weight in device_values
        if param.grad_req == "add" or data._fresh_grad
    ]
    gradient_sum = gradients[0].asnumpy() if gradients else np.zeros(param.shape, np.float32)
    for device_gradient in gradients[1:]:
        gradient_sum = gradient_sum + device_gradient.asnumpy()
    return sketch(gradient_sum)
