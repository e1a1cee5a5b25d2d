"""Edits that the guide tells people to make, each in a script that trains then as the old one does in one process. An
edit that is only nearly right would cost its reader more than a refusal.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet
import numpy as np
import pytest

import mxnet as mx  # isort: skip
from conducted import Conductor, Plain
from idioms import BATCH, CROSS, EPOCHS, SAMPLES, Rows, data, labels, mlp, numbers, weights
from mxnet import autograd, gluon
from test_script_idioms import CHANGES, all_close

Script = Callable[[Any], list[Any]]
MSE = gluon.loss.L2Loss()
MASKED = Rows(numbers(SAMPLES, 4), labels(3), labels(2, seed=8).astype(np.float32), numbers(SAMPLES, seed=9))


def two_normalisers(job: Any, old: bool = False) -> list[Any]:
    """BERT's pretraining, CenterNet's heads: words and sentences are counted each for itself."""
    net, other = mlp(), mlp(1, seed=4)
    both = [*net.collect_params().values(), *other.collect_params().values()]
    trainer = job.trainer(both, "sgd", {"learning_rate": 0.3, "momentum": 0.9}, **({} if old else {"loss": "own"}))
    for epoch in job.epochs(EPOCHS, samples=SAMPLES, global_batch=BATCH):
        for x, y, mask, target in epoch.batches(MASKED):
            counts = float(mask.sum().asscalar()) + 1e-8 * len(x), float((y > 0).sum().asscalar()) + 1e-8 * len(x)
            words, sentences = counts if old else (epoch.sum(counts[0]), epoch.sum(counts[1]))
            with autograd.record():
                one = (CROSS(net(x), y) * mask).sum() / words
                two = (MSE(other(x), target) * (y > 0).astype("float32")).sum() / sentences
                loss = one + two
            loss.backward()
            trainer.step(1)
    return weights(net, other)


def clip_of_a_sum(job: Any, old: bool = False) -> list[Any]:
    """A clip where the loss was divided by the words of the batch: what is not divided yet is as many times larger."""
    net = mlp()
    params = list(net.collect_params().values())
    trainer = job.trainer(params, "sgd", {"learning_rate": 0.5, "momentum": 0.9})
    for epoch in job.epochs(EPOCHS, samples=SAMPLES, global_batch=BATCH):
        for x, y, mask, _ in epoch.batches(MASKED):
            with autograd.record():
                loss = (CROSS(net(x), y) * mask).sum()
                loss = loss / max(1, float(mask.sum().asscalar())) if old else loss
            loss.backward()
            words = 1 if old else max(1, epoch.sum(mask.sum().asscalar()))
            trainer.allreduce_grads()
            gluon.utils.clip_global_norm([p.grad() for p in params], 0.2 * words, check_isfinite=False)
            trainer.update(words)
    return weights(net)


def chosen(job: Any, old: bool = False) -> list[Any]:
    """Hard examples: a mean over those that a mask has chosen."""
    net = mlp()
    trainer = job.trainer(net.collect_params(), "sgd", {"learning_rate": 0.5, "momentum": 0.9})
    for epoch in job.epochs(EPOCHS, samples=SAMPLES, global_batch=BATCH):
        for x, y, mask, _ in epoch.batches(MASKED):
            with autograd.record():
                losses = CROSS(net(x), y)
                if mask.sum().asscalar():
                    some = mx.nd.contrib.boolean_mask(losses, mask)
                    loss = some.mean() if old else some.sum()
                else:
                    loss = losses.sum() * 0
            loss.backward()
            trainer.step(1 if old else max(1, epoch.sum(mask.sum().asscalar())))
    return weights(net)


def mirrored(samples: list[Any]) -> Any:
    x, y = (np.stack(column) for column in zip(*samples, strict=True))
    return tuple(map(mx.nd.array, (x, x[::-1], y, y[::-1])))


def mixup_that_ends(job: Any, old: bool = False) -> list[Any]:
    """GluonCV's `--mixup --mixup-off-epoch`: the last epochs train on the samples as they are."""
    net = mlp()
    trainer = job.trainer(net.collect_params(), "sgd", {"learning_rate": 0.2, "momentum": 0.9})
    loader = job.loader(data(), BATCH, shuffle=True, batchify_fn=mirrored, whole_batch=True)
    for epoch in job.epochs(EPOCHS):
        for x, partner, y, others in loader:
            share = 0.7 if epoch < EPOCHS - 1 else 1.0
            with autograd.record():
                out = net(share * x + (1 - share) * partner)
                loss = share * CROSS(out, y) + (1 - share) * CROSS(out, others)
            loss.backward()
            trainer.step(BATCH)
    return weights(net)


def fit_batch(job: Any, old: bool = False) -> list[Any]:
    """Gluon's Estimator, of which the loop is the job's."""
    from mxnet.gluon.contrib.estimator import Estimator  # which is slow to import

    net = mlp()
    trainer = job.trainer(net.collect_params(), "sgd", {"learning_rate": 0.2, "momentum": 0.9})
    estimator = Estimator(net, CROSS, trainer=trainer, context=mx.cpu())
    for epoch in job.epochs(EPOCHS, samples=SAMPLES, global_batch=BATCH):
        for batch in epoch.batches(data()):
            estimator.batch_processor.fit_batch(estimator, batch)
            trainer.step(BATCH)
    return weights(net)


def accumulated_means(job: Any, old: bool = False) -> list[Any]:
    """GluonNLP's finetune_classifier: means are added up, and the update is told how many."""
    net = mlp()
    params = net.collect_params()
    if old:
        params.setattr("grad_req", "add")
    options = {} if old else {"loss": "mean", "accumulate": 2}
    trainer = job.trainer(params, "sgd", {"learning_rate": 0.3, "momentum": 0.9}, **options)
    for epoch in job.epochs(EPOCHS, samples=SAMPLES, global_batch=BATCH):
        for i, (x, y) in epoch.enumerate(data()):
            with autograd.record():
                loss = CROSS(net(x), y).mean()
            loss.backward()
            if i % 2 if old else epoch.update_due:
                trainer.allreduce_grads()
                gluon.utils.clip_global_norm([p.grad() for p in params.values()], 1.0, check_isfinite=False)
                trainer.update(2)
                params.zero_grad()
    return weights(net)


def undivided(job: Any, old: bool = False) -> list[Any]:
    """GluonNLP's word embeddings: a sum, and step(1)."""
    net = mlp()
    trainer = job.trainer(net.collect_params(), "sgd", {"learning_rate": 0.02}, **({} if old else {"loss": "own"}))
    for epoch in job.epochs(EPOCHS, samples=SAMPLES, global_batch=BATCH):
        for x, y in epoch.batches(data()):
            with autograd.record():
                loss = CROSS(net(x), y) if old else CROSS(net(x), y).sum()
            loss.backward()
            trainer.step(1)
    return weights(net)


def times_its_count(job: Any, old: bool = False) -> list[Any]:
    """MarginLoss: divided by its pairs within itself, and step(len(x))."""
    net = mlp()
    trainer = job.trainer(net.collect_params(), "sgd", {"learning_rate": 0.2})
    for epoch in job.epochs(EPOCHS, samples=SAMPLES, global_batch=BATCH):
        for x, y, mask, _ in epoch.batches(MASKED):
            pairs = float(mask.sum().asscalar()) + 1e-6 * len(x)
            with autograd.record():
                loss = (CROSS(net(x), y) * mask).sum() / pairs
                loss = loss if old else loss * pairs
            loss.backward()
            trainer.step(len(x) if old else epoch.sum(pairs) * epoch.sum(len(x)))
    return weights(net)


@pytest.mark.parametrize("change", ["three workers", "one, three, two", "a crash in a step"])
@pytest.mark.parametrize(
    "script",
    [
        two_normalisers,
        clip_of_a_sum,
        chosen,
        mixup_that_ends,
        fit_batch,
        accumulated_means,
        undivided,
        times_its_count,
    ],
    ids=lambda script: script.__name__,
)
def test_t2_what_the_guide_says_to_write_gives_the_weights_of_what_stood_there(script: Any, change: str) -> None:
    all_close(Conductor(*CHANGES[change]).run(script), script(Plain(), old=True))
