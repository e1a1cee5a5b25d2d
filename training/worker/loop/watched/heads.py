"""What a script differentiates, held against what its trainers were told: a sum over the samples, their mean, or what
is normalised on its own.

In one process all of them train; over several workers a mean that is taken for a sum counts once for each worker, and
nothing would look wrong. MXNet records what a loss is made of, so in the first batch of each epoch, and of each trainer
in a process, and after a batch that calls more or less than those before it, the record is asked.

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
from dyntrain.training.worker.loop.batch.here import here
from dyntrain.training.worker.loop.record.complaints import complaint
from dyntrain.training.worker.loop.record.losses import GIVEN, Loss
from dyntrain.training.worker.loop.record.multiples import multiples
from mxnet import autograd

if TYPE_CHECKING:
    from dyntrain.training.worker.loop.training_loop import TrainingLoop

MOST_LOOKS = 200  # a trainer that makes its first step much later is not looked at


@contextmanager
def _looked_at(heads: Sequence[Any], gradients: Sequence[Any]) -> Iterator[None]:
    """They are differentiated within."""
    assert here.hand is not None
    loop = here.loop
    losses = [Loss(head, loop.factors.hybrids) for head in heads]
    loop.losses_seen.look(losses)
    if _unknown(loop):
        _complain(losses, gradients)
    if not loop.on_trial:
        yield
        return
    factors, weighed = set[tuple[str, str]](), set[tuple[str, str]]()
    for each, gradient in zip(losses, gradients, strict=True):
        times = 1.0 if gradient is None or each.several else float(gradient.asnumpy().item())
        found = multiples(each.graph, times, loop.factors.constants)
        factors |= found
        if loop.factors.weights:
            weighed |= multiples(each.graph, times, loop.factors.constants | loop.factors.weights) - found
    with loop.factors.learn(factors, weighed, loop.trainers, here.hand.batches):
        yield


def _complain(losses: Sequence[Loss], gradients: Sequence[Any]) -> None:
    """What is not what the trainers were told is found."""
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
        _find(wrong)


def _find(code: str) -> None:
    """A loss may have become another one in a later epoch, and not on who joined then: all end at the next sum."""
    if here.hand is not None and code not in here.hand.told_of:
        here.hand.told_of.add(code)
        here.hand.refused |= here.loop.findings.find(code) is not None


def judge(trainer: Any) -> None:
    """What was differentiated is about to be summed for this trainer."""
    loop, hand = here.loop, here.hand
    if hand is None or loop.findings.off:
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
        if wrongs[0] is not None and all(wrongs):
            _find(wrongs[0])
    loop.heads_known.add(trainer)


def look_again(loop: TrainingLoop) -> None:
    """In the next batch."""
    loop.heads_known.clear()
    loop.looks = min(loop.looks, MOST_LOOKS - 1)


def looks() -> bool:
    """At what will be differentiated in the batch at hand."""
    loop = here.loop if here.hand is not None else None
    return loop is not None and not loop.findings.off and (loop.on_trial or _unknown(loop))


def _unknown(loop: TrainingLoop) -> bool:
    """As long as a trainer has not been seen to step, in so many batches."""
    return loop.looks < MOST_LOOKS and not loop.heads_known.issuperset(loop.trainers)


def _array_backward(backward: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(backward)
    def looked_at(self: Any, out_grad: Any = None, *args: Any, **said: Any) -> Any:
        with _looked_at([self], [out_grad]) if looks() else nullcontext():
            return backward(self, out_grad, *args, **said)

    return looked_at


def _heads_backward(backward: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(backward)
    def looked_at(heads: Any, head_grads: Any = None, *args: Any, **said: Any) -> Any:
        several = heads if isinstance(heads, list | tuple) else [heads]
        given = head_grads if isinstance(head_grads, list | tuple) else [head_grads] * len(several)
        with _looked_at(several, given) if looks() else nullcontext():
            return backward(heads, head_grads, *args, **said)

    return looked_at


for _kind in (mx.nd.NDArray, mx.np.ndarray):
    if "backward" in vars(_kind):
        _kind.backward = _array_backward(_kind.backward)
autograd.backward = _heads_backward(autograd.backward)
