"""Losses within hybridized blocks: MXNet's record has one operator for all that such a block does, so a division
by what is counted in the batch did not show, and trained wrongly from the second worker on, without a word.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet
import pytest
from conducted import Conductor, Plain
from dyntrain.training.job import ElasticJob
from dyntrain.training.worker.loop.agreed.rates import UnequalRates
from idioms import BATCH, CROSS, EPOCHS, SAMPLES, data, mlp, weights
from matrices import crossed
from mxnet import autograd, gluon
from test_script_factors import count
from test_script_heads import CHANGES
from test_script_idioms import all_close

import mxnet as mx  # isort: skip

Loss = Callable[[Any, Any, Any], Any]  # of (MXNet's functions, what the net makes, labels)


def cross(out: Any, y: Any) -> Any:
    """A block that is traced is one thread's, and here each worker is a thread."""
    return gluon.loss.SoftmaxCrossEntropyLoss()(out, y)


class Whole(gluon.HybridBlock):
    """A net and its loss in one."""

    def __init__(self, net: Any, loss_of: Loss) -> None:
        super().__init__()
        self.net, self.loss_of = net, loss_of

    def hybrid_forward(self, functions: Any, x: Any, y: Any) -> Any:
        return self.loss_of(functions, self.net(x), y)


def script(job: Any, loss_of: Loss, step: float = BATCH, loss: Any = None, **flags: bool) -> list[Any]:
    """`loss_of` may make several losses."""
    net = mlp()
    whole = Whole(net, loss_of)
    if flags:
        whole.hybridize(**flags)
    told = {} if loss is None else {"loss": loss}
    trainer = job.trainer(net.collect_params(), "sgd", {"learning_rate": 0.1, "momentum": 0.9}, **told)
    for epoch in job.epochs(EPOCHS, samples=SAMPLES, global_batch=BATCH):
        for x, y in epoch.batches(data()):
            with autograd.record():
                heads = whole(x, y.astype("float32"))
                head = heads[0].sum() + heads[1].sum() if isinstance(heads, list | tuple) else heads
            head.backward()
            trainer.step(step)
    return weights(net)


def each(functions: Any, out: Any, y: Any) -> Any:
    return cross(out, y)


def total(functions: Any, out: Any, y: Any) -> Any:
    return cross(out, y).sum()


def mean(functions: Any, out: Any, y: Any) -> Any:
    return 0.5 * cross(out, y).mean()


def without_labels(functions: Any, out: Any, y: Any) -> Any:
    return functions.mean(out**2, axis=0, exclude=True)


def by_own_length(functions: Any, out: Any, y: Any) -> Any:
    return functions.broadcast_div(functions.sum(out**2, axis=1), 1 + y)


def two_outputs(functions: Any, out: Any, y: Any) -> Any:
    return [cross(out, y), 0.5 * functions.sum(out**2, axis=1)]


def places(functions: Any, out: Any) -> Any:
    """Of a sample, as a number of MXNet's: GluonCV's YOLO multiplies by it what Gluon's losses divide by it."""
    return functions.cast(functions.prod(functions.shape_array(out).slice_axis(axis=0, begin=1, end=None)), "float32")


def by_places(functions: Any, out: Any, y: Any) -> Any:
    return functions.broadcast_mul(gluon.loss.L2Loss()(out, functions.ones_like(out)), places(functions, out))


def total_by_places(functions: Any, out: Any, y: Any) -> Any:
    return functions.broadcast_div(functions.sum(out**2), places(functions, out))


def masked_like(functions: Any, out: Any, y: Any) -> Any:
    """The labels have the net's shape, and are none of its numbers."""
    there = functions.reshape_like(y > 0, functions.pick(out, y))
    return functions.pick(out, y) ** 2 * there


def by_samples(functions: Any, out: Any, y: Any) -> Any:
    samples = functions.cast(functions.shape_array(out).slice_axis(axis=0, begin=0, end=1), "float32")
    return functions.broadcast_div(cross(out, y), samples)


def counted_like(functions: Any, out: Any, y: Any) -> Any:
    there = functions.reshape_like(y > 0, functions.pick(out, y))
    return functions.broadcast_mul(cross(out, y), functions.sum(there))


def counted(functions: Any, out: Any, y: Any) -> Any:
    """A Dice loss."""
    return 1 - functions.sum(cross(out, y) * (y > 0)) / functions.sum(y > 0)


def divided_each(functions: Any, out: Any, y: Any) -> Any:
    return functions.broadcast_div(cross(out, y) * (y > 0), functions.sum(y > 0) + 1)


def divided_beside(functions: Any, out: Any, y: Any) -> Any:
    """Which of two outputs is divided must be told apart."""
    return [cross(out, y), divided_each(functions, out, y)]


def mean_beside(functions: Any, out: Any, y: Any) -> Any:
    return [cross(out, y), functions.mean(out**2)]


def by_largest(functions: Any, out: Any, y: Any) -> Any:
    losses = cross(out, y)
    return functions.broadcast_div(losses, functions.max(losses))


def class_weights(functions: Any, out: Any, y: Any) -> Any:
    ratio = functions.sum(y <= 0) / (functions.sum(y > 0) + 1)
    return cross(out, y) * (1 + functions.broadcast_mul(y > 0, ratio))


def each_and_mean(functions: Any, out: Any, y: Any) -> Any:
    return functions.broadcast_add(cross(out, y), functions.mean(out**2))


def root(functions: Any, out: Any, y: Any) -> Any:
    return functions.sqrt(functions.mean(out**2))


FLAGS = {"": {"active": True}, "static": {"static_alloc": True, "static_shape": True}}
TOLD = [  # the loss, step's number, what the trainer is told
    (each, BATCH, None),
    (total, BATCH, None),
    (mean, 1, "mean"),
    (without_labels, BATCH, None),
    (by_own_length, BATCH, None),
    (two_outputs, BATCH, None),
    (by_places, BATCH, None),
    (total_by_places, BATCH, None),
    (masked_like, BATCH, None),
]


@pytest.mark.parametrize(("case", "flags"), crossed(TOLD, FLAGS, each=1))
@pytest.mark.filterwarnings("ignore:The 1-th input to HybridBlock is not used")
def test_t2_what_is_made_within_a_hybridized_block_gives_the_weights_of_one_process(
    case: tuple[Loss, float, Any], flags: str
) -> None:
    loss_of, step, loss = case
    elastic = Conductor(*CHANGES).run(lambda job: script(job, loss_of, step, loss, **FLAGS[flags]))
    all_close(elastic, script(Plain(), loss_of, step))


@pytest.mark.parametrize(
    ("loss_of", "step", "loss", "says"),
    [
        (mean, BATCH, None, r"the loss is a mean over the batch.*loss='mean'"),
        (total, 1, "mean", r"the loss is a sum, with loss='mean'"),
        (each, 1, "mean", "DT116"),
        (counted, 1, "mean", "DT104"),
        (divided_each, BATCH, None, "DT104"),
        (divided_beside, BATCH, None, "DT104"),
        (mean_beside, BATCH, None, "DT103"),
        (by_samples, BATCH, None, "DT104"),
        (counted_like, BATCH, None, "DT108"),
        (by_largest, BATCH, None, "DT104"),
        (class_weights, BATCH, None, "DT108"),
        (each_and_mean, BATCH, None, "DT108"),
        (root, 1, "mean", "DT109"),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
@pytest.mark.filterwarnings("ignore:The 1-th input to HybridBlock is not used")
def test_a_loss_within_a_hybridized_block_that_does_not_fit_what_was_told_is_refused_before_the_first_step(
    loss_of: Loss, step: float, loss: Any, says: str
) -> None:
    with pytest.raises(ValueError, match=says):
        script(ElasticJob.join(), loss_of, step, loss, active=True)


class Divided(gluon.HybridBlock):
    """Losses of the samples, by an array that the script has counted."""

    def hybrid_forward(self, functions: Any, losses: Any, weighed: Any) -> Any:
        return functions.broadcast_div(losses, weighed[1])


def by_argument(job: Any, number: Any) -> list[Any]:
    net, divided = mlp(), Divided()
    divided.hybridize()
    trainer = job.trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
    for epoch in job.epochs(EPOCHS, samples=SAMPLES, global_batch=BATCH):
        for x, y in epoch.batches(data()):
            by = number(y)
            with autograd.record():
                loss = divided(CROSS(net(x), y), [y.astype("float32"), by])
            loss.backward()
            trainer.step(BATCH)
    return weights(net)


@pytest.mark.filterwarnings("ignore:The 1-th input to HybridBlock is not used")
def test_a_count_of_the_share_that_a_hybridized_block_is_given_is_refused_before_the_first_step_of_several() -> None:
    with pytest.raises(UnequalRates, match=r"DT412: .* on \d of 3.*epoch\.sum"):
        Conductor({0: 3}, [], 4).run(lambda job: by_argument(job, count))


@pytest.mark.filterwarnings("ignore:The 1-th input to HybridBlock is not used")
def test_t2_a_constant_that_a_hybridized_block_is_given_is_no_count() -> None:
    def script(job: Any) -> list[Any]:
        return by_argument(job, lambda y: mx.nd.array([2.0]))

    all_close(Conductor(*CHANGES).run(script), script(Plain()))
