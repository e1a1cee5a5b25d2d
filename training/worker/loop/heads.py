"""What a script differentiates, held against what its trainers were told: a sum over the samples, their mean, or what
is normalised on its own.

In one process all of them train; over several workers a mean that is taken for a sum counts once for each worker, and
nothing would look wrong. MXNet records what a loss is made of, so in a process' first batch the record is asked.
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
SUMS = {"sum", "sum_axis", "_np_sum", "_npi_sum"}
MEANS = {"mean", "_npi_mean", "_np_mean"}
QUOTIENTS = {"elemwise_div", "broadcast_div", "_npi_true_divide", "_div", "_npi_rtrue_divide_scalar", "_rdiv_scalar"}
TERMS = {"elemwise_add", "broadcast_add", "elemwise_sub", "broadcast_sub", "_npi_add", "_npi_subtract", "add_n"}
ALIKE = {
    "_mul_scalar", "_div_scalar", "_npi_multiply_scalar", "_npi_true_divide_scalar", "_plus_scalar", "_minus_scalar",
    "_npi_add_scalar", "_npi_subtract_scalar", "negative", "_npi_negative", "Reshape", "_np_reshape", "expand_dims",
    "squeeze", "_np_squeeze", "Cast", "amp_cast", "_copyto", "_np_copy", "identity", "_copy",
}  # fmt: skip

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
    ("sum", WEIGHTS): OF_WEIGHTS,
    ("own", WEIGHTS): OF_WEIGHTS,
    ("any", UNKNOWN): (
        "the loss is one number for the batch, and does not show what it is: say job.trainer(..., loss='sum'), 'mean', "
        "or 'own' for one that is divided by the same number on every worker"
    ),
    ("mean", "each"): (
        "the loss has a number for each sample, with loss='mean': leave loss='mean' out where trainer.step() is told "
        "the batch size. Where the numbers were divided by something that is counted in the batch: " + HOW_COUNTED
    ),
}


def terms(head: Any) -> set[str]:
    """What a loss of one number is made of."""
    graph = json.loads(autograd.get_symbol(head).tojson())
    nodes, has_data = graph["nodes"], list[bool]()
    for node in nodes:  # inputs come before what is made of them; what has a gradient of its own is called var
        inputs = [has_data[each[0]] for each in node["inputs"]]
        has_data.append(any(inputs) if node["op"] != "null" else not node["name"].startswith("var"))

    def kinds(at: int) -> set[str]:
        node = nodes[at]
        inputs = [each[0] for each in node["inputs"]]
        if node["op"] in SUMS | MEANS:
            mean = node["op"] in MEANS and not _of_each(node.get("attrs") or {})
            return {WEIGHTS if not has_data[at] else MEAN if mean else SUM}
        if node["op"] in QUOTIENTS:
            return {DIVIDED}
        if node["op"] in TERMS:
            return set[str]().union(*map(kinds, inputs))
        return kinds(inputs[0]) if node["op"] in ALIKE and inputs else {UNKNOWN}

    return kinds(graph["heads"][0][0])


def _of_each(attributes: dict[str, str]) -> bool:
    """Whether a mean is that of each sample, as Gluon's losses make it: here there is one sample."""
    axes = re.findall(r"-?\d+", attributes.get("axis", ""))
    return attributes.get("exclude") == "True" or (bool(axes) and "0" not in axes)


def complaint(told: str, said: bool, found: set[str]) -> str | None:
    """`told`: what the trainers go by; `said`: whether the script said so itself: a sum may be made one by one."""
    if told == "sum" and said:
        return None
    for kind in (DIVIDED, MEAN, SUM, *([WEIGHTS] if len(found) > 1 else []), "each"):
        if kind in found and (wrong := SAYS.get((told, kind)) or SAYS.get(("any", kind))):
            return wrong
    return SAYS["any", UNKNOWN] if UNKNOWN in found and not said else None


def _look(heads: Sequence[Any]) -> None:
    loop, hand = here.loop, here.hand
    assert hand is not None
    devices = len(loop.trainers[0]._contexts)
    least = min(hand.slices or [len(hand.part) // devices])
    told = {trainer.loss_kind for trainer in loop.trainers}
    if hand.spectates or least < 2 or len(told) > 1:
        return
    said = all(trainer.loss_said for trainer in loop.trainers)
    found: set[str] = set()
    for head in heads:
        found |= {"each"} if head.size > 1 else terms(head)
    if wrong := complaint(told.pop(), said, found):
        raise ValueError(wrong)
    hand.looked = True


def _array_backward(backward: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(backward)
    def looks(self: Any, out_grad: Any = None, *args: Any, **said: Any) -> Any:
        if here.hand is not None and out_grad is None and not here.loop.heads_known:
            _look([self])
        return backward(self, out_grad, *args, **said)

    return looks


def _heads_backward(backward: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(backward)
    def looks(heads: Any, head_grads: Any = None, *args: Any, **said: Any) -> Any:
        if here.hand is not None and head_grads is None and not here.loop.heads_known:
            _look(heads if isinstance(heads, list | tuple) else [heads])
        return backward(heads, head_grads, *args, **said)

    return looks


for _kind in (mx.nd.NDArray, mx.np.ndarray):
    if "backward" in vars(_kind):
        _kind.backward = _array_backward(_kind.backward)
autograd.backward = _heads_backward(autograd.backward)
