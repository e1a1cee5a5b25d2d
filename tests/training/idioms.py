"""What public Gluon scripts do, each in a few lines on made-up data: a script takes the job and returns its weights.

Named for where the idiom is found. Where a script draws random numbers for a batch (a GAN's noise), they are columns of
the data here, so that two runs can be compared.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet
import numpy as np

import mxnet as mx  # isort: skip
from mxnet import autograd, gluon
from mxnet.gluon import nn

SAMPLES, BATCH, EPOCHS = 23, 6, 3  # the last batch of an epoch has 5
CROSS = gluon.loss.SoftmaxCrossEntropyLoss()


class Rows:
    """A dataset of tuples."""

    def __init__(self, *columns: Any) -> None:
        self._columns = columns

    def __len__(self) -> int:
        return len(self._columns[0])

    def __getitem__(self, index: int) -> Any:
        return tuple(column[index] for column in self._columns)


def numbers(*shape: int, seed: int = 5) -> Any:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def labels(classes: int, seed: int = 6, shape: tuple[int, ...] = (SAMPLES,)) -> Any:
    return np.random.default_rng(seed).integers(0, classes, shape).astype(np.int32)


def data() -> Rows:
    return Rows(numbers(SAMPLES, 4), labels(3))


def initialise(net: Any, example: Any, seed: int = 1) -> Any:
    """With the same numbers in every process."""
    net.initialize(ctx=mx.cpu())
    net(example)
    rng = np.random.default_rng(seed)
    for param in net.collect_params().values():
        if param._differentiable:
            param.set_data(mx.nd.array(rng.normal(scale=0.4, size=param.shape), dtype=param.dtype))
    return net


def mlp(outputs: int = 3, inputs: int = 4, seed: int = 1, **options: Any) -> Any:
    net = nn.HybridSequential()
    net.add(nn.Dense(5, activation="tanh"), nn.Dense(outputs))
    return initialise(net, mx.nd.zeros((1, inputs)), seed)


def weights(*nets: Any) -> list[Any]:
    return [p.data().asnumpy() for net in nets for p in net.collect_params().values()]


def mnist(job: Any) -> Any:
    """example/gluon/mnist: the batch in hand says how many samples."""
    net = mlp()
    trainer = job.trainer(net.collect_params(), "sgd", {"learning_rate": 0.1, "momentum": 0.9})
    for epoch in job.epochs(EPOCHS, samples=SAMPLES, global_batch=BATCH):
        for x, y in epoch.batches(data()):
            with autograd.record():
                loss = CROSS(net(x), y)
            loss.backward()
            trainer.step(x.shape[0])
    return weights(net)


def cifar10_decay(job: Any) -> Any:
    """GluonCV's train_cifar10: the rate is multiplied where an epoch begins; the batch size is a constant."""
    net = mlp()
    trainer = job.trainer(net.collect_params(), "nag", {"learning_rate": 0.2, "momentum": 0.9, "wd": 1e-3})
    for epoch in job.epochs(EPOCHS, samples=SAMPLES, global_batch=BATCH):
        if epoch.number in (1, 2):
            trainer.set_learning_rate(trainer.learning_rate * 0.3)
        for batch in epoch.batches(data()):
            parts = gluon.utils.split_and_load(batch[0], [mx.cpu()], even_split=False)
            targets = gluon.utils.split_and_load(batch[1], [mx.cpu()], even_split=False)
            with autograd.record():
                losses = [CROSS(net(x), y) for x, y in zip(parts, targets, strict=True)]
            for loss in losses:
                loss.backward()
            trainer.step(BATCH)
    return weights(net)


class WarmupCosine(mx.lr_scheduler.LRScheduler):
    """GluonCV's LRSequencer has schedulers inside it, which keep numbers of their own."""

    def __init__(self, base_lr: float) -> None:
        super().__init__(base_lr)
        factor = mx.lr_scheduler.FactorScheduler(2, 0.7, base_lr=base_lr)
        self.parts = [factor, mx.lr_scheduler.CosineScheduler(20, base_lr)]
        self.latest_update = 0

    def __call__(self, num_update: int) -> float:
        self.latest_update = num_update
        return float(self.parts[num_update > 5](num_update))


def imagenet(job: Any) -> Any:
    """GluonCV's train_imagenet: label smoothing, a schedule made of schedules, no decay on biases."""
    net = mlp()
    for name, param in net.collect_params().items():
        if name.endswith("bias"):
            param.wd_mult = 0.0
    soft = gluon.loss.SoftmaxCrossEntropyLoss(sparse_label=False)
    optimizer = {"wd": 0.01, "momentum": 0.9, "lr_scheduler": WarmupCosine(0.2), "multi_precision": True}
    trainer = job.trainer(net.collect_params(), "nag", optimizer)
    for epoch in job.epochs(EPOCHS, samples=SAMPLES, global_batch=BATCH):
        for x, y in epoch.batches(data()):
            smooth = y.one_hot(3) * 0.85 + 0.05
            with autograd.record():
                loss = soft(net(x), smooth)
            loss.backward()
            trainer.step(BATCH)
    return weights(net)


def dcgan(job: Any) -> Any:
    """example/gluon/dc_gan: the generator is trained against the discriminator's new weights, on the same batch."""
    noise = Rows(numbers(SAMPLES, 4), numbers(SAMPLES, 2, seed=9))
    generator, judge = mlp(4, 2, seed=2), mlp(1, 4, seed=3)
    loss_of = gluon.loss.SigmoidBinaryCrossEntropyLoss()
    g = job.trainer(generator.collect_params(), "adam", {"learning_rate": 0.02, "beta1": 0.5})
    d = job.trainer(judge.collect_params(), "adam", {"learning_rate": 0.02, "beta1": 0.5})
    for epoch in job.epochs(EPOCHS, samples=SAMPLES, global_batch=BATCH):
        for real, z in epoch.batches(noise):
            ones, zeros = mx.nd.ones(len(real)), mx.nd.zeros(len(real))
            with autograd.record():
                fake = generator(z)
                error = loss_of(judge(real), ones) + loss_of(judge(fake.detach()), zeros)
            error.backward()
            d.step(len(real))
            with autograd.record():
                error = loss_of(judge(generator(z)), ones)
            error.backward()
            g.step(len(real))
    return weights(generator, judge)


class Words(gluon.Block):
    """example/gluon/word_language_model, with the embedding tied to the decoder."""

    def __init__(self) -> None:
        super().__init__()
        with self.name_scope():
            self.embedding = nn.Embedding(7, 5)
            self.rnn = gluon.rnn.LSTM(5, layout="NTC", input_size=5)
            self.decoder = nn.Dense(7, in_units=5, flatten=False, params=self.embedding.params)

    def forward(self, x: Any) -> Any:
        return self.decoder(self.rnn(self.embedding(x)))


def word_language_model(job: Any) -> Any:
    """Between the sum and the update the gradients are clipped by their common norm."""
    text = labels(7, shape=(SAMPLES, 6))
    net = initialise(Words(), mx.nd.zeros((1, 5)))
    params = net.collect_params()
    trainer = job.trainer(params, "sgd", {"learning_rate": 1.0})
    for epoch in job.epochs(EPOCHS, samples=SAMPLES, global_batch=BATCH):
        for (sentence,) in epoch.batches(Rows(text)):
            with autograd.record():
                loss = CROSS(net(sentence[:, :-1]), sentence[:, 1:])
            loss.backward()
            trainer.allreduce_grads()
            gluon.utils.clip_global_norm([p.grad() for p in params.values()], 0.2 * BATCH, check_isfinite=False)
            trainer.update(BATCH)
    return weights(net)


def translation(job: Any) -> Any:
    """GluonNLP's machine translation: sentences of unequal lengths, whose loss is divided by the words of the batch."""
    text, length = labels(7, shape=(SAMPLES, 6)), labels(5, seed=7) + 1
    net = initialise(Words(), mx.nd.zeros((1, 5)))
    trainer = job.trainer(net.collect_params(), "adam", {"learning_rate": 0.02})
    for epoch in job.epochs(EPOCHS, samples=SAMPLES, global_batch=BATCH):
        for sentence, words in epoch.batches(Rows(text, length)):
            there = mx.nd.arange(5).expand_dims(0) < words.astype("float32").expand_dims(1)
            with autograd.record():
                loss = CROSS(net(sentence[:, :-1]), sentence[:, 1:], there.expand_dims(2)) * 5
            loss.backward()
            trainer.step(epoch.sum(there.sum().asscalar()))
    return weights(net)


BATCHES, LENGTH = 4, 3  # of a text's epoch; words of a row in each
TEXT = labels(7, shape=(BATCH, BATCHES * LENGTH + 1))
LINES = Rows(*([TEXT[k, t * LENGTH + n :][:LENGTH] for t in range(BATCHES) for k in range(BATCH)] for n in (0, 1)))
ORDER = [list(range(t * BATCH, (t + 1) * BATCH)) for t in range(BATCHES)]


class Recurrent(gluon.Block):
    """example/gluon/word_language_model."""

    def __init__(self) -> None:
        super().__init__()
        with self.name_scope():
            self.embedding = nn.Embedding(7, 5)
            self.rnn = gluon.rnn.LSTM(5, layout="NTC", input_size=5)
            self.decoder = nn.Dense(7, in_units=5, flatten=False)

    def forward(self, words: Any, hidden: Any) -> Any:
        output, hidden = self.rnn(self.embedding(words), hidden)
        return self.decoder(output), hidden


def recurrent() -> Any:
    net = Recurrent()
    net.initialize()
    begun = net.rnn.begin_state(batch_size=1)
    net(mx.nd.zeros((1, LENGTH)), begun)
    rng = np.random.default_rng(1)
    for param in net.collect_params().values():
        param.set_data(mx.nd.array(rng.normal(scale=0.4, size=param.shape)))
    return net


def truncated(job: Any, also: int = 1) -> Any:
    """Truncated back-propagation: a row's hidden state goes on from batch to batch."""
    net = recurrent()
    trainer = job.trainer(net.collect_params(), "sgd", {"learning_rate": 0.5}, accumulate=also)
    loader = job.loader(LINES, batch_sampler=ORDER)
    hidden = job.rows(net.rnn.begin_state(batch_size=BATCH), axis=1)
    for epoch in job.epochs(EPOCHS):
        hidden.reset()
        for words, following in loader:
            with autograd.record():
                output, new = net(words, hidden.mine)
                loss = CROSS(output, following)
            loss.backward()
            hidden.mine = new
            if epoch.update_due:
                trainer.step(BATCH * also)
    return [*weights(net), *(state.asnumpy() for state in hidden.whole)]


class Means(gluon.Block):
    """Of a sentence's words, without the padding."""

    def __init__(self) -> None:
        super().__init__()
        with self.name_scope():
            self.embedding = nn.Embedding(7, 5)
            self.decoder = nn.Dense(3, in_units=5)

    def forward(self, words: Any) -> Any:
        there = (words != 6).expand_dims(2)
        return self.decoder((self.embedding(words) * there).sum(axis=1) / there.sum(axis=1))


class Buckets:
    """GluonNLP's FixedBucketSampler: a batch is of sentences of like lengths, the shorter the more. Buckets and batches
    are shuffled in place, here with a generator of its own.
    """

    def __init__(self, lengths: Any) -> None:
        self._draws = np.random.RandomState(3)
        self._buckets = [np.flatnonzero(lengths <= 3), np.flatnonzero(lengths > 3)]
        self._batches = [(0, 0, 8), (0, 8, SAMPLES), (1, 0, 4), (1, 4, SAMPLES)]

    def __iter__(self) -> Iterator[list[int]]:
        for bucket in self._buckets:
            self._draws.shuffle(bucket)
        self._draws.shuffle(self._batches)
        for bucket, first, end in self._batches:
            yield self._buckets[bucket][first:end].tolist()

    def __len__(self) -> int:
        return len(self._batches)


def padded(sentences: list[Any]) -> Any:
    longest = max(len(words) for words, _ in sentences)
    words = np.stack([np.pad(words, (0, longest - len(words)), constant_values=6) for words, _ in sentences])
    return mx.nd.array(words), mx.nd.array([label for _, label in sentences])


def sentiment_analysis(job: Any) -> Any:
    """GluonNLP's: buckets by length, so that batches have unequal numbers of samples, padded to unequal lengths
    that the net masks.
    """
    lengths = np.arange(SAMPLES) % 5 + 1
    rows = Rows([words[:n] for words, n in zip(labels(6, shape=(SAMPLES, 5)), lengths, strict=True)], labels(3))
    net = initialise(Means(), mx.nd.zeros((1, 5)))
    trainer = job.trainer(net.collect_params(), "adam", {"learning_rate": 0.03})
    loader = job.loader(rows, batch_sampler=Buckets(lengths), batchify_fn=padded, whole_batch=False)
    for _ in job.epochs(EPOCHS):
        for words, label in loader:
            with autograd.record():
                loss = CROSS(net(words), label)
            loss.backward()
            trainer.step(len(label))
    return weights(net)


def mixed(samples: list[Any]) -> Any:
    """Each sample with another one of the batch; how much of it follows from the batch here, and would be drawn."""
    x, y = (np.stack(column) for column in zip(*samples, strict=True))
    one_hot, much = np.eye(3, dtype=np.float32)[y], np.float32(abs(x.sum()) % 1)
    return mx.nd.array(much * x + (1 - much) * x[::-1]), mx.nd.array(much * one_hot + (1 - much) * one_hot[::-1])


def mixup(job: Any) -> Any:
    """GluonCV's `--mixup`: a sample's partner is at the other end of the whole batch."""
    net, soft = mlp(), gluon.loss.SoftmaxCrossEntropyLoss(sparse_label=False)
    trainer = job.trainer(net.collect_params(), "sgd", {"learning_rate": 0.2, "momentum": 0.9})
    loader = job.loader(data(), BATCH, shuffle=True, batchify_fn=mixed, whole_batch=True)
    for _ in job.epochs(EPOCHS):
        for x, y in loader:
            with autograd.record():
                loss = soft(net(x), y)
            loss.backward()
            trainer.step(BATCH)
    return weights(net)


def embedding(job: Any) -> Any:
    """example/gluon/embedding_learning and two-tower models: a part of the net has a part in some batches only."""
    towers = [mlp(3, seed=4), mlp(3, seed=5)]
    params = gluon.ParameterDict()
    for tower in towers:
        params.update(tower.collect_params())
    trainer = job.trainer(params, "adam", {"learning_rate": 0.03})
    rows = Rows(numbers(SAMPLES, 4), labels(3), (np.arange(SAMPLES) % 5 == 0).astype(np.float32))
    for epoch in job.epochs(EPOCHS, samples=SAMPLES, global_batch=3):
        for x, y, rare in epoch.batches(rows):
            which = rare.asnumpy() > 0
            with autograd.record():
                losses = []
                for tower, mine in ((towers[0], ~which), (towers[1], which)):
                    if mine.any():
                        places = mx.nd.array(np.flatnonzero(mine))
                        losses.append(CROSS(tower(x.take(places)), y.take(places)).sum())
            autograd.backward(losses)
            trainer.step(len(x), ignore_stale_grad=True)
    return weights(*towers)


def accumulation(job: Any) -> Any:
    """GluonNLP's pretraining: means over padded batches, added up over two of them, also over the end of an epoch."""
    net = mlp()
    params = net.collect_params()
    params.setattr("grad_req", "add")
    trainer = job.trainer(params, "adam", {"learning_rate": 0.03}, loss="mean")
    for epoch in job.epochs(EPOCHS, samples=SAMPLES, global_batch=BATCH):
        for i, (x, y) in epoch.enumerate(data()):
            with autograd.record():
                loss = CROSS(net(x), y).mean() / 3
            loss.backward()
            if (i + 1) % 3 == 0:
                trainer.allreduce_grads()
                gluon.utils.clip_global_norm([p.grad() for p in params.values()], 0.3, check_isfinite=False)
                trainer.update(1)
                params.zero_grad()
    return weights(net)


def summed_accumulation(job: Any) -> Any:
    """The same of sums: `step` is told the samples of all batches."""
    net = mlp()
    params = net.collect_params()
    params.setattr("grad_req", "add")
    trainer = job.trainer(params, "sgd", {"learning_rate": 0.1, "momentum": 0.9})
    for epoch in job.epochs(EPOCHS, samples=SAMPLES, global_batch=BATCH):
        for i, (x, y) in epoch.enumerate(data()):
            with autograd.record():
                loss = CROSS(net(x), y)
            loss.backward()
            if i % 2:
                trainer.step(2 * BATCH)
                params.zero_grad()
    return weights(net)


def horovod(job: Any) -> Any:
    """Horovod's MXNet examples: an optimizer object, a rate for each step set in the loop."""
    net = mlp()
    optimizer = mx.optimizer.create("sgd", learning_rate=0.1, momentum=0.9, multi_precision=True)
    trainer = job.trainer(net.collect_params(), optimizer)
    for epoch in job.epochs(EPOCHS, samples=SAMPLES, global_batch=BATCH):
        for i, (x, y) in epoch.enumerate(data()):
            trainer.set_learning_rate(0.1 / (1 + epoch.number * 4 + i))
            with autograd.record():
                loss = CROSS(net(x), y)
            loss.backward()
            trainer.step(BATCH)
    return weights(net)


def nothing(_: Any) -> None:
    pass


Hook = Callable[[Any], object]


def train(
    job: Any,
    net: Any,
    trainer: Any,
    *,
    begins: Hook = nothing,
    after: Hook = nothing,
    ends: Hook = nothing,
    epochs: int = EPOCHS,
    **options: Any,
) -> None:
    """The ordinary loop. What a script does beside it is told the epoch: where it `begins`, `after` each step, and
    where it `ends`.
    """
    for epoch in job.epochs(epochs, samples=SAMPLES, global_batch=BATCH, **options):
        begins(epoch)
        for x, y in epoch.batches(data()):
            with autograd.record():
                loss = CROSS(net(x), y)
            loss.backward()
            trainer.step(BATCH)
            after(epoch)
        ends(epoch)


def trained_with(job: Any, optimizer: Any, options: Any = None) -> Any:
    net = mlp()
    train(job, net, job.trainer(net.collect_params(), optimizer, options))
    return weights(net)


def _with_optimizer(name: str, **options: Any) -> Any:
    def script(job: Any) -> Any:
        return trained_with(job, name, {"learning_rate": 0.02, **options})

    script.__name__ = name
    return script


@mx.optimizer.register
class Remembering(mx.optimizer.Optimizer):
    """An optimizer of somebody's own: it keeps numbers, an array and a dictionary beside its states."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.speed, self.seen, self.history = 1.0, {}, mx.nd.zeros(2)

    def create_state(self, index: int, weight: Any) -> Any:
        return mx.nd.zeros_like(weight)

    def update(self, index: int, weight: Any, grad: Any, state: Any) -> None:
        self._update_count(index)
        self.speed = 0.9 * self.speed + 0.1 * index
        self.seen[index] = self.seen.get(index, 0) + 1
        self.history[0] += 0.01
        state[:] = 0.5 * state + grad * self.rescale_grad
        factor = self.speed * self.seen[index] ** -0.5 * (1 - float(self.history[0].asscalar()))
        weight[:] -= self._get_lr(index) * factor * state


nadam, lars, lamb = _with_optimizer("nadam"), _with_optimizer("lars", momentum=0.9), _with_optimizer("lamb")
dcasgd = _with_optimizer("dcasgd")
remembering = _with_optimizer("remembering")


def fine_tuning(job: Any) -> Any:
    """Transfer learning: the features are frozen at first; their layers train from an epoch on."""
    net = mlp()
    net[0].collect_params().setattr("grad_req", "null")
    trainer = job.trainer(net.collect_params(), "adam", {"learning_rate": 0.03})
    for epoch in job.epochs(EPOCHS, samples=SAMPLES, global_batch=BATCH):
        if epoch.number == 1:
            net[0].collect_params().setattr("grad_req", "write")
            net[0].collect_params().setattr("lr_mult", 0.5)
        for x, y in epoch.batches(data()):
            with autograd.record():
                loss = CROSS(net(x), y)
            loss.backward()
            trainer.step(len(y))
    return weights(net)


def averaged_weights(job: Any) -> Any:
    """A running average of all weights, in a dictionary, which is what is evaluated and kept in the end."""
    net = mlp()
    params = net.collect_params()
    trainer = job.trainer(params, "sgd", {"learning_rate": 0.2, "momentum": 0.9})
    average = job.keep({name: p.data().copy() for name, p in params.items()})
    for epoch in job.epochs(EPOCHS, samples=SAMPLES, global_batch=BATCH):
        for x, y in epoch.batches(data()):
            with autograd.record():
                loss = CROSS(net(x), y)
            loss.backward()
            trainer.step(BATCH)
            for name, p in params.items():
                average[name] = 0.8 * average[name] + 0.2 * p.data()
    return [array.asnumpy() for array in average.values()]


class SpectralNorm(gluon.Block):
    """example/gluon/sn_gan: each forward pass makes the vector better by which the weight's norm is found."""

    def __init__(self) -> None:
        super().__init__()
        with self.name_scope():
            self.weight = self.params.get("weight", shape=(5, 4))
            self.u = self.params.get("u", shape=(1, 5))

    def forward(self, x: Any) -> Any:
        weight = self.weight.data()
        v = mx.nd.L2Normalization(mx.nd.dot(self.u.data(), weight))
        u = mx.nd.L2Normalization(mx.nd.dot(v, weight.T))
        sigma = mx.nd.sum(mx.nd.dot(u, weight) * v)
        with autograd.pause():
            self.u.set_data(u)
        return mx.nd.dot(x, (weight / sigma).T)


def spectral_norm(job: Any) -> Any:
    net = nn.Sequential()
    net.add(SpectralNorm(), nn.Activation("tanh"), nn.Dense(3))
    net = initialise(net, mx.nd.zeros((1, 4)))
    trainer = job.trainer(net.collect_params(), "adam", {"learning_rate": 0.05})
    for epoch in job.epochs(EPOCHS, samples=SAMPLES, global_batch=BATCH):
        for x, y in epoch.batches(data()):
            with autograd.record():
                loss = CROSS(net(x), y)
            loss.backward()
            trainer.step(BATCH)
    return weights(net)


def raising(job: Any) -> Any:
    """A bug that shows in the fourth batch, in the body of the loop."""
    net, seen = mlp(), {1: "one", 2: "two", 3: "three"}
    trainer = job.trainer(net.collect_params(), "sgd", {"learning_rate": 0.2})
    for epoch in job.epochs(EPOCHS, samples=SAMPLES, global_batch=BATCH):
        for x, y in epoch.batches(data()):
            with autograd.record():
                loss = CROSS(net(x), y)
            loss.backward()
            trainer.step(BATCH)
            assert seen[epoch.step_number + 1]
    return weights(net)


def keeps_best(job: Any) -> Any:
    """One writes the best parameters where an epoch ends, and all load them after the last."""
    net = mlp()
    trainer = job.trainer(net.collect_params(), "sgd", {"learning_rate": 0.2})
    wrote = []
    for epoch in job.epochs(EPOCHS, samples=SAMPLES, global_batch=BATCH):
        for x, y in epoch.batches(data()):
            with autograd.record():
                loss = CROSS(net(x), y)
            loss.backward()
            trainer.step(BATCH)
        if job.writes:
            wrote.append(int(epoch))
            net.save_parameters(str(job.output / f"epoch-{epoch}.params"))
    if job.writes:
        wrote.append(EPOCHS)
    if wrote:
        (job.output / f"wrote-{os.getpid()}").write_text(" ".join(map(str, wrote)))
    net.load_parameters(str(job.output / "epoch-1.params"))
    return weights(net)


def _by_what_it_has_seen(job: Any, sets: Callable[[Any, Any, int], object]) -> Any:
    """What must be refused: `sets` is told the trainer, the net, and how many batches this process has seen."""
    net, seen = mlp(), 0
    trainer = job.trainer(net.collect_params(), "sgd", {"learning_rate": 0.2})
    for epoch in job.epochs(100_000, samples=SAMPLES, global_batch=BATCH):
        for x, y in epoch.batches(data()):
            seen += 1
            sets(trainer, net, seen)
            with autograd.record():
                loss = CROSS(net(x), y)
            loss.backward()
            trainer.step(BATCH)
    return weights(net)


def local_decay(job: Any) -> Any:
    return _by_what_it_has_seen(job, lambda trainer, _, seen: trainer.set_learning_rate(0.2 if seen == 1 else 0.1))


def local_freezing(job: Any) -> Any:
    def freezes(_: Any, net: Any, seen: int) -> None:
        net[0].collect_params().setattr("grad_req", "write" if seen == 1 else "null")

    return _by_what_it_has_seen(job, freezes)


SCRIPTS = (
    mnist, cifar10_decay, imagenet, dcgan, word_language_model, translation, embedding, accumulation,
    summed_accumulation, sentiment_analysis, mixup, horovod, nadam, lars, lamb, remembering, fine_tuning,
    averaged_weights, spectral_norm, dcasgd,
)  # fmt: skip
