"""Losses of many terms, and of terms side by side: each of these is a public script's."""

from __future__ import annotations

from typing import Any

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet
import pytest
from conducted import Conductor, Plain
from dyntrain.training.job import ElasticJob
from dyntrain.training.worker.loop.agreed.rates import UnequalRates
from dyntrain.training.worker.loop.record.fingerprints import MOST_TERMS, fingerprint, fingerprints_agree
from idioms import BATCH, CROSS, EPOCHS, SAMPLES, data, mlp, weights
from mxnet import autograd
from test_script_heads import CHANGES, Loss, script
from test_script_idioms import all_close

import mxnet as mx  # isort: skip


def tasks(number: int, divides: bool) -> Loss:
    def loss_of(net: Any, x: Any, y: Any) -> Any:
        out = net(x)
        loss = mx.nd.add_n(*[0.001 * (k + 1) * CROSS(out, y) for k in range(number)]).sum()
        return loss / len(y) if divides else loss

    return loss_of


@pytest.mark.parametrize("number", [9, 20, 100])
def test_a_count_is_found_however_many_terms_the_loss_has(number: int) -> None:
    with pytest.raises(UnequalRates, match="DT412"):
        Conductor(*CHANGES).run(lambda job: script(job, tasks(number, divides=True)))


def test_t2_many_terms_are_no_count() -> None:
    many = tasks(100, divides=False)
    all_close(Conductor(*CHANGES).run(lambda job: script(job, many)), script(Plain(), many))


@pytest.mark.parametrize("terms", [3, MOST_TERMS, 150, 1000])
def test_who_lacks_a_few_of_many_terms_is_of_one_opinion_with_the_others(terms: int) -> None:
    """Also where it tells of another half of them."""
    for step in range(50):
        factors = [("pick", str(number)) for number in range(1, terms + 1)]
        all_of_them, most = fingerprint(factors, step), fingerprint(factors[terms // 3 :], step)
        assert fingerprints_agree([a + b for a, b in zip(all_of_them, most, strict=True)])


def the_mean_of_two(net: Any, x: Any, y: Any) -> Any:
    """Of each sample: the first axis is that of the losses."""
    out = net(x)
    return mx.nd.stack(CROSS(out, y), (out**2).sum(axis=1)).mean(axis=0)


def the_smaller_of_two(net: Any, x: Any, y: Any) -> Any:
    out = net(x)
    return mx.nd.stack(CROSS(out, y), 0.3 * (out**2).sum(axis=1)).min(axis=0)


def the_smaller_on_average(net: Any, x: Any, y: Any) -> Any:
    return the_smaller_of_two(net, x, y).mean()


def gaussian_prior(net: Any, x: Any, y: Any) -> Any:
    """Bayes by backprop, whose density has a term without weights."""
    weight, sigma = net[0].weight.data(), mx.nd.array([2.0])
    return CROSS(net(x), y).mean() - mx.nd.sum(-0.9 - mx.nd.log(sigma) - weight**2 / (2 * sigma**2))


def mean_and_sum(net: Any, x: Any, y: Any) -> Any:
    out = net(x)
    return CROSS(out, y).mean() + (out**2).sum() / 8


@pytest.mark.parametrize("loss", [None, "mean", "own"])
def test_a_mean_with_a_sum_beside_it_is_not_sent_from_one_word_to_the_other(loss: Any) -> None:
    with pytest.raises(ValueError, match=r"DT103.*loss='own'"):
        script(ElasticJob.join(), mean_and_sum, 1, loss)


def as_it_says(job: Any) -> list[Any]:
    net = mlp()
    trainer = job.trainer(net.collect_params(), "sgd", {"learning_rate": 0.1, "momentum": 0.9}, loss="own")
    for epoch in job.epochs(EPOCHS, samples=SAMPLES, global_batch=BATCH):
        for x, y in epoch.batches(data()):
            with autograd.record():
                out = net(x)
                loss = CROSS(out, y).sum() / epoch.sum(len(x)) + (out**2).sum() / 8
            loss.backward()
            trainer.step(1)
    return weights(net)


def test_t2_a_mean_with_a_sum_beside_it_trains_as_the_sentence_says() -> None:
    all_close(Conductor(*CHANGES).run(as_it_says), script(Plain(), mean_and_sum, 1))


def by_own_words(net: Any, x: Any, y: Any) -> Any:
    """GluonNLP's skip-gram: what each sample is divided by is its own, and the whole is not divided again."""
    return ((net(x) ** 2).sum(axis=1) / ((x > 0).sum(axis=1) + 1)).sum()


@pytest.mark.parametrize(
    ("loss_of", "step", "loss"),
    [
        (by_own_words, 1, "own"),
        (the_mean_of_two, BATCH, None),
        (the_smaller_of_two, BATCH, None),
        (the_smaller_on_average, 1, "mean"),
        (gaussian_prior, 1, "mean"),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_t2_terms_side_by_side_are_of_each_sample(loss_of: Loss, step: float, loss: Any) -> None:
    all_close(Conductor(*CHANGES).run(lambda job: script(job, loss_of, step, loss)), script(Plain(), loss_of, step))
