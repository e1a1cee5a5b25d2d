"""A small script for `dyntrain check`, right or wrong as it is told: one loop over epochs, or a second one for the last
layer alone.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet
import numpy as np

import mxnet as mx  # isort: skip
from dyntrain.training.job import ElasticJob
from mxnet import autograd, gluon

BATCH, SAMPLES, INPUTS, CLASSES = 8, 43, 6, 3
how = sys.argv[1]


def net_of(layers: Any) -> Any:
    net = gluon.nn.HybridSequential()
    net.add(gluon.nn.Dense(8, activation="tanh"), *layers, gluon.nn.Dense(CLASSES))
    net.initialize(mx.init.Xavier())
    net(mx.nd.zeros((1, INPUTS)))
    net.hybridize()
    return net


def main() -> None:
    rng = np.random.default_rng(None if how == "unseeded" else 7)
    dataset = gluon.data.ArrayDataset(
        rng.normal(size=(SAMPLES, INPUTS)).astype(np.float32), rng.integers(0, CLASSES, SAMPLES).astype(np.float32)
    )
    net = net_of([gluon.nn.BatchNorm(), gluon.nn.Dropout(0.5)] if how == "layers" else [])
    cross_entropy = gluon.loss.SoftmaxCrossEntropyLoss()
    if how == "never":
        return
    job = ElasticJob.join()
    loader = job.loader(dataset, BATCH)
    average, teacher = {name: p.data().copy() for name, p in net.collect_params().items()}, net_of([])
    if how == "layers":
        job.keep(average)
    for name in ("all", "last") if how in ("layers", "unset") else ("all",):
        params = (net if name == "all" else net[-1]).collect_params()
        trainer = job.trainer(params, "sgd", {"learning_rate": 0.1, "momentum": 0.9})
        for epoch in job.epochs(90, name=name, probe=False):
            begun = {name: p.data().copy() for name, p in net.collect_params().items()}
            for x, y in loader:
                with autograd.record():
                    noise = mx.nd.random.normal(shape=x.shape) if how == "layers" else 0.0
                    loss = cross_entropy(net(x + noise), y)
                    if how == "scaled":
                        loss = loss * epoch.workers
                    if how == "share":
                        counts = np.bincount(y.asnumpy().astype(int), minlength=CLASSES)
                        loss = loss * mx.nd.array(1 / np.maximum(counts, 1)).take(y)
                    if how == "noise":
                        loss = cross_entropy(net(x + mx.nd.random.normal(shape=x.size).reshape(x.shape)), y)
                    if how == "teacher":
                        loss = loss + ((net(x) - teacher(x)) ** 2).sum(axis=1)
                loss.backward()
                if how == "clip":
                    for p in net.collect_params().values():
                        p.grad()[:] = p.grad().clip(-1e-2, 1e-2)
                trainer.step(0 if how == "zero" else BATCH)
                if how == "slow":
                    time.sleep(3600)
                for of, p in net.collect_params().items():
                    average[of][:] = 0.5 * average[of] + 0.5 * p.data()
            if how == "teacher":
                for its, p in zip(teacher.collect_params().values(), net.collect_params().values(), strict=True):
                    its.set_data(p.data())
            seen = max((p.data() - begun[of]).norm().asscalar() for of, p in net.collect_params().items())
        if how == "unset":
            sys.stdout.write(f"{seen} in the last epoch\n")
    if how == "layers":
        net.export(str(job.output / "net"))
    if how in ("layers", "average"):
        mx.nd.save(str(job.output / "average.params"), average)
    sys.stdout.write("the script is at its end\n")


if __name__ == "__main__":
    main()
