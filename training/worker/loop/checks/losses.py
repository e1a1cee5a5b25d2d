"""Compare what a script differentiates with its trainers' `loss`: a sum over the samples, their mean, or normalised.

In one process all of them train. Over several workers, a mean that is taken for a sum counts once for each worker, and
nothing would look wrong. MXNet records how a loss is computed, so the record is examined in the first batch of each
epoch, and at each trainer's first step in a process.

The record does not show whether a Python number that divides a loss was counted. In the first step of each generation
the workers' shares differ in size, and these numbers are compared: see `fingerprints`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet
from dyntrain.training.worker.loop.checks.factors import PRODUCTS_AND_RATIOS, Factors, Terms, name_of
from dyntrain.training.worker.loop.instrument import Listener
from dyntrain.training.worker.loop.record.diagnosis import diagnose
from dyntrain.training.worker.loop.record.losses import UNKNOWN, Loss
from dyntrain.training.worker.loop.record.multiples import multiples

if TYPE_CHECKING:
    from dyntrain.training.worker.loop.training_loop import TrainingLoop

MOST_LOOKS = 200  # batches; a trainer whose first step is later is not examined


class Losses(Listener):
    """Losses of one loop."""

    def __init__(self, loop: TrainingLoop) -> None:
        self._loop = loop
        self.factors = Factors()
        self._fit: set[Any] = set()  # trainers whose losses were examined
        self._looks = 0
        self._hybrids: dict[str, Any] = {}  # symbols of called hybridized blocks, by their names in the record

    def epoch_begins(self) -> None:
        self._fit.clear()
        self._looks = 0

    def put_down(self, forgets: bool) -> None:
        """End the batch; `forgets`: no later update has part in it."""
        self._hybrids.clear()
        self.factors.put_down(forgets)

    # ---- what the script calls

    def called_hybrid(self, block: Any, inputs: Sequence[Any], output: Any) -> None:
        """Keep the block's symbol: it is one operator in the record, which does not show a division within it."""
        if self._looks_now() and (name := name_of(output)):
            self._hybrids[name] = block._cached_graph[1]
            if self._loop.on_trial:
                self.factors.remember(inputs, output, self._smallest)

    def operated(self, operator: int, inputs: Sequence[Any], outputs: Any) -> None:
        if operator in PRODUCTS_AND_RATIOS and self._loop.on_trial:
            self.factors.remember(inputs, outputs, self._smallest)

    def differentiates(self, heads: Sequence[Any], gradients: Sequence[Any]) -> AbstractContextManager[None]:
        return self._looked_at(heads, gradients) if self._looks_now() else nullcontext()

    def judge(self, trainer: Any) -> None:
        """Find what does not fit the trainer's `loss`, before its gradients are summed."""
        loop, current = self._loop, self._loop.current
        if current is None or loop.findings.off:
            return
        current.judged = True
        if not current.kinds or trainer in self._fit:
            return
        groups, trainers = [current.kinds], [trainer]
        if len(current.kinds) > 1 and len({each.loss_kind for each in loop.trainers}) > 1:
            # Several losses may have been differentiated before any trainer stepped, so their trainers are unknown.
            groups, trainers = [{kind} for kind in sorted(current.kinds)], loop.trainers
        for group in groups:
            wrongs = [diagnose(each.loss_kind, each.loss_said, group, whole=True) for each in trainers]
            if wrongs[0] is not None and all(wrongs):
                self._find(wrongs[0])
        self._fit.add(trainer)

    # ---- the results

    @property
    def _smallest(self) -> int:
        """Samples of the device that has the fewest."""
        assert self._loop.current is not None
        return self._loop.current.smallest_device(len(self._loop.trainers[0]._contexts))

    def _looks_now(self) -> bool:
        return self._loop.on_trial or self._unknown

    @property
    def _unknown(self) -> bool:
        """Whether a trainer has not stepped yet, up to a number of batches."""
        return self._looks < MOST_LOOKS and not self._fit.issuperset(self._loop.trainers)

    @contextmanager
    def _looked_at(self, heads: Sequence[Any], gradients: Sequence[Any]) -> Iterator[None]:
        loop = self._loop
        assert loop.current is not None
        losses = [Loss(head, self._hybrids) for head in heads]
        if self._unknown:
            self._complain(losses, gradients)
        if not loop.on_trial:
            yield
            return
        terms: Terms = set()
        for each, gradient in zip(losses, gradients, strict=True):
            times = 1.0 if gradient is None or each.several else float(gradient.asnumpy().item())
            terms |= multiples(each.graph, times, self.factors.constants)
        with self.factors.learn(terms, loop.trainers, loop.current.batches):
            yield

    def _complain(self, losses: Sequence[Loss], gradients: Sequence[Any]) -> None:
        """Find losses that do not fit any trainer's `loss`."""
        loop, current = self._loop, self._loop.current
        assert current is not None
        if current.spectates or self._smallest < 2:
            return
        self._looks += 1
        if current.judged:
            current.kinds, current.judged = set(), False
        declared = {trainer.loss_kind for trainer in loop.trainers}
        is_declared = all(trainer.loss_said for trainer in loop.trainers)
        if declared == {"sum"} and is_declared:
            return  # the script has said so itself
        for each, gradient in zip(losses, gradients, strict=True):
            given = gradient is not None and each.several and bool((gradient.asnumpy() != 1).any())
            current.kinds |= {UNKNOWN} if given else each.kinds
        if len(declared) == 1 and (wrong := diagnose(declared.pop(), is_declared, current.kinds)):
            self._find(wrong)

    def _find(self, code: str) -> None:
        """Report the rule once per batch.

        A loss may have changed in a later epoch, and not on a worker that has joined since; so all workers end at the
        next sum.
        """
        current = self._loop.current
        if current is not None and code not in current.told_of:
            current.told_of.add(code)
            current.refused |= self._loop.findings.find(code) is not None
