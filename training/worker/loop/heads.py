"""What a script differentiates, held against what its trainers were told: a sum over the samples, their mean, or what
is normalised on its own.

In one process all of them train; over several workers a mean that is taken for a sum counts once for each worker, and
nothing would look wrong. MXNet records what a loss is made of, so in the first batch of each trainer in a process the
record is asked.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable, Sequence
from typing import Any

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet

import mxnet as mx  # isort: skip
from dyntrain.training.worker.loop.here import here
from mxnet import autograd

SUM, MEAN, WEIGHTS, DIVIDED, UNKNOWN = "a sum", "a mean", "weights alone", "a quotient", "unknown"
EACH, CHOSEN, GIVEN = "a number for each sample", "a mean over chosen places", "gradients that are given"
SUMS = {"sum", "sum_axis", "_np_sum", "_npi_sum"}
MEANS = {"mean", "_npi_mean", "_np_mean"}
QUOTIENTS = {"elemwise_div", "broadcast_div", "_npi_true_divide", "_div", "_npi_rtrue_divide_scalar", "_rdiv_scalar"}
TERMS = {"elemwise_add", "broadcast_add", "elemwise_sub", "broadcast_sub", "_npi_add", "_npi_subtract", "add_n"}
ALIKE = {
    "_mul_scalar", "_div_scalar", "_npi_multiply_scalar", "_npi_true_divide_scalar", "_plus_scalar", "_minus_scalar",
    "_rminus_scalar", "_npi_add_scalar", "_npi_subtract_scalar", "_npi_rsubtract_scalar", "negative", "_npi_negative",
    "Reshape", "_np_reshape", "expand_dims", "squeeze", "_np_squeeze", "Cast", "amp_cast", "_copyto", "_np_copy",
    "identity", "_copy",
}  # fmt: skip
STACKS = {"stack", "Concat", "concat", "_npi_stack", "_npi_concatenate"}
PRODUCTS = {"elemwise_mul", "broadcast_mul", "_npi_multiply"}
LINEAR = SUMS | TERMS | ALIKE | STACKS | PRODUCTS  # through which a mean below stays one
MASKS = {"_contrib_boolean_mask", "_npi_boolean_mask"}

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
    ("any", GIVEN): (
        "backward() is given gradients that are not 1, and what it comes to does not show: say job.trainer(..., "
        "loss='sum') where each is of its sample alone, 'mean' where they are divided by the samples in hand, or 'own'"
    ),
    ("sum", WEIGHTS): OF_WEIGHTS,
    ("own", WEIGHTS): OF_WEIGHTS,
    ("any", UNKNOWN): (
        "the loss is one number for the batch, and does not show what it is: say job.trainer(..., loss='sum'), 'mean', "
        "or 'own' for one that is divided by the same number on every worker"
    ),
    ("mean", EACH): (
        "the loss has a number for each sample, with loss='mean': leave loss='mean' out where trainer.step() is told "
        "the batch size. Where the numbers were divided by something that is counted in the batch: " + HOW_COUNTED
    ),
}


def terms(head: Any) -> set[str]:
    """What a loss is made of. One with several numbers has one for each sample, unless these are seen to be means."""
    graph = json.loads(autograd.get_symbol(head).tojson())
    nodes, has_data, averages = graph["nodes"], list[bool](), list[bool]()
    for node in nodes:  # inputs come before what is made of them
        inputs = [each[0] for each in node["inputs"]]
        # what has a gradient of its own is called var
        data = any(has_data[i] for i in inputs) if node["op"] != "null" else not node["name"].startswith("var")
        has_data.append(data)
        below = any(averages[i] for i in inputs) and (node["op"] in LINEAR or _of_each(node))
        averages.append(below or (data and _is_mean(node)))

    def kinds(at: int) -> set[str]:
        node = nodes[at]
        inputs = [each[0] for each in node["inputs"]]
        if not has_data[at]:
            return {WEIGHTS}
        if _is_mean(node):
            return {CHOSEN if _chooses(nodes, inputs[0]) else MEAN}
        if node["op"] in SUMS | MEANS:
            return {MEAN if averages[at] else SUM}
        if node["op"] in QUOTIENTS:
            return {DIVIDED}
        if node["op"] in TERMS:
            return set[str]().union(*map(kinds, inputs))
        return kinds(inputs[0]) if node["op"] in ALIKE and inputs else {UNKNOWN}

    top = graph["heads"][0][0]
    if head.size > 1:
        return {MEAN if averages[top] else EACH}
    return kinds(top)


def _is_mean(node: Any) -> bool:
    """Over the batch."""
    return node["op"] in MEANS and not _of_each(node)


def _of_each(node: Any) -> bool:
    """Whether a mean is that of each sample, as Gluon's losses make it: where it is one number there is one sample."""
    attributes = node.get("attrs") or {}
    axes = re.findall(r"-?\d+", attributes.get("axis", ""))
    return node["op"] in MEANS and (attributes.get("exclude") == "True" or (bool(axes) and "0" not in axes))


def _chooses(nodes: list[Any], at: int) -> bool:
    """Whether a mask has chosen what is below."""
    below, seen = [at], set[int]()
    while below:
        if (number := below.pop()) not in seen:
            seen.add(number)
            below += [each[0] for each in nodes[number]["inputs"]]
    return any(nodes[number]["op"] in MASKS for number in seen)


def complaint(told: str, said: bool, found: set[str], whole: bool = False) -> str | None:
    """`told`: what the trainers go by; `said`: whether the script said so itself: a sum may be made one by one.
    `whole`: nothing more is differentiated before the update.
    """
    if told == "sum" and said:
        return None
    weights = [WEIGHTS] if len(found) > 1 or whole else []
    for kind in (DIVIDED, CHOSEN, MEAN, SUM, *weights, EACH):
        if kind in found and (wrong := SAYS.get((told, kind)) or SAYS.get(("any", kind))):
            return wrong
    for kind in (GIVEN, UNKNOWN):
        if kind in found and not said:
            return SAYS["any", kind]
    return None


def _look(heads: Sequence[Any], gradients: Sequence[Any]) -> None:
    loop, hand = here.loop, here.hand
    assert hand is not None
    devices = len(loop.trainers[0]._contexts)
    least = min(hand.slices or [len(hand.part) // devices])
    if hand.spectates or least < 2:
        return
    loop.looks += 1
    if hand.judged:
        hand.found, hand.judged = set(), False
    for head, gradient in zip(heads, gradients, strict=True):
        given = gradient is not None and head.size > 1 and bool((gradient.asnumpy() != 1).any())
        hand.found |= {GIVEN} if given else terms(head)
    told = {trainer.loss_kind for trainer in loop.trainers}
    said = all(trainer.loss_said for trainer in loop.trainers)
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
    """As long as a trainer has not been seen to step, in so many batches."""
    loop = here.loop if here.hand is not None else None
    return loop is not None and loop.looks < MOST_LOOKS and not loop.heads_known.issuperset(loop.trainers)


def _array_backward(backward: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(backward)
    def looks(self: Any, out_grad: Any = None, *args: Any, **said: Any) -> Any:
        if _looks():
            _look([self], [out_grad])
        return backward(self, out_grad, *args, **said)

    return looks


def _heads_backward(backward: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(backward)
    def looks(heads: Any, head_grads: Any = None, *args: Any, **said: Any) -> Any:
        if _looks():
            several = heads if isinstance(heads, list | tuple) else [heads]
            given = head_grads if isinstance(head_grads, list | tuple) else [head_grads] * len(several)
            _look(several, given)
        return backward(heads, head_grads, *args, **said)

    return looks


for _kind in (mx.nd.NDArray, mx.np.ndarray):
    if "backward" in vars(_kind):
        _kind.backward = _array_backward(_kind.backward)
autograd.backward = _heads_backward(autograd.backward)
