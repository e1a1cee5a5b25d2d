"""Probed scripts whose parts add up, or draw a number for a batch."""

from __future__ import annotations

import random
import tempfile
from pathlib import Path
from typing import Any

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet
import numpy as np

import mxnet as mx  # isort: skip
from dyntrain.training.job import ElasticJob
from dyntrain.training.worker.probe import on_cpu
from mxnet import autograd, gluon, nd
from probed_bed import (
    ADDS_UP,
    BATCH,
    CLASSES,
    DIFFERS,
    DRAWS,
    INPUTS,
    SAMPLES,
    X,
    Y,
    cross_entropy,
    mlp,
    plain,
    script,
    scripts,
    squares,
    train,
    weights_of_classes,
)


@script(ADDS_UP)
def layers_of_the_batch() -> None:
    net = mlp(gluon.nn.BatchNorm(in_channels=16), gluon.nn.Dropout(0.5))
    train(plain, net)


@script(ADDS_UP)
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


@script(ADDS_UP)
def recurrent_layers() -> None:
    net = Recurrent()
    net.initialize(mx.init.Xavier())
    net.hybridize()
    train(plain, net)


@script(ADDS_UP)
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


@script(ADDS_UP)
def divided_by_what_all_workers_counted() -> None:
    def own(net: Any, epoch: Any, x: Any, y: Any) -> Any:
        n = epoch.sum((y > 0).sum().asscalar())
        return (cross_entropy(net(x), y) * (y > 0)).sum() / n

    train(own, loss="own", step_of=lambda *_: 1)


@script(DRAWS, "random")
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


@script(ADDS_UP)
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


@script(DRAWS, "np.random.gamma")
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


@script(ADDS_UP)
def variational_autoencoder() -> None:
    net = Autoencoder()
    net.initialize(mx.init.Xavier())
    train(lambda net, epoch, x, y: squares(net(x), x), net)


@script(ADDS_UP)
def two_networks() -> None:
    generator, critic, job = mlp(outputs=INPUTS), mlp(outputs=1), ElasticJob.join()
    both = [job.trainer(each.collect_params(), "adam", {"learning_rate": 0.01}) for each in (critic, generator)]
    batches = job.loader(gluon.data.ArrayDataset(X), BATCH)
    judged = gluon.loss.SigmoidBinaryCrossEntropyLoss()
    for _ in job.epochs(1, steps=1):
        for x in batches:
            with autograd.record():
                fake = generator(x)
                loss = judged(critic(x), nd.ones(len(x))) + judged(critic(fake.detach()), nd.zeros(len(x)))
            loss.backward()
            both[0].step(BATCH)
            with autograd.record():
                loss = judged(critic(generator(x)), nd.ones(len(x)))
            loss.backward()
            both[1].step(BATCH)


@script(DIFFERS)
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


@script(DIFFERS)
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


@script(ADDS_UP)
def reduced_over_all_workers() -> None:
    def own(net: Any, epoch: Any, x: Any, y: Any) -> Any:
        return (cross_entropy(net(x), y) * (y > 0)).sum() / epoch.reduce("n", (y > 0).sum().asscalar())

    train(own, loss="own", step_of=lambda *_: 1)


class InAFile:
    """Samples that are read one by one from a file that is open: a process that reads moves its place for all."""

    def __init__(self, path: Path) -> None:
        path.write_bytes(X.tobytes())
        self._file = path.open("rb")

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> Any:
        self._file.seek(index * INPUTS * 4)
        values = np.frombuffer(self._file.read(INPUTS * 4), np.float32)
        assert np.array_equal(values, X[index]), "the file's place was moved"
        return values, Y[index]


@script(ADDS_UP)
def read_from_an_open_file() -> None:
    with tempfile.TemporaryDirectory() as folder:
        train(plain, dataset=InAFile(Path(folder, "samples")))


def by_indices(loss_of: Any, dataset: Any) -> None:
    """The script loads its batches itself."""
    net, job = mlp(), ElasticJob.join()
    trainer = job.trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
    for epoch in job.epochs(1, samples=SAMPLES, global_batch=BATCH):
        for indices in epoch.indices():
            x, y = (nd.array(each) for each in zip(*(dataset[i] for i in indices), strict=True))
            with autograd.record():
                loss = loss_of(net, x, y)
            loss.backward()
            trainer.step(BATCH)


@script(ADDS_UP)
def loaded_by_the_script() -> None:
    with tempfile.TemporaryDirectory() as folder:
        by_indices(lambda net, x, y: cross_entropy(net(x), y), InAFile(Path(folder, "samples")))


@script(DIFFERS)
def loaded_by_the_script_and_counted() -> None:
    with tempfile.TemporaryDirectory() as folder:
        samples = InAFile(Path(folder, "samples"))
        by_indices(lambda net, x, y: cross_entropy(net(x), y) * weights_of_classes(y), samples)


def on_device(loss_of: Any) -> None:
    """In the place of a GPU a CPU, which is not there after a fork either: its number says so."""
    device, on_cpu.is_gpu = mx.cpu(1), lambda context: context.device_id == 1
    net = gluon.nn.Dense(CLASSES, in_units=INPUTS)
    net.initialize(ctx=device)
    job = ElasticJob.join()
    trainer = job.trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
    weight = net.weight.data()
    for epoch in job.epochs(1, samples=SAMPLES, global_batch=BATCH):
        for x, y in epoch.batches(gluon.data.ArrayDataset(X, Y)):
            assert (net.weight.data() is weight) == (job._loop.probe_child is None), "not in the child"
            with autograd.record():
                loss = loss_of(net(x.as_in_context(device)), y.as_in_context(device))
            loss.backward()
            trainer.step(BATCH)


scripts(
    ADDS_UP,
    sum_of_losses=lambda: train(plain),
    mean_of_losses=lambda: train(
        lambda net, epoch, x, y: cross_entropy(net(x), y).mean(), loss="mean", step_of=lambda *_: 1
    ),
    noise_like_the_samples=lambda: train(lambda net, _, x, y: cross_entropy(net(x + nd.random.normal_like(x)), y)),
    loaded_by_processes=lambda: train(plain, loader={"num_workers": 1}),
    counted_over_all_workers=lambda: train(
        lambda net, epoch, x, y: cross_entropy(net(x), y) * (y > 0),
        step_of=lambda epoch, y: epoch.sum((y > 0).sum().asscalar()),
    ),
    on_a_device=lambda: on_device(cross_entropy),
)
scripts(
    DRAWS,
    "np.random.uniform",
    one_draw_for_the_batch=lambda: train(lambda net, epoch, x, y: cross_entropy(net(x * np.random.uniform(0.5, 2)), y)),
)
scripts(
    DIFFERS,
    on_a_device_and_counted=lambda: on_device(lambda out, y: cross_entropy(out, y) * weights_of_classes(y)),
)
