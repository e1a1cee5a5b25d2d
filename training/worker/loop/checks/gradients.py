"""Find changes that a script makes to its gradients before they are summed over the workers.

In one process, a script clips gradients between `backward` and `step`. In a job, `step` first sums the gradients over
the workers. So clipping before `step` changes only this worker's gradients, and gives wrong updates without an error.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet
from dyntrain.training.checks.findings import script_line
from dyntrain.training.worker.loop.batch.changes import copy_gradient, factor_of, factor_text, mark_masked
from dyntrain.training.worker.loop.batch.current_batch import CurrentBatch
from dyntrain.training.worker.loop.instrument import AMP, Listener

if TYPE_CHECKING:
    from dyntrain.training.worker.loop.training_loop import TrainingLoop

ACCUMULATING_REQUESTS = ("add",)


class Gradients(Listener):
    """Finder of the changes that a script makes to the gradients of one loop's trainers."""

    def __init__(self, loop: TrainingLoop) -> None:
        self._loop = loop
        self._known: dict[Any, str] = {}  # number by which the script multiplies gradients, by parameter
        self._factors = set[tuple[str, str]]()  # since the last sum

    # ---- what the script calls

    def writes(self, array: Any, writer: str, to_zero: bool) -> None:
        batch, trainers = self._batch, self._loop.owners.trainers_of_gradient(array)
        if not trainers:
            return
        if to_zero or any(trainer in batch.updated for trainer in trainers):
            mark_masked(batch, array)
        elif not (writer.startswith(AMP) or batch.summed in trainers):
            copy_gradient(batch, array, script_line())

    def takes_slice(self, array: Any) -> None:
        if self._loop.owners.trainers_of_gradient(array):
            copy_gradient(self._batch, array)

    def gradient_of(self, weight: Any) -> Any:
        return self._loop.owners.gradient_of(weight)

    def differentiates(self, heads: Sequence[Any], gradients: Sequence[Any]) -> AbstractContextManager[None]:
        self.examine_accumulated()
        return nullcontext()

    # ---- the results

    def examine_accumulated(self) -> None:
        """Check whether the script has changed accumulated gradients, before a backward pass adds to them.

        Gradients that do not accumulate are checked only before their sum, because each backward pass overwrites them.
        """
        batch = self._batch
        for trainer in self._loop.trainers if batch.raw else ():
            self._factors |= self._report_changes(trainer, ACCUMULATING_REQUESTS)
        batch.raw.clear()

    def take_factors(self, trainer: Any) -> set[tuple[str, str]]:
        """Return the numbers by which the script has multiplied the trainer's gradients since the last sum over the
        workers.

        The loop calls this method once before each sum of gradients.
        """
        self._factors |= self._report_changes(trainer, (*ACCUMULATING_REQUESTS, "write"))
        factors, self._factors = self._factors, set()
        return factors

    def _report_changes(self, trainer: Any, kinds: Sequence[str]) -> set[tuple[str, str]]:
        """Report how the script changed the trainer's gradients whose grad_req is in `kinds`; returns the script's
        factors.

        Clipping the gradients of a worker's share is an error. Numbers in the sum over the workers show whether all
        workers multiply by the same factors. Changes other than clipping and multiplying are reported as warnings.
        """
        batch, findings, factors = self._batch, self._loop.findings, set[tuple[str, str]]()
        for param in trainer._params if batch.raw else ():
            for gradient in (param._grad or ()) if param.grad_req in kinds else ():
                if (raw_gradient := batch.raw.pop(id(gradient), None)) is None:
                    continue
                factor = factor_of(raw_gradient, gradient)
                digits = factor_text(factor) if isinstance(factor, float) else None
                if factor == "clip":
                    batch.refused |= findings.find("DT301", raw_gradient.place, name=param.name) is not None
                elif factor == "other" or (digits and self._known.setdefault(param, digits) != digits):
                    findings.find("DT302", raw_gradient.place, name=param.name)
                factors |= {("gradient", digits)} if digits else set()
        return factors

    @property
    def _batch(self) -> CurrentBatch:
        assert self._loop.current is not None
        return self._loop.current
