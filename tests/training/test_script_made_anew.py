"""Nets that are initialised within the loop over epochs: each worker draws other weights for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet
import pytest

import mxnet as mx  # isort: skip
from dyntrain.training.job import ElasticJob
from idioms import BATCH, CROSS, EPOCHS, SAMPLES, data, mlp
from mxnet import autograd
from told import tells

Makes = Callable[[], Any]


def drawn() -> Any:
    net = mx.gluon.nn.Dense(3, in_units=4)
    net.initialize()
    return net


def zeros() -> Any:
    net = mx.gluon.nn.Dense(3, in_units=4)
    net.initialize(mx.init.Zero())
    return net


def loaded() -> Any:
    net, other = drawn(), drawn()
    for own, its in zip(net.collect_params().values(), other.collect_params().values(), strict=True):
        own.set_data(its.data())
    return net


def deferred() -> Any:
    net = mx.gluon.nn.Dense(3)
    net.initialize()
    return net


def trained_beside(in_epoch: Makes | None = None, in_batch: Makes | None = None, in_loss: bool = True) -> None:
    """A net that is in the loss, or is only looked at."""
    job = ElasticJob.join()
    net, other = mlp(), drawn()
    trainer = job.trainer(net.collect_params(), "sgd")
    for epoch in job.epochs(EPOCHS, samples=SAMPLES, global_batch=BATCH):
        other = in_epoch() if in_epoch else other
        for x, y in epoch.batches(data()):
            other = in_batch() if in_batch else other
            with autograd.record():
                loss = CROSS(net(x), y)
                if in_loss:
                    loss = loss + ((net(x) - other(x)) ** 2).sum(axis=1)
            loss.backward()
            other(x)
            trainer.step(BATCH)


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ({}, 0),
        ({"in_epoch": drawn}, 1),
        ({"in_batch": drawn}, 1),
        ({"in_batch": deferred}, 1),
        ({"in_batch": loaded}, 0),
        ({"in_epoch": zeros}, 0),
        ({"in_epoch": drawn, "in_loss": False}, 0),
    ],
    ids=[
        "above the loop",
        "in an epoch",
        "in a batch",
        "when it is called",
        "and set",
        "to nothing",
        "to look at",
    ],
)
def test_a_net_that_is_made_within_the_loop_and_trains_is_told_of(
    said: Any, told: int, caplog: pytest.LogCaptureFixture
) -> None:
    trained_beside(**said)
    assert sum("DT509: " in record.getMessage() for record in caplog.records) == told


def test_a_net_that_draws_its_weights_in_one_batch_is_refused_in_the_next() -> None:
    with tells("DT501", "something of step 0"):
        trained_beside(in_epoch=deferred)


def test_a_head_that_is_initialised_anew_is_told_of(caplog: pytest.LogCaptureFixture) -> None:
    job = ElasticJob.join()
    trainer = job.trainer((net := mlp()).collect_params(), "sgd")
    for epoch in job.epochs(2, samples=SAMPLES, global_batch=BATCH):
        if epoch == 1:
            net[1].initialize(force_reinit=True)
        for x, y in epoch.batches(data()):
            with autograd.record():
                loss = CROSS(net(x), y)
            loss.backward()
            trainer.step(BATCH)
    assert sum("DT509: " in record.getMessage() for record in caplog.records) == 1
