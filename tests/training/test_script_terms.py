"""Losses of many terms, and of terms side by side: each of these is a public script's."""

from __future__ import annotations

from typing import Any

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet
import pytest
from conducted import Conductor, Plain
from dyntrain.training.worker.loop.agreed.rates import UnequalRates
from dyntrain.training.worker.loop.record.fingerprints import MOST_TERMS, fingerprint, fingerprints_agree
from heads import LOSSES, Loss
from idioms import BATCH, CROSS, EPOCHS, SAMPLES, data, mlp, weights
from mxnet import autograd
from test_script_heads import CHANGES, script
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
    all_close(Conductor(*CHANGES).run(as_it_says), script(Plain(), LOSSES["mean_and_sum"], 1))
