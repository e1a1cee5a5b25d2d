"""Scripts whose first batch is probed, one after another in a process of their own, which may fork: run by
`test_script_probe`. Each prints one line of JSON: its name, what it raised, and what was logged.
"""

from __future__ import annotations

import json
import logging
import multiprocessing
import os
import random
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet
import numpy as np

import mxnet as mx  # isort: skip
from dyntrain.training.job import ElasticJob
from dyntrain.training.sampling.sharding import epoch_order
from dyntrain.training.worker.loop import feeding, first_batch
from dyntrain.training.worker.membership.membership import Membership
from dyntrain.training.worker.probe import child
from mxnet import autograd, gluon, nd

SAMPLES, BATCH, INPUTS, CLASSES = 32, 16, 6, 3
RANDOM = np.random.RandomState(3)
X = RANDOM.randn(SAMPLES, INPUTS).astype("float32")
Y = RANDOM.randint(0, CLASSES, SAMPLES).astype("float32")
cross_entropy, squares = gluon.loss.SoftmaxCrossEntropyLoss(), gluon.loss.L2Loss()
Scripted = Callable[[], Any]
SCRIPTS: dict[str, Scripted] = {}


def script(run: Scripted) -> Scripted:
    SCRIPTS[run.__name__] = run
    return run


def mlp(*layers: gluon.nn.HybridBlock, outputs: int = CLASSES) -> Any:
    net = gluon.nn.HybridSequential()
    net.add(gluon.nn.Dense(16, in_units=INPUTS, activation="tanh"), *layers, gluon.nn.Dense(outputs, in_units=16))
    net.initialize(mx.init.Xavier())
    net.hybridize()
    return net


def train(
    loss_of: Callable[..., Any],
    net: Any = None,
    loss: Any = None,
    told: Callable[..., Any] = lambda *_: BATCH,
    dataset: Any = None,
    loader: Any = None,
    count: int = 1,
    optimizer: tuple[str, float] = ("sgd", 0.1),
    **epochs: Any,
) -> None:
    """`loss_of(net, epoch, x, y)`; `told(epoch, y)`: what step() is; `count`: of epochs; `optimizer`: and its rate."""
    dataset = gluon.data.ArrayDataset(X, Y) if dataset is None else dataset
    net = net or mlp()
    job = ElasticJob.join()
    trainer = job.trainer(net.collect_params(), optimizer[0], {"learning_rate": optimizer[1]}, loss=loss)
    batches = job.loader(dataset, BATCH, **(loader or {}))
    for epoch in job.epochs(count, **epochs):
        for x, y in batches:
            x, y = x.as_in_context(mx.cpu()), y.as_in_context(mx.cpu())
            with autograd.record():
                value = loss_of(net, epoch, x, y)
            value.backward()
            trainer.step(told(epoch, y))


def plain(net: Any, epoch: Any, x: Any, y: Any) -> Any:
    return cross_entropy(net(x), y)


# ---- what each share would have another number of


def weights_of_classes(y: Any) -> Any:
    counts = np.bincount(y.asnumpy().astype(int), minlength=CLASSES)
    return nd.array(1 / np.maximum(counts, 1)).take(y)


@script
def classes_counted_in_the_batch() -> None:
    train(lambda net, epoch, x, y: cross_entropy(net(x), y) * weights_of_classes(y))


@script
def classes_that_few_samples_share() -> None:
    """Center loss for faces: of many classes the first twelve samples have each another one."""
    order, y = epoch_order(SAMPLES, 0, 0), Y.copy()
    y[order] = np.arange(SAMPLES) % 12
    dataset = gluon.data.ArrayDataset(X, y)

    def weighed(net: Any, epoch: Any, x: Any, y: Any) -> Any:
        counts = np.bincount(y.asnumpy().astype(int), minlength=12)
        return cross_entropy(net(x), y) * nd.array(1 / np.maximum(counts, 1)).take(y)

    train(weighed, mlp(outputs=12), dataset=dataset)


@script
def accepted() -> None:
    train(lambda net, epoch, x, y: cross_entropy(net(x), y) * weights_of_classes(y), probe=False)


@script
def weights_divided_by_their_mean() -> None:
    def weighed(net: Any, epoch: Any, x: Any, y: Any) -> Any:
        with autograd.pause():
            weights = x[:, 0].abs() / x[:, 0].abs().mean()
        return cross_entropy(net(x), y) * weights

    train(weighed)


@script
def mean_over_picked_places() -> None:
    def of_positives(net: Any, epoch: Any, x: Any, y: Any) -> Any:
        return cross_entropy(net(x), y).take(nd.array(np.flatnonzero(y.asnumpy() > 0))).mean()

    train(of_positives, loss="mean", told=lambda *_: 1)


@script
def outputs_with_the_time_first() -> None:
    """Gluon's losses take axis 0 for the batch's."""

    def of_steps(net: Any, epoch: Any, x: Any, y: Any) -> Any:
        return squares(net(x).T.expand_dims(2), nd.zeros((4, len(x), 1)))

    train(of_steps, mlp(outputs=4))


@script
def target_of_the_whole_batch() -> None:
    """As in deep embedded clustering: it is sharpened by what all samples of a cluster come to."""

    def divergence(net: Any, epoch: Any, x: Any, y: Any) -> Any:
        q = nd.softmax(net(x))
        with autograd.pause():
            p = q**2 / q.sum(axis=0)
            p = p / p.sum(axis=1, keepdims=True)
        return (p * (p.log() - q.log())).sum(axis=1)

    train(divergence)


@script
def divided_within_a_product() -> None:
    def weighed(net: Any, epoch: Any, x: Any, y: Any) -> Any:
        return nd.dot(nd.ones((1, len(x))) / float(len(x)) ** 0.5, cross_entropy(net(x), y).expand_dims(1)).sum()

    train(weighed)


@script
def mean_of_the_largest() -> None:
    train(
        lambda net, epoch, x, y: cross_entropy(net(x), y).topk(k=3, ret_typ="value").mean(),
        loss="mean",
        told=lambda *_: 1,
    )


@script
def norm_of_the_scripts_own() -> None:
    def normed(net: Any, epoch: Any, x: Any, y: Any) -> Any:
        out = net(x)
        return cross_entropy((out - out.mean(axis=0, keepdims=True)) * 3, y)

    train(normed)


@script
def a_count_below_many_norms() -> None:
    """With the statistics that a norm begins with, such a net's outputs grow with each layer, until they are no
    numbers.
    """
    net = mlp(*[Residual() for _ in range(40)])

    def divided(net: Any, epoch: Any, x: Any, y: Any) -> Any:
        return nd.dot((y > 0).expand_dims(0) / (y > 0).sum(), cross_entropy(net(x), y).expand_dims(1)).sum()

    train(divided, net, loss="own", told=lambda *_: 1)


class Residual(gluon.HybridBlock):
    def __init__(self) -> None:
        super().__init__()
        with self.name_scope():
            self.norm = gluon.nn.BatchNorm(in_channels=16)
            self.layer = gluon.nn.Dense(16, in_units=16, weight_initializer=mx.init.Normal(3.0))

    def hybrid_forward(self, F: Any, x: Any) -> Any:  # noqa: N803
        return x + self.layer(self.norm(x) * 20)


@script
def classes_counted_beside_noise() -> None:
    def noisy(net: Any, epoch: Any, x: Any, y: Any) -> Any:
        return cross_entropy(net(x + nd.random.normal(shape=x.shape)), y) * weights_of_classes(y)

    train(noisy)


@script
def samples_beside_those_of_the_batch() -> None:
    rehearsed, labels = nd.array(X[:5]), nd.array(Y[:5])
    train(lambda net, epoch, x, y: cross_entropy(net(x), y).sum() + cross_entropy(net(rehearsed), labels).sum())


@script
def samples_beside_those_of_the_batch_later() -> None:
    rehearsed, labels = nd.array(X[:5]), nd.array(Y[:5])

    def rehearses(net: Any, epoch: Any, x: Any, y: Any) -> Any:
        loss = cross_entropy(net(x), y).sum()
        return loss + cross_entropy(net(rehearsed), labels).sum() if epoch == 1 else loss

    train(rehearses, count=2)


@script
def samples_beside_those_of_the_batch_within_an_epoch() -> None:
    rehearsed, labels = nd.array(X[:5]), nd.array(Y[:5])

    def rehearses(net: Any, epoch: Any, x: Any, y: Any) -> Any:
        loss = cross_entropy(net(x), y).sum()
        return loss + cross_entropy(net(rehearsed), labels).sum() if epoch.step_number >= 2 else loss

    train(rehearses, dataset=gluon.data.ArrayDataset(np.tile(X, (3, 1)), np.tile(Y, 3)))


@script
def the_hardest_of_a_batch_later() -> None:
    def hardest(net: Any, epoch: Any, x: Any, y: Any) -> Any:
        loss = cross_entropy(net(x), y)
        return loss * (loss > loss.mean()) if epoch > 0 else loss

    train(hardest, count=2)


class Routed(gluon.Block):
    """Capsules with routing by agreement, summed over the batch: with such small weights nothing agrees yet."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = self.params.get("weight", shape=(1, 8, CLASSES, 5, 4), init=mx.init.Normal(0.01))

    def forward(self, x: Any) -> Any:
        votes = (self.weight.data() * x.reshape((-1, 8, 1, 1, 4))).sum(axis=4)
        agreement = nd.zeros((1, 8, CLASSES, 1))
        for _ in range(3):
            outputs = squashed((nd.softmax(agreement, axis=2) * votes).sum(axis=1, keepdims=True))
            agreement = agreement + (votes * outputs).sum(axis=3, keepdims=True).sum(axis=0, keepdims=True)
        return ((outputs[:, 0] ** 2).sum(axis=-1) + 1e-8).sqrt()


def squashed(vectors: Any) -> Any:
    square = (vectors**2).sum(axis=-1, keepdims=True)
    return square / (1 + square) * vectors / (square + 1e-8).sqrt()


@script
def a_coupling_that_grows_with_the_weights() -> None:
    def margin(net: Any, epoch: Any, x: Any, y: Any) -> Any:
        lengths, is_it = net(x), nd.one_hot(y, CLASSES)
        return (is_it * nd.relu(0.9 - lengths) ** 2 + (1 - is_it) * nd.relu(lengths - 0.1) ** 2).sum(axis=1)

    mx.random.seed(1)
    net = Routed()
    net.initialize()
    capsules = np.tile(np.random.RandomState(0).randn(SAMPLES, 8, 4).astype("float32"), (4, 1, 1))
    dataset = gluon.data.ArrayDataset(capsules, np.tile(Y, 4))
    train(margin, net, dataset=dataset, count=2, optimizer=("adam", 0.01))


@script
def another_loss_later() -> None:
    def regularised(net: Any, epoch: Any, x: Any, y: Any) -> Any:
        loss = cross_entropy(net(x), y)
        return loss + 0.1 * net(x).square().sum(axis=1) if epoch > 0 else loss

    train(regularised, count=3)


@script
def another_loss_in_each_epoch() -> None:
    def another(net: Any, epoch: Any, x: Any, y: Any) -> Any:
        loss = cross_entropy(net(x), y)
        return [loss, loss.square(), loss.sqrt(), loss.exp(), loss.tanh(), loss.sin()][epoch - 3]

    train(another, start=3, count=9)


# ---- what adds up


@script
def sum_of_losses() -> None:
    train(plain)


@script
def mean_of_losses() -> None:
    train(lambda net, epoch, x, y: cross_entropy(net(x), y).mean(), loss="mean", told=lambda *_: 1)


@script
def layers_of_the_batch() -> None:
    net = mlp(gluon.nn.BatchNorm(in_channels=16), gluon.nn.Dropout(0.5))
    train(plain, net)


@script
def layers_of_the_batch_by_numpys_names() -> None:
    mx.npx.set_np()
    try:
        net = mlp(gluon.nn.BatchNorm(in_channels=16), gluon.nn.Dropout(0.5))
        train(plain, net)
    finally:
        mx.npx.reset_np()


class Recurrent(gluon.HybridBlock):
    def __init__(self) -> None:
        super().__init__()
        with self.name_scope():
            self.lstm = gluon.rnn.LSTM(5, 2, layout="NTC", dropout=0.4, input_size=1)
            self.out = gluon.nn.Dense(CLASSES, in_units=5 * INPUTS)

    def hybrid_forward(self, F: Any, x: Any) -> Any:  # noqa: N803
        return self.out(self.lstm(x.expand_dims(2)))


@script
def recurrent_layers() -> None:
    net = Recurrent()
    net.initialize(mx.init.Xavier())
    net.hybridize()
    train(plain, net)


@script
def loaded_by_processes() -> None:
    train(plain, loader={"num_workers": 1})


@script
def a_batch_of_a_loading_process_is_held() -> None:
    """By the script, while the next one is probed: it lies in memory that counts who has it."""
    net, job = mlp(), ElasticJob.join()
    trainer = job.trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
    batches = job.loader(gluon.data.ArrayDataset(X, Y), BATCH, num_workers=1)
    for epoch in job.epochs(2):
        for batch in batches:
            x, y = (each.as_in_context(mx.cpu()) for each in batch)
            with autograd.record():
                value = plain(net, epoch, x, y)
            value.backward()
            trainer.step(BATCH)
    nd.waitall()


@script
def counted_over_all_workers() -> None:
    train(
        lambda net, epoch, x, y: cross_entropy(net(x), y) * (y > 0),
        told=lambda epoch, y: epoch.sum((y > 0).sum().asscalar()),
    )


@script
def divided_by_what_all_workers_counted() -> None:
    def own(net: Any, epoch: Any, x: Any, y: Any) -> Any:
        n = epoch.sum((y > 0).sum().asscalar())
        return (cross_entropy(net(x), y) * (y > 0)).sum() / n

    train(own, loss="own", told=lambda *_: 1)


@script
def one_draw_for_the_batch() -> None:
    train(lambda net, epoch, x, y: cross_entropy(net(x * np.random.uniform(0.5, 2)), y))


@script
def a_coin_for_the_batch() -> None:
    """Scheduled sampling."""
    train(lambda net, epoch, x, y: cross_entropy(net(x * (2 if random.random() < 0.5 else 1)), y))


class Thrice:
    """Its end is no error where a loop goes through it."""

    def __init__(self) -> None:
        self._left = 3

    def __iter__(self) -> Thrice:
        return self

    def __next__(self) -> int:
        if not self._left:
            raise StopIteration
        self._left -= 1
        return self._left


@script
def loops_within_the_loop() -> None:
    net, job = mlp(), ElasticJob.join()
    trainer = job.trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
    batches = job.loader(gluon.data.ArrayDataset(X, Y), BATCH)
    for _ in job.epochs(1, steps=1):
        for x, y in batches:
            for at in Thrice():
                x = x + at
            with autograd.record():
                loss = cross_entropy(net(x), y)
            loss.backward()
            trainer.step(BATCH)


@script
def noise_of_each_sample() -> None:
    def noisy(net: Any, epoch: Any, x: Any, y: Any) -> Any:
        drawn = nd.random.normal(0, 1, x.shape) + nd.random_uniform(shape=x.shape) + nd.random.randn(*x.shape)
        drawn = drawn + nd.array(np.random.randn(*x.shape) + np.random.uniform(size=(len(x), 1)))
        drawn = drawn * np.random.gamma(shape=5, scale=0.1)  # that is none of its sizes
        return cross_entropy(net(x + drawn), y)

    train(noisy)


class Autoencoder(gluon.HybridBlock):
    def __init__(self) -> None:
        super().__init__()
        with self.name_scope():
            self.encoder = gluon.nn.Dense(4, in_units=INPUTS)
            self.decoder = gluon.nn.Dense(INPUTS, in_units=2)

    def hybrid_forward(self, F: Any, x: Any) -> Any:  # noqa: N803
        mean, variance = F.split(self.encoder(x), axis=1, num_outputs=2)
        noise = F.random_normal(loc=0, scale=1, shape=(len(x), 2))
        return self.decoder(mean + F.exp(0.5 * variance) * noise)


@script
def variational_autoencoder() -> None:
    net = Autoencoder()
    net.initialize(mx.init.Xavier())
    train(lambda net, epoch, x, y: squares(net(x), x), net)


@script
def two_networks() -> None:
    generator, critic, job = mlp(outputs=INPUTS), mlp(outputs=1), ElasticJob.join()
    both = [job.trainer(each.collect_params(), "adam", {"learning_rate": 0.01}) for each in (critic, generator)]
    batches = job.loader(gluon.data.ArrayDataset(X), BATCH)
    judged = gluon.loss.SigmoidBinaryCrossEntropyLoss()
    for _ in job.epochs(1, steps=1):
        for x in batches:
            with autograd.record():
                made = generator(x)
                loss = judged(critic(x), nd.ones(len(x))) + judged(critic(made.detach()), nd.zeros(len(x)))
            loss.backward()
            both[0].step(BATCH)
            with autograd.record():
                loss = judged(critic(generator(x)), nd.ones(len(x)))
            loss.backward()
            both[1].step(BATCH)


@script
def generator_that_counts() -> None:
    """What the second trainer sums is looked at, too."""
    nets, job = [mlp(), mlp()], ElasticJob.join()
    both = [job.trainer(net.collect_params(), "sgd", {"learning_rate": 0.1}) for net in nets]
    batches = job.loader(gluon.data.ArrayDataset(X, Y), BATCH)
    for _ in job.epochs(1, steps=1):
        for x, y in batches:
            for net, trainer, weights in zip(nets, both, (nd.ones(len(x)), weights_of_classes(y)), strict=True):
                with autograd.record():
                    loss = cross_entropy(net(x), y) * weights
                loss.backward()
                trainer.step(BATCH)


@script
def several_batches_an_update() -> None:
    net, job = mlp(), ElasticJob.join()
    trainer = job.trainer(net.collect_params(), "sgd", {"learning_rate": 0.1}, accumulate=2)
    for epoch in job.epochs(1, samples=SAMPLES, global_batch=8, steps=2):
        for x, y in epoch.batches(gluon.data.ArrayDataset(X, Y)):
            with autograd.record():
                loss = cross_entropy(net(x), y) * weights_of_classes(y)
            loss.backward()
            if epoch.update_due:
                trainer.step(16)


@script
def reduced_over_all_workers() -> None:
    def own(net: Any, epoch: Any, x: Any, y: Any) -> Any:
        return (cross_entropy(net(x), y) * (y > 0)).sum() / epoch.reduce("n", (y > 0).sum().asscalar())

    train(own, loss="own", told=lambda *_: 1)


class InAFile:
    """Samples that are read one by one from a file that is open: a process that reads moves its place for all."""

    def __init__(self, path: Path) -> None:
        path.write_bytes(X.tobytes())
        self._file = path.open("rb")

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> Any:
        self._file.seek(index * INPUTS * 4)
        found = np.frombuffer(self._file.read(INPUTS * 4), np.float32)
        assert np.array_equal(found, X[index]), "the file's place was moved"
        return found, Y[index]


@script
def read_from_an_open_file() -> None:
    with tempfile.TemporaryDirectory() as folder:
        train(plain, dataset=InAFile(Path(folder, "samples")))


# ---- what cannot be said, or fails


@script
def noise_of_a_generator_of_its_own() -> None:
    own = np.random.default_rng(0)
    train(lambda net, epoch, x, y: cross_entropy(net(x + nd.array(own.normal(size=x.shape))), y))


@script
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


@script
def samples_that_differ_each_time() -> None:
    train(plain, dataset=Augmented())


@script
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


@script
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


@script
def an_iterator_that_ends_early() -> None:
    with tempfile.TemporaryDirectory() as folder:

        def picked(net: Any, epoch: Any, x: Any, y: Any) -> Any:
            assert next(place for place in range(SAMPLES) if place == len(x) - BATCH) == 0
            return cross_entropy(net(x), y)

        try:
            train(picked)
        finally:
            assert Path(folder).exists()


@script
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


@script
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


@script
def loaded_by_the_script() -> None:
    net, job = mlp(), ElasticJob.join()
    trainer = job.trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
    for epoch in job.epochs(1, samples=SAMPLES, global_batch=BATCH, steps=1):
        for indices in epoch.indices():
            with autograd.record():
                loss = cross_entropy(net(nd.array(X[indices])), nd.array(Y[indices]))
            loss.backward()
            trainer.step(BATCH)


@script
def samples_that_are_mixed() -> None:
    train(lambda net, epoch, x, y: cross_entropy(net(x + x[nd.array(np.random.permutation(len(x)))]), y))


@script
def only_whole_batches() -> None:
    with tempfile.TemporaryDirectory() as folder:

        def fixed(net: Any, epoch: Any, x: Any, y: Any) -> Any:
            return cross_entropy(net(x.reshape((BATCH, INPUTS))), y)

        try:
            train(fixed)
        finally:
            assert Path(folder).exists()


@script
def imported_net() -> None:
    train(plain, imported(gluon.nn.BatchNorm(in_channels=16)))


@script
def imported_net_with_a_norm_over_devices() -> None:
    net = imported(gluon.contrib.nn.SyncBatchNorm(in_channels=16, num_devices=1))
    train(plain, net)


def imported(norm: Any) -> Any:
    net = mlp(norm, gluon.nn.Dropout(0.5))
    net(nd.array(X))
    with tempfile.TemporaryDirectory() as folder:
        net.export(f"{folder}/net")
        return gluon.SymbolBlock.imports(f"{folder}/net-symbol.json", ["data"], f"{folder}/net-0000.params")


@script
def numbers_without_end() -> None:
    train(lambda net, epoch, x, y: cross_entropy(net(x) * 1e38 * 1e38, y) * 0)


@script
def crash() -> None:
    begun = os.getpid()

    def crashes(net: Any, epoch: Any, x: Any, y: Any) -> Any:
        if os.getpid() != begun:
            os.abort()
        return cross_entropy(net(x), y)

    train(crashes)


class Heard(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.said.append(record.getMessage())


def main() -> None:
    Membership.probes = True
    first_batch.SECONDS = first_batch.SOON = child.IDLE = 600  # no outcome hangs on how busy the machine is
    heard = Heard()
    for log in (first_batch.log, feeding.log):
        log.addHandler(heard)
        log.setLevel(logging.INFO)
    for name in sys.argv[1:] or SCRIPTS:
        heard.said, raised = [], None
        try:
            SCRIPTS[name]()
        except ValueError as error:
            raised = str(error)
        sys.stdout.write(json.dumps([name, raised, heard.said]) + "\n")
        sys.stdout.flush()  # a fork would copy what waits here


if __name__ == "__main__":
    main()
