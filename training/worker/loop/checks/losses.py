"""Check that a script's losses are what its trainers' `loss` declares: sums or means over samples, or normalised
values.

In one process, a script trains correctly even if the declaration is wrong. On several workers, a mean that is declared
as a sum gives wrong updates without an error, because each worker adds a mean. MXNet records how a loss is computed.
This module examines MXNet's record of each loss in each epoch, until each trainer has stepped once in the epoch.

MXNet's record does not show whether a Python number that divides a loss is a count of samples. A count of samples
differs between workers whose shares differ in size. So the workers compare the numbers in their losses in the first
step of each generation, in which shares are of unequal size: see `fingerprints`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet
from dyntrain.training.worker.loop.checks.factors import PRODUCTS_AND_RATIOS, LossFactors, Terms, name_of
from dyntrain.training.worker.loop.instrument import Listener
from dyntrain.training.worker.loop.record.diagnosis import diagnose
from dyntrain.training.worker.loop.record.losses import UNKNOWN, Loss
from dyntrain.training.worker.loop.record.multiples import multiples

if TYPE_CHECKING:
    from dyntrain.training.worker.loop.training_loop import TrainingLoop

MOST_EXAMINED = 200  # most backward passes examined; a trainer whose first step is later is not checked


class Losses(Listener):
    """Check of the losses that a script computes in one loop over epochs."""

    def __init__(self, loop: TrainingLoop) -> None:
        self._loop = loop
        self.factors = LossFactors()
        self._judged: set[Any] = set()  # trainers whose losses were examined
        self._examined = 0
        self._hybrids: dict[str, Any] = {}  # symbols of called hybridized blocks, by their names in the record

    def epoch_begins(self) -> None:
        self._judged.clear()
        self._examined = 0

    def end_batch(self, forgets: bool) -> None:
        """Forget the batch's blocks and constants. `forgets`: whether to forget the batch's factors too, because no
        later update includes the batch's gradients.
        """
        self._hybrids.clear()
        self.factors.end_batch(forgets)

    # ---- what the script calls

    def called_hybrid(self, block: Any, inputs: Sequence[Any], output: Any) -> None:
        """Store the block's symbol, because MXNet's record shows the block as one operator and hides divisions within
        the block.
        """
        if self._examines_now() and (name := name_of(output)):
            self._hybrids[name] = block._cached_graph[1]
            if self._loop.compares_numbers:
                self.factors.store_constants(inputs, output, self._fewest_samples)

    def called_operator(self, operator: int, inputs: Sequence[Any], outputs: Any) -> None:
        if operator in PRODUCTS_AND_RATIOS and self._loop.compares_numbers:
            self.factors.store_constants(inputs, outputs, self._fewest_samples)

    def differentiates(self, heads: Sequence[Any], gradients: Sequence[Any]) -> AbstractContextManager[None]:
        return self._examine_losses(heads, gradients) if self._examines_now() else nullcontext()

    def report_losses_of(self, trainer: Any) -> None:
        """Report losses that do not fit the trainer's `loss`, before the trainer's gradients are summed."""
        loop, batch = self._loop, self._loop.current
        if batch is None or loop.findings.is_off:
            return
        batch.judged = True
        if not batch.kinds or trainer in self._judged:
            return
        kind_groups, trainers = [batch.kinds], [trainer]
        if len(batch.kinds) > 1 and len({any_trainer.loss_kind for any_trainer in loop.trainers}) > 1:
            # Several losses may have been differentiated before any trainer stepped, so their trainers are unknown.
            kind_groups, trainers = [{kind} for kind in sorted(batch.kinds)], loop.trainers
        for kinds in kind_groups:
            rule_codes = [
                diagnose(any_trainer.loss_kind, any_trainer.loss_is_declared, kinds, whole=True)
                for any_trainer in trainers
            ]
            if rule_codes[0] is not None and all(rule_codes):
                self._report_rule(rule_codes[0])
        self._judged.add(trainer)

    # ---- the results

    @property
    def _fewest_samples(self) -> int:
        """Number of samples on the device that has the fewest samples."""
        assert self._loop.current is not None
        return self._loop.current.fewest_device_samples(len(self._loop.trainers[0]._contexts))

    def _examines_now(self) -> bool:
        return self._loop.compares_numbers or self._has_unexamined_trainer

    @property
    def _has_unexamined_trainer(self) -> bool:
        """Whether some trainer has not stepped yet in this epoch. After MOST_EXAMINED backward passes, the answer is
        False.
        """
        return self._examined < MOST_EXAMINED and not self._judged.issuperset(self._loop.trainers)

    @contextmanager
    def _examine_losses(self, heads: Sequence[Any], gradients: Sequence[Any]) -> Iterator[None]:
        loop = self._loop
        assert loop.current is not None
        losses = [Loss(head, self._hybrids) for head in heads]
        if self._has_unexamined_trainer:
            self._report_unfit_losses(losses, gradients)
        if not loop.compares_numbers:
            yield
            return
        terms: Terms = set()
        for loss, gradient in zip(losses, gradients, strict=True):
            head_gradient = 1.0 if gradient is None or loss.several else float(gradient.asnumpy().item())
            terms |= multiples(loss.graph, head_gradient, self.factors.constants)
        with self.factors.assign_terms(terms, loop.trainers, loop.current.batches):
            yield

    def _report_unfit_losses(self, losses: Sequence[Loss], gradients: Sequence[Any]) -> None:
        """Report losses that break a rule, if all trainers declare the same `loss`; otherwise store their kinds."""
        loop, batch = self._loop, self._loop.current
        assert batch is not None
        if batch.spectates or self._fewest_samples < 2:
            return
        self._examined += 1
        if batch.judged:
            batch.kinds, batch.judged = set(), False
        declared_kinds = {trainer.loss_kind for trainer in loop.trainers}
        is_declared = all(trainer.loss_is_declared for trainer in loop.trainers)
        if declared_kinds == {"sum"} and is_declared:
            return  # the script itself has declared loss='sum'
        for loss, gradient in zip(losses, gradients, strict=True):
            is_weighted = gradient is not None and loss.several and bool((gradient.asnumpy() != 1).any())
            batch.kinds |= {UNKNOWN} if is_weighted else loss.kinds
        if len(declared_kinds) == 1 and (rule_code := diagnose(declared_kinds.pop(), is_declared, batch.kinds)):
            self._report_rule(rule_code)

    def _report_rule(self, code: str) -> None:
        """Report at most once in a batch that the script breaks a rule. If the rule is an error, all workers end at the
        next sum.

        A rule may be broken on some workers only, such as on workers that joined after the script changed its loss.
        """
        batch = self._loop.current
        if batch is not None and code not in batch.reported_rules:
            batch.reported_rules.add(code)
            batch.refused |= self._loop.findings.find(code) is not None
