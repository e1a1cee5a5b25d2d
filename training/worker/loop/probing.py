"""The first batch of a loop, tried before its first step: are the gradients of some samples those of two parts of them?

MXNet's record does not show everything that a script counts in its batch: weights of classes, a target, how many places
were picked. So each worker that begins the loop lets the script go through some samples of the first batch, and through
two shares of them, in processes of their own. What is not the same would be another training over several workers.

Layers are held still meanwhile: what BatchNorm does to a batch is its own matter. Where the script draws numbers for
each sample nothing can be said.
"""

from __future__ import annotations

import logging
import math
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet
import numpy as np
from dyntrain.training.sampling.sharding import Indices
from dyntrain.training.worker.data.randomness import seed_generators
from dyntrain.training.worker.loop.hand import Hand, summed
from dyntrain.training.worker.loop.reduction import Total
from dyntrain.training.worker.probe.child import Home, fork
from dyntrain.training.worker.probe.sketches import Sketch, difference, sketch
from dyntrain.training.worker.probe.still import drawn, hold_still
from dyntrain.training.worker.state.training_state import gradient_key
from mxnet.contrib.amp import amp

if TYPE_CHECKING:
    from dyntrain.training.worker.loop.training_loop import TrainingLoop

SAMPLES, FEWEST = 12, 4  # of the excerpt
FIRST = 5 / 12  # of it is the first part: neither of the two is a multiple of the other
SECONDS = 60.0  # for all of it: a script that takes longer begins without
TOLERANCE, OF_HALVES = 1e-3, 5e-2  # of what float32, and float16, make of a sum in another order
NOT_ADDITIVE = (
    "the gradients of {whole} samples are not those of {first} and of {rest} of them together: that of {name} differs "
    "by {share:.0%} (together they are {times:.3g} times it). So over several workers, which have a share each, the "
    "script would train otherwise than in one process. Something is counted, averaged or compared in the batch that "
    "is another number in each share: leave a division by it out, and tell trainer.step() the number, by "
    "epoch.sum(n); make what is for the whole batch before it is divided, in a batchify_fn, with "
    "job.loader(..., whole_batch=True); a mean is job.trainer(..., loss='mean'), of time-first outputs with "
    "batch_axis=1. Where each worker's share is meant, as for a norm of the script's own: job.epochs(..., probe=False)"
)
UNTRIED = "the first batch is not probed: %s"
log = logging.getLogger(__name__)


class Probing:
    """In a child: its part of the excerpt. `totals`: what `epoch.sum` says, in order, as the whole excerpt came to;
    None: it is the whole, and says what it counts itself.
    """

    def __init__(self, home: Home, totals: Sequence[float] | None) -> None:
        self._home, self._given = home, None if totals is None else iter(totals)
        self._totals: list[float] = []
        self._gradients: dict[str, Sketch] = {}
        self._summed = set[Any]()

    def total(self, value: float) -> Total:
        self._totals.append(value if self._given is None else next(self._given, math.nan))
        return Total(self._totals[-1])

    def summed(self, loop: TrainingLoop, hand: Hand, trainer: Any) -> None:
        """In place of a sum over the workers. After that of the last trainer nothing is of interest."""
        leans, t = hand.leans(trainer), loop.trainers.index(trainer)
        self._gradients |= {
            gradient_key(t, i): _sketch_of(p, leans) for i, p in enumerate(trainer._params) if summed(p)
        }
        self._summed.add(trainer)
        if len(self._summed) == len(loop.trainers):
            self.end(loop, hand)

    def end(self, loop: TrainingLoop, hand: Hand) -> NoReturn:
        """The script wants the next batch, or may be at its end."""
        for trainer in loop.trainers:
            if trainer not in self._summed and any(p.grad_req == "add" for p in trainer._params):
                self.summed(loop, hand, trainer)
        found = {key: [each.norm, each.sums] for key, each in self._gradients.items()}
        self._home.say({"gradients": found, "totals": self._totals, "drawn": drawn()})


def _sketch_of(param: Any, leans: Sequence[float]) -> Sketch:
    """Of the gradients of all devices. What was not written to in this batch is of none."""
    total = np.zeros(param.shape)
    for data, gradient, lean in zip(param.list_data(), param.list_grad(), leans, strict=True):
        if param.grad_req == "add" or data._fresh_grad:
            total += lean * gradient.asnumpy().astype(np.float64)
    return sketch(total)


def probed(loop: TrainingLoop) -> Iterator[Indices]:
    """Nothing here; in each child what it has of the batch, with `loop.probing` set. In the end `loop.not_additive` is
    what is wrong, if anything is.
    """
    excerpt = loop.first_batch[:SAMPLES]
    if len(excerpt) < FEWEST:
        return log.info(UNTRIED, f"it has {len(excerpt)} samples")
    if any(context.device_type != "cpu" for t in loop.trainers for context in t._contexts):
        return log.info(UNTRIED, "what is on a GPU is not there after a fork")
    rows, answers, until = np.arange(len(excerpt)), list[dict[str, Any]](), time.monotonic() + SECONDS
    first = int(len(excerpt) * FIRST)
    for part in (rows, rows[:first], rows[first:]):
        came = fork(until - time.monotonic())
        if isinstance(came, Home):
            came.leave_at_errors(sys._getframe())
            probing = Probing(came, answers[0]["totals"] if answers else None)
            hold_still()
            hand = loop.take_part(probing, excerpt, part)
            seed_generators(loop.seed, loop.position.step, 0)
            yield hand.part
            return
        if "failed" in came:
            return log.info(UNTRIED, came["failed"])
        answers.append(came)
    loop.not_additive = _judge(loop, {"whole": len(excerpt), "first": first, "rest": len(excerpt) - first}, answers)


def _judge(loop: TrainingLoop, sizes: Mapping[str, int], answers: Sequence[dict[str, Any]]) -> str | None:
    """What is wrong. `answers`: of the whole excerpt, its `first` part and the `rest`, which have these `sizes`."""
    if len({answer["drawn"] for answer in answers}) > 1:
        log.info(UNTRIED, "the script draws other numbers for other samples")
        return None
    whole, *parts = ({key: Sketch(norm, sums) for key, (norm, sums) in a["gradients"].items()} for a in answers)
    for t, trainer in enumerate(loop.trainers):
        keys = {gradient_key(t, i): p.name for i, p in enumerate(trainer._params)}
        names = {key: name for key, name in keys.items() if all(key in found for found in (whole, *parts))}
        weigh = [sizes[part] / sizes["whole"] if trainer.loss_kind == "mean" else 1.0 for part in ("first", "rest")]
        tolerance = OF_HALVES if _has_halves(trainer) else TOLERANCE
        try:
            wrong = difference(whole, list(zip(weigh, parts, strict=True)), names, tolerance)
        except ValueError as error:
            log.info(UNTRIED, error)
            return None
        if wrong is not None:
            return NOT_ADDITIVE.format(**sizes, **vars(wrong))
    log.info("the first batch is probed: gradients of %(whole)d samples are those of %(first)d and %(rest)d", sizes)
    return None


def _has_halves(trainer: Any) -> bool:
    """Among its numbers, or between them where AMP casts."""
    return amp._amp_initialized or any(np.dtype(p.dtype) == np.float16 for p in trainer._params)
