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
    options = {} if loss is None else {"loss": loss}
    trainer = job.trainer(net.collect_params(), "sgd", {"learning_rate": 0.1, "momentum": 0.9}, **options)
    for epoch in job.epochs(EPOCHS, samples=SAMPLES, global_batch=BATCH):
        for x, y in epoch.batches(data()):
            with autograd.record():
                heads = whole(x, y.astype("float32"))
                head = heads[0].sum() + heads[1].sum() if isinstance(heads, list | tuple) else heads
            head.backward()
            trainer.step(step)
    return weights(net)


def places(functions: Any, out: Any) -> Any:
    """Of a sample, as a number of MXNet's: GluonCV's YOLO multiplies by it what Gluon's losses divide by it."""
    return functions.cast(functions.prod(functions.shape_array(out).slice_axis(axis=0, begin=1, end=None)), "float32")


def samples(functions: Any, out: Any) -> Any:
    return functions.cast(functions.shape_array(out).slice_axis(axis=0, begin=0, end=1), "float32")


def there(functions: Any, out: Any, y: Any) -> Any:
    """The labels have the net's shape, and are none of its numbers."""
    return functions.reshape_like(y > 0, functions.pick(out, y))


def divided_each(functions: Any, out: Any, y: Any) -> Any:
    return functions.broadcast_div(cross(out, y) * (y > 0), functions.sum(y > 0) + 1)


def by_largest(functions: Any, out: Any, y: Any) -> Any:
    losses = cross(out, y)
    return functions.broadcast_div(losses, functions.max(losses))


def class_weights(functions: Any, out: Any, y: Any) -> Any:
    ratio = functions.sum(y <= 0) / (functions.sum(y > 0) + 1)
    return cross(out, y) * (1 + functions.broadcast_mul(y > 0, ratio))


def mean(functions: Any, out: Any, y: Any) -> Any:
    return 0.5 * cross(out, y).mean()


def total(functions: Any, out: Any, y: Any) -> Any:
    return cross(out, y).sum()


def each(functions: Any, out: Any, y: Any) -> Any:
    return cross(out, y)


FLAGS = {"": {"active": True}, "static": {"static_alloc": True, "static_shape": True}}
Case = tuple[Loss, float, Any]  # a loss, what step() is told, what the trainer is told
RIGHT: dict[str, Case] = {
    "each": (each, BATCH, None),
    "total": (total, BATCH, None),
    "mean": (mean, 1, "mean"),
    "without labels": (lambda f, out, y: f.mean(out**2, axis=0, exclude=True), BATCH, None),
    "by own length": (lambda f, out, y: f.broadcast_div(f.sum(out**2, axis=1), 1 + y), BATCH, None),
    "two outputs": (lambda f, out, y: [cross(out, y), 0.5 * f.sum(out**2, axis=1)], BATCH, None),
    "by places": (
        lambda f, out, y: f.broadcast_mul(gluon.loss.L2Loss()(out, f.ones_like(out)), places(f, out)), BATCH, None,
    ),
    "total by places": (lambda f, out, y: f.broadcast_div(f.sum(out**2), places(f, out)), BATCH, None),
    "masked": (lambda f, out, y: f.pick(out, y) ** 2 * there(f, out, y), BATCH, None),
}  # fmt: skip
REFUSED: dict[str, tuple[Case, str]] = {
    "mean": ((mean, BATCH, None), "DT101"),
    "total": ((total, 1, "mean"), "DT102"),
    "each": ((each, 1, "mean"), "DT116"),
    "Dice": ((lambda f, out, y: 1 - f.sum(cross(out, y) * (y > 0)) / f.sum(y > 0), 1, "mean"), "DT104"),
    "each divided": ((divided_each, BATCH, None), "DT104"),
    # Which of two outputs is divided must be told apart
    "one of two divided": ((lambda f, out, y: [cross(out, y), divided_each(f, out, y)], BATCH, None), "DT104"),
    "a mean beside": ((lambda f, out, y: [cross(out, y), f.mean(out**2)], BATCH, None), "DT103"),
    "by samples": ((lambda f, out, y: f.broadcast_div(cross(out, y), samples(f, out)), BATCH, None), "DT104"),
    "counted": ((lambda f, out, y: f.broadcast_mul(cross(out, y), f.sum(there(f, out, y))), BATCH, None), "DT108"),
    "by largest": ((by_largest, BATCH, None), "DT104"),
    "class weights": ((class_weights, BATCH, None), "DT108"),
    "each and a mean": ((lambda f, out, y: f.broadcast_add(cross(out, y), f.mean(out**2)), BATCH, None), "DT108"),
    "root": ((lambda f, out, y: f.sqrt(f.mean(out**2)), 1, "mean"), "DT109"),
}


@pytest.mark.parametrize(("name", "flags"), crossed(RIGHT, FLAGS, each=1))
@pytest.mark.filterwarnings("ignore:The 1-th input to HybridBlock is not used")
def test_t2_what_is_made_within_a_hybridized_block_gives_the_weights_of_one_process(name: str, flags: str) -> None:
    loss_of, step, loss = RIGHT[name]
    elastic = Conductor(*CHANGES).run(lambda job: script(job, loss_of, step, loss, **FLAGS[flags]))
    all_close(elastic, script(Plain(), loss_of, step))


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.filterwarnings("ignore:The 1-th input to HybridBlock is not used")
def test_a_loss_within_a_hybridized_block_that_does_not_fit_what_was_told_is_refused_before_the_first_step(
    name: str,
) -> None:
    (loss_of, step, loss), code = REFUSED[name]
    with pytest.raises(ValueError, match=code):
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
