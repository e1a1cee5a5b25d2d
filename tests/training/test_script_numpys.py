"""Scripts with `npx.set_np()`, as d2l's: arrays are of NumPy's kind, which MXNet's older operators refuse. What the job
does to them it does by what they are.
"""

from __future__ import annotations

from typing import Any

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet
import pytest

import mxnet as mx  # isort: skip
from conducted import Conductor, Death, Plain
from idioms import BATCH, EPOCHS, SAMPLES, Rows, labels, numbers, weights
from mxnet import autograd, gluon
from test_script_idioms import all_close

SIDE = 8
PICTURES = Rows(numbers(SAMPLES, 1, SIDE, SIDE), labels(3).astype("float32"))
CHANGES = ({0: 1, 4: 3, 8: 2}, [Death(5, 1), Death(9, 0)], 1)


def convolutional() -> Any:
    """MXNet gives the weights of the second one another layout."""
    net = gluon.nn.Sequential()
    net.add(gluon.nn.Conv2D(6, 5, padding=2, activation="relu"), gluon.nn.Conv2D(16, 5), gluon.nn.Dense(3))
    net.initialize()
    net(mx.np.ones((1, 1, SIDE, SIDE)))
    for k, p in enumerate(net.collect_params().values()):
        p.set_data(mx.np.array(numbers(*p.shape, seed=k) * 0.3))
    return net


def passes(job: Any, net: Any, every: int = 1, optimizer: str = "sgd", loss: Any = None) -> Any:
    """After each batch's `backward`, (the trainer, whether an update is due)."""
    loss = loss or gluon.loss.SoftmaxCrossEntropyLoss()
    trainer = job.trainer(net.collect_params(), optimizer, {"learning_rate": 0.05})
    for epoch in job.epochs(EPOCHS, samples=SAMPLES, global_batch=BATCH):
        for i, (x, y) in epoch.enumerate(PICTURES):
            with autograd.record():
                value = loss(net(x), y)
            value.backward()
            yield trainer, (i + 1) % every == 0


def convolutions(job: Any) -> list[Any]:
    net = convolutional()
    for trainer, _ in passes(job, net):
        trainer.step(BATCH)
    return weights(net)


def added_up(job: Any) -> list[Any]:
    """Also over the boundaries between updates."""
    net = convolutional()
    net.collect_params().setattr("grad_req", "add")
    for trainer, due in passes(job, net, 2, "adam"):
        if due:
            trainer.step(2 * BATCH)
            for p in net.collect_params().values():
                p.grad()[:] = 0
    return weights(net)


def one_number_a_sample(job: Any) -> list[Any]:
    """Gluon's L2Loss of it is a mean over no axes."""
    net = gluon.nn.Sequential()
    net.add(gluon.nn.Dense(1, in_units=SIDE * SIDE), gluon.nn.Lambda(lambda x: x.reshape(-1)))
    net.initialize()
    net[0].weight.set_data(mx.np.array(numbers(1, SIDE * SIDE) * 0.1))
    for trainer, _ in passes(job, net, loss=gluon.loss.L2Loss()):
        trainer.step(BATCH)
    return weights(net)


def kept(job: Any) -> list[Any]:
    net = convolutional()
    memory = job.memory(seen=mx.np.zeros(3))
    average = job.keep({name: p.data().copy() for name, p in net.collect_params().items()})
    for trainer, _ in passes(job, net, optimizer="adam"):
        trainer.step(BATCH)
        memory.seen = memory.seen + mx.np.array([1, 2, 3])
        for name, p in net.collect_params().items():
            average[name][:] = average[name] * 0.9 + p.data() * 0.1
    return [*weights(net), *(array.asnumpy() for array in average.values()), memory.seen.asnumpy()]


@pytest.mark.parametrize(
    "script", [convolutions, added_up, one_number_a_sample, kept], ids=lambda script: str(script.__name__)
)
def test_t2_arrays_of_numpys_kind_give_the_weights_of_one_process(script: Any) -> None:
    def of_numpys_kind(job: Any) -> list[Any]:
        with mx.util.np_shape(True), mx.util.np_array(True):  # of this thread, as `npx.set_np()` is of a process
            return list(script(job))

    all_close(Conductor(*CHANGES).run(of_numpys_kind), of_numpys_kind(Plain()))
