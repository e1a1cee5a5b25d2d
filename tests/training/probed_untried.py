"""Probed scripts of which nothing can be said, or which fail."""

from __future__ import annotations

import multiprocessing
import os
import tempfile
from pathlib import Path
from typing import Any

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet
import numpy as np

import mxnet as mx  # isort: skip
from dyntrain.training.job import ElasticJob
from mxnet import autograd, gluon, nd
from probed_bed import (
    ADDS_UP,
    BATCH,
    INPUTS,
    SAMPLES,
    UNTRIED,
    X,
    Y,
    cross_entropy,
    mlp,
    plain,
    script,
    scripts,
    train,
)


@script(UNTRIED, "the script draws other numbers for other samples")
def noise_of_a_generator_of_its_own() -> None:
    own = np.random.default_rng(0)
    train(lambda net, epoch, x, y: cross_entropy(net(x + nd.array(own.normal(size=x.shape))), y))


@script(UNTRIED, "gives two results for the same samples")
def noise_of_a_new_generator() -> None:
    def noisy(net: Any, epoch: Any, x: Any, y: Any) -> Any:
        return cross_entropy(net(x + nd.array(np.random.default_rng().normal(size=x.shape))), y)

    train(noisy)


class Augmented(gluon.data.Dataset):
    def __init__(self) -> None:
        self._own = np.random.default_rng(0)

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> Any:
        return X[index] + self._own.normal(size=INPUTS).astype("float32"), Y[index]


@script(UNTRIED, "the script does not step in it")
def short_batches_without_a_step() -> None:
    net, job = mlp(), ElasticJob.join()
    trainer = job.trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
    batches = job.loader(gluon.data.ArrayDataset(X, Y), BATCH)
    for _ in job.epochs(1, steps=1):
        for x, y in batches:
            if len(x) < BATCH:
                continue
            with autograd.record():
                loss = cross_entropy(net(x), y)
            loss.backward()
            trainer.step(BATCH)


def whole(batches: Any) -> Any:
    for batch in batches:
        if len(batch[0]) < BATCH:
            return
        yield batch


@script(UNTRIED, "GeneratorExit")
def short_batches_end_the_epoch() -> None:
    """In a child the script comes to the end of its epoch, where it must not close what is its parent's."""
    net, job = mlp(), ElasticJob.join()
    trainer = job.trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
    batches, others = (job.loader(gluon.data.ArrayDataset(X, Y), BATCH, num_workers=1) for _ in range(2))
    for epoch in job.epochs(2):
        for x, y in whole(others if epoch else batches):
            with autograd.record():
                loss = cross_entropy(net(x.as_in_context(mx.cpu())), y.as_in_context(mx.cpu()))
            loss.backward()
            trainer.step(BATCH)


@script(UNTRIED, "StopIteration")
def an_iterator_that_ends_early() -> None:
    with tempfile.TemporaryDirectory() as folder:

        def picked(net: Any, epoch: Any, x: Any, y: Any) -> Any:
            assert next(place for place in range(SAMPLES) if place == len(x) - BATCH) == 0
            return cross_entropy(net(x), y)

        try:
            train(picked)
        finally:
            assert Path(folder).exists()


@script(UNTRIED, "talks to another process")
def a_queue_of_another_process() -> None:
    """Who takes from it, takes it from the parent."""
    numbers: Any = multiprocessing.get_context("fork").SimpleQueue()
    for number in range(2):
        numbers.put(number)
    taken = []

    def takes(net: Any, epoch: Any, x: Any, y: Any) -> Any:
        taken.append(numbers.get())
        return cross_entropy(net(x), y)

    train(takes)
    assert taken == [0, 1]


@script(UNTRIED, "talks to another process")
def a_second_loader_of_gluons() -> None:
    """What its processes have loaded can be fetched once."""
    net, job = mlp(), ElasticJob.join()
    trainer = job.trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
    batches, others = job.loader(gluon.data.ArrayDataset(X, Y), BATCH), iter(gluon.data.DataLoader(X, 4, num_workers=1))
    next(others)
    for _ in job.epochs(1):
        for x, y in batches:
            beside = next(others).as_in_context(mx.cpu())
            with autograd.record():
                loss = cross_entropy(net(x + 0 * beside[:1]), y)
            loss.backward()
            trainer.step(BATCH)


@script(UNTRIED, "MXNetError: ")
def only_whole_batches() -> None:
    with tempfile.TemporaryDirectory() as folder:

        def fixed(net: Any, epoch: Any, x: Any, y: Any) -> Any:
            return cross_entropy(net(x.reshape((BATCH, INPUTS))), y)

        try:
            train(fixed)
        finally:
            assert Path(folder).exists()


@script(UNTRIED, "CannotFreeze: ")
def imported_net_with_a_norm_over_devices() -> None:
    net = imported(gluon.contrib.nn.SyncBatchNorm(in_channels=16, num_devices=1))
    train(plain, net)


def imported(norm: Any) -> Any:
    net = mlp(norm, gluon.nn.Dropout(0.5))
    net(nd.array(X))
    with tempfile.TemporaryDirectory() as folder:
        net.export(f"{folder}/net")
        return gluon.SymbolBlock.imports(f"{folder}/net-symbol.json", ["data"], f"{folder}/net-0000.params")


@script(UNTRIED, "the child process crashed")
def crash() -> None:
    begun = os.getpid()

    def crashes(net: Any, epoch: Any, x: Any, y: Any) -> Any:
        if os.getpid() != begun:
            os.abort()
        return cross_entropy(net(x), y)

    train(crashes)


scripts(
    UNTRIED,
    "gives two results for the same samples",
    samples_that_differ_each_time=lambda: train(plain, dataset=Augmented()),
)
scripts(
    UNTRIED,
    "the script draws other numbers for other samples",
    samples_that_are_mixed=lambda: train(
        lambda net, _, x, y: cross_entropy(net(x + x[nd.array(np.random.permutation(len(x)))]), y)
    ),
)
scripts(
    ADDS_UP,
    imported_net=lambda: train(plain, imported(gluon.nn.BatchNorm(in_channels=16))),
)
scripts(
    UNTRIED,
    "gradients are not finite",
    numbers_without_end=lambda: train(lambda net, epoch, x, y: cross_entropy(net(x) * 1e38 * 1e38, y) * 0),
)
