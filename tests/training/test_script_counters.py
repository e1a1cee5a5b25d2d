"""Numbers that a block changes in its forward pass: told of in the first batch, with what to write."""

from __future__ import annotations

import logging
from typing import Any

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet
import numpy as np
import pytest

import mxnet as mx  # isort: skip
from dyntrain.training.job import ElasticJob
from idioms import BATCH, SAMPLES, Rows, data, labels, mlp, numbers
from mxnet import autograd, gluon


class Cooling(gluon.loss.SoftmaxCrossEntropyLoss):
    """Its temperature falls with each call."""

    calls = 0

    def hybrid_forward(self, F: Any, pred: Any, label: Any, sample_weight: Any = None) -> Any:  # noqa: N803
        self.calls += 1
        return super().hybrid_forward(F, pred * (1 + 0.1 * self.calls), label)


class Cell(gluon.Block):
    """Gluon's cells count their steps, and begin anew."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = gluon.rnn.LSTMCell(3, input_size=4)

    def forward(self, x: Any) -> Any:
        return self.cell.unroll(1, x.expand_dims(1), merge_outputs=True)[0][:, 0]


def said(net: Any, loss_function: Any, dataset: Any, caplog: pytest.LogCaptureFixture) -> list[str]:
    job = ElasticJob.join()
    trainer = job.trainer(net.collect_params(), "sgd")
    with caplog.at_level(logging.WARNING):
        for epoch in job.epochs(2, samples=SAMPLES, global_batch=BATCH):
            for x, y in epoch.batches(dataset):
                with autograd.record():
                    loss = loss_function(net(x), y)
                loss.backward()
                trainer.step(BATCH)
    return [record.getMessage() for record in caplog.records if "DT510: " in record.getMessage()]


def test_t1_a_number_that_a_joiner_would_begin_with_anew_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    (line,) = said(mlp(), Cooling(), data(), caplog)
    assert "the forward pass of Cooling changes its number calls" in line
    assert "job.memory(calls=...)" in line


class Sized(gluon.Block):
    """Keeps how large its input was, to give it its shape again."""

    def __init__(self) -> None:
        super().__init__()
        self.net, self.batch_size = mlp(), 0

    def forward(self, x: Any) -> Any:
        self.batch_size = x.shape[0]
        return self.net(x.reshape((self.batch_size, -1)))


def test_how_large_an_input_was_is_no_count(caplog: pytest.LogCaptureFixture) -> None:
    assert said(Sized(), gluon.loss.SoftmaxCrossEntropyLoss(), data(), caplog) == []


def test_what_gluons_own_blocks_count_is_not_told(caplog: pytest.LogCaptureFixture) -> None:
    net = Cell()
    net.initialize(mx.init.Xavier())
    rows = Rows(numbers(SAMPLES, 4), labels(3))
    assert said(net, gluon.loss.SoftmaxCrossEntropyLoss(), rows, caplog) == []
    assert np.isfinite(net(mx.nd.ones((1, 4))).asnumpy()).all()
