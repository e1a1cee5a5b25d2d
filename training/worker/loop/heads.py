"""What a script differentiates, held against what its trainers were told: a sum over the samples, their mean, or what
is normalised on its own.

In one process all of them train; over several workers a mean that is taken for a sum counts once for each worker, and
nothing would look wrong. MXNet records what a loss is made of, so in the first batch of each trainer in a process the
record is asked.

A number of Python's by which a loss is divided does not say whether it was counted. In the first step of each
generation the workers' shares are of different sizes, and these numbers are compared: see `opinions`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet

import mxnet as mx  # isort: skip
from dyntrain.training.worker.loop.here import here
from dyntrain.training.worker.loop.losses import (
    CHOSEN,
    CURVED,
    DIVIDED,
    EACH,
    GIVEN,
    MEAN,
    MIXED,
    NORMALISED,
    PENALTY,
    PICKED,
    SUM,
    UNKNOWN,
    WEIGHTS,
    Loss,
)
from mxnet import autograd

if TYPE_CHECKING:
    from dyntrain.training.worker.loop.training_loop import TrainingLoop

MOST_LOOKS = 200  # a trainer that makes its first step much later is not looked at

HOW_MEAN = "job.trainer(..., loss='mean'); trainer.step() is told what it was told before"
HOW_COUNTED = (
    "what each batch has more or less of, as words or positives, is counted over all workers: leave the division out, "
    "and write trainer.step(epoch.sum(n)) with the n that it was divided by"
)
OF_ONE = "Where a loss is of one sample, and the script goes through them: job.trainer(..., loss='sum')"
OF_WEIGHTS = (
    "the loss has a term of the weights alone, which would count once for each worker: make the rest a .mean(), the "
    f"term what it is beside that, and {HOW_MEAN}; or take the optimizer's wd"
)
OF_PICKED = (
    "the loss is a mean over places that are picked by their numbers: where each sample has as many, "
    f"{HOW_MEAN}. Where a batch has more or less of them: write .sum() in place of .mean(), and "
    "trainer.step(epoch.sum(n)) with how many are picked"
)
OF_ARRAYS = (
    "the loss has a term of weights and arrays through no layer, as one that holds the weights near a start, or of "
    "weights that are drawn: it would count once for each worker. Make the rest a .mean(), the term what it is beside "
    f"that, and {HOW_MEAN}. Where the term is made of the batch: job.trainer(..., loss='sum')"
)
SAYS = {
    ("sum", MEAN): f"the loss is a mean over the batch, and its trainer was not told: {HOW_MEAN}. {OF_ONE}",
    ("own", MEAN): f"the loss is a mean over this worker's samples, with loss='own': {HOW_MEAN}",
    ("mean", SUM): "the loss is a sum, with loss='mean': leave loss='mean' out, or write .mean() in place of .sum()",
    (
        "any",
        DIVIDED,
    ): f"the loss is divided by something that this worker counted in its samples: {HOW_COUNTED}. {OF_ONE}",
    ("any", CHOSEN): (
        "the loss is a mean over places that are chosen in the batch, of which each worker has another number: write "
        ".sum() in place of .mean(), and trainer.step(epoch.sum(n)) with how many are chosen"
    ),
    ("any", NORMALISED): (
        "the loss has normalization='valid' or 'batch', which divides by what this worker counted, in its backward "
        "pass: normalization='null', and trainer.step(epoch.sum(n) * m), where n is what it counted ('batch': the "
        "samples) and m what trainer.step() was told; with several places of a sample (multi_output) 'null' divides "
        "by their number, so that it is divided out again"
    ),
    ("any", MIXED): (
        "each sample's loss has a sum or a mean over the batch in it, which is another one in each worker's share. "
        "Where that is a mean, and is added: make one .mean() of all, with job.trainer(..., loss='mean') and "
        "trainer.step(1). Where it is counted: n = epoch.sum(n), before autograd.record(). Anything else needs the "
        f"whole batch on one worker. {OF_ONE}"
    ),
    ("any", CURVED): (
        "the loss is a function of something over the batch, as a root of a mean or its largest, to which the workers' "
        f"shares do not add up: leave the function out, or take it of each sample. {OF_ONE}"
    ),
    ("any", GIVEN): (
        "backward() is given gradients that are not 1, and what it comes to does not show: say job.trainer(..., "
        "loss='sum') where each is of its sample alone, 'mean' where they are divided by the samples in hand, or 'own'"
    ),
    ("sum", PICKED): OF_PICKED,
    ("own", PICKED): OF_PICKED,
    ("sum", WEIGHTS): OF_WEIGHTS,
    ("own", WEIGHTS): OF_WEIGHTS,
    ("sum", PENALTY): OF_ARRAYS,
    ("own", PENALTY): OF_ARRAYS,
    ("any", UNKNOWN): (
        "the loss is one number for the batch, and does not show what it is: say job.trainer(..., loss='sum'), 'mean', "
        "or 'own' for one that is divided by the same number on every worker"
    ),
    ("mean", EACH): (
        "the loss has a number for each sample, with loss='mean': leave loss='mean' out where trainer.step() is told "
        "the batch size. Where the numbers were divided by something that is counted in the batch: " + HOW_COUNTED
    ),
}


def complaint(told: str, said: bool, found: set[str], whole: bool = False) -> str | None:
    """`told`: what the trainers go by; `said`: whether the script said so itself: a sum may be made one by one.
    `whole`: nothing more is differentiated before the update.
    """
    if told == "sum" and said:
        return None
    if found == {PENALTY}:  # of the batch, then: a linear model that is written by hand
        return SAYS["mean", SUM] if told == "mean" and whole else None
    weights = [WEIGHTS] if len(found) > 1 or whole else []
    for kind in (NORMALISED, DIVIDED, CHOSEN, MIXED, CURVED, PICKED, MEAN, SUM, *weights, PENALTY, EACH):
        if kind in found and (wrong := SAYS.get((told, kind)) or SAYS.get(("any", kind))):
            return wrong
    for kind in (GIVEN, UNKNOWN):
        if kind in found and not said:
            return SAYS["any", kind]
    return None


@contextmanager
def _looked_at(heads: Sequence[Any], gradients: Sequence[Any]) -> Iterator[None]:
    """They are differentiated within. Raises ValueError before that."""
    assert here.hand is not None
    loop, losses = here.loop, [Loss(head) for head in heads]
    if _unknown(loop):
        _complain(losses, gradients)
    if not loop.on_trial:
        yield
        return
    factors = set[tuple[str, str]]()
    for each, gradient in zip(losses, gradients, strict=True):
        times = 1.0 if gradient is None or each.several else float(gradient.asnumpy().item())
        factors |= each.factors(times, loop.factors.constants)
    with loop.factors.learn(factors, loop.trainers, here.hand.batches):
        yield


def _complain(losses: Sequence[Loss], gradients: Sequence[Any]) -> None:
    """Raises ValueError for what is not what the trainers were told."""
    loop, hand = here.loop, here.hand
    assert hand is not None
    if hand.spectates or hand.fewest(len(loop.trainers[0]._contexts)) < 2:
        return
    loop.looks += 1
    if hand.judged:
        hand.found, hand.judged, hand.undivided = set(), False, None
    told = {trainer.loss_kind for trainer in loop.trainers}
    said = all(trainer.loss_said for trainer in loop.trainers)
    if told == {"sum"} and said:
        return  # it is believed
    for each, gradient in zip(losses, gradients, strict=True):
        given = gradient is not None and each.several and bool((gradient.asnumpy() != 1).any())
        hand.found |= {GIVEN} if given else each.kinds
        hand.undivided = hand.undivided is not False and not given and each.undivided
    if len(told) == 1 and (wrong := complaint(told.pop(), said, hand.found)):
        raise ValueError(wrong)


def judge(trainer: Any) -> None:
    """What was differentiated is about to be summed for this trainer. Raises ValueError."""
    loop, hand = here.loop, here.hand
    if hand is None:
        return
    hand.judged = True
    if not hand.found or trainer in loop.heads_known:
        return
    groups, trainers = [hand.found], [trainer]
    if len(hand.found) > 1 and len({each.loss_kind for each in loop.trainers}) > 1:
        # Several losses may have been differentiated before any trainer stepped: whose each is does not show.
        groups, trainers = [{kind} for kind in sorted(hand.found)], loop.trainers
    for group in groups:
        wrongs = [complaint(each.loss_kind, each.loss_said, group, whole=True) for each in trainers]
        if all(wrongs):
            raise ValueError(wrongs[0])
    loop.heads_known.add(trainer)


def _looks() -> bool:
    loop = here.loop if here.hand is not None else None
    return loop is not None and (loop.on_trial or _unknown(loop))


def _unknown(loop: TrainingLoop) -> bool:
    """As long as a trainer has not been seen to step, in so many batches."""
    return loop.looks < MOST_LOOKS and not loop.heads_known.issuperset(loop.trainers)


def _array_backward(backward: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(backward)
    def looks(self: Any, out_grad: Any = None, *args: Any, **said: Any) -> Any:
        with _looked_at([self], [out_grad]) if _looks() else nullcontext():
            return backward(self, out_grad, *args, **said)

    return looks


def _heads_backward(backward: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(backward)
    def looks(heads: Any, head_grads: Any = None, *args: Any, **said: Any) -> Any:
        several = heads if isinstance(heads, list | tuple) else [heads]
        given = head_grads if isinstance(head_grads, list | tuple) else [head_grads] * len(several)
        with _looked_at(several, given) if _looks() else nullcontext():
            return backward(heads, head_grads, *args, **said)

    return looks


for _kind in (mx.nd.NDArray, mx.np.ndarray):
    if "backward" in vars(_kind):
        _kind.backward = _array_backward(_kind.backward)
autograd.backward = _heads_backward(autograd.backward)
