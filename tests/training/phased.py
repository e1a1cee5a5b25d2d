"""What public scripts do in several loops over epochs, as `idioms` has what they do in one."""

from __future__ import annotations

from typing import Any

from idioms import BATCH, CROSS, SAMPLES, Rows, data, labels, mlp, numbers, weights
from mxnet import autograd

import mxnet as mx  # isort: skip


def step(net: Any, trainer: Any, x: Any, y: Any, batch: int) -> None:
    with autograd.record():
        loss = CROSS(net(x), y)
    loss.backward()
    trainer.step(batch)


def taught(net: Any, teacher: Any, trainer: Any, x: Any, y: Any, batch: int) -> None:
    """A step towards what the teacher gives, too."""
    with autograd.record():
        loss = CROSS(net(x), y) + ((net(x) - teacher(x)) ** 2).sum(axis=1)
    loss.backward()
    trainer.step(batch)


def trained(net: Any, trainer: Any, epochs: Any) -> None:
    for epoch in epochs:
        for x, y in epoch.batches(data()):
            step(net, trainer, x, y, BATCH)


def unfreezing(job: Any) -> Any:
    """A recipe for fine-tuning: the head alone, then all of it with another optimizer and a smaller rate."""
    net = mlp()
    head = net[-1].collect_params()
    body = [p for name, p in net.collect_params().items() if name not in head]
    for parameter in body:
        parameter.grad_req = "null"
    trainer = job.trainer(head, "sgd", {"learning_rate": 0.1, "momentum": 0.9})
    trained(net, trainer, job.epochs(2, samples=SAMPLES, global_batch=BATCH, net=net, name="head"))
    for parameter in body:
        parameter.grad_req = "write"
    trainer = job.trainer(net.collect_params(), "adam", {"learning_rate": 0.01})
    trained(net, trainer, job.epochs(2, samples=SAMPLES, global_batch=BATCH, name="all"))
    return weights(net)


def new_head(job: Any) -> Any:
    """Pre-training and a probe: the second phase trains a head on a body that is in no trainer of its own."""
    net = mlp()
    trained(
        net, job.trainer(net.collect_params(), "adam"), job.epochs(2, samples=SAMPLES, global_batch=BATCH, name="a")
    )
    net[-1].initialize(mx.init.One(), force_reinit=True)
    trainer = job.trainer(net[-1].collect_params(), "sgd", {"learning_rate": 0.1})
    trained(net, trainer, job.epochs(2, samples=SAMPLES, global_batch=BATCH, name="b"))
    return weights(net)


def fresh_head(job: Any) -> Any:
    """A head that is initialised anew, by chance, between the phases; to compare with, as one worker does it."""
    net = mlp()
    trained(
        net, job.trainer(net.collect_params(), "adam"), job.epochs(2, samples=SAMPLES, global_batch=BATCH, name="c")
    )
    net[-1].initialize(mx.init.Xavier(), force_reinit=True)
    trainer = job.trainer(net.collect_params(), "adam")
    trained(net, trainer, job.epochs(1, samples=SAMPLES, global_batch=BATCH, name="d"))
    trained(net, trainer, job.epochs(2, samples=SAMPLES, global_batch=BATCH, name="e"))
    if job.writes:
        (job.output / "written").touch()
    return weights(net)


def same_trainer(job: Any) -> Any:
    """A function for one phase, called for each, with one trainer: momentum and the update counts go on."""
    net = mlp()
    schedule = mx.lr_scheduler.FactorScheduler(5, 0.5, base_lr=0.2)
    trainer = job.trainer(net.collect_params(), "sgd", {"momentum": 0.9, "lr_scheduler": schedule})
    for decay in (0.0, 1e-2):
        trainer._optimizer.wd = decay
        trained(net, trainer, job.epochs(2, samples=SAMPLES, global_batch=BATCH, name="f"))
    return weights(net)


def progressive(job: Any, num_workers: int = 0) -> Any:
    """Progressive resizing: other data, in another batch, in the second phase. A running average and a counter go on
    through both.
    """
    net = mlp()
    memory = job.memory(steps=0)
    average = job.keep({name: p.data().copy() for name, p in net.collect_params().items()})
    trainer = job.trainer(net.collect_params(), "sgd", {"learning_rate": 0.1, "momentum": 0.9})
    small = job.loader(data(), BATCH, shuffle=True)
    large = Rows(numbers(16, 4, seed=8), labels(3, seed=9, shape=(16,)))
    for batch, own in ((BATCH, False), (4, True)):
        used = job.loader(large, 4, shuffle=True, num_workers=num_workers) if own else small
        for _ in job.epochs(2, name=str(batch)):
            for x, y in used:
                trainer.set_learning_rate(0.1 * 0.9**memory.steps)
                step(net, trainer, x, y, batch)
                memory.steps += 1
                for name, p in net.collect_params().items():
                    average[name][:] = 0.5 * average[name] + 0.5 * p.data()
    assert memory.steps == 16
    return [*weights(net), *(value.asnumpy() for value in average.values())]


def progressive_with_processes(job: Any) -> Any:
    """Not for workers that are threads: they would fork while others compute."""
    return progressive(job, 1)


def early(job: Any) -> Any:
    """The first phase ends after so many steps, the second by a decision."""
    net = mlp()
    trainer = job.trainer(net.collect_params(), "adam", {"learning_rate": 0.01})
    trained(net, trainer, job.epochs(5, samples=SAMPLES, global_batch=BATCH, steps=6, name="warm-up"))
    for epoch in job.epochs(9, samples=SAMPLES, global_batch=BATCH, name="main"):
        for x, y in epoch.batches(data()):
            step(net, trainer, x, y, BATCH)
        if epoch == 1:
            job.stop()
    trained(net, trainer, job.epochs(2, samples=SAMPLES, global_batch=BATCH, steps=3, name="last"))
    return weights(net)
