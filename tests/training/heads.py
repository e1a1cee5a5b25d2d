"""Losses that scripts differentiate, by names: each of a net, a batch and its labels. Most are public scripts'."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet
import numpy as np

import mxnet as mx  # isort: skip
from idioms import CROSS, mlp
from mxnet import autograd, gluon

Loss = Callable[[Any, Any, Any], Any]


class Squares(autograd.Function):  # type: ignore[misc]  # mxnet has no types
    """Of the net's outputs; `whole`: its backward pass divides by the samples, whatever is made of it."""

    def __init__(self, whole: bool = False) -> None:
        super().__init__()
        self.whole = whole

    def forward(self, out: Any) -> Any:
        self.save_for_backward(out)
        return (out**2).sum(axis=1)

    def backward(self, given: Any) -> Any:
        (out,) = self.saved_tensors
        return 2 * out * given.expand_dims(1) / (len(out) if self.whole else 1)


class Straight(mx.operator.CustomOp):  # type: ignore[misc]
    def forward(self, is_train: Any, req: Any, in_data: Any, out_data: Any, aux: Any) -> None:
        self.assign(out_data[0], req[0], in_data[0])

    def backward(self, req: Any, out_grad: Any, in_data: Any, out_data: Any, in_grad: Any, aux: Any) -> None:
        self.assign(in_grad[0], req[0], out_grad[0])


@mx.operator.register("straight_through")
class StraightProp(mx.operator.CustomOpProp):  # type: ignore[misc]
    def create_operator(self, ctx: Any, in_shapes: Any, in_dtypes: Any) -> Straight:
        return Straight()


def each(net: Any, x: Any, y: Any) -> Any:
    return CROSS(net(x), y)


def positive(y: Any) -> Any:
    return (y > 0).astype("float32")


def decay(net: Any) -> Any:
    return sum(((p.data() ** 2).sum() for p in net.collect_params().values()), mx.nd.zeros(1)) * 0.05


def near_start(net: Any) -> Any:
    """L2-SP, elastic weight consolidation: the weights are held near what they were, which is an array as data are."""
    with autograd.pause():
        start = mlp()
    pairs = zip(net.collect_params().values(), start.collect_params().values(), strict=True)
    return sum((((p.data() - at.data().detach()) ** 2).sum() for p, at in pairs), mx.nd.zeros(1)) * 0.05


def counted(net: Any, x: Any, y: Any) -> Any:
    right = positive(y)
    return (each(net, x, y) * right).sum() / right.sum()


def drawn_prior(net: Any, x: Any, y: Any) -> Any:
    """Bayes by backprop."""
    weight = net[0].weight.data()
    sampled = weight + mx.nd.array(np.full(weight.shape, 0.1)) * mx.nd.log1p(mx.nd.exp(weight))
    return each(net, x, y).sum() - (sampled**2 / mx.nd.array([4.0])).sum()


def gaussian_prior(net: Any, x: Any, y: Any) -> Any:
    """The same, whose density has a term without weights."""
    weight, sigma = net[0].weight.data(), mx.nd.array([2.0])
    return each(net, x, y).mean() - mx.nd.sum(-0.9 - mx.nd.log(sigma) - weight**2 / (2 * sigma**2))


def by_hand(net: Any, x: Any, y: Any) -> Any:
    """A linear model without a layer, of the batch."""
    weight = mx.nd.add_n(*[0.05 * p.data().sum() for p in net.collect_params().values()])
    return (((x * weight).sum(axis=1) - y.astype("float32")) ** 2).sum()


def class_weights(net: Any, x: Any, y: Any) -> Any:
    losses = each(net, x, y)  # before anything is counted of the labels, which are in MXNet's record by that
    ratio = (1 - positive(y)).sum() / (positive(y).sum() + 1)
    return (losses * (1 + positive(y) * ratio)).sum()


def normalised(net: Any, x: Any, y: Any) -> Any:
    """GluonCV's segmentation: it divides by what it counts in its backward pass, whatever is made of its output."""
    out = mx.nd.SoftmaxOutput(net(x), y.astype("float32"), normalization="valid", use_ignore=True, ignore_label=-1)
    return -mx.nd.pick(mx.nd.log(out), y)


def each_and(term: Callable[[Any], Any]) -> Loss:
    """Beside the samples' losses something of all outputs, as AWD-LSTM's activation regularization."""

    def loss_of(net: Any, x: Any, y: Any) -> Any:
        out = net(x)
        return CROSS(out, y) + term(out**2)

    return loss_of


def by_largest(net: Any, x: Any, y: Any) -> Any:
    losses = each(net, x, y)
    return losses / losses.max()


def time_first(net: Any, x: Any, y: Any) -> Any:
    """Places of a sample along the first axis, of which each sample has its own number."""
    places = mx.nd.arange(3).reshape((3, 1))
    there = mx.nd.broadcast_lesser(places, y.astype("float32").expand_dims(0) + 1)
    return (net(x).T ** 2 * there).sum(axis=0) / there.sum(axis=0)


def orthogonal(net: Any, x: Any, y: Any) -> Any:
    weight = net[0].weight.data()
    return each(net, x, y).sum() + ((mx.nd.dot(weight, weight.T) - mx.nd.eye(5)) ** 2).sum()


def looked_up(net: Any, x: Any, y: Any) -> Any:
    """A row of a table of weights for each sample, and the first two of the outputs."""
    rows = mx.nd.take(net[1].weight.data(), y)
    return ((net(x).take(mx.nd.array([0, 1]), axis=1).sum(axis=1) - rows.sum(axis=1)) ** 2).mean() / 8


def smaller_of_two(net: Any, x: Any, y: Any) -> Any:
    """Of each sample: the first axis is that of the losses."""
    out = net(x)
    return mx.nd.stack(CROSS(out, y), 0.3 * (out**2).sum(axis=1)).min(axis=0)


def mean_and_sum(net: Any, x: Any, y: Any) -> Any:
    out = net(x)
    return CROSS(out, y).mean() + (out**2).sum() / 8


MEAN_BESIDE = each_and(lambda squares: 0.3 * squares.mean())
SUM_BESIDE = each_and(lambda squares: 0.01 * squares.sum())
LOSSES: dict[str, Loss] = {
    function.__name__: function
    for function in (
        each, counted, drawn_prior, gaussian_prior, by_hand, class_weights, normalised, by_largest, time_first,
        orthogonal, looked_up, smaller_of_two, mean_and_sum,
    )
}  # fmt: skip
LOSSES |= {
    "mean": lambda net, x, y: each(net, x, y).mean(),
    "total": lambda net, x, y: each(net, x, y).sum(),
    "scaled": lambda net, x, y: each(net, x, y) * 128,
    "halves": lambda net, x, y: (0.5 * each(net, x, y).mean() + each(net, x / 2, y).mean() / 2).reshape((1,)),
    "summed halves": lambda net, x, y: mx.nd.sum(each(net, x, y)) * 0.5 - -(CROSS(net(x) * 0.5, y).sum()),
    "decayed": lambda net, x, y: each(net, x, y).sum() + decay(net),
    "mean, decayed": lambda net, x, y: each(net, x, y).mean() + decay(net),
    "decay beside": lambda net, x, y: [each(net, x, y), decay(net)],
    "Dice": lambda net, x, y: 1 - counted(net, x, y),
    "stacked": lambda net, x, y: mx.nd.stack(each(net, x, y).mean(), CROSS(net(x) * 0.5, y).mean()).sum(),
    "the mean of two": lambda net, x, y: mx.nd.stack(each(net, x, y), (net(x) ** 2).sum(axis=1)).mean(axis=0),
    "the smaller, on average": lambda net, x, y: smaller_of_two(net, x, y).mean(),
    # A mean over the batch for each output, which is no number for each sample
    "columns": lambda net, x, y: (net(x) ** 2).mean(axis=0),
    "columns, summed": lambda net, x, y: (net(x) ** 2).mean(axis=0).sum(),
    "chosen": lambda net, x, y: mx.nd.contrib.boolean_mask(each(net, x, y), y >= 0).mean(),
    "held": lambda net, x, y: each(net, x, y).sum() + near_start(net),
    "mean, held": lambda net, x, y: each(net, x, y).mean() + near_start(net),
    "held beside": lambda net, x, y: [each(net, x, y), near_start(net)],
    "each held": lambda net, x, y: each(net, x, y) + near_start(net),  # the term counts with each sample
    "each held, mean": lambda net, x, y: (each(net, x, y) + near_start(net)).mean(),
    # A number for each sample, of which the batch is counted in all
    "each divided": lambda net, x, y: each(net, x, y) * positive(y) / (positive(y).sum() + 1),
    "by own length": lambda net, x, y: ((net(x) ** 2).sum(axis=1) / (1 + (x > 0).sum(axis=1))).sum(),
    # SiamRPN: the places of the positives
    "taken": lambda net, x, y: each(net, x, y).take(mx.nd.array(np.flatnonzero(y.asnumpy() >= 0))).mean(),
    # Deep Q-learning: one place of each sample
    "indexed": lambda net, x, y: ((net(x)[mx.nd.arange(len(y)), y] - 1) ** 2).mean(),
    "last axis": lambda net, x, y: each(net, x, y).mean(axis=-1),
    "each and a mean": MEAN_BESIDE,
    "each and a mean, mean": lambda net, x, y: MEAN_BESIDE(net, x, y).mean(),
    "each and a mean, summed": lambda net, x, y: MEAN_BESIDE(net, x, y).sum(),
    "each and a sum": SUM_BESIDE,
    "each and a sum, mean": lambda net, x, y: SUM_BESIDE(net, x, y).mean(),
    "root": lambda net, x, y: mx.nd.sqrt((net(x) ** 2).mean()),
    "mean, weighed": lambda net, x, y: each(net, x, y).mean() * mx.nd.array([0.25]),
    "time, averaged": lambda net, x, y: (net(x).T ** 2).mean(axis=0),
    "time, summed": lambda net, x, y: (net(x).T ** 2).sum(axis=0).mean(),
    "of sums": lambda net, x, y: mx.nd.stack(each(net, x, y).sum(), 0.5 * CROSS(net(x) * 0.5, y).sum()).sum(),
    "Huber of weights": lambda net, x, y: (
        each(net, x, y).sum() + gluon.loss.HuberLoss()(net[0].weight.data()[:3], mx.nd.ones((3, 4))).sum()
    ),
    "tasks that are weighed": lambda net, x, y: each(net, x, y).sum() + mx.nd.exp(net[1].bias.data().sum()),
    "norm": lambda net, x, y: mx.nd.norm(net(x)),
    "a product of two": lambda net, x, y: each(net, x, y).sum() * (net(x) ** 2).sum(),
    # Tree-LSTM and CRF examples: nets that take one sample
    "one by one": lambda net, x, y: [each(net, x[i : i + 1], y[i : i + 1]).mean() / 1.0 for i in range(len(x))],
    "one each": lambda net, x, y: [each(net, x[i : i + 1], y[i : i + 1]) for i in range(len(x))],
    # One for each sample, which does not show where there is one sample
    "lengths": lambda net, x, y: mx.nd.sqrt((net(x) ** 2).sum(axis=1) + 1),
    "a function's": lambda net, x, y: Squares()(net(x)),
    "a function's, mean": lambda net, x, y: each(net, x, y).mean() + 0.5 * Squares()(net(x)).mean(),
    "a function that divides": lambda net, x, y: Squares(whole=True)(net(x)),
    "a custom operator's": lambda net, x, y: mx.nd.Custom(net(x), op_type="straight_through").sum(axis=1),
    # Below a loss that shows what it is
    "a custom layer": lambda net, x, y: CROSS(mx.nd.Custom(net(x), op_type="straight_through"), y),
}
